//! Functions of one text whose other arguments are constants: the constants are parsed once, when a query is compiled.
//! Each gives the same result as the function or operator of the same name.

use ::regex::{CaptureLocations, Regex};

use super::{regex, string};
use crate::error::Error;
use crate::expr::{Expr, Op};
use crate::types::Value;

/// A function of one text.
#[derive(Debug)]
pub(crate) enum Prepared {
    Lower,
    Upper,
    CharLength,
    Replace {
        from: String,
        to: String,
    },
    SplitIndex {
        by: String,
        index: i64,
    },
    Substring {
        start: i64,
        size: Option<i64>,
    },
    Left(i64),
    Right(i64),
    Trim {
        set: String,
        start: bool,
        end: bool,
    },
    Like(regex::Like),
    Matches(Regex),
    /// The text of a group of the first match, with space for the positions of all groups.
    Extract {
        regex: Regex,
        group: usize,
        places: CaptureLocations,
    },
    RegexReplace {
        regex: Regex,
        to: String,
    },
}

/// The result of a function.
#[derive(Debug, PartialEq)]
pub(crate) enum Answer<'t> {
    Null,
    Int(i64),
    Boolean(bool),
    /// A part of the argument.
    Part(&'t str),
    /// The text that it wrote.
    Made,
    /// The text would be too long.
    Failed(Error),
}

impl Prepared {
    /// The function of the first argument that an expression computes. `None` if other arguments are not constants, or
    /// if it fails for these.
    pub(crate) fn of(expr: &Expr) -> Option<Prepared> {
        let (name, args) = match expr {
            Expr::Call(function, args, _) => (function.name, args),
            Expr::Op(Op::Like, args, _) => ("LIKE", args),
            Expr::Op(Op::Similar, args, _) => ("SIMILAR", args),
            _ => return None,
        };
        let given = |index: usize| index < args.len();
        let int = |index: usize| match args.get(index) {
            Some(Expr::Literal(Value::Int(value), _)) => Some(*value),
            _ => None,
        };
        let text = |index: usize| match args.get(index) {
            Some(Expr::Literal(Value::String(text), _)) => Some(&**text),
            _ => None,
        };
        let trim = |start, end| {
            let set = if given(1) { text(1)? } else { " " };
            Some(Prepared::Trim { set: set.to_owned(), start, end })
        };
        let escape = || if given(2) { Some(text(2)?.chars().next()) } else { Some(None) };
        Some(match name {
            "LOWER" => Prepared::Lower,
            "UPPER" => Prepared::Upper,
            "CHAR_LENGTH" => Prepared::CharLength,
            "REPLACE" => Prepared::Replace { from: text(1)?.to_owned(), to: text(2)?.to_owned() },
            "SPLIT_INDEX" => Prepared::SplitIndex { by: text(1)?.to_owned(), index: int(2)? },
            "SUBSTRING" => {
                Prepared::Substring { start: int(1)?, size: if given(2) { Some(int(2)?) } else { None } }
            }
            "LEFT" => Prepared::Left(int(1)?),
            "RIGHT" => Prepared::Right(int(1)?),
            "BTRIM" => trim(true, true)?,
            "LTRIM" => trim(true, false)?,
            "RTRIM" => trim(false, true)?,
            "LIKE" => Prepared::Like(regex::Like::read(text(1)?, escape()?).ok()?),
            "SIMILAR" => {
                Prepared::Matches(regex::compile(&regex::similar_pattern(text(1)?, escape()?)).ok()?)
            }
            // An empty one matches nothing.
            "REGEXP" if text(1)?.is_empty() => return None,
            "REGEXP" => Prepared::Matches(regex::compile(text(1)?).ok()?),
            "REGEXP_EXTRACT" => {
                let regex = regex::compile(text(1)?).ok()?;
                let group = if given(2) { int(2)? } else { 0 };
                // A group that does not exist gives NULL, as one that did not take part in the match.
                let group = usize::try_from(group).unwrap_or(usize::MAX);
                let places = regex.capture_locations();
                Prepared::Extract { regex, group, places }
            }
            "REGEXP_REPLACE" => {
                Prepared::RegexReplace { regex: regex::compile(text(1)?).ok()?, to: text(2)?.to_owned() }
            }
            _ => return None,
        })
    }

    /// Whether it may make a text that is too long.
    pub(crate) fn makes(&self) -> bool {
        matches!(self, Prepared::Replace { .. } | Prepared::RegexReplace { .. })
    }

    /// The result for a text; text that it writes is appended to `made`.
    pub(crate) fn answer<'t>(&mut self, text: &'t str, made: &mut String) -> Answer<'t> {
        match self {
            Prepared::Lower if !text.is_ascii() => made.push_str(&text.to_lowercase()),
            Prepared::Lower if !text.bytes().any(|byte| byte.is_ascii_uppercase()) => {
                return Answer::Part(text);
            }
            Prepared::Lower => made.extend(text.chars().map(|char| char.to_ascii_lowercase())),
            Prepared::Upper if !text.is_ascii() => made.push_str(&text.to_uppercase()),
            Prepared::Upper if !text.bytes().any(|byte| byte.is_ascii_lowercase()) => {
                return Answer::Part(text);
            }
            Prepared::Upper => made.extend(text.chars().map(|char| char.to_ascii_uppercase())),
            Prepared::CharLength => return Answer::Int(string::characters(text) as i64),
            Prepared::Replace { from, to } => match string::replace(text, from, to, made) {
                Ok(true) => {}
                Ok(false) => return Answer::Part(text),
                Err(error) => return Answer::Failed(error),
            },
            Prepared::SplitIndex { by, index } => {
                return string::split_index(text, by, *index).map_or(Answer::Null, Answer::Part);
            }
            Prepared::Substring { start, size } => {
                return string::substring(text, *start, *size).map_or(Answer::Null, Answer::Part);
            }
            Prepared::Left(length) => return Answer::Part(string::left(text, *length)),
            Prepared::Right(length) => return Answer::Part(string::right(text, *length)),
            Prepared::Trim { set, start, end } => return Answer::Part(string::trim(text, set, *start, *end)),
            Prepared::Like(pattern) => return Answer::Boolean(pattern.matches(text)),
            Prepared::Matches(regex) => return Answer::Boolean(regex.is_match(text)),
            Prepared::Extract { regex, group, places } => {
                let place = regex.captures_read(places, text).and_then(|_| places.get(*group));
                return place.map_or(Answer::Null, |(from, to)| Answer::Part(&text[from..to]));
            }
            Prepared::RegexReplace { regex, to } => {
                if let Err(error) = regex::replace(regex, text, to, made) {
                    return Answer::Failed(error);
                }
            }
        }
        Answer::Made
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expr::eval;
    use crate::function::{Clock, find};
    use crate::types::{DataType, Type};

    const TEXTS: [&str; 12] = [
        "",
        " ",
        "abc",
        "ABC",
        "aXbXc",
        "Äpfel/Öl/öl",
        "a%b_c",
        "x=1&channel_id=7&y",
        "channel_id=",
        "  ab  ",
        "straße İ",
        "aaaa",
    ];

    fn text(value: &str) -> Expr {
        Expr::Literal(Value::string(value), Type { data: DataType::STRING, nullable: false })
    }

    fn int(value: i64) -> Expr {
        Expr::Literal(Value::Int(value), Type { data: DataType::BigInt, nullable: false })
    }

    #[test]
    fn a_prepared_function_returns_the_results_of_the_interpreter() {
        let column = Expr::Column(0, Type { data: DataType::STRING, nullable: false });
        let mut exprs = Vec::new();
        let mut call = |name: &str, rest: Vec<Expr>| {
            let function = find(name).unwrap();
            let args: Vec<Expr> = std::iter::once(column.clone()).chain(rest).collect();
            let types: Vec<Type> = args.iter().map(|arg| arg.ty().clone()).collect();
            exprs.push(Expr::Call(function, args, function.result(&types)));
        };
        for name in ["LOWER", "UPPER", "CHAR_LENGTH", "BTRIM", "LTRIM", "RTRIM"] {
            call(name, vec![]);
        }
        for name in ["BTRIM", "LTRIM", "RTRIM"] {
            call(name, vec![text(" a")]);
        }
        for (from, to) in [("a", ""), ("X", "yy"), ("", "z"), ("aa", "b"), ("Ö", "O"), ("ab", "")] {
            call("REPLACE", vec![text(from), text(to)]);
        }
        for by in ["", "/", "X", "Öl", "a"] {
            for index in [-1, 0, 1, 3, i64::MAX] {
                call("SPLIT_INDEX", vec![text(by), int(index)]);
            }
        }
        for start in [i64::MIN, -3, -1, 0, 1, 2, 5, i64::MAX] {
            call("SUBSTRING", vec![int(start)]);
            call("LEFT", vec![int(start)]);
            call("RIGHT", vec![int(start)]);
            for size in [i64::MIN, -1, 0, 1, 3, i64::MAX] {
                call("SUBSTRING", vec![int(start), int(size)]);
            }
        }
        for pattern in ["(&|^)channel_id=([^&]*)", "a", "a*", "", r"\w+$", "(x)|(a)"] {
            if !pattern.is_empty() {
                call("REGEXP", vec![text(pattern)]);
            }
            call("REGEXP_EXTRACT", vec![text(pattern)]);
            for group in [-1, 0, 1, 2, 3] {
                call("REGEXP_EXTRACT", vec![text(pattern), int(group)]);
            }
            call("REGEXP_REPLACE", vec![text(pattern), text("<$0>")]);
        }
        let boolean = Type { data: DataType::Boolean, nullable: false };
        for pattern in ["", "%", "a%", "%c", "_b_", "%a%b%", "a\\%b\\_c", "%l/_l%"] {
            for op in [Op::Like, Op::Similar] {
                let args = vec![column.clone(), text(pattern)];
                exprs.push(Expr::Op(op, args.clone(), boolean.clone()));
                let args = args.into_iter().chain([text("\\")]).collect();
                exprs.push(Expr::Op(op, args, boolean.clone()));
            }
        }
        let mut made = String::new();
        for expr in exprs {
            let mut prepared = Prepared::of(&expr).unwrap();
            for text in TEXTS {
                let expected = eval(&expr, &[Value::string(text)], Clock::default()).unwrap();
                made.clear();
                let found = match prepared.answer(text, &mut made) {
                    Answer::Null => Value::Null,
                    Answer::Int(value) => Value::Int(value),
                    Answer::Boolean(value) => Value::Boolean(value),
                    Answer::Part(part) => Value::string(part),
                    Answer::Made => Value::string(&made),
                    Answer::Failed(error) => panic!("{error}"),
                };
                assert_eq!(format!("{found:?}"), format!("{expected:?}"), "{expr:?} of {text:?}");
            }
        }
    }

    #[test]
    fn a_pattern_that_fails_is_not_prepared() {
        let column = Expr::Column(0, Type { data: DataType::STRING, nullable: false });
        let boolean = Type { data: DataType::Boolean, nullable: false };
        let like = Expr::Op(Op::Like, vec![column.clone(), text("a\\"), text("\\")], boolean.clone());
        assert!(Prepared::of(&like).is_none());
        let regexp = Expr::Call(find("REGEXP").unwrap(), vec![column.clone(), text("(")], boolean.clone());
        assert!(Prepared::of(&regexp).is_none());
        let regexp = Expr::Call(find("REGEXP").unwrap(), vec![column.clone(), column], boolean);
        assert!(Prepared::of(&regexp).is_none());
    }
}
