//! The tokens of a script, made piece by piece, so that a script that is too long is refused before all its tokens
//! exist. Blanks and comments make tokens too, which are dropped after each piece.
//!
//! A piece ends where the text may be split: before a blank, or after a sign that is not part of a longer one.

use sqlparser::tokenizer::{Location, Token, TokenWithSpan, Tokenizer, Whitespace};

use super::dialect::Flink;
use super::position;
use crate::error::{Error, Result};

/// Most tokens of a statement. A chain of operators makes a tree half as deep, and the stack is large enough for that
/// ([`super::stack`]).
pub(super) const STATEMENT_TOKENS_MAX: usize = 200_000;

/// Most tokens of a script, which bounds the memory of the script with its trees and plans.
const SCRIPT_TOKENS_MAX: usize = 500_000;

/// Most bytes of a name or a number. Errors quote both in full.
const WORD_BYTES_MAX: usize = 10_000;

/// Bytes of a piece. The size is doubled until the text can be split within it, because a quoted text may be long.
const PIECE_BYTES: usize = 64 << 10;

/// Reads the tokens of a script.
pub(super) fn read(text: &str) -> Result<Vec<TokenWithSpan>> {
    let mut tokens = Vec::new();
    let mut count = Count::default();
    let (mut rest, mut begin, mut bytes) = (text, Location::new(1, 1), PIECE_BYTES);
    while !rest.is_empty() {
        let mut length = bytes.min(rest.len());
        while !rest.is_char_boundary(length) {
            length -= 1;
        }
        let (piece, is_last) = (&rest[..length], length == rest.len());
        // `tokens` still holds the earlier ones, because the meaning of a sign may depend on them.
        let first = tokens.len();
        let read = Tokenizer::new(&Flink, piece).tokenize_with_location_into_buf(&mut tokens);
        if is_last {
            read.map_err(|error| {
                let place = position(moved(error.location, begin));
                Error::syntax(error.message, "a script of SQL").at(place)
            })?;
            take(&mut tokens, first, begin, &mut count)?;
            break;
        }
        // Errors are ignored: more text may make the piece valid.
        let parted = tokens[first..].windows(2).rposition(|pair| is_border(&pair[0].token, &pair[1].token));
        match parted {
            Some(before) => {
                let after = first + before + 1;
                let cut = tokens[after].span.start;
                tokens.truncate(after);
                take(&mut tokens, first, begin, &mut count)?;
                rest = &rest[offset_of(piece, cut)..];
                (begin, bytes) = (moved(cut, begin), PIECE_BYTES);
            }
            None => {
                take(&mut tokens, first, begin, &mut count.clone())?;
                tokens.truncate(first);
                bytes *= 2;
            }
        }
    }
    Ok(tokens)
}

/// Bytes read.
#[derive(Default, Clone)]
struct Count {
    script: usize,
    /// Tokens of the last statement.
    statement: usize,
    begins: Option<Location>,
}

/// Appends the tokens of a piece from the first one on, with their places in the script. It counts them, and drops
/// blanks and comments.
fn take(tokens: &mut Vec<TokenWithSpan>, first: usize, begin: Location, count: &mut Count) -> Result<()> {
    let mut kept = first;
    for index in first..tokens.len() {
        let token = &mut tokens[index];
        token.span.start = moved(token.span.start, begin);
        token.span.end = moved(token.span.end, begin);
        let place = token.span.start;
        match &token.token {
            Token::Whitespace(Whitespace::MultiLineComment(comment)) if comment.starts_with('+') => {
                return Err(Error::unsupported("hints")
                    .at(position(place))
                    .hint("set options in the table's WITH"));
            }
            Token::Whitespace(_) => continue,
            Token::SemiColon => (count.statement, count.begins) = (0, None),
            _ => {
                count.statement += 1;
                count.begins.get_or_insert(place);
            }
        }
        count.script += 1;
        let (what, bytes) = match &token.token {
            Token::Word(word) => ("name", word.value.len()),
            Token::Number(digits, _) => ("number", digits.len()),
            _ => ("", 0),
        };
        if bytes > WORD_BYTES_MAX {
            let wanted = format!("at most {WORD_BYTES_MAX} in one {what}");
            return Err(Error::syntax(format!("a {what} of more than {WORD_BYTES_MAX} bytes"), wanted)
                .at(position(place)));
        }
        let refuse = |what: &str, max: usize, place: Location, hint: &str| {
            Err(Error::syntax(
                format!("a {what} of more than {max} words, numbers and signs"),
                format!("at most {max} in one {what}"),
            )
            .at(position(place))
            .hint(hint))
        };
        if count.statement > STATEMENT_TOKENS_MAX {
            let begins = count.begins.unwrap_or(place);
            let hint = "read many values from a file, and join them";
            return refuse("statement", STATEMENT_TOKENS_MAX, begins, hint);
        }
        if count.script > SCRIPT_TOKENS_MAX {
            return refuse("script", SCRIPT_TOKENS_MAX, place, "make several scripts of it");
        }
        tokens.swap(kept, index);
        kept += 1;
    }
    tokens.truncate(kept);
    Ok(())
}

/// Whether the first token stays the same, whatever follows the beginning of the second one.
fn is_border(first: &Token, second: &Token) -> bool {
    matches!(first, Token::Comma | Token::SemiColon | Token::LParen | Token::RParen)
        || matches!(second, Token::Whitespace(_))
}

/// Converts a place within a piece to one in the script.
fn moved(place: Location, begin: Location) -> Location {
    match place.line {
        1 => Location::new(begin.line, begin.column + place.column - 1),
        line => Location::new(begin.line + line - 1, place.column),
    }
}

/// The number of bytes before a place.
fn offset_of(text: &str, place: Location) -> usize {
    let lines = text.match_indices('\n').map(|(at, _)| at + 1);
    let line = std::iter::once(0).chain(lines).nth(place.line as usize - 1).unwrap_or(text.len());
    let mut chars = text[line..].char_indices();
    chars.nth(place.column as usize - 1).map_or(text.len(), |(at, _)| line + at)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All tokens at once, by the library alone.
    fn whole(text: &str) -> Vec<TokenWithSpan> {
        let mut tokens = Tokenizer::new(&Flink, text).tokenize_with_location().unwrap();
        tokens.retain(|token| !matches!(token.token, Token::Whitespace(_)));
        tokens
    }

    #[test]
    fn tokens_of_chunks_equal_those_of_the_whole_text() {
        let parts = [
            "SELECT a.b, `c d` FROM t WHERE x<=1.5e3 AND y||'it''s'<>'\u{e4}\u{1f600}' -- no, 'more'\r\n",
            "/* a ; , ( */ SELECT (1),2 ;\n\n\t'two\nlines' . _x , 1 . 5 , a . _b ->> ~~~ :x\n",
            "-- only a comment\n",
            "((((a)))),,;;  \u{feff}b\u{3000}c\n",
        ];
        // Pieces end at many offsets within the parts.
        for shift in (0..parts.concat().len()).step_by(3) {
            let mut text = " ".repeat(shift);
            while text.len() < 2 * PIECE_BYTES {
                parts.iter().for_each(|part| text.push_str(part));
            }
            assert!(read(&text).unwrap() == whole(&text), "{shift}");
        }
        let long = format!(
            "SELECT '{}', `{}` /* {} */",
            "x, ".repeat(90_000),
            "y; ".repeat(3000),
            "z ".repeat(200_000)
        );
        assert!(read(&long).unwrap() == whole(&long));
    }

    #[test]
    fn errors_have_their_position_in_the_script() {
        let blanks = format!("SELECT 1;{}\n  ", "\n ".repeat(PIECE_BYTES));
        let message = |rest: &str| read(&format!("{blanks}{rest}")).unwrap_err().to_string();
        let line = PIECE_BYTES + 2;
        assert!(message("x 'a").starts_with(&format!("line {line}, column 5: found Unterminated")));
        assert!(message("/*+ x */").starts_with(&format!("line {line}, column 3: not supported yet: hints")));
        let long = message(&"v".repeat(WORD_BYTES_MAX + 1));
        assert!(long.starts_with(&format!("line {line}, column 3: found a name of more than 10000 bytes")));
        let long = message(&"v,".repeat(STATEMENT_TOKENS_MAX));
        assert!(
            long.starts_with(&format!("line {line}, column 3: found a statement of more than 200000 words"))
        );
        let long = message(&"v;".repeat(SCRIPT_TOKENS_MAX));
        assert!(long.contains("found a script of more than 500000 words"), "{long}");
    }
}
