//! Statements around queries.

use sqlparser::ast::Query;
use sqlparser::parser::Parser;
use sqlparser::tokenizer::Token;

use super::types::{self, expect, expect_token, is_next, is_word};
use super::{
    ColumnDef, ColumnKind, CreateTable, Insert, Name, Statement, from_library, position, unexpected,
};
use crate::error::{Error, Result};

const BEGINNINGS: &[&str] =
    &["BEGIN", "CREATE", "DROP", "EXECUTE", "EXPLAIN", "INSERT", "SELECT", "SET", "VALUES", "WITH"];

/// Statements that Flink has and this engine does not.
const OTHERS: &[&str] = &[
    "ADD", "ALTER", "ANALYZE", "CALL", "COMPILE", "DELETE", "DESC", "DESCRIBE", "LOAD", "RESET", "SHOW",
    "STOP", "TRUNCATE", "UNLOAD", "UPDATE", "USE",
];

pub(super) fn parse(parser: &mut Parser<'_>) -> Result<Statement> {
    let token = parser.peek_token();
    let place = position(token.span.start);
    let word = match &token.token {
        Token::Word(word) => word.value.to_ascii_uppercase(),
        Token::LParen => "SELECT".to_owned(),
        _ => return Err(unexpected(&token, "a statement")),
    };
    match word.as_str() {
        "SELECT" | "WITH" | "VALUES" => Ok(Statement::Query(query(parser)?)),
        "INSERT" => Ok(Statement::Job(vec![insert(parser)?])),
        "EXPLAIN" => {
            parser.next_token();
            let code = is_next(parser, "CODEGEN");
            if code {
                parser.next_token();
            } else if is_next(parser, "PLAN") {
                parser.next_token();
                expect(parser, "FOR")?;
            }
            let next = position(parser.peek_token_ref().span.start);
            match parse(parser)? {
                body @ (Statement::Query(_) | Statement::Job(_)) if code => {
                    Ok(Statement::ExplainCode(Box::new(body)))
                }
                body @ (Statement::Query(_) | Statement::Job(_)) => Ok(Statement::Explain(Box::new(body))),
                _ => {
                    Err(Error::syntax("another statement", "a query, an INSERT or a statement set").at(next))
                }
            }
        }
        "EXECUTE" => {
            parser.next_token();
            if is_next(parser, "INSERT") {
                return Ok(Statement::Job(vec![insert(parser)?]));
            }
            statement_set(parser)?;
            expect(parser, "BEGIN")?;
            inserts(parser)
        }
        "BEGIN" => {
            parser.next_token();
            statement_set(parser)?;
            expect_token(parser, &Token::SemiColon)?;
            inserts(parser)
        }
        "SET" => {
            parser.next_token();
            let place = position(parser.peek_token_ref().span.start);
            let (key, value) = pair(parser)?;
            Ok(Statement::Set(Name { text: key, position: place }, value))
        }
        "DROP" => {
            parser.next_token();
            let _ = is_next(parser, "TEMPORARY") && take(parser);
            let view = is_next(parser, "VIEW");
            if view {
                parser.next_token();
            } else {
                expect(parser, "TABLE")?;
            }
            let if_exists = is_next(parser, "IF") && take(parser);
            if if_exists {
                expect(parser, "EXISTS")?;
            }
            Ok(Statement::Drop { name: table_name(parser)?, if_exists, view })
        }
        "CREATE" => create(parser),
        other if OTHERS.contains(&other) => Err(Error::unsupported(other).at(place)),
        other => Err(unexpected(&token, "a statement").did_you_mean(other, BEGINNINGS.iter().copied())),
    }
}

fn take(parser: &mut Parser<'_>) -> bool {
    parser.next_token();
    true
}

fn statement_set(parser: &mut Parser<'_>) -> Result<()> {
    expect(parser, "STATEMENT")?;
    expect(parser, "SET")
}

/// `INSERT ...; INSERT ...; END`
fn inserts(parser: &mut Parser<'_>) -> Result<Statement> {
    let mut inserts = Vec::new();
    loop {
        if is_next(parser, "END") {
            if inserts.is_empty() {
                return Err(unexpected(&parser.peek_token(), "an INSERT"));
            }
            parser.next_token();
            return Ok(Statement::Job(inserts));
        }
        inserts.push(insert(parser)?);
        expect_token(parser, &Token::SemiColon)?;
    }
}

fn insert(parser: &mut Parser<'_>) -> Result<Insert> {
    expect(parser, "INSERT")?;
    if is_next(parser, "OVERWRITE") {
        let place = position(parser.peek_token_ref().span.start);
        return Err(Error::unsupported("INSERT OVERWRITE").at(place));
    }
    expect(parser, "INTO")?;
    let table = table_name(parser)?;
    if is_next(parser, "PARTITION") {
        let place = position(parser.peek_token_ref().span.start);
        return Err(Error::unsupported("INSERT INTO a static PARTITION").at(place));
    }
    let columns_follow = parser.peek_token_ref().token == Token::LParen
        && !["SELECT", "WITH", "VALUES"].iter().any(|word| is_word(parser, 1, word))
        && parser.peek_nth_token_ref(1).token != Token::LParen;
    let columns = if columns_follow { names(parser)? } else { Vec::new() };
    Ok(Insert { table, columns, query: query(parser)? })
}

fn query(parser: &mut Parser<'_>) -> Result<Box<Query>> {
    parser.parse_query().map_err(from_library)
}

fn table_name(parser: &mut Parser<'_>) -> Result<Name> {
    super::simple_name(&parser.parse_object_name(false).map_err(from_library)?)
}

/// `(a, b)`
fn names(parser: &mut Parser<'_>) -> Result<Vec<Name>> {
    expect_token(parser, &Token::LParen)?;
    let mut names = Vec::new();
    loop {
        names.push(parser.parse_identifier().map_err(from_library)?.into());
        if !parser.consume_token(&Token::Comma) {
            break;
        }
    }
    expect_token(parser, &Token::RParen)?;
    Ok(names)
}

/// `'key' = 'value'`
fn pair(parser: &mut Parser<'_>) -> Result<(String, String)> {
    let key = text(parser)?;
    expect_token(parser, &Token::Eq)?;
    Ok((key, text(parser)?))
}

fn text(parser: &mut Parser<'_>) -> Result<String> {
    let token = parser.next_token();
    match token.token {
        Token::SingleQuotedString(text) => Ok(text),
        _ => Err(unexpected(&token, "a text in single quotes")),
    }
}

fn comment(parser: &mut Parser<'_>) -> Result<()> {
    if is_next(parser, "COMMENT") && take(parser) {
        text(parser)?;
    }
    Ok(())
}

fn create(parser: &mut Parser<'_>) -> Result<Statement> {
    expect(parser, "CREATE")?;
    let _ = is_next(parser, "TEMPORARY") && take(parser);
    let _ = is_next(parser, "SYSTEM") && take(parser);
    let token = parser.peek_token();
    let place = position(token.span.start);
    let word = match &token.token {
        Token::Word(word) => word.value.to_ascii_uppercase(),
        _ => return Err(unexpected(&token, "TABLE or VIEW")),
    };
    match word.as_str() {
        "TABLE" | "VIEW" => {
            parser.next_token();
        }
        "FUNCTION" => return Err(Error::unsupported("user-defined functions").at(place)),
        "OR" => return Err(Error::unsupported("CREATE OR REPLACE").at(place)),
        "CATALOG" | "DATABASE" | "MATERIALIZED" | "MODEL" => {
            return Err(Error::unsupported(format!("CREATE {word}")).at(place));
        }
        other => return Err(unexpected(&token, "TABLE or VIEW").did_you_mean(other, ["TABLE", "VIEW"])),
    }
    let if_not_exists = is_next(parser, "IF") && take(parser);
    if if_not_exists {
        expect(parser, "NOT")?;
        expect(parser, "EXISTS")?;
    }
    let name = table_name(parser)?;
    if word == "VIEW" {
        let columns =
            if parser.peek_token_ref().token == Token::LParen { names(parser)? } else { Vec::new() };
        comment(parser)?;
        expect(parser, "AS")?;
        return Ok(Statement::CreateView { name, if_not_exists, columns, query: query(parser)? });
    }
    create_table(parser, name, if_not_exists).map(Statement::CreateTable)
}

fn create_table(parser: &mut Parser<'_>, name: Name, if_not_exists: bool) -> Result<CreateTable> {
    let mut table = CreateTable {
        name,
        if_not_exists,
        columns: Vec::new(),
        watermark: None,
        primary_key: Vec::new(),
        options: Vec::new(),
    };
    for (word, what) in [("LIKE", "CREATE TABLE LIKE"), ("AS", "CREATE TABLE AS")] {
        if is_next(parser, word) {
            return Err(Error::unsupported(what).at(position(parser.peek_token_ref().span.start)));
        }
    }
    expect_token(parser, &Token::LParen)?;
    loop {
        element(parser, &mut table)?;
        if !parser.consume_token(&Token::Comma) {
            break;
        }
    }
    if !parser.consume_token(&Token::RParen) {
        return Err(unexpected(&parser.peek_token(), "`,` or `)` after a column"));
    }
    comment(parser)?;
    for (word, what) in [("PARTITIONED", "PARTITIONED BY"), ("DISTRIBUTED", "DISTRIBUTED BY")] {
        if is_next(parser, word) {
            return Err(Error::unsupported(what)
                .at(position(parser.peek_token_ref().span.start))
                .hint("a table for each part, and an INSERT with a WHERE for each, in one statement set"));
        }
    }
    if is_next(parser, "WITH") && take(parser) {
        expect_token(parser, &Token::LParen)?;
        loop {
            let place = position(parser.peek_token_ref().span.start);
            let (key, value) = pair(parser)?;
            table.options.push((Name { text: key, position: place }, value));
            if !parser.consume_token(&Token::Comma) {
                break;
            }
        }
        expect_token(parser, &Token::RParen)?;
    }
    for (word, what) in [("LIKE", "CREATE TABLE LIKE"), ("AS", "CREATE TABLE AS")] {
        if is_next(parser, word) {
            return Err(Error::unsupported(what).at(position(parser.peek_token_ref().span.start)));
        }
    }
    Ok(table)
}

fn element(parser: &mut Parser<'_>, table: &mut CreateTable) -> Result<()> {
    let place = position(parser.peek_token_ref().span.start);
    if is_next(parser, "WATERMARK") && is_word(parser, 1, "FOR") {
        parser.next_token();
        parser.next_token();
        let column: Name = parser.parse_identifier().map_err(from_library)?.into();
        expect(parser, "AS")?;
        let expression = parser.parse_expr().map_err(from_library)?;
        if table.watermark.is_some() {
            return Err(Error::invalid("a second WATERMARK", "one at most").at(place));
        }
        table.watermark = Some((column, Box::new(expression)));
        return Ok(());
    }
    if is_next(parser, "CONSTRAINT") {
        parser.next_token();
        parser.next_token();
    }
    if is_next(parser, "PRIMARY") && is_word(parser, 1, "KEY") {
        parser.next_token();
        parser.next_token();
        let columns = names(parser)?;
        not_enforced(parser)?;
        return primary_key(table, columns, place);
    }
    if is_next(parser, "UNIQUE") {
        return Err(Error::unsupported("UNIQUE").at(place));
    }
    let name: Name = parser.parse_identifier().map_err(from_library)?.into();
    if is_next(parser, "METADATA") {
        return Err(Error::unsupported("metadata columns").at(position(parser.peek_token_ref().span.start)));
    }
    let kind = if is_next(parser, "AS") && take(parser) {
        ColumnKind::Computed(Box::new(parser.parse_expr().map_err(from_library)?))
    } else {
        ColumnKind::Physical(types::parse(parser)?)
    };
    if is_next(parser, "METADATA") {
        return Err(Error::unsupported("metadata columns").at(position(parser.peek_token_ref().span.start)));
    }
    if is_next(parser, "PRIMARY") && take(parser) {
        expect(parser, "KEY")?;
        not_enforced(parser)?;
        primary_key(table, vec![name.clone()], place)?;
    }
    comment(parser)?;
    table.columns.push(ColumnDef { name, kind });
    Ok(())
}

fn not_enforced(parser: &mut Parser<'_>) -> Result<()> {
    if is_next(parser, "NOT") && is_word(parser, 1, "ENFORCED") {
        parser.next_token();
        parser.next_token();
        return Ok(());
    }
    Err(unexpected(&parser.peek_token(), "NOT ENFORCED after the primary key"))
}

fn primary_key(table: &mut CreateTable, columns: Vec<Name>, place: Option<crate::Position>) -> Result<()> {
    if !table.primary_key.is_empty() {
        return Err(Error::invalid("a second PRIMARY KEY", "one at most").at(place));
    }
    table.primary_key = columns;
    Ok(())
}
