//! The engine through its public door, in one program: each is linked with all of it. What needs a process of its own stands
//! beside it.

#![allow(clippy::unwrap_used, clippy::panic)] // A panic here is a failed test.

mod collections;
mod damage;
mod evict;
mod examples;
mod format;
mod full;
mod image;
mod limits;
mod locks;
mod prototype;
mod range;
mod roots;
mod store;
mod tables;
mod unit;
