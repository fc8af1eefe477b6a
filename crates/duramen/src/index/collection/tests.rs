//! The indexes of a collection against models, in long random sequences.

mod of_map;
mod of_pages;
