//! One file per command.

#[cfg(feature = "bench")]
pub mod bench;
pub mod check;
pub mod compact;
pub mod del;
pub mod dump;
pub mod erase;
pub mod export;
pub mod get;
#[cfg(feature = "sql")]
pub mod hosted_jobs;
pub mod import;
#[cfg(feature = "sql")]
pub mod jobs;
pub mod load;
pub mod manual;
#[cfg(not(all(feature = "bench", feature = "sql")))]
pub mod missing;
pub mod ping;
pub mod put;
pub mod scan;
pub mod serve;
#[cfg(feature = "sql")]
pub mod sql;
pub mod stats;
pub mod version;

use indicatif::{HumanCount, ProgressBar, ProgressState, ProgressStyle};
use std::fmt;

/// A bar on standard error, when that is a terminal. Bytes are shown in MiB and similar units; a total of 0 is unknown.
fn progress_bar(total: u64, unit: &str) -> ProgressBar {
    let template = match (unit, total) {
        ("bytes", 0) => "{spinner} {binary_bytes}, {binary_bytes_per_sec}".to_owned(),
        ("bytes", _) => {
            "{bar:40} {percent} %, {binary_bytes} of {binary_total_bytes}, {binary_bytes_per_sec}, {eta} left"
                .to_owned()
        }
        (unit, 0) => format!("{{spinner}} {{human_pos}} {unit}, {{rate}}"),
        (unit, _) => {
            format!("{{bar:40}} {{percent}} %, {{human_pos}} of {{human_len}} {unit}, {{rate}}, {{eta}} left")
        }
    };
    let bar = if total == 0 { ProgressBar::new_spinner() } else { ProgressBar::new(total) };
    let rate = |state: &ProgressState, text: &mut dyn fmt::Write| {
        let _ = write!(text, "{}/s", HumanCount(state.per_sec() as u64));
    };
    match ProgressStyle::with_template(&template) {
        Ok(style) => bar.with_style(style.with_key("rate", rate)),
        Err(_) => bar,
    }
}
