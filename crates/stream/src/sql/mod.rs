//! From text to statements. The library `sqlparser` parses queries and expressions. Flink's own syntax (tables with
//! watermarks, statement sets, table functions over tables, types) is parsed here from the library's tokens, so that
//! each error has its place.

mod dialect;
mod stack;
mod statement;
mod tokens;
mod types;

use sqlparser::ast::{self, Ident, ObjectName, ObjectNamePart, Query, Spanned};
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::{Location, Token, TokenWithSpan, Tokenizer};

use crate::error::{Error, Position, Result};
use crate::types::Type;

pub(crate) use stack::{Deep, on_deep_stack};

/// A name and its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Name {
    /// The name without quotes.
    pub text: String,
    /// Its place.
    pub position: Option<Position>,
}

/// A column of CREATE TABLE.
#[derive(Debug, Clone)]
pub struct ColumnDef {
    /// Its name.
    pub name: Name,
    /// Its content.
    pub kind: ColumnKind,
}

/// The content of a table's column.
#[derive(Debug, Clone)]
pub enum ColumnKind {
    /// A value from the connector.
    Physical(Type),
    /// A value computed from other columns.
    Computed(Box<sqlparser::ast::Expr>),
}

/// CREATE TABLE.
#[derive(Debug, Clone)]
pub struct CreateTable {
    /// The table's name.
    pub name: Name,
    /// IF NOT EXISTS: keep an existing table.
    pub if_not_exists: bool,
    /// Its columns.
    pub columns: Vec<ColumnDef>,
    /// WATERMARK FOR column AS expression.
    pub watermark: Option<(Name, Box<sqlparser::ast::Expr>)>,
    /// PRIMARY KEY (columns) NOT ENFORCED; empty if there is none.
    pub primary_key: Vec<Name>,
    /// WITH ('key' = 'value').
    pub options: Vec<(Name, String)>,
}

/// INSERT INTO table [(columns)] query.
#[derive(Debug, Clone)]
pub struct Insert {
    /// The table.
    pub table: Name,
    /// The columns; all of them if empty.
    pub columns: Vec<Name>,
    /// The query.
    pub query: Box<Query>,
}

/// A statement of a script.
#[derive(Debug, Clone)]
pub enum Statement {
    /// CREATE TABLE.
    CreateTable(CreateTable),
    /// CREATE VIEW.
    CreateView {
        /// Its name.
        name: Name,
        /// IF NOT EXISTS: keep an existing view.
        if_not_exists: bool,
        /// Names for its columns; the query's names if empty.
        columns: Vec<Name>,
        /// Its query.
        query: Box<Query>,
    },
    /// DROP TABLE or DROP VIEW.
    Drop {
        /// Its name.
        name: Name,
        /// IF EXISTS: a missing relation is no error.
        if_exists: bool,
        /// Whether it is DROP VIEW.
        view: bool,
    },
    /// Inserts that run as one job: one INSERT, or a statement set.
    Job(Vec<Insert>),
    /// A query alone.
    Query(Box<Query>),
    /// EXPLAIN of inserts or a query.
    Explain(Box<Statement>),
    /// EXPLAIN CODEGEN of inserts or a query.
    ExplainCode(Box<Statement>),
    /// SET 'key' = 'value'.
    Set(Name, String),
}

/// Parses a script: statements separated by `;`.
pub fn parse(text: &str) -> Result<Vec<Statement>> {
    // Some editors write a byte order mark.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let dialect = dialect::Flink;
    let tokens = tokens::read(text)?;
    let end = end_of(text);
    // 50: nested queries and parentheses; deeper nesting would exhaust a thread's stack.
    let mut parser = Parser::new(&dialect).with_recursion_limit(50).with_tokens_with_locations(tokens);
    let mut statements = Vec::new();
    loop {
        while parser.consume_token(&Token::SemiColon) {}
        if parser.peek_token_ref().token == Token::EOF {
            return Ok(statements);
        }
        statements.push(statement::parse(&mut parser).map_err(|error| error.at(Some(end)))?);
        let next = parser.peek_token();
        if !matches!(next.token, Token::SemiColon | Token::EOF) {
            return Err(unexpected(&next, "`;` or the end of the statement").at(Some(end)));
        }
    }
}

fn end_of(text: &str) -> Position {
    let line = text.matches('\n').count() as u64 + 1;
    let column = text.rsplit('\n').next().unwrap_or_default().chars().count() as u64 + 1;
    Position { line, column }
}

/// The place, if there is one.
fn position(location: Location) -> Option<Position> {
    (location.line > 0).then_some(Position { line: location.line, column: location.column })
}

/// Where a part of the syntax tree begins.
pub fn position_of(part: &impl Spanned) -> Option<Position> {
    position(part.span().start)
}

/// The place where an expression begins: that of its first operand. A loop finds it, because a chain of operators is as
/// deep as it is long.
pub fn position_of_expr(mut expr: &ast::Expr) -> Option<Position> {
    loop {
        expr = match expr {
            ast::Expr::BinaryOp { left, .. } => left,
            ast::Expr::IsNull(inner)
            | ast::Expr::IsNotNull(inner)
            | ast::Expr::IsTrue(inner)
            | ast::Expr::IsNotTrue(inner)
            | ast::Expr::IsFalse(inner)
            | ast::Expr::IsNotFalse(inner)
            | ast::Expr::IsUnknown(inner)
            | ast::Expr::IsNotUnknown(inner)
            | ast::Expr::IsDistinctFrom(inner, _)
            | ast::Expr::IsNotDistinctFrom(inner, _)
            | ast::Expr::Between { expr: inner, .. }
            | ast::Expr::In { expr: inner, .. }
            | ast::Expr::Like { expr: inner, .. } => inner,
            other => return position_of(other),
        };
    }
}

fn unexpected(token: &TokenWithSpan, wanted: &str) -> Error {
    let found = match &token.token {
        Token::EOF => "the end of the script".to_owned(),
        token => format!("`{token}`"),
    };
    Error::syntax(found, wanted).at(position(token.span.start))
}

/// Converts the library's error.
fn from_library(error: ParserError) -> Error {
    let message = match error {
        ParserError::TokenizerError(message) | ParserError::ParserError(message) => message,
        ParserError::RecursionLimitExceeded => {
            return Error::syntax("expressions or queries nested too deep", "at most 50 levels");
        }
    };
    let (text, place) = match message.rsplit_once(" at Line: ") {
        Some((text, place)) => {
            let mut numbers = place.split(", Column: ").map(|number| number.trim().parse::<u64>());
            let position = match (numbers.next(), numbers.next()) {
                (Some(Ok(line)), Some(Ok(column))) => position(Location { line, column }),
                _ => None,
            };
            (text.to_owned(), position)
        }
        None => (message, None),
    };
    let error = match text.strip_prefix("Expected: ").and_then(|rest| rest.rsplit_once(", found: ")) {
        Some((wanted, "EOF")) => Error::syntax("the end of the script", wanted),
        Some((wanted, found)) => Error::syntax(format!("`{found}`"), wanted),
        None => Error::syntax(text, "a statement"),
    };
    error.at(place)
}

impl From<Ident> for Name {
    fn from(ident: Ident) -> Self {
        Name { position: position(ident.span.start), text: ident.value }
    }
}

/// The only part of the name of a table or function; catalogs and databases do not exist.
pub fn simple_name(name: &ObjectName) -> Result<Name> {
    match name.0.as_slice() {
        [ObjectNamePart::Identifier(ident)] => Ok(ident.clone().into()),
        _ => Err(Error::unsupported(format!("the qualified name `{name}`"))
            .at(position_of(name))
            .hint("use the name without catalog and database")),
    }
}

/// Parses a type from a text that [`Type`] wrote.
pub(crate) fn parse_type_text(text: &str) -> Result<Type> {
    let dialect = dialect::Flink;
    let tokens = Tokenizer::new(&dialect, text)
        .tokenize_with_location()
        .map_err(|error| Error::syntax(error.message, "a type of SQL"))?;
    types::parse(&mut Parser::new(&dialect).with_tokens_with_locations(tokens))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        parse(text).unwrap_err().to_string()
    }

    #[test]
    fn a_table_with_all_clauses_is_parsed() {
        let script = "CREATE TEMPORARY TABLE IF NOT EXISTS t (
            a BIGINT NOT NULL COMMENT 'key',
            `b c` ROW<x INT, y ARRAY<VARCHAR(3)>>,
            ts TIMESTAMP(3) WITH LOCAL TIME ZONE,
            d AS UPPER(b) || 'x',
            p AS PROCTIME(),
            WATERMARK FOR ts AS ts - INTERVAL '5' SECOND,
            CONSTRAINT k PRIMARY KEY (a) NOT ENFORCED
        ) COMMENT 'x' WITH ('connector' = 'print', 'format' = 'json');";
        let statements = parse(script).unwrap();
        let [Statement::CreateTable(table)] = statements.as_slice() else { panic!("{statements:?}") };
        assert!(table.if_not_exists);
        assert_eq!(table.columns.len(), 5);
        assert_eq!(table.columns[1].name.text, "b c");
        let ColumnKind::Physical(ty) = &table.columns[1].kind else { panic!() };
        assert_eq!(ty.to_string(), "ROW<`x` INT, `y` ARRAY<VARCHAR(3)>>");
        let ColumnKind::Physical(ty) = &table.columns[2].kind else { panic!() };
        assert_eq!(ty.to_string(), "TIMESTAMP_LTZ(3)");
        assert_eq!(table.watermark.as_ref().unwrap().0.text, "ts");
        assert_eq!(table.primary_key[0].text, "a");
        assert_eq!(table.options[1].1, "json");
    }

    #[test]
    fn a_statement_set_is_one_job() {
        for script in [
            "EXECUTE STATEMENT SET BEGIN INSERT INTO a SELECT 1; INSERT INTO b SELECT 2; END;",
            "BEGIN STATEMENT SET; INSERT INTO a SELECT 1; INSERT INTO b SELECT 2; END",
        ] {
            let statements = parse(script).unwrap();
            let [Statement::Job(inserts)] = statements.as_slice() else { panic!("{statements:?}") };
            assert_eq!(inserts.len(), 2);
        }
        let statements = parse("EXPLAIN PLAN FOR INSERT INTO a (x, y) SELECT 1, 2; SET 'k' = 'v'").unwrap();
        assert!(matches!(statements.as_slice(), [Statement::Explain(_), Statement::Set(..)]));
    }

    #[test]
    fn errors_have_the_place_the_found_and_the_wanted_text() {
        assert_eq!(
            error("SELECT 1;\nSELEC 2"),
            "line 2, column 1: found `SELEC`, wanted a statement; did you mean `SELECT`?"
        );
        assert_eq!(
            error("CREATE TABLE t (a BIGIN)"),
            "line 1, column 19: found type `BIGIN`, wanted a type of SQL; did you mean `BIGINT`?"
        );
        assert_eq!(
            error("SELECT a FROM t WHERE"),
            "line 1, column 22: found the end of the script, wanted an expression"
        );
        assert_eq!(
            error("SELECT 'a"),
            "line 1, column 8: found Unterminated string literal, wanted a script of SQL"
        );
        assert_eq!(
            error("CREATE TABLE t (a INT, PRIMARY KEY (a))"),
            "line 1, column 39: found `)`, wanted NOT ENFORCED after the primary key"
        );
        assert_eq!(
            error("SELECT 1 2"),
            "line 1, column 10: found `2`, wanted `;` or the end of the statement"
        );
    }

    #[test]
    fn unsupported_syntax_of_flink_is_refused_by_name() {
        assert_eq!(
            error("CREATE FUNCTION f AS 'x'"),
            "line 1, column 8: not supported yet: user-defined functions"
        );
        assert_eq!(error("ALTER TABLE t RENAME TO u"), "line 1, column 1: not supported yet: ALTER");
        assert_eq!(
            error("CREATE TABLE t (a INT METADATA) WITH ('connector'='kafka')"),
            "line 1, column 23: not supported yet: metadata columns"
        );
    }

    #[test]
    fn deep_nesting_is_refused() {
        let deep = format!("SELECT {}1{}", "(".repeat(5000), ")".repeat(5000));
        assert!(error(&deep).contains("nested too deep"), "{}", error(&deep));
    }
}
