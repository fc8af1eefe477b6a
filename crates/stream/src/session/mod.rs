//! The entry point: a session runs statements, keeps tables and views, and makes jobs.

mod pipeline;

use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::Arc;

use sqlparser::ast::Query;

pub use self::pipeline::Pipeline;
use crate::catalog::options;
use crate::catalog::{Attachment, Catalog, Relation, Table};
use crate::compile;
use crate::connectors;
use crate::error::{Error, Position, Result};
use crate::plan::bind::{self, Binder};
use crate::plan::partition::Partition;
use crate::plan::physical::Graph;
use crate::plan::{Node, Sink, changelog, explain, rules};
use crate::run;
use crate::sql::{self, Insert, Statement, position_of};

/// Most jobs of a script: this many are planned within a second.
const JOBS_MAX: usize = 10_000;

/// Tables, views and options, from statement to statement.
#[derive(Debug, Default, Clone)]
pub struct Session {
    catalog: Catalog,
    attached: Option<Attached>,
    /// The value of SET for tables that are created from now on.
    idle_timeout: Option<String>,
}

/// A running server that stores the tables of connector 'duramen'.
#[derive(Debug, Clone)]
struct Attached {
    host: String,
    port: u16,
    exactly_once: bool,
    /// More options of the connector `redis`.
    options: Vec<(String, String)>,
    /// How to connect to it, if it is in this process.
    attachment: Option<Attachment>,
}

/// Inserts that run together.
#[derive(Debug, Clone)]
pub struct Job {
    /// As bound from the queries.
    pub bound: Vec<Sink>,
    /// As executed.
    pub optimised: Vec<Sink>,
}

/// The result of a statement.
#[derive(Debug)]
pub enum Outcome {
    /// The session's catalog or options changed.
    Done,
    /// A job to run.
    Job(Job),
    /// A text to show.
    Text(String),
}

impl Session {
    /// Stores tables of connector 'duramen' in a running server from now on, and not in the job's own store. With
    /// `exactly_once`, which also needs a store of the job, the server gets the results of each checkpoint in one
    /// transaction; without, it gets each result at once.
    pub fn attach(&mut self, host: &str, port: u16, exactly_once: bool) {
        self.attach_with(host, port, exactly_once, Vec::new());
    }

    /// The same with more options of the connector `redis`: a user, TLS.
    pub fn attach_with(&mut self, host: &str, port: u16, exactly_once: bool, options: Vec<(String, String)>) {
        let host = host.to_owned();
        self.attached = Some(Attached { host, port, exactly_once, options, attachment: None });
    }

    /// As [`Session::attach`] with a server in this process. It gets the results of each checkpoint in one transaction:
    /// its jobs have their own stores.
    pub fn attach_here(&mut self, attachment: Attachment) {
        let host = "this process".to_owned();
        let (options, attachment) = (Vec::new(), Some(attachment));
        self.attached = Some(Attached { host, port: 0, exactly_once: true, options, attachment });
    }

    /// Runs every statement of a script; if one is refused, none has an effect. INSERTs of the script into the same
    /// table of files or keys become one job, at the place of the first of them. With two jobs, each would replace what
    /// the other has written.
    pub fn run(&mut self, script: &str) -> Result<Vec<Outcome>> {
        let mut after = self.clone();
        let outcomes = sql::on_deep_stack(|| -> Result<Vec<Outcome>> {
            let (mut outcomes, mut jobs) = (Vec::new(), Vec::new());
            for statement in sql::parse(script)? {
                let place = match &statement {
                    Statement::Job(inserts) => inserts.first().and_then(|insert| insert.table.position),
                    _ => None,
                };
                match after.statement(statement)? {
                    Outcome::Job(job) => {
                        if jobs.len() == JOBS_MAX {
                            return Err(Error::invalid(
                                format!("a script of more than {JOBS_MAX} jobs"),
                                format!("at most {JOBS_MAX}"),
                            )
                            .at(place)
                            .hint("make several scripts of it, or statement sets"));
                        }
                        jobs.push((outcomes.len(), place, job));
                        outcomes.push(Outcome::Done);
                    }
                    outcome => outcomes.push(outcome),
                }
            }
            for (number, job) in merge(jobs)? {
                outcomes[number] = Outcome::Job(job);
            }
            Ok(outcomes)
        })??;
        *self = after;
        Ok(outcomes)
    }

    /// The plan of one query, as bound.
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
                let mut table = bind::table(&definition, connectors::declared())?;
                if let Some(timeout) = &self.idle_timeout {
                    let name = "scan.watermark.idle-timeout".to_owned();
                    table.options.entry(name).or_insert_with(|| timeout.clone());
                }
                if let Some(Attached { host, port, exactly_once, options, attachment }) = &self.attached
                    && let Some(redis) = connectors::declared().find(|one| one.name == "redis")
                {
                    let guarantee = if *exactly_once { "exactly-once" } else { "at-least-once" };
                    let port = port.to_string();
                    let mut all = vec![
                        ("hostname", host.as_str()),
                        ("port", port.as_str()),
                        ("sink.delivery-guarantee", guarantee),
                    ];
                    all.extend(options.iter().map(|(name, value)| (name.as_str(), value.as_str())));
                    table.attach(redis, &all, attachment.as_ref());
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
                    Statement::Job(inserts) => self.job(&inserts)?.explain()?,
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

/// The jobs of a script that write to one place through one table.
struct Written {
    table: Arc<Table>,
    /// The first and the last of these jobs.
    first: usize,
    last: usize,
}

/// Merges all jobs of a script that write to the same table, at the place of the first of them. Each job comes with the
/// number of its statement and that statement's place in the script.
///
/// Looks at each table of each job a fixed number of times, so that a script may have many jobs.
fn merge(jobs: Vec<(usize, Option<Position>, Job)>) -> Result<Vec<(usize, Job)>> {
    let mut written: HashMap<String, Written> = HashMap::new();
    // For each job an earlier one with which it is merged, or itself.
    let mut before: Vec<usize> = (0..jobs.len()).collect();
    for (number, (_, place, job)) in jobs.iter().enumerate() {
        for table in job.bound.iter().map(|sink| &sink.table) {
            let Some(what) = table.written() else { continue };
            match written.get_mut(&what) {
                None => {
                    written.insert(what, Written { table: table.clone(), first: number, last: number });
                }
                Some(other) if !Arc::ptr_eq(&other.table, table) => {
                    return Err(run::two_tables(&other.table.name, &table.name, &what).at(*place));
                }
                Some(same) => {
                    same.last = number;
                    let (one, two) = (first_of(&mut before, same.first), first_of(&mut before, number));
                    before[one.max(two)] = one.min(two);
                }
            }
        }
    }
    let firsts: Vec<usize> = (0..jobs.len()).map(|number| first_of(&mut before, number)).collect();
    let mut counts = vec![0; jobs.len()];
    firsts.iter().for_each(|first| counts[*first] += 1);
    // They run when the first of them would, so none of them may read what another one writes.
    for (reader, (_, _, job)) in jobs.iter().enumerate() {
        for table in job.bound.iter().flat_map(Sink::tables) {
            let Some(found) = table.written().and_then(|what| written.get(&what)) else { continue };
            let is_wrong = match firsts[reader].cmp(&firsts[found.first]) {
                Ordering::Equal => counts[firsts[reader]] > 1,
                Ordering::Less => found.first < reader,
                Ordering::Greater => reader < found.last,
            };
            if is_wrong {
                return Err(Error::invalid(
                    format!(
                        "a second INSERT into one table, with `{}` written and read in the same script",
                        table.name
                    ),
                    "a defined order of both INSERTs, which run as one job",
                )
                .at(jobs[found.last.max(reader)].1)
                .hint("write both as one INSERT with UNION ALL, or run them as two scripts"));
            }
        }
    }
    let mut merged: Vec<(usize, Job)> = Vec::new();
    // The index of each merged job in the result, by its first job.
    let mut places = vec![None; jobs.len()];
    for (first, (number, _, job)) in firsts.iter().zip(jobs) {
        match places[*first] {
            Some(place) => {
                let (_, into): &mut (usize, Job) = &mut merged[place];
                into.bound.extend(job.bound);
            }
            None => {
                places[*first] = Some(merged.len());
                merged.push((number, job));
            }
        }
    }
    for (_, job) in &mut merged {
        if job.bound.len() > job.optimised.len() {
            job.optimised = rules::optimise_job(&job.bound);
        }
    }
    Ok(merged)
}

/// The first job with which one is merged.
fn first_of(before: &mut [usize], mut number: usize) -> usize {
    while before[number] != number {
        before[number] = before[before[number]];
        number = before[number];
    }
    number
}

impl Job {
    /// The text of its EXPLAIN.
    ///
    /// # Errors
    /// When it cannot run: a part is not supported.
    pub fn explain(&self) -> Result<String> {
        let threads = match Partition::of(&self.optimised) {
            Ok(partition) => partition.to_string(),
            Err(whole) => format!("one: {whole}\n"),
        };
        Ok(format!(
            "== Plan ==\n{}\n== Pipelines ==\n{}\n== Threads ==\n{threads}",
            explain::job(&self.optimised),
            Graph::of(&self.optimised)?
        ))
    }
}

/// A row number without a bound would keep every row.
fn refuse_unbounded(node: &Node) -> Result<()> {
    if let crate::plan::NodeOp::Rank { limit: None, .. } = &node.op {
        return Err(Error::unsupported("ROW_NUMBER without a bound")
            .hint("add WHERE row_number <= N in an outer query"));
    }
    node.inputs().into_iter().try_for_each(|input| refuse_unbounded(input))
}
