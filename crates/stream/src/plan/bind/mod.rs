//! From the syntax tree to a logical plan: names are resolved, types are derived and coerced, and unsupported features
//! are refused by name.

mod expr;
mod from;
mod literal;
mod select;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use sqlparser::ast::{Query, SetExpr, SetOperator, SetQuantifier};

use super::{Field, Node, NodeOp, Sink};
use crate::catalog::{Catalog, Column, Connector, Relation, Table, View, options};
use crate::error::{Error, Position, Result};
use crate::expr::Expr;
use crate::sql::{ColumnKind, CreateTable, Deep, Insert, Name, position_of};
use crate::types::{DataType, Type, coerce};

use super::TimeAttribute;
use expr::ExprBinder;

/// The columns that names may refer to, each with its relation.
#[derive(Debug, Clone, Default)]
struct Scope {
    fields: Vec<ScopeField>,
}

#[derive(Debug, Clone)]
struct ScopeField {
    relation: Option<String>,
    field: Field,
}

impl Scope {
    fn of(node: &Node, relation: Option<&str>) -> Scope {
        let fields = node
            .schema
            .iter()
            .map(|field| ScopeField { relation: relation.map(str::to_owned), field: field.clone() });
        Scope { fields: fields.collect() }
    }

    fn join(mut self, other: Scope) -> Scope {
        self.fields.extend(other.fields);
        self
    }
}

/// Makes plans of queries over a catalog.
pub struct Binder<'c> {
    catalog: &'c Catalog,
    /// The names of WITH, the innermost last.
    common: Vec<(String, Arc<Node>)>,
    /// The times of lookups in the current FROM, in order.
    lookup_times: Vec<sqlparser::ast::Expr>,
    /// The nesting of views and queries.
    depth: usize,
}

/// More than queries have; a cycle of views would exceed it.
const DEPTH_MAX: usize = 40;

impl<'c> Binder<'c> {
    /// A binder over this catalog.
    pub fn new(catalog: &'c Catalog) -> Self {
        Binder { catalog, common: Vec::new(), lookup_times: Vec::new(), depth: 0 }
    }

    /// The plan of an INSERT: its query with the columns of the table.
    pub fn insert(&mut self, insert: &Insert) -> Result<Sink> {
        let table = self.catalog.table(&insert.table)?.clone();
        let Some(_) = table.connector.sink else {
            return Err(Error::invalid(
                format!("table `{}` of connector '{}'", table.name, table.connector.name),
                "a table that can be written to",
            )
            .at(insert.table.position));
        };
        let input = self.query(&insert.query)?;
        let place = position_of(&*insert.query);
        // Computed columns are not written.
        let targets: Vec<usize> = if insert.columns.is_empty() {
            table.physical.clone()
        } else {
            let columns = table.columns.iter().enumerate();
            let names: HashMap<&str, usize> =
                columns.map(|(index, column)| (column.name.as_str(), index)).collect();
            let find = |name: &Name| match names.get(name.text.as_str()) {
                Some(index) => Ok(*index),
                None => find_column(&table, name),
            };
            insert.columns.iter().map(find).collect::<Result<_>>()?
        };
        if targets.len() != input.schema.len() {
            let wanted: Vec<&str> = targets.iter().map(|index| table.columns[*index].name.as_str()).collect();
            return Err(Error::invalid(
                format!("{} columns of the query", input.schema.len()),
                format!("{} for `{}`: {}", targets.len(), table.name, wanted.join(", ")),
            )
            .at(place));
        }
        // For a column that is named twice, the first place counts.
        let places: HashMap<usize, usize> =
            targets.iter().enumerate().rev().map(|(place, column)| (*column, place)).collect();
        let mut columns = Vec::new();
        for index in &table.physical {
            let target = &table.columns[*index];
            let expr = match places.get(index) {
                Some(place) => input.column(*place),
                None if !target.ty.nullable => {
                    return Err(Error::invalid(
                        format!("no value for column `{}`", target.name),
                        format!("one: it is NOT NULL in `{}`", table.name),
                    )
                    .at(insert.table.position));
                }
                None => Expr::null(target.ty.data.clone()),
            };
            let from = expr.ty();
            if !coerce::stores_as(&from.data, &target.ty.data) {
                return Err(Error::invalid(
                    format!("{} for column `{}`", from.data, target.name),
                    format!("{}, as `{}` has it", target.ty.data, table.name),
                )
                .at(place)
                .hint("cast it"));
            }
            columns.push((target.name.clone(), expr.cast_to(&target.ty.data)));
        }
        let input = Node::new(NodeOp::Project { input, columns });
        Ok(Sink { table, input })
    }

    /// The plan of a query.
    pub fn query(&mut self, query: &Query) -> Result<Arc<Node>> {
        let place = position_of(query);
        if self.depth >= DEPTH_MAX {
            return Err(
                Error::syntax("queries nested too deep", format!("at most {DEPTH_MAX} levels")).at(place)
            );
        }
        self.depth += 1;
        let before = self.common.len();
        let result = self.query_with(query);
        self.common.truncate(before);
        self.depth -= 1;
        result.map_err(|error| error.at(place))
    }

    fn query_with(&mut self, query: &Query) -> Result<Arc<Node>> {
        if let Some(with) = &query.with {
            if with.recursive {
                return Err(Error::unsupported("WITH RECURSIVE").at(position_of(with)));
            }
            for table in &with.cte_tables {
                let node = self.query(&table.query)?;
                let names: Vec<Name> =
                    table.alias.columns.iter().map(|column| column.name.clone().into()).collect();
                let node = rename(node, &names)?;
                self.common.push((table.alias.name.value.clone(), node));
            }
        }
        let node = self.set(&query.body)?;
        if let Some(order) = &query.order_by {
            return Err(Error::unsupported("ORDER BY of a whole stream")
                .at(position_of(order))
                .hint("number rows by ROW_NUMBER() OVER (... ORDER BY ...) and keep the first"));
        }
        if let Some(limit) = &query.limit_clause {
            return Err(Error::unsupported("LIMIT of a stream").at(position_of(limit)));
        }
        if query.fetch.is_some() {
            return Err(Error::unsupported("FETCH of a stream"));
        }
        if !query.locks.is_empty() || query.for_clause.is_some() || !query.pipe_operators.is_empty() {
            return Err(Error::syntax("a clause of another dialect", "the end of the query"));
        }
        Ok(node)
    }

    fn set(&mut self, body: &SetExpr) -> Result<Arc<Node>> {
        match body {
            SetExpr::Select(select) => self.select(select),
            SetExpr::Query(query) => self.query(query),
            SetExpr::Values(values) => {
                let rows: Vec<&[sqlparser::ast::Expr]> =
                    values.rows.iter().map(|row| row.content.as_slice()).collect();
                self.values(&rows)
            }
            SetExpr::SetOperation { .. } => self.unions(body),
            other => {
                Err(Error::syntax(format!("`{other}`"), "SELECT, VALUES or UNION").at(position_of(other)))
            }
        }
    }

    /// A chain of unions becomes one node with as many inputs. It is walked in a loop, because it is as deep as it is
    /// long.
    fn unions(&mut self, body: &SetExpr) -> Result<Arc<Node>> {
        let mut chain = Vec::new();
        let mut first = body;
        while let SetExpr::SetOperation { op, set_quantifier, left, right } = first {
            let place = position_of(&**right);
            let distinct = match (op, set_quantifier) {
                (SetOperator::Union, SetQuantifier::All) => false,
                (SetOperator::Union, SetQuantifier::None | SetQuantifier::Distinct) => true,
                (op, _) => return Err(Error::unsupported(format!("{op}")).at(place)),
            };
            chain.push((right, distinct, place));
            first = left;
        }
        let mut inputs = parts(self.set(first)?);
        for (right, distinct, place) in chain.into_iter().rev() {
            let right = self.set(right)?;
            let types = union_types(&inputs[0], &right, place)?;
            if !has_types(&inputs[0], &types) {
                inputs = vec![with_types(union(inputs), &types)];
            }
            match has_types(&right, &types) {
                true => inputs.extend(parts(right)),
                false => inputs.push(with_types(right, &types)),
            }
            if distinct {
                inputs = vec![select::distinct(union(inputs))];
            }
        }
        Ok(union(inputs))
    }

    fn values(&mut self, rows: &[&[sqlparser::ast::Expr]]) -> Result<Arc<Node>> {
        let scope = Scope::default();
        let mut bound: Vec<Vec<Expr>> = Vec::new();
        for row in rows {
            let exprs: Result<Vec<Expr>> =
                row.iter().map(|expr| ExprBinder::new(&scope).bind(expr)).collect();
            bound.push(exprs?);
            if bound[0].len() != row.len() {
                return Err(Error::invalid(
                    format!("a row of {} values", row.len()),
                    format!("{}", bound[0].len()),
                )
                .at(row.first().and_then(position_of)));
            }
        }
        let width = bound.first().map_or(0, Vec::len);
        let mut fields = Vec::new();
        for column in 0..width {
            let types = bound.iter().map(|row| row[column].ty().clone());
            let ty = types.clone().map(Some).reduce(|a, b| coerce::common_type(&a?, &b?)).flatten();
            let Some(ty) = ty else {
                let found: Vec<String> = types.map(|ty| ty.data.to_string()).collect();
                return Err(Error::invalid(
                    found.join(" and "),
                    "types with a common type in each column of VALUES",
                ));
            };
            for row in &mut bound {
                let expr = std::mem::replace(&mut row[column], Expr::null(DataType::Null));
                row[column] = expr.cast_to(&ty.data);
            }
            fields.push(Field { name: format!("EXPR${column}"), ty, time: None });
        }
        Ok(Node::new(NodeOp::Values(fields, bound)))
    }
}

/// The inputs that this one contributes to a union.
fn parts(input: Arc<Node>) -> Vec<Arc<Node>> {
    match &input.op {
        NodeOp::Union(parts) => parts.clone(),
        _ => vec![input],
    }
}

fn union(mut inputs: Vec<Arc<Node>>) -> Arc<Node> {
    match inputs.pop() {
        Some(only) if inputs.is_empty() => only,
        last => Node::new(NodeOp::Union(inputs.into_iter().chain(last).collect())),
    }
}

/// The common types of the columns of two parts of a union.
fn union_types(left: &Node, right: &Node, place: Option<Position>) -> Result<Vec<DataType>> {
    if left.schema.len() != right.schema.len() {
        return Err(Error::invalid(
            format!("{} columns in this part of UNION", right.schema.len()),
            format!("{}, as in the part before", left.schema.len()),
        )
        .at(place));
    }
    let columns = left.schema.iter().zip(&right.schema).map(|(a, b)| {
        coerce::common(&a.ty.data, &b.ty.data).ok_or_else(|| {
            Error::invalid(
                format!("{} for `{}` in this part of UNION", b.ty.data, a.name),
                format!("{}, as in the part before, or a type that can be converted to it", a.ty.data),
            )
            .at(place)
        })
    });
    columns.collect()
}

fn has_types(input: &Node, types: &[DataType]) -> bool {
    input.schema.iter().zip(types).all(|(field, ty)| field.ty.data == *ty)
}

/// The same rows with columns of these types.
fn with_types(input: Arc<Node>, types: &[DataType]) -> Arc<Node> {
    if has_types(&input, types) {
        return input;
    }
    let columns =
        input.columns().into_iter().zip(types).map(|((name, expr), ty)| (name, expr.cast_to(ty))).collect();
    Node::new(NodeOp::Project { input, columns })
}

/// The same rows with other column names; unchanged if there are no names.
fn rename(input: Arc<Node>, names: &[Name]) -> Result<Arc<Node>> {
    if names.is_empty() {
        return Ok(input);
    }
    if names.len() != input.schema.len() {
        return Err(Error::invalid(
            format!("{} names for columns", names.len()),
            format!("{}", input.schema.len()),
        )
        .at(names[0].position));
    }
    let columns =
        names.iter().zip(input.columns()).map(|(name, (_, expr))| (name.text.clone(), expr)).collect();
    Ok(Node::new(NodeOp::Project { input, columns }))
}

fn find_column(table: &Table, name: &Name) -> Result<usize> {
    table.columns.iter().position(|column| column.name == name.text).ok_or_else(|| {
        Error::invalid(format!("column `{}`", name.text), format!("a column of `{}`", table.name))
            .at(name.position)
            .did_you_mean(&name.text, table.columns.iter().map(|column| column.name.as_str()))
    })
}

/// A table from its definition; `known` are the connectors.
pub fn table(
    definition: &CreateTable,
    known: impl Iterator<Item = &'static Connector> + Clone,
) -> Result<Table> {
    let names: Vec<&str> = definition.columns.iter().map(|column| column.name.text.as_str()).collect();
    let (connector, options) = options(known, &definition.name, &names, &definition.options)?;
    let mut scope = Scope::default();
    let mut physical = Vec::new();
    let mut columns: Vec<Column> = Vec::new();
    let mut names = HashSet::new();
    for (index, column) in definition.columns.iter().enumerate() {
        if !names.insert(column.name.text.as_str()) {
            return Err(Error::invalid(format!("a second column `{}`", column.name.text), "another name")
                .at(column.name.position));
        }
        let ty = match &column.kind {
            ColumnKind::Physical(ty) => {
                if matches!(ty.data, DataType::Array(_) | DataType::Row(_)) {
                    return Err(Error::unsupported(format!(
                        "column `{}` of type {}",
                        column.name.text, ty.data
                    ))
                    .at(column.name.position)
                    .hint("a STRING column has its JSON, and JSON_VALUE a field of that"));
                }
                physical.push(index);
                scope.fields.push(ScopeField {
                    relation: Some(definition.name.text.clone()),
                    field: Field { name: column.name.text.clone(), ty: ty.clone(), time: None },
                });
                ty.clone()
            }
            ColumnKind::Computed(_) => Type::nullable(DataType::Null),
        };
        columns.push(Column { name: column.name.text.clone(), ty, computed: None, time: None });
    }
    let mut binder = ExprBinder::new(&scope);
    for (index, column) in definition.columns.iter().enumerate() {
        if let ColumnKind::Computed(expr) = &column.kind {
            let expr = binder.bind(expr)?;
            if matches!(&expr, Expr::Call(function, ..) if function.name == "PROCTIME") {
                columns[index].time = Some(TimeAttribute::Proctime);
            }
            columns[index].ty = expr.ty().clone();
            columns[index].computed = Some(expr);
        }
    }
    let mut table = Table {
        name: definition.name.text.clone(),
        columns,
        physical,
        watermark: None,
        primary_key: Vec::new(),
        connector,
        options,
        attachment: None,
    };
    if let Some((name, bound)) = &definition.watermark {
        let index = find_column(&table, name)?;
        let ty = &table.columns[index].ty;
        if !matches!(ty.data, DataType::Timestamp(0..=3) | DataType::TimestampLtz(0..=3)) {
            return Err(Error::invalid(
                format!("`{}` of type {} as event time", name.text, ty.data),
                "TIMESTAMP(p) or TIMESTAMP_LTZ(p) with p at most 3",
            )
            .at(name.position));
        }
        // The watermark may use computed columns: they are replaced by their expressions over physical columns.
        let all = Scope {
            fields: table
                .columns
                .iter()
                .map(|column| ScopeField {
                    relation: Some(table.name.clone()),
                    field: Field { name: column.name.clone(), ty: column.ty.clone(), time: column.time },
                })
                .collect(),
        };
        let expr = ExprBinder::new(&all).bind(bound)?;
        if !expr.ty().data.is_timestamp() {
            return Err(Error::invalid(format!("{} as watermark", expr.ty().data), "a timestamp")
                .at(position_of(&**bound)));
        }
        let expr = expr.map_columns(&|column, _| table.column_expr(column));
        table.columns[index].time = Some(TimeAttribute::Rowtime);
        table.watermark = Some((index, expr));
    }
    for name in &definition.primary_key {
        let index = find_column(&table, name)?;
        table.columns[index].ty.nullable = false;
        table.primary_key.push(index);
    }
    Ok(table)
}

/// A view, if its query can be planned.
pub fn view(catalog: &Catalog, columns: &[Name], query: &Query) -> Result<Relation> {
    let node = Binder::new(catalog).query(query)?;
    rename(node, columns)?;
    Ok(Relation::View(Arc::new(View { columns: columns.to_vec(), query: Deep::new(query.clone()) })))
}
