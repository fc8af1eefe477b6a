//! Scalar functions: names as in Flink's list, typed signatures, and implementations.
//!
//! The arguments of a function are already cast to its parameters. A function with [`Nulls::Strict`] is not called with
//! a NULL: its result is NULL then. Text is counted in characters, from 1.

pub mod aggregate;
#[cfg(test)]
pub(crate) mod examples;
pub(crate) mod json;
mod math;
mod prepared;
mod regex;
mod string;
mod time;

pub(crate) use json::is_json;
pub(crate) use math::rounded;
pub(crate) use prepared::{Answer, Prepared};
pub(crate) use regex::{like, similar};
pub(crate) use string::bounded;

use crate::error::{Error, Result};
use crate::types::{DataType, Type, Value};

/// The type that an argument must have. An integer is cast to BIGINT, a number for [`Param::Double`] to DOUBLE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Param {
    Any,
    Text,
    Integer,
    Double,
    /// A number of any type, which is kept.
    Number,
    /// TIMESTAMP of either kind, kept; DATE becomes TIMESTAMP(0).
    Timestamp,
    /// DATE, TIME or TIMESTAMP, kept.
    Temporal,
}

/// The type of a result, without its nullability.
#[derive(Debug, Clone, Copy)]
pub enum Returns {
    /// Always this type.
    Type(&'static DataType),
    /// The type of the argument with this index.
    Argument(usize),
    /// Computed from the arguments' types.
    Rule(fn(&[Type]) -> DataType),
}

/// How a function handles NULL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Nulls {
    /// NULL if and only if an argument is.
    Strict,
    /// NULL if an argument is, and for some values too.
    StrictAndMore,
    /// The function is called with NULLs, and its result may be NULL.
    Called,
    /// The function is called with NULLs, and its result is never NULL.
    Never,
}

/// The current time, as an expression sees it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Clock {
    /// Microseconds since 1970-01-01 00:00 UTC.
    pub now: i64,
}

/// One call: values, their types, the result's type.
pub struct Call<'a> {
    /// Arguments.
    pub args: &'a [Value],
    /// Their types.
    pub types: &'a [Type],
    /// The result's type.
    pub ty: &'a Type,
    /// The current time.
    pub clock: Clock,
}

impl Call<'_> {
    /// Argument `index` as text; empty if it is not a text.
    fn text(&self, index: usize) -> &str {
        self.args.get(index).and_then(Value::as_str).unwrap_or_default()
    }

    /// Argument `index` as an integer, or `otherwise` if it is not given.
    fn int_or(&self, index: usize, otherwise: i64) -> i64 {
        self.args.get(index).and_then(Value::as_int).unwrap_or(otherwise)
    }

    fn int(&self, index: usize) -> i64 {
        self.int_or(index, 0)
    }

    fn double(&self, index: usize) -> f64 {
        match self.args.get(index) {
            Some(Value::Double(value)) => *value,
            _ => f64::NAN,
        }
    }
}

/// A scalar function.
pub struct Function {
    /// Its name in upper case.
    pub name: &'static str,
    /// The types of its parameters.
    pub params: &'static [Param],
    /// How many of the last parameters are optional.
    pub optional: usize,
    /// Whether the last parameter may be repeated.
    pub variadic: bool,
    /// The result's type.
    pub returns: Returns,
    /// How it handles NULL.
    pub nulls: Nulls,
    /// Whether equal arguments always give equal results.
    pub deterministic: bool,
    /// Whether it may fail on a value.
    pub fails: bool,
    /// The implementation.
    pub eval: fn(&Call<'_>) -> Result<Value>,
}

impl std::fmt::Debug for Function {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

impl PartialEq for Function {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

const fn function(
    name: &'static str,
    params: &'static [Param],
    returns: Returns,
    nulls: Nulls,
    eval: fn(&Call<'_>) -> Result<Value>,
) -> Function {
    Function {
        name,
        params,
        optional: 0,
        variadic: false,
        returns,
        nulls,
        deterministic: true,
        fails: false,
        eval,
    }
}

impl Function {
    const fn optional(mut self, count: usize) -> Self {
        self.optional = count;
        self
    }

    const fn variadic(mut self) -> Self {
        self.variadic = true;
        self
    }

    const fn volatile(mut self) -> Self {
        self.deterministic = false;
        self
    }

    const fn fails(mut self) -> Self {
        self.fails = true;
        self
    }

    /// `TEXT, INTEGER [, TEXT]`: its parameters, for messages.
    pub fn signature(&self) -> String {
        let mut text = String::from(self.name);
        text.push('(');
        for (index, param) in self.params.iter().enumerate() {
            let name = match param {
                Param::Any => "any",
                Param::Text => "string",
                Param::Integer => "integer",
                Param::Double | Param::Number => "number",
                Param::Timestamp => "timestamp",
                Param::Temporal => "date or time",
            };
            if index >= self.params.len() - self.optional {
                text.push_str(if index == 0 { "[" } else { " [" });
            }
            if index > 0 {
                text.push_str(", ");
            }
            text.push_str(name);
        }
        if self.variadic {
            text.push_str(", ...");
        }
        text.push_str(&"]".repeat(self.optional));
        text.push(')');
        text
    }

    /// The types that arguments of these types are cast to, or an error.
    pub fn coerce(&self, types: &[Type]) -> Result<Vec<DataType>> {
        let least = self.params.len() - self.optional;
        if types.len() < least || (types.len() > self.params.len() && !self.variadic) {
            return Err(Error::invalid(
                format!("{} arguments of {}", types.len(), self.name),
                self.signature(),
            ));
        }
        types
            .iter()
            .enumerate()
            .map(|(index, ty)| {
                let param = self.params.get(index).or(self.params.last()).copied().unwrap_or(Param::Any);
                coerce_argument(param, &ty.data).ok_or_else(|| {
                    Error::invalid(
                        format!("{ty} as argument {} of {}", index + 1, self.name),
                        self.signature(),
                    )
                    .hint("cast it")
                })
            })
            .collect()
    }

    /// The result's type for arguments of these types.
    pub fn result(&self, types: &[Type]) -> Type {
        let data = match self.returns {
            Returns::Type(data) => data.clone(),
            Returns::Argument(index) => types.get(index).map_or(DataType::Null, |ty| ty.data.clone()),
            Returns::Rule(rule) => rule(types),
        };
        let nullable = match self.nulls {
            Nulls::Strict => types.iter().any(|ty| ty.nullable),
            Nulls::StrictAndMore | Nulls::Called => true,
            Nulls::Never => false,
        };
        Type { data, nullable }
    }

    /// Calls the function, unless a NULL argument decides the result.
    pub fn call(&self, call: &Call<'_>) -> Result<Value> {
        if matches!(self.nulls, Nulls::Strict | Nulls::StrictAndMore) && call.args.iter().any(Value::is_null)
        {
            return Ok(Value::Null);
        }
        (self.eval)(call)
    }
}

fn coerce_argument(param: Param, ty: &DataType) -> Option<DataType> {
    if *ty == DataType::Null {
        return Some(match param {
            Param::Any | Param::Temporal => DataType::Null,
            Param::Text => DataType::STRING,
            Param::Integer => DataType::BigInt,
            Param::Double | Param::Number => DataType::Double,
            Param::Timestamp => DataType::Timestamp(3),
        });
    }
    match param {
        Param::Any => Some(ty.clone()),
        Param::Text => ty.is_character().then(|| ty.clone()),
        Param::Integer => ty.is_integer().then_some(DataType::BigInt),
        Param::Double => ty.is_numeric().then_some(DataType::Double),
        Param::Number => ty.is_numeric().then(|| ty.clone()),
        Param::Timestamp if *ty == DataType::Date => Some(DataType::Timestamp(0)),
        Param::Timestamp => ty.is_timestamp().then(|| ty.clone()),
        Param::Temporal => {
            (ty.is_timestamp() || matches!(ty, DataType::Date | DataType::Time(_))).then(|| ty.clone())
        }
    }
}

pub(crate) fn tables() -> [&'static [Function]; 5] {
    [string::FUNCTIONS, regex::FUNCTIONS, json::FUNCTIONS, math::FUNCTIONS, time::FUNCTIONS]
}

/// The function with this name, in any case; some names are synonyms.
pub fn find(name: &str) -> Option<&'static Function> {
    let upper = name.to_ascii_uppercase();
    let name = match upper.as_str() {
        "CHARACTER_LENGTH" | "LENGTH" => "CHAR_LENGTH",
        "SUBSTR" => "SUBSTRING",
        "POW" => "POWER",
        "CEILING" => "CEIL",
        "NOW" => "CURRENT_TIMESTAMP",
        other => other,
    };
    tables().into_iter().flatten().find(|function| function.name == name)
}

/// The names of all functions.
pub fn names() -> impl Iterator<Item = &'static str> {
    tables().into_iter().flatten().map(|function| function.name)
}

/// Functions that Flink has and this engine does not, so that the error can say so instead of "unknown".
pub fn is_flinks(name: &str) -> bool {
    const OTHERS: &[&str] = &[
        "ARRAY_CONTAINS",
        "ARRAY_CONCAT",
        "ARRAY_DISTINCT",
        "ARRAY_JOIN",
        "ARRAY_MAX",
        "ARRAY_MIN",
        "ARRAY_POSITION",
        "ARRAY_REMOVE",
        "ARRAY_REVERSE",
        "ARRAY_SLICE",
        "ARRAY_SORT",
        "ARRAY_UNION",
        "CARDINALITY",
        "CONVERT_TZ",
        "CURRENT_ROW_TIMESTAMP",
        "CURRENT_WATERMARK",
        "DECODE",
        "ELEMENT",
        "ENCODE",
        "HOP_START",
        "HOP_END",
        "HOP_ROWTIME",
        "JSON_ARRAY",
        "JSON_ARRAYAGG",
        "JSON_OBJECT",
        "JSON_OBJECTAGG",
        "JSON_STRING",
        "LAG",
        "LEAD",
        "MAP",
        "MAP_KEYS",
        "MAP_VALUES",
        "MD5",
        "NTILE",
        "PARSE_URL",
        "RAND",
        "RAND_INTEGER",
        "SESSION_START",
        "SESSION_END",
        "SHA1",
        "SHA2",
        "SHA224",
        "SHA256",
        "SHA384",
        "SHA512",
        "SOUNDEX",
        "SOURCE_WATERMARK",
        "STR_TO_MAP",
        "TUMBLE_START",
        "TUMBLE_END",
        "TUMBLE_ROWTIME",
        "TYPEOF",
        "UNHEX",
        "URL_DECODE",
        "URL_ENCODE",
        "UUID",
    ];
    OTHERS.contains(&name.to_ascii_uppercase().as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_function_has_one_entry_and_a_signature() {
        let all: Vec<&str> = names().collect();
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len());
        for name in all {
            let function = find(name).unwrap();
            assert_eq!(function.name, name);
            assert!(function.optional <= function.params.len(), "{name}");
            assert!(!is_flinks(name), "{name} is there");
        }
        assert_eq!(find("substring").unwrap().signature(), "SUBSTRING(string, integer [, integer])");
    }
}
