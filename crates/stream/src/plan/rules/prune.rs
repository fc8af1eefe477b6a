//! Columns that are not used are not computed, not kept in state, and not decoded from the source.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::expr::Expr;
use crate::plan::{JoinKind, Node, NodeOp, RankKind, Scan, WindowSource};

/// Prunes a plan whose columns are all used.
pub(super) fn apply(node: &Arc<Node>) -> Arc<Node> {
    exact(node, &(0..node.schema.len()).collect::<Vec<_>>())
}

/// The new index of each old column in a pruned node; `None` for removed columns.
type Places = Vec<Option<usize>>;

fn place(places: &Places, column: usize) -> usize {
    // Requested columns are always kept; the first column is only a fallback.
    places[column].unwrap_or(0)
}

/// A node with exactly these columns in this order.
fn exact(node: &Arc<Node>, wanted: &[usize]) -> Arc<Node> {
    let (pruned, places) = prune(node, &wanted.iter().copied().collect());
    let order: Vec<usize> = wanted.iter().map(|column| place(&places, *column)).collect();
    let same = order.len() == pruned.schema.len()
        && order.iter().enumerate().all(|(index, column)| index == *column);
    if same {
        return pruned;
    }
    let columns = wanted
        .iter()
        .zip(order)
        .map(|(old, new)| (node.schema[*old].name.clone(), pruned.column(new)))
        .collect();
    Node::new(NodeOp::Project { input: pruned, columns })
}

/// The new indexes of exactly these columns.
fn places_of(width: usize, kept: &[usize]) -> Places {
    let mut places = vec![None; width];
    for (new, old) in kept.iter().enumerate() {
        places[*old] = Some(new);
    }
    places
}

/// A node that has at least these columns.
fn prune(node: &Arc<Node>, wanted: &BTreeSet<usize>) -> (Arc<Node>, Places) {
    let width = node.schema.len();
    let kept: Vec<usize> = wanted.iter().copied().collect();
    match &node.op {
        NodeOp::Scan(scan) => {
            let columns: Vec<_> = kept.iter().map(|column| scan.columns[*column].clone()).collect();
            let mut reads = BTreeSet::new();
            let exprs = columns.iter().map(|(_, expr)| expr).chain(&scan.filter).chain(&scan.watermark);
            for expr in exprs {
                reads.extend(expr.columns());
            }
            let reads: Vec<usize> = reads.into_iter().collect();
            let renumber = |expr: Expr| {
                expr.renumber(&|column| reads.iter().position(|read| *read == column).unwrap_or(0))
            };
            let scan = Scan {
                table: scan.table.clone(),
                columns: columns.into_iter().map(|(field, expr)| (field, renumber(expr))).collect(),
                watermark: scan.watermark.clone().map(renumber),
                filter: scan.filter.clone().map(renumber),
                reads: reads.iter().map(|read| scan.reads[*read]).collect(),
            };
            (Node::new(NodeOp::Scan(scan)), places_of(width, &kept))
        }
        NodeOp::Values(fields, rows) => {
            let fields = kept.iter().map(|column| fields[*column].clone()).collect();
            let rows =
                rows.iter().map(|row| kept.iter().map(|column| row[*column].clone()).collect()).collect();
            (Node::new(NodeOp::Values(fields, rows)), places_of(width, &kept))
        }
        NodeOp::Project { input, columns } => {
            let columns: Vec<(String, Expr)> = kept.iter().map(|column| columns[*column].clone()).collect();
            let below: BTreeSet<usize> = columns.iter().flat_map(|(_, expr)| expr.columns()).collect();
            let (input, places) = prune(input, &below);
            let columns = columns
                .into_iter()
                .map(|(name, expr)| (name, expr.renumber(&|column| place(&places, column))))
                .collect();
            (Node::new(NodeOp::Project { input, columns }), places_of(width, &kept))
        }
        NodeOp::Filter { input, predicate } => {
            let below = wanted.union(&predicate.columns()).copied().collect();
            let (input, places) = prune(input, &below);
            let predicate = predicate.clone().renumber(&|column| place(&places, column));
            (Node::new(NodeOp::Filter { input, predicate }), places)
        }
        NodeOp::Window { input, window, time, partition } => {
            let old = input.schema.len();
            let below: BTreeSet<usize> = wanted
                .iter()
                .copied()
                .filter(|column| *column < old)
                .chain([*time])
                .chain(partition.clone())
                .collect();
            let (input, mut places) = prune(input, &below);
            let first = input.schema.len();
            places.extend((0..3).map(|bound| Some(first + bound)));
            let op = NodeOp::Window {
                window: *window,
                time: place(&places, *time),
                partition: partition.iter().map(|column| place(&places, *column)).collect(),
                input,
            };
            (Node::new(op), places)
        }
        NodeOp::WindowAggregate { input, window, proctime, source, keys, aggregates } => {
            let mut below: BTreeSet<usize> = keys.iter().copied().collect();
            match source {
                WindowSource::Attached { start, end } => below.extend([*start, *end]),
                WindowSource::Assigned { time, .. } => {
                    below.insert(*time);
                }
            }
            let (aggregates, below, mut places) = prune_aggregates(keys.len(), aggregates, wanted, below);
            let (input, old) = exact_places(input, &below);
            let source = match source {
                WindowSource::Attached { start, end } => {
                    WindowSource::Attached { start: place(&old, *start), end: place(&old, *end) }
                }
                WindowSource::Assigned { time, slice } => {
                    WindowSource::Assigned { time: place(&old, *time), slice: *slice }
                }
            };
            let aggregates: Vec<_> =
                aggregates.into_iter().map(|aggregate| renumber(aggregate, &old)).collect();
            let first = keys.len() + aggregates.len();
            places.extend((0..3).map(|bound| Some(first + bound)));
            let op = NodeOp::WindowAggregate {
                input,
                window: *window,
                proctime: *proctime,
                source,
                keys: keys.iter().map(|key| place(&old, *key)).collect(),
                aggregates,
            };
            (Node::new(op), places)
        }
        NodeOp::Aggregate { input, keys, aggregates } => {
            let below = keys.iter().copied().collect();
            let (mut pruned, mut below, mut places) = prune_aggregates(keys.len(), aggregates, wanted, below);
            // One aggregate stays, because without any the group would not emit its changes.
            if pruned.is_empty()
                && let Some(first) = aggregates.first()
            {
                below.extend(first.argument.into_iter().chain(first.filter));
                pruned.push(first.clone());
                places[keys.len()] = Some(keys.len());
            }
            let (input, old) = exact_places(input, &below);
            let op = NodeOp::Aggregate {
                input,
                keys: keys.iter().map(|key| place(&old, *key)).collect(),
                aggregates: pruned.into_iter().map(|aggregate| renumber(aggregate, &old)).collect(),
            };
            (Node::new(op), places)
        }
        NodeOp::Join { left, right, kind, keys, residual } => {
            let old = left.schema.len();
            let mut needed = wanted.clone();
            needed.extend(residual.iter().flat_map(Expr::columns));
            let (mut to_left, mut to_right): (BTreeSet<usize>, BTreeSet<usize>) =
                (BTreeSet::new(), BTreeSet::new());
            for column in needed {
                if column < old {
                    to_left.insert(column)
                } else {
                    to_right.insert(column - old)
                };
            }
            for (a, b) in keys {
                to_left.extend(a.columns());
                to_right.extend(b.columns());
            }
            match kind {
                JoinKind::Regular => {}
                JoinKind::Interval { left, right, .. } => {
                    to_left.insert(*left);
                    to_right.insert(*right);
                }
                JoinKind::Window { left, right, .. } => {
                    to_left.extend([left.0, left.1]);
                    to_right.extend([right.0, right.1]);
                }
            }
            let (left, at_left) = exact_places(left, &to_left);
            let (right, at_right) = exact_places(right, &to_right);
            let shift = left.schema.len();
            let mut places = at_left.clone();
            places.extend(at_right.iter().map(|place| place.map(|place| place + shift)));
            let kind = match kind {
                JoinKind::Regular => JoinKind::Regular,
                JoinKind::Interval { left, right, lower, upper, proctime } => JoinKind::Interval {
                    left: place(&at_left, *left),
                    right: place(&at_right, *right),
                    lower: *lower,
                    upper: *upper,
                    proctime: *proctime,
                },
                JoinKind::Window { left, right, proctime } => JoinKind::Window {
                    left: (place(&at_left, left.0), place(&at_left, left.1)),
                    right: (place(&at_right, right.0), place(&at_right, right.1)),
                    proctime: *proctime,
                },
            };
            let keys = keys
                .iter()
                .map(|(a, b)| {
                    let a = a.clone().renumber(&|column| place(&at_left, column));
                    (a, b.clone().renumber(&|column| place(&at_right, column)))
                })
                .collect();
            let residual = residual.clone().map(|expr| expr.renumber(&|column| place(&places, column)));
            (Node::new(NodeOp::Join { left, right, kind, keys, residual }), places)
        }
        NodeOp::Lookup { input, table, columns, keys, residual, outer } => {
            let old = input.schema.len();
            let mut needed = wanted.clone();
            needed.extend(residual.iter().flat_map(Expr::columns));
            let mut below: BTreeSet<usize> = needed.iter().copied().filter(|column| *column < old).collect();
            below.extend(keys.iter().flat_map(|(_, expr)| expr.columns()));
            let (input, mut places) = prune(input, &below);
            let shift = input.schema.len();
            let mut looked_up = Vec::new();
            for (index, column) in columns.iter().enumerate() {
                places.push(needed.contains(&(old + index)).then(|| {
                    looked_up.push(*column);
                    shift + looked_up.len() - 1
                }));
            }
            let renumber = |expr: &Expr| expr.clone().renumber(&|column| place(&places, column));
            let op = NodeOp::Lookup {
                keys: keys.iter().map(|(column, expr)| (*column, renumber(expr))).collect(),
                residual: residual.as_ref().map(renumber),
                input,
                table: table.clone(),
                columns: looked_up,
                outer: *outer,
            };
            (Node::new(op), places)
        }
        NodeOp::Rank { input, kind, partition, order, limit, number } => {
            let old = input.schema.len();
            let mut below: BTreeSet<usize> = wanted.iter().copied().filter(|column| *column < old).collect();
            below.extend(partition);
            below.extend(order.iter().map(|key| key.column));
            if let RankKind::Window { start, end, .. } = kind {
                below.extend([*start, *end]);
            }
            let (input, mut places) = exact_places(input, &below);
            let kind = match kind {
                RankKind::Window { last, start, end, proctime } => RankKind::Window {
                    last: *last,
                    start: place(&places, *start),
                    end: place(&places, *end),
                    proctime: *proctime,
                },
                other => *other,
            };
            let partition = partition.iter().map(|column| place(&places, *column)).collect();
            let mut order = order.clone();
            for key in &mut order {
                key.column = place(&places, key.column);
            }
            // Without its number, a row that moves within the order changes nothing.
            let number = *number && wanted.contains(&old);
            places.push(number.then_some(input.schema.len()));
            (Node::new(NodeOp::Rank { input, kind, partition, order, limit: *limit, number }), places)
        }
        NodeOp::Union(inputs) => {
            let inputs = inputs.iter().map(|input| exact(input, &kept)).collect();
            (Node::new(NodeOp::Union(inputs)), places_of(width, &kept))
        }
    }
}

/// The columns of their input that stateful nodes keep: these and no others.
fn exact_places(node: &Arc<Node>, wanted: &BTreeSet<usize>) -> (Arc<Node>, Places) {
    let kept: Vec<usize> = wanted.iter().copied().collect();
    (exact(node, &kept), places_of(node.schema.len(), &kept))
}

type Pruned = (Vec<crate::function::aggregate::Aggregate>, BTreeSet<usize>, Places);

fn prune_aggregates(
    keys: usize,
    aggregates: &[crate::function::aggregate::Aggregate],
    wanted: &BTreeSet<usize>,
    mut below: BTreeSet<usize>,
) -> Pruned {
    let mut places: Places = (0..keys).map(Some).collect();
    let mut kept = Vec::new();
    for (index, aggregate) in aggregates.iter().enumerate() {
        places.push(wanted.contains(&(keys + index)).then(|| {
            below.extend(aggregate.argument.into_iter().chain(aggregate.filter));
            kept.push(aggregate.clone());
            keys + kept.len() - 1
        }));
    }
    (kept, below, places)
}

fn renumber(
    mut aggregate: crate::function::aggregate::Aggregate,
    places: &Places,
) -> crate::function::aggregate::Aggregate {
    aggregate.argument = aggregate.argument.map(|column| place(places, column));
    aggregate.filter = aggregate.filter.map(|column| place(places, column));
    aggregate
}

#[cfg(test)]
mod tests {
    use super::super::testing::after;

    #[test]
    fn a_scan_reads_only_the_used_columns() {
        let plan = after("SELECT auction FROM bid WHERE price > 1", 7);
        assert!(plan.contains("reads=[auction, price, ts]"), "the watermark needs its time\n{plan}");
        let plan = after("SELECT name FROM bid JOIN person ON bidder = id", 7);
        assert!(plan.contains("reads=[bidder, ts]") && plan.contains("reads=[id, name, ts]"), "{plan}");
        let plan = after("SELECT w FROM bid JOIN side FOR SYSTEM_TIME AS OF bid.pt ON bidder = id", 7);
        assert!(plan.contains("columns=[w]"), "{plan}");
    }

    #[test]
    fn an_unused_row_number_is_not_computed() {
        let query = |columns: &str| {
            format!(
                "SELECT {columns} FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price) AS n FROM bid) WHERE n <= 3"
            )
        };
        assert!(after(&query("price, n"), 7).contains("number=[row_number]"));
        assert!(!after(&query("price"), 7).contains("number="));
    }
}
