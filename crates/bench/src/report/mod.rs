//! The data of a benchmark run, as JSON to keep and as HTML to read: the machine, the measurements, latencies and
//! bounds. The crate measures nothing itself and knows neither a medium nor the engine.
//!
//! A [`Run`] is one execution of one tool. It holds [`Measurement`]s: a point in the tool's matrix (its
//! *arguments*) and the results there (*metrics*, latencies, time series, parts, the bound).

pub mod compare;
mod error;
mod file;
mod headline;
pub mod html;
mod judgement;
mod latency;
mod machine;
mod plot;
pub mod price;
mod run;
mod scale;
pub mod text;

pub use error::{Error, Result};
pub use file::{SCHEMA, SCHEMA_VERSION, write_whole};
pub use latency::{Latency, Percentile};
pub use machine::{Cache, Machine, NumaNode};
pub use run::{
    Argument, Better, Bound, Finding, Measurement, Medium, Metric, Part, Run, Series, Unit, Verdict,
};
pub use scale::figure;
