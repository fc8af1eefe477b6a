//! Type coercion: the common type of branches and comparisons, and the results of arithmetic, by Flink's rules.

use super::{DataType, LENGTH_MAX, PRECISION_MAX, Type};

/// A DECIMAL of this precision and scale. If that exceeds 38 digits, the scale shrinks: the digits before the point are
/// kept, and at least six after it.
fn decimal(precision: u32, scale: u32) -> DataType {
    let max = u32::from(PRECISION_MAX);
    let (precision, scale) = if precision <= max {
        (precision, scale)
    } else {
        let whole = precision - scale;
        (max, max.saturating_sub(whole).max(scale.min(6)))
    };
    DataType::Decimal { precision: precision as u8, scale: scale as u8 }
}

/// The type that `a + b` or `a - b` has for numbers.
pub fn sum(a: &DataType, b: &DataType) -> Option<DataType> {
    numeric(a, b, |(p1, s1), (p2, s2)| {
        let scale = s1.max(s2);
        decimal((p1 - s1).max(p2 - s2) + scale + 1, scale)
    })
}

/// The type that `a * b` has for numbers.
pub fn product(a: &DataType, b: &DataType) -> Option<DataType> {
    numeric(a, b, |(p1, s1), (p2, s2)| decimal(p1 + p2 + 1, s1 + s2))
}

/// The type that `a / b` has for numbers. For two integers it is an integer.
pub fn quotient(a: &DataType, b: &DataType) -> Option<DataType> {
    numeric(a, b, |(p1, s1), (p2, s2)| {
        let scale = (s1 + p2 + 1).max(6);
        decimal(p1 - s1 + s2 + scale, scale)
    })
}

/// The type that `a % b` has for numbers: that of the remainder.
pub fn remainder(a: &DataType, b: &DataType) -> Option<DataType> {
    if a.is_integer() && b.is_integer() {
        return Some(b.clone());
    }
    numeric(a, b, |(p1, s1), (p2, s2)| {
        let scale = s1.max(s2);
        decimal((p1 - s1).min(p2 - s2) + scale, scale)
    })
}

/// Approximate types win over exact ones, and of two integer types the wider wins; `rule` is for DECIMALs.
fn numeric(
    a: &DataType,
    b: &DataType,
    rule: impl Fn((u32, u32), (u32, u32)) -> DataType,
) -> Option<DataType> {
    if let (DataType::Null, other) | (other, DataType::Null) = (a, b) {
        return other.is_numeric().then(|| other.clone());
    }
    if !a.is_numeric() || !b.is_numeric() {
        return None;
    }
    if a.is_approximate() || b.is_approximate() {
        // FLOAT stays FLOAT only with integers and with FLOAT.
        let narrow = |ty: &DataType| matches!(ty, DataType::Float) || ty.is_integer();
        return Some(if narrow(a) && narrow(b) { DataType::Float } else { DataType::Double });
    }
    if a.is_integer() && b.is_integer() {
        return Some(if width(a) >= width(b) { a.clone() } else { b.clone() });
    }
    let wide = |(precision, scale): (u8, u8)| (u32::from(precision), u32::from(scale));
    Some(rule(wide(a.as_decimal()?), wide(b.as_decimal()?)))
}

fn width(ty: &DataType) -> usize {
    ty.fixed_bytes().unwrap_or(0)
}

/// The type that both can be cast to without loss, as branches of CASE, members of a set operation, or sides of a
/// comparison. `None` if there is no such type.
pub fn common(a: &DataType, b: &DataType) -> Option<DataType> {
    use DataType::*;
    Some(match (a, b) {
        (a, b) if a == b => a.clone(),
        (Null, other) | (other, Null) => other.clone(),
        (a, b) if a.is_numeric() && b.is_numeric() => {
            return numeric(a, b, |(p1, s1), (p2, s2)| {
                let scale = s1.max(s2);
                decimal((p1 - s1).max(p2 - s2) + scale, scale)
            });
        }
        // With different lengths, values are not padded.
        (Char(a) | Varchar(a), Char(b) | Varchar(b)) => Varchar(*a.max(b)),
        (Time(a), Time(b)) => Time(*a.max(b)),
        (Timestamp(a), Timestamp(b)) => Timestamp(*a.max(b)),
        (TimestampLtz(a), TimestampLtz(b))
        | (Timestamp(a), TimestampLtz(b))
        | (TimestampLtz(a), Timestamp(b)) => TimestampLtz(*a.max(b)),
        (Date, other) | (other, Date) if other.is_timestamp() => other.clone(),
        (Array(a), Array(b)) => Array(common_type(a, b)?.into()),
        (Row(a), Row(b)) if a.len() == b.len() => {
            let fields: Option<Vec<_>> = a
                .iter()
                .zip(b.iter())
                .map(|((name, a), (_, b))| Some((name.clone(), common_type(a, b)?)))
                .collect();
            Row(fields?.into())
        }
        _ => return None,
    })
}

/// [`common`] with nullability: nullable if either type is.
pub fn common_type(a: &Type, b: &Type) -> Option<Type> {
    Some(Type { data: common(&a.data, &b.data)?, nullable: a.nullable || b.nullable })
}

/// The type that both sides of a comparison are cast to. Besides [`common`] types, a string can be compared with a
/// number, a date or a time: it is parsed as one.
pub fn comparable(a: &DataType, b: &DataType) -> Option<DataType> {
    let read = |text: &DataType, other: &DataType| {
        let readable =
            other.is_numeric() || matches!(other, DataType::Date | DataType::Time(_)) || other.is_timestamp();
        (text.is_character() && readable).then(|| match other {
            // A string may hold a number too large for the integer's type.
            other if other.is_numeric() => DataType::Double,
            DataType::Timestamp(_) => DataType::Timestamp(super::FRACTION_MAX),
            DataType::TimestampLtz(_) => DataType::TimestampLtz(super::FRACTION_MAX),
            other => other.clone(),
        })
    };
    common(a, b).or_else(|| read(a, b)).or_else(|| read(b, a))
}

/// The type of `a || b` for strings.
pub fn concatenated(a: &DataType, b: &DataType) -> Option<DataType> {
    let add = |a: &u32, b: &u32| a.saturating_add(*b).min(LENGTH_MAX);
    Some(match (a, b) {
        (DataType::Char(a), DataType::Char(b)) => DataType::Char(add(a, b)),
        (DataType::Char(a) | DataType::Varchar(a), DataType::Char(b) | DataType::Varchar(b)) => {
            DataType::Varchar(add(a, b))
        }
        (DataType::Null, DataType::Char(_) | DataType::Varchar(_))
        | (DataType::Char(_) | DataType::Varchar(_), DataType::Null) => DataType::STRING,
        _ => return None,
    })
}

/// Whether a value of one type may be stored in a column of another without CAST. As in Flink's INSERT, numbers widen,
/// strings take values that fit, and timestamps change their precision.
pub fn stores_as(from: &DataType, to: &DataType) -> bool {
    use DataType::*;
    match (from, to) {
        (a, b) if a == b => true,
        (Null, _) => true,
        (a, b) if a.is_integer() && b.is_integer() => width(a) <= width(b),
        (a, b) if a.is_numeric() && b.is_approximate() => !(matches!(a, Double) && matches!(b, Float)),
        (a, Decimal { precision, scale }) => a.as_decimal().is_some_and(|(from, from_scale)| {
            from - from_scale <= precision.saturating_sub(*scale) && from_scale <= *scale
        }),
        (Char(a) | Varchar(a), Char(b) | Varchar(b)) => a <= b,
        (Timestamp(_) | TimestampLtz(_), Timestamp(_) | TimestampLtz(_)) => true,
        (Date, Timestamp(_) | TimestampLtz(_)) => true,
        (Time(_), Time(_)) => true,
        (Array(a), Array(b)) => stores_as(&a.data, &b.data) && (b.nullable || !a.nullable),
        (Row(a), Row(b)) => {
            let each = |((_, a), (_, b)): (&(String, Type), &(String, Type))| {
                stores_as(&a.data, &b.data) && (b.nullable || !a.nullable)
            };
            a.len() == b.len() && a.iter().zip(b.iter()).all(each)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use DataType::*;

    fn dec(precision: u8, scale: u8) -> DataType {
        Decimal { precision, scale }
    }

    #[test]
    fn decimal_arithmetic_has_the_precision_of_flink() {
        assert_eq!(product(&dec(3, 3), &BigInt), Some(dec(23, 3)), "Nexmark's 0.908 * price");
        assert_eq!(sum(&dec(10, 2), &dec(5, 4)), Some(dec(13, 4)));
        assert_eq!(quotient(&dec(10, 2), &dec(5, 2)), Some(dec(18, 8)));
        assert_eq!(quotient(&Int, &BigInt), Some(BigInt));
        assert_eq!(remainder(&dec(10, 2), &dec(5, 3)), Some(dec(5, 3)));
        // More than 38 digits: digits after the point are dropped, down to six.
        assert_eq!(product(&dec(38, 10), &dec(38, 10)), Some(dec(38, 6)));
        assert_eq!(product(&dec(20, 10), &dec(20, 10)), Some(dec(38, 17)));
    }

    #[test]
    fn the_common_type_is_the_wider_one() {
        assert_eq!(common(&Int, &SmallInt), Some(Int));
        assert_eq!(common(&Float, &Int), Some(Float));
        assert_eq!(common(&Float, &dec(3, 1)), Some(Double));
        assert_eq!(common(&Int, &dec(3, 2)), Some(dec(12, 2)));
        assert_eq!(common(&Char(3), &Char(5)), Some(Varchar(5)));
        assert_eq!(common(&Timestamp(3), &TimestampLtz(6)), Some(TimestampLtz(6)));
        assert_eq!(common(&Null, &Date), Some(Date));
        assert_eq!(common(&Int, &DataType::STRING), None);
        assert_eq!(comparable(&Int, &DataType::STRING), Some(Double));
        assert_eq!(comparable(&Boolean, &Int), None);
    }

    #[test]
    fn a_value_stored_without_a_cast_loses_nothing() {
        assert!(stores_as(&Int, &BigInt));
        assert!(!stores_as(&BigInt, &Int));
        assert!(stores_as(&Char(3), &DataType::STRING));
        assert!(!stores_as(&DataType::STRING, &Varchar(5)));
        assert!(stores_as(&Int, &dec(10, 0)));
        assert!(!stores_as(&Int, &dec(9, 0)));
        assert!(!stores_as(&dec(23, 3), &BigInt));
    }
}
