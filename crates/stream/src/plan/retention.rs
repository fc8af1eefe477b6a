//! How long a regular join needs its rows: in general for ever. The exception: the other side emits results of windows,
//! and the condition bounds a time by theirs. Then rows too old for every future window can be dropped.
//!
//! Windows close in the order of their ends, and a row that comes after its window has closed is dropped. So when the
//! watermark is W and every window that can close has closed, all later ends are after W. With the condition `end +
//! lower <= time`, rows whose time is before W + lower can join no further row. This assumes nothing about the times
//! themselves: rows may be arbitrarily late.

use super::{MILLI_MICROS, Node, NodeOp, WindowSource};
use crate::expr::{Expr, Op};
use crate::types::{DataType, Value};

/// Casts between precisions of times cut off less than this, in microseconds; a bound passes at most two casts.
const SLACK: i64 = 2_000_000;

/// For each side of a join: a column of time, and how many microseconds the watermark must be beyond it until no later
/// row needs the row. `None`: for ever.
pub fn of_join(left: &Node, right: &Node, residual: Option<&Expr>) -> [Option<(usize, i64)>; 2] {
    let width = left.schema.len();
    let mut kept: [Option<(usize, i64)>; 2] = [None; 2];
    for condition in residual.cloned().map(Expr::conjuncts).unwrap_or_default() {
        let Some((x, op, y, by)) = difference(&condition, width) else { continue };
        let (x_ends, y_ends) = (end_of_window(left, x), end_of_window(right, y - width));
        // x >= y + by, and y is at least W + y_ends.
        if let (Op::Greater | Op::GreaterEqual | Op::Equal, Some(ends)) = (op, y_ends) {
            kept[0] = kept[0].or(ends.checked_add(by).and_then(|by| Some((x, SLACK.checked_sub(by)?))));
        }
        // y >= x - by, and x is at least W + x_ends.
        if let (Op::Less | Op::LessEqual | Op::Equal, Some(ends)) = (op, x_ends) {
            let keep = by.checked_sub(ends).and_then(|by| by.checked_add(SLACK));
            kept[1] = kept[1].or(keep.map(|keep| (y - width, keep)));
        }
    }
    kept
}

/// A condition on two times as `x op y + by`, with x of the left side and y of the right one.
pub fn difference(condition: &Expr, width: usize) -> Option<(usize, Op, usize, i64)> {
    let Expr::Op(op, args, _) = condition else { return None };
    let [a, b] = args.as_slice() else { return None };
    let ((x, by_x), (y, by_y), mirrored) = (moved(a)?, moved(b)?, op.mirrored()?);
    if x < width && y >= width {
        Some((x, *op, y, by_y.checked_sub(by_x)?))
    } else if y < width && x >= width {
        Some((y, mirrored, x, by_x.checked_sub(by_y)?))
    } else {
        None
    }
}

/// A time plus a constant: column, microseconds.
fn moved(expr: &Expr) -> Option<(usize, i64)> {
    match expr {
        Expr::Column(index, ty) if ty.data.is_timestamp() => Some((*index, 0)),
        Expr::Cast { expr, ty, .. } if ty.data.is_timestamp() => moved(expr),
        Expr::Op(op @ (Op::Add | Op::Subtract), args, _) => match args.as_slice() {
            [time, Expr::Literal(Value::Int(millis), ty)] if ty.data == DataType::IntervalMillis => {
                let (column, by) = moved(time)?;
                let micros = millis.checked_mul(MILLI_MICROS)?;
                Some((column, if *op == Op::Add { by.checked_add(micros)? } else { by.checked_sub(micros)? }))
            }
            _ => None,
        },
        _ => None,
    }
}

/// If a column is the end of an event-time window that closes when the row is emitted: the microseconds added to that
/// end.
fn end_of_window(node: &Node, column: usize) -> Option<i64> {
    match &node.op {
        NodeOp::Project { input, columns } => {
            let (column, by) = moved(&columns[column].1)?;
            end_of_window(input, column)?.checked_add(by)
        }
        NodeOp::Filter { input, .. } => end_of_window(input, column),
        NodeOp::WindowAggregate {
            window,
            proctime: false,
            source: WindowSource::Assigned { .. },
            keys,
            aggregates,
            ..
        } => {
            // After the aggregates: start, end, last timestamp.
            let end = keys.len() + aggregates.len() + 1;
            (window.slice().is_some() && column == end).then_some(0)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::{Outcome, Session};

    fn kept(condition: &str) -> [Option<i64>; 2] {
        let script = format!(
            "CREATE TABLE bid (price BIGINT, ts TIMESTAMP(3), s STRING, WATERMARK FOR ts AS ts)
               WITH ('connector' = 'datagen');
             CREATE TABLE o (x BIGINT) WITH ('connector' = 'print');
             INSERT INTO o SELECT b.price FROM bid AS b JOIN (
               SELECT MAX(price) AS most, window_start AS s, window_end AS e FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(ts),
                 INTERVAL '10' SECOND)) GROUP BY window_start, window_end) AS w
             ON b.price = w.most WHERE {condition}"
        );
        let Some(Outcome::Job(job)) = Session::default().run(&script).unwrap().pop() else { panic!() };
        let mut node = job.optimised[0].input.clone();
        while let NodeOp::Project { input, .. } = &node.op {
            node = input.clone();
        }
        let NodeOp::Join { left, right, residual, .. } = &node.op else { panic!("{node:?}") };
        of_join(left, right, residual.as_ref()).map(|kept| kept.map(|(_, micros)| micros - SLACK))
    }

    #[test]
    fn rows_are_kept_while_a_later_window_may_need_them() {
        assert_eq!(kept("b.ts BETWEEN w.e - INTERVAL '10' SECOND AND w.e"), [Some(10_000_000), None]);
        assert_eq!(kept("b.ts > w.e"), [Some(0), None]);
        assert_eq!(kept("w.e + INTERVAL '3' SECOND <= b.ts"), [Some(-3_000_000), None]);
        assert_eq!(kept("w.e - INTERVAL '3' SECOND <= CAST(b.ts AS TIMESTAMP(0))"), [Some(3_000_000), None]);
        for condition in ["b.ts < w.e", "b.ts >= w.s", "b.ts <> w.e", "b.ts >= w.e OR b.price > 3"] {
            assert_eq!(kept(condition), [None, None], "{condition}");
        }
    }
}
