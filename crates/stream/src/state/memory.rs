//! State in memory: a map of windows. Tables that closed are kept for windows to come.

use std::collections::BTreeMap;

use super::table::Reader;
use super::{Layout, State, Table, Window};
use crate::error::Result;

/// Tables that are kept empty for the next window: one that opens and one to put windows together in.
const KEPT: usize = 2;

/// State of one breaker in memory.
#[derive(Debug)]
#[expect(clippy::vec_box, reason = "a table goes in and out as the box that it is in the map")]
pub struct Memory {
    layout: Layout,
    open: BTreeMap<Window, Box<Table>>,
    spare: Vec<Box<Table>>,
}

impl Memory {
    /// No state yet, of this layout.
    pub fn new(layout: Layout) -> Memory {
        Memory { layout, open: BTreeMap::new(), spare: Vec::new() }
    }
}

impl State for Memory {
    fn table(&mut self, window: Window) -> &mut Table {
        let Memory { layout, open, spare } = self;
        open.entry(window).or_insert_with(|| spare.pop().unwrap_or_else(|| Table::new(layout)))
    }

    fn windows(&self) -> Vec<Window> {
        self.open.keys().copied().collect()
    }

    fn get(&self, window: Window) -> Option<&Table> {
        self.open.get(&window).map(|table| &**table)
    }

    fn take(&mut self, window: Window) -> Option<Box<Table>> {
        self.open.remove(&window)
    }

    fn scratch(&mut self) -> Box<Table> {
        self.spare.pop().unwrap_or_else(|| Table::new(&self.layout))
    }

    fn give_back(&mut self, mut table: Box<Table>) {
        if self.spare.len() < KEPT {
            table.clear();
            self.spare.push(table);
        }
    }

    fn bytes(&self) -> usize {
        self.open.values().chain(&self.spare).map(|table| table.held()).sum()
    }

    fn snapshot(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&(self.open.len() as u64).to_le_bytes());
        for (window, table) in &self.open {
            out.extend_from_slice(&window.start.to_le_bytes());
            out.extend_from_slice(&window.end.to_le_bytes());
            table.snapshot(out);
        }
    }

    fn restore<'b>(&mut self, bytes: &'b [u8]) -> Result<&'b [u8]> {
        let mut reader = Reader(bytes);
        let mut open = BTreeMap::new();
        for _ in 0..reader.word()? {
            let (start, end) = (reader.word()? as i64, reader.word()? as i64);
            let mut table = Table::new(&self.layout);
            reader.0 = table.restore(reader.0)?;
            open.insert(Window { end, start }, table);
        }
        self.open = open;
        Ok(reader.0)
    }
}
