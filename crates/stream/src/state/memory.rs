//! State in memory: a map of windows. Closed tables are reused for later windows.

use std::collections::BTreeMap;

use super::pages::{Get, Left, Numbers, Put, Reader, save_left, write_word};
use super::{Layout, MemoryLimit, State, Table, Window};
use crate::error::Result;

/// Empty tables kept for reuse: one for the next window, and one to merge windows in.
const KEPT: usize = 2;

/// State of one breaker in memory.
#[derive(Debug)]
#[expect(clippy::vec_box, reason = "a table goes in and out as the box that it is in the map")]
pub struct Memory {
    layout: Layout,
    memory_limit: MemoryLimit,
    open: BTreeMap<Window, Box<Table>>,
    spare: Vec<Box<Table>>,
    /// Vectors of tables that were closed before they were saved.
    left: Vec<Left>,
}

impl Memory {
    /// No state yet, of this layout.
    pub fn new(layout: Layout, memory_limit: MemoryLimit) -> Memory {
        Memory { layout, memory_limit, open: BTreeMap::new(), spare: Vec::new(), left: Vec::new() }
    }
}

impl State for Memory {
    fn table(&mut self, window: Window) -> &mut Table {
        let Memory { layout, memory_limit, open, spare, .. } = self;
        open.entry(window).or_insert_with(|| spare.pop().unwrap_or_else(|| Table::new(layout, memory_limit)))
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
        self.spare.pop().unwrap_or_else(|| Table::new(&self.layout, &self.memory_limit))
    }

    fn give_back(&mut self, mut table: Box<Table>) {
        table.clear();
        table.take_left(&mut self.left);
        if self.spare.len() < KEPT {
            self.spare.push(table);
        }
    }

    fn bytes(&self) -> usize {
        self.open.values().chain(&self.spare).map(|table| table.held()).sum()
    }

    fn keys(&self) -> usize {
        self.open.values().map(|table| table.count()).sum()
    }

    fn copies(&self) -> usize {
        let left: usize = self.left.iter().map(Left::copies).sum();
        left + self.open.values().map(|table| table.copies()).sum::<usize>()
    }

    fn freeze(&mut self, numbers: &mut Numbers, out: &mut Vec<u8>) {
        write_word(out, self.open.len() as u64);
        for (window, table) in &mut self.open {
            write_word(out, window.start as u64);
            write_word(out, window.end as u64);
            table.freeze(numbers, out);
        }
        // Their sizes decide the order in which later windows emit their groups.
        write_word(out, self.spare.len() as u64);
        self.spare.iter().for_each(|table| write_word(out, table.places() as u64));
    }

    fn save(&mut self, put: &mut Put<'_>, budget: &mut usize) -> bool {
        save_left(&mut self.left, put, budget) && self.open.values_mut().all(|table| table.save(put, budget))
    }

    fn restore(&mut self, reader: &mut Reader<'_>, get: &mut Get<'_>, named: &mut Vec<u64>) -> Result<()> {
        let mut open = BTreeMap::new();
        for _ in 0..reader.count()? {
            let (start, end) = (reader.word()? as i64, reader.word()? as i64);
            let mut table = Table::new(&self.layout, &self.memory_limit);
            table.restore(reader, get, named)?;
            open.insert(Window { end, start }, table);
        }
        self.open = open;
        self.spare.clear();
        for _ in 0..reader.count()? {
            self.spare.push(Table::with_places(&self.layout, &self.memory_limit, reader.count()?));
        }
        Ok(())
    }
}
