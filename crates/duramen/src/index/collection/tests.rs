//! The indexes of a collection against models, in long random sequences.

#[cfg(not(miri))]
mod measure;
mod of_map;
mod of_pages;
mod of_tree;
