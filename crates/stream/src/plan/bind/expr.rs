//! Binds expressions: names become columns, literals become values, and arguments of operators and functions are
//! coerced.

use std::cell::OnceCell;
use std::collections::HashMap;

use sqlparser::ast::{
    self, AccessExpr, BinaryOperator, CastKind, CeilFloorKind, DateTimeField, DuplicateTreatment,
    FunctionArg, FunctionArgExpr, FunctionArguments, InTarget, ObjectNamePart, OrderBySort, Subscript,
    TrimWhereField, UnaryOperator, WindowType,
};

use super::Scope;
use super::literal::{integer, interval_literal, literal, number, unit, unit_named};
use crate::error::{Error, Position, Result};
use crate::expr::{Expr, Op};
use crate::function::{self, aggregate::AggregateKind};
use crate::sql::{Name, parse_type_text, position_of, position_of_expr, simple_name};
use crate::types::time::Unit;
use crate::types::{DataType, Type, Value, cast, coerce};

/// Columns from here on stand for results of aggregates, until the aggregate's node is made.
pub(super) const AGGREGATES: usize = 1 << 40;
/// Columns from here on stand for row numbers.
pub(super) const NUMBERS: usize = 1 << 41;

/// Deeper expressions would exhaust a thread's stack here and wherever else they are walked.
const DEPTH_MAX: usize = 250;

/// An aggregate call over the columns of the scope.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct AggregateCall {
    pub(super) kind: AggregateKind,
    pub(super) argument: Option<Expr>,
    pub(super) distinct: bool,
    pub(super) filter: Option<Expr>,
    pub(super) separator: Option<String>,
    pub(super) ty: Type,
}

/// ROW_NUMBER() OVER (PARTITION BY ... ORDER BY ...).
#[derive(Debug, Clone, PartialEq)]
pub(super) struct NumberCall {
    pub(super) partition: Vec<Expr>,
    /// Expression, descending, NULL first.
    pub(super) order: Vec<(Expr, bool, bool)>,
    pub(super) place: Option<Position>,
}

/// Binds expressions over a scope, and collects aggregate calls and row numbers.
pub(super) struct ExprBinder<'s> {
    scope: &'s Scope,
    /// Columns by name, built at the first lookup.
    names: OnceCell<HashMap<&'s str, Vec<usize>>>,
    depth: usize,
    /// Where aggregates are allowed: the ones found, and whether groups have at least one row.
    pub(super) aggregates: Option<Vec<AggregateCall>>,
    pub(super) grouped: bool,
    /// Where ROW_NUMBER is allowed: the ones found.
    pub(super) numbers: Option<Vec<NumberCall>>,
}

impl<'s> ExprBinder<'s> {
    pub(super) fn new(scope: &'s Scope) -> Self {
        ExprBinder { scope, names: OnceCell::new(), depth: 0, aggregates: None, grouped: true, numbers: None }
    }

    /// The typed expression.
    pub(super) fn bind(&mut self, expr: &ast::Expr) -> Result<Expr> {
        if self.depth >= DEPTH_MAX {
            return Err(Error::syntax(
                "an expression nested too deep",
                format!("at most {DEPTH_MAX} levels"),
            )
            .at(position_of_expr(expr)));
        }
        self.depth += 1;
        let bound = self.bind_at(expr);
        self.depth -= 1;
        bound.map_err(|error| error.at_with(|| position_of_expr(expr)))
    }

    /// An expression that must be boolean.
    pub(super) fn condition(&mut self, expr: &ast::Expr) -> Result<Expr> {
        let bound = self.bind(expr)?;
        match bound.ty().data {
            DataType::Boolean => Ok(bound),
            DataType::Null => Ok(bound.cast_to(&DataType::Boolean)),
            ref other => {
                Err(Error::invalid(format!("{other} as a condition"), "BOOLEAN").at(position_of_expr(expr)))
            }
        }
    }

    fn bind_at(&mut self, expr: &ast::Expr) -> Result<Expr> {
        use ast::Expr as E;
        Ok(match expr {
            E::Identifier(ident) => self.column(&[ident.clone().into()])?,
            E::CompoundIdentifier(idents) => {
                let names: Vec<Name> = idents.iter().cloned().map(Name::from).collect();
                self.column(&names)?
            }
            E::CompoundFieldAccess { root, access_chain } => {
                let mut value = self.bind(root)?;
                for access in access_chain {
                    value = match access {
                        AccessExpr::Dot(E::Identifier(ident)) => field(value, &ident.clone().into())?,
                        AccessExpr::Subscript(Subscript::Index { index }) => {
                            let DataType::Array(element) = value.ty().data.clone() else {
                                return Err(Error::invalid(
                                    format!("{} before [", value.ty().data),
                                    "an ARRAY",
                                ));
                            };
                            let index = self.bind(index)?;
                            if !index.ty().data.is_integer() {
                                return Err(Error::invalid(
                                    format!("{} as index", index.ty().data),
                                    "an integer",
                                ));
                            }
                            let index = index.cast_to(&DataType::BigInt);
                            Expr::Op(Op::Element, vec![value, index], Type::nullable(element.data.clone()))
                        }
                        _ => return Err(Error::unsupported("this access to a part")),
                    };
                }
                value
            }
            E::Nested(inner) => self.bind(inner)?,
            E::Value(value) => literal(&value.value)?,
            E::TypedString(typed) => self.typed_string(typed)?,
            E::Interval(interval) => interval_literal(interval)?,
            E::IsNull(inner) => self.test(Op::IsNull, inner, false)?,
            E::IsNotNull(inner) => self.test(Op::IsNull, inner, true)?,
            E::IsTrue(inner) => self.truth_test(Op::IsTrue, inner, false)?,
            E::IsNotTrue(inner) => self.truth_test(Op::IsTrue, inner, true)?,
            E::IsFalse(inner) => self.truth_test(Op::IsFalse, inner, false)?,
            E::IsNotFalse(inner) => self.truth_test(Op::IsFalse, inner, true)?,
            E::IsUnknown(inner) => self.truth_test(Op::IsNull, inner, false)?,
            E::IsNotUnknown(inner) => self.truth_test(Op::IsNull, inner, true)?,
            E::IsDistinctFrom(a, b) => negate(self.compare(Op::Same, a, b)?),
            E::IsNotDistinctFrom(a, b) => self.compare(Op::Same, a, b)?,
            E::IsJson { expr, kind, unique_keys: None, negated } => {
                let text = self.text(expr)?;
                let kind = kind.as_ref().map_or("VALUE".to_owned(), |kind| kind.to_string());
                let ty = Type::not_null(DataType::Boolean);
                negate_if(*negated, Expr::Op(Op::IsJson, vec![text, Expr::text(&kind)], ty))
            }
            E::Between { expr, negated, low, high } => {
                let above = self.compare(Op::GreaterEqual, expr, low)?;
                let below = self.compare(Op::LessEqual, expr, high)?;
                negate_if(*negated, Expr::truth(Op::And, vec![above, below]))
            }
            E::In { expr, target: InTarget::List(list), negated, .. } => {
                let mut args = vec![self.bind(expr)?];
                for item in list {
                    args.push(self.bind(item)?);
                }
                let mut common = args[0].ty().data.clone();
                for (arg, item) in args[1..].iter().zip(list) {
                    common =
                        meet(&common, &arg.ty().data).map_err(|error| error.at(position_of_expr(item)))?;
                }
                let args = args.into_iter().map(|arg| arg.cast_to(&common)).collect();
                negate_if(*negated, Expr::truth(Op::In, args))
            }
            E::In { .. } => return Err(Error::unsupported("IN with a query (semi joins)")),
            E::Exists { .. } => return Err(Error::unsupported("EXISTS (semi joins)")),
            E::Subquery(_) => return Err(Error::unsupported("scalar subqueries")),
            E::AnyOp { .. } | E::AllOp { .. } => {
                return Err(Error::unsupported("comparisons with ANY and ALL"));
            }
            E::Like { negated, any: false, expr, pattern, escape_char } => {
                self.like(Op::Like, *negated, expr, pattern, escape_char.as_deref())?
            }
            E::SimilarTo { negated, expr, pattern, escape_char } => {
                self.like(Op::Similar, *negated, expr, pattern, escape_char.as_deref())?
            }
            E::BinaryOp { left, op, right } => self.binary(op, left, right)?,
            E::UnaryOp { op, expr } => match op {
                UnaryOperator::Not => negate(self.condition(expr)?),
                UnaryOperator::Plus | UnaryOperator::Minus => {
                    // The least integer is written as the negation of a literal that does not fit.
                    if let (UnaryOperator::Minus, E::Value(value)) = (op, &**expr)
                        && let ast::Value::Number(digits, _) = &value.value
                    {
                        return number(&format!("-{digits}"));
                    }
                    let value = self.bind(expr)?;
                    if !value.ty().data.is_numeric() && !value.ty().data.is_interval() {
                        return Err(Error::invalid(format!("{} after {op}", value.ty().data), "a number"));
                    }
                    if *op == UnaryOperator::Plus {
                        return Ok(value);
                    }
                    let ty = value.ty().clone();
                    Expr::Op(Op::Negate, vec![value], ty)
                }
                other => return Err(Error::syntax(format!("operator `{other}`"), "an operator of Flink's")),
            },
            E::Cast { kind, expr, data_type, format: None } => {
                let value = self.bind(expr)?;
                let ty = parse_type_text(&data_type.to_string())
                    .map_err(|error| error.at(position_of_expr(expr)))?;
                let safe = match kind {
                    CastKind::Cast => false,
                    CastKind::TryCast => true,
                    _ => return Err(Error::syntax("a cast of another dialect", "CAST(x AS type)")),
                };
                if !cast::exists(&value.ty().data, &ty.data) {
                    return Err(Error::invalid(
                        format!("CAST from {} to {}", value.ty().data, ty.data),
                        "types that have one",
                    ));
                }
                let decimal = matches!(ty.data, DataType::Decimal { .. });
                let nullable = value.ty().nullable || safe || decimal;
                let ty = Type { data: ty.data, nullable };
                Expr::Cast { expr: Box::new(value), ty, safe }
            }
            E::Case { operand, conditions, else_result, .. } => {
                self.case(operand.as_deref(), conditions, else_result.as_deref())?
            }
            E::Extract { field, expr, .. } => {
                let unit = unit(field)?;
                let value = self.bind(expr)?;
                self.call("EXTRACT", vec![unit, value])?
            }
            E::Floor { expr, field } => self.edge("FLOOR", "TIME_FLOOR", expr, field)?,
            E::Ceil { expr, field } => self.edge("CEIL", "TIME_CEIL", expr, field)?,
            E::Position { expr, r#in } => {
                let args = vec![self.bind(expr)?, self.bind(r#in)?];
                self.call("POSITION", args)?
            }
            E::Substring { expr, substring_from, substring_for, .. } => {
                let mut args = vec![self.bind(expr)?];
                match substring_from {
                    Some(from) => args.push(self.bind(from)?),
                    None => args.push(integer(1)),
                }
                if let Some(length) = substring_for {
                    args.push(self.bind(length)?);
                }
                self.call("SUBSTRING", args)?
            }
            E::Trim { trim_where, trim_what, expr, trim_characters: None } => {
                let mut args = vec![self.bind(expr)?];
                if let Some(what) = trim_what {
                    args.push(self.bind(what)?);
                }
                let name = match trim_where {
                    Some(TrimWhereField::Leading) => "LTRIM",
                    Some(TrimWhereField::Trailing) => "RTRIM",
                    _ => "BTRIM",
                };
                self.call(name, args)?
            }
            E::Overlay { expr, overlay_what, overlay_from, overlay_for } => {
                let mut args = vec![self.bind(expr)?, self.bind(overlay_what)?, self.bind(overlay_from)?];
                if let Some(length) = overlay_for {
                    args.push(self.bind(length)?);
                }
                self.call("OVERLAY", args)?
            }
            E::Function(function) => self.function(function)?,
            E::Array(array) => {
                let values: Result<Vec<Expr>> = array.elem.iter().map(|element| self.bind(element)).collect();
                let (values, ty) = branches(values?)?;
                let ty = Type::not_null(DataType::Array(ty.into()));
                Expr::Op(Op::Array, values, ty)
            }
            E::Tuple(values) => self.row(values)?,
            other => return Err(Error::unsupported(format!("the expression `{other}`"))),
        })
    }

    fn row(&mut self, values: &[ast::Expr]) -> Result<Expr> {
        let values: Result<Vec<Expr>> = values.iter().map(|value| self.bind(value)).collect();
        let values = values?;
        let fields =
            values.iter().enumerate().map(|(index, value)| (format!("EXPR${index}"), value.ty().clone()));
        let ty = Type::not_null(DataType::Row(fields.collect()));
        Ok(Expr::Op(Op::Row, values, ty))
    }

    /// `column`, `relation.column`, and fields of rows after either.
    fn column(&self, names: &[Name]) -> Result<Expr> {
        if let [relation, column, rest @ ..] = names {
            let found = self.find(&column.text, |field| field.relation.as_deref() == Some(&relation.text));
            match found.as_slice() {
                [index] => return self.fields(*index, rest),
                [_, _, ..] => return Err(ambiguous(column)),
                [] => {}
            }
            if self.scope.fields.iter().any(|field| field.relation.as_deref() == Some(&relation.text)) {
                let columns = self
                    .scope
                    .fields
                    .iter()
                    .filter(|field| field.relation.as_deref() == Some(&relation.text));
                return Err(Error::invalid(
                    format!("column `{}`", column.text),
                    format!("a column of `{}`", relation.text),
                )
                .at(column.position)
                .did_you_mean(&column.text, columns.map(|field| field.field.name.as_str())));
            }
        }
        let Some((first, rest)) = names.split_first() else {
            return Err(Error::syntax("no name", "a column"));
        };
        match self.find(&first.text, |_| true).as_slice() {
            [index] => self.fields(*index, rest),
            [] => {
                let niladic =
                    ["CURRENT_DATE", "CURRENT_TIME", "CURRENT_TIMESTAMP", "LOCALTIME", "LOCALTIMESTAMP"];
                let upper = first.text.to_ascii_uppercase();
                if rest.is_empty() && niladic.contains(&upper.as_str()) {
                    return self.call(&upper, Vec::new());
                }
                let (wanted, names): (&str, Vec<&str>) = if rest.is_empty() {
                    ("a column", self.scope.fields.iter().map(|field| field.field.name.as_str()).collect())
                } else {
                    (
                        "a relation of FROM or a column",
                        self.scope.fields.iter().filter_map(|field| field.relation.as_deref()).collect(),
                    )
                };
                Err(Error::invalid(format!("name `{}`", first.text), wanted)
                    .at(first.position)
                    .did_you_mean(&first.text, names))
            }
            _ => Err(ambiguous(first)),
        }
    }

    /// The columns that a name selects.
    fn find(&self, name: &str, wanted: impl Fn(&super::ScopeField) -> bool) -> Vec<usize> {
        let names = self.names.get_or_init(|| {
            let mut names: HashMap<&str, Vec<usize>> = HashMap::new();
            for (index, field) in self.scope.fields.iter().enumerate() {
                names.entry(&field.field.name).or_default().push(index);
            }
            names
        });
        let found = names.get(name).into_iter().flatten().copied();
        found.filter(|index| wanted(&self.scope.fields[*index])).collect()
    }

    fn fields(&self, index: usize, names: &[Name]) -> Result<Expr> {
        let column = Expr::Column(index, self.scope.fields[index].field.ty.clone());
        names.iter().try_fold(column, field)
    }

    fn typed_string(&mut self, typed: &ast::TypedString) -> Result<Expr> {
        let ast::Value::SingleQuotedString(text) = &typed.value.value else {
            return Err(Error::syntax(format!("`{}`", typed.value), "a text in single quotes"));
        };
        let data = match &typed.data_type {
            ast::DataType::Date => DataType::Date,
            ast::DataType::Time(..) => DataType::Time(0),
            ast::DataType::Timestamp(..) => {
                let digits = text.rsplit_once('.').map_or(0, |(_, fraction)| fraction.trim().len()).min(6);
                DataType::Timestamp(digits as u8)
            }
            other => return Err(Error::unsupported(format!("literals of {other}"))),
        };
        match cast::parse(text, &data) {
            Some(value) => Ok(Expr::Literal(value, Type::not_null(data))),
            None => Err(Error::invalid(
                format!("'{text}'"),
                format!("a {data}, as 2020-12-31 or 23:59:59 are written"),
            )),
        }
    }

    fn test(&mut self, op: Op, inner: &ast::Expr, negated: bool) -> Result<Expr> {
        let value = self.bind(inner)?;
        let test = Expr::Op(op, vec![value], Type::not_null(DataType::Boolean));
        Ok(negate_if(negated, test))
    }

    fn truth_test(&mut self, op: Op, inner: &ast::Expr, negated: bool) -> Result<Expr> {
        let value = self.condition(inner)?;
        Ok(negate_if(negated, Expr::Op(op, vec![value], Type::not_null(DataType::Boolean))))
    }

    fn text(&mut self, expr: &ast::Expr) -> Result<Expr> {
        let value = self.bind(expr)?;
        match &value.ty().data {
            data if data.is_character() => Ok(value),
            DataType::Null => Ok(value.cast_to(&DataType::STRING)),
            other => Err(Error::invalid(other, "a string").at(position_of_expr(expr)).hint("cast it")),
        }
    }

    fn like(
        &mut self,
        op: Op,
        negated: bool,
        text: &ast::Expr,
        pattern: &ast::Expr,
        escape: Option<&ast::Expr>,
    ) -> Result<Expr> {
        let mut args = vec![self.text(text)?, self.text(pattern)?];
        if let Some(escape) = escape {
            args.push(self.text(escape)?);
        }
        Ok(negate_if(negated, Expr::truth(op, args)))
    }

    fn compare(&mut self, op: Op, a: &ast::Expr, b: &ast::Expr) -> Result<Expr> {
        let (left, right) = (self.bind(a)?, self.bind(b)?);
        comparison(op, left, right).map_err(|error| error.at_with(|| position_of_expr(b)))
    }

    fn binary(&mut self, op: &BinaryOperator, left: &ast::Expr, right: &ast::Expr) -> Result<Expr> {
        let op = match op {
            BinaryOperator::And | BinaryOperator::Or => {
                let terms: Result<Vec<Expr>> =
                    chain(op, left, right).into_iter().map(|term| self.condition(term)).collect();
                return Ok(Expr::truth(if *op == BinaryOperator::And { Op::And } else { Op::Or }, terms?));
            }
            BinaryOperator::Eq => return self.compare(Op::Equal, left, right),
            BinaryOperator::NotEq => return self.compare(Op::NotEqual, left, right),
            BinaryOperator::Lt => return self.compare(Op::Less, left, right),
            BinaryOperator::LtEq => return self.compare(Op::LessEqual, left, right),
            BinaryOperator::Gt => return self.compare(Op::Greater, left, right),
            BinaryOperator::GtEq => return self.compare(Op::GreaterEqual, left, right),
            BinaryOperator::StringConcat => {
                let terms: Result<Vec<Expr>> =
                    chain(op, left, right).into_iter().map(|term| self.text(term)).collect();
                let terms = terms?;
                let nullable = terms.iter().any(|term| term.ty().nullable);
                let data = terms
                    .iter()
                    .map(|term| Some(term.ty().data.clone()))
                    .reduce(|a, b| Some(coerce::concatenated(&a?, &b?).unwrap_or(DataType::STRING)));
                let data = data.flatten().unwrap_or(DataType::STRING);
                return Ok(Expr::Op(Op::Concat, terms, Type { data, nullable }));
            }
            other => arithmetic_operator(other)
                .ok_or_else(|| Error::syntax(format!("operator `{other}`"), "an operator of Flink's"))?,
        };
        // From the first operand on, in a loop, because `a + b - c` is as deep as it is long.
        let mut steps = vec![(op, right)];
        let mut first = left;
        while let ast::Expr::BinaryOp { left, op, right } = first
            && let Some(op) = arithmetic_operator(op)
        {
            steps.push((op, &**right));
            first = left;
        }
        let mut value = self.bind(first)?;
        let mut levels = self.depth;
        for (op, right) in steps.into_iter().rev() {
            let right_value = self.bind(right)?;
            let was_sum = matches!(&value, Expr::Op(Op::Add, ..));
            value = arithmetic(op, value, right_value)
                .map_err(|error| error.at_with(|| position_of_expr(first)))?;
            // Adding an operand to a flat sum does not make it deeper.
            let grew = !(was_sum && matches!(&value, Expr::Op(Op::Add, args, _) if args.len() > 2));
            levels += usize::from(grew);
            if levels > DEPTH_MAX {
                return Err(Error::syntax(
                    "arithmetic of too many operators in a row",
                    format!("at most {DEPTH_MAX}, but for sums of one type"),
                )
                .at(position_of_expr(right)));
            }
        }
        Ok(value)
    }

    fn case(
        &mut self,
        operand: Option<&ast::Expr>,
        conditions: &[ast::CaseWhen],
        otherwise: Option<&ast::Expr>,
    ) -> Result<Expr> {
        let mut tests = Vec::new();
        let mut results = Vec::new();
        for when in conditions {
            tests.push(match operand {
                Some(operand) => self.compare(Op::Equal, operand, &when.condition)?,
                None => self.condition(&when.condition)?,
            });
            results.push(self.bind(&when.result)?);
        }
        results.push(match otherwise {
            Some(otherwise) => self.bind(otherwise)?,
            None => Expr::null(DataType::Null),
        });
        case_of(tests, results)
    }

    fn edge(&mut self, number: &str, time: &str, expr: &ast::Expr, field: &CeilFloorKind) -> Result<Expr> {
        let value = self.bind(expr)?;
        match field {
            CeilFloorKind::DateTimeField(DateTimeField::NoDateTime) => self.call(number, vec![value]),
            CeilFloorKind::DateTimeField(field) => {
                let unit = unit(field)?;
                self.call(time, vec![unit, value])
            }
            CeilFloorKind::Scale(_) => {
                Err(Error::invalid("a scale", format!("{number}(x) or {number}(time TO unit)")))
            }
        }
    }

    /// A function of the registry with bound arguments.
    fn call(&self, name: &str, args: Vec<Expr>) -> Result<Expr> {
        let Some(function) = function::find(name) else {
            if AggregateKind::find(name).is_some() {
                return Err(Error::invalid(
                    format!("the aggregate {}", name.to_ascii_uppercase()),
                    "a scalar function",
                )
                .hint("aggregates stand in SELECT and HAVING of a query with GROUP BY"));
            }
            if function::is_flinks(name) || AggregateKind::is_flinks(name) {
                return Err(Error::unsupported(format!("the function {}", name.to_ascii_uppercase())));
            }
            let names = function::names().chain(AggregateKind::names());
            return Err(Error::invalid(
                format!("function `{name}`"),
                "a built-in function (there are no user-defined functions yet)",
            )
            .did_you_mean(name, names));
        };
        // The number of digits defaults to zero.
        let count = match args.get(1) {
            None => Some(0),
            Some(Expr::Literal(Value::Int(count), _)) => Some(*count),
            Some(_) => None,
        };
        let types: Vec<Type> = args.iter().map(|arg| arg.ty().clone()).collect();
        let wanted = function.coerce(&types)?;
        let args: Vec<Expr> = args.into_iter().zip(&wanted).map(|(arg, ty)| arg.cast_to(ty)).collect();
        let types: Vec<Type> = args.iter().map(|arg| arg.ty().clone()).collect();
        let mut ty = function.result(&types);
        if let ("ROUND" | "TRUNCATE", DataType::Decimal { precision, scale }) = (function.name, &ty.data)
            && let Some(count) = count
        {
            ty.data = function::rounded(*precision, *scale, count);
        }
        Ok(Expr::Call(function, args, ty))
    }

    fn function(&mut self, call: &ast::Function) -> Result<Expr> {
        let name = match call.name.0.as_slice() {
            [ObjectNamePart::Identifier(ident)] => ident.value.to_ascii_uppercase(),
            _ => simple_name(&call.name)?.text,
        };
        let place = position_of(&call.name);
        if !matches!(call.parameters, FunctionArguments::None) || !call.within_group.is_empty() {
            return Err(Error::unsupported("WITHIN GROUP").at(place));
        }
        if call.null_treatment.is_some() {
            return Err(Error::unsupported("IGNORE NULLS and RESPECT NULLS").at(place));
        }
        let list = match &call.args {
            FunctionArguments::List(list) => Some(list),
            FunctionArguments::None => None,
            FunctionArguments::Subquery(_) => return Err(Error::unsupported("a query as argument").at(place)),
        };
        if list.is_some_and(|list| !list.clauses.is_empty()) {
            return Err(Error::unsupported(format!("clauses within the arguments of {name}")).at(place));
        }
        let args: &[FunctionArg] = list.map_or(&[], |list| &list.args);
        let distinct = match list.and_then(|list| list.duplicate_treatment) {
            Some(DuplicateTreatment::Distinct) => true,
            Some(DuplicateTreatment::All) | None => false,
        };
        if let Some(over) = &call.over {
            return self.over(&name, over, args, place);
        }
        if let Some(kind) = AggregateKind::find(&name) {
            return self
                .aggregate(kind, args, distinct, call.filter.as_deref())
                .map_err(|error| error.at(place));
        }
        if distinct || call.filter.is_some() {
            return Err(Error::invalid(format!("DISTINCT or FILTER of {name}"), "an aggregate").at(place));
        }
        if ["TUMBLE", "HOP", "CUMULATE", "SESSION"].contains(&name.as_str()) {
            return Err(Error::unsupported(format!("{name} in GROUP BY"))
                .at(place)
                .hint(format_args!("use the table function: FROM TABLE({name}(TABLE t, DESCRIPTOR(ts), ...)) GROUP BY window_start, window_end")));
        }
        let exprs: Result<Vec<&ast::Expr>> = args.iter().map(plain_argument).collect();
        let exprs = exprs.map_err(|error| error.at(place))?;
        self.special(&name, &exprs).map_err(|error| error.at(place))
    }

    /// Functions whose arguments are not only values, and functions that are aliases of other expressions.
    fn special(&mut self, name: &str, exprs: &[&ast::Expr]) -> Result<Expr> {
        if matches!(name, "TIMESTAMPADD" | "TIMESTAMPDIFF")
            && let [first, rest @ ..] = exprs
        {
            let ast::Expr::Identifier(ident) = first else {
                return Err(Error::invalid(format!("`{first}`"), "a unit such as SECOND or MONTH"));
            };
            let unit = unit_named(&ident.value)?;
            let mut args = vec![unit];
            for expr in rest {
                args.push(self.bind(expr)?);
            }
            // Days have no hours: a date plus less than a day becomes a timestamp.
            let fine = Unit::parse(&ident.value)
                .and_then(Unit::micros)
                .is_some_and(|unit| unit < crate::types::time::DAY_MICROS);
            if name == "TIMESTAMPADD"
                && fine
                && args.get(2).is_some_and(|arg| arg.ty().data == DataType::Date)
            {
                let date = args.swap_remove(2);
                args.push(date.cast_to(&DataType::Timestamp(0)));
            }
            return self.call(name, args);
        }
        let args: Result<Vec<Expr>> = exprs.iter().map(|expr| self.bind(expr)).collect();
        let mut args = args?;
        let count = |wanted: usize| {
            let form = format!("{wanted} of {name}");
            if exprs.len() == wanted {
                Ok(())
            } else {
                Err(Error::invalid(format!("{} arguments", exprs.len()), form))
            }
        };
        match name {
            "YEAR" | "QUARTER" | "MONTH" | "WEEK" | "DAYOFYEAR" | "DAYOFMONTH" | "DAYOFWEEK" | "HOUR"
            | "MINUTE" | "SECOND" => {
                count(1)?;
                let unit = Expr::text(if name == "DAYOFMONTH" { "DAY" } else { name });
                args.insert(0, unit);
                self.call("EXTRACT", args)
            }
            "MOD" => {
                count(2)?;
                let right = args.remove(1);
                arithmetic(Op::Remainder, args.remove(0), right)
            }
            "IF" => {
                count(3)?;
                let condition = args.remove(0);
                if condition.ty().data != DataType::Boolean {
                    return Err(Error::invalid(format!("{} as a condition", condition.ty().data), "BOOLEAN"));
                }
                case_of(vec![condition], args)
            }
            "NULLIF" => {
                count(2)?;
                let test = comparison(Op::Equal, args[0].clone(), args[1].clone())?;
                let value = args.remove(0);
                case_of(vec![test], vec![Expr::null(DataType::Null), value])
            }
            "COALESCE" | "IFNULL" => {
                if name == "IFNULL" {
                    count(2)?;
                }
                let nullable = args.iter().all(|arg| arg.ty().nullable);
                let (args, ty) = branches(args)?;
                Ok(Expr::Op(Op::Coalesce, args, Type { data: ty.data, nullable }))
            }
            "GREATEST" | "LEAST" => {
                let (args, ty) = branches(args)?;
                if !ty.data.is_ordered() {
                    return Err(Error::invalid(format!("{} in {name}", ty.data), "a type with an order"));
                }
                Ok(Expr::Op(if name == "GREATEST" { Op::Greatest } else { Op::Least }, args, ty))
            }
            "ROW" => {
                let fields = args
                    .iter()
                    .enumerate()
                    .map(|(index, arg)| (format!("EXPR${index}"), arg.ty().clone()))
                    .collect();
                Ok(Expr::Op(Op::Row, args, Type::not_null(DataType::Row(fields))))
            }
            _ => self.call(name, args),
        }
    }

    fn aggregate(
        &mut self,
        kind: AggregateKind,
        args: &[FunctionArg],
        distinct: bool,
        filter: Option<&ast::Expr>,
    ) -> Result<Expr> {
        let Some(collected) = self.aggregates.take() else {
            return Err(Error::invalid(format!("the aggregate {kind}"), "no aggregate here")
                .hint("aggregates stand in SELECT and HAVING, and not within each other"));
        };
        // Taken out, so that an aggregate within this one gets the error above.
        let bound = self.aggregate_parts(kind, args, distinct, filter);
        let mut collected = collected;
        let call = match bound {
            Ok(call) => call,
            Err(error) => {
                self.aggregates = Some(collected);
                return Err(error);
            }
        };
        let index = match collected.iter().position(|other| *other == call) {
            Some(index) => index,
            None => {
                collected.push(call.clone());
                collected.len() - 1
            }
        };
        self.aggregates = Some(collected);
        Ok(Expr::Column(AGGREGATES + index, call.ty))
    }

    fn aggregate_parts(
        &mut self,
        kind: AggregateKind,
        args: &[FunctionArg],
        distinct: bool,
        filter: Option<&ast::Expr>,
    ) -> Result<AggregateCall> {
        let (argument, separator) = match args {
            [FunctionArg::Unnamed(FunctionArgExpr::Wildcard)]
                if kind == AggregateKind::Count && !distinct =>
            {
                (None, None)
            }
            [one] => (Some(self.bind(plain_argument(one)?)?), None),
            [one, two] if kind == AggregateKind::ListAgg => match self.bind(plain_argument(two)?)? {
                Expr::Literal(Value::String(text), _) => {
                    (Some(self.bind(plain_argument(one)?)?), Some(text.to_string()))
                }
                _ => return Err(Error::invalid("a separator of LISTAGG that varies", "a literal")),
            },
            _ => return Err(Error::invalid(format!("{} arguments of {kind}", args.len()), "one")),
        };
        if distinct && matches!(kind, AggregateKind::FirstValue | AggregateKind::LastValue) {
            return Err(Error::unsupported(format!("DISTINCT of {kind}")));
        }
        let filter = match filter {
            Some(filter) => Some(self.condition(filter)?),
            None => None,
        };
        let grouped = self.grouped && filter.is_none();
        let ty = kind.result(argument.as_ref().map(Expr::ty), grouped)?;
        // The least of the distinct values is the least of all values.
        let distinct = distinct
            && !matches!(kind, AggregateKind::Min | AggregateKind::Max | AggregateKind::ApproxCountDistinct);
        Ok(AggregateCall { kind, argument, distinct, filter, separator, ty })
    }

    fn over(
        &mut self,
        name: &str,
        over: &WindowType,
        args: &[FunctionArg],
        place: Option<Position>,
    ) -> Result<Expr> {
        if name != "ROW_NUMBER" {
            return Err(Error::unsupported(format!("{name} OVER (...)")).at(place));
        }
        if !args.is_empty() {
            return Err(Error::invalid("arguments of ROW_NUMBER", "none").at(place));
        }
        let WindowType::WindowSpec(spec) = over else {
            return Err(Error::unsupported("named windows").at(place));
        };
        if spec.window_frame.is_some() {
            return Err(Error::invalid("a frame of ROW_NUMBER", "none").at(place));
        }
        if spec.order_by.is_empty() {
            return Err(Error::invalid("ROW_NUMBER without an order", "OVER (... ORDER BY ...)").at(place));
        }
        let Some(mut numbers) = self.numbers.take() else {
            return Err(Error::invalid("ROW_NUMBER here", "it in SELECT, alone or with an alias").at(place));
        };
        let partition: Result<Vec<Expr>> = spec.partition_by.iter().map(|expr| self.bind(expr)).collect();
        let order: Result<Vec<(Expr, bool, bool)>> = spec
            .order_by
            .iter()
            .map(|order| {
                let expr = self.bind(&order.expr)?;
                if !expr.ty().data.is_ordered() {
                    return Err(Error::invalid(
                        format!("{} in ORDER BY", expr.ty().data),
                        "a type with an order",
                    ));
                }
                let descending = match &order.options.sort {
                    Some(OrderBySort::Desc) => true,
                    None | Some(OrderBySort::Asc) => false,
                    Some(_) => return Err(Error::syntax("USING", "ASC or DESC")),
                };
                // NULL is the least value.
                Ok((expr, descending, order.options.nulls_first.unwrap_or(!descending)))
            })
            .collect();
        let call = NumberCall { partition: partition?, order: order?, place };
        let index = match numbers.iter().position(|other| *other == call) {
            Some(index) => index,
            None => {
                numbers.push(call);
                numbers.len() - 1
            }
        };
        self.numbers = Some(numbers);
        Ok(Expr::Column(NUMBERS + index, Type::not_null(DataType::BigInt)))
    }
}

/// The operands of a chain of one operator, from left to right.
fn chain<'e>(op: &BinaryOperator, left: &'e ast::Expr, right: &'e ast::Expr) -> Vec<&'e ast::Expr> {
    let mut operands = vec![right];
    let mut first = left;
    while let ast::Expr::BinaryOp { left, op: other, right } = first
        && other == op
    {
        operands.push(right);
        first = left;
    }
    operands.push(first);
    operands.reverse();
    operands
}

fn arithmetic_operator(op: &BinaryOperator) -> Option<Op> {
    Some(match op {
        BinaryOperator::Plus => Op::Add,
        BinaryOperator::Minus => Op::Subtract,
        BinaryOperator::Multiply => Op::Multiply,
        BinaryOperator::Divide => Op::Divide,
        BinaryOperator::Modulo => Op::Remainder,
        _ => return None,
    })
}

fn plain_argument(arg: &FunctionArg) -> Result<&ast::Expr> {
    match arg {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Ok(expr),
        FunctionArg::Unnamed(_) => Err(Error::invalid("`*`", "an expression")),
        _ => Err(Error::unsupported("named arguments of this function")),
    }
}

fn ambiguous(name: &Name) -> Error {
    Error::invalid(
        format!("name `{}`, which several relations have", name.text),
        "it with its relation before it",
    )
    .at(name.position)
}

fn field(value: Expr, name: &Name) -> Result<Expr> {
    let DataType::Row(fields) = &value.ty().data else {
        return Err(Error::invalid(
            format!("`.{}` of {}", name.text, value.ty().data),
            "a ROW before the point",
        )
        .at(name.position));
    };
    let Some(index) = fields.iter().position(|(field, _)| *field == name.text) else {
        return Err(Error::invalid(format!("field `{}`", name.text), "a field of the ROW")
            .at(name.position)
            .did_you_mean(&name.text, fields.iter().map(|(name, _)| name.as_str())));
    };
    let ty = fields[index].1.clone().or_null(value.ty().nullable);
    Ok(Expr::Op(Op::Field(index), vec![value], ty))
}

fn negate(value: Expr) -> Expr {
    Expr::truth(Op::Not, vec![value])
}

fn negate_if(negated: bool, value: Expr) -> Expr {
    if negated { negate(value) } else { value }
}

fn meet(a: &DataType, b: &DataType) -> Result<DataType> {
    coerce::comparable(a, b).ok_or_else(|| {
        Error::invalid(format!("{a} compared with {b}"), "types with a common type").hint("cast one")
    })
}

/// Both sides of a comparison, cast to one type.
pub(super) fn comparison(op: Op, a: Expr, b: Expr) -> Result<Expr> {
    let ty = meet(&a.ty().data, &b.ty().data)?;
    if !ty.is_ordered() && !matches!(op, Op::Equal | Op::NotEqual | Op::Same) {
        return Err(Error::invalid(format!("an order of {ty}"), "= or <>"));
    }
    let args = vec![a.cast_to(&ty), b.cast_to(&ty)];
    Ok(match op {
        Op::Same => Expr::Op(op, args, Type::not_null(DataType::Boolean)),
        op => Expr::truth(op, args),
    })
}

/// Arithmetic with coerced sides.
pub(super) fn arithmetic(op: Op, a: Expr, b: Expr) -> Result<Expr> {
    let (left, right) = (a.ty().data.clone(), b.ty().data.clone());
    let nullable = a.ty().nullable || b.ty().nullable;
    let moment = |data: &DataType| data.is_timestamp() || matches!(data, DataType::Date | DataType::Time(_));
    let refused = || {
        Error::invalid(
            format!("{left} and {right} around an arithmetic operator"),
            "numbers, or a time and an interval",
        )
    };
    // An interval on the left of + or * means the same as on the right.
    if matches!(op, Op::Add | Op::Multiply) && left.is_interval() && !right.is_interval() {
        if op == Op::Multiply && right.is_integer() {
            let ty = Type { data: left, nullable };
            return Ok(Expr::Op(op, vec![a, b.cast_to(&DataType::BigInt)], ty));
        }
        return if op == Op::Add { arithmetic(op, b, a) } else { Err(refused()) };
    }
    if right.is_interval() {
        let data = match (&left, op) {
            (DataType::Time(precision), Op::Add | Op::Subtract) if right == DataType::IntervalMillis => {
                DataType::Time(*precision)
            }
            (DataType::Timestamp(precision), Op::Add | Op::Subtract) => {
                DataType::Timestamp((*precision).max(3))
            }
            (DataType::TimestampLtz(precision), Op::Add | Op::Subtract) => {
                DataType::TimestampLtz((*precision).max(3))
            }
            (data, Op::Add | Op::Subtract) if moment(data) || *data == right => data.clone(),
            (data, Op::Multiply) if data.is_integer() => return arithmetic(op, b, a),
            _ => return Err(refused()),
        };
        return Ok(Expr::Op(op, vec![a, b], Type { data, nullable }));
    }
    if moment(&left) && moment(&right) {
        return Err(refused().hint("use TIMESTAMPDIFF(unit, from, to)"));
    }
    let data = match op {
        Op::Add | Op::Subtract => coerce::sum(&left, &right),
        Op::Multiply => coerce::product(&left, &right),
        Op::Divide => coerce::quotient(&left, &right),
        _ => coerce::remainder(&left, &right),
    };
    let Some(data) = data else { return Err(refused()) };
    // DECIMALs keep their own scale; a result beyond 38 digits is NULL.
    let (a, b, nullable) = match data {
        DataType::Decimal { precision, .. } => {
            let side = |side: Expr| match side.ty().data.as_decimal() {
                Some((precision, scale)) => side.cast_to(&DataType::Decimal { precision, scale }),
                None => side.cast_to(&data),
            };
            (side(a), side(b), nullable || precision == crate::types::PRECISION_MAX)
        }
        // A remainder has the divisor's type, and is computed in the wider type.
        ref data if op == Op::Remainder && data.is_integer() => {
            let wide = coerce::common(&left, &right).unwrap_or(DataType::BigInt);
            let value = Expr::Op(op, vec![a.cast_to(&wide), b.cast_to(&wide)], Type { data: wide, nullable });
            return Ok(value.cast_to(data));
        }
        ref data => (a.cast_to(data), b.cast_to(data), nullable),
    };
    let ty = Type { data, nullable };
    // Extends a sum of the same type: it is still computed from left to right, and a long sum is not deep.
    match a {
        Expr::Op(Op::Add, mut terms, of) if op == Op::Add && of.data == ty.data => {
            terms.push(b);
            Ok(Expr::Op(op, terms, ty))
        }
        a => Ok(Expr::Op(op, vec![a, b], ty)),
    }
}

/// Casts values to their common type.
fn branches(values: Vec<Expr>) -> Result<(Vec<Expr>, Type)> {
    let mut common: Option<Type> = None;
    for value in &values {
        common = Some(match common {
            None => value.ty().clone(),
            Some(ty) => coerce::common_type(&ty, value.ty()).ok_or_else(|| {
                Error::invalid(format!("{} and {}", value.ty().data, ty.data), "types with a common type")
                    .hint("cast one")
            })?,
        });
    }
    let Some(ty) = common else { return Err(Error::invalid("no values", "one at least")) };
    let values: Vec<Expr> = values.into_iter().map(|value| value.cast_to(&ty.data)).collect();
    let nullable = values.iter().any(|value| value.ty().nullable);
    Ok((values, Type { nullable, ..ty }))
}

/// CASE of tests, with one more result than tests.
fn case_of(tests: Vec<Expr>, results: Vec<Expr>) -> Result<Expr> {
    let (mut results, ty) = branches(results)?;
    let Some(otherwise) = results.pop() else { return Err(Error::invalid("no result", "one at least")) };
    Ok(Expr::Case(tests.into_iter().zip(results).collect(), Box::new(otherwise), ty))
}
