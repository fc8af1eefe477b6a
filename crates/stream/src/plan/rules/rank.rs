//! ROW_NUMBER with a bound on the number becomes a top-N. Bounded to one and ordered by time, it becomes a
//! deduplication.

use std::sync::Arc;

use crate::expr::{Expr, Op};
use crate::plan::{Node, NodeOp, RankKind, TimeAttribute};
use crate::types::Value;

/// Gives every bounded row number of a plan its limit.
pub(super) fn apply(node: &Arc<Node>) -> Arc<Node> {
    node.rewrite(&|node| {
        let NodeOp::Filter { input, predicate } = &node.op else { return node };
        let NodeOp::Rank { input: rows, kind, partition, order, limit: None, number: true } = &input.op
        else {
            return node;
        };
        let column = rows.schema.len();
        let mut limit: Option<u64> = None;
        let mut rest = Vec::new();
        for conjunct in predicate.clone().conjuncts() {
            match bound(&conjunct, column) {
                Some((count, whole)) => {
                    limit = Some(limit.map_or(count, |limit| limit.min(count)));
                    if !whole {
                        rest.push(conjunct);
                    }
                }
                None => rest.push(conjunct),
            }
        }
        let Some(limit) = limit else { return node };
        let by_time = match order.as_slice() {
            [key] if limit == 1 => rows.schema[key.column].time.map(|time| (time, key.descending)),
            _ => None,
        };
        let kind = match (kind, by_time) {
            (RankKind::TopN, Some((time, last))) => {
                RankKind::Deduplicate { last, proctime: time == TimeAttribute::Proctime }
            }
            (RankKind::Window { start, end, proctime, .. }, Some((_, last))) => {
                RankKind::Window { last, start: *start, end: *end, proctime: *proctime }
            }
            (kind, _) => *kind,
        };
        let ranked = Node::new(NodeOp::Rank {
            input: rows.clone(),
            kind,
            partition: partition.clone(),
            order: order.clone(),
            limit: Some(limit),
            number: true,
        });
        match Expr::conjunction(rest) {
            Some(predicate) => Node::new(NodeOp::Filter { input: ranked, predicate }),
            None => ranked,
        }
    })
}

/// The greatest number that passes a conjunct, and whether all numbers from 1 to that pass.
fn bound(conjunct: &Expr, column: usize) -> Option<(u64, bool)> {
    let Expr::Op(op, args, _) = conjunct else { return None };
    let (op, limit) = match args.as_slice() {
        [number, Expr::Literal(Value::Int(limit), _)] if is(number, column) => (*op, *limit),
        [Expr::Literal(Value::Int(limit), _), number] if is(number, column) => (op.mirrored()?, *limit),
        _ => return None,
    };
    let count = |limit: i64| u64::try_from(limit.max(0)).unwrap_or(0);
    match op {
        Op::LessEqual => Some((count(limit), true)),
        Op::Less => Some((count(limit.saturating_sub(1)), true)),
        Op::Equal => Some((count(limit), limit <= 1)),
        _ => None,
    }
}

fn is(expr: &Expr, column: usize) -> bool {
    matches!(expr, Expr::Column(index, _) if *index == column)
}

#[cfg(test)]
mod tests {
    use super::super::testing::after;

    fn ranked(order: &str, condition: &str) -> String {
        after(
            &format!(
                "SELECT price FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY auction ORDER BY {order}) AS n FROM bid) \
                 WHERE {condition}"
            ),
            4,
        )
    }

    #[test]
    fn a_bound_on_the_row_number_becomes_a_limit() {
        for (condition, limit) in
            [("n <= 3", 3), ("3 >= n", 3), ("n < 3", 2), ("n = 1", 1), ("n <= 5 AND n < 3", 2)]
        {
            let plan = ranked("price DESC", condition);
            assert!(
                plan.contains("TopN(") && plan.contains(&format!("limit=[{limit}]")),
                "{condition}\n{plan}"
            );
            assert!(!plan.contains("Filter("), "{plan}");
        }
        let plan = ranked("price", "n = 2");
        assert!(plan.contains("limit=[2]") && plan.contains("Filter(where=[(row_number = 2)])"), "{plan}");
        assert!(!ranked("price", "n > 2").contains("limit"), "no bound above");
    }

    #[test]
    fn the_first_row_by_time_becomes_a_deduplication() {
        assert!(
            ranked("ts", "n = 1").contains("Deduplicate(keep=[first], by=[rowtime]"),
            "{}",
            ranked("ts", "n = 1")
        );
        assert!(ranked("pt DESC", "n <= 1").contains("Deduplicate(keep=[last], by=[proctime]"));
        assert!(ranked("ts, price", "n = 1").contains("TopN("));
    }
}
