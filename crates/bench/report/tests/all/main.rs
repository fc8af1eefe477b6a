//! A report as others read it.

#![allow(clippy::unwrap_used, clippy::panic)] // A panic here is a failed test.

mod browser;
mod page;
mod support;
