//! Tests of the report through its public interface.

#![allow(clippy::unwrap_used, clippy::panic)] // A panic here is a failed test.

mod browser;
mod page;
mod support;
