mod map;
mod pages;
#[cfg(test)]
mod tests;
pub(crate) use map::Map;
pub(crate) use pages::{Account, Arena, Pages};
