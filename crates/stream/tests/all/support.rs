//! Runs plans as machine code over the input of the reference.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use duramen_stream::batch::Batch;
use duramen_stream::compile::{Output, Program, Routed, Rows, Source, Threads};
use duramen_stream::plan::partition::Partition;
use duramen_stream::plan::{Node, Sink, rules};
use duramen_stream::reference::{Arrival, Changes, Input, final_rows, run_plans};
use duramen_stream::state::{Numbers, Room};
use duramen_stream::{Error, ErrorKind, Result, Session};

/// Keeps what a sink is given.
pub struct Keep(pub Rc<RefCell<Changes>>);

impl Output for Keep {
    fn take(&mut self, rows: &Rows<'_>) -> Result<()> {
        self.0.borrow_mut().extend(rows.iter());
        Ok(())
    }
}

/// What each sink was given.
type Kept = Vec<Rc<RefCell<Changes>>>;

/// A compiled job and what its sinks were given.
pub fn compile(plans: &[Arc<Node>], input: &Input) -> Result<(Program, Kept)> {
    compile_with(plans, input, false)
}

/// The same; `tracked` as the job will have checkpoints.
pub fn compile_with(plans: &[Arc<Node>], input: &Input, tracked: bool) -> Result<(Program, Kept)> {
    compile_part(plans, input, tracked, None)
}

/// The same as one of several threads.
fn compile_part(
    plans: &[Arc<Node>],
    input: &Input,
    tracked: bool,
    threads: Option<&Threads>,
) -> Result<(Program, Kept)> {
    let kept: Kept = plans.iter().map(|_| Rc::default()).collect();
    let outputs = kept.iter().map(|kept| Box::new(Keep(kept.clone())) as Box<dyn Output>).collect();
    let room = tracked.then(Room::default);
    let mut program = Program::compile_with(plans, outputs, room.as_ref(), threads)?;
    for (number, lookup) in program.lookups().into_iter().enumerate() {
        let mut batch = Batch::new(&lookup.types)?;
        for row in input.tables.get(&lookup.table).into_iter().flatten() {
            batch.push(row)?;
        }
        program.load(number, &batch)?;
    }
    Ok((program, kept))
}

/// Pushes arrivals in batches of at most `rows`, and with one moment of processing if `by_clock` says so.
pub fn push(program: &mut Program, arrivals: &[Arrival], rows: usize, by_clock: bool) -> Result<()> {
    let sources = program.sources();
    each_batch(&sources, arrivals, rows, by_clock, &mut |number, batch| program.run(number, batch))
}

/// Gives arrivals in batches to whoever takes them.
fn each_batch(
    sources: &[Source],
    arrivals: &[Arrival],
    rows: usize,
    by_clock: bool,
    take: &mut dyn FnMut(usize, &Batch) -> Result<()>,
) -> Result<()> {
    let together = |a: &Arrival, b: &Arrival| a.table == b.table && (!by_clock || a.clock == b.clock);
    for run in arrivals.chunk_by(together) {
        for chunk in run.chunks(rows) {
            for (number, source) in sources.iter().enumerate() {
                if source.table != chunk[0].table {
                    continue;
                }
                let mut batch = Batch::new(&source.types)?;
                for arrival in chunk {
                    let row: Vec<_> = source.reads.iter().map(|read| arrival.row[*read].clone()).collect();
                    batch.push(&row)?;
                }
                batch.clock = chunk[chunk.len() - 1].clock;
                take(number, &batch)?;
            }
        }
    }
    Ok(())
}

/// Pages of checkpoints, as a store keeps them: the newest of each.
#[derive(Debug, Clone, Default)]
pub struct Shelf {
    pub pages: HashMap<(u64, u32), Vec<u8>>,
    /// Pages that were written.
    pub written: usize,
}

impl Shelf {
    /// Writes about `budget` bytes of a checkpoint; whether all of it is.
    pub fn save(&mut self, program: &mut Program, budget: usize) -> bool {
        let mut put = |number, page, bytes| {
            self.written += 1;
            self.pages.insert((number, page), bytes);
        };
        program.save(&mut put, budget)
    }

    /// A whole checkpoint.
    pub fn take(&mut self, program: &mut Program, numbers: &mut Numbers) -> Vec<u8> {
        let frozen = program.freeze(numbers);
        assert!(self.save(program, usize::MAX));
        frozen
    }

    /// Brings a job that was compiled anew to a checkpoint.
    pub fn restore(&self, program: &mut Program, frozen: &[u8]) -> Result<Numbers> {
        let mut get = |number, page| {
            let found = self.pages.get(&(number, page)).cloned();
            found.ok_or_else(|| Error::evaluation(format!("page {page} of vector {number} is missing")))
        };
        program.restore(frozen, &mut get)
    }
}

/// What the plans' machine code gives for all of the input.
pub fn run(plans: &[Arc<Node>], input: &Input, rows: usize, by_clock: bool) -> Result<Vec<Changes>> {
    let (mut program, kept) = compile(plans, input)?;
    push(&mut program, &input.arrivals, rows, by_clock)?;
    program.finish()?;
    Ok(kept.iter().map(|kept| kept.borrow().clone()).collect())
}

/// What so many threads give, each of which takes its part of every batch; none if the plans cannot be partitioned.
pub fn run_on(
    plans: &[Arc<Node>],
    input: &Input,
    rows: usize,
    by_clock: bool,
    count: usize,
) -> Option<Result<Vec<Changes>>> {
    let partition = Partition::of(&sinks(plans)).ok()?;
    let threads = Threads { count, partition };
    let run = || {
        let parts: Result<Vec<(Program, Kept)>> =
            (0..count).map(|_| compile_part(plans, input, false, Some(&threads))).collect();
        let mut parts = parts?;
        let (mut routed, mut turn) = (Routed::default(), 0);
        let sources = parts[0].0.sources();
        each_batch(&sources, &input.arrivals, rows, by_clock, &mut |number, batch| {
            // Whoever reads a batch routes it.
            parts[turn as usize % count].0.route(number, batch, turn, &mut routed)?;
            turn += 1;
            parts
                .iter_mut()
                .enumerate()
                .try_for_each(|(thread, (part, _))| part.run_part(number, batch, &routed, thread))
        })?;
        let mut given: Vec<Changes> = plans.iter().map(|_| Vec::new()).collect();
        for (part, kept) in &mut parts {
            part.finish()?;
            for (given, kept) in given.iter_mut().zip(kept) {
                given.append(&mut kept.borrow_mut());
            }
        }
        Ok(given)
    };
    Some(run())
}

fn sinks(plans: &[Arc<Node>]) -> Vec<Sink> {
    let mut session = Session::default();
    session.run("CREATE TABLE sink (a INT) WITH ('connector' = 'print')").unwrap();
    let table = session.table("sink").unwrap();
    plans.iter().map(|input| Sink { table: table.clone(), input: input.clone() }).collect()
}

/// The plans of one job of these queries, with what they share computed once, as the compiler wants them.
pub fn job(bound: &[Arc<Node>]) -> Vec<Arc<Node>> {
    rules::optimise_job(&sinks(bound)).into_iter().map(|sink| sink.input).collect()
}

/// Whether results depend on the moment of processing, so that each has its own batch.
pub fn by_clock(plan: &Arc<Node>) -> bool {
    let text = format!("{plan:?}");
    ["Proctime", "PROCTIME", "CURRENT_", "LOCALTIME", "NOW", "UNIX_TIMESTAMP"]
        .iter()
        .any(|word| text.contains(word))
}

/// Compares machine code with the reference over this input, in small and in large batches, and, where the plan can be
/// partitioned, as on one, two and three threads. `None` if the plan is not
/// compiled yet.
pub fn compare(bound: &Arc<Node>, input: &Input) -> Option<Result<(), String>> {
    let plans = job(std::slice::from_ref(bound));
    let wanted = run_plans(&plans, input);
    // Rows of a batch, and threads: each program takes some time to be compiled.
    let ways: &[(usize, usize)] = if by_clock(&plans[0]) { &[(1, 2)] } else { &[(1, 1), (3, 2), (4096, 3)] };
    for (rows, count) in ways {
        let found = match run(&plans, input, *rows, by_clock(&plans[0])) {
            Err(error) if error.kind() == ErrorKind::Unsupported => return None,
            found => found,
        };
        let (wanted, found) = match (&wanted, found) {
            (Ok(wanted), Ok(found)) => (final_rows(&wanted[0]), final_rows(&found[0])),
            (Err(wanted), Err(found)) if wanted.to_string() == found.to_string() => continue,
            (wanted, found) => {
                let wanted = wanted.as_ref().map(|_| ()).map_err(ToString::to_string);
                return Some(Err(format!("wanted {wanted:?}, found {:?}", found.map(|_| ()))));
            }
        };
        if wanted != found {
            return Some(Err(format!("batches of {rows}: wanted\n{wanted:?}\nfound\n{found:?}")));
        }
        let found = match run_on(&plans, input, *rows, by_clock(&plans[0]), *count) {
            None => continue,
            Some(Ok(found)) => final_rows(&found[0]),
            Some(Err(error)) => return Some(Err(format!("{count} threads fail: {error}"))),
        };
        if wanted != found {
            return Some(Err(format!(
                "batches of {rows}, {count} threads: wanted\n{wanted:?}\nfound\n{found:?}"
            )));
        }
    }
    Some(Ok(()))
}
