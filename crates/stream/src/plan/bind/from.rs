//! FROM: relations, windowing table functions, joins.

use std::sync::Arc;

use sqlparser::ast::{
    self, FunctionArg, FunctionArgExpr, FunctionArguments, JoinConstraint, JoinOperator, TableFactor,
    TableVersion,
};

use super::expr::ExprBinder;
use super::{Binder, Scope, rename};
use crate::catalog::{Relation, Table};
use crate::error::{Error, Position, Result};
use crate::expr::{Expr, Op};
use crate::plan::retention::difference;
use crate::plan::{Field, JoinKind, Node, NodeOp, Scan, TimeAttribute, Window};
use crate::sql::{Name, position_of, simple_name};
use crate::types::time::MILLI_MICROS;
use crate::types::{DataType, Value};

/// Maximum joins: a plan is as deep as it has joins, and each row of the last one is looked up through all of them.
const RELATIONS_MAX: usize = 100;

/// One relation of FROM.
enum Item {
    Rows(Arc<Node>),
    /// A table as of the processing time of the relation before it.
    Lookup {
        table: Arc<Table>,
        outer: bool,
        place: Option<Position>,
    },
}

/// FROM with all its joins made, except for conditions in WHERE.
pub(super) struct From {
    items: Vec<(Item, Vec<Expr>, Option<Position>)>,
    pub(super) scope: Scope,
    widths: Vec<usize>,
}

impl Binder<'_> {
    /// The relations of FROM and the scope of their columns.
    pub(super) fn from(&mut self, from: &[ast::TableWithJoins]) -> Result<From> {
        let count = from.iter().map(|table| 1 + table.joins.len()).fold(0, usize::saturating_add);
        if count > RELATIONS_MAX {
            let place = from.first().and_then(|table| position_of(&table.relation));
            return Err(Error::invalid(
                format!("{count} relations in one FROM"),
                format!("at most {RELATIONS_MAX}"),
            )
            .at(place));
        }
        let mut result = From { items: Vec::new(), scope: Scope::default(), widths: Vec::new() };
        for table in from {
            let place = position_of(&table.relation);
            let (item, scope) = self.item(&table.relation, false)?;
            result.push(item, scope, Vec::new(), place);
            for join in &table.joins {
                self.join(join, &mut result)?;
            }
        }
        Ok(result)
    }

    fn join(&mut self, join: &ast::Join, from: &mut From) -> Result<()> {
        let place = position_of(&join.relation);
        let (constraint, outer) = match &join.join_operator {
            JoinOperator::Join(constraint)
            | JoinOperator::Inner(constraint)
            | JoinOperator::CrossJoin(constraint) => (constraint, false),
            JoinOperator::Left(constraint) | JoinOperator::LeftOuter(constraint) => (constraint, true),
            JoinOperator::Right(_) | JoinOperator::RightOuter(_) | JoinOperator::FullOuter(_) => {
                return Err(Error::unsupported("outer joins")
                    .at(place)
                    .hint("inner joins, and LEFT JOIN of a lookup, are supported"));
            }
            _ => return Err(Error::unsupported("this kind of join").at(place)),
        };
        let (item, scope) = self.item(&join.relation, outer)?;
        if outer && !matches!(item, Item::Lookup { .. }) {
            return Err(Error::unsupported("outer joins")
                .at(place)
                .hint("inner joins, and LEFT JOIN of a lookup, are supported"));
        }
        let before = from.scope.clone();
        let conditions = match constraint {
            JoinConstraint::None => Vec::new(),
            JoinConstraint::On(condition) => {
                let both = before.join(scope.clone());
                ExprBinder::new(&both).condition(condition)?.conjuncts()
            }
            JoinConstraint::Using(names) => {
                let mut conditions = Vec::new();
                for name in names {
                    let name = simple_name(name)?;
                    let ident = ast::Expr::Identifier(ast::Ident::new(name.text.clone()));
                    let left =
                        ExprBinder::new(&before).bind(&ident).map_err(|error| error.at(name.position))?;
                    let right =
                        ExprBinder::new(&scope).bind(&ident).map_err(|error| error.at(name.position))?;
                    let shift = before.fields.len();
                    let right = right.renumber(&|index| index + shift);
                    conditions.push(super::expr::comparison(Op::Equal, left, right)?);
                }
                conditions
            }
            JoinConstraint::Natural => return Err(Error::unsupported("NATURAL JOIN").at(place)),
            JoinConstraint::UsingAlias(..) => return Err(Error::unsupported("USING with an alias").at(place)),
        };
        from.push(item, scope, conditions, place);
        Ok(())
    }

    fn item(&mut self, factor: &TableFactor, outer: bool) -> Result<(Item, Scope)> {
        let place = position_of(factor);
        let (item, alias, own) = match factor {
            TableFactor::Table { name, alias, args: None, version, sample: None, .. } => {
                let name = simple_name(name)?;
                match version {
                    None => (Item::Rows(self.relation(&name)?), alias, Some(name.text)),
                    Some(TableVersion::ForSystemTimeAsOf(expr)) => {
                        (self.lookup(&name, expr, outer, place)?, alias, Some(name.text))
                    }
                    Some(_) => return Err(Error::unsupported("this version of a table").at(place)),
                }
            }
            TableFactor::Table { args: Some(_), name, .. } => {
                return Err(Error::unsupported(format!("the table function `{name}`")).at(place).hint(
                    "windows are written TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE))",
                ));
            }
            TableFactor::Table { .. } => return Err(Error::unsupported("TABLESAMPLE").at(place)),
            TableFactor::Derived { lateral: true, .. } => return Err(Error::unsupported("LATERAL").at(place)),
            TableFactor::Derived { subquery, alias, .. } => (Item::Rows(self.query(subquery)?), alias, None),
            TableFactor::TableFunction { expr, alias } => (Item::Rows(self.window(expr)?), alias, None),
            TableFactor::UNNEST { .. } => return Err(Error::unsupported("UNNEST").at(place)),
            TableFactor::Function { .. } => {
                return Err(Error::unsupported("LATERAL TABLE (user-defined table functions)").at(place));
            }
            TableFactor::MatchRecognize { .. } => return Err(Error::unsupported("MATCH_RECOGNIZE").at(place)),
            TableFactor::NestedJoin { .. } => {
                return Err(Error::unsupported("joins in parentheses").at(place).hint("use a subquery"));
            }
            _ => return Err(Error::unsupported("this relation").at(place)),
        };
        let names: Vec<Name> = alias
            .iter()
            .flat_map(|alias| alias.columns.iter().map(|column| column.name.clone().into()))
            .collect();
        let relation = alias.as_ref().map(|alias| alias.name.value.clone()).or(own);
        match item {
            Item::Rows(node) => {
                let node = rename(node, &names)?;
                let scope = Scope::of(&node, relation.as_deref());
                Ok((Item::Rows(node), scope))
            }
            Item::Lookup { table, outer, place } => {
                let fields = table.columns.iter().map(|column| super::ScopeField {
                    relation: relation.clone(),
                    field: Field {
                        name: column.name.clone(),
                        ty: column.ty.clone().or_null(outer),
                        time: None,
                    },
                });
                let scope = Scope { fields: fields.collect() };
                Ok((Item::Lookup { table, outer, place }, scope))
            }
        }
    }

    /// The rows of a named table, view or WITH query.
    pub(super) fn relation(&mut self, name: &Name) -> Result<Arc<Node>> {
        if let Some((_, node)) = self.common.iter().rev().find(|(common, _)| *common == name.text) {
            return Ok(node.clone());
        }
        match self.catalog.find(name)?.clone() {
            Relation::Table(table) => scan(&table).map_err(|error| error.at(name.position)),
            Relation::View(view) => {
                // Names of the WITH around the view's use are not visible within the view.
                let common = std::mem::take(&mut self.common);
                let node = match view.query.get() {
                    Some(query) => self.query(query),
                    None => Err(Error::invalid("a view without a query", "one with a query")),
                };
                self.common = common;
                rename(node?, &view.columns)
            }
        }
    }

    fn lookup(
        &mut self,
        name: &Name,
        time: &ast::Expr,
        outer: bool,
        place: Option<Position>,
    ) -> Result<Item> {
        let table = self.catalog.table(name)?.clone();
        // The join checks that the column has processing time; here only the form is checked.
        if !table.connector.lookup {
            return Err(Error::unsupported(format!(
                "temporal joins (of `{}`, connector '{}')",
                table.name, table.connector.name
            ))
            .at(place)
            .hint("tables of 'duramen' and 'redis' can be looked up"));
        }
        if !matches!(
            time,
            ast::Expr::CompoundIdentifier(_) | ast::Expr::Identifier(_) | ast::Expr::Function(_)
        ) {
            return Err(
                Error::invalid(format!("`{time}`"), "a column of processing time").at(position_of(time))
            );
        }
        self.lookup_times.push(time.clone());
        Ok(Item::Lookup { table, outer, place })
    }

    /// `TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE)`
    fn window(&mut self, expr: &ast::Expr) -> Result<Arc<Node>> {
        let place = position_of(expr);
        let ast::Expr::Function(function) = expr else {
            return Err(Error::syntax(format!("`{expr}`"), "TUMBLE, HOP, CUMULATE or SESSION in TABLE(...)")
                .at(place));
        };
        let name = simple_name(&function.name)?.text.to_ascii_uppercase();
        let form = match name.as_str() {
            "TUMBLE" => "TUMBLE(TABLE t, DESCRIPTOR(time), size [, offset])",
            "HOP" => "HOP(TABLE t, DESCRIPTOR(time), slide, size [, offset])",
            "CUMULATE" => "CUMULATE(TABLE t, DESCRIPTOR(time), step, size [, offset])",
            "SESSION" => "SESSION(TABLE t [PARTITION BY column], DESCRIPTOR(time), gap)",
            _ => {
                return Err(Error::invalid(
                    format!("table function `{name}`"),
                    "TUMBLE, HOP, CUMULATE or SESSION",
                )
                .at(place)
                .did_you_mean(&name, ["TUMBLE", "HOP", "CUMULATE", "SESSION"]));
            }
        };
        let wrong = |found: String| Error::invalid(found, form);
        let FunctionArguments::List(list) = &function.args else {
            return Err(wrong("no arguments".to_owned()).at(place));
        };
        let order: &[&str] = match name.as_str() {
            "TUMBLE" => &["DATA", "TIMECOL", "SIZE", "OFFSET"],
            "HOP" => &["DATA", "TIMECOL", "SLIDE", "SIZE", "OFFSET"],
            "CUMULATE" => &["DATA", "TIMECOL", "STEP", "SIZE", "OFFSET"],
            _ => &["DATA", "TIMECOL", "GAP"],
        };
        let mut given: Vec<Option<&ast::Expr>> = vec![None; order.len()];
        for (index, arg) in list.args.iter().enumerate() {
            let (slot, expr) = match arg {
                FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => (Some(index), expr),
                FunctionArg::Named { name, arg: FunctionArgExpr::Expr(expr), .. } => {
                    (order.iter().position(|param| name.value.eq_ignore_ascii_case(param)), expr)
                }
                other => return Err(wrong(format!("`{other}`")).at(place)),
            };
            match slot.and_then(|slot| given.get_mut(slot)) {
                Some(slot @ None) => *slot = Some(expr),
                _ => return Err(wrong(format!("`{arg}`")).at(position_of(expr))),
            }
        }
        let (Some(data), Some(time)) = (given[0], given[1]) else {
            return Err(wrong(format!("{} arguments of {name}", list.args.len())).at(place));
        };
        let ast::Expr::Prefixed { value, .. } = data else {
            return Err(wrong(format!("`{data}`")).at(position_of(data)).hint("write TABLE before the name"));
        };
        let ast::Expr::Tuple(parts) = &**value else { return Err(wrong(format!("`{data}`")).at(place)) };
        let mut names = parts.iter().filter_map(|part| match part {
            ast::Expr::Identifier(ident) => Some(Name::from(ident.clone())),
            _ => None,
        });
        let Some(table) = names.next() else { return Err(wrong(format!("`{data}`")).at(place)) };
        let input = self.relation(&table)?;
        let column = |name: &Name| {
            input.schema.iter().position(|field| field.name == name.text).ok_or_else(|| {
                Error::invalid(format!("column `{}`", name.text), format!("a column of `{}`", table.text))
                    .at(name.position)
                    .did_you_mean(&name.text, input.schema.iter().map(|field| field.name.as_str()))
            })
        };
        let partition: Vec<usize> = names.map(|name| column(&name)).collect::<Result<_>>()?;
        if !partition.is_empty() && name != "SESSION" {
            return Err(wrong("PARTITION BY".to_owned()).at(place).hint("group by the columns instead"));
        }
        let time_name = match time {
            ast::Expr::Function(call) if simple_name(&call.name)?.text.eq_ignore_ascii_case("DESCRIPTOR") => {
                match &call.args {
                    FunctionArguments::List(list) => match list.args.as_slice() {
                        [FunctionArg::Unnamed(FunctionArgExpr::Expr(ast::Expr::Identifier(ident)))] => {
                            Some(Name::from(ident.clone()))
                        }
                        _ => None,
                    },
                    _ => None,
                }
            }
            _ => None,
        };
        let Some(time_name) = time_name else {
            return Err(wrong(format!("`{time}`")).at(position_of(time)).hint("write DESCRIPTOR(column)"));
        };
        let time = column(&time_name)?;
        if input.schema[time].time.is_none() {
            return Err(Error::invalid(
                format!("`{}`, which is no time attribute", time_name.text),
                "a column with a WATERMARK, or one AS PROCTIME(), that comes unchanged from its table",
            )
            .at(time_name.position));
        }
        let mut lengths = Vec::new();
        for (slot, param) in given[2..].iter().zip(&order[2..]) {
            lengths.push(match slot {
                Some(expr) => self.length(expr, *param != "OFFSET")?,
                None if *param == "OFFSET" => 0,
                None => return Err(wrong(format!("no {}", param.to_lowercase())).at(place)),
            });
        }
        let window = match (name.as_str(), lengths.as_slice()) {
            ("TUMBLE", [size, offset]) => Window::Tumble { size: *size, offset: *offset },
            ("HOP", [slide, size, offset]) => Window::Hop { slide: *slide, size: *size, offset: *offset },
            ("CUMULATE", [step, size, offset]) => {
                Window::Cumulate { step: *step, size: *size, offset: *offset }
            }
            (_, [gap]) => Window::Session { gap: *gap },
            _ => return Err(wrong(format!("{} arguments", list.args.len())).at(place)),
        };
        if let Window::Hop { slide: step, size, .. } | Window::Cumulate { step, size, .. } = window
            && size % step != 0
        {
            return Err(Error::invalid(
                "a size that is not a whole number of steps",
                "a size that is a multiple of slide or step",
            )
            .at(place));
        }
        Ok(Node::new(NodeOp::Window { input, window, time, partition }))
    }

    fn length(&mut self, expr: &ast::Expr, positive: bool) -> Result<i64> {
        match ExprBinder::new(&Scope::default()).bind(expr)? {
            Expr::Literal(Value::Int(millis), ty)
                if ty.data == DataType::IntervalMillis && (millis > 0 || !positive) =>
            {
                Ok(millis * MILLI_MICROS)
            }
            _ => Err(Error::invalid(format!("`{expr}`"), "an interval of days to seconds, above zero")
                .at(position_of(expr))),
        }
    }
}

/// All columns of a table, including computed ones.
pub(super) fn scan(table: &Arc<Table>) -> Result<Arc<Node>> {
    if !table.connector.source {
        let error = Error::invalid(
            format!("table `{}` of connector '{}'", table.name, table.connector.name),
            "a table that can be read as a stream",
        );
        return Err(if table.connector.lookup {
            error.hint(
                "its rows can be joined by their keys: JOIN ... FOR SYSTEM_TIME AS OF a processing time",
            )
        } else {
            error
        });
    }
    let columns = table.columns.iter().enumerate().map(|(index, column)| {
        let field = Field { name: column.name.clone(), ty: column.ty.clone(), time: column.time };
        (field, table.column_expr(index))
    });
    Ok(Node::new(NodeOp::Scan(Scan {
        table: table.clone(),
        reads: (0..table.physical.len()).collect(),
        columns: columns.collect(),
        watermark: table.watermark.as_ref().map(|(_, bound)| bound.clone()),
        filter: None,
    })))
}

impl From {
    fn push(&mut self, item: Item, scope: Scope, conditions: Vec<Expr>, place: Option<Position>) {
        self.widths.push(scope.fields.len());
        let before = std::mem::take(&mut self.scope);
        self.scope = before.join(scope);
        self.items.push((item, conditions, place));
    }

    /// The rows of FROM, where conditions of WHERE may become join conditions. Also returns the remaining conditions.
    pub(super) fn build(self, mut wheres: Vec<Expr>, times: &[ast::Expr]) -> Result<(Arc<Node>, Vec<Expr>)> {
        let mut times = times.iter();
        let mut rows: Option<Arc<Node>> = None;
        let mut begin = 0;
        for ((item, conditions, place), width) in self.items.into_iter().zip(self.widths) {
            let end = begin + width;
            let before = rows.take();
            rows = Some(match (before, item) {
                (None, Item::Rows(node)) => node,
                (None, Item::Lookup { place, .. }) => {
                    return Err(Error::invalid(
                        "FOR SYSTEM_TIME AS OF of the first relation",
                        "a stream before it",
                    )
                    .at(place));
                }
                (Some(left), item) => {
                    let mut conditions = conditions;
                    // A condition of WHERE that links this relation with earlier ones belongs to the join. A condition
                    // that may fail stays in WHERE: the join would compute it for other rows.
                    let mut rest = Vec::new();
                    for condition in wheres {
                        let columns = condition.columns();
                        let links = columns.iter().any(|column| *column < begin)
                            && columns.iter().any(|column| (begin..end).contains(column))
                            && columns.iter().all(|column| *column < end);
                        if links && !condition.may_fail() && condition.is_deterministic() {
                            conditions.push(condition);
                        } else {
                            rest.push(condition);
                        }
                    }
                    wheres = rest;
                    match item {
                        Item::Rows(right) => {
                            join(left, right, conditions).map_err(|error| error.at(place))?
                        }
                        Item::Lookup { table, outer, place } => {
                            let scope = Scope { fields: self.scope.fields[..begin].to_vec() };
                            lookup(left, &scope, table, outer, conditions, times.next())
                                .map_err(|error| error.at(place))?
                        }
                    }
                }
            });
            begin = end;
        }
        let rows = rows.unwrap_or_else(|| Node::new(NodeOp::Values(Vec::new(), vec![Vec::new()])));
        Ok((rows, wheres))
    }
}

fn lookup(
    left: Arc<Node>,
    scope: &Scope,
    table: Arc<Table>,
    outer: bool,
    conditions: Vec<Expr>,
    time: Option<&ast::Expr>,
) -> Result<Arc<Node>> {
    if let Some(time) = time {
        let bound = ExprBinder::new(scope).bind(time)?;
        let proctime = match &bound {
            Expr::Column(index, _) => left.schema[*index].time == Some(TimeAttribute::Proctime),
            Expr::Call(function, ..) => function.name == "PROCTIME",
            _ => false,
        };
        if !proctime {
            return Err(Error::unsupported("temporal joins by event time")
                .hint("a lookup is FOR SYSTEM_TIME AS OF a column of processing time"));
        }
    }
    let width = left.schema.len();
    let mut keys = Vec::new();
    let mut residual = Vec::new();
    for condition in conditions {
        match equal_sides(&condition, width) {
            Some((expr, Expr::Column(column, _))) if !keys.iter().any(|(key, _)| *key == column) => {
                keys.push((column, expr));
            }
            _ => residual.push(condition),
        }
    }
    let needed: Vec<usize> = table.primary_key.clone();
    if keys.is_empty() || !needed.iter().all(|column| keys.iter().any(|(key, _)| key == column)) {
        let names: Vec<&str> = needed.iter().map(|column| table.columns[*column].name.as_str()).collect();
        let wanted = if names.is_empty() {
            "an equality with a column of it".to_owned()
        } else {
            format!("an equality with its key: {}", names.join(", "))
        };
        return Err(Error::invalid(format!("a lookup in `{}` by other conditions", table.name), wanted));
    }
    let columns = (0..table.columns.len()).collect();
    Ok(Node::new(NodeOp::Lookup {
        input: left,
        table,
        columns,
        keys,
        residual: Expr::conjunction(residual),
        outer,
    }))
}

/// `a = b` where `a` uses only columns before `width`, and `b` only those after, which are renumbered; or the reverse.
fn equal_sides(condition: &Expr, width: usize) -> Option<(Expr, Expr)> {
    let Expr::Op(Op::Equal, args, _) = condition else { return None };
    let [a, b] = args.as_slice() else { return None };
    if !condition.is_deterministic() || condition.may_fail() {
        return None;
    }
    let left =
        |expr: &Expr| !expr.columns().is_empty() && expr.columns().iter().all(|column| *column < width);
    let right =
        |expr: &Expr| !expr.columns().is_empty() && expr.columns().iter().all(|column| *column >= width);
    let (a, b) = if left(a) && right(b) {
        (a, b)
    } else if right(a) && left(b) {
        (b, a)
    } else {
        return None;
    };
    Some((a.clone(), b.clone().renumber(&|index| index - width)))
}

fn join(left: Arc<Node>, right: Arc<Node>, conditions: Vec<Expr>) -> Result<Arc<Node>> {
    let width = left.schema.len();
    let mut keys = Vec::new();
    let mut residual = Vec::new();
    for condition in &conditions {
        match equal_sides(condition, width) {
            Some(sides) => keys.push(sides),
            None => residual.push(condition.clone()),
        }
    }
    let kind = window_join(&left, &right, &keys).or_else(|| interval_join(&left, &right, &conditions));
    let kind = kind.unwrap_or(JoinKind::Regular);
    if keys.is_empty() {
        return Err(Error::unsupported("joins without an equality of both sides"));
    }
    Ok(Node::new(NodeOp::Join { left, right, kind, keys, residual: Expr::conjunction(residual) }))
}

fn window_join(left: &Node, right: &Node, keys: &[(Expr, Expr)]) -> Option<JoinKind> {
    let (a, b) = (left.windowed.as_ref()?, right.windowed.as_ref()?);
    if a.window != b.window || a.proctime != b.proctime {
        return None;
    }
    let (left, right) = ((a.start?, a.end?), (b.start?, b.end?));
    let equal = |a: usize, b: usize| {
        keys.iter()
            .any(|(x, y)| matches!((x, y), (Expr::Column(x, _), Expr::Column(y, _)) if (*x, *y) == (a, b)))
    };
    let windows = equal(left.0, right.0) && equal(left.1, right.1);
    windows.then_some(JoinKind::Window { left, right, proctime: a.proctime })
}

/// Turns bounds on the difference of two time attributes into an interval join.
fn interval_join(left: &Node, right: &Node, conditions: &[Expr]) -> Option<JoinKind> {
    let width = left.schema.len();
    let attribute = |column: usize| {
        let field = if column < width { left.schema.get(column) } else { right.schema.get(column - width) };
        field.and_then(|field| field.time)
    };
    let mut found: Option<(usize, usize)> = None;
    let (mut lower, mut upper) = (None::<i64>, None::<i64>);
    for condition in conditions {
        let Some((x, op, y, by)) = difference(condition, width) else { continue };
        if attribute(x).is_none()
            || attribute(x) != attribute(y)
            || found.is_some_and(|found| found != (x, y))
        {
            continue;
        }
        found = Some((x, y));
        // x - y op by
        if matches!(op, Op::Greater | Op::GreaterEqual | Op::Equal) {
            lower = Some(lower.map_or(by, |lower| lower.max(by)));
        }
        if matches!(op, Op::Less | Op::LessEqual | Op::Equal) {
            upper = Some(upper.map_or(by, |upper| upper.min(by)));
        }
    }
    let ((x, y), lower, upper) = (found?, lower?, upper?);
    let proctime = attribute(x) == Some(TimeAttribute::Proctime);
    Some(JoinKind::Interval { left: x, right: y - width, lower, upper, proctime })
}
