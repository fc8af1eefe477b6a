//! One file per command.

pub mod bench;
pub mod check;
pub mod del;
pub mod dump;
pub mod erase;
pub mod export;
pub mod get;
pub mod import;
#[cfg(feature = "sql")]
pub mod jobs;
pub mod load;
pub mod put;
pub mod scan;
pub mod serve;
#[cfg(feature = "sql")]
pub mod served;
#[cfg(feature = "sql")]
pub mod sql;
pub mod stats;
pub mod version;
#[cfg(not(feature = "sql"))]
pub mod without_sql;

use indicatif::{ProgressBar, ProgressStyle};

/// A bar on standard error, when that is a terminal.
fn progress_bar(total: u64, unit: &str) -> ProgressBar {
    let template = format!("{{bar:40}} {{pos}}/{{len}} {unit}, {{per_sec}}, {{eta}} left");
    let bar = ProgressBar::new(total);
    match ProgressStyle::with_template(&template) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}
