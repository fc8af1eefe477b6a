//! Pushes filters down, each conjunct separately, to the scan or the node whose columns it needs. A conjunct that may
//! fail or is not deterministic stays: below, it would be computed for rows that others drop first.

use std::sync::Arc;

use crate::expr::{Expr, Extents};
use crate::plan::{JoinKind, Node, NodeOp, Scan};

/// Pushes every filter of a plan.
pub(super) fn apply(node: &Arc<Node>) -> Arc<Node> {
    push(node, Vec::new())
}

fn movable(expr: &Expr) -> bool {
    !expr.may_fail() && expr.is_deterministic()
}

/// The node with these conjuncts applied to its rows. All of them are movable.
fn push(node: &Arc<Node>, mut conjuncts: Vec<Expr>) -> Arc<Node> {
    match &node.op {
        NodeOp::Filter { input, predicate } => {
            let (own, stay): (Vec<Expr>, Vec<Expr>) =
                predicate.clone().conjuncts().into_iter().partition(movable);
            conjuncts.extend(own);
            filter(push(input, conjuncts), stay)
        }
        NodeOp::Project { input, columns } => {
            let mut below = Vec::new();
            let mut stay = Vec::new();
            let extents = Extents::of(columns.iter().map(|(_, expr)| expr));
            for conjunct in conjuncts {
                if !extents.allow(&conjunct) {
                    stay.push(conjunct);
                    continue;
                }
                let replaced = conjunct.clone().map_columns(&|index, _| columns[index].1.clone());
                if movable(&replaced) { below.push(replaced) } else { stay.push(conjunct) }
            }
            let input = push(input, below);
            filter(Node::new(NodeOp::Project { input, columns: columns.clone() }), stay)
        }
        NodeOp::Scan(scan) => {
            let over_reads =
                |conjunct: &Expr| conjunct.clone().map_columns(&|index, _| scan.columns[index].1.clone());
            let extents = Extents::of(scan.columns.iter().map(|(_, expr)| expr));
            let (below, stay): (Vec<Expr>, Vec<Expr>) = conjuncts
                .into_iter()
                .partition(|conjunct| extents.allow(conjunct) && movable(&over_reads(conjunct)));
            let all = scan.filter.iter().cloned().chain(below.iter().map(over_reads));
            let scan = Scan { filter: Expr::conjunction(all), ..scan.clone() };
            filter(Node::new(NodeOp::Scan(scan)), stay)
        }
        NodeOp::Values(..) => filter(node.clone(), conjuncts),
        NodeOp::Union(inputs) => {
            let inputs = inputs.iter().map(|input| push(input, conjuncts.clone())).collect();
            Node::new(NodeOp::Union(inputs))
        }
        // Sessions are made of all rows: dropping some would split them.
        NodeOp::Window { input, window, .. } if window.slice().is_some() => {
            let width = input.schema.len();
            let (below, stay) = part(conjuncts, |column| column < width);
            filter(node.map_inputs(&mut |input| push(input, below.clone())), stay)
        }
        NodeOp::Window { partition, .. } => {
            let (below, stay) = part(conjuncts, |column| partition.contains(&column));
            filter(node.map_inputs(&mut |input| push(input, below.clone())), stay)
        }
        NodeOp::Aggregate { keys, .. } | NodeOp::WindowAggregate { keys, .. } => {
            // Without a key the only group exists only if there is a row.
            let (below, stay) = part(conjuncts, |column| column < keys.len());
            let below: Vec<Expr> =
                below.into_iter().map(|expr| expr.renumber(&|column| keys[column])).collect();
            filter(node.map_inputs(&mut |input| push(input, below.clone())), stay)
        }
        NodeOp::Rank { partition, .. } => {
            let (below, stay) = part(conjuncts, |column| partition.contains(&column));
            filter(node.map_inputs(&mut |input| push(input, below.clone())), stay)
        }
        NodeOp::Lookup { input, .. } => {
            let width = input.schema.len();
            let (below, stay) = part(conjuncts, |column| column < width);
            filter(node.map_inputs(&mut |input| push(input, below.clone())), stay)
        }
        NodeOp::Join { left, right, kind, keys, residual } => {
            let width = left.schema.len();
            let (own, fixed): (Vec<Expr>, Vec<Expr>) =
                residual.clone().map(Expr::conjuncts).unwrap_or_default().into_iter().partition(movable);
            conjuncts.extend(own);
            let (to_left, rest) = part(conjuncts, |column| column < width);
            let (to_right, both) = part(rest, |column| column >= width);
            let to_right = to_right.into_iter().map(|expr| expr.renumber(&|column| column - width)).collect();
            // A condition on the rows of a window or interval join stays in the join, where it is checked on pairs.
            let residual = Expr::conjunction(both.into_iter().chain(fixed));
            let kind: JoinKind = kind.clone();
            let (left, right) = (push(left, to_left), push(right, to_right));
            Node::new(NodeOp::Join { left, right, kind, keys: keys.clone(), residual })
        }
    }
}

/// Splits conjuncts: those that use at least one column and only columns for which the test is true, and the others.
fn part(conjuncts: Vec<Expr>, such: impl Fn(usize) -> bool) -> (Vec<Expr>, Vec<Expr>) {
    conjuncts.into_iter().partition(|conjunct| {
        let columns = conjunct.columns();
        !columns.is_empty() && columns.iter().all(|column| such(*column))
    })
}

fn filter(input: Arc<Node>, conjuncts: Vec<Expr>) -> Arc<Node> {
    match Expr::conjunction(conjuncts) {
        Some(predicate) => Node::new(NodeOp::Filter { input, predicate }),
        None => input,
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::after;

    #[test]
    fn conjuncts_reach_the_scans_of_a_join() {
        let plan = after(
            "SELECT name FROM (SELECT bidder AS b, twice AS t FROM bid) AS x JOIN person ON b = id \
             WHERE t > 10 AND name SIMILAR TO 'a%' AND id < 5 AND b + id > 3",
            2,
        );
        assert!(plan.contains("filter=[((price * 2) > 10)]"), "{plan}");
        assert!(plan.contains("filter=[(id < 5)]"), "{plan}");
        assert!(
            plan.contains("where=[((bidder + id) > 3)]") || plan.contains("where=[((b + id) > 3)]"),
            "{plan}"
        );
        assert!(plan.contains("Filter(where=[(name SIMILAR TO 'a%')])"), "a pattern may fail\n{plan}");
    }

    #[test]
    fn a_condition_that_may_fail_stays_above_the_filter_that_guards_it() {
        let plan = after("SELECT * FROM (SELECT * FROM bid WHERE price <> 0) WHERE auction / price > 1", 2);
        assert!(plan.contains("Filter(where=[((auction / price) > 1)])"), "{plan}");
        assert!(plan.contains("filter=[(price <> 0)]"), "{plan}");
    }

    #[test]
    fn a_filter_is_not_pushed_below_a_session_window() {
        let query = "SELECT * FROM TABLE(SESSION(TABLE bid PARTITION BY bidder, DESCRIPTOR(ts), INTERVAL '1' SECOND)) \
                     WHERE price > 1 AND bidder > 2";
        let plan = after(query, 2);
        assert!(
            plan.contains("filter=[(bidder > 2)]") && plan.contains("Filter(where=[(price > 1)])"),
            "{plan}"
        );
    }
}
