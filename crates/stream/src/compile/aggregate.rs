//! Code of aggregates over records: adding a row, merging two records, producing the results.
//!
//! A new record is all zeros: a count and a sum of nothing. Where zero is not the answer, a bit says whether there was
//! a value.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{self, InstBuilder, types};

use super::emit::{Gen, Val};
use super::table::Entries;
use crate::batch::Shape;
use crate::error::{Error, Result};
use crate::function::aggregate::{Aggregate, AggregateKind};
use crate::plan::Node;
use crate::types::{DataType, PRECISION_MAX, decimal};

/// One aggregate's part of a record.
#[derive(Debug)]
struct Part {
    kind: AggregateKind,
    /// The column, the shape of its values, and its type.
    argument: Option<(usize, Shape, DataType)>,
    filter: Option<usize>,
    /// The table of distinct values that were counted. Parts over the same column share one table. The entry of a value
    /// has a word with one bit for each of these parts, in their order.
    set: Option<usize>,
    /// The bit that says whether there is a value.
    flag: Option<usize>,
    word: usize,
    result: DataType,
}

/// Records of groups: key and aggregates.
#[derive(Debug)]
pub struct Group {
    /// The layout of the entries in the table.
    pub entries: Entries,
    /// Columns of the key in the input.
    pub keys: Vec<usize>,
    parts: Vec<Part>,
    /// The word that holds a record's number, which is part of the key in the tables of distinct values.
    number: Option<usize>,
    /// The word that names a group's list of sessions.
    pub list: Option<usize>,
    sets: Vec<Entries>,
}

impl Group {
    /// Records for these aggregates. With `lists`, each has one more word for the group's list of sessions.
    pub fn new(input: &Node, keys: &[usize], aggregates: &[Aggregate], lists: bool) -> Result<Group> {
        let column = |column: usize| -> Result<(Shape, bool)> {
            let ty = &input.schema[column].ty;
            Ok((Shape::of(&ty.data)?, ty.nullable))
        };
        let key: Result<Vec<(Shape, bool)>> = keys.iter().map(|key| column(*key)).collect();
        let key = key?;
        let mut parts: Vec<Part> = Vec::new();
        let mut sets: Vec<Entries> = Vec::new();
        let (mut bits, mut words) = (0, 0);
        for aggregate in aggregates {
            let argument = match aggregate.argument {
                Some(index) => {
                    let data = input.schema[index].ty.data.clone();
                    Some((index, column(index)?.0, data))
                }
                None => None,
            };
            let sure = aggregate.filter.is_none()
                && aggregate.argument.is_none_or(|index| !input.schema[index].ty.nullable);
            let shape = argument.as_ref().map_or(Shape::Int, |(_, shape, _)| *shape);
            let (own, flag) = match aggregate.kind {
                AggregateKind::Count | AggregateKind::ApproxCountDistinct => (1, false),
                AggregateKind::Sum => (shape.words(), !sure),
                AggregateKind::Avg => (shape.words() + 1, false),
                AggregateKind::Min
                | AggregateKind::Max
                | AggregateKind::FirstValue
                | AggregateKind::LastValue => (shape.words(), true),
                AggregateKind::ArrayAgg | AggregateKind::ListAgg => {
                    return Err(Error::unsupported(format!("compiling {}", aggregate.kind)));
                }
            };
            let distinct = aggregate.distinct || aggregate.kind == AggregateKind::ApproxCountDistinct;
            let set = match (&argument, distinct) {
                (Some((index, shape, _)), true) => {
                    let fields = [(Shape::Int, false), (*shape, false)];
                    let shares = |set: &usize| {
                        let with = |part: &&Part| part.set == Some(*set);
                        let column = |part: &Part| part.argument.as_ref().map(|(column, ..)| *column);
                        // A word has 64 bits.
                        parts.iter().filter(with).count() < 64
                            && parts.iter().find(with).and_then(column) == Some(*index)
                    };
                    match (0..sets.len()).find(shares) {
                        Some(set) => {
                            sets[set] = Entries::new(&fields, 0, 1)?;
                            Some(set)
                        }
                        None => {
                            sets.push(Entries::new(&fields, 0, 0)?);
                            Some(sets.len() - 1)
                        }
                    }
                }
                _ => None,
            };
            parts.push(Part {
                kind: aggregate.kind,
                argument,
                filter: aggregate.filter,
                set,
                flag: flag.then_some(bits),
                word: words,
                result: aggregate.ty.data.clone(),
            });
            bits += usize::from(flag);
            words += own;
        }
        let number = (!sets.is_empty()).then_some(words);
        words += usize::from(number.is_some());
        let list = lists.then_some(words);
        words += usize::from(lists);
        let mut entries = Entries::new(&key, bits, words)?;
        entries.layout.children = sets.iter().map(|set| set.layout.clone()).collect();
        for part in &mut parts {
            part.word += entries.value;
            part.flag = part.flag.map(|bit| bit + key.len());
        }
        let number = number.map(|word| word + entries.value);
        let list = list.map(|word| word + entries.value);
        Ok(Group { entries, keys: keys.to_vec(), parts, number, list, sets })
    }

    /// Makes this code mark its changes for checkpoints.
    pub fn track(&mut self) {
        self.entries.layout.track();
        self.sets.iter_mut().for_each(|set| set.layout.track());
    }

    /// Whether records of parts of the rows can be merged into the record of all rows.
    pub fn is_mergeable(&self) -> bool {
        self.parts.iter().all(|part| {
            part.set.is_none() && !matches!(part.kind, AggregateKind::FirstValue | AggregateKind::LastValue)
        })
    }
}

impl Gen<'_, '_> {
    /// Finds or makes the record of a row's group; the second value says whether it is new.
    pub fn group(&mut self, table: ir::Value, group: &Group, row: &[Val]) -> (ir::Value, ir::Value) {
        let key: Vec<Val> = group.keys.iter().map(|key| row[*key]).collect();
        let (at, new) = self.probe(table, &group.entries, &key, true);
        if let Some(word) = group.number {
            // Twice the count, plus one if the odd key is there, so that no two records get the same number.
            let count = self.load(table, std::mem::offset_of!(crate::state::Head, count));
            let spare = self.load(table, std::mem::offset_of!(crate::state::Head, spare_used));
            let number = self.b.ins().ishl_imm_s(count, 1);
            let number = self.b.ins().bor(number, spare);
            let old = self.load(at, word * 8);
            let number = self.b.ins().select(new, number, old);
            self.store(number, at, word * 8);
        }
        (at, new)
    }

    /// Adds a row to the record at `at`.
    pub fn accumulate(&mut self, table: ir::Value, group: &Group, at: ir::Value, row: &[Val]) -> Result<()> {
        for (place, part) in group.parts.iter().enumerate() {
            if let Some(set) = part.set {
                let sharing: Vec<&Part> = group.parts.iter().filter(|part| part.set == Some(set)).collect();
                if sharing.len() > 1 {
                    // The first part of a shared set adds for all of them.
                    if group.parts[..place].iter().all(|part| part.set != Some(set)) {
                        self.add_shared(table, group, set, &sharing, at, row)?;
                    }
                    continue;
                }
            }
            let value = part.argument.as_ref().map(|(column, ..)| row[*column]);
            let counts = self.counts(part, row);
            let quick = part.set.is_none()
                && match part.kind {
                    AggregateKind::Count => true,
                    AggregateKind::Sum | AggregateKind::Avg => {
                        value.is_none_or(|value| value.shape == Shape::Int)
                    }
                    _ => false,
                };
            match counts {
                Some(counts) if quick => self.add_where(group, part, at, value, counts),
                Some(counts) => self.when(counts, |g| g.add(table, group, part, at, value))?,
                None => self.add(table, group, part, at, value)?,
            }
        }
        Ok(())
    }

    /// Whether a row counts for a part; `None` if every row does.
    fn counts(&mut self, part: &Part, row: &[Val]) -> Option<ir::Value> {
        let mut counts: Option<ir::Value> = part.filter.map(|filter| self.is_true(row[filter]));
        let value = part.argument.as_ref().map(|(column, ..)| row[*column]);
        if let Some(null) = value.and_then(|value| value.null) {
            let there = self.not(null);
            counts = Some(match counts {
                Some(counts) => self.b.ins().band(counts, there),
                None => there,
            });
        }
        counts
    }

    /// Adds to parts that share a set: the value is looked up once, and its bits say for which parts it is new.
    fn add_shared(
        &mut self,
        table: ir::Value,
        group: &Group,
        set: usize,
        parts: &[&Part],
        at: ir::Value,
        row: &[Val],
    ) -> Result<()> {
        let column = parts[0].argument.as_ref().map(|(column, ..)| *column);
        let (Some(column), Some(number)) = (column, group.number) else { return Ok(()) };
        let value = Val { null: None, ..row[column] };
        let mut counting = self.int(0);
        for (bit, part) in parts.iter().enumerate() {
            let counts = match self.counts(part, row) {
                Some(counts) => self.b.ins().uextend(types::I64, counts),
                None => self.int(1),
            };
            let counts = self.b.ins().ishl_imm_s(counts, bit as i64);
            counting = self.b.ins().bor(counting, counts);
        }
        let any = self.b.ins().icmp_imm_s(IntCC::NotEqual, counting, 0);
        self.when(any, |g| {
            let entries = &group.sets[set];
            let child = g.child(table, set);
            let number = g.load(at, number * 8);
            let number = g.val(number);
            let (entry, _) = g.probe(child, entries, &[number, value], true);
            let known = g.load(entry, entries.value * 8);
            let new = g.b.ins().band_not(counting, known);
            let any = g.b.ins().icmp_imm_s(IntCC::NotEqual, new, 0);
            g.when(any, |g| {
                let known = g.b.ins().bor(known, new);
                g.store(known, entry, entries.value * 8);
                for (bit, part) in parts.iter().enumerate() {
                    let is_new = g.bit(new, bit);
                    match part.kind {
                        AggregateKind::Count | AggregateKind::ApproxCountDistinct => {
                            g.add_where(group, part, at, None, is_new);
                        }
                        _ => g.when(is_new, |g| g.add_value(table, group, part, at, Some(value)))?,
                    }
                }
                Ok(())
            })
        })
    }

    /// Adds without a branch: a row that does not count adds zero.
    fn add_where(
        &mut self,
        group: &Group,
        part: &Part,
        at: ir::Value,
        value: Option<Val>,
        counts: ir::Value,
    ) {
        let one = self.b.ins().uextend(types::I64, counts);
        let mut word = part.word;
        if let (AggregateKind::Sum | AggregateKind::Avg, Some(value)) = (part.kind, value) {
            let zero = self.int(0);
            let added = self.b.ins().select(counts, value.a, zero);
            let sum = self.load(at, word * 8);
            let mut sum = self.b.ins().iadd(sum, added);
            if part.kind == AggregateKind::Sum {
                sum = self.wrapped(sum, &part.result);
            }
            self.store(sum, at, word * 8);
            word += 1;
        }
        if part.kind != AggregateKind::Sum {
            let count = self.load(at, word * 8);
            let count = self.b.ins().iadd(count, one);
            self.store(count, at, word * 8);
        }
        if let (Some(bit), Some(bits)) = (part.flag, group.entries.bits) {
            let flag = self.b.ins().ishl_imm_s(one, bit as i64);
            let old = self.load(at, bits * 8);
            let new = self.b.ins().bor(old, flag);
            self.store(new, at, bits * 8);
        }
    }

    /// Whether the record has a value for this part.
    fn has(&mut self, group: &Group, part: &Part, at: ir::Value) -> Option<ir::Value> {
        let (bit, word) = (part.flag?, group.entries.bits?);
        let bits = self.load(at, word * 8);
        Some(self.bit(bits, bit))
    }

    fn set_flag(&mut self, group: &Group, part: &Part, at: ir::Value) {
        if let (Some(bit), Some(word)) = (part.flag, group.entries.bits) {
            let bits = self.load(at, word * 8);
            let bits = self.b.ins().bor_imm_s(bits, 1i64 << bit);
            self.store(bits, at, word * 8);
        }
    }

    /// Adds a value that counts for this part.
    fn add(
        &mut self,
        table: ir::Value,
        group: &Group,
        part: &Part,
        at: ir::Value,
        value: Option<Val>,
    ) -> Result<()> {
        if let (Some(set), Some(value), Some(number)) = (part.set, value, group.number) {
            let entries = &group.sets[set];
            let set = self.child(table, set);
            let number = self.load(at, number * 8);
            let number = self.val(number);
            let (_, new) = self.probe(set, entries, &[number, Val { null: None, ..value }], true);
            return self.when(new, |g| g.add_value(table, group, part, at, Some(value)));
        }
        self.add_value(table, group, part, at, value)
    }

    fn add_value(
        &mut self,
        table: ir::Value,
        group: &Group,
        part: &Part,
        at: ir::Value,
        value: Option<Val>,
    ) -> Result<()> {
        let value = value.map(|value| Val { null: None, ..value });
        match (part.kind, value) {
            (AggregateKind::Sum | AggregateKind::Avg, Some(value)) => {
                let one = self.int(1);
                self.add_sum(part, at, value, one);
                self.set_flag(group, part, at);
            }
            (AggregateKind::Min | AggregateKind::Max, Some(value)) => {
                let has = self.has(group, part, at);
                self.replace_if_better(table, group, part, at, value, has)?;
            }
            (AggregateKind::FirstValue, Some(value)) => {
                if let Some(has) = self.has(group, part, at) {
                    let first = self.not(has);
                    self.when(first, |g| {
                        let value = g.interned(table, value);
                        g.put(value, at, part.word);
                        g.set_flag(group, part, at);
                        Ok(())
                    })?;
                }
            }
            (AggregateKind::LastValue, Some(value)) => {
                let value = self.interned(table, value);
                self.put(value, at, part.word);
                self.set_flag(group, part, at);
            }
            _ => {
                let count = self.load(at, part.word * 8);
                let count = self.b.ins().iadd_imm_s(count, 1);
                self.store(count, at, part.word * 8);
            }
        }
        Ok(())
    }

    /// Adds to a sum, and `count` to the count of a mean.
    fn add_sum(&mut self, part: &Part, at: ir::Value, value: Val, count: ir::Value) {
        let precision = match &part.argument {
            Some((_, _, DataType::Decimal { precision, .. })) => *precision,
            _ => 0,
        };
        // 10^28 added 10^10 times stays within 38 digits.
        if precision > 28 {
            let (low, high) = self.b.ins().isplit(value.a);
            let sum = self.b.ins().iadd_imm_s(at, (part.word * 8) as i64);
            self.call("decimal_add", &[sum, low, high]);
        } else {
            let sum = self.get(value.shape, at, part.word);
            let mut a = match value.shape {
                Shape::Float | Shape::Double => self.b.ins().fadd(sum.a, value.a),
                _ => self.b.ins().iadd(sum.a, value.a),
            };
            if value.shape == Shape::Int && part.kind == AggregateKind::Sum {
                a = self.wrapped(a, &part.result);
            }
            self.put(Val { a, ..sum }, at, part.word);
        }
        if part.kind == AggregateKind::Avg {
            let word = part.word + value.shape.words();
            let old = self.load(at, word * 8);
            let new = self.b.ins().iadd(old, count);
            self.store(new, at, word * 8);
        }
    }

    fn replace_if_better(
        &mut self,
        table: ir::Value,
        group: &Group,
        part: &Part,
        at: ir::Value,
        value: Val,
        has: Option<ir::Value>,
    ) -> Result<()> {
        let bytes = self.bytes_of(table);
        let old = self.get_in(value.shape, at, part.word, bytes);
        let better =
            if part.kind == AggregateKind::Min { self.before(value, old) } else { self.before(old, value) };
        let replace = match has {
            Some(has) => self.b.ins().bor_not(better, has),
            None => better,
        };
        // `bor_not` sets all bits of a byte.
        let replace = self.b.ins().band_imm_s(replace, 1);
        self.when(replace, |g| {
            let value = g.interned(table, value);
            g.put(value, at, part.word);
            g.set_flag(group, part, at);
            Ok(())
        })
    }

    /// Merges the record at `from` into the one at `to`.
    pub fn combine(
        &mut self,
        tables: [ir::Value; 2],
        group: &Group,
        from: ir::Value,
        to: ir::Value,
    ) -> Result<()> {
        for part in &group.parts {
            let shape = part.argument.as_ref().map_or(Shape::Int, |(_, shape, _)| *shape);
            let bytes = self.bytes_of(tables[0]);
            match part.kind {
                AggregateKind::Sum | AggregateKind::Avg => {
                    let value = self.get(shape, from, part.word);
                    let count = match part.kind {
                        AggregateKind::Avg => self.load(from, (part.word + shape.words()) * 8),
                        _ => self.int(0),
                    };
                    self.add_sum(part, to, value, count);
                    if let Some(has) = self.has(group, part, from) {
                        self.when(has, |g| {
                            g.set_flag(group, part, to);
                            Ok(())
                        })?;
                    }
                }
                AggregateKind::Min | AggregateKind::Max => {
                    let value = self.get_in(shape, from, part.word, bytes);
                    let (theirs, mine) = (self.has(group, part, from), self.has(group, part, to));
                    if let Some(theirs) = theirs {
                        self.when(theirs, |g| g.replace_if_better(tables[1], group, part, to, value, mine))?;
                    }
                }
                _ => {
                    let (a, b) = (self.load(from, part.word * 8), self.load(to, part.word * 8));
                    let sum = self.b.ins().iadd(a, b);
                    self.store(sum, to, part.word * 8);
                }
            }
        }
        Ok(())
    }

    /// The results of a record's aggregates.
    pub fn results(&mut self, table: ir::Value, group: &Group, at: ir::Value) -> Vec<Val> {
        let bytes = self.bytes_of(table);
        let mut vals = Vec::new();
        for part in &group.parts {
            let shape = part.argument.as_ref().map_or(Shape::Int, |(_, shape, _)| *shape);
            let missing = self.has(group, part, at).map(|has| self.not(has));
            vals.push(match part.kind {
                AggregateKind::Count | AggregateKind::ApproxCountDistinct => {
                    let count = self.load(at, part.word * 8);
                    self.val(count)
                }
                AggregateKind::Avg => self.mean(part, shape, at),
                AggregateKind::Sum if shape == Shape::Decimal => {
                    let sum = self.get(shape, at, part.word);
                    let (most, least) = match decimal::power_of_ten(PRECISION_MAX.into()) {
                        Some(limit) => (self.wide(limit), self.wide(-limit)),
                        None => (sum.a, sum.a),
                    };
                    let above = self.icmp(IntCC::SignedGreaterThanOrEqual, sum.a, most);
                    let below = self.icmp(IntCC::SignedLessThanOrEqual, sum.a, least);
                    let outside = self.b.ins().bor(above, below);
                    let null = self.either(missing, Some(outside));
                    Val { null, ..sum }
                }
                _ => {
                    let val = self.get_in(shape, at, part.word, bytes);
                    Val { null: missing, ..val }
                }
            });
        }
        vals
    }

    fn mean(&mut self, part: &Part, shape: Shape, at: ir::Value) -> Val {
        let sum = self.get(shape, at, part.word);
        let count = self.load(at, (part.word + shape.words()) * 8);
        let none = self.is_zero(count);
        let null = Some(none);
        let one = self.int(1);
        let divisor = self.b.ins().select(none, one, count);
        let a = match shape {
            Shape::Float => {
                let count = self.b.ins().fcvt_from_sint(types::F32, divisor);
                self.b.ins().fdiv(sum.a, count)
            }
            Shape::Double => {
                let count = self.b.ins().fcvt_from_sint(types::F64, divisor);
                self.b.ins().fdiv(sum.a, count)
            }
            Shape::Decimal => {
                let scale = |ty: &DataType| ty.as_decimal().map_or(6, |(_, scale)| i64::from(scale));
                let from = part.argument.as_ref().map_or(0, |(_, _, ty)| scale(ty));
                let scales = self.int(from | scale(&part.result) << 8);
                let out = self.stack(2);
                let (low, high) = self.b.ins().isplit(sum.a);
                let answer = self.ask("decimal_mean", &[low, high, divisor, scales, out]);
                let answer = self.b.ins().ireduce(types::I8, answer);
                let null = self.b.ins().bor(answer, none);
                let val = self.get(Shape::Decimal, out, 0);
                return Val { null: Some(null), ..val };
            }
            _ => {
                // The count is not negative: the quotient never overflows.
                let mean = self.b.ins().sdiv(sum.a, divisor);
                self.wrapped(mean, &part.result)
            }
        };
        Val { shape, a, b: None, null }
    }
}
