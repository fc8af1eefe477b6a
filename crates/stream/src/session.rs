//! The door: a session runs statements, keeps tables and views, and makes jobs.

use std::sync::Arc;

use sqlparser::ast::Query;

use crate::catalog::{Catalog, Door, Relation, Table};
use crate::compile;
use crate::error::{Error, Result};
use crate::options;
use crate::physical::Graph;
use crate::plan::bind::{self, Binder};
use crate::plan::partition::Partition;
use crate::plan::{Node, Sink, changelog, explain, rules};
use crate::run;
use crate::sql::{self, Insert, Statement, position_of};

/// Tables, views and options, from statement to statement.
#[derive(Debug, Default, Clone)]
pub struct Session {
    catalog: Catalog,
    attached: Option<Attached>,
    /// What SET says of tables that are created from now on.
    idle_timeout: Option<String>,
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

    /// Runs every statement of a script; nothing of it counts if one is refused. INSERTs of the script into one table
    /// of files or keys are one job, where the first of them stands: each of two jobs would replace what the other has
    /// written.
    pub fn run(&mut self, script: &str) -> Result<Vec<Outcome>> {
        let mut after = self.clone();
        let outcomes = sql::on_deep_stack(|| -> Result<Vec<Outcome>> {
            let mut outcomes = Vec::new();
            for statement in sql::parse(script)? {
                let place = match &statement {
                    Statement::Job(inserts) => inserts.first().and_then(|insert| insert.table.position),
                    _ => None,
                };
                match after.statement(statement)? {
                    Outcome::Job(job) => {
                        let merged = merge(&mut outcomes, job).map_err(|error| error.at(place))?;
                        outcomes.push(merged.map_or(Outcome::Done, Outcome::Job));
                    }
                    outcome => outcomes.push(outcome),
                }
            }
            Ok(outcomes)
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
                if let Some(timeout) = &self.idle_timeout {
                    let name = "scan.watermark.idle-timeout".to_owned();
                    table.options.entry(name).or_insert_with(|| timeout.clone());
                }
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
            Statement::Set(key, value) => self.set(&key, &value)?,
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

    fn set(&mut self, key: &sql::Name, value: &str) -> Result<()> {
        options::check_set(key, value)?;
        match key.text.as_str() {
            "table.local-time-zone" if !matches!(value, "UTC" | "GMT" | "Etc/UTC") => {
                return Err(Error::unsupported(format!("the time zone '{value}'"))
                    .at(key.position)
                    .hint("the session's zone is UTC"));
            }
            "table.exec.source.idle-timeout" => self.idle_timeout = Some(value.to_owned()),
            _ => {}
        }
        Ok(())
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

/// Puts a job into those before it in its script that write to its tables; gives it back if there are none.
fn merge(outcomes: &mut [Outcome], job: Job) -> Result<Option<Job>> {
    let shares = |other: &Job| {
        let same =
            |sink: &Sink, one: &Sink| one.table.is_written_once() && Arc::ptr_eq(&sink.table, &one.table);
        other.bound.iter().any(|sink| job.bound.iter().any(|one| same(sink, one)))
    };
    let mut first = None;
    let mut bound: Vec<Sink> = Vec::new();
    for (number, outcome) in outcomes.iter_mut().enumerate() {
        let Outcome::Job(before) = outcome else { continue };
        if !shares(before) {
            refuse_two_tables(before, &job)?;
            continue;
        }
        bound.append(&mut before.bound);
        match first {
            None => first = Some(number),
            Some(_) => *outcome = Outcome::Done,
        }
    }
    let Some(first) = first else { return Ok(Some(job)) };
    bound.extend(job.bound);
    let merged = Job { optimised: rules::optimise_job(&bound), bound };
    // They run when the first of them would: what they read must not be what others write, nor the other way round.
    let others = outcomes[first..].iter().filter_map(|outcome| match outcome {
        Outcome::Job(job) if !job.bound.is_empty() => Some(job),
        _ => None,
    });
    for other in others.chain([&merged]) {
        for (writer, reader) in [(other, &merged), (&merged, other)] {
            if let Some(table) = reads_from(reader, writer) {
                return Err(Error::invalid(
                    format!(
                        "a second INSERT into one table, with `{table}` written and read in the same script"
                    ),
                    "the order of both to be seen: INSERTs into one table are one job",
                )
                .hint("write both as one INSERT with UNION ALL, or run them as two scripts"));
            }
        }
    }
    outcomes[first] = Outcome::Job(merged);
    Ok(None)
}

/// A table that one job reads and another writes.
fn reads_from(reader: &Job, writer: &Job) -> Option<String> {
    let written: Vec<String> = writer.bound.iter().filter_map(|sink| sink.table.written()).collect();
    let read = reader.bound.iter().flat_map(Sink::tables);
    let mut both = read.filter(|table| table.written().is_some_and(|what| written.contains(&what)));
    both.next().map(|table| table.name.clone())
}

/// Two tables that write to one place, in two jobs of one script: the second would replace what the first has written.
fn refuse_two_tables(before: &Job, job: &Job) -> Result<()> {
    for sink in &before.bound {
        for other in &job.bound {
            match (sink.table.written(), other.table.written()) {
                (Some(one), Some(two)) if one == two => {
                    return Err(run::two_tables(&sink.table.name, &other.table.name, &one));
                }
                _ => {}
            }
        }
    }
    Ok(())
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
