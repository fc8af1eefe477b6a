//! Metrics for Prometheus, and whether the process is alive and ready: directive `duramen-metrics`, and `duramen sql
//! --metrics`.
//!
//! Nothing is counted for metrics: each scrape reads the counters of INFO. [`TABLE`] declares every family; docs/metrics.md
//! is made from it, and a test checks that INFO has no number that is neither exported nor named in [`NOT_EXPORTED`].
//!
//! | module | is about |
//! |---|---|
//! | [`http`] | the server, which knows no path |
//! | [`site`] | the paths, and whether the process is ready |
//! | [`family`] | families, their samples, and the two text formats |
//! | [`table`] | all families |
//! | [`facts`] | the numbers of one scrape |

#[cfg(test)]
mod document;
pub mod facts;
pub mod family;
pub mod http;
pub mod site;
pub mod table;

pub use http::{Listening, address};
pub use site::{Observed, Phase};
pub use table::{NOT_EXPORTED, TABLE};
