//! Runs plans as machine code over the input of the reference.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use duramen_stream::batch::Batch;
use duramen_stream::compile::{Output, Program, Rows};
use duramen_stream::plan::{Node, Sink, rules};
use duramen_stream::reference::{Arrival, Changes, Input, final_rows, run_plans};
use duramen_stream::state::Numbers;
use duramen_stream::{Error, ErrorKind, Result, Session};

/// Keeps what a sink is given.
pub struct Keep(pub Rc<RefCell<Changes>>);

impl Output for Keep {
    fn take(&mut self, rows: &Rows<'_>) -> Result<()> {
        self.0.borrow_mut().extend(rows.iter());
        Ok(())
    }
}

/// A compiled job and what its sinks were given.
pub fn compile(plans: &[Arc<Node>], input: &Input) -> Result<(Program, Vec<Rc<RefCell<Changes>>>)> {
    compile_with(plans, input, false)
}

/// The same; `tracked` as the job will have checkpoints.
pub fn compile_with(
    plans: &[Arc<Node>],
    input: &Input,
    tracked: bool,
) -> Result<(Program, Vec<Rc<RefCell<Changes>>>)> {
    let kept: Vec<Rc<RefCell<Changes>>> = plans.iter().map(|_| Rc::default()).collect();
    let outputs = kept.iter().map(|kept| Box::new(Keep(kept.clone())) as Box<dyn Output>).collect();
    let mut program = Program::compile_with(plans, outputs, tracked)?;
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
                program.run(number, &batch)?;
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

/// The plans of one job of these queries, with what they share computed once, as the compiler wants them.
pub fn job(bound: &[Arc<Node>]) -> Vec<Arc<Node>> {
    let mut session = Session::default();
    session.run("CREATE TABLE sink (a INT) WITH ('connector' = 'print')").unwrap();
    let table = session.table("sink").unwrap();
    let sinks: Vec<Sink> =
        bound.iter().map(|input| Sink { table: table.clone(), input: input.clone() }).collect();
    rules::optimise_job(&sinks).into_iter().map(|sink| sink.input).collect()
}

/// Whether results depend on the moment of processing, so that each has its own batch.
pub fn by_clock(plan: &Arc<Node>) -> bool {
    let text = format!("{plan:?}");
    ["Proctime", "PROCTIME", "CURRENT_", "LOCALTIME", "NOW", "UNIX_TIMESTAMP"]
        .iter()
        .any(|word| text.contains(word))
}

/// Compares machine code with the reference over this input, in small and in large batches. `None` if the plan is not
/// compiled yet.
pub fn compare(bound: &Arc<Node>, input: &Input) -> Option<Result<(), String>> {
    let plans = job(std::slice::from_ref(bound));
    let wanted = run_plans(&plans, input);
    let rows: &[usize] = if by_clock(&plans[0]) { &[1] } else { &[1, 3, 4096] };
    for rows in rows {
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
    }
    Some(Ok(()))
}
