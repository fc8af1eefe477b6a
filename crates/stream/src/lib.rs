//! Continuous SQL over streams.
//!
//! A script in Flink SQL's dialect goes through these parts. Each of them knows only those before it:
//!
//! 1. [`types`] and [`function`]: values, casts, coercion, scalar and aggregate functions; [`expr`]: typed expressions
//!    and their evaluation.
//! 2. [`sql`] parses: text to statements, with the place of every word.
//! 3. [`catalog`]: tables, views, their options, and what connectors declare.
//! 4. [`plan`]: statements to a typed logical plan, its changelog, the rules that improve it, and its pipelines. The
//!    interpreter in `plan::reference` runs it slowly and plainly: it is the oracle for everything that runs fast.
//! 5. [`state`] of pipelines, in `memory` within limits; [`compile`]: the plan as machine code over [`batch`]es and
//!    state.
//! 6. `formats`: records of CSV and JSON, read into batches and written from rows; `connectors`: sources, sinks and
//!    lookups.
//! 7. [`run`]: jobs, their threads and checkpoints.
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
mod formats;
pub mod function;
mod memory;
pub mod plan;
pub mod run;
mod session;
pub mod sql;
pub mod state;
pub mod types;

pub use connectors::nexmark::generator as nexmark;
pub use error::{Error, ErrorKind, Position, Result};
#[doc(hidden)]
pub use formats::fuzzing;
pub use session::{Job, Outcome, Pipeline, Session};
