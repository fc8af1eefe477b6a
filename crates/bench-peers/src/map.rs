//! papaya: a concurrent hash map in memory, which survives nothing. It shows the best that a store could reach.

use crate::engine::copy;
use duramen_bench::kv::{Engine, Result, Session};
use papaya::HashMap;

/// A map.
#[derive(Default)]
pub struct Map(HashMap<Box<[u8]>, Box<[u8]>>);

impl Engine for Map {
    type Session<'a> = &'a Self;

    fn session(&self) -> Result<&Self> {
        Ok(self)
    }
}

impl Session for &Map {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.0.pin().insert(key.into(), value.into());
        Ok(())
    }

    fn get(&mut self, key: &[u8], into: &mut Vec<u8>) -> Result<bool> {
        Ok(copy(into, self.0.pin().get(key).map(|value| &**value)))
    }

    fn delete(&mut self, key: &[u8]) -> Result<bool> {
        Ok(self.0.pin().remove(key).is_some())
    }

    fn scan(&mut self, _: &[u8], count: usize, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<usize> {
        let map = self.0.pin();
        Ok(map.iter().take(count).map(|(key, value)| visit(key, value)).count())
    }
}
