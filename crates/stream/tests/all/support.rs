//! Runs plans as machine code over the input of the reference; kills processes at random moments.

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::Path;
use std::process::Child;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use duramen_stream::batch::Batch;
use duramen_stream::compile::{Output, Program, Routed, Rows, Source, Threads};
use duramen_stream::plan::partition::Partition;
use duramen_stream::plan::reference::{Arrival, Changes, Input, final_rows, run_plans};
use duramen_stream::plan::{Node, Sink, rules};
use duramen_stream::state::{MemoryLimit, Numbers};
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
    let room = tracked.then(MemoryLimit::default);
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

/// Passes arrivals in batches to `take`.
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

    /// Restores a newly compiled job from a checkpoint.
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

/// The results of `threads` threads, each with its part of every batch; `None` if the plans cannot be partitioned.
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
            // The thread that reads a batch routes it.
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

/// Brings a program that was compiled just now, and has ended, back to its beginning: compiling takes longer than all
/// else.
struct Again(Vec<u8>);

impl Again {
    /// Of a program that has read nothing.
    fn of(program: &mut Program) -> Again {
        Again(program.freeze(&mut Numbers::default()))
    }

    /// Everything that a program keeps is empty again: whatever page is asked for is zeros.
    fn begin(&self, program: &mut Program) -> Result<()> {
        program.restore(&self.0, &mut |_, _| Ok(vec![0; 1 << 16])).map(|_| ())
    }
}

/// Compares machine code with the reference over this input, in small and in large batches, and, where the plan can be
/// partitioned, as on two threads or three: on which follows from how many rows there are. One program serves batches
/// of all sizes; after a failed run the next one gets a new program. `None` if the plan is not compiled yet.
pub fn compare(bound: &Arc<Node>, input: &Input) -> Option<Result<(), String>> {
    let plans = job(std::slice::from_ref(bound));
    let wanted = run_plans(&plans, input);
    let wanted = wanted.as_ref().map(|wanted| final_rows(&wanted[0])).map_err(ToString::to_string);
    let by_clock = by_clock(&plans[0]);
    // Rows of a batch.
    let sizes: &[usize] = if by_clock { &[1] } else { &[1, 3, 4096] };
    let judge = |how: String, found: Result<_, String>| {
        (wanted != found).then(|| format!("{how}: wanted\n{wanted:?}\nfound\n{found:?}"))
    };
    let mut compiled = None;
    for rows in sizes {
        let (mut program, kept, again) = match compiled.take() {
            Some(compiled) => compiled,
            None => match compile(&plans, input) {
                Err(error) if error.kind() == ErrorKind::Unsupported => return None,
                Err(error) => return Some(Err(format!("not compiled: {error}"))),
                Ok((mut program, kept)) => {
                    let again = Again::of(&mut program);
                    (program, kept, again)
                }
            },
        };
        let ran = push(&mut program, &input.arrivals, *rows, by_clock).and_then(|()| program.finish());
        let found = ran.map(|()| final_rows(&kept[0].borrow())).map_err(|error| error.to_string());
        let is_over = found.is_err();
        if let Some(difference) = judge(format!("batches of {rows}"), found) {
            return Some(Err(difference));
        }
        kept[0].borrow_mut().clear();
        if !is_over {
            if let Err(error) = again.begin(&mut program) {
                return Some(Err(format!("does not begin again: {error}")));
            }
            compiled = Some((program, kept, again));
        }
    }
    let count = 2 + input.arrivals.len() % 2;
    let rows = sizes[input.arrivals.len() / 2 % sizes.len()];
    // An error of one thread may come before that of another.
    if let (Ok(_), Some(found)) = (&wanted, run_on(&plans, input, rows, by_clock, count)) {
        let found = found.map(|found| final_rows(&found[0])).map_err(|error| error.to_string());
        if let Some(difference) = judge(format!("batches of {rows}, {count} threads"), found) {
            return Some(Err(difference));
        }
    }
    Some(Ok(()))
}

/// A generator of moments, by seed.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound.max(1)
    }
}

/// When processes are killed, in milliseconds.
pub struct Moments {
    /// One of five kills comes this soon after the start: while the job opens and resumes.
    pub opens: u64,
    /// The others within so long after they have begun to run.
    pub runs: u64,
    /// And this much later with each try, so that one try finishes even on a busy machine.
    pub later: u64,
}

/// Starts and kills a process repeatedly until it ends on its own; returns the number of starts. It makes the file
/// `started` when it begins to run.
pub fn kill_until_it_ends(
    random: &mut Random,
    moments: &Moments,
    started: &Path,
    start: &dyn Fn() -> Child,
) -> usize {
    let seed = random.0;
    for tries in 1..200 {
        let _ = std::fs::remove_file(started);
        let mut began = Instant::now();
        let mut child = start();
        let early = random.below(5) == 0;
        let moment = if early { moments.opens } else { moments.runs + moments.later * tries as u64 };
        let moment = Duration::from_millis(random.below(moment));
        let mut runs = early;
        let ended = loop {
            match child.try_wait().unwrap() {
                Some(status) => break Some(status),
                None if runs && began.elapsed() >= moment => break None,
                None if !runs && started.exists() => (runs, began) = (true, Instant::now()),
                None => std::thread::sleep(Duration::from_millis(1)),
            }
        };
        if let Some(status) = ended {
            let output = child.wait_with_output().unwrap();
            let why = String::from_utf8_lossy(&output.stderr);
            assert!(status.success(), "it ended unexpectedly: {status}\n{why}\nseed {seed}");
            return tries;
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
    panic!("no progress: it was killed 199 times; seed {seed}");
}
