//! A handwritten loop for the headline query: a table with linear probing for each open window.

use duramen::Scratch;

use crate::stream::generator::{Columns, DELAY, SIZE};

/// The results, to compare two implementations: rows, and a sum over all of them in any order.
#[derive(Default, Debug, PartialEq, Eq, Clone, Copy)]
pub struct Given {
    /// Rows.
    pub rows: u64,
    /// The sum over all rows.
    pub sum: i64,
}

impl Given {
    /// Adds a row: key, start of the window, sum.
    pub fn add(&mut self, key: i64, start: i64, sum: i64) {
        let row = key.wrapping_mul(31).wrapping_add(start).wrapping_mul(sum.wrapping_add(7));
        self.rows += 1;
        self.sum = self.sum.wrapping_add(row);
    }
}

/// A value that no key has.
pub const EMPTY: u64 = i64::MIN as u64;
/// Places of a new table.
const PLACES: usize = 64;
/// Longer tables use huge pages, as those of the engine do.
const HUGE_LEAST: usize = 4 << 20;

/// Key and sum.
pub type Entry = [u64; 2];

/// Entries by place.
enum Table {
    Small(Vec<Entry>),
    /// The memory and the number of places.
    Huge(Scratch, usize),
}

impl Table {
    /// A table of so many empty places.
    fn new(places: usize) -> Table {
        let bytes = places * size_of::<Entry>();
        let scratch = if bytes < HUGE_LEAST { None } else { Scratch::in_memory(bytes).ok() };
        let Some(scratch) = scratch else { return Table::Small(vec![[EMPTY, 0]; places]) };
        let mut table = Table::Huge(scratch, places);
        table.places().fill([EMPTY, 0]);
        table
    }

    fn places(&mut self) -> &mut [Entry] {
        match self {
            Table::Small(entries) => entries,
            Table::Huge(scratch, places) => &mut scratch.words_mut().as_chunks_mut().0[..*places],
        }
    }

    fn grow(&mut self) {
        let places = self.places();
        let mut larger = Table::new(places.len() * 2);
        for [key, sum] in places.iter().filter(|[key, _]| *key != EMPTY) {
            add(larger.places(), *key as i64, *sum as i64);
        }
        *self = larger;
    }
}

/// One open window.
struct Open {
    start: i64,
    table: Table,
    count: usize,
}

impl Open {
    /// The watermark at which it closes.
    fn closes(&self) -> i64 {
        self.start + SIZE - 1000
    }
}

/// The loop and its state. The watermark is 5 s before the greatest time, and late records are dropped. The sums of a
/// window are emitted when the watermark passes its end.
pub struct ByHand {
    windows: Vec<Open>,
    spare: Vec<Table>,
    watermark: i64,
    given: Given,
}

impl Default for ByHand {
    fn default() -> Self {
        ByHand { windows: Vec::new(), spare: Vec::new(), watermark: i64::MIN, given: Given::default() }
    }
}

/// The hash function of compiled code.
fn hash(key: i64) -> u64 {
    let product = u128::from(key as u64 ^ 0x5bd1_e995) * u128::from(0x9e37_79b9_7f4a_7c15u64);
    (product >> 64) as u64 ^ product as u64
}

/// Adds a value; returns whether the key is new.
pub fn add(table: &mut [Entry], key: i64, value: i64) -> bool {
    let mask = table.len() - 1;
    let mut place = hash(key) as usize & mask;
    loop {
        let entry = &mut table[place];
        if entry[0] == key as u64 {
            entry[1] = entry[1].wrapping_add(value as u64);
            return false;
        }
        if entry[0] == EMPTY {
            *entry = [key as u64, value as u64];
            return true;
        }
        place = (place + 1) & mask;
    }
}

impl ByHand {
    /// Processes a batch.
    pub fn batch(&mut self, [times, keys, values, _]: &Columns) {
        let (mut row, rows) = (0, times.len());
        let (keys, values) = (&keys[..rows], &values[..rows]);
        while row < rows {
            let start = times[row].div_euclid(SIZE) * SIZE;
            if start + SIZE - 1000 <= self.watermark {
                row += 1;
                continue;
            }
            let current = self.window(start);
            let closes = self.windows.iter().map(Open::closes).min().unwrap_or(i64::MAX);
            let Open { table, count, .. } = &mut self.windows[current];
            let places = table.places();
            let (mut watermark, count_max) = (self.watermark, places.len() / 16 * 11);
            // Until a row belongs to another window, the table must grow, or a window closes.
            while row < rows && ((times[row] - start) as u64) < SIZE as u64 {
                *count += usize::from(add(places, keys[row], values[row]));
                watermark = watermark.max(times[row] - DELAY);
                row += 1;
                if *count >= count_max || watermark >= closes {
                    break;
                }
            }
            if *count >= count_max {
                table.grow();
            }
            self.watermark = watermark;
            if watermark >= closes {
                self.close(watermark);
            }
        }
    }

    /// The index of the open window that begins at this time.
    fn window(&mut self, start: i64) -> usize {
        if let Some(place) = self.windows.iter().position(|window| window.start == start) {
            return place;
        }
        let table = self.spare.pop().unwrap_or_else(|| Table::new(PLACES));
        self.windows.push(Open { start, table, count: 0 });
        self.windows.len() - 1
    }

    fn close(&mut self, watermark: i64) {
        let mut at = 0;
        while at < self.windows.len() {
            if self.windows[at].closes() > watermark {
                at += 1;
                continue;
            }
            let Open { start, mut table, .. } = self.windows.swap_remove(at);
            for [key, sum] in table.places().iter().filter(|[key, _]| *key != EMPTY) {
                self.given.add(*key as i64, start, *sum as i64);
            }
            table.places().fill([EMPTY, 0]);
            self.spare.push(table);
        }
    }

    /// Ends the input.
    pub fn finish(mut self) -> Given {
        self.close(i64::MAX);
        self.given
    }
}
