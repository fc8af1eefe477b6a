//! Merges projections over projections and over scans, and removes those that change nothing. An expression that is
//! used twice above is not copied, unless it is a column or a constant.

use std::sync::Arc;

use crate::expr::{Expr, Extents};
use crate::plan::{Field, Node, NodeOp, Scan};

/// Merges every projection of a plan with its input.
pub(super) fn apply(node: &Arc<Node>) -> Arc<Node> {
    node.rewrite(&merge)
}

fn merge(node: Arc<Node>) -> Arc<Node> {
    let NodeOp::Project { input, columns } = &node.op else { return node };
    if is_identity(input, columns) {
        return input.clone();
    }
    match &input.op {
        NodeOp::Project { input: below, columns: inner } => {
            let inner: Vec<&Expr> = inner.iter().map(|(_, expr)| expr).collect();
            if !may_inline(columns, &inner) {
                return node;
            }
            let columns = columns.iter().map(|(name, expr)| (name.clone(), inline(expr, &inner))).collect();
            merge(Node::new(NodeOp::Project { input: below.clone(), columns }))
        }
        NodeOp::Scan(scan) => {
            let inner: Vec<&Expr> = scan.columns.iter().map(|(_, expr)| expr).collect();
            if !may_inline(columns, &inner) {
                return node;
            }
            let fields: Vec<Field> = node.schema.clone();
            let columns =
                fields.into_iter().zip(columns).map(|(field, (_, expr))| (field, inline(expr, &inner)));
            Node::new(NodeOp::Scan(Scan { columns: columns.collect(), ..scan.clone() }))
        }
        _ => node,
    }
}

fn is_identity(input: &Node, columns: &[(String, Expr)]) -> bool {
    columns.len() == input.schema.len()
        && columns.iter().enumerate().all(|(place, (name, expr))| {
            matches!(expr, Expr::Column(index, _) if *index == place) && *name == input.schema[place].name
        })
}

fn inline(expr: &Expr, inner: &[&Expr]) -> Expr {
    expr.clone().map_columns(&|index, _| inner[index].clone())
}

fn may_inline(columns: &[(String, Expr)], inner: &[&Expr]) -> bool {
    let mut uses = vec![0; inner.len()];
    for (_, expr) in columns {
        expr.visit(&mut |part| {
            if let Expr::Column(index, _) = part {
                uses[*index] += 1;
            }
        });
    }
    let cheap = |expr: &Expr| {
        matches!(expr, Expr::Column(..) | Expr::Literal(..))
            || matches!(expr, Expr::Call(function, args, _) if function.name == "PROCTIME" && args.is_empty())
    };
    let extents = Extents::of(inner.iter().copied());
    inner.iter().zip(uses).all(|(expr, uses)| uses <= 1 || cheap(expr))
        && columns.iter().all(|(_, expr)| extents.allow(expr))
}

#[cfg(test)]
mod tests {
    use super::super::testing::after;

    #[test]
    fn nested_projections_become_one_scan() {
        let plan =
            after("SELECT a + 1 AS b FROM (SELECT price * 3 AS a FROM (SELECT price, url FROM bid))", 3);
        assert_eq!(plan.lines().count(), 1, "{plan}");
        assert!(plan.contains("b=((price * 3) + 1)"), "{plan}");
    }

    #[test]
    fn an_expression_used_twice_is_computed_once() {
        let plan =
            after("SELECT a + 1, a + 2 FROM (SELECT UPPER(url) || 'x' AS u, price * 3 AS a FROM bid)", 3);
        assert_eq!(plan.matches("price * 3").count(), 1, "{plan}");
    }
}
