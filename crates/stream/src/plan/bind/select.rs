//! SELECT: WHERE, GROUP BY, HAVING, row numbers, columns, DISTINCT.

use std::sync::Arc;

use sqlparser::ast::{self, Distinct, GroupByExpr, SelectItem, SelectItemQualifiedWildcardKind};

use super::expr::{AGGREGATES, AggregateCall, ExprBinder, NUMBERS, NumberCall};
use super::{Binder, Scope};
use crate::error::{Error, Position, Result};
use crate::expr::Expr;
use crate::function::aggregate::Aggregate;
use crate::plan::{Node, NodeOp, RankKind, SortKey, WindowSource};
use crate::sql::position_of;

/// A column of SELECT.
struct Item {
    name: String,
    expr: Expr,
    place: Option<Position>,
}

impl Binder<'_> {
    pub(super) fn select(&mut self, select: &ast::Select) -> Result<Arc<Node>> {
        refuse_clauses(select)?;
        let times = std::mem::take(&mut self.lookup_times);
        let from = self.from(&select.from)?;
        let own_times = std::mem::replace(&mut self.lookup_times, times);
        let scope = from.scope.clone();
        let wheres = match &select.selection {
            Some(condition) => ExprBinder::new(&scope).condition(condition)?.conjuncts(),
            None => Vec::new(),
        };
        let (mut node, rest) = from.build(wheres, &own_times)?;
        if let Some(predicate) = Expr::conjunction(rest) {
            node = Node::new(NodeOp::Filter { input: node, predicate });
        }
        let groups = match &select.group_by {
            GroupByExpr::Expressions(exprs, modifiers) if modifiers.is_empty() => exprs.as_slice(),
            _ => return Err(Error::unsupported("GROUP BY ALL, GROUPING SETS, CUBE and ROLLUP")),
        };
        let mut keys = Vec::new();
        let mut key_binder = ExprBinder::new(&scope);
        for group in groups {
            if matches!(group, ast::Expr::GroupingSets(_) | ast::Expr::Cube(_) | ast::Expr::Rollup(_)) {
                return Err(Error::unsupported("GROUPING SETS, CUBE and ROLLUP").at(position_of(group)));
            }
            if matches!(group, ast::Expr::Value(_)) {
                return Err(Error::unsupported("GROUP BY a column's number").at(position_of(group)));
            }
            keys.push(key_binder.bind(group)?);
        }
        let mut binder = ExprBinder::new(&scope);
        binder.aggregates = Some(Vec::new());
        binder.grouped = !groups.is_empty();
        binder.numbers = Some(Vec::new());
        let mut items = items(&mut binder, &scope, &select.projection)?;
        let numbers = binder.numbers.take().unwrap_or_default();
        let mut having = match &select.having {
            Some(having) => Some((binder.condition(having)?, position_of(having))),
            None => None,
        };
        let aggregates = binder.aggregates.take().unwrap_or_default();
        let grouped = !groups.is_empty() || !aggregates.is_empty() || having.is_some();
        let mut numbers = numbers;
        if grouped {
            let replace = |expr: Expr, place: Option<Position>| {
                over_groups(expr, &keys, &scope).map_err(|error| error.at(place))
            };
            for item in &mut items {
                item.expr = replace(item.expr.clone(), item.place)?;
            }
            for number in &mut numbers {
                for expr in &mut number.partition {
                    *expr = replace(expr.clone(), number.place)?;
                }
                for (expr, ..) in &mut number.order {
                    *expr = replace(expr.clone(), number.place)?;
                }
            }
            if let Some((expr, place)) = &mut having {
                *expr = replace(expr.clone(), *place)?;
            }
            node = aggregate(node, keys, aggregates);
            if let Some((predicate, _)) = having {
                node = Node::new(NodeOp::Filter { input: node, predicate });
            }
        }
        if let [number] = numbers.as_slice() {
            let (numbered, column) = rank(node, number);
            node = numbered;
            for item in &mut items {
                item.expr = item.expr.clone().map_columns(&|index, ty| {
                    Expr::Column(if index >= NUMBERS { column } else { index }, ty)
                });
            }
        } else if let [_, second, ..] = numbers.as_slice() {
            return Err(Error::unsupported("two ROW_NUMBER with different windows").at(second.place));
        }
        let mut columns: Vec<(String, Expr)> = Vec::new();
        for item in items {
            columns.push((item.name, item.expr));
        }
        let node = Node::new(NodeOp::Project { input: node, columns });
        Ok(match &select.distinct {
            None | Some(Distinct::All) => node,
            Some(Distinct::Distinct) => distinct(node),
            Some(Distinct::On(_)) => return Err(Error::syntax("DISTINCT ON", "DISTINCT")),
        })
    }
}

fn refuse_clauses(select: &ast::Select) -> Result<()> {
    let place = position_of(select);
    let clauses = [
        (select.top.is_some(), "TOP"),
        (select.into.is_some(), "INTO"),
        (!select.lateral_views.is_empty(), "LATERAL VIEW"),
        (select.prewhere.is_some(), "PREWHERE"),
        (!select.connect_by.is_empty(), "CONNECT BY"),
        (
            !select.cluster_by.is_empty() || !select.distribute_by.is_empty() || !select.sort_by.is_empty(),
            "SORT BY",
        ),
        (select.value_table_mode.is_some() || select.exclude.is_some(), "this form of SELECT"),
    ];
    if let Some((_, clause)) = clauses.iter().find(|(there, _)| *there) {
        return Err(Error::syntax(*clause, "a clause of Flink's dialect").at(place));
    }
    if select.qualify.is_some() {
        return Err(Error::unsupported("QUALIFY")
            .at(place)
            .hint("filter by the row number in an outer query"));
    }
    if !select.named_window.is_empty() {
        return Err(Error::unsupported("named windows").at(place));
    }
    Ok(())
}

fn items(binder: &mut ExprBinder<'_>, scope: &Scope, projection: &[SelectItem]) -> Result<Vec<Item>> {
    let mut items = Vec::new();
    for item in projection {
        let place = position_of(item);
        let mut all = |relation: Option<&str>| {
            let before = items.len();
            for (index, field) in scope.fields.iter().enumerate() {
                if relation.is_none() || field.relation.as_deref() == relation {
                    let expr = Expr::Column(index, field.field.ty.clone());
                    items.push(Item { name: field.field.name.clone(), expr, place });
                }
            }
            items.len() > before
        };
        match item {
            SelectItem::Wildcard(options) | SelectItem::QualifiedWildcard(_, options)
                if options.opt_exclude.is_some()
                    || options.opt_except.is_some()
                    || options.opt_replace.is_some() =>
            {
                return Err(Error::syntax("an option of `*`", "`*` alone").at(place));
            }
            SelectItem::Wildcard(_) => {
                all(None);
            }
            SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), _) => {
                let name = crate::sql::simple_name(name)?;
                if !all(Some(&name.text)) {
                    let relations = scope.fields.iter().filter_map(|field| field.relation.as_deref());
                    return Err(Error::invalid(format!("relation `{}`", name.text), "a relation of FROM")
                        .at(name.position)
                        .did_you_mean(&name.text, relations));
                }
            }
            SelectItem::UnnamedExpr(expr) => {
                let bound = binder.bind(expr)?;
                let name = match expr {
                    ast::Expr::Identifier(ident) => ident.value.clone(),
                    ast::Expr::CompoundIdentifier(idents) => {
                        idents.last().map(|ident| ident.value.clone()).unwrap_or_default()
                    }
                    _ => format!("EXPR${}", items.len()),
                };
                items.push(Item { name, expr: bound, place });
            }
            SelectItem::ExprWithAlias { expr, alias } => {
                let expr = binder.bind(expr)?;
                items.push(Item { name: alias.value.clone(), expr, place });
            }
            _ => {
                return Err(Error::syntax(format!("`{item}`"), "an expression, maybe with an alias, or `*`")
                    .at(place));
            }
        }
    }
    Ok(items)
}

/// An expression over keys and aggregates: a part that equals a key becomes the key's column.
fn over_groups(expr: Expr, keys: &[Expr], scope: &Scope) -> Result<Expr> {
    fn replace(expr: Expr, keys: &[Expr], missing: &mut Option<usize>) -> Expr {
        if let Some(index) = keys.iter().position(|key| *key == expr) {
            let ty = expr.ty().clone();
            return Expr::Column(index, ty);
        }
        match expr {
            Expr::Column(index, ty) if index >= NUMBERS => Expr::Column(index, ty),
            Expr::Column(index, ty) if index >= AGGREGATES => {
                Expr::Column(keys.len() + index - AGGREGATES, ty)
            }
            Expr::Column(index, ty) => {
                *missing = Some(index);
                Expr::Column(index, ty)
            }
            other => other.map_children(&mut |child| replace(child, keys, missing)),
        }
    }
    let mut missing = None;
    let replaced = replace(expr, keys, &mut missing);
    match missing {
        None => Ok(replaced),
        Some(index) => {
            let name = scope.fields.get(index).map_or("", |field| &field.field.name);
            let error = Error::invalid(
                format!("column `{name}` outside an aggregate"),
                "a column of GROUP BY, or an aggregate",
            );
            Err(if name.starts_with("window_") {
                error.hint(format_args!("add {name} to GROUP BY"))
            } else {
                error
            })
        }
    }
}

/// Keys, then aggregates, as the columns of an aggregate's node; a window aggregate if both bounds are keys.
fn aggregate(input: Arc<Node>, keys: Vec<Expr>, calls: Vec<AggregateCall>) -> Arc<Node> {
    let windowed = input.windowed.clone();
    let mut columns: Vec<(String, Expr)> = Vec::new();
    let mut place = |expr: &Expr, name: String| match columns.iter().position(|(_, other)| other == expr) {
        Some(index) => index,
        None => {
            columns.push((name, expr.clone()));
            columns.len() - 1
        }
    };
    let name = |expr: &Expr, otherwise: String| match expr {
        Expr::Column(index, _) => input.schema[*index].name.clone(),
        _ => otherwise,
    };
    let key_columns: Vec<usize> =
        keys.iter().enumerate().map(|(index, key)| place(key, name(key, format!("key${index}")))).collect();
    let aggregates: Vec<Aggregate> = calls
        .iter()
        .enumerate()
        .map(|(index, call)| Aggregate {
            kind: call.kind,
            argument: call.argument.as_ref().map(|expr| place(expr, name(expr, format!("arg${index}")))),
            distinct: call.distinct,
            filter: call.filter.as_ref().map(|expr| place(expr, name(expr, format!("filter${index}")))),
            separator: call.separator.clone(),
            ty: call.ty.clone(),
        })
        .collect();
    let is =
        |expr: &Expr, column: Option<usize>| matches!(expr, Expr::Column(index, _) if Some(*index) == column);
    let window = windowed.filter(|windowed| {
        keys.iter().any(|key| is(key, windowed.start)) && keys.iter().any(|key| is(key, windowed.end))
    });
    let input = Node::new(NodeOp::Project { input, columns });
    let Some(window) = window else {
        return Node::new(NodeOp::Aggregate { input, keys: key_columns, aggregates });
    };
    // The window's bounds are not keys of the node: it adds them itself.
    let bound_of =
        |key: &Expr| [window.start, window.end, window.time].iter().position(|column| is(key, *column));
    let plain: Vec<usize> = keys
        .iter()
        .zip(&key_columns)
        .filter(|(key, _)| bound_of(key).is_none())
        .map(|(_, column)| *column)
        .collect();
    let column_of = |bound: usize| {
        keys.iter()
            .zip(&key_columns)
            .find(|(key, _)| bound_of(key) == Some(bound))
            .map_or(0, |(_, column)| *column)
    };
    let source = WindowSource::Attached { start: column_of(0), end: column_of(1) };
    let width = plain.len() + aggregates.len();
    let counts = (plain.len(), aggregates.len());
    let node = Node::new(NodeOp::WindowAggregate {
        input,
        window: window.window,
        proctime: window.proctime,
        source,
        keys: plain,
        aggregates,
    });
    // Back into the order of GROUP BY.
    let mut next = 0;
    let mut columns = Vec::new();
    for key in &keys {
        let column = match bound_of(key) {
            Some(bound) => width + bound,
            None => {
                next += 1;
                next - 1
            }
        };
        let ty = key.ty().clone();
        columns.push((node.schema[column].name.clone(), Expr::Column(column, ty)));
    }
    for index in 0..counts.1 {
        columns.push((node.schema[counts.0 + index].name.clone(), node.column(counts.0 + index)));
    }
    Node::new(NodeOp::Project { input: node, columns })
}

/// Each distinct row once.
pub(super) fn distinct(input: Arc<Node>) -> Arc<Node> {
    let keys = (0..input.schema.len()).map(|index| input.column(index)).collect();
    let names: Vec<String> = input.schema.iter().map(|field| field.name.clone()).collect();
    let node = aggregate(input, keys, Vec::new());
    let columns = node.columns().into_iter().zip(names).map(|((_, expr), name)| (name, expr)).collect();
    Node::new(NodeOp::Project { input: node, columns })
}

/// The input's columns, then the order's expressions that are not columns, then the number; returns the index of the
/// number.
fn rank(input: Arc<Node>, number: &NumberCall) -> (Arc<Node>, usize) {
    let mut columns = input.columns();
    let mut place = |expr: &Expr| match columns.iter().position(|(_, other)| other == expr) {
        Some(index) => index,
        None => {
            columns.push((format!("order${}", columns.len()), expr.clone()));
            columns.len() - 1
        }
    };
    let partition: Vec<usize> = number.partition.iter().map(&mut place).collect();
    let order: Vec<SortKey> = number
        .order
        .iter()
        .map(|(expr, descending, nulls_first)| SortKey {
            column: place(expr),
            descending: *descending,
            nulls_first: *nulls_first,
        })
        .collect();
    let input = if columns.len() == input.schema.len() {
        input
    } else {
        Node::new(NodeOp::Project { input, columns })
    };
    let kind = match &input.windowed {
        Some(windowed) => match (windowed.start, windowed.end) {
            (Some(start), Some(end)) if partition.contains(&start) && partition.contains(&end) => {
                RankKind::Window { last: false, start, end, proctime: windowed.proctime }
            }
            _ => RankKind::TopN,
        },
        None => RankKind::TopN,
    };
    let column = input.schema.len();
    (Node::new(NodeOp::Rank { input, kind, partition, order, limit: None, number: true }), column)
}
