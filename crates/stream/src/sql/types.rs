//! Parses types: `DECIMAL(10, 2)`, `TIMESTAMP(3) WITH LOCAL TIME ZONE`, `ROW<a INT NOT NULL>`.

use sqlparser::parser::Parser;
use sqlparser::tokenizer::Token;

use super::{from_library, position, unexpected};
use crate::error::{Error, Result};
use crate::types::{DataType, FRACTION_MAX, LENGTH_MAX, PRECISION_MAX, Type};

const NAMES: &[&str] = &[
    "ARRAY",
    "BIGINT",
    "BOOLEAN",
    "BYTES",
    "CHAR",
    "DATE",
    "DECIMAL",
    "DOUBLE",
    "FLOAT",
    "INT",
    "INTEGER",
    "NUMERIC",
    "ROW",
    "SMALLINT",
    "STRING",
    "TIME",
    "TIMESTAMP",
    "TIMESTAMP_LTZ",
    "TINYINT",
    "VARCHAR",
];

/// Types that Flink has and this engine does not.
const OTHERS: &[&str] =
    &["BINARY", "VARBINARY", "MAP", "MULTISET", "RAW", "VARIANT", "INTERVAL", "STRUCTURED"];

/// Maximum nesting of types, deeper than in any real data.
const DEPTH_MAX: usize = 20;

/// Encodes an error of this module as a library error; [`from_library`] decodes it.
pub(super) fn library_text(error: &Error) -> String {
    let text = error.to_string();
    let text = match error.position() {
        Some(_) => text.split_once(": ").map_or(text.clone(), |(_, rest)| rest.to_owned()),
        None => text,
    };
    match text.strip_prefix("found ").and_then(|rest| rest.split_once(", wanted ")) {
        Some((found, wanted)) => format!("Expected: {wanted}, found: {}", found.replace('`', "")),
        None => text,
    }
}

/// Reads a type and its nullability.
pub(super) fn parse(parser: &mut Parser<'_>) -> Result<Type> {
    // `>>` is one token of the tokenizer; this counts the `>` not used yet.
    let mut open = 0;
    let ty = parse_nested(parser, &mut open, 0)?;
    if open != 0 {
        return Err(unexpected(&parser.peek_token(), "as many `>` as `<`"));
    }
    Ok(ty)
}

fn parse_nested(parser: &mut Parser<'_>, open: &mut i32, depth: usize) -> Result<Type> {
    let token = parser.next_token();
    let Token::Word(word) = &token.token else { return Err(unexpected(&token, "a type of SQL")) };
    let place = position(token.span.start);
    if depth > DEPTH_MAX {
        return Err(Error::syntax("types nested too deep", format!("at most {DEPTH_MAX} levels")).at(place));
    }
    let name = word.value.to_ascii_uppercase();
    let data = match name.as_str() {
        "BOOLEAN" => DataType::Boolean,
        "TINYINT" => DataType::TinyInt,
        "SMALLINT" => DataType::SmallInt,
        "INT" | "INTEGER" => DataType::Int,
        "BIGINT" => DataType::BigInt,
        "FLOAT" => DataType::Float,
        "DOUBLE" => {
            let _ = is_next(parser, "PRECISION") && skip(parser);
            DataType::Double
        }
        "STRING" => DataType::STRING,
        "BYTES" => DataType::Bytes,
        "DATE" => DataType::Date,
        "CHAR" => DataType::Char(length(parser, 1)?),
        "VARCHAR" => DataType::Varchar(length(parser, 1)?),
        "DECIMAL" | "NUMERIC" | "DEC" => {
            let numbers = numbers(parser)?;
            let (precision, scale) =
                (numbers.first().copied().unwrap_or(10), numbers.get(1).copied().unwrap_or(0));
            if !(1..=u64::from(PRECISION_MAX)).contains(&precision) || scale > precision {
                let found = format!("DECIMAL({precision}, {scale})");
                return Err(
                    Error::invalid(found, "a precision from 1 to 38, and a scale not above it").at(place)
                );
            }
            DataType::Decimal { precision: precision as u8, scale: scale as u8 }
        }
        "TIME" => {
            let precision = fraction(parser, 0)?;
            if precision > 3 {
                return Err(Error::unsupported(format!("TIME({precision})"))
                    .at(place)
                    .hint("use TIME(3) at most"));
            }
            without_zone(parser);
            DataType::Time(precision)
        }
        "TIMESTAMP_LTZ" => DataType::TimestampLtz(fraction(parser, FRACTION_MAX)?),
        "TIMESTAMP" => {
            let precision = fraction(parser, FRACTION_MAX)?;
            if is_next(parser, "WITH") && skip(parser) {
                if !is_next(parser, "LOCAL") {
                    return Err(Error::unsupported("TIMESTAMP WITH TIME ZONE")
                        .at(place)
                        .hint("use TIMESTAMP_LTZ"));
                }
                for word in ["LOCAL", "TIME", "ZONE"] {
                    expect(parser, word)?;
                }
                DataType::TimestampLtz(precision)
            } else {
                without_zone(parser);
                DataType::Timestamp(precision)
            }
        }
        "ARRAY" => {
            expect_token(parser, &Token::Lt)?;
            let element = parse_nested(parser, open, depth + 1)?;
            close(parser, open)?;
            DataType::Array(element.into())
        }
        "ROW" => {
            let angle = parser.consume_token(&Token::Lt);
            if !angle {
                expect_token(parser, &Token::LParen)?;
            }
            let mut fields = Vec::new();
            loop {
                let name = parser.parse_identifier().map_err(from_library)?;
                let ty = parse_nested(parser, open, depth + 1)?;
                if is_next(parser, "COMMENT") && skip(parser) {
                    parser.next_token();
                }
                fields.push((name.value, ty));
                if *open < 0 || !parser.consume_token(&Token::Comma) {
                    break;
                }
            }
            if angle {
                close(parser, open)?;
            } else {
                expect_token(parser, &Token::RParen)?;
            }
            DataType::Row(fields.into())
        }
        other if OTHERS.contains(&other) => return Err(Error::unsupported(format!("type {other}")).at(place)),
        _ => {
            return Err(Error::syntax(format!("type `{}`", word.value), "a type of SQL")
                .at(place)
                .did_you_mean(&word.value, NAMES.iter().copied()));
        }
    };
    let mut ty = Type::nullable(data);
    if *open == 0 && is_next(parser, "NOT") && is_word(parser, 1, "NULL") {
        parser.next_token();
        parser.next_token();
        ty.nullable = false;
    } else if *open == 0 && is_next(parser, "NULL") {
        parser.next_token();
    }
    Ok(ty)
}

/// Takes a `>`, or half a `>>`.
fn close(parser: &mut Parser<'_>, open: &mut i32) -> Result<()> {
    if *open < 0 {
        *open += 1;
        return Ok(());
    }
    if parser.consume_token(&Token::ShiftRight) {
        *open -= 1;
        return Ok(());
    }
    expect_token(parser, &Token::Gt)
}

pub(super) fn is_word(parser: &Parser<'_>, nth: usize, word: &str) -> bool {
    matches!(&parser.peek_nth_token_ref(nth).token,
        Token::Word(found) if found.quote_style.is_none() && found.value.eq_ignore_ascii_case(word))
}

pub(super) fn is_next(parser: &Parser<'_>, word: &str) -> bool {
    is_word(parser, 0, word)
}

fn skip(parser: &mut Parser<'_>) -> bool {
    parser.next_token();
    true
}

/// Takes the word, or returns an error with the token found.
pub(super) fn expect(parser: &mut Parser<'_>, word: &str) -> Result<()> {
    if is_next(parser, word) {
        parser.next_token();
        return Ok(());
    }
    let found = parser.peek_token();
    let name = found.token.to_string();
    Err(unexpected(&found, word).did_you_mean(&name, [word]))
}

/// Takes the token, or returns an error with the token found.
pub(super) fn expect_token(parser: &mut Parser<'_>, token: &Token) -> Result<()> {
    if parser.consume_token(token) {
        Ok(())
    } else {
        Err(unexpected(&parser.peek_token(), &format!("`{token}`")))
    }
}

fn without_zone(parser: &mut Parser<'_>) {
    if is_next(parser, "WITHOUT") && is_word(parser, 1, "TIME") && is_word(parser, 2, "ZONE") {
        for _ in 0..3 {
            parser.next_token();
        }
    }
}

fn numbers(parser: &mut Parser<'_>) -> Result<Vec<u64>> {
    let mut numbers = Vec::new();
    if parser.consume_token(&Token::LParen) {
        loop {
            numbers.push(parser.parse_literal_uint().map_err(from_library)?);
            if !parser.consume_token(&Token::Comma) {
                break;
            }
        }
        expect_token(parser, &Token::RParen)?;
    }
    Ok(numbers)
}

fn length(parser: &mut Parser<'_>, otherwise: u32) -> Result<u32> {
    let place = position(parser.peek_token_ref().span.start);
    match numbers(parser)?.first() {
        None => Ok(otherwise),
        Some(length) if (1..=u64::from(LENGTH_MAX)).contains(length) => Ok(*length as u32),
        Some(length) => {
            Err(Error::invalid(format!("length {length}"), format!("1 to {LENGTH_MAX}")).at(place))
        }
    }
}

fn fraction(parser: &mut Parser<'_>, otherwise: u8) -> Result<u8> {
    let place = position(parser.peek_token_ref().span.start);
    match numbers(parser)?.first() {
        None => Ok(otherwise),
        Some(precision) if *precision <= u64::from(FRACTION_MAX) => Ok(*precision as u8),
        Some(precision @ 7..=9) => Err(Error::unsupported(format!("{precision} digits of a second"))
            .at(place)
            .hint("6 are kept at most")),
        Some(precision) => Err(Error::invalid(format!("precision {precision}"), "0 to 6").at(place)),
    }
}
