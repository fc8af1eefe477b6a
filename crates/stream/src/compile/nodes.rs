//! Code of operators. Each takes a row in registers and pushes its results to its readers. So a pipeline is one loop
//! from its source to its breakers and sinks.

use std::mem::offset_of;
use std::sync::Arc;

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{self, InstBuilder, types};

use super::ahead::{self, Ahead};
use super::emit::{Gen, Val, trusted};
use super::graph::{Graph, Kept, Lists, Reader};
use super::machine::{Breaker, Kind, Pane, ScanSlot, SinkSlot, kind_word};
use crate::batch::Shape;
use crate::error::{Error, Result};
use crate::expr::Expr;
use crate::plan::changelog::RowKind;
use crate::plan::{self, JoinKind, Node, NodeOp, Scan, WindowSource, window_time};
use crate::state::Head;

/// Words by which a batch describes a column to code: addresses of values, NULLs and bytes.
pub const COLUMN_WORDS: usize = 3;

impl Gen<'_, '_> {
    fn kind(&mut self, kind: RowKind) -> ir::Value {
        self.int(kind_word(kind))
    }

    /// Pushes a node's row to all its readers.
    pub fn push(&mut self, graph: &Graph, node: &Arc<Node>, row: &[Val], kind: ir::Value) -> Result<()> {
        for reader in graph.readers(node) {
            match reader {
                Reader::Sink(sink) => self.emit(*sink, row, kind),
                Reader::Node(node, port) => self.take(graph, node, *port, row, kind)?,
            }
        }
        Ok(())
    }

    /// Appends a row to a sink's buffer.
    fn emit(&mut self, sink: usize, row: &[Val], kind: ir::Value) {
        let slot = std::ptr::from_mut(&mut *self.unit.machine.sinks[sink]) as i64;
        let layout = self.unit.machine.sinks[sink].layout().clone();
        let slot = self.int(slot);
        self.name(slot, format!("sink {sink}"));
        let next = self.load(slot, offset_of!(SinkSlot, next));
        let end = self.load(slot, offset_of!(SinkSlot, end));
        let (full, room) = (self.b.create_block(), self.b.create_block());
        self.b.set_cold_block(full);
        let at = self.b.append_block_param(room, types::I64);
        let is_full = self.icmp(IntCC::Equal, next, end);
        self.b.ins().brif(is_full, full, &[], room, &[next.into()]);
        self.b.switch_to_block(full);
        let (machine, number) = (self.machine, self.int(sink as i64));
        let failed = self.ask("deliver", &[machine, number]);
        self.fail_if(failed, 0);
        let next = self.load(slot, offset_of!(SinkSlot, next));
        self.b.ins().jump(room, &[next.into()]);
        self.b.switch_to_block(room);
        self.store(kind, at, 0);
        self.put_row(row, &layout, at);
        let behind = self.b.ins().iadd_imm_s(at, (layout.words * 8) as i64);
        self.store(behind, slot, offset_of!(SinkSlot, next));
    }

    fn take(
        &mut self,
        graph: &Graph,
        node: &Arc<Node>,
        port: usize,
        row: &[Val],
        kind: ir::Value,
    ) -> Result<()> {
        match &node.op {
            NodeOp::Scan(_) | NodeOp::Values(..) => Ok(()),
            NodeOp::Union(_) => self.push(graph, node, row, kind),
            NodeOp::Project { columns, .. } => {
                let vals: Result<Vec<Val>> = columns.iter().map(|(_, expr)| self.expr(expr, row)).collect();
                let vals = vals?;
                for (val, (name, expr)) in vals.iter().zip(columns) {
                    if !matches!(expr, Expr::Column(..)) {
                        self.name(val.a, name.clone());
                    }
                }
                self.push(graph, node, &vals, kind)
            }
            NodeOp::Filter { predicate, .. } => {
                let val = self.expr(predicate, row)?;
                let passes = self.is_true(val);
                self.when(passes, |g| g.push(graph, node, row, kind))
            }
            NodeOp::Window { window, time, .. } => self.unless_timeless(row[*time], |g| {
                let moment = g.moment_of(row[*time]);
                g.each_window(*window, moment, |g, start, end| {
                    let mut row = row.to_vec();
                    row.extend(g.bounds(start, end));
                    g.push(graph, node, &row, kind)
                })
            }),
            NodeOp::WindowAggregate { .. } => self.window_aggregate(graph, node, row),
            NodeOp::Aggregate { keys, .. } => self.aggregate(graph, node, keys, row),
            NodeOp::Join { .. } => self.join(graph, node, port, row),
            NodeOp::Lookup { .. } => self.look_up(graph, node, row, kind),
            NodeOp::Rank { .. } => self.rank(graph, node, row),
        }
    }

    /// Runs `then` unless the row's time is NULL: such a row is in no window and is counted.
    fn unless_timeless(&mut self, time: Val, then: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        if let Some(null) = time.null {
            self.when(null, |g| {
                let machine = g.machine;
                g.call("timeless", &[machine]);
                Ok(())
            })?;
        }
        self.unless_null(time, then)
    }

    /// A time clamped for windows to 2^60 microseconds, as [`plan::Window::assign`] does.
    fn moment_of(&mut self, time: Val) -> ir::Value {
        let (most, least) = (self.int(1 << 60), self.int(-(1 << 60)));
        let moment = self.b.ins().smin(time.a, most);
        self.b.ins().smax(moment, least)
    }

    /// Columns of a window.
    fn bounds(&mut self, start: ir::Value, end: ir::Value) -> [Val; 3] {
        let time = self.b.ins().iadd_imm_s(end, window_time(0));
        [self.val(start), self.val(end), self.val(time)]
    }

    /// The greatest multiple of `width`, counted from `offset`, that is not above a time.
    fn floor(&mut self, moment: ir::Value, width: i64, offset: i64) -> ir::Value {
        let moved = self.b.ins().iadd_imm_s(moment, -offset);
        let rest = self.rest(moved, width);
        self.b.ins().isub(moment, rest)
    }

    /// How far a time is above a multiple of `width`.
    pub fn rest(&mut self, moment: ir::Value, width: i64) -> ir::Value {
        let size = self.int(width);
        let rest = self.b.ins().srem(moment, size);
        let below = self.b.ins().icmp_imm_s(IntCC::SignedLessThan, rest, 0);
        let lifted = self.b.ins().iadd(rest, size);
        self.b.ins().select(below, lifted, rest)
    }

    /// Runs `each` for each window that contains a time.
    fn each_window(
        &mut self,
        window: plan::Window,
        moment: ir::Value,
        each: impl FnOnce(&mut Self, ir::Value, ir::Value) -> Result<()>,
    ) -> Result<()> {
        use plan::Window::{Cumulate, Hop, Session, Tumble};
        match window {
            Tumble { size, offset } => {
                let start = self.floor(moment, size, offset);
                let end = self.b.ins().iadd_imm_s(start, size);
                each(self, start, end)
            }
            // From the last window backward, while the window contains the time.
            Hop { slide, size, offset } => {
                let last = self.floor(moment, slide, offset);
                // As many windows as there are, even where the size is no multiple of the slide.
                let least = self.b.ins().iadd_imm_s(last, -(size / slide - 1) * slide);
                let out = self.b.ins().iadd_imm_s(moment, -size);
                self.stepped(last, -slide, each, |g, start| {
                    let end = g.b.ins().iadd_imm_s(start, size);
                    let holds = g.icmp(IntCC::SignedGreaterThan, start, out);
                    let counts = g.icmp(IntCC::SignedGreaterThanOrEqual, start, least);
                    (g.b.ins().band(holds, counts), start, end)
                })
            }
            Cumulate { step, size, offset } => {
                let start = self.floor(moment, size, offset);
                let first = self.floor(moment, step, offset);
                let first = self.b.ins().iadd_imm_s(first, step);
                let last = self.b.ins().iadd_imm_s(start, size);
                self.stepped(first, step, each, |g, end| {
                    (g.icmp(IntCC::SignedLessThanOrEqual, end, last), start, end)
                })
            }
            Session { .. } => Err(Error::unsupported("compiling SESSION windows")),
        }
    }

    /// Runs `each` for values from `first` in steps, while `bounds` says so.
    fn stepped(
        &mut self,
        first: ir::Value,
        step: i64,
        each: impl FnOnce(&mut Self, ir::Value, ir::Value) -> Result<()>,
        bounds: impl FnOnce(&mut Self, ir::Value) -> (ir::Value, ir::Value, ir::Value),
    ) -> Result<()> {
        let (head, body, after) = (self.b.create_block(), self.b.create_block(), self.b.create_block());
        let at = self.b.append_block_param(head, types::I64);
        self.b.ins().jump(head, &[first.into()]);
        self.b.switch_to_block(head);
        let (more, start, end) = bounds(self, at);
        self.b.ins().brif(more, body, &[], after, &[]);
        self.b.switch_to_block(body);
        each(self, start, end)?;
        let next = self.b.ins().iadd_imm_s(at, step);
        self.b.ins().jump(head, &[next.into()]);
        self.b.switch_to_block(after);
        Ok(())
    }

    fn pane(&mut self, breaker: usize, side: usize) -> ir::Value {
        let pane = std::ptr::from_ref(&self.unit.machine.breakers[breaker].panes[side]) as i64;
        let pane = self.int(pane);
        self.name(pane, format!("window of breaker {breaker}"));
        pane
    }

    /// Runs `then` with a table, which a call finds if it is not that of the window used last. A late row has no table.
    fn with_table(
        &mut self,
        pane: ir::Value,
        same: ir::Value,
        find: impl FnOnce(&mut Self) -> ir::Value,
        then: impl FnOnce(&mut Self, ir::Value) -> Result<()>,
    ) -> Result<()> {
        let (other, known, after) = (self.b.create_block(), self.b.create_block(), self.b.create_block());
        self.b.set_cold_block(other);
        let table = self.b.append_block_param(known, types::I64);
        let last = self.load(pane, offset_of!(Pane, table));
        self.b.ins().brif(same, known, &[last.into()], other, &[]);
        self.b.switch_to_block(other);
        let found = find(self);
        self.b.ins().brif(found, known, &[found.into()], after, &[]);
        self.b.switch_to_block(known);
        then(self, table)?;
        self.b.ins().jump(after, &[]);
        self.b.switch_to_block(after);
        Ok(())
    }

    /// Runs `then` with the table of the window [start, end).
    pub fn with_window(
        &mut self,
        breaker: usize,
        side: usize,
        [start, end]: [ir::Value; 2],
        then: impl FnOnce(&mut Self, ir::Value) -> Result<()>,
    ) -> Result<()> {
        let pane = self.pane(breaker, side);
        let last_start = self.load(pane, offset_of!(Pane, start));
        let last_end = self.load(pane, offset_of!(Pane, end));
        let a = self.icmp(IntCC::Equal, start, last_start);
        let b = self.icmp(IntCC::Equal, end, last_end);
        let same = self.b.ins().band(a, b);
        self.with_table(
            pane,
            same,
            |g| {
                let (machine, number, side) = (g.machine, g.int(breaker as i64), g.int(side as i64));
                g.ask("window", &[machine, number, side, start, end])
            },
            then,
        )
    }

    fn window_aggregate(&mut self, graph: &Graph, node: &Arc<Node>, row: &[Val]) -> Result<()> {
        let NodeOp::WindowAggregate { window, source, .. } = &node.op else { return Ok(()) };
        let place = graph.place(node)?;
        let Kept::Group(group) = &place.kept else { return Ok(()) };
        let breaker = place.number;
        let add = |g: &mut Self, table: ir::Value| {
            let (at, _) = g.group(table, group, row);
            g.accumulate(table, group, at, row)
        };
        match source {
            WindowSource::Attached { start, end } => {
                let (start, end) = (row[*start], row[*end]);
                let null = self.either(start.null, end.null);
                let both = Val { null, ..start };
                self.unless_null(both, |g| g.with_window(breaker, 0, [start.a, end.a], add))
            }
            WindowSource::Assigned { time, .. } => {
                let kind = &self.unit.machine.breakers[breaker].kind;
                let slices = matches!(kind, Kind::Slices { .. });
                let sessions = matches!(kind, Kind::Sessions { .. });
                self.unless_timeless(row[*time], |g| {
                    if sessions {
                        let table = g.always(breaker, 0);
                        let (entry, _) = g.group(table, group, row);
                        let (machine, number) = (g.machine, g.int(breaker as i64));
                        let record = g.ask("session", &[machine, number, entry, row[*time].a]);
                        // 1 is a failure and zero a late row; an address is even.
                        let failed = g.b.ins().icmp_imm_s(IntCC::Equal, record, 1);
                        g.fail_if(failed, 0);
                        let there = g.b.ins().icmp_imm_s(IntCC::NotEqual, record, 0);
                        return g.when(there, |g| g.accumulate(table, group, record, row));
                    }
                    if !slices {
                        let moment = g.moment_of(row[*time]);
                        return g.each_window(*window, moment, |g, start, end| {
                            g.with_window(breaker, 0, [start, end], add)
                        });
                    }
                    let moment = row[*time].a;
                    let pane = g.pane(breaker, 0);
                    let start = g.load(pane, offset_of!(Pane, start));
                    let end = g.load(pane, offset_of!(Pane, end));
                    let since = g.icmp(IntCC::SignedGreaterThanOrEqual, moment, start);
                    let until = g.icmp(IntCC::SignedLessThan, moment, end);
                    let same = g.b.ins().band(since, until);
                    g.with_table(
                        pane,
                        same,
                        |g| {
                            let (machine, number) = (g.machine, g.int(breaker as i64));
                            g.ask("slice", &[machine, number, moment])
                        },
                        add,
                    )
                })
            }
        }
    }

    /// Adds a row to its group, and pushes the change of the group's row.
    fn aggregate(&mut self, graph: &Graph, node: &Arc<Node>, keys: &[usize], row: &[Val]) -> Result<()> {
        let place = graph.place(node)?;
        let Kept::Group(group) = &place.kept else { return Ok(()) };
        let table = self.always(place.number, 0);
        let key: Vec<Val> = keys.iter().map(|key| row[*key]).collect();
        let (at, new) = self.group(table, group, row);
        let before = self.results(table, group, at);
        self.accumulate(table, group, at, row)?;
        let after = self.results(table, group, at);
        let mut differs = self.truth(false);
        for (old, now) in before.iter().zip(&after) {
            let same = self.identical(*old, *now);
            let other = self.not(same);
            differs = self.b.ins().bor(differs, other);
        }
        let changed = self.b.ins().band_not(differs, new);
        let old: Vec<Val> = key.iter().copied().chain(before).collect();
        let now: Vec<Val> = key.into_iter().chain(after).collect();
        let (insert, update) = (self.kind(RowKind::Insert), self.kind(RowKind::UpdateAfter));
        let gone = self.kind(RowKind::UpdateBefore);
        if !old.is_empty() {
            self.when(changed, |g| g.push(graph, node, &old, gone))?;
        }
        let kind = self.b.ins().select(new, insert, update);
        let given = self.b.ins().bor(new, changed);
        self.when(given, |g| g.push(graph, node, &now, kind))
    }

    /// The table of a breaker that has no windows.
    pub fn always(&mut self, breaker: usize, side: usize) -> ir::Value {
        let pane = self.pane(breaker, side);
        self.load(pane, offset_of!(Pane, table))
    }

    /// Values of a join's key, and whether one of them is NULL.
    fn key_of<'e>(
        &mut self,
        exprs: impl Iterator<Item = &'e Expr>,
        row: &[Val],
    ) -> Result<(Vec<Val>, Option<ir::Value>)> {
        let (mut key, mut null) = (Vec::new(), None);
        for expr in exprs {
            let val = self.expr(expr, row)?;
            null = self.either(null, val.null);
            key.push(Val { null: None, ..val });
        }
        Ok((key, null))
    }

    /// Appends a row to the list of its key.
    fn keep_row(&mut self, table: ir::Value, lists: &Lists, key: &[Val], row: &[Val]) -> Result<()> {
        let (at, _) = self.probe(table, &lists.entries, key, true);
        let row: Vec<Val> = row.iter().map(|val| self.interned(table, *val)).collect();
        let (first, last) = (lists.entries.value * 8, (lists.entries.value + 1) * 8);
        let place = self.load(table, offset_of!(Head, rows_len));
        let end = self.load(table, offset_of!(Head, rows_end));
        let behind = self.b.ins().iadd_imm_s(place, (lists.row.words + 1) as i64);
        let (full, room) = (self.b.create_block(), self.b.create_block());
        self.b.set_cold_block(full);
        let fits = self.icmp(IntCC::UnsignedLessThanOrEqual, behind, end);
        self.b.ins().brif(fits, room, &[], full, &[]);
        self.b.switch_to_block(full);
        let failed = self.ask("make_room_for_row", &[self.machine, table]);
        self.fail_if(failed, 0);
        self.b.ins().jump(room, &[]);
        self.b.switch_to_block(room);
        let rows = self.rows_of(table);
        let offset = self.b.ins().ishl_imm_s(place, 3);
        let link_at = self.b.ins().iadd(rows, offset);
        let zero = self.int(0);
        self.store(zero, link_at, 0);
        let row_at = self.b.ins().iadd_imm_s(link_at, 8);
        self.put_row(&row, &lists.row, row_at);
        self.store(behind, table, offset_of!(Head, rows_len));
        let link = self.b.ins().iadd_imm_s(place, 1);
        let tail = self.load(at, last);
        self.store(link, at, last);
        let (more, one, after) = (self.b.create_block(), self.b.create_block(), self.b.create_block());
        self.b.ins().brif(tail, more, &[], one, &[]);
        self.b.switch_to_block(more);
        self.touch_link(table, &lists.entries.layout, tail);
        let rows = self.rows_of(table);
        let offset = self.b.ins().ishl_imm_s(tail, 3);
        let behind_tail = self.b.ins().iadd(rows, offset);
        // A link is the place plus one, so the row's own link is the word before.
        self.b.ins().store(trusted(), link, behind_tail, -8);
        self.b.ins().jump(after, &[]);
        self.b.switch_to_block(one);
        self.store(link, at, first);
        self.b.ins().jump(after, &[]);
        self.b.switch_to_block(after);
        Ok(())
    }

    /// Runs `each` for each row of a key.
    pub fn each_row(
        &mut self,
        table: ir::Value,
        lists: &Lists,
        at: ir::Value,
        each: impl FnOnce(&mut Self, &[Val]) -> Result<()>,
    ) -> Result<()> {
        let (head, body, after) = (self.b.create_block(), self.b.create_block(), self.b.create_block());
        let link = self.b.append_block_param(head, types::I64);
        let first = self.load(at, lists.entries.value * 8);
        self.b.ins().jump(head, &[first.into()]);
        self.b.switch_to_block(head);
        self.b.ins().brif(link, body, &[], after, &[]);
        self.b.switch_to_block(body);
        let rows = self.rows_of(table);
        let offset = self.b.ins().ishl_imm_s(link, 3);
        let behind = self.b.ins().iadd(rows, offset);
        // A link is the place plus one, so the row's own link is the word before.
        let next = self.b.ins().load(types::I64, trusted(), behind, -8);
        let bytes = self.bytes_of(table);
        let row = self.get_row(&lists.row, behind, bytes);
        each(self, &row)?;
        self.b.ins().jump(head, &[next.into()]);
        self.b.switch_to_block(after);
        Ok(())
    }

    /// Pushes a joined pair if the remaining condition holds.
    fn push_pair(
        &mut self,
        graph: &Graph,
        node: &Arc<Node>,
        residual: Option<&Expr>,
        pair: &[Val],
        kind: ir::Value,
    ) -> Result<()> {
        match residual {
            None => self.push(graph, node, pair, kind),
            Some(residual) => {
                let val = self.expr(residual, pair)?;
                let holds = self.is_true(val);
                self.when(holds, |g| g.push(graph, node, pair, kind))
            }
        }
    }

    fn join(&mut self, graph: &Graph, node: &Arc<Node>, port: usize, row: &[Val]) -> Result<()> {
        let NodeOp::Join { kind, keys, residual, .. } = &node.op else { return Ok(()) };
        let place = graph.place(node)?;
        let Kept::Sides(sides) = &place.kept else { return Ok(()) };
        let exprs = keys.iter().map(|(left, right)| if port == 0 { left } else { right });
        let (key, null) = self.key_of(exprs, row)?;
        let breaker = place.number;
        let nullable = Val { shape: Shape::Int, a: self.machine, b: None, null };
        self.unless_null(nullable, |g| {
            if let JoinKind::Window { left, right, .. } = kind {
                let (start, end) = if port == 0 { *left } else { *right };
                let window = [row[start].a, row[end].a];
                return g.with_window(breaker, port, window, |g, table| {
                    g.keep_row(table, &sides[port], &key, row)
                });
            }
            let insert = g.kind(RowKind::Insert);
            let others = g.always(breaker, 1 - port);
            let (at, there) = g.probe(others, &sides[1 - port].entries, &key, false);
            g.when(there, |g| {
                g.each_row(others, &sides[1 - port], at, |g, other| {
                    let pair = if port == 0 { [row, other].concat() } else { [other, row].concat() };
                    g.push_pair(graph, node, residual.as_ref(), &pair, insert)
                })
            })?;
            let own = g.always(breaker, port);
            g.keep_row(own, &sides[port], &key, row)
        })
    }

    fn look_up(&mut self, graph: &Graph, node: &Arc<Node>, row: &[Val], kind: ir::Value) -> Result<()> {
        let NodeOp::Lookup { table, columns, keys, residual, outer, .. } = &node.op else { return Ok(()) };
        let place = graph.place(node)?;
        let Kept::Lookup(lists) = &place.kept else { return Ok(()) };
        let (key, null) = self.key_of(keys.iter().map(|(_, expr)| expr), row)?;
        let rows = self.always(place.number, 0);
        let matched = self.stack(1);
        let zero = self.int(0);
        self.store(zero, matched, 0);
        let nullable = Val { shape: Shape::Int, a: self.machine, b: None, null };
        self.unless_null(nullable, |g| {
            let (at, there) = g.probe(rows, &lists.entries, &key, false);
            g.when(there, |g| {
                g.each_row(rows, lists, at, |g, other| {
                    let pair: Vec<Val> =
                        row.iter().copied().chain(columns.iter().map(|column| other[*column])).collect();
                    let holds = match residual {
                        Some(residual) => {
                            let val = g.expr(residual, &pair)?;
                            g.is_true(val)
                        }
                        None => g.truth(true),
                    };
                    g.when(holds, |g| {
                        let one = g.int(1);
                        g.store(one, matched, 0);
                        g.push(graph, node, &pair, kind)
                    })
                })
            })
        })?;
        if *outer {
            let found = self.load(matched, 0);
            let none = self.is_zero(found);
            self.when(none, |g| {
                let mut pair = row.to_vec();
                for column in columns {
                    let mut val = g.zero(Shape::of(&table.columns[*column].ty.data)?);
                    val.null = Some(g.truth(true));
                    pair.push(val);
                }
                g.push(graph, node, &pair, kind)
            })?;
        }
        Ok(())
    }

    /// The loop over `rows` rows of a batch: the first ones, or those whose numbers are in `picked`. `each` is given
    /// one row and its number in the batch.
    fn each_of_batch(
        &mut self,
        [columns, rows]: [ir::Value; 2],
        picked: Option<ir::Value>,
        shapes: &[(Shape, bool, String)],
        aheads: &[Ahead],
        each: impl FnOnce(&mut Self, &[Val], ir::Value) -> Result<()>,
    ) -> Result<()> {
        let bases: Vec<[ir::Value; COLUMN_WORDS]> = (0..shapes.len())
            .map(|column| std::array::from_fn(|word| self.load(columns, (column * COLUMN_WORDS + word) * 8)))
            .collect();
        let (head, body, after) = (self.b.create_block(), self.b.create_block(), self.b.create_block());
        let place = self.b.append_block_param(head, types::I64);
        let zero = self.int(0);
        self.b.ins().jump(head, &[zero.into()]);
        self.b.switch_to_block(head);
        let more = self.icmp(IntCC::UnsignedLessThan, place, rows);
        self.b.ins().brif(more, body, &[], after, &[]);
        self.b.switch_to_block(body);
        if !aheads.is_empty() {
            let within = self.b.ins().band_imm_s(place, ahead::ROWS - 1);
            let first = self.is_zero(within);
            self.when(first, |g| {
                aheads.iter().try_for_each(|ahead| {
                    g.look_ahead(ahead, [place, rows], &|g, place| {
                        let number = g.number(picked, place);
                        g.row_of_batch(&bases, shapes, number, &|column| ahead.reads(column))
                    })
                })
            })?;
        }
        let number = self.number(picked, place);
        self.name(number, "row");
        let row = self.row_of_batch(&bases, shapes, number, &|_| true);
        for (val, (.., name)) in row.iter().zip(shapes) {
            self.name(val.a, name.clone());
        }
        each(self, &row, number)?;
        let next = self.b.ins().iadd_imm_s(place, 1);
        self.b.ins().jump(head, &[next.into()]);
        self.b.switch_to_block(after);
        Ok(())
    }

    /// The number in a batch of the row at a place.
    fn number(&mut self, picked: Option<ir::Value>, place: ir::Value) -> ir::Value {
        let Some(picked) = picked else { return place };
        let offset = self.b.ins().ishl_imm_s(place, 2);
        let at = self.b.ins().iadd(picked, offset);
        self.b.ins().uload32(trusted(), at, 0)
    }

    /// A row of a batch that has only some of the columns.
    fn row_of_batch(
        &mut self,
        bases: &[[ir::Value; COLUMN_WORDS]],
        shapes: &[(Shape, bool, String)],
        number: ir::Value,
        wanted: &dyn Fn(usize) -> bool,
    ) -> Vec<Val> {
        let mut row = Vec::new();
        for (column, ([values, nulls, bytes], (shape, nullable, _))) in bases.iter().zip(shapes).enumerate() {
            if !wanted(column) {
                row.push(self.zero(*shape));
                continue;
            }
            let val = self.column(*shape, *values, *bytes, number);
            let null = nullable.then(|| {
                let at = self.b.ins().iadd(*nulls, number);
                self.b.ins().load(types::I8, trusted(), at, 0)
            });
            row.push(Val { null, ..val });
        }
        row
    }

    fn column(&mut self, shape: Shape, values: ir::Value, bytes: ir::Value, number: ir::Value) -> Val {
        let shift = match shape {
            Shape::Boolean => 0,
            Shape::Float => 2,
            Shape::Int | Shape::Double => 3,
            Shape::Decimal | Shape::Text => 4,
        };
        let offset = self.b.ins().ishl_imm_s(number, shift);
        let at = self.b.ins().iadd(values, offset);
        match shape {
            Shape::Boolean | Shape::Float => {
                let a = self.b.ins().load(super::emit::register(shape), trusted(), at, 0);
                Val { shape, a, b: None, null: None }
            }
            _ => self.get_in(shape, at, 0, bytes),
        }
    }

    /// Shapes and names of the columns that a scan reads.
    fn read_shapes(scan: &Scan) -> Result<Vec<(Shape, bool, String)>> {
        let shape = |read: &usize| {
            let column = &scan.table.columns[scan.table.physical[*read]];
            Ok((Shape::of(&column.ty.data)?, column.ty.nullable, column.name.clone()))
        };
        scan.reads.iter().map(shape).collect()
    }

    /// Raises a scan's watermark to at least this, and closes what may then close.
    fn raise(&mut self, scan: usize, bound: ir::Value) -> Result<()> {
        let slot = std::ptr::from_mut(&mut *self.unit.machine.scans[scan]) as i64;
        let slot = self.int(slot);
        let before = self.load(slot, offset_of!(ScanSlot, watermark));
        let deadline = self.load(slot, offset_of!(ScanSlot, deadline));
        let above = self.icmp(IntCC::SignedGreaterThan, bound, before);
        self.when(above, |g| {
            g.store(bound, slot, offset_of!(ScanSlot, watermark));
            let due = g.icmp(IntCC::SignedGreaterThanOrEqual, bound, deadline);
            g.when(due, |g| {
                let machine = g.machine;
                let failed = g.ask("advance", &[machine]);
                g.fail_if(failed, 0);
                Ok(())
            })
        })
    }

    /// Code that routes rows. It appends each row's number to those of its thread, and stores the watermark of the
    /// batch after each row. Parameters: columns of the batch; number of rows; for each thread the address of its next
    /// number; the address of watermarks, the first of which is already set.
    pub fn route(
        &mut self,
        scan: &Scan,
        keys: &[Expr],
        threads: usize,
        [columns, rows, parts, marks]: [ir::Value; 4],
    ) -> Result<()> {
        let shapes = Self::read_shapes(scan)?;
        self.each_of_batch([columns, rows], None, &shapes, &[], |g, row, number| {
            let vals: Result<Vec<Val>> = keys.iter().map(|expr| g.expr(expr, row)).collect();
            let hash = g.hash_key(&vals?);
            // The table's places come from the low bits.
            let threads = g.int(threads as i64);
            let thread = g.b.ins().umulhi(hash, threads);
            // Without a branch, because the thread cannot be predicted.
            let offset = g.b.ins().ishl_imm_s(thread, 3);
            let part = g.b.ins().iadd(parts, offset);
            let at = g.load(part, 0);
            let short = g.b.ins().ireduce(types::I32, number);
            g.store(short, at, 0);
            let next = g.b.ins().iadd_imm_s(at, 4);
            g.store(next, part, 0);
            let Some(watermark) = &scan.watermark else { return Ok(()) };
            let offset = g.b.ins().ishl_imm_s(number, 3);
            let at = g.b.ins().iadd(marks, offset);
            let before = g.load(at, 0);
            let bound = g.expr(watermark, row)?;
            let mut mark = g.b.ins().smax(bound.a, before);
            if let Some(null) = bound.null {
                mark = g.b.ins().select(null, before, mark);
            }
            g.store(mark, at, 8);
            Ok(())
        })
    }

    /// Code of a scan: columns of the batch, number of rows. In a job with threads, two more addresses follow the
    /// columns. One is that of the numbers of its rows. The other is that of the watermarks before all rows, or zero if
    /// these close nothing.
    pub fn scan(
        &mut self,
        graph: &Graph,
        node: &Arc<Node>,
        scan: &Scan,
        number: usize,
        [columns, rows]: [ir::Value; 2],
    ) -> Result<()> {
        let shapes = Self::read_shapes(scan)?;
        let behind = shapes.len() * COLUMN_WORDS * 8;
        let routed =
            self.unit.machine.routed.then(|| (self.load(columns, behind), self.load(columns, behind + 8)));
        let aheads = ahead::of_scan(graph, node, scan);
        let picked = routed.map(|(picked, _)| picked);
        self.each_of_batch([columns, rows], picked, &shapes, &aheads, |g, row, place| {
            if let (Some((_, marks)), Some(_)) = (routed, &scan.watermark) {
                // Without this address nothing may close within the batch.
                let given = g.b.ins().icmp_imm_s(IntCC::NotEqual, marks, 0);
                g.when(given, |g| {
                    let offset = g.b.ins().ishl_imm_s(place, 3);
                    let at = g.b.ins().iadd(marks, offset);
                    let mark = g.load(at, 0);
                    g.raise(number, mark)
                })?;
            }
            let passes = match &scan.filter {
                Some(filter) => {
                    let val = g.expr(filter, row)?;
                    g.is_true(val)
                }
                None => g.truth(true),
            };
            let push = |g: &mut Self| {
                let vals: Result<Vec<Val>> = scan.columns.iter().map(|(_, expr)| g.expr(expr, row)).collect();
                let insert = g.kind(RowKind::Insert);
                g.push(graph, node, &vals?, insert)
            };
            match scan.filter {
                Some(_) => g.when(passes, push)?,
                None => push(g)?,
            }
            let Some(watermark) = &scan.watermark else { return Ok(()) };
            let bound = g.expr(watermark, row)?;
            g.name(bound.a, "watermark");
            g.unless_null(bound, |g| g.raise(number, bound.a))
        })
    }

    /// Code that loads the rows of a lookup table.
    pub fn load_table(
        &mut self,
        graph: &Graph,
        node: &Arc<Node>,
        [columns, rows]: [ir::Value; 2],
    ) -> Result<()> {
        let NodeOp::Lookup { table, keys, .. } = &node.op else { return Ok(()) };
        let place = graph.place(node)?;
        let Kept::Lookup(lists) = &place.kept else { return Ok(()) };
        let shapes: Result<Vec<(Shape, bool, String)>> = table
            .columns
            .iter()
            .map(|column| Ok((Shape::of(&column.ty.data)?, column.ty.nullable, column.name.clone())))
            .collect();
        let kept = self.always(place.number, 0);
        self.each_of_batch([columns, rows], None, &shapes?, &[], |g, row, _| {
            let exprs: Vec<Expr> = keys
                .iter()
                .map(|(column, expr)| {
                    Expr::Column(*column, table.columns[*column].ty.clone()).cast_to(&expr.ty().data)
                })
                .collect();
            let (key, null) = g.key_of(exprs.iter(), row)?;
            let nullable = Val { shape: Shape::Int, a: g.machine, b: None, null };
            g.unless_null(nullable, |g| g.keep_row(kept, lists, &key, row))
        })
    }

    /// Code of constants.
    pub fn values(&mut self, graph: &Graph, node: &Arc<Node>, rows: &[Vec<Expr>]) -> Result<()> {
        for row in rows {
            let vals: Result<Vec<Val>> = row.iter().map(|expr| self.expr(expr, &[])).collect();
            let insert = self.kind(RowKind::Insert);
            self.push(graph, node, &vals?, insert)?;
        }
        Ok(())
    }

    /// Code that emits a closed window: its table, or the address of the tables of both sides; its bounds.
    pub fn close(
        &mut self,
        graph: &Graph,
        node: &Arc<Node>,
        [tables, start, end]: [ir::Value; 3],
    ) -> Result<()> {
        let place = graph.place(node)?;
        let insert = self.kind(RowKind::Insert);
        match (&place.kept, &node.op) {
            // A single record, whose texts are in the table of groups.
            (Kept::Group(group), _) if group.list.is_some() => {
                let table = self.always(place.number, 0);
                let mut row = self.key(table, &group.entries, tables);
                row.extend(self.results(table, group, tables));
                row.extend(self.bounds(start, end));
                self.push(graph, node, &row, insert)
            }
            (Kept::Group(group), _) => self.each_entry(tables, &group.entries, |g, at| {
                let mut row = g.key(tables, &group.entries, at);
                row.extend(g.results(tables, group, at));
                row.extend(g.bounds(start, end));
                g.push(graph, node, &row, insert)
            }),
            (Kept::Rows(lists), _) => self.first_rows(graph, node, lists, tables),
            (Kept::Sides([left, right]), NodeOp::Join { residual, .. }) => {
                let lefts = self.load(tables, 0);
                let rights = self.load(tables, 8);
                // A side without rows has no table, and then there are no pairs.
                let a = self.b.ins().icmp_imm_s(IntCC::NotEqual, lefts, 0);
                let b = self.b.ins().icmp_imm_s(IntCC::NotEqual, rights, 0);
                let both = self.b.ins().band(a, b);
                self.when(both, |g| {
                    g.each_entry(lefts, &left.entries, |g, at| {
                        let key = g.key(lefts, &left.entries, at);
                        let (other, there) = g.probe(rights, &right.entries, &key, false);
                        g.when(there, |g| {
                            g.each_row(lefts, left, at, |g, mine| {
                                let mine = mine.to_vec();
                                g.each_row(rights, right, other, |g, theirs| {
                                    let pair = [mine.as_slice(), theirs].concat();
                                    g.push_pair(graph, node, residual.as_ref(), &pair, insert)
                                })
                            })
                        })
                    })
                })
            }
            _ => Ok(()),
        }
    }

    /// Code that merges all records of one table into those of another.
    pub fn merge(&mut self, graph: &Graph, node: &Arc<Node>, [from, to]: [ir::Value; 2]) -> Result<()> {
        let place = graph.place(node)?;
        let Kept::Group(group) = &place.kept else { return Ok(()) };
        if group.list.is_some() {
            let table = self.always(place.number, 0);
            return self.combine([table, table], group, from, to);
        }
        self.each_entry(from, &group.entries, |g, at| {
            let key = g.key(from, &group.entries, at);
            let (mine, _) = g.probe(to, &group.entries, &key, true);
            g.combine([from, to], group, at, mine)
        })
    }
}

/// Whether a breaker has windows that close.
pub fn closes(breaker: &Breaker) -> bool {
    !matches!(breaker.kind, Kind::Always | Kind::Interval { .. })
}
