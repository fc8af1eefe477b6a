//! Code that finds records by key: hash, walk and compare are inline. Calls are made only for texts and for a full
//! table.

use std::mem::offset_of;

use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::{self, InstBuilder, types};

use super::calls::NO_PLACE;
use super::emit::{Gen, Val, trusted};
use crate::batch::Shape;
use crate::error::{Error, Result};
use crate::state::{DIRTY, Head, Layout, MULTIPLIER, PAGE_WORDS, hash_seed};

/// The layout of a table's entries, as code sees it: the first word, a word of bits, the key, and the value.
#[derive(Debug, Clone, PartialEq)]
pub struct Entries {
    /// Shape of each field of the key, whether it may be NULL, and its word.
    pub key: Vec<(Shape, bool, usize)>,
    /// The word of bits: first the NULLs of the key, then one for each value that may be missing.
    pub bits: Option<usize>,
    /// The first word after the key.
    pub value: usize,
    /// The layout of the table.
    pub layout: Layout,
}

impl Entries {
    /// Entries with this key, `bits` bits and `words` words of value.
    pub fn new(key: &[(Shape, bool)], bits: usize, words: usize) -> Result<Entries> {
        let nullable = key.iter().any(|(_, nullable)| *nullable);
        if key.len() + bits > 64 {
            return Err(Error::unsupported("compiling a group of more than 64 keys and aggregates"));
        }
        // One integer that is never NULL is its own first word.
        let direct = matches!(key, [(Shape::Int, false)]);
        let mut next = usize::from(!direct);
        if direct {
            next = 1;
        }
        let place = (nullable || bits > 0).then_some(next);
        next += usize::from(place.is_some());
        let mut placed = Vec::new();
        for (shape, nullable) in key {
            if direct {
                placed.push((*shape, *nullable, 0));
            } else {
                placed.push((*shape, *nullable, next));
                next += shape.words();
            }
        }
        let layout = Layout { stride: next + words, direct, ..Layout::default() };
        Ok(Entries { key: placed, bits: place, value: next, layout })
    }
}

macro_rules! head {
    ($field:ident) => {
        offset_of!(Head, $field)
    };
}

impl Gen<'_, '_> {
    /// A field of a table's head.
    pub fn bytes_of(&mut self, table: ir::Value) -> ir::Value {
        self.load(table, head!(bytes))
    }

    /// The address of the rows of lists.
    pub fn rows_of(&mut self, table: ir::Value) -> ir::Value {
        self.load(table, head!(rows))
    }

    /// The child table with this number.
    pub fn child(&mut self, table: ir::Value, number: usize) -> ir::Value {
        let children = self.load(table, head!(children));
        self.load(children, number * 8)
    }

    /// Marks the page with this number, which is about to change, unless it is marked already.
    fn touch(
        &mut self,
        table: ir::Value,
        pages: ir::Value,
        page: ir::Value,
        call: (&'static str, ir::Value),
    ) {
        let at = self.b.ins().iadd(pages, page);
        let state = self.b.ins().load(types::I8, trusted(), at, 0);
        let known = self.b.ins().icmp_imm_s(IntCC::Equal, state, i64::from(DIRTY));
        let (new, on) = (self.b.create_block(), self.b.create_block());
        self.b.set_cold_block(new);
        self.b.ins().brif(known, on, &[], new, &[]);
        self.b.switch_to_block(new);
        let machine = self.machine;
        self.call(call.0, &[machine, table, call.1]);
        self.b.ins().jump(on, &[]);
        self.b.switch_to_block(on);
    }

    /// Marks the entry at a place, which is about to change.
    fn touch_entry(&mut self, table: ir::Value, layout: &Layout, place: ir::Value) {
        if layout.tracked {
            let pages = self.load(table, head!(entry_pages));
            let page = self.b.ins().ushr_imm_s(place, i64::from(layout.page_shift()));
            self.touch(table, pages, page, ("touch_entry", place));
        }
    }

    /// Marks the link of a row, which is about to change.
    pub fn touch_link(&mut self, table: ir::Value, layout: &Layout, link: ir::Value) {
        if layout.tracked {
            let pages = self.load(table, head!(row_pages));
            let word = self.b.ins().iadd_imm_s(link, -1);
            let page = self.b.ins().ushr_imm_s(word, i64::from(PAGE_WORDS.ilog2()));
            self.touch(table, pages, page, ("touch_link", word));
        }
    }

    fn mix(&mut self, hash: ir::Value, word: ir::Value) -> ir::Value {
        let mixed = self.b.ins().bxor(hash, word);
        let multiplier = self.int(MULTIPLIER as i64);
        let low = self.b.ins().imul(mixed, multiplier);
        let high = self.b.ins().umulhi(mixed, multiplier);
        self.b.ins().bxor(low, high)
    }

    /// The normalised key for comparing: one zero, one NaN, and zeros for NULL.
    fn normal(&mut self, key: &[Val]) -> Vec<Val> {
        key.iter()
            .map(|val| {
                let mut val = *val;
                if matches!(val.shape, Shape::Float | Shape::Double) {
                    let zero = self.zero(val.shape).a;
                    let sum = self.b.ins().fadd(val.a, zero);
                    let nan = self.b.ins().fcmp(FloatCC::Unordered, sum, sum);
                    let canonical = if val.shape == Shape::Float {
                        self.b.ins().f32const(f32::NAN)
                    } else {
                        self.b.ins().f64const(f64::NAN)
                    };
                    val.a = self.b.ins().select(nan, canonical, sum);
                }
                match val.null {
                    Some(null) => {
                        let zero = self.zero(val.shape);
                        let valued = self.choose(null, zero, Val { null: None, ..val });
                        Val { null: Some(null), ..valued }
                    }
                    None => val,
                }
            })
            .collect()
    }

    /// The hash of a key alone.
    pub fn hash_key(&mut self, key: &[Val]) -> ir::Value {
        let key = self.normal(key);
        let nullable: Vec<bool> = key.iter().map(|val| val.null.is_some()).collect();
        let bits = self.null_bits(&key, &nullable);
        self.hash(&key, bits)
    }

    /// Where the walk for a key begins, before the mask is applied.
    pub fn home(&mut self, entries: &Entries, key: &[Val]) -> ir::Value {
        let key = self.normal(key);
        let nullable: Vec<bool> = entries.key.iter().map(|(_, nullable, _)| *nullable).collect();
        let bits = self.null_bits(&key, &nullable);
        if entries.layout.direct {
            let tag = self.b.ins().bxor_imm_s(key[0].a, Layout::EMPTY);
            let zero = self.int(0);
            return self.mix(zero, tag);
        }
        let hash = self.hash(&key, bits);
        self.b.ins().ushr_imm_s(hash, 1)
    }

    fn hash(&mut self, key: &[Val], bits: ir::Value) -> ir::Value {
        let seed = self.int(hash_seed() as i64);
        let mut hash = self.b.ins().bxor(seed, bits);
        for val in key {
            if val.shape == Shape::Text {
                let word = self.ask("hash_text", &[val.a, val.b.unwrap_or(val.a)]);
                hash = self.mix(hash, word);
            } else {
                for word in self.words(*val) {
                    hash = self.mix(hash, word);
                }
            }
        }
        hash
    }

    /// The entry of a key. With `insert` it is made if it does not exist, and the second value says whether it was
    /// made. Without `insert`, the second value says whether it exists.
    pub fn probe(
        &mut self,
        table: ir::Value,
        entries: &Entries,
        key: &[Val],
        insert: bool,
    ) -> (ir::Value, ir::Value) {
        let key = self.normal(key);
        let nullable: Vec<bool> = entries.key.iter().map(|(_, nullable, _)| *nullable).collect();
        let bits = self.null_bits(&key, &nullable);
        let done = self.b.create_block();
        let entry = self.b.append_block_param(done, types::I64);
        let flag = self.b.append_block_param(done, types::I8);
        let direct = entries.layout.direct;
        let (tag, home) = if direct {
            let tag = self.b.ins().bxor_imm_s(key[0].a, Layout::EMPTY);
            let (odd, usual) = (self.b.create_block(), self.b.create_block());
            self.b.set_cold_block(odd);
            self.b.ins().brif(tag, usual, &[], odd, &[]);
            self.b.switch_to_block(odd);
            if insert {
                let answer = self.ask("spare", &[self.machine, table]);
                let failed = self.is_zero(answer);
                self.fail_if(failed, 0);
                let new = self.bit(answer, 0);
                let place = self.b.ins().band_imm_s(answer, -8);
                self.b.ins().jump(done, &[place.into(), new.into()]);
            } else {
                let place = self.ask("spare_filled", &[self.machine, table]);
                let there = self.b.ins().icmp_imm_s(IntCC::NotEqual, place, 0);
                self.b.ins().jump(done, &[place.into(), there.into()]);
            }
            self.b.switch_to_block(usual);
            let zero = self.int(0);
            (tag, self.mix(zero, tag))
        } else {
            let hash = self.hash(&key, bits);
            (self.b.ins().bor_imm_s(hash, 1), self.b.ins().ushr_imm_s(hash, 1))
        };
        let walk = self.b.create_block();
        let again = self.b.create_block();
        let place = self.b.append_block_param(walk, types::I64);
        self.b.ins().jump(again, &[]);
        self.b.switch_to_block(again);
        let base = self.load(table, head!(entries));
        let mask = self.load(table, head!(mask));
        let first = self.b.ins().band(home, mask);
        self.b.ins().jump(walk, &[first.into()]);

        self.b.switch_to_block(walk);
        let offset = self.b.ins().imul_imm_s(place, (entries.layout.stride * 8) as i64);
        let at = self.b.ins().iadd(base, offset);
        let found = self.load(at, 0);
        let (check, other, next) = (self.b.create_block(), self.b.create_block(), self.b.create_block());
        let equal = self.icmp(IntCC::Equal, found, tag);
        self.b.ins().brif(equal, check, &[], other, &[]);
        self.b.switch_to_block(check);
        if !direct {
            self.check(table, entries, &key, bits, at, next);
        }
        if insert {
            self.touch_entry(table, &entries.layout, place);
        }
        let there = self.truth(!insert);
        self.b.ins().jump(done, &[at.into(), there.into()]);

        let absent = self.b.create_block();
        self.b.switch_to_block(other);
        self.b.ins().brif(found, next, &[], absent, &[]);
        self.b.switch_to_block(next);
        let further = self.b.ins().iadd_imm_s(place, 1);
        let further = self.b.ins().band(further, mask);
        self.b.ins().jump(walk, &[further.into()]);

        self.b.switch_to_block(absent);
        if insert {
            let count = self.load(table, head!(count));
            let limit = self.load(table, head!(limit));
            let (full, room) = (self.b.create_block(), self.b.create_block());
            self.b.set_cold_block(full);
            let over = self.icmp(IntCC::UnsignedGreaterThanOrEqual, count, limit);
            self.b.ins().brif(over, full, &[], room, &[]);
            self.b.switch_to_block(full);
            let failed = self.ask("grow", &[self.machine, table]);
            self.fail_if(failed, 0);
            self.b.ins().jump(again, &[]);
            self.b.switch_to_block(room);
            self.touch_entry(table, &entries.layout, place);
            let more = self.b.ins().iadd_imm_s(count, 1);
            self.store(more, table, head!(count));
            self.store(tag, at, 0);
            if let Some(word) = entries.bits {
                self.store(bits, at, word * 8);
            }
            if !direct {
                for (val, (.., word)) in key.iter().zip(&entries.key) {
                    let val = self.interned(table, *val);
                    self.put(val, at, *word);
                }
            }
            let new = self.truth(true);
            self.b.ins().jump(done, &[at.into(), new.into()]);
        } else {
            let there = self.truth(false);
            self.b.ins().jump(done, &[at.into(), there.into()]);
        }
        self.b.switch_to_block(done);
        (entry, flag)
    }

    /// A value as a table stores it: a text is a place in the table's bytes.
    pub fn interned(&mut self, table: ir::Value, val: Val) -> Val {
        match (val.shape, val.b) {
            (Shape::Text, Some(length)) => {
                let a = self.ask("intern", &[self.machine, table, val.a, length]);
                let failed = self.b.ins().icmp_imm_s(IntCC::Equal, a, NO_PLACE);
                self.fail_if(failed, 0);
                Val { a, ..val }
            }
            _ => val,
        }
    }

    /// Jumps to `next` unless the entry has this key.
    fn check(
        &mut self,
        table: ir::Value,
        entries: &Entries,
        key: &[Val],
        bits: ir::Value,
        at: ir::Value,
        next: ir::Block,
    ) {
        if let (Some(word), true) = (entries.bits, entries.key.iter().any(|(_, nullable, _)| *nullable)) {
            let theirs = self.load(at, word * 8);
            let mask = (1u64 << entries.key.len()).wrapping_sub(1);
            let theirs = self.b.ins().band_imm_s(theirs, mask as i64);
            let equal = self.icmp(IntCC::Equal, theirs, bits);
            self.go_on_if(equal, next);
        }
        for (val, (shape, _, word)) in key.iter().zip(&entries.key) {
            if *shape == Shape::Text {
                let bytes = self.bytes_of(table);
                let theirs = self.get_in(*shape, at, *word, bytes);
                let equal = self.compare(IntCC::Equal, *val, theirs);
                self.go_on_if(equal, next);
            } else {
                for (index, mine) in self.words(*val).into_iter().enumerate() {
                    let theirs = self.load(at, (*word + index) * 8);
                    let equal = self.icmp(IntCC::Equal, mine, theirs);
                    self.go_on_if(equal, next);
                }
            }
        }
    }

    fn go_on_if(&mut self, condition: ir::Value, otherwise: ir::Block) {
        let on = self.b.create_block();
        self.b.ins().brif(condition, on, &[], otherwise, &[]);
        self.b.switch_to_block(on);
    }

    /// The key of an entry.
    pub fn key(&mut self, table: ir::Value, entries: &Entries, at: ir::Value) -> Vec<Val> {
        let bits = entries.bits.map(|word| self.load(at, word * 8));
        let bytes = self.bytes_of(table);
        entries
            .key
            .iter()
            .enumerate()
            .map(|(bit, (shape, nullable, word))| {
                let mut val = self.get_in(*shape, at, *word, bytes);
                if entries.layout.direct {
                    val.a = self.b.ins().bxor_imm_s(val.a, Layout::EMPTY);
                }
                if let (true, Some(bits)) = (*nullable, bits) {
                    val.null = Some(self.bit(bits, bit));
                }
                val
            })
            .collect()
    }

    /// Runs `each` for the address of each entry in use.
    pub fn each_entry(
        &mut self,
        table: ir::Value,
        entries: &Entries,
        each: impl FnOnce(&mut Self, ir::Value) -> Result<()>,
    ) -> Result<()> {
        let base = self.load(table, head!(entries));
        let mask = self.load(table, head!(mask));
        let spare = self.load(table, head!(spare_used));
        // The entry of the key that looks empty comes after the last place, and counts if it is in use.
        let places = self.b.ins().iadd_imm_s(mask, 1);
        let end = self.b.ins().iadd(places, spare);
        let (head, body, filled, next, after) = (
            self.b.create_block(),
            self.b.create_block(),
            self.b.create_block(),
            self.b.create_block(),
            self.b.create_block(),
        );
        let place = self.b.append_block_param(head, types::I64);
        let zero = self.int(0);
        self.b.ins().jump(head, &[zero.into()]);
        self.b.switch_to_block(head);
        let more = self.icmp(IntCC::UnsignedLessThan, place, end);
        self.b.ins().brif(more, body, &[], after, &[]);
        self.b.switch_to_block(body);
        let offset = self.b.ins().imul_imm_s(place, (entries.layout.stride * 8) as i64);
        let at = self.b.ins().iadd(base, offset);
        let tag = self.load(at, 0);
        let last = self.icmp(IntCC::Equal, place, places);
        let last = self.b.ins().uextend(types::I64, last);
        let used = self.b.ins().bor(tag, last);
        self.b.ins().brif(used, filled, &[], next, &[]);
        self.b.switch_to_block(filled);
        each(self, at)?;
        self.b.ins().jump(next, &[]);
        self.b.switch_to_block(next);
        let place = self.b.ins().iadd_imm_s(place, 1);
        self.b.ins().jump(head, &[place.into()]);
        self.b.switch_to_block(after);
        Ok(())
    }
}
