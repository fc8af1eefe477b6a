//! Continuous SQL over streams.
//!
//! A script in Flink SQL's dialect goes through these parts. Each of them knows only those before it:
//!
//! 1. [`types`] and [`function`]: values, casts, coercion, scalar and aggregate functions; [`expr`]: typed expressions
//!    and their evaluation.
//! 2. [`sql`]: text to statements, with the place of every word.
//! 3. [`options`] and [`catalog`]: the options of tables; tables, views, and what connectors declare.
//! 4. [`plan`]: statements to a typed logical plan, its changelog, and the rules that improve it.
//! 5. [`physical`]: the plan as pipelines and the breakers between them, with the layout of their state.
//! 6. [`compile`]: the plan as machine code over [`batch`]es and [`state`].
//! 7. [`formats`]: records of CSV and JSON, read into batches and written from rows.
//! 8. [`reference`](mod@reference): runs a logical plan over finite input, slowly and plainly. It is the oracle for
//!    everything that runs fast.
//!
//! Use [`Pipeline`] to run a job, and [`Session`] to run statements.

#![deny(unsafe_code)]

pub mod batch;
pub mod catalog;
pub mod compile;
mod connectors;
#[cfg(test)]
mod document;
pub mod error;
pub mod expr;
pub mod formats;
pub mod function;
mod headroom;
pub mod nexmark;
pub mod options;
pub mod physical;
mod pipeline;
pub mod plan;
pub mod reference;
pub mod run;
mod session;
pub mod sql;
pub mod state;
pub mod types;

pub use error::{Error, ErrorKind, Position, Result};
pub use pipeline::Pipeline;
pub use session::{Job, Outcome, Session};
