//! Code of `ROW_NUMBER` with a bound: keeps the first rows of each partition in a sorted list.
//!
//! A new row is inserted at its place, and the rows after it move by one. The row beyond the bound is dropped, and its
//! space is reused for the next row. Each move is emitted when it is found: by places where rows have numbers, else as
//! one row removed and one added.

use std::sync::Arc;

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{self, InstBuilder, types};

use super::emit::{Gen, Val, trusted};
use super::graph::{Graph, Kept, Lists};
use super::machine::kind_word;
use crate::error::Result;
use crate::plan::changelog::RowKind;
use crate::plan::{Node, NodeOp, RankKind, SortKey};

/// Words of a partition's entry: the first row, and the free space of a row.
const FIRST: usize = 0;
const FREE: usize = 1;

impl Gen<'_, '_> {
    /// Whether one row sorts before another; `ties` is the result for equal rows.
    fn stands_before(&mut self, keys: &[SortKey], x: &[Val], y: &[Val], ties: bool) -> ir::Value {
        let mut before = self.truth(ties);
        for key in keys.iter().rev() {
            let (a, b) = (x[key.column], y[key.column]);
            let (a, b) = if key.descending { (b, a) } else { (a, b) };
            let less = self.before(a, b);
            let same = self.same(a, b);
            let equal = self.b.ins().band(same, before);
            let mut own = self.b.ins().bor(less, equal);
            let (a, b) = (x[key.column].null, y[key.column].null);
            if a.is_some() || b.is_some() {
                let none = self.truth(false);
                let (a, b) = (a.unwrap_or(none), b.unwrap_or(none));
                let both = self.b.ins().band(a, b);
                let either = self.b.ins().bor(a, b);
                let first = if key.nulls_first { a } else { b };
                let by_null = self.b.ins().select(both, before, first);
                own = self.b.ins().select(either, by_null, own);
            }
            before = own;
        }
        before
    }

    /// The address after a row's link.
    fn row_at(&mut self, table: ir::Value, link: ir::Value) -> ir::Value {
        let rows = self.rows_of(table);
        let offset = self.b.ins().ishl_imm_s(link, 3);
        self.b.ins().iadd(rows, offset)
    }

    fn row_of(&mut self, table: ir::Value, lists: &Lists, link: ir::Value) -> Vec<Val> {
        let at = self.row_at(table, link);
        let bytes = self.bytes_of(table);
        self.get_row(&lists.row, at, bytes)
    }

    fn next_of(&mut self, table: ir::Value, link: ir::Value) -> ir::Value {
        let at = self.row_at(table, link);
        self.b.ins().load(types::I64, trusted(), at, -8)
    }

    fn set_next(&mut self, table: ir::Value, lists: &Lists, link: ir::Value, next: ir::Value) {
        self.touch_link(table, &lists.entries.layout, link);
        let at = self.row_at(table, link);
        self.b.ins().store(trusted(), next, at, -8);
    }

    /// Takes a row of a stream whose first rows are kept.
    pub fn rank(&mut self, graph: &Graph, node: &Arc<Node>, row: &[Val]) -> Result<()> {
        let NodeOp::Rank { kind, limit, .. } = &node.op else { return Ok(()) };
        let place = graph.place(node)?;
        let Kept::Rows(lists) = &place.kept else { return Ok(()) };
        let limit = limit.map_or(i64::MAX, |limit| i64::try_from(limit).unwrap_or(i64::MAX));
        if limit == 0 {
            return Ok(());
        }
        match kind {
            RankKind::Window { start, end, .. } => {
                let (start, end) = (row[*start], row[*end]);
                let null = self.either(start.null, end.null);
                self.unless_null(Val { null, ..start }, |g| {
                    g.with_window(place.number, 0, [start.a, end.a], |g, table| {
                        g.enter(graph, node, lists, table, row, limit, false)
                    })
                })
            }
            _ => {
                let table = self.always(place.number, 0);
                self.enter(graph, node, lists, table, row, limit, true)
            }
        }
    }

    /// Inserts a row into its partition's list. With `gives`, the changes are pushed.
    #[allow(clippy::too_many_arguments)]
    fn enter(
        &mut self,
        graph: &Graph,
        node: &Arc<Node>,
        lists: &Lists,
        table: ir::Value,
        row: &[Val],
        limit: i64,
        gives: bool,
    ) -> Result<()> {
        let NodeOp::Rank { kind, partition, order, .. } = &node.op else { return Ok(()) };
        let key: Vec<Val> = partition.iter().map(|column| row[*column]).collect();
        let (at, _) = self.probe(table, &lists.entries, &key, true);
        let value = lists.entries.value;
        // Of two rows with the same time the later one is the last.
        let ties =
            matches!(kind, RankKind::Deduplicate { last: true, .. } | RankKind::Window { last: true, .. });

        // Its place: after `before`, as number `place`.
        let (walk, look, found) = (self.b.create_block(), self.b.create_block(), self.b.create_block());
        let [before, link, place] = std::array::from_fn(|_| self.b.append_block_param(walk, types::I64));
        let (zero, one) = (self.int(0), self.int(1));
        let first = self.load(at, (value + FIRST) * 8);
        self.b.ins().jump(walk, &[zero.into(), first.into(), one.into()]);
        self.b.switch_to_block(walk);
        self.b.ins().brif(link, look, &[], found, &[]);
        self.b.switch_to_block(look);
        let other = self.row_of(table, lists, link);
        let here = self.stands_before(order, row, &other, ties);
        let onward = self.b.create_block();
        self.b.ins().brif(here, found, &[], onward, &[]);
        self.b.switch_to_block(onward);
        let next = self.next_of(table, link);
        let further = self.b.ins().iadd_imm_s(place, 1);
        self.b.ins().jump(walk, &[link.into(), next.into(), further.into()]);
        self.b.switch_to_block(found);
        let kept = self.b.ins().icmp_imm_s(IntCC::SignedLessThanOrEqual, place, limit);
        self.when(kept, |g| {
            let stored = g.stack(lists.row.words.max(1));
            g.put_row(row, &lists.row, stored);
            let free = g.load(at, (value + FREE) * 8);
            let own = g.ask("place_row", &[g.machine, table, stored, free]);
            let failed = g.is_zero(own);
            g.fail_if(failed, 0);
            g.store(zero, at, (value + FREE) * 8);
            g.set_next(table, lists, own, link);
            let (first, behind, linked) = (g.b.create_block(), g.b.create_block(), g.b.create_block());
            g.b.ins().brif(before, behind, &[], first, &[]);
            g.b.switch_to_block(first);
            g.store(own, at, (value + FIRST) * 8);
            g.b.ins().jump(linked, &[]);
            g.b.switch_to_block(behind);
            g.set_next(table, lists, before, own);
            g.b.ins().jump(linked, &[]);
            g.b.switch_to_block(linked);

            g.moved(graph, node, lists, (table, at), [before, own, link, place], limit, gives)
        })
    }

    /// Emits the changes of the rows after a new one, and drops the row that is now beyond the bound.
    #[allow(clippy::too_many_arguments)]
    fn moved(
        &mut self,
        graph: &Graph,
        node: &Arc<Node>,
        lists: &Lists,
        (table, at): (ir::Value, ir::Value),
        [before, own, link, place]: [ir::Value; 4],
        limit: i64,
        gives: bool,
    ) -> Result<()> {
        let NodeOp::Rank { number, .. } = &node.op else { return Ok(()) };
        let by_place = *number || limit == 1;
        let numbered = |row: Vec<Val>, place: Val| {
            let mut row = row;
            row.extend(number.then_some(place));
            row
        };
        let kinds = [RowKind::Insert, RowKind::UpdateBefore, RowKind::UpdateAfter, RowKind::Delete];
        let [insert, gone, now, delete] = kinds.map(|kind| self.int(kind_word(kind)));
        let (shift, within, beyond, after) =
            (self.b.create_block(), self.b.create_block(), self.b.create_block(), self.b.create_block());
        // `mover` has taken the place of `old`; `pred` is before it.
        let [pred, mover, old, at_place] =
            std::array::from_fn(|_| self.b.append_block_param(shift, types::I64));
        self.b.ins().jump(shift, &[before.into(), own.into(), link.into(), place.into()]);
        self.b.switch_to_block(shift);
        let over = self.b.ins().icmp_imm_s(IntCC::SignedGreaterThan, at_place, limit);
        self.b.ins().brif(over, beyond, &[], within, &[]);

        self.b.switch_to_block(within);
        let (last, more) = (self.b.create_block(), self.b.create_block());
        self.b.ins().brif(old, more, &[], last, &[]);
        self.b.switch_to_block(last);
        if gives && by_place {
            let place = self.val(at_place);
            let row = numbered(self.row_of(table, lists, mover), place);
            self.push(graph, node, &row, insert)?;
        }
        self.b.ins().jump(after, &[]);
        self.b.switch_to_block(more);
        if gives && by_place {
            let was = self.row_of(table, lists, old);
            let is = self.row_of(table, lists, mover);
            let mut differs = self.truth(false);
            for (x, y) in was.iter().zip(&is) {
                let same = self.identical(*x, *y);
                let other = self.not(same);
                differs = self.b.ins().bor(differs, other);
            }
            let place = self.val(at_place);
            let (was, is) = (numbered(was, place), numbered(is, place));
            self.when(differs, |g| {
                g.push(graph, node, &was, gone)?;
                g.push(graph, node, &is, now)
            })?;
        }
        let next = self.next_of(table, old);
        let next_place = self.b.ins().iadd_imm_s(at_place, 1);
        self.b.ins().jump(shift, &[mover.into(), old.into(), next.into(), next_place.into()]);

        // The new row is within the bound, so there is a row before the one beyond it.
        self.b.switch_to_block(beyond);
        let zero = self.int(0);
        self.set_next(table, lists, pred, zero);
        self.store(mover, at, (lists.entries.value + FREE) * 8);
        if gives && !by_place {
            let row = self.row_of(table, lists, mover);
            self.push(graph, node, &row, delete)?;
        }
        self.b.ins().jump(after, &[]);
        self.b.switch_to_block(after);
        if gives && !by_place {
            let row = self.row_of(table, lists, own);
            self.push(graph, node, &row, insert)?;
        }
        Ok(())
    }

    /// The first rows of a closed window.
    pub fn first_rows(
        &mut self,
        graph: &Graph,
        node: &Arc<Node>,
        lists: &Lists,
        table: ir::Value,
    ) -> Result<()> {
        let NodeOp::Rank { number, .. } = &node.op else { return Ok(()) };
        let insert = self.int(kind_word(RowKind::Insert));
        let count = self.stack(1);
        self.each_entry(table, &lists.entries, |g, at| {
            let zero = g.int(0);
            g.store(zero, count, 0);
            g.each_row(table, lists, at, |g, row| {
                let place = g.load(count, 0);
                let place = g.b.ins().iadd_imm_s(place, 1);
                g.store(place, count, 0);
                let mut row = row.to_vec();
                row.extend(number.then_some(g.val(place)));
                g.push(graph, node, &row, insert)
            })
        })
    }
}
