//! The door: a session runs statements, keeps tables and views, and makes jobs.

use std::sync::Arc;

use sqlparser::ast::Query;

use crate::catalog::{Catalog, Door, Relation, Table};
use crate::compile;
use crate::error::{Error, Result};
use crate::physical::Graph;
use crate::plan::bind::{self, Binder};
use crate::plan::partition::Partition;
use crate::plan::{Node, Sink, changelog, explain, rules};
use crate::sql::{self, Insert, Statement, position_of};

/// Tables, views and options, from statement to statement.
#[derive(Debug, Default, Clone)]
pub struct Session {
    catalog: Catalog,
    attached: Option<Attached>,
}

/// A running server that tables of connector 'duramen' are in.
#[derive(Debug, Clone)]
struct Attached {
    host: String,
    port: u16,
    exactly_once: bool,
    /// The way to it, if it is in this process.
    door: Option<Door>,
}

/// Inserts that run together.
#[derive(Debug, Clone)]
pub struct Job {
    /// As the queries say it.
    pub bound: Vec<Sink>,
    /// As it is run.
    pub optimised: Vec<Sink>,
}

/// What a statement gives.
#[derive(Debug)]
pub enum Outcome {
    /// The session knows more, or less.
    Done,
    /// A job to run.
    Job(Job),
    /// A text to show.
    Text(String),
}

impl Session {
    /// From now on tables of connector 'duramen' are in the store that a running server serves, and not in the job's
    /// own. With `exactly_once`, which needs a store of the job's too, it gets the results of each checkpoint in one unit;
    /// without, it gets each at once.
    pub fn attach(&mut self, host: &str, port: u16, exactly_once: bool) {
        self.attached = Some(Attached { host: host.to_owned(), port, exactly_once, door: None });
    }

    /// The same with a server in this process, which gets the results of each checkpoint in one unit: its jobs have stores of
    /// their own.
    pub fn attach_here(&mut self, door: Door) {
        let host = "this process".to_owned();
        self.attached = Some(Attached { host, port: 0, exactly_once: true, door: Some(door) });
    }

    /// Runs every statement of a script; nothing of it counts if one is refused.
    pub fn run(&mut self, script: &str) -> Result<Vec<Outcome>> {
        let mut after = self.clone();
        let outcomes = sql::on_deep_stack(|| -> Result<Vec<Outcome>> {
            sql::parse(script)?.into_iter().map(|statement| after.statement(statement)).collect()
        })??;
        *self = after;
        Ok(outcomes)
    }

    /// The plan of one query, as it is bound.
    pub fn plan(&self, query: &str) -> Result<Arc<Node>> {
        sql::on_deep_stack(|| -> Result<Arc<Node>> {
            match sql::parse(query)?.as_slice() {
                [Statement::Query(query)] => Binder::new(&self.catalog).query(query),
                _ => Err(Error::syntax("a script", "one query")),
            }
        })?
    }

    /// The table of this name.
    pub fn table(&self, name: &str) -> Result<Arc<Table>> {
        self.catalog.table(&sql::Name { text: name.to_owned(), position: None }).cloned()
    }

    /// The text of one EXPLAIN.
    pub fn explain(&mut self, script: &str) -> Result<String> {
        match self.run(script)?.pop() {
            Some(Outcome::Text(text)) => Ok(text),
            _ => Err(Error::syntax("a script", "one that ends with EXPLAIN")),
        }
    }

    fn statement(&mut self, statement: Statement) -> Result<Outcome> {
        match statement {
            Statement::CreateTable(definition) => {
                let mut table = bind::table(&definition)?;
                if let Some(Attached { host, port, exactly_once, door }) = &self.attached {
                    let guarantee = if *exactly_once { "exactly-once" } else { "at-least-once" };
                    table.attach(
                        &[
                            ("hostname", host),
                            ("port", &port.to_string()),
                            ("sink.delivery-guarantee", guarantee),
                        ],
                        door.as_ref(),
                    );
                }
                self.catalog.insert(
                    &definition.name,
                    Relation::Table(Arc::new(table)),
                    definition.if_not_exists,
                )?;
            }
            Statement::CreateView { name, if_not_exists, columns, query } => {
                let view = bind::view(&self.catalog, &columns, &query)?;
                self.catalog.insert(&name, view, if_not_exists)?;
            }
            Statement::Drop { name, if_exists, view } => self.catalog.remove(&name, view, if_exists)?,
            Statement::Set(key, value) => set(&key, &value)?,
            Statement::Job(inserts) => return Ok(Outcome::Job(self.job(&inserts)?)),
            Statement::Query(query) => {
                return Err(Error::unsupported("a query by itself")
                    .at(position_of(&*query))
                    .hint("INSERT INTO a table of connector 'print' shows rows; EXPLAIN shows the plan"));
            }
            Statement::Explain(inner) => {
                return Ok(Outcome::Text(match *inner {
                    Statement::Job(inserts) => explain_job(&self.job(&inserts)?)?,
                    Statement::Query(query) => self.explain_query(&query)?,
                    _ => return Err(Error::syntax("another statement", "a query or an INSERT")),
                }));
            }
            Statement::ExplainCode(inner) => {
                let plans: Vec<Arc<Node>> = match *inner {
                    Statement::Job(inserts) => {
                        self.job(&inserts)?.optimised.into_iter().map(|sink| sink.input).collect()
                    }
                    Statement::Query(query) => {
                        vec![rules::optimise(&Binder::new(&self.catalog).query(&query)?)]
                    }
                    _ => return Err(Error::syntax("another statement", "a query or an INSERT")),
                };
                return Ok(Outcome::Text(compile::listing(&plans)?));
            }
        }
        Ok(Outcome::Done)
    }

    fn job(&self, inserts: &[Insert]) -> Result<Job> {
        let mut bound = Vec::new();
        let mut places = Vec::new();
        for insert in inserts {
            bound.push(Binder::new(&self.catalog).insert(insert)?);
            places.push(position_of(&*insert.query));
        }
        let optimised = rules::optimise_job(&bound);
        for (sink, place) in optimised.iter().zip(places) {
            changelog::check(sink).map_err(|error| error.at(place))?;
            refuse_unbounded(&sink.input).map_err(|error| error.at(place))?;
        }
        Ok(Job { bound, optimised })
    }

    fn explain_query(&self, query: &Query) -> Result<String> {
        let place = position_of(query);
        let node = rules::optimise(&Binder::new(&self.catalog).query(query)?);
        changelog::derive(&node).map_err(|error| error.at(place))?;
        refuse_unbounded(&node).map_err(|error| error.at(place))?;
        Ok(format!("== Plan ==\n{}", explain::plan(&node)))
    }
}

fn explain_job(job: &Job) -> Result<String> {
    let threads = match Partition::of(&job.optimised) {
        Ok(partition) => partition.to_string(),
        Err(whole) => format!("one: {whole}\n"),
    };
    Ok(format!(
        "== Plan ==\n{}\n== Pipelines ==\n{}\n== Threads ==\n{threads}",
        explain::job(&job.optimised),
        Graph::of(&job.optimised)?
    ))
}

/// A row number without a bound would keep every row.
fn refuse_unbounded(node: &Node) -> Result<()> {
    if let crate::plan::NodeOp::Rank { limit: None, .. } = &node.op {
        return Err(Error::unsupported("ROW_NUMBER without a bound")
            .hint("add WHERE row_number <= N in an outer query"));
    }
    node.inputs().into_iter().try_for_each(|input| refuse_unbounded(input))
}

fn set(key: &sql::Name, value: &str) -> Result<()> {
    match key.text.as_str() {
        "table.local-time-zone" if matches!(value, "UTC" | "GMT" | "Etc/UTC") => Ok(()),
        "table.local-time-zone" => Err(Error::unsupported(format!("the time zone '{value}'"))
            .at(key.position)
            .hint("the session's zone is UTC")),
        other => Err(Error::unsupported(format!("the option '{other}'")).at(key.position)),
    }
}
