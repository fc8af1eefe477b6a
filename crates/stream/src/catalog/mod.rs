//! Tables and views of a session, and what connectors declare.

pub mod options;

use std::collections::BTreeMap;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::{fmt, io};

use sqlparser::ast::Query;

use self::options::Declared;
use crate::error::{Error, Result};
use crate::expr::Expr;
use crate::sql::{Deep, Name};
use crate::types::{TimeAttribute, Type};

/// What a connector declares. Compared by name.
#[derive(Debug)]
pub struct Connector {
    /// Its name in WITH ('connector' = ...).
    pub name: &'static str,
    /// What it is, in one or two sentences.
    pub purpose: &'static str,
    /// A statement that creates a table with it. Tests plan it.
    pub example: &'static str,
    /// Its options, except `connector` and, if it has formats, `format`.
    pub options: &'static [Declared],
    /// Whether a query may read from it.
    pub source: bool,
    /// The changes that it takes; `None` if it is no sink.
    pub sink: Option<SinkKind>,
    /// Whether rows can be looked up by key.
    pub lookup: bool,
    /// Whether it needs a format.
    pub format: bool,
    /// The place that a table writes to, if it writes permanent files or keys: tables with the same text write to the
    /// same place. A job has one writer for such a table, however many INSERTs there are.
    pub written: Option<fn(&Table) -> String>,
}

impl PartialEq for Connector {
    fn eq(&self, other: &Connector) -> bool {
        self.name == other.name
    }
}

/// The changes that a sink takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SinkKind {
    /// New rows only.
    Append,
    /// New rows; with a primary key also updates and deletes by it.
    Upsert,
    /// Every change, with the row before it.
    Retract,
}

/// A column of a table.
#[derive(Debug, Clone, PartialEq)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// Its type.
    pub ty: Type,
    /// The expression that computes it, over all physical columns in order; `None` if it is physical.
    pub computed: Option<Expr>,
    /// Whether it is the table's event or processing time.
    pub time: Option<TimeAttribute>,
}

/// A table.
#[derive(Debug, PartialEq)]
pub struct Table {
    /// Its name.
    pub name: String,
    /// Its columns in order.
    pub columns: Vec<Column>,
    /// Indices of the columns that the connector delivers. Expressions refer to positions in this list.
    pub physical: Vec<usize>,
    /// The column of event time, and the expression of the watermark over physical columns.
    pub watermark: Option<(usize, Expr)>,
    /// Columns of the primary key.
    pub primary_key: Vec<usize>,
    /// Its connector.
    pub connector: &'static Connector,
    /// All options.
    pub options: BTreeMap<String, String>,
    /// How to connect to its server, if that is in this process.
    pub attachment: Option<Attachment>,
}

/// Connects to a server in the same process.
#[derive(Clone)]
pub struct Attachment(Arc<Connect>);

type Connect = dyn Fn() -> io::Result<UnixStream> + Send + Sync;

impl Attachment {
    /// Connections made by this closure.
    pub fn new(connect: impl Fn() -> io::Result<UnixStream> + Send + Sync + 'static) -> Attachment {
        Attachment(Arc::new(connect))
    }

    /// A new connection.
    pub fn connect(&self) -> io::Result<UnixStream> {
        (self.0)()
    }
}

impl fmt::Debug for Attachment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Attachment")
    }
}

impl PartialEq for Attachment {
    fn eq(&self, other: &Attachment) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Attachment {}

impl Table {
    /// Turns a table of connector 'duramen' into one of `redis` with these options; other tables do not change.
    pub fn attach(
        &mut self,
        redis: &'static Connector,
        options: &[(&str, &str)],
        attachment: Option<&Attachment>,
    ) {
        if self.connector.name == "duramen" {
            self.connector = redis;
            self.attachment = attachment.cloned();
            self.options
                .extend(options.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        }
    }

    /// Whether a job has one writer for it, however many INSERTs there are: it writes permanent files or keys.
    pub fn is_written_once(&self) -> bool {
        self.connector.written.is_some()
    }

    /// The place that its single writer writes to, if it has one: tables with the same value write to the same place.
    pub fn written(&self) -> Option<String> {
        self.connector.written.map(|written| written(self))
    }

    /// The expression of a column over the physical columns.
    pub fn column_expr(&self, index: usize) -> Expr {
        match &self.columns[index].computed {
            Some(expr) => expr.clone(),
            None => {
                let place = self.physical.iter().position(|column| *column == index).unwrap_or(0);
                Expr::Column(place, self.columns[index].ty.clone())
            }
        }
    }
}

/// A view: a named query.
#[derive(Debug)]
pub struct View {
    /// Names of its columns; those of the query if empty.
    pub columns: Vec<Name>,
    /// The query.
    pub(crate) query: Deep<Query>,
}

/// The meaning of a name.
#[derive(Debug, Clone)]
pub enum Relation {
    /// A table.
    Table(Arc<Table>),
    /// A view.
    View(Arc<View>),
}

/// The tables and views of a session.
#[derive(Debug, Default, Clone)]
pub struct Catalog {
    relations: BTreeMap<String, Relation>,
}

impl Catalog {
    /// Adds a table or view. If the name exists, it is an error, or with `keep` the old one is kept.
    pub fn insert(&mut self, name: &Name, relation: Relation, keep: bool) -> Result<()> {
        if self.relations.contains_key(&name.text) {
            if keep {
                return Ok(());
            }
            return Err(
                Error::invalid(format!("a second relation `{}`", name.text), "a new name").at(name.position)
            );
        }
        self.relations.insert(name.text.clone(), relation);
        Ok(())
    }

    /// Removes a table or view.
    pub fn remove(&mut self, name: &Name, view: bool, if_exists: bool) -> Result<()> {
        match (self.relations.get(&name.text), view) {
            (Some(Relation::View(_)), true) | (Some(Relation::Table(_)), false) => {
                self.relations.remove(&name.text);
                Ok(())
            }
            (None, _) if if_exists => Ok(()),
            (None, _) => self.find(name).map(|_| ()),
            (Some(Relation::View(_)), false) => {
                Err(Error::invalid(format!("the view `{}`", name.text), "a table")
                    .at(name.position)
                    .hint("use DROP VIEW"))
            }
            (Some(Relation::Table(_)), true) => {
                Err(Error::invalid(format!("the table `{}`", name.text), "a view")
                    .at(name.position)
                    .hint("use DROP TABLE"))
            }
        }
    }

    /// The table or view with this name.
    pub fn find(&self, name: &Name) -> Result<&Relation> {
        self.relations.get(&name.text).ok_or_else(|| {
            Error::invalid(format!("table `{}`", name.text), "a table or view that was created")
                .at(name.position)
                .did_you_mean(&name.text, self.relations.keys().map(String::as_str))
        })
    }

    /// The table of this name.
    pub fn table(&self, name: &Name) -> Result<&Arc<Table>> {
        match self.find(name)? {
            Relation::Table(table) => Ok(table),
            Relation::View(_) => {
                Err(Error::invalid(format!("the view `{}`", name.text), "a table").at(name.position))
            }
        }
    }
}

/// The connector, one of `known`, and the options that WITH (...) gives a table of these columns.
pub fn options(
    known: impl Iterator<Item = &'static Connector> + Clone,
    table: &Name,
    columns: &[&str],
    given: &[(Name, String)],
) -> Result<(&'static Connector, BTreeMap<String, String>)> {
    let mut options = BTreeMap::new();
    for (key, value) in given {
        if options.insert(key.text.clone(), value.clone()).is_some() {
            return Err(
                Error::invalid(format!("option '{}' twice", key.text), "each option once").at(key.position)
            );
        }
    }
    let place =
        |key: &str| given.iter().find(|(name, _)| name.text == key).and_then(|(name, _)| name.position);
    let Some(name) = options.get("connector") else {
        return Err(Error::invalid("no option 'connector'", "WITH ('connector' = '...')").at(table.position));
    };
    let Some(connector) = known.clone().find(|connector| connector.name == name) else {
        let names = known.map(|connector| connector.name);
        return Err(Error::unsupported(format!("the connector '{name}'"))
            .at(place("connector"))
            .did_you_mean(name, names));
    };
    options::check(name, connector.options, connector.format, columns, given)?;
    if connector.format && !options.contains_key("format") && !options.contains_key("value.format") {
        let wanted = format!("'format' = {}", options::formats_wanted());
        return Err(Error::invalid(format!("no option 'format' for '{name}'"), wanted).at(place("connector")));
    }
    Ok((connector, options))
}
