//! Code that prefetches the entries of keys some rows in advance, for tables larger than the nearest caches. The misses
//! of many rows are then waited for at once; a loop that finds one key after the other waits for each miss.
//!
//! It changes nothing and nothing depends on it: an entry may have moved before its row is processed.

use std::mem::offset_of;
use std::sync::Arc;

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{self, InstBuilder, types};

use super::emit::{Gen, Val};
use super::graph::{Graph, Kept, Reader};
use super::table::Entries;
use crate::batch::Shape;
use crate::error::Result;
use crate::expr::Expr;
use crate::plan::{Node, NodeOp, Scan};
use crate::state::Head;

/// Rows prefetched at a time: their lines fit into the nearest cache, and are more misses than it can have outstanding.
pub const ROWS: i64 = 256;

/// Smaller tables are not prefetched: they are in a cache anyway.
const BYTES_LEAST: usize = 4 << 20;

/// A table in which each row of a scan is looked up.
pub struct Ahead {
    breaker: usize,
    side: usize,
    entries: Entries,
    /// The key, over the columns that the scan reads.
    key: Vec<Expr>,
}

impl Ahead {
    /// Whether a column of the scan is wanted.
    pub fn reads(&self, column: usize) -> bool {
        self.key.iter().any(|expr| expr.columns().contains(&column))
    }
}

/// The tables in which the rows of a scan are looked up by keys that are cheap to compute again.
pub fn of_scan(graph: &Graph, node: &Arc<Node>, scan: &Scan) -> Vec<Ahead> {
    let mut found = Vec::new();
    // Prefetching rows that a filter drops would be wasted.
    if scan.filter.is_none() {
        let columns: Vec<Expr> = scan.columns.iter().map(|(_, expr)| expr.clone()).collect();
        follow(graph, node, &columns, &mut found);
    }
    found
}

fn follow(graph: &Graph, node: &Arc<Node>, columns: &[Expr], found: &mut Vec<Ahead>) {
    for reader in graph.readers(node) {
        let Reader::Node(node, port) = reader else { continue };
        let over = |expr: &Expr| {
            let mapped = expr.columns().iter().all(|column| *column < columns.len());
            mapped.then(|| expr.clone().map_columns(&|column, _| columns[column].clone()))
        };
        let key: Vec<Option<Expr>> = match &node.op {
            NodeOp::Project { columns: exprs, .. } => {
                let exprs: Option<Vec<Expr>> = exprs.iter().map(|(_, expr)| over(expr)).collect();
                if let Some(exprs) = exprs {
                    follow(graph, node, &exprs, found);
                }
                continue;
            }
            NodeOp::Union(_) | NodeOp::Window { .. } => {
                follow(graph, node, columns, found);
                continue;
            }
            NodeOp::WindowAggregate { keys, .. } | NodeOp::Aggregate { keys, .. } => {
                keys.iter().map(|key| columns.get(*key).cloned()).collect()
            }
            NodeOp::Rank { partition, .. } => {
                partition.iter().map(|key| columns.get(*key).cloned()).collect()
            }
            NodeOp::Join { keys, .. } => {
                keys.iter().map(|(left, right)| over(if *port == 0 { left } else { right })).collect()
            }
            _ => continue,
        };
        let Some(key) = key.into_iter().collect::<Option<Vec<Expr>>>() else { continue };
        if !key.is_empty() && key.iter().all(is_cheap) {
            enter(graph, node, *port, &key, found);
        }
    }
}

fn is_cheap(expr: &Expr) -> bool {
    let fixed = |expr: &Expr| Shape::of(&expr.ty().data).is_ok_and(|shape| shape != Shape::Text);
    match expr {
        Expr::Column(..) => fixed(expr),
        Expr::Cast { expr: inner, .. } => fixed(expr) && !expr.may_fail() && is_cheap(inner),
        _ => false,
    }
}

fn enter(graph: &Graph, node: &Arc<Node>, port: usize, key: &[Expr], found: &mut Vec<Ahead>) {
    let Ok(place) = graph.place(node) else { return };
    let mut add = |side: usize, entries: &Entries| {
        let (entries, key) = (entries.clone(), key.to_vec());
        found.push(Ahead { breaker: place.number, side, entries, key });
    };
    match &place.kept {
        Kept::Group(group) => add(0, &group.entries),
        Kept::Rows(lists) => add(0, &lists.entries),
        Kept::Sides(sides) => {
            add(1 - port, &sides[1 - port].entries);
            add(port, &sides[port].entries);
        }
        Kept::Lookup(_) => {}
    }
}

impl Gen<'_, '_> {
    /// Prefetches the entries that the rows from one place on look at first. `row` gives the row at a place.
    pub fn look_ahead(
        &mut self,
        ahead: &Ahead,
        [from, rows]: [ir::Value; 2],
        row: &dyn Fn(&mut Self, ir::Value) -> Vec<Val>,
    ) -> Result<()> {
        let table = self.always(ahead.breaker, ahead.side);
        let there = self.b.ins().icmp_imm_s(IntCC::NotEqual, table, 0);
        self.when(there, |g| {
            let mask = g.load(table, offset_of!(Head, mask));
            let bytes = ahead.entries.layout.stride * 8;
            let least = (BYTES_LEAST / bytes) as i64;
            let large = g.b.ins().icmp_imm_s(IntCC::SignedGreaterThan, mask, least);
            g.when(large, |g| {
                let base = g.load(table, offset_of!(Head, entries));
                let further = g.b.ins().iadd_imm_s(from, ROWS);
                let until = g.b.ins().umin(further, rows);
                let (head, body, after) = (g.b.create_block(), g.b.create_block(), g.b.create_block());
                let place = g.b.append_block_param(head, types::I64);
                let seen = g.b.append_block_param(head, types::I64);
                let zero = g.int(0);
                g.b.ins().jump(head, &[from.into(), zero.into()]);
                g.b.switch_to_block(head);
                let more = g.icmp(IntCC::UnsignedLessThan, place, until);
                g.b.ins().brif(more, body, &[], after, &[]);
                g.b.switch_to_block(body);
                let row = row(g, place);
                let vals: Result<Vec<Val>> = ahead.key.iter().map(|expr| g.expr(expr, &row)).collect();
                let home = g.home(&ahead.entries, &vals?);
                let home = g.b.ins().band(home, mask);
                let offset = g.b.ins().imul_imm_s(home, bytes as i64);
                let at = g.b.ins().iadd(base, offset);
                let word = g.load(at, 0);
                let all = g.b.ins().bxor(seen, word);
                let next = g.b.ins().iadd_imm_s(place, 1);
                g.b.ins().jump(head, &[next.into(), all.into()]);
                g.b.switch_to_block(after);
                // Nothing reads it, but the compiler would drop a load whose result is not used.
                let kept = g.stack(1);
                g.store(seen, kept, 0);
                Ok(())
            })
        })
    }
}
