//! The indexes of a collection against models, in long random sequences.
//!
//! Miri runs only those of the pages, where the unsafe code is: map and tree have none, and would take it hours.

#[cfg(not(miri))]
mod measure;
#[cfg(not(miri))]
mod of_checkpoint;
#[cfg(not(miri))]
mod of_map;
mod of_pages;
#[cfg(not(miri))]
mod of_shared;
#[cfg(not(miri))]
mod of_tree;
