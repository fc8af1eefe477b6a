//! Functions of dates and times. A unit is the first argument, as text; the binder has checked it.

use super::Nulls::{Strict, StrictAndMore};
use super::Param::{Integer, Temporal, Text, Timestamp};
use super::{Call, Function, Returns, function};
use crate::error::Result;
use crate::types::time::{self, DAY_MICROS, MILLI_MICROS, Unit};
use crate::types::{DataType, Type, Value};

const BIGINT: Returns = Returns::Type(&DataType::BigInt);
const STRING: Returns = Returns::Type(&DataType::STRING);
const LTZ: DataType = DataType::TimestampLtz(3);

pub(super) const FUNCTIONS: &[Function] = &[
    function("EXTRACT", &[Text, Temporal], BIGINT, Strict, |c| Ok(Value::Int(unit(c).extract(micros(c, 1))))),
    function("TIMESTAMPADD", &[Text, Integer, Temporal], Returns::Rule(added), Strict, |c| {
        let moved = unit(c).add(micros(c, 2), c.int(1));
        Ok(Value::Int(if c.ty.data == DataType::Date { moved.div_euclid(DAY_MICROS) } else { moved }))
    }),
    function("TIMESTAMPDIFF", &[Text, Temporal, Temporal], Returns::Type(&DataType::Int), Strict, |c| {
        Ok(Value::Int(i64::from(unit(c).between(micros(c, 1), micros(c, 2)) as i32)))
    }),
    function("TIME_FLOOR", &[Text, Temporal], Returns::Argument(1), Strict, |c| {
        Ok(edge(c, unit(c).floor(micros(c, 1))))
    }),
    function("TIME_CEIL", &[Text, Temporal], Returns::Argument(1), Strict, |c| {
        Ok(edge(c, unit(c).ceil(micros(c, 1))))
    }),
    function("DATE_FORMAT", &[Timestamp, Text], STRING, Strict, |c| {
        Ok(Value::string(time::format(c.int(0), c.text(1))?))
    })
    .fails(),
    function("TO_DATE", &[Text, Text], Returns::Type(&DataType::Date), StrictAndMore, |c| {
        Ok(read(c)?.map_or(Value::Null, |micros| Value::Int(micros.div_euclid(DAY_MICROS))))
    })
    .optional(1)
    .fails(),
    function("TO_TIMESTAMP", &[Text, Text], Returns::Type(&DataType::Timestamp(3)), StrictAndMore, |c| {
        Ok(read(c)?.map_or(Value::Null, |micros| Value::Int(time::truncate(micros, 3))))
    })
    .optional(1)
    .fails(),
    function("TO_TIMESTAMP_LTZ", &[Integer, Integer], Returns::Type(&LTZ), StrictAndMore, |c| {
        let factor = match c.int_or(1, 3) {
            0 => 1_000_000,
            3 => MILLI_MICROS,
            _ => return Ok(Value::Null),
        };
        Ok(c.int(0).checked_mul(factor).map_or(Value::Null, Value::Int))
    })
    .optional(1),
    function("FROM_UNIXTIME", &[Integer, Text], STRING, StrictAndMore, |c| {
        let pattern = if c.args.len() > 1 { c.text(1) } else { "yyyy-MM-dd HH:mm:ss" };
        match c.int(0).checked_mul(1_000_000) {
            Some(micros) => Ok(Value::string(time::format(micros, pattern)?)),
            None => Ok(Value::Null),
        }
    })
    .optional(1)
    .fails(),
    function("UNIX_TIMESTAMP", &[Text, Text], BIGINT, Strict, |c| {
        let micros = if c.args.is_empty() { Some(c.clock.now) } else { read(c)? };
        // A text that is not a time gives the least value, as in Flink.
        Ok(Value::Int(micros.map_or(i64::MIN, |micros| micros.div_euclid(1_000_000))))
    })
    .optional(2)
    .volatile()
    .fails(),
    function("CURRENT_TIMESTAMP", &[], Returns::Type(&LTZ), Strict, |c| {
        Ok(Value::Int(time::truncate(c.clock.now, 3)))
    })
    .volatile(),
    function("LOCALTIMESTAMP", &[], Returns::Type(&DataType::Timestamp(3)), Strict, |c| {
        Ok(Value::Int(time::truncate(c.clock.now, 3)))
    })
    .volatile(),
    function("PROCTIME", &[], Returns::Type(&LTZ), Strict, |c| {
        Ok(Value::Int(time::truncate(c.clock.now, 3)))
    })
    .volatile(),
    function("CURRENT_DATE", &[], Returns::Type(&DataType::Date), Strict, |c| {
        Ok(Value::Int(c.clock.now.div_euclid(DAY_MICROS)))
    })
    .volatile(),
    function("CURRENT_TIME", &[], Returns::Type(&DataType::Time(0)), Strict, clock).volatile(),
    function("LOCALTIME", &[], Returns::Type(&DataType::Time(0)), Strict, clock).volatile(),
];

fn clock(c: &Call<'_>) -> Result<Value> {
    Ok(Value::Int(c.clock.now.rem_euclid(DAY_MICROS) / 1_000_000 * 1000))
}

fn unit(c: &Call<'_>) -> Unit {
    Unit::parse(c.text(0)).unwrap_or(Unit::Day)
}

/// Argument `index` as microseconds.
fn micros(c: &Call<'_>, index: usize) -> i64 {
    match c.types[index].data {
        DataType::Date => c.int(index).wrapping_mul(DAY_MICROS),
        DataType::Time(_) => c.int(index).wrapping_mul(MILLI_MICROS),
        _ => c.int(index),
    }
}

/// Microseconds as a value of argument 1's type.
fn edge(c: &Call<'_>, micros: i64) -> Value {
    Value::Int(match c.types[1].data {
        DataType::Date => micros.div_euclid(DAY_MICROS),
        DataType::Time(_) => micros.rem_euclid(DAY_MICROS) / MILLI_MICROS,
        _ => micros,
    })
}

/// A date plus days or more stays a date; plus less it becomes a timestamp.
fn added(types: &[Type]) -> DataType {
    match types.get(2).map(|ty| &ty.data) {
        Some(DataType::Time(_)) | None => DataType::Timestamp(3),
        Some(other) => other.clone(),
    }
}

fn read(c: &Call<'_>) -> Result<Option<i64>> {
    match c.args.len() {
        1 => Ok(time::parse_timestamp(c.text(0))),
        _ => time::parse(c.text(0), c.text(1)),
    }
}
