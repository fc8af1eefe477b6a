//! Decides how a job's rows are routed to threads, each of which runs the whole plan over its part of the keys.
//!
//! A *way* is one expression for each source, such that rows that are combined in a breaker agree in it. It equals a
//! column of the breaker's key; for a join, the same position in both sides' keys. If all breakers have a way in
//! common, each thread has all rows that belong together. `docs/internals/decisions/029-threads-by-key.md` explains why
//! the results equal those of one thread.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::{Node, NodeOp, Sink, explain};
use crate::catalog::SinkKind;
use crate::expr::Expr;
use crate::types::DataType;

/// For each source, by [`id`], one expression over the columns that it reads.
type Way = BTreeMap<usize, Expr>;

/// At most this many ways are considered, and rows are routed by at most this many: each alone is correct, several
/// spread keys better.
const WAYS: usize = 16;
const TOGETHER: usize = 3;

/// The routing keys of each source.
#[derive(Debug, Clone, Default)]
pub struct Partition {
    sources: BTreeMap<usize, (Arc<Node>, Vec<Expr>)>,
}

/// The reason why a plan runs on one thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Whole(String);

impl fmt::Display for Whole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The identity of a node.
fn id(node: &Arc<Node>) -> usize {
    Arc::as_ptr(node) as usize
}

impl Partition {
    /// How a job's rows are routed, or why they cannot be.
    pub fn of(sinks: &[Sink]) -> Result<Partition, Whole> {
        let mut found = Search { ways: vec![Way::new()], seen: BTreeMap::new() };
        for sink in sinks {
            found.enter(&sink.input)?;
            if sink.table.connector.sink == Some(SinkKind::Upsert) && !sink.table.primary_key.is_empty() {
                let place = |column: &usize| sink.table.physical.iter().position(|place| place == column);
                let keys = sink.table.primary_key.iter().filter_map(place);
                let ways = keys.filter_map(|key| trace(&sink.input, sink.input.column(key))).collect();
                found.restrict(ways, || format!("the primary key of `{}`", sink.table.name))?;
            }
        }
        let Search { ways, seen } = found;
        let exprs = |id: usize| {
            let exprs = ways.iter().take(TOGETHER).filter_map(|way| way.get(&id).cloned());
            exprs.collect::<Vec<Expr>>()
        };
        let scans = seen.into_iter().filter(|(_, node)| matches!(node.op, NodeOp::Scan(_)));
        Ok(Partition { sources: scans.map(|(id, node)| (id, (node, exprs(id)))).collect() })
    }

    /// Whether rows of any source are routed by keys.
    pub fn has_keys(&self) -> bool {
        self.sources.values().any(|(_, keys)| !keys.is_empty())
    }

    /// The routing keys of a scan's rows, over the columns that it reads; empty if no breaker follows it.
    pub fn keys(&self, scan: &Arc<Node>) -> &[Expr] {
        self.sources.get(&id(scan)).map_or(&[], |(_, exprs)| exprs)
    }
}

impl fmt::Display for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut lines: Vec<String> = Vec::new();
        for (node, exprs) in self.sources.values() {
            let NodeOp::Scan(scan) = &node.op else { continue };
            let name = |column: usize| {
                let physical = scan.reads.get(column).map(|read| scan.table.physical[*read]);
                physical.map_or(String::new(), |physical| scan.table.columns[physical].name.clone())
            };
            let mut texts: Vec<String> = exprs.iter().map(|expr| expr.sql(&name)).collect();
            texts.dedup();
            lines.push(match texts.as_slice() {
                [] => format!("rows of {} in turn", scan.table.name),
                texts => format!("rows of {} by {}", scan.table.name, texts.join(", ")),
            });
        }
        lines.sort();
        lines.dedup();
        lines.iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}

struct Search {
    /// The ways that all breakers so far have in common.
    ways: Vec<Way>,
    seen: BTreeMap<usize, Arc<Node>>,
}

impl Search {
    fn enter(&mut self, node: &Arc<Node>) -> Result<(), Whole> {
        if self.seen.insert(id(node), node.clone()).is_some() {
            return Ok(());
        }
        node.inputs().into_iter().try_for_each(|input| self.enter(input))?;
        let by = |input: &Arc<Node>, columns: &[usize]| {
            columns.iter().filter_map(|column| trace(input, input.column(*column))).collect::<Vec<Way>>()
        };
        let ways = match &node.op {
            NodeOp::Values(..) => return Err(Whole("constants are given once".to_owned())),
            NodeOp::Aggregate { input, keys, .. } | NodeOp::WindowAggregate { input, keys, .. } => {
                by(input, keys)
            }
            NodeOp::Rank { input, partition, .. } => by(input, partition),
            NodeOp::Window { input, window, partition, .. } if window.slice().is_none() => {
                by(input, partition)
            }
            NodeOp::Join { left, right, keys, .. } => {
                let both =
                    |(a, b): &(Expr, Expr)| together(&trace(left, a.clone())?, &trace(right, b.clone())?);
                keys.iter().filter_map(both).collect()
            }
            _ => return Ok(()),
        };
        self.restrict(ways, || explain::line(node))
    }

    /// Keeps only ways that are compatible with one of these.
    fn restrict(&mut self, with: Vec<Way>, name: impl FnOnce() -> String) -> Result<(), Whole> {
        let mut ways: Vec<Way> = Vec::new();
        for way in &self.ways {
            for way in with.iter().filter_map(|other| together(way, other)) {
                if ways.len() < WAYS && !ways.contains(&way) {
                    ways.push(way);
                }
            }
        }
        if ways.is_empty() {
            return Err(Whole(format!(
                "no column of the sources determines the partition of rows in {}",
                name()
            )));
        }
        self.ways = ways;
        Ok(())
    }
}

/// Combines both ways into one, if they agree on the sources that they share.
fn together(a: &Way, b: &Way) -> Option<Way> {
    let agree = a.iter().all(|(id, expr)| b.get(id).is_none_or(|other| other == expr));
    agree.then(|| a.iter().chain(b).map(|(id, expr)| (*id, expr.clone())).collect())
}

/// The expressions over rows of sources that equal an expression over a node's row.
fn trace(node: &Arc<Node>, expr: Expr) -> Option<Way> {
    let all = |least: usize, end: usize| expr.columns().iter().all(|column| (least..end).contains(column));
    match &node.op {
        NodeOp::Scan(scan) => {
            let expr = unwidened(expr.map_columns(&|column, _| scan.columns[column].1.clone()));
            // A value that is the same for all rows distributes nothing.
            let good = expr.is_deterministic() && !expr.may_fail() && !expr.columns().is_empty();
            good.then(|| Way::from([(id(node), expr)]))
        }
        NodeOp::Values(..) => None,
        NodeOp::Project { input, columns } => {
            trace(input, expr.map_columns(&|column, _| columns[column].1.clone()))
        }
        NodeOp::Filter { input, .. } => trace(input, expr),
        NodeOp::Window { input, .. } | NodeOp::Lookup { input, .. } | NodeOp::Rank { input, .. } => {
            all(0, input.schema.len()).then(|| trace(input, expr))?
        }
        NodeOp::WindowAggregate { input, keys, .. } | NodeOp::Aggregate { input, keys, .. } => {
            all(0, keys.len()).then(|| trace(input, expr.renumber(&|column| keys[column])))?
        }
        NodeOp::Join { left, right, .. } => {
            let width = left.schema.len();
            if all(0, width) {
                return trace(left, expr);
            }
            all(width, usize::MAX).then(|| trace(right, expr.renumber(&|column| column - width)))?
        }
        NodeOp::Union(inputs) => {
            let mut ways = inputs.iter().map(|input| trace(input, expr.clone()));
            let first = ways.next()??;
            ways.try_fold(first, |way, other| together(&way, &other?))
        }
    }
}

/// An integer without casts to wider types: registers hold the widened value already, and different values stay
/// different.
fn unwidened(expr: Expr) -> Expr {
    let bytes = |expr: &Expr| {
        let ty = &expr.ty().data;
        ty.fixed_bytes().filter(|_| {
            matches!(ty, DataType::TinyInt | DataType::SmallInt | DataType::Int | DataType::BigInt)
        })
    };
    match expr {
        Expr::Cast { expr: inner, ty, safe } => {
            let outer = Expr::Cast { expr: inner.clone(), ty, safe };
            match (bytes(&inner), bytes(&outer)) {
                (Some(from), Some(to)) if from <= to => unwidened(*inner),
                _ => outer,
            }
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::{Outcome, Session};

    fn routes(inserts: &str) -> String {
        let script = format!(
            "CREATE TABLE t (a INT, b BIGINT, s STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) WITH ('connector' = 'datagen');
             CREATE TABLE u (a INT, b BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) WITH ('connector' = 'datagen');
             CREATE TABLE o (x BIGINT, n BIGINT) WITH ('connector' = 'print');
             CREATE TABLE v (x INT, n BIGINT, PRIMARY KEY (x) NOT ENFORCED) WITH ('connector' = 'duramen');
             EXECUTE STATEMENT SET BEGIN {inserts}; END;"
        );
        let Some(Outcome::Job(job)) = Session::default().run(&script).unwrap().pop() else {
            return String::new();
        };
        match Partition::of(&job.optimised) {
            Ok(partition) => partition.to_string(),
            Err(whole) => whole.to_string(),
        }
    }

    #[test]
    fn rows_are_partitioned_by_the_columns_that_all_stateful_operators_share() {
        let one = "SELECT a, COUNT(*) FROM t GROUP BY a";
        assert_eq!(routes(&format!("INSERT INTO o {one}")), "rows of t by a\n");
        assert_eq!(routes("INSERT INTO o SELECT a, b FROM t WHERE b > 3"), "rows of t in turn\n");
        let two = format!("INSERT INTO o {one}; INSERT INTO o SELECT a, COUNT(*) FROM t GROUP BY a, b");
        assert_eq!(routes(&two), "rows of t by a\n");
        let apart = format!("INSERT INTO o {one}; INSERT INTO o SELECT b, COUNT(*) FROM t GROUP BY b");
        assert!(routes(&apart).contains("no column of the sources determines"), "{}", routes(&apart));
        let joined =
            "INSERT INTO o SELECT l.a, COUNT(*) FROM t AS l JOIN u AS r ON l.a = r.b GROUP BY l.a, l.s";
        assert_eq!(routes(joined), "rows of t by a\nrows of u by b\n");
        let windows = "INSERT INTO o SELECT b, MAX(n) FROM (SELECT a, b, window_start AS w, window_end AS e, COUNT(*) AS n
            FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' SECOND)) GROUP BY a, b, window_start, window_end)
            GROUP BY b, w, e";
        assert_eq!(routes(windows), "rows of t by b\n");
    }

    #[test]
    fn a_job_without_a_common_partition_key_runs_on_one_thread() {
        for insert in [
            "INSERT INTO o SELECT 1, COUNT(*) FROM t",
            "INSERT INTO o SELECT l.b, r.b FROM t AS l JOIN t AS r ON l.a = r.b",
            "INSERT INTO o VALUES (1, 2)",
            // The newest row of a primary key must be known.
            "INSERT INTO v SELECT CAST(n AS INT), a FROM (SELECT a, COUNT(*) AS n FROM
               TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' SECOND)) GROUP BY a, window_start, window_end)",
        ] {
            assert!(!routes(insert).contains("rows of"), "{insert}: {}", routes(insert));
        }
        let by_key = "INSERT INTO v SELECT a, COUNT(*) FROM t GROUP BY a";
        assert_eq!(routes(by_key), "rows of t by a\n");
    }
}
