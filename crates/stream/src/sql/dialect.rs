//! Flink's dialect, as the library needs it.

use sqlparser::ast::{DataType, Expr, Ident, ObjectName, UnaryOperator};
use sqlparser::dialect::{Dialect, Precedence};
use sqlparser::keywords::Keyword;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::Token;

/// Flink SQL: backticks quote names, names may be in any script.
#[derive(Debug)]
pub(super) struct Flink;

impl Dialect for Flink {
    fn is_identifier_start(&self, ch: char) -> bool {
        ch.is_alphabetic() || ch == '_' || ch == '$'
    }

    fn is_identifier_part(&self, ch: char) -> bool {
        ch.is_alphanumeric() || ch == '_' || ch == '$'
    }

    fn is_delimited_identifier_start(&self, ch: char) -> bool {
        ch == '`'
    }

    fn supports_filter_during_aggregation(&self) -> bool {
        true
    }

    fn supports_table_versioning(&self) -> bool {
        true
    }

    fn supports_match_recognize(&self) -> bool {
        true
    }

    fn supports_group_by_expr(&self) -> bool {
        true
    }

    fn require_interval_qualifier(&self) -> bool {
        true
    }

    fn allow_extract_custom(&self) -> bool {
        true
    }

    /// Parses `TABLE t [PARTITION BY column | (columns)]` as an argument of a table function. It also parses NOT, which
    /// the library takes for a name if it cannot read the operand, such as one nested too deep.
    fn parse_prefix(&self, parser: &mut Parser) -> Option<Result<Expr, ParserError>> {
        let is_not = parser.peek_keyword(Keyword::NOT)
            && !matches!(&parser.peek_nth_token_ref(1).token, Token::Word(word) if word.keyword == Keyword::EXISTS);
        if is_not {
            parser.next_token();
            let operand = parser.parse_subexpr(self.prec_value(Precedence::UnaryNot));
            return Some(operand.map(|expr| Expr::UnaryOp { op: UnaryOperator::Not, expr: Box::new(expr) }));
        }
        let table = parser.peek_keyword(Keyword::TABLE)
            && matches!(parser.peek_nth_token_ref(1).token, Token::Word(_));
        table.then(|| {
            let prefix = Ident::with_span(parser.next_token().span, "TABLE");
            let mut parts = vec![Expr::Identifier(parser.parse_identifier()?)];
            if parser.parse_keywords(&[Keyword::PARTITION, Keyword::BY]) {
                if parser.consume_token(&Token::LParen) {
                    let columns = parser.parse_comma_separated(Parser::parse_identifier)?;
                    parser.expect_token(&Token::RParen)?;
                    parts.extend(columns.into_iter().map(Expr::Identifier));
                } else {
                    parts.push(Expr::Identifier(parser.parse_identifier()?));
                }
            }
            Ok(Expr::Prefixed { prefix, value: Box::new(Expr::Tuple(parts)) })
        })
    }

    /// A type of Flink's, stored as its canonical text. Literals such as `DATE '2020-01-01'` are left to the library.
    fn parse_data_type(&self, parser: &mut Parser) -> Option<Result<DataType, ParserError>> {
        let literal = matches!(parser.peek_nth_token_ref(1).token, Token::SingleQuotedString(_));
        if literal || parser.peek_keyword(Keyword::INTERVAL) {
            return None;
        }
        let start = parser.peek_token_ref().span;
        Some(match super::types::parse(parser) {
            Ok(ty) => {
                let name = Ident::with_span(start, ty.to_string());
                Ok(DataType::Custom(ObjectName::from(vec![name]), Vec::new()))
            }
            Err(error) => {
                let place = error.position().map_or(start.start, |position| sqlparser::tokenizer::Location {
                    line: position.line,
                    column: position.column,
                });
                Err(ParserError::ParserError(format!("{}{place}", super::types::library_text(&error))))
            }
        })
    }
}
