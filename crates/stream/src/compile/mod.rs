//! A job as machine code for this CPU, and the state that it works on.
//!
//! [`Program::compile`] makes one function of each source. Its single loop pushes each row in registers to every
//! breaker and sink. Each breaker with windows gets one function that emits the rows of a closed window, and one that
//! merges slices. Parts of SQL that cannot be compiled yet are refused by name.

// Machine code and the memory that it works on: the only part of the crate that needs unsafe code.
#![allow(unsafe_code)]
// Compiled code only passes the machine's address on and does not look inside.
#![allow(improper_ctypes_definitions)]

mod aggregate;
mod ahead;
mod calls;
mod emit;
mod expr;
mod graph;
mod machine;
mod nodes;
mod rank;
mod table;
mod texts;

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cranelift_codegen::Context;
use cranelift_codegen::control::ControlPlane;
use cranelift_codegen::ir::{self, AbiParam, UserFuncName, types};
use cranelift_codegen::isa::OwnedTargetIsa;
use cranelift_codegen::settings::{self, Configurable};
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext};
use cranelift_jit::{JITBuilder, JITModule};
use cranelift_module::{FuncId, Linkage, Module, ModuleError, ModuleReloc, default_libcall_names};

use self::emit::{Gen, Imports, Unit, broken, declare};
use self::graph::Graph;
use self::machine::{CloseCode, Kind, Machine, MergeCode, Pane, advance, tick};
pub use self::machine::{Output, RowRef, Rows};
use crate::batch::{Batch, Values};
use crate::error::{Error, Result};
use crate::plan::partition::Partition;
use crate::plan::{Node, NodeOp, explain};
use crate::state::{Get, MemoryLimit, Numbers, Put, Reader, Window, write_word};
use crate::types::Type;

/// The end of time: small enough that adding the length of a window stays within 64 bits. As in the reference.
const END: i64 = i64::MAX / 4;

/// Code of a source: machine, columns, rows; not zero if it failed.
type SourceCode = extern "C" fn(*mut Machine, *const usize, u64) -> i64;

/// Code that routes rows of a source: machine, columns, rows, where numbers go, watermarks.
type RouteCode = extern "C" fn(*mut Machine, *const usize, u64, *mut usize, *mut i64) -> i64;

/// A table that a job reads.
#[derive(Debug, Clone)]
pub struct Source {
    /// Its name.
    pub table: String,
    /// Indexes of the physical columns that batches must have, in this order.
    pub reads: Vec<usize>,
    /// Their types.
    pub types: Vec<Type>,
}

/// The state that a breaker holds now.
#[derive(Debug, Clone)]
pub struct Held {
    /// The operator.
    pub name: String,
    /// Bytes of its state.
    pub bytes: usize,
    /// Keys of its state, in all open windows.
    pub keys: usize,
    /// Rows that came too late.
    pub late: u64,
    /// Rows without a time, which are in no window.
    pub timeless: u64,
}

/// Where the rows of one batch go.
#[derive(Debug, Default)]
pub struct Routed {
    /// Numbers of the rows of each thread.
    parts: Vec<Vec<u32>>,
    /// The watermark that the rows of the batch have reached before each of its rows, and at its end.
    marks: Vec<i64>,
}

impl Routed {
    /// Number of rows that go to a thread.
    pub fn rows(&self, thread: usize) -> usize {
        self.parts.get(thread).map_or(0, Vec::len)
    }
}

/// The role of a program that is one of several threads.
#[derive(Debug, Clone)]
pub struct Threads {
    /// How many there are.
    pub count: usize,
    /// The keys by which rows are routed.
    pub partition: Partition,
}

/// A compiled job.
pub struct Program {
    machine: Box<Machine>,
    scans: Vec<(Source, usize, SourceCode)>,
    /// One for each scan, if rows are routed by keys.
    routes: Vec<Option<RouteCode>>,
    threads: usize,
    lookups: Vec<(Source, usize, SourceCode)>,
    constants: Vec<SourceCode>,
    text: String,
    compiled_in: Duration,
    begun: bool,
    /// The code's memory; it lives as long as its addresses are called.
    module: Option<JITModule>,
}

impl std::fmt::Debug for Program {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Program({} scans, {:?})", self.scans.len(), self.machine)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if let Some(module) = self.module.take() {
            // SAFETY: the program is the only caller of the code, and it is being dropped.
            unsafe { module.free_memory() }
        }
    }
}

/// The output of a job that does not run.
struct Nobody;

impl Output for Nobody {
    fn take(&mut self, _: &Rows<'_>) -> Result<()> {
        Ok(())
    }
}

/// The code of a job, readable: what EXPLAIN CODEGEN shows.
pub fn listing(plans: &[Arc<Node>]) -> Result<String> {
    let outputs = plans.iter().map(|_| Box::new(Nobody) as Box<dyn Output>).collect();
    Ok(Program::compile(plans, outputs)?.text.clone())
}

/// The kinds of functions of a job.
enum Part {
    Scan(usize),
    Route,
    Lookup(usize),
    Constants,
    Close(usize),
    Merge(usize),
}

impl Program {
    /// Compiles the plans of a job for this CPU: each plan sends its rows to the output with the same number.
    pub fn compile(plans: &[Arc<Node>], outputs: Vec<Box<dyn Output>>) -> Result<Program> {
        Program::compile_with(plans, outputs, None, None)
    }

    /// As [`Program::compile`]. With `kept`, state is kept there, and code marks its changes, which checkpoints need.
    /// With `threads`, the program is one of several that each process a part of every batch.
    pub fn compile_with(
        plans: &[Arc<Node>],
        outputs: Vec<Box<dyn Output>>,
        kept: Option<&MemoryLimit>,
        threads: Option<&Threads>,
    ) -> Result<Program> {
        let began = Instant::now();
        let mut machine = Machine::new();
        machine.tracked = kept.is_some();
        machine.room = kept.cloned().unwrap_or_default();
        machine.routed = threads.is_some();
        machine.outputs = outputs;
        let graph = Graph::new(plans, &mut machine)?;
        for breaker in &mut machine.breakers {
            if breaker.is_one_table() {
                for (pane, state) in breaker.panes.iter_mut().zip(&mut breaker.states) {
                    let table = std::ptr::from_mut(state.table(Window::ALWAYS)) as usize;
                    *pane = Pane { start: i64::MIN, end: i64::MAX, table };
                }
            }
        }
        let (module, imports) = module()?;
        let mut unit = Unit { module, machine, imports };
        let mut text = String::new();
        let mut parts = Vec::new();
        let mut context = FunctionBuilderContext::new();
        for (number, node) in graph.sources.iter().enumerate() {
            match &node.op {
                NodeOp::Scan(scan) => {
                    let title = format!("scan of {}: machine, columns, rows", scan.table.name);
                    let names = ["machine", "columns", "rows"];
                    let id = function(
                        &mut unit,
                        &mut context,
                        &mut text,
                        (&format!("scan{number}"), &title),
                        &names,
                        |g, args| g.scan(&graph, node, scan, number, [args[1], args[2]]),
                    )?;
                    parts.push((Part::Scan(number), id));
                    let Some(threads) = threads else { continue };
                    let keys = threads.partition.keys(node);
                    if keys.is_empty() {
                        continue;
                    }
                    let title = format!(
                        "routes rows of {}: machine, columns, rows, parts, watermarks",
                        scan.table.name
                    );
                    let names = ["machine", "columns", "rows", "parts", "watermarks"];
                    let id = function(
                        &mut unit,
                        &mut context,
                        &mut text,
                        (&format!("route{number}"), &title),
                        &names,
                        |g, args| g.route(scan, keys, threads.count, [args[1], args[2], args[3], args[4]]),
                    )?;
                    parts.push((Part::Route, id));
                }
                NodeOp::Values(_, rows) => {
                    let names = ["machine", "columns", "rows"];
                    let id = function(
                        &mut unit,
                        &mut context,
                        &mut text,
                        (&format!("constants{number}"), "constants"),
                        &names,
                        |g, _| g.values(&graph, node, rows),
                    )?;
                    parts.push((Part::Constants, id));
                }
                _ => {}
            }
        }
        for place in &graph.places {
            let line = explain::line(&place.node);
            let breaker = &unit.machine.breakers[place.number];
            let closes = nodes::closes(breaker);
            let merges = matches!(breaker.kind, Kind::Slices { .. } | Kind::Sessions { .. });
            if let NodeOp::Lookup { .. } = &place.node.op {
                let id = function(
                    &mut unit,
                    &mut context,
                    &mut text,
                    (&format!("table{}", place.number), &format!("rows for {line}")),
                    &["machine", "columns", "rows"],
                    |g, args| g.load_table(&graph, &place.node, [args[1], args[2]]),
                )?;
                parts.push((Part::Lookup(place.number), id));
            }
            if closes {
                let id = function(
                    &mut unit,
                    &mut context,
                    &mut text,
                    (&format!("close{}", place.number), &format!("a closed window of {line}")),
                    &["machine", "table", "start", "end"],
                    |g, args| g.close(&graph, &place.node, [args[1], args[2], args[3]]),
                )?;
                parts.push((Part::Close(place.number), id));
            }
            if merges {
                let id = function(
                    &mut unit,
                    &mut context,
                    &mut text,
                    (&format!("merge{}", place.number), &format!("records to put together of {line}")),
                    &["machine", "from", "to"],
                    |g, args| g.merge(&graph, &place.node, [args[1], args[2]]),
                )?;
                parts.push((Part::Merge(place.number), id));
            }
        }
        let Unit { mut module, mut machine, .. } = unit;
        module.finalize_definitions().map_err(broken)?;
        let (mut scans, mut lookups, mut constants) = (Vec::new(), Vec::new(), Vec::new());
        let mut routes: Vec<Option<RouteCode>> = Vec::new();
        for (part, id) in parts {
            let code = module.get_finalized_function(id);
            match part {
                Part::Scan(number) => {
                    let NodeOp::Scan(scan) = &graph.sources[number].op else { continue };
                    let column = |read: &usize| &scan.table.columns[scan.table.physical[*read]];
                    let source = Source {
                        table: scan.table.name.clone(),
                        reads: scan.reads.clone(),
                        types: scan.reads.iter().map(|read| column(read).ty.clone()).collect(),
                    };
                    scans.push((source, number, source_code(code)));
                    routes.push(None);
                }
                Part::Route => {
                    // SAFETY: the function was declared with five words in and one out, as `RouteCode` has.
                    let code = unsafe { std::mem::transmute::<*const u8, RouteCode>(code) };
                    // The code follows that of its scan.
                    if let Some(route) = routes.last_mut() {
                        *route = Some(code);
                    }
                }
                Part::Lookup(number) => {
                    let NodeOp::Lookup { table, .. } = &graph.places[number].node.op else { continue };
                    let source = Source {
                        table: table.name.clone(),
                        reads: (0..table.columns.len()).collect(),
                        types: table.columns.iter().map(|column| column.ty.clone()).collect(),
                    };
                    lookups.push((source, graph.places[number].number, source_code(code)));
                }
                Part::Constants => constants.push(source_code(code)),
                Part::Close(number) => {
                    // SAFETY: the function was declared with four words in and one out, as `CloseCode` has.
                    let code = unsafe { std::mem::transmute::<*const u8, CloseCode>(code) };
                    machine.breakers[number].close = Some(code);
                }
                Part::Merge(number) => {
                    // SAFETY: the function was declared with three words in and one out, as `MergeCode` has.
                    let code = unsafe { std::mem::transmute::<*const u8, MergeCode>(code) };
                    machine.breakers[number].merge = Some(code);
                }
            }
        }
        Ok(Program {
            machine,
            scans,
            routes,
            threads: threads.map_or(1, |threads| threads.count),
            lookups,
            constants,
            text,
            compiled_in: began.elapsed(),
            begun: false,
            module: Some(module),
        })
    }

    /// The tables that it reads, in the order of [`Program::run`]'s numbers.
    pub fn sources(&self) -> Vec<Source> {
        self.scans.iter().map(|(source, ..)| source.clone()).collect()
    }

    /// The tables that it looks up, in the order of [`Program::load`]'s numbers.
    pub fn lookups(&self) -> Vec<Source> {
        self.lookups.iter().map(|(source, ..)| source.clone()).collect()
    }

    /// The code of all functions, readable.
    pub fn listing(&self) -> &str {
        &self.text
    }

    /// How long compiling took.
    pub fn compiled_in(&self) -> Duration {
        self.compiled_in
    }

    /// The least watermark of all scans.
    pub fn watermark(&self) -> i64 {
        let least = |idle: bool| {
            let scans = self.machine.scans.iter().filter(|scan| idle || !scan.idle);
            scans.map(|scan| scan.watermark).min()
        };
        least(false).or_else(|| least(true)).unwrap_or(i64::MIN)
    }

    /// The state of each breaker.
    pub fn held(&self) -> Vec<Held> {
        let held = |breaker: &machine::Breaker| Held {
            name: breaker.name.clone(),
            bytes: breaker.states.iter().map(|state| state.bytes()).sum(),
            keys: breaker.states.iter().map(|state| state.keys()).sum(),
            late: breaker.late,
            timeless: 0,
        };
        let windows =
            Held { name: "windows".to_owned(), bytes: 0, keys: 0, late: 0, timeless: self.machine.timeless };
        let timeless = (windows.timeless > 0).then_some(windows);
        self.machine.breakers.iter().map(|breaker| held(breaker)).chain(timeless).collect()
    }

    /// Bytes of pages that were copied for a checkpoint and wait to be written out.
    pub fn copies(&self) -> usize {
        let breakers = self.machine.breakers.iter();
        breakers.map(|breaker| breaker.copies()).sum()
    }

    /// Loads rows of a lookup table: all its columns.
    pub fn load(&mut self, lookup: usize, batch: &Batch) -> Result<()> {
        let (source, _, code) = &self.lookups[lookup];
        let code = *code;
        fits(source, batch)?;
        self.call(code, batch)
    }

    /// Forgets the rows of a lookup table, so that others can be loaded.
    pub fn unload(&mut self, lookup: usize) {
        let (_, breaker, _) = &self.lookups[lookup];
        self.machine.breakers[*breaker]
            .states
            .iter_mut()
            .for_each(|state| state.table(Window::ALWAYS).clear());
    }

    /// Pushes a batch of a source through the job. After an error the job must not be used.
    pub fn run(&mut self, source: usize, batch: &Batch) -> Result<()> {
        let (wanted, _, code) = &self.scans[source];
        let code = *code;
        fits(wanted, batch)?;
        self.begin()?;
        self.at(batch.clock)?;
        self.call(code, batch)
    }

    /// Routes the rows of a batch to threads. Without keys all of them go to the thread of the `turn`.
    pub fn route(&mut self, source: usize, batch: &Batch, turn: u64, routed: &mut Routed) -> Result<()> {
        let rows = batch.rows();
        fits(&self.scans[source].0, batch)?;
        routed.parts.resize(self.threads, Vec::new());
        routed.parts.iter_mut().for_each(Vec::clear);
        routed.marks.clear();
        routed.marks.resize(rows + 1, i64::MIN);
        let Some(code) = self.routes[source] else {
            let numbers = 0..u32::try_from(rows).unwrap_or(u32::MAX);
            routed.parts[(turn % self.threads as u64) as usize].extend(numbers);
            return Ok(());
        };
        for part in &mut routed.parts {
            part.resize(rows, 0);
        }
        let columns = addresses(batch);
        let machine = &raw mut *self.machine;
        let begins: Vec<usize> = routed.parts.iter_mut().map(|part| part.as_mut_ptr() as usize).collect();
        let mut ends = begins.clone();
        let failed =
            code(machine, columns.as_ptr(), rows as u64, ends.as_mut_ptr(), routed.marks.as_mut_ptr());
        self.report(failed)?;
        self.machine.forget_texts();
        for (part, (begins, ends)) in routed.parts.iter_mut().zip(begins.into_iter().zip(ends)) {
            part.truncate((ends - begins) / size_of::<u32>());
        }
        Ok(())
    }

    /// Pushes one thread's rows of a batch through the job, as [`Program::run`] does with all rows. Every thread must
    /// be given every batch that has rows, in the same order.
    pub fn run_part(&mut self, source: usize, batch: &Batch, routed: &Routed, thread: usize) -> Result<()> {
        let (wanted, scan, code) = &self.scans[source];
        let (scan, code) = (*scan, *code);
        fits(wanted, batch)?;
        self.begin()?;
        self.at(batch.clock)?;
        let Some(part) = routed.parts.get(thread) else {
            return Err(Error::evaluation("a batch that was routed to fewer threads"));
        };
        let mark = routed.marks.last().copied().unwrap_or(i64::MIN);
        if !part.is_empty() {
            // Sessions that begin in the batch may also close within it.
            let sessions = self.machine.breakers.iter().any(|one| matches!(one.kind, Kind::Sessions { .. }));
            let closes = sessions || mark >= self.machine.scans[scan].deadline;
            let marks = if closes { routed.marks.as_ptr() as usize } else { 0 };
            let mut columns = addresses(batch);
            columns.extend([part.as_ptr() as usize, marks]);
            let machine = &raw mut *self.machine;
            let failed = code(machine, columns.as_ptr(), part.len() as u64);
            self.report(failed)?;
        }
        let slot = &mut self.machine.scans[scan];
        if mark > slot.watermark {
            slot.watermark = mark;
            if mark >= slot.deadline {
                let machine = &raw mut *self.machine;
                let failed = advance(machine);
                self.report(failed)?;
            }
        }
        self.machine.end_batch()
    }

    /// Marks a source as idle: then it does not hold back the watermark until it has rows again.
    pub fn set_idle(&mut self, source: usize, idle: bool) -> Result<()> {
        let (_, scan, _) = self.scans[source];
        if std::mem::replace(&mut self.machine.scans[scan].idle, idle) == idle || !idle {
            return Ok(());
        }
        self.begin()?;
        let machine = &raw mut *self.machine;
        let failed = advance(machine);
        self.report(failed)?;
        self.machine.end_batch()
    }

    /// Sets the processing time.
    fn at(&mut self, clock: i64) -> Result<()> {
        if clock > *self.machine.clock {
            // Whole milliseconds, as `PROCTIME()` has them.
            *self.machine.clock = clock.div_euclid(1000) * 1000;
            let machine = &raw mut *self.machine;
            let failed = tick(machine, clock);
            self.report(failed)?;
        }
        Ok(())
    }

    /// Ends the input: every window closes.
    pub fn finish(&mut self) -> Result<()> {
        self.begin()?;
        let machine = &raw mut *self.machine;
        let failed = tick(machine, END);
        self.report(failed)?;
        // One source after the other, as the reference does.
        for scan in 0..self.machine.scans.len() {
            self.machine.scans[scan].watermark = END;
            self.machine.scans[scan].idle = false;
            let machine = &raw mut *self.machine;
            let failed = advance(machine);
            self.report(failed)?;
        }
        self.machine.end_batch()
    }

    /// Emits constant rows, before anything else.
    fn begin(&mut self) -> Result<()> {
        if !std::mem::replace(&mut self.begun, true) {
            for code in self.constants.clone() {
                let machine = &raw mut *self.machine;
                let failed = code(machine, std::ptr::null(), 0);
                self.report(failed)?;
            }
        }
        Ok(())
    }

    fn call(&mut self, code: SourceCode, batch: &Batch) -> Result<()> {
        let columns = addresses(batch);
        let machine = &raw mut *self.machine;
        let failed = code(machine, columns.as_ptr(), batch.rows() as u64);
        self.report(failed)?;
        self.machine.end_batch()
    }

    fn report(&mut self, failed: i64) -> Result<()> {
        match (failed, self.machine.error.take()) {
            (_, Some(error)) => Err(error),
            (0, None) => Ok(()),
            (_, None) => Err(Error::evaluation("a compiled function failed without saying why")),
        }
    }

    /// Freezes the job's state between two batches for a checkpoint. Returns what finds it again together with the
    /// pages that [`Program::save`] writes out; no other checkpoint may begin before these are written.
    pub fn freeze(&mut self, numbers: &mut Numbers) -> Vec<u8> {
        let mut out = Vec::new();
        numbers.named.clear();
        for word in [*self.machine.clock as u64, u64::from(self.begun)] {
            write_word(&mut out, word);
        }
        for scan in &self.machine.scans {
            write_word(&mut out, scan.watermark as u64);
            write_word(&mut out, scan.deadline as u64);
        }
        for breaker in &mut self.machine.breakers {
            breaker.freeze(numbers, &mut out);
        }
        // Last, because all numbers are assigned only now.
        write_word(&mut out, numbers.next());
        out
    }

    /// Writes pages out as they were at [`Program::freeze`], about `budget` bytes; returns whether all are written.
    pub fn save(&mut self, put: &mut Put<'_>, mut budget: usize) -> bool {
        self.machine.breakers.iter_mut().all(|breaker| breaker.save(put, &mut budget))
    }

    /// Restores a checkpoint of the same job, before the job has run. Returns the numbers to continue with; its `named`
    /// are the numbers that the checkpoint uses.
    pub fn restore(&mut self, frozen: &[u8], get: &mut Get<'_>) -> Result<Numbers> {
        let mut reader = Reader(frozen);
        let mut named = Vec::new();
        *self.machine.clock = reader.word()? as i64;
        self.begun = reader.word()? != 0;
        for scan in &mut self.machine.scans {
            scan.watermark = reader.word()? as i64;
            scan.deadline = reader.word()? as i64;
        }
        for breaker in &mut self.machine.breakers {
            breaker.restore(&mut reader, get, &mut named)?;
        }
        let mut numbers = Numbers::above(reader.word()?);
        numbers.named = named;
        if !reader.0.is_empty() {
            return Err(Error::evaluation(
                "the checkpoint has more state than this job; it belongs to another job",
            ));
        }
        Ok(numbers)
    }

    /// The layout of records in its state: a checkpoint with another layout does not fit this job.
    pub fn layout(&self) -> String {
        let layouts = self.machine.breakers.iter().map(|breaker| format!("{}\n", breaker.layout));
        layouts.collect()
    }
}

fn source_code(code: *const u8) -> SourceCode {
    // SAFETY: the function was declared with three words in and one out, as `SourceCode` has.
    unsafe { std::mem::transmute::<*const u8, SourceCode>(code) }
}

/// The addresses of the columns of a batch, as code expects them.
fn addresses(batch: &Batch) -> Vec<usize> {
    batch
        .columns
        .iter()
        .flat_map(|column| {
            let (values, bytes) = match &column.values {
                Values::Boolean(values) => (values.as_ptr() as usize, 0),
                Values::Int(values) => (values.as_ptr() as usize, 0),
                Values::Float(values) => (values.as_ptr() as usize, 0),
                Values::Double(values) => (values.as_ptr() as usize, 0),
                Values::Decimal(values) => (values.as_ptr() as usize, 0),
                Values::Text(places, bytes) => (places.as_ptr() as usize, bytes.as_ptr() as usize),
            };
            [values, column.nulls.as_ptr() as usize, bytes]
        })
        .collect()
}

/// Checks that a batch has the columns that code was made for; code checks nothing itself.
fn fits(source: &Source, batch: &Batch) -> Result<()> {
    let rows = batch.rows();
    let mut columns = batch.columns.iter().zip(&source.types);
    let fit = batch.columns.len() == source.types.len()
        && columns.all(|(column, ty)| {
            crate::batch::Shape::of(&ty.data).is_ok_and(|shape| shape == column.shape())
                && column.nullable() == ty.nullable
                && column.len() == rows
                && (!ty.nullable || column.nulls.len() == rows)
        });
    if fit {
        return Ok(());
    }
    Err(Error::evaluation(format!("a batch whose columns are not those of `{}`", source.table)))
}

/// Functions of more instructions get their registers from a single-pass allocator. The allocator that makes better
/// code takes time quadratic in a function's length: 61 s for 10,000 columns. Functions of real queries have some
/// hundreds to some thousands of instructions.
const LONG: usize = 20_000;

fn target(registers: &str) -> Result<OwnedTargetIsa> {
    let mut flags = settings::builder();
    for (name, value) in [
        ("opt_level", "speed"),
        ("regalloc_algorithm", registers),
        ("is_pic", "false"),
        ("use_colocated_libcalls", "false"),
        ("enable_verifier", if cfg!(debug_assertions) { "true" } else { "false" }),
    ] {
        flags.set(name, value).map_err(broken)?;
    }
    let isa = cranelift_native::builder().map_err(broken)?;
    isa.finish(settings::Flags::new(flags)).map_err(broken)
}

fn module() -> Result<(JITModule, Imports)> {
    let mut builder = JITBuilder::with_isa(target("backtracking")?, default_libcall_names());
    let callees = calls::all();
    for callee in &callees {
        builder.symbol(callee.name, callee.address);
    }
    let mut module = JITModule::new(builder);
    let mut imports = HashMap::new();
    for callee in callees {
        let mut signature = module.make_signature();
        signature.params.extend(std::iter::repeat_n(AbiParam::new(types::I64), callee.params));
        if callee.returns {
            signature.returns.push(AbiParam::new(types::I64));
        }
        let id = module.declare_function(callee.name, Linkage::Import, &signature).map_err(broken)?;
        imports.insert(callee.name, (id, callee));
    }
    Ok((module, imports))
}

/// Compiles a function to machine code; `written` is its text.
fn define(module: &mut JITModule, id: FuncId, code: &mut Context, written: &str) -> Result<()> {
    let failed = |error: ModuleError| {
        if cfg!(debug_assertions) { broken(format!("{error:?}\n{written}")) } else { broken(error) }
    };
    if code.func.dfg.num_insts() <= LONG {
        return module.define_function(id, code).map_err(failed);
    }
    // As `define_function` does, but for a target other than the module's.
    let compiled = code.compile(&*target("single_pass")?, &mut ControlPlane::default());
    let alignment = u64::from(compiled.map_err(|error| failed(error.into()))?.buffer.alignment);
    let Some(compiled) = code.compiled_code() else { return Err(broken("a function was not compiled")) };
    let relocations = compiled.buffer.relocs().iter();
    let relocations: Vec<ModuleReloc> =
        relocations.map(|relocation| ModuleReloc::from_mach_reloc(relocation, &code.func, id)).collect();
    module.define_function_bytes(id, alignment, compiled.code_buffer(), &relocations).map_err(failed)
}

/// Compiles one function and adds it to the listing.
fn function(
    unit: &mut Unit,
    context: &mut FunctionBuilderContext,
    listing: &mut String,
    (name, title): (&str, &str),
    params: &[&str],
    body: impl FnOnce(&mut Gen<'_, '_>, &[ir::Value]) -> Result<()>,
) -> Result<FuncId> {
    let (id, signature) = declare(&mut unit.module, name, params.len())?;
    let mut code = unit.module.make_context();
    code.func.signature = signature;
    code.func.name = UserFuncName::user(0, id.as_u32());
    let builder = FunctionBuilder::new(&mut code.func, context);
    let (mut r#gen, args) = Gen::new(builder, unit, params);
    body(&mut r#gen, &args)?;
    let names = r#gen.finish();
    let written = code.func.display().to_string();
    define(&mut unit.module, id, &mut code, &written)?;
    let bytes = code.compiled_code().map_or(0, |code| code.code_buffer().len());
    let names: HashMap<String, String> =
        names.into_iter().map(|(value, name)| (value.to_string(), name)).collect();
    let _ = writeln!(listing, "; {title}\n; {name}: {bytes} bytes of machine code");
    for line in written.lines() {
        // Called functions get their names as comments,
        let called = line.trim_start().strip_prefix("fn").and_then(|line| line.split_once(" = u0:"));
        let callee = called.and_then(|(_, called)| called.split(' ').next()?.parse::<u32>().ok());
        if let Some((_, callee)) =
            callee.and_then(|callee| unit.imports.values().find(|(id, _)| id.as_u32() == callee))
        {
            let _ = writeln!(listing, "{line}  ; {}", callee.name);
            continue;
        }
        // and so do values that stand for columns and places.
        let defined = line.trim_start().split_once(" = ").map(|(value, _)| value);
        match defined.and_then(|value| names.get(value)) {
            Some(name) => {
                let _ = writeln!(listing, "{line}  ; {name}");
            }
            None => {
                let _ = writeln!(listing, "{line}");
            }
        }
    }
    listing.push('\n');
    Ok(id)
}
