//! Aggregate functions: their types, state and results.

use std::collections::BTreeSet;
use std::fmt;

use super::bounded;
use crate::error::{Error, Result};
use crate::types::{DataType, OrderedValue, PRECISION_MAX, Type, Value, cast, decimal};

/// The aggregate functions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum AggregateKind {
    Count,
    Sum,
    Avg,
    Min,
    Max,
    /// An estimate of the number of distinct values; the reference counts them exactly.
    ApproxCountDistinct,
    FirstValue,
    LastValue,
    ArrayAgg,
    ListAgg,
}

impl AggregateKind {
    const ALL: [(&'static str, AggregateKind); 10] = [
        ("COUNT", AggregateKind::Count),
        ("SUM", AggregateKind::Sum),
        ("AVG", AggregateKind::Avg),
        ("MIN", AggregateKind::Min),
        ("MAX", AggregateKind::Max),
        ("APPROX_COUNT_DISTINCT", AggregateKind::ApproxCountDistinct),
        ("FIRST_VALUE", AggregateKind::FirstValue),
        ("LAST_VALUE", AggregateKind::LastValue),
        ("ARRAY_AGG", AggregateKind::ArrayAgg),
        ("LISTAGG", AggregateKind::ListAgg),
    ];

    /// The aggregate with this name.
    pub fn find(name: &str) -> Option<AggregateKind> {
        let upper = name.to_ascii_uppercase();
        Self::ALL.iter().find(|(name, _)| *name == upper).map(|(_, kind)| *kind)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, kind)| *kind == self).map_or("", |(name, _)| name)
    }

    /// The names of all aggregates.
    pub fn names() -> impl Iterator<Item = &'static str> {
        Self::ALL.iter().map(|(name, _)| *name)
    }

    /// Aggregates that Flink has and this engine does not.
    pub fn is_flinks(name: &str) -> bool {
        const OTHERS: &[&str] = &[
            "COLLECT",
            "STDDEV",
            "STDDEV_POP",
            "STDDEV_SAMP",
            "VARIANCE",
            "VAR_POP",
            "VAR_SAMP",
            "PERCENTILE",
            "RANK",
            "DENSE_RANK",
            "CUME_DIST",
            "PERCENT_RANK",
            "JSON_OBJECTAGG",
            "JSON_ARRAYAGG",
        ];
        OTHERS.contains(&name.to_ascii_uppercase().as_str())
    }

    /// The result's type for an argument of `argument`; `grouped` says whether a group has at least one row.
    pub fn result(self, argument: Option<&Type>, grouped: bool) -> Result<Type> {
        let refuse = |wanted: &str| {
            let found = argument.map_or("no argument".to_owned(), Type::to_string);
            Err(Error::invalid(format!("{found} as argument of {}", self.name()), wanted))
        };
        if matches!(self, AggregateKind::Count | AggregateKind::ApproxCountDistinct) {
            return Ok(Type::not_null(DataType::BigInt));
        }
        let Some(argument) = argument else { return refuse("one argument") };
        let data = match self {
            AggregateKind::Count | AggregateKind::ApproxCountDistinct => DataType::BigInt,
            AggregateKind::Sum | AggregateKind::Avg => match &argument.data {
                DataType::Decimal { scale, .. } => DataType::Decimal {
                    precision: PRECISION_MAX,
                    scale: if self == AggregateKind::Avg { (*scale).max(6) } else { *scale },
                },
                data if data.is_numeric() => data.clone(),
                _ => return refuse("a number"),
            },
            AggregateKind::Min | AggregateKind::Max => match &argument.data {
                data if data.is_ordered() => data.clone(),
                _ => return refuse("a type with an order"),
            },
            AggregateKind::ListAgg => match &argument.data {
                data if data.is_character() => DataType::STRING,
                _ => return refuse("a string"),
            },
            AggregateKind::ArrayAgg => DataType::Array(argument.clone().into()),
            AggregateKind::FirstValue | AggregateKind::LastValue => argument.data.clone(),
        };
        Ok(Type { data, nullable: argument.nullable || !grouped })
    }

    /// Its state for a group, if that is of fixed size: names and types.
    pub fn state(self, argument: Option<&Type>, result: &Type) -> Option<Vec<(&'static str, DataType)>> {
        let argument = argument.map(|ty| ty.data.clone());
        Some(match self {
            AggregateKind::Count => vec![("count", DataType::BigInt)],
            AggregateKind::Sum => vec![("sum", result.data.clone())],
            AggregateKind::Avg => {
                let sum = match argument? {
                    data if data.is_integer() => DataType::BigInt,
                    DataType::Decimal { scale, .. } => DataType::Decimal { precision: PRECISION_MAX, scale },
                    _ => DataType::Double,
                };
                vec![("sum", sum), ("count", DataType::BigInt)]
            }
            AggregateKind::Min => vec![("min", result.data.clone())],
            AggregateKind::Max => vec![("max", result.data.clone())],
            AggregateKind::FirstValue => vec![("first", result.data.clone())],
            AggregateKind::LastValue => vec![("last", result.data.clone())],
            AggregateKind::ApproxCountDistinct => vec![("registers", DataType::Bytes)],
            AggregateKind::ArrayAgg | AggregateKind::ListAgg => return None,
        })
    }
}

/// One aggregate of a node: over columns of the node's input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Aggregate {
    /// The function.
    pub kind: AggregateKind,
    /// The column that it aggregates; `None` for COUNT(*).
    pub argument: Option<usize>,
    /// Whether equal values count only once.
    pub distinct: bool,
    /// A column of truth values: rows where it is not TRUE do not count.
    pub filter: Option<usize>,
    /// The separator of LISTAGG.
    pub separator: Option<String>,
    /// The result's type.
    pub ty: Type,
}

impl Aggregate {
    /// Its text in SQL, with names for columns.
    pub fn text(&self, name: &dyn Fn(usize) -> String) -> String {
        let mut text = format!("{}(", self.kind.name());
        if self.distinct {
            text.push_str("DISTINCT ");
        }
        text.push_str(&self.argument.map_or("*".to_owned(), name));
        if let Some(separator) = &self.separator {
            text.push_str(&format!(", '{separator}'"));
        }
        text.push(')');
        if let Some(filter) = self.filter {
            text.push_str(&format!(" FILTER {}", name(filter)));
        }
        text
    }
}

/// The state of one aggregate for one group.
#[derive(Debug, Clone)]
pub struct Accumulator {
    count: i64,
    value: Value,
    list: Vec<Value>,
    seen: BTreeSet<OrderedValue>,
}

impl Default for Accumulator {
    fn default() -> Self {
        Accumulator { count: 0, value: Value::Null, list: Vec::new(), seen: BTreeSet::new() }
    }
}

impl Accumulator {
    /// Adds a row of the group. `argument` is the type of the argument.
    pub fn add(&mut self, call: &Aggregate, row: &[Value], argument: Option<&Type>) {
        if call.filter.is_some_and(|filter| row[filter].as_truth() != Some(true)) {
            return;
        }
        let Some(column) = call.argument else {
            self.count += 1;
            return;
        };
        let value = &row[column];
        if value.is_null() && call.kind != AggregateKind::ArrayAgg {
            return;
        }
        let distinct = call.distinct || call.kind == AggregateKind::ApproxCountDistinct;
        if distinct && !self.seen.insert(OrderedValue(vec![value.clone()])) {
            return;
        }
        self.count += 1;
        let replace = match call.kind {
            AggregateKind::Count | AggregateKind::ApproxCountDistinct => false,
            AggregateKind::Sum | AggregateKind::Avg => {
                self.value = match (&self.value, value) {
                    (Value::Null, value) => value.clone(),
                    (Value::Int(a), Value::Int(b)) if call.kind == AggregateKind::Avg => {
                        Value::Int(a.wrapping_add(*b))
                    }
                    (Value::Int(a), Value::Int(b)) => {
                        Value::Int(cast::wrap(a.wrapping_add(*b), &call.ty.data))
                    }
                    (Value::Float(a), Value::Float(b)) => Value::Float(a + b),
                    (Value::Double(a), Value::Double(b)) => Value::Double(a + b),
                    // 38 digits of sum: no real number of rows reaches that limit.
                    (Value::Decimal(a), Value::Decimal(b)) => Value::Decimal(a.saturating_add(*b)),
                    (sum, _) => sum.clone(),
                };
                let _ = argument;
                false
            }
            AggregateKind::Min => self.value.is_null() || value.order(&self.value).is_lt(),
            AggregateKind::Max => self.value.is_null() || value.order(&self.value).is_gt(),
            AggregateKind::FirstValue => self.count == 1,
            AggregateKind::LastValue => true,
            AggregateKind::ArrayAgg | AggregateKind::ListAgg => {
                self.list.push(value.clone());
                false
            }
        };
        if replace {
            self.value = value.clone();
        }
    }

    /// The result over the rows added.
    ///
    /// # Errors
    /// The text of LISTAGG would be too long.
    pub fn result(&self, call: &Aggregate, argument: Option<&Type>) -> Result<Value> {
        Ok(match call.kind {
            AggregateKind::Count | AggregateKind::ApproxCountDistinct => Value::Int(self.count),
            AggregateKind::Sum => match &self.value {
                Value::Decimal(sum) if !decimal::fits(*sum, PRECISION_MAX) => Value::Null,
                value => value.clone(),
            },
            AggregateKind::Avg => match &self.value {
                Value::Int(sum) => Value::Int(cast::wrap(sum / self.count.max(1), &call.ty.data)),
                Value::Float(sum) => Value::Float(sum / self.count as f32),
                Value::Double(sum) => Value::Double(sum / self.count as f64),
                Value::Decimal(sum) => {
                    let from = argument.and_then(|ty| ty.data.as_decimal()).map_or(0, |(_, scale)| scale);
                    let to = call.ty.data.as_decimal().map_or(6, |(_, scale)| scale);
                    match decimal::divide(*sum, from, self.count.into(), 0, to) {
                        Some(mean) if decimal::fits(mean, PRECISION_MAX) => Value::Decimal(mean),
                        _ => Value::Null,
                    }
                }
                _ => Value::Null,
            },
            AggregateKind::ArrayAgg if self.list.is_empty() => Value::Null,
            AggregateKind::ArrayAgg => Value::Array(self.list.clone().into()),
            AggregateKind::ListAgg if self.list.is_empty() => Value::Null,
            AggregateKind::ListAgg => {
                let texts: Vec<&str> = self.list.iter().filter_map(Value::as_str).collect();
                let separator = call.separator.as_deref().unwrap_or(",");
                let between = separator.len().saturating_mul(texts.len() - 1);
                bounded(texts.iter().map(|text| text.len()).fold(between, usize::saturating_add), "LISTAGG")?;
                Value::string(texts.join(separator))
            }
            AggregateKind::Min
            | AggregateKind::Max
            | AggregateKind::FirstValue
            | AggregateKind::LastValue => self.value.clone(),
        })
    }
}

impl fmt::Display for AggregateKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_of_listagg_is_refused_above_its_bound_and_not_below_it() {
        let text = Value::string("x".repeat(1 << 20));
        let call = Aggregate {
            kind: AggregateKind::ListAgg,
            argument: Some(0),
            distinct: false,
            filter: None,
            separator: Some(String::new()),
            ty: Type { data: DataType::STRING, nullable: true },
        };
        let mut accumulator = Accumulator::default();
        for _ in 0..64 {
            accumulator.add(&call, std::slice::from_ref(&text), None);
        }
        let whole = accumulator.result(&call, None).unwrap();
        assert_eq!(whole.as_str().map(str::len), Some(64 << 20));
        let separated = Aggregate { separator: Some(",".to_owned()), ..call.clone() };
        let refused = accumulator.result(&separated, None).unwrap_err().to_string();
        assert_eq!(refused, "LISTAGG would make a text of 67108927 bytes; at most 67108864 are allowed");
        accumulator.add(&call, &[Value::string("x")], None);
        assert!(accumulator.result(&call, None).is_err());
    }
}
