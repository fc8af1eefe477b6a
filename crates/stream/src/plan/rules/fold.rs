//! Constant folding: an expression without columns becomes its value, and logic with a constant side is simplified. An
//! expression that fails stays, and fails when it is executed.

use std::sync::Arc;

use crate::expr::{Expr, Op, eval};
use crate::function::Clock;
use crate::plan::{Node, NodeOp};
use crate::types::Value;

/// Folds every expression of a plan.
pub(super) fn apply(node: &Arc<Node>) -> Arc<Node> {
    node.rewrite(&|node| {
        let mut op = node.op.clone();
        match &mut op {
            NodeOp::Project { columns, .. } => {
                for (_, expr) in columns {
                    *expr = fold(expr.clone());
                }
            }
            NodeOp::Filter { input, predicate } => {
                let folded = fold(predicate.clone());
                if is_true(&folded) {
                    return input.clone();
                }
                *predicate = folded;
            }
            NodeOp::Join { keys, residual, .. } => {
                for (left, right) in keys {
                    *left = fold(left.clone());
                    *right = fold(right.clone());
                }
                *residual = residual.take().map(fold).filter(|expr| !is_true(expr));
            }
            NodeOp::Lookup { keys, residual, .. } => {
                for (_, expr) in keys {
                    *expr = fold(expr.clone());
                }
                *residual = residual.take().map(fold).filter(|expr| !is_true(expr));
            }
            NodeOp::Scan(scan) => {
                for (_, expr) in &mut scan.columns {
                    *expr = fold(expr.clone());
                }
                scan.watermark = scan.watermark.take().map(fold);
                scan.filter = scan.filter.take().map(fold);
            }
            NodeOp::Values(_, rows) => {
                for expr in rows.iter_mut().flatten() {
                    *expr = fold(expr.clone());
                }
            }
            _ => return node,
        }
        Node::new(op)
    })
}

fn is_true(expr: &Expr) -> bool {
    constant(expr) == Some(Some(true))
}

/// The truth value of a constant; the inner `None` means NULL.
fn constant(expr: &Expr) -> Option<Option<bool>> {
    match expr {
        Expr::Literal(value, _) => Some(value.as_truth()),
        _ => None,
    }
}

/// The expression with its constant parts computed.
pub fn fold(expr: Expr) -> Expr {
    let expr = expr.map_children(&mut fold);
    let ty = expr.ty().clone();
    let folded = match expr {
        Expr::Op(op @ (Op::And | Op::Or), args, _) => logic(op, args),
        Expr::Case(branches, otherwise, ty) => case(branches, *otherwise, ty),
        other => other,
    };
    let literal = matches!(folded, Expr::Literal(..));
    if literal || !folded.columns().is_empty() || !folded.is_deterministic() {
        return folded;
    }
    match eval(&folded, &[], Clock::default()) {
        // The type stays, so that parents need not change; that a constant is not NULL is known only at run time.
        Ok(value) => Expr::Literal(value, ty),
        Err(_) => folded,
    }
}

/// AND and OR: constants that decide nothing are removed. One that decides removes the arguments after it, which are
/// never reached.
fn logic(op: Op, args: Vec<Expr>) -> Expr {
    let decides = op == Op::Or;
    let mut kept: Vec<Expr> = Vec::new();
    for arg in args {
        match constant(&arg) {
            Some(Some(value)) if value == decides => {
                // Arguments before it may be removed only if they cannot fail.
                if kept.iter().all(|arg| !arg.may_fail() && arg.is_deterministic()) {
                    return Expr::boolean(decides);
                }
                kept.push(arg);
                break;
            }
            Some(Some(_)) => {}
            _ => kept.push(arg),
        }
    }
    match kept.len() {
        0 => Expr::boolean(!decides),
        1 => kept.remove(0),
        _ => Expr::truth(op, kept),
    }
}

fn case(branches: Vec<(Expr, Expr)>, otherwise: Expr, ty: crate::types::Type) -> Expr {
    let mut kept = Vec::new();
    for (condition, result) in branches {
        match constant(&condition) {
            Some(Some(true)) => {
                return if kept.is_empty() {
                    typed(result, ty)
                } else {
                    Expr::Case(kept, Box::new(result), ty)
                };
            }
            Some(_) => {}
            None => kept.push((condition, result)),
        }
    }
    if kept.is_empty() { typed(otherwise, ty) } else { Expr::Case(kept, Box::new(otherwise), ty) }
}

/// A constant in the type of the expression that it replaces.
fn typed(expr: Expr, ty: crate::types::Type) -> Expr {
    match expr {
        Expr::Literal(Value::Null, _) => Expr::Literal(Value::Null, ty),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::after;

    #[test]
    fn constants_are_computed_and_logic_is_simplified() {
        let plan = after(
            "SELECT price + (1 + 2) * 3, UPPER('a') || 'b' FROM person, bid WHERE id = price AND 1 = 1",
            1,
        );
        assert!(plan.contains("(price + 9)"), "{plan}");
        assert!(plan.contains("'Ab'"), "{plan}");
        assert!(!plan.contains("Filter"), "{plan}");
        let plan =
            after("SELECT CASE WHEN 1 > 2 THEN price ELSE auction END, FALSE AND price > 1 FROM bid", 1);
        assert!(plan.contains("auction") && plan.contains("FALSE") && !plan.contains("CASE"), "{plan}");
    }

    #[test]
    fn an_expression_that_fails_is_not_folded() {
        let plan = after("SELECT 1 / 0, CASE WHEN price > 0 THEN CAST('x' AS INT) END FROM bid", 1);
        assert!(plan.contains("(1 / 0)") && plan.contains("CAST('x' AS INT)"), "{plan}");
    }
}
