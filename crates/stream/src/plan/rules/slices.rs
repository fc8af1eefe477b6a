//! Computes window aggregates from slices. Rows are no longer copied into each of their windows. Each row is added to
//! one slice, and a window is merged from its slices when it closes. Aggregates with the same input and keys share
//! slices, if the narrower slices divide the wider ones.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::expr::Expr;
use crate::plan::{Node, NodeOp, WindowSource};

/// Replaces copies by slices wherever an aggregate uses the window's bounds for nothing else.
pub(super) fn apply(node: &Arc<Node>) -> Arc<Node> {
    node.rewrite(&|node| sliced(&node).unwrap_or(node))
}

fn sliced(node: &Arc<Node>) -> Option<Arc<Node>> {
    let NodeOp::WindowAggregate { input, window, proctime, source, keys, aggregates } = &node.op else {
        return None;
    };
    let WindowSource::Attached { start, end } = source else { return None };
    let NodeOp::Project { input: copied, columns } = &input.op else { return None };
    let NodeOp::Window { input: rows, window: assigned, time, partition } = &copied.op else { return None };
    if assigned != window {
        return None;
    }
    let width = rows.schema.len();
    let used: BTreeSet<usize> = keys
        .iter()
        .copied()
        .chain(aggregates.iter().flat_map(|aggregate| aggregate.argument.into_iter().chain(aggregate.filter)))
        .collect();
    // Bounds used as keys or arguments need the window at each row.
    let reads_bounds = |expr: &Expr| expr.columns().iter().any(|column| *column >= width);
    if used.iter().any(|column| reads_bounds(&columns[*column].1)) {
        return None;
    }
    if !reads_bounds(&columns[*start].1) || !reads_bounds(&columns[*end].1) {
        return None;
    }
    if window.slice().is_none() {
        // A session must have the same key as the grouping, or rows of other groups would extend it.
        let key_columns: Option<BTreeSet<usize>> = keys
            .iter()
            .map(|key| match &columns[*key].1 {
                Expr::Column(index, _) => Some(*index),
                _ => None,
            })
            .collect();
        if key_columns? != partition.iter().copied().collect() {
            return None;
        }
    }
    let moment = (rows.schema[*time].name.clone(), rows.column(*time));
    let columns = columns
        .iter()
        .map(|column| if reads_bounds(&column.1) { moment.clone() } else { column.clone() })
        .collect();
    let input = Node::new(NodeOp::Project { input: rows.clone(), columns });
    Some(Node::new(NodeOp::WindowAggregate {
        input,
        window: *window,
        proctime: *proctime,
        source: WindowSource::Assigned { time: *start, slice: window.slice() },
        keys: keys.clone(),
        aggregates: aggregates.clone(),
    }))
}

/// The plans with one slice width for all aggregates with the same input, time and keys.
pub(super) fn unify(plans: Vec<Arc<Node>>) -> Vec<Arc<Node>> {
    let mut found: Vec<Arc<Node>> = Vec::new();
    for plan in &plans {
        collect(plan, &mut found);
    }
    let width = |node: &Node| -> Option<i64> {
        let NodeOp::WindowAggregate { window, .. } = &node.op else { return None };
        let own = window.slice()?;
        let mates = found.iter().filter(|other| same_slices(node, other));
        let slices = mates.filter_map(|mate| match &mate.op {
            NodeOp::WindowAggregate { window: other, .. } => Some((other.slice()?, other.offset())),
            _ => None,
        });
        slices
            .filter(|(slice, offset)| own % slice == 0 && (window.offset() - offset) % slice == 0)
            .map(|(slice, _)| slice)
            .min()
    };
    let change = |node: Arc<Node>| match (&node.op, width(&node)) {
        (
            NodeOp::WindowAggregate { source: WindowSource::Assigned { time, slice: Some(slice) }, .. },
            Some(width),
        ) if *slice != width => {
            let mut op = node.op.clone();
            if let NodeOp::WindowAggregate { source, .. } = &mut op {
                *source = WindowSource::Assigned { time: *time, slice: Some(width) };
            }
            Node::new(op)
        }
        _ => node,
    };
    // Usually nothing changes; returning the plans unchanged keeps shared nodes the same.
    let needed = found.iter().any(|node| match (&node.op, width(node)) {
        (
            NodeOp::WindowAggregate { source: WindowSource::Assigned { slice: Some(slice), .. }, .. },
            Some(width),
        ) => *slice != width,
        _ => false,
    });
    if !needed {
        return plans;
    }
    super::share::apply(&plans.iter().map(|plan| plan.rewrite(&change)).collect::<Vec<_>>())
}

fn collect(node: &Arc<Node>, found: &mut Vec<Arc<Node>>) {
    if let NodeOp::WindowAggregate { source: WindowSource::Assigned { slice: Some(_), .. }, .. } = &node.op
        && !found.iter().any(|other| Arc::ptr_eq(other, node))
    {
        found.push(node.clone());
    }
    for input in node.inputs() {
        collect(input, found);
    }
}

/// Whether two aggregates may use the same slices, if the widths agree.
pub(crate) fn same_slices(a: &Node, b: &Node) -> bool {
    match (&a.op, &b.op) {
        (
            NodeOp::WindowAggregate {
                input: a,
                keys: keys_a,
                source: WindowSource::Assigned { time: time_a, .. },
                ..
            },
            NodeOp::WindowAggregate {
                input: b,
                keys: keys_b,
                source: WindowSource::Assigned { time: time_b, .. },
                ..
            },
        ) => a == b && keys_a == keys_b && time_a == time_b,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::after;
    use crate::Session;

    #[test]
    fn an_aggregate_over_a_hop_window_uses_slices() {
        let plan = after(
            "SELECT auction, COUNT(*) FROM TABLE(HOP(TABLE bid, DESCRIPTOR(ts), INTERVAL '2' SECOND, INTERVAL '10' SECOND)) \
             GROUP BY auction, window_start, window_end",
            5,
        );
        assert!(plan.contains("window=[HOP(slide=[2 s], size=[10 s])], slice=[2 s]"), "{plan}");
        assert!(!plan.contains("\n  Window("), "{plan}");
    }

    #[test]
    fn an_aggregate_over_window_bounds_uses_no_slices() {
        let plan = after(
            "SELECT COUNT(DISTINCT window_end) FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(ts), INTERVAL '2' SECOND)) \
             GROUP BY window_start, window_end",
            5,
        );
        assert!(plan.contains("attached"), "{plan}");
    }

    #[test]
    fn aggregates_over_the_same_rows_share_their_slices() {
        let mut session = Session::default();
        session
            .run("CREATE TABLE b (k INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) WITH ('connector' = 'datagen');
                  CREATE TABLE o (k INT, n BIGINT) WITH ('connector' = 'print');")
            .unwrap();
        let insert = |minutes: u32| {
            format!(
                "INSERT INTO o SELECT k, COUNT(*) FROM TABLE(TUMBLE(TABLE b, DESCRIPTOR(ts), INTERVAL '{minutes}' MINUTE)) GROUP BY k, window_start, window_end;"
            )
        };
        let script = format!("EXPLAIN EXECUTE STATEMENT SET BEGIN {} {} END", insert(1), insert(5));
        let text = session.explain(&script).unwrap();
        let (plan, _) = text.split_once("== Pipelines ==").unwrap();
        assert_eq!(plan.matches("slice=[1 min]").count(), 2, "{text}");
    }
}
