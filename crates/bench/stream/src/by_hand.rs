//! The loop that one would write for the headline query: a table with linear probing for each open window.

use crate::generator::{Columns, DELAY, SIZE};

/// What is given, to see that two give the same: rows, and a sum over all of them in whatever order.
#[derive(Default, Debug, PartialEq, Eq, Clone, Copy)]
pub struct Given {
    /// Rows.
    pub rows: u64,
    /// What they come to.
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

const EMPTY: i64 = i64::MIN;
/// Places of a new table.
const PLACES: usize = 64;

/// Key and sum by place.
type Table = Vec<[i64; 2]>;

/// One open window.
struct Open {
    start: i64,
    table: Table,
    count: u64,
}

/// The loop and its state: watermark 5 s behind the greatest time, late records dropped, the sums of a window given
/// when the watermark passes its end.
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

/// The hash that compiled code has.
fn hash(key: i64) -> u64 {
    let product = u128::from(key as u64 ^ 0x5bd1_e995) * u128::from(0x9e37_79b9_7f4a_7c15u64);
    (product >> 64) as u64 ^ product as u64
}

/// Adds a value; whether the key is new.
pub fn add(table: &mut [[i64; 2]], key: i64, value: i64) -> bool {
    let mask = table.len() - 1;
    let mut place = hash(key) as usize & mask;
    loop {
        let entry = &mut table[place];
        if entry[0] == key {
            entry[1] += value;
            return false;
        }
        if entry[0] == EMPTY {
            *entry = [key, value];
            return true;
        }
        place = (place + 1) & mask;
    }
}

impl ByHand {
    /// Takes a batch.
    pub fn batch(&mut self, [times, keys, values, _]: &Columns) {
        let (mut start, mut current) = (i64::MIN, usize::MAX);
        for ((ts, key), value) in times.iter().zip(keys).zip(values) {
            if current == usize::MAX || (ts - start) as u64 >= SIZE as u64 {
                start = ts.div_euclid(SIZE) * SIZE;
                if start + SIZE - 1000 <= self.watermark {
                    current = usize::MAX;
                    continue;
                }
                current = match self.windows.iter().position(|window| window.start == start) {
                    Some(place) => place,
                    None => {
                        let table = self.spare.pop().unwrap_or_else(|| vec![[EMPTY, 0]; PLACES]);
                        self.windows.push(Open { start, table, count: 0 });
                        self.windows.len() - 1
                    }
                };
            }
            let Open { table, count, .. } = &mut self.windows[current];
            if add(table, *key, *value) {
                *count += 1;
                if *count >= table.len() as u64 / 16 * 11 {
                    let mut larger = vec![[EMPTY, 0]; table.len() * 2];
                    for entry in table.iter().filter(|entry| entry[0] != EMPTY) {
                        add(&mut larger, entry[0], entry[1]);
                    }
                    *table = larger;
                }
            }
            let bound = ts - DELAY;
            if bound > self.watermark {
                self.watermark = bound;
                if self.windows.iter().any(|window| window.start + SIZE - 1000 <= bound) {
                    self.close(bound);
                    current = usize::MAX;
                }
            }
        }
    }

    fn close(&mut self, watermark: i64) {
        let mut at = 0;
        while at < self.windows.len() {
            if self.windows[at].start + SIZE - 1000 > watermark {
                at += 1;
                continue;
            }
            let Open { start, mut table, .. } = self.windows.swap_remove(at);
            for entry in table.iter().filter(|entry| entry[0] != EMPTY) {
                self.given.add(entry[0], start, entry[1]);
            }
            table.fill([EMPTY, 0]);
            self.spare.push(table);
        }
    }

    /// Ends the input.
    pub fn finish(mut self) -> Given {
        self.close(i64::MAX);
        self.given
    }
}
