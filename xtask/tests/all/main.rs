//! The checks on real processes, in their short forms.

#![allow(clippy::unwrap_used)] // A panic here is a failed test.

mod restart;
mod torture;
