//! Runs a benchmark: threads pull work packages from a queue, batch by batch.
//!
//! A batch is up to 4096 addresses, generated and checked off the clock; the clock runs while its accesses do. The time
//! of a workload is the wall clock from the first thread's start to the last thread's end. The average time of a thread
//! for generating addresses is subtracted, but the result is at least the busiest thread's time for accesses.

use crate::memory::address::{Random, Slots};
use crate::memory::bounds::BATCH;
use crate::memory::error::{Error, Result};
use crate::memory::kernel::{Chain, ChainStep, Memory, Persist, Width, clock, drain};
use crate::memory::place::{Target, open_dram};
use crate::memory::plan::Benchmark;
use crate::memory::tier::{Bucket, Placing};
use crate::memory::workload::{CustomStep, Distribution, Mode, Operation, StepKind, Workload};
use duramen_media::{Bytes, Granularity, Mapped, PAGE_BYTES, Persistent};
use hdrhistogram::Histogram;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The most bytes of one batch, so that a batch of large accesses ends soon after the run time or a signal.
const BATCH_BYTES: u64 = 4 << 20;
/// The longest latency that is recorded, in nanoseconds: a minute is no latency of memory.
const LATENCY_NS_MAX: u64 = 60_000_000_000;

/// Receives the progress of a benchmark.
pub trait Watch: Sync {
    /// Whether to stop now.
    fn stop(&self) -> bool;
    /// The share of the work that is done: 0 to 1.
    fn progress(&self, share: f64);
}

/// Never stops, and reports to nobody.
pub struct Unwatched;

impl Watch for Unwatched {
    fn stop(&self) -> bool {
        false
    }
    fn progress(&self, _share: f64) {}
}

/// The figures of one workload.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The number of operations done.
    pub operations: u64,
    /// The number of bytes accessed.
    pub bytes: u64,
    /// Seconds, as defined at the head of this module.
    pub seconds: f64,
    /// Latencies of single operations in nanoseconds, if they were sampled.
    pub latencies: Option<Histogram<u64>>,
    /// The time that a reading of the counter adds to each latency, in nanoseconds.
    pub clock_ns: f64,
    /// Page faults of the process during the workload, minor and major.
    pub page_faults: u64,
    /// Whether it ran to its end.
    pub complete: bool,
}

impl Outcome {
    /// Bytes per second.
    pub fn bandwidth(&self) -> f64 {
        self.bytes as f64 / self.seconds
    }

    /// Operations per second.
    pub fn rate(&self) -> f64 {
        self.operations as f64 / self.seconds
    }

    /// Nanoseconds of one operation on one of `threads` threads.
    pub fn operation_ns(&self, threads: u64) -> f64 {
        self.seconds * 1e9 * threads as f64 / self.operations as f64
    }
}

/// The memory in which workloads run, kept open from one to the next if they can share it.
pub struct Bench {
    target: Target,
    open: Option<Open>,
    dram: Option<(Mapped, bool)>,
}

struct Open {
    medium: Mapped,
    huge_pages: bool,
    memory_nodes: Vec<usize>,
}

impl Bench {
    /// A bench that has not opened anything yet.
    pub fn new(target: Target) -> Self {
        Self { target, open: None, dram: None }
    }

    /// The medium, once a workload has run.
    pub fn medium(&self) -> Option<&Mapped> {
        self.open.as_ref().map(|open| &open.medium)
    }

    /// The medium with `bytes` faulted in, for other measurements.
    ///
    /// # Errors
    /// Those of opening it.
    pub fn medium_of(&mut self, bytes: u64) -> Result<&mut Mapped> {
        let workload = Workload { memory_range: bytes, ..Workload::default() };
        let placing = Placing::of(&workload, self.target.home())?;
        self.prepare(bytes, 0, &workload, &placing)?;
        match &mut self.open {
            Some(open) => Ok(&mut open.medium),
            None => Err(Error::system("the medium is not open")),
        }
    }

    /// Runs a benchmark: all its workloads at once.
    ///
    /// # Errors
    /// Errors of opening the medium; missing nodes and cores.
    pub fn run(&mut self, benchmark: &Benchmark, watch: &dyn Watch) -> Result<Vec<Outcome>> {
        let workloads: Vec<&Workload> = benchmark.parts.iter().map(|part| &part.workload).collect();
        let Some(first) = workloads.first().copied() else { return Ok(Vec::new()) };
        for persist in workloads.iter().flat_map(|workload| workload.persists()) {
            if let Some(flag) = persist.missing() {
                return Err(Error::invalid(format!(
                    "benchmark `{}`: {persist} needs a CPU with {flag}, and this one lacks it; use another persist \
                     instruction",
                    benchmark.name
                )));
            }
        }
        let placings: Vec<Placing> =
            workloads.iter().map(|w| Placing::of(w, self.target.home())).collect::<Result<_>>()?;
        let ranges = |of: fn(&Workload) -> u64| {
            let mut end = 0u64;
            let ranges: Vec<_> = workloads
                .iter()
                .map(|workload| {
                    let start = end.next_multiple_of(PAGE_BYTES);
                    end = start + of(workload);
                    start..end
                })
                .collect();
            (ranges, end)
        };
        let (medium_ranges, medium_bytes) = ranges(|w| w.memory_range);
        let (dram_ranges, dram_bytes) = ranges(|w| w.dram_memory_range);
        let placing = placings.first().ok_or_else(|| Error::system("nothing to run"))?;
        self.prepare(medium_bytes, dram_bytes, first, placing)?;
        let Some(open) = &mut self.open else { return Err(Error::system("the medium is not open")) };
        let memory = Memory::hold(&mut open.medium, 0..medium_bytes);
        let dram = match &mut self.dram {
            Some((medium, _)) if dram_bytes > 0 => Some(Memory::hold(medium, 0..dram_bytes)),
            _ => None,
        };
        let jobs: Vec<Job<'_>> = workloads
            .iter()
            .zip(&placings)
            .zip(medium_ranges.into_iter().zip(dram_ranges))
            .map(|((workload, placing), (range, dram_range))| {
                let dram = dram.as_ref().map(|dram| dram.part(dram_range));
                Job::new(workload, placing, memory.part(range), dram)
            })
            .collect();
        let outcomes = run_jobs(&jobs, watch);
        drop(jobs);
        if !first.prefault_memory {
            // The pages are faulted in now; the next workload needs a newly opened medium.
            self.open = None;
        }
        Ok(outcomes)
    }

    fn prepare(&mut self, bytes: u64, dram_bytes: u64, workload: &Workload, placing: &Placing) -> Result<()> {
        let fits = self.open.as_ref().is_some_and(|open| {
            workload.prefault_memory
                && open.medium.len() >= bytes
                && open.huge_pages == workload.huge_pages
                && open.memory_nodes == placing.memory
        });
        if !fits {
            // Closed first, so that both are never open at once.
            self.open = None;
            let medium = self.target.open(bytes, workload, placing)?;
            let (huge_pages, memory_nodes) = (workload.huge_pages, placing.memory.clone());
            self.open = Some(Open { medium, huge_pages, memory_nodes });
        }
        let dram_fits = self
            .dram
            .as_ref()
            .is_some_and(|(medium, huge)| medium.len() >= dram_bytes && *huge == workload.dram_huge_pages);
        if dram_bytes > 0 && !dram_fits {
            self.dram = None;
            self.dram = Some((open_dram(dram_bytes, workload)?, workload.dram_huge_pages));
        }
        Ok(())
    }

    /// How a store becomes durable on the medium, once a workload has run.
    pub fn granularity(&self) -> Option<Granularity> {
        self.medium().map(Persistent::granularity)
    }

    /// What the operator could do for speed, if anything.
    pub fn advice(&self) -> Option<String> {
        self.medium().and_then(Mapped::small_pages_advice)
    }

    /// Whether the medium's stores become durable by writing back pages.
    pub fn is_paged(&self) -> bool {
        self.medium().is_some_and(|medium| medium.granularity() == Granularity::Page)
    }
}

/// How one step of an operation finds its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Aim {
    /// A random slot, after `pad` bytes.
    Random { pad: u64 },
    /// So many bytes from the address of an earlier step.
    Near { step: usize, bytes: i64 },
    /// After the thread's last append.
    Append,
}

/// The state that the threads of one workload share.
struct Job<'m> {
    workload: &'m Workload,
    placing: &'m Placing,
    memory: Memory<'m>,
    dram: Option<Memory<'m>>,
    plan: Plan,
    /// The next package of each partition.
    queues: Vec<AtomicU64>,
    /// Operations in a package, and packages in a partition (or in one round of it).
    package: u64,
    packages: u64,
    /// Whether packages repeat until the run time is over.
    endless: bool,
    bucket: Option<Bucket>,
    done: AtomicU64,
    width: Width,
}

/// The accesses of a batch.
enum Plan {
    /// Independent accesses of one size.
    Plain(Option<Persist>),
    /// Reads that each wait for the previous one.
    Chase,
    /// All other accesses.
    Chain { chain: Chain, steps: Vec<CustomStep>, aims: Vec<Aim> },
}

impl<'m> Job<'m> {
    fn new(
        workload: &'m Workload,
        placing: &'m Placing,
        memory: Memory<'m>,
        dram: Option<Memory<'m>>,
    ) -> Self {
        let partitions = workload.partitions();
        let operations = if workload.is_sequential() {
            workload.memory_range / workload.access_size
        } else {
            workload.number_operations.unwrap_or(Workload::OPERATIONS_DEFAULT)
        };
        let of_partition = (operations / partitions).max(1);
        let threads = (workload.number_threads / partitions).max(1);
        let package = (workload.min_io_chunk_size / workload.operation_bytes().max(1))
            .clamp(1, of_partition.div_ceil(threads));
        let endless =
            workload.run_time.is_some() && (workload.is_sequential() || workload.number_operations.is_none());
        Self {
            workload,
            placing,
            memory,
            dram,
            plan: Plan::of(workload),
            queues: (0..partitions).map(|_| AtomicU64::new(0)).collect(),
            package,
            packages: of_partition.div_ceil(package),
            endless,
            bucket: (workload.emulate_bandwidth > 0).then(|| Bucket::new(workload.emulate_bandwidth)),
            done: AtomicU64::new(0),
            width: workload.instruction_set.unwrap_or_else(Width::widest),
        }
    }

    /// The number of operations of one partition, or of one round of it.
    fn partition_operations(&self) -> u64 {
        let all = match self.workload.is_sequential() {
            true => self.workload.memory_range / self.workload.access_size,
            false => self.workload.number_operations.unwrap_or(Workload::OPERATIONS_DEFAULT),
        };
        (all / self.workload.partitions()).max(1)
    }

    fn share_done(&self, start: Instant) -> f64 {
        let operations = self.partition_operations() * self.workload.partitions();
        let counted = self.done.load(Ordering::Relaxed) as f64 / operations.max(1) as f64;
        match self.workload.run_time {
            Some(seconds) => {
                let timed = start.elapsed().as_secs_f64() / seconds;
                if self.endless { timed } else { timed.max(counted) }
            }
            None => counted,
        }
    }
}

impl Plan {
    fn of(workload: &Workload) -> Self {
        let emulated = workload.emulate_latency_ns > 0;
        let persist = (workload.operation == Operation::Write).then_some(workload.persist_instruction);
        let alone = workload.latency_sample_frequency > 0 || emulated;
        match workload.exec_mode {
            Mode::DependentReads if !alone => return Self::Chase,
            Mode::Sequential | Mode::SequentialDescending | Mode::Random if !alone => {
                return Self::Plain(persist);
            }
            _ => {}
        }
        // An access that must be timed or slowed down alone is a chain of one step.
        let one = CustomStep {
            kind: persist.map_or(StepKind::Read, StepKind::Write),
            dram: workload.dram_operation_ratio >= 1.0,
            bytes: workload.access_size,
            offset: 0,
        };
        let steps =
            if workload.exec_mode == Mode::Custom { workload.custom_operations.clone() } else { vec![one] };
        let dependent = workload.dependent_operations || workload.exec_mode == Mode::DependentReads;
        if let ([step], Mode::Custom) = (steps.as_slice(), workload.exec_mode)
            && !alone
            && !step.dram
            && step.kind == StepKind::Read
            && dependent
            && workload.access_size == step.bytes
        {
            return Self::Chase;
        }
        let wait_ticks = (workload.emulate_latency_ns as f64 * clock::ticks_per_ns()) as u64;
        let compiled: Vec<ChainStep> = steps
            .iter()
            .map(|step| ChainStep {
                bytes: step.bytes,
                write: match step.kind {
                    StepKind::Read => None,
                    StepKind::Write(persist) | StepKind::Append(persist) => Some(persist),
                },
                dram: step.dram,
                wait_ticks: if step.dram { 0 } else { wait_ticks },
            })
            .collect();
        let width = workload.instruction_set.unwrap_or_else(Width::widest);
        let aims = aims(&steps);
        Self::Chain { chain: Chain::new(&compiled, width, dependent), steps, aims }
    }

    /// The number of addresses that one operation takes.
    fn addresses(&self) -> usize {
        match self {
            Self::Plain(_) | Self::Chase => 1,
            Self::Chain { chain, .. } => chain.len(),
        }
    }
}

/// How each step finds its address. A write with an offset lies near the last step on the same memory.
fn aims(steps: &[CustomStep]) -> Vec<Aim> {
    let mut aims: Vec<Aim> = Vec::new();
    let mut last: [Option<usize>; 2] = [None, None];
    for (index, step) in steps.iter().enumerate() {
        let slot = &mut last[usize::from(step.dram)];
        aims.push(match (step.kind, *slot) {
            (StepKind::Append(_), _) => Aim::Append,
            (StepKind::Write(_), Some(near)) => Aim::Near { step: near, bytes: step.offset },
            _ => Aim::Random { pad: 0 },
        });
        *slot = Some(index);
    }
    // A random place leaves room for the accesses below it.
    for index in 0..aims.len() {
        let (mut low, mut at) = (0i64, vec![None; aims.len()]);
        if let Some(place) = at.get_mut(index) {
            *place = Some(0i64);
        }
        for later in index + 1..aims.len() {
            if let Some(Aim::Near { step, bytes }) = aims.get(later).copied()
                && let Some(Some(from)) = at.get(step).copied()
            {
                low = low.min(from + bytes);
                if let Some(place) = at.get_mut(later) {
                    *place = Some(from + bytes);
                }
            }
        }
        if let Some(Aim::Random { pad }) = aims.get_mut(index) {
            *pad = low.unsigned_abs().next_multiple_of(64);
        }
    }
    aims
}

/// The counts of one thread.
#[derive(Default)]
struct Counted {
    operations: u64,
    busy: Duration,
    generating: Duration,
    began: Option<Instant>,
    ended: Option<Instant>,
    latencies: Option<Histogram<u64>>,
}

fn run_jobs(jobs: &[Job<'_>], watch: &dyn Watch) -> Vec<Outcome> {
    let threads: usize = jobs.iter().map(|job| job.workload.number_threads as usize).sum();
    let barrier = Barrier::new(threads + 1);
    let stopped = AtomicBool::new(false);
    let clock_ns = clock::cost_ns();
    let (faults, counted) = std::thread::scope(|scope| {
        let mut handles = Vec::new();
        for (which, job) in jobs.iter().enumerate() {
            for index in 0..job.workload.number_threads {
                let (barrier, stopped) = (&barrier, &stopped);
                handles.push((
                    which,
                    scope.spawn(move || {
                        job.placing.bind_thread(index as usize);
                        let mut worker = Worker::new(job, index);
                        barrier.wait();
                        let start = Instant::now();
                        worker.counted.began = Some(start);
                        worker.work(start, stopped);
                        worker.counted
                    }),
                ));
            }
        }
        let faults = page_faults();
        barrier.wait();
        let start = Instant::now();
        while handles.iter().any(|(_, handle)| !handle.is_finished()) {
            std::thread::sleep(Duration::from_millis(5));
            if watch.stop() {
                stopped.store(true, Ordering::Relaxed);
            }
            let share = jobs.iter().map(|job| job.share_done(start)).fold(1.0, f64::min);
            watch.progress(share.clamp(0.0, 1.0));
        }
        let counted: Vec<(usize, Counted)> =
            handles.into_iter().filter_map(|(which, handle)| Some((which, handle.join().ok()?))).collect();
        (page_faults().saturating_sub(faults), counted)
    });
    let complete = !stopped.load(Ordering::Relaxed) && counted.len() == threads;
    jobs.iter()
        .enumerate()
        .map(|(which, job)| {
            let own: Vec<&Counted> = counted.iter().filter(|(of, _)| *of == which).map(|(_, c)| c).collect();
            outcome(job, &own, faults, complete, clock_ns)
        })
        .collect()
}

fn outcome(job: &Job<'_>, counted: &[&Counted], page_faults: u64, complete: bool, clock_ns: f64) -> Outcome {
    let operations: u64 = counted.iter().map(|c| c.operations).sum();
    let busiest = counted.iter().map(|c| c.busy).max().unwrap_or_default().as_secs_f64();
    let generating: f64 = counted.iter().map(|c| c.generating.as_secs_f64()).sum();
    // From the start of the first thread that runs: on a busy machine threads wake late from the common start.
    let began = counted.iter().filter_map(|c| c.began).min();
    let ended = counted.iter().filter_map(|c| c.ended).max();
    let wall =
        ended.zip(began).map_or(0.0, |(end, start)| end.saturating_duration_since(start).as_secs_f64());
    let mut latencies: Option<Histogram<u64>> = None;
    for histogram in counted.iter().filter_map(|c| c.latencies.as_ref()) {
        match &mut latencies {
            None => latencies = Some(histogram.clone()),
            // Both have the same bounds.
            Some(all) => all.add(histogram).unwrap_or_default(),
        }
    }
    Outcome {
        operations,
        bytes: operations * job.workload.operation_bytes(),
        // 1 ns: a signal came before any work.
        seconds: (wall - generating / counted.len().max(1) as f64).max(busiest).max(1e-9),
        latencies,
        clock_ns,
        page_faults,
        complete,
    }
}

/// One thread of a workload.
struct Worker<'j, 'm> {
    job: &'j Job<'m>,
    partition: u64,
    memory: Memory<'j>,
    dram: Option<Memory<'j>>,
    random: Random,
    slots: Vec<Slots>,
    /// The next append in each memory, and the start and end of the thread's share.
    append: [(u64, u64, u64); 2],
    offsets: Vec<u64>,
    /// The share of operations to DRAM that is still due; decides the next batch.
    owed: f64,
    counted: Counted,
}

impl<'j, 'm> Worker<'j, 'm> {
    fn new(job: &'j Job<'m>, index: u64) -> Self {
        let workload = job.workload;
        let partitions = workload.partitions();
        // Threads of a partition have adjacent numbers.
        let per_partition = (workload.number_threads / partitions).max(1);
        let partition = (index / per_partition).min(partitions - 1);
        let part = |bytes: u64| {
            let share = bytes / partitions;
            partition * share..(partition + 1) * share
        };
        let memory = job.memory.part(part(workload.memory_range));
        let dram = job.dram.as_ref().map(|dram| dram.part(part(workload.dram_memory_range)));
        let alpha = (workload.random_distribution == Distribution::Zipf).then_some(workload.zipf_alpha);
        let bytes_of = |dram_step: bool| match (dram_step, &dram) {
            (true, Some(dram)) => dram.bytes(),
            _ => memory.bytes(),
        };
        let slots = match &job.plan {
            Plan::Plain(_) | Plan::Chase => vec![
                Slots::new(memory.bytes(), workload.access_size, alpha),
                Slots::new(bytes_of(true), workload.access_size, alpha),
            ],
            Plan::Chain { steps, aims, .. } => steps
                .iter()
                .zip(aims)
                .enumerate()
                .map(|(at, (step, aim))| match aim {
                    Aim::Random { pad } => {
                        let above = reach(steps, aims, at);
                        let room = bytes_of(step.dram).saturating_sub(pad + above.saturating_sub(step.bytes));
                        Slots::new(room, step.bytes.max(64).min(room.max(64)), alpha)
                    }
                    _ => Slots::new(64, 64, None),
                })
                .collect(),
        };
        let in_partition = index % per_partition;
        let share = |bytes: u64| {
            let unit = (bytes / per_partition) & !63;
            let from = unit * in_partition;
            (from, from, from + unit)
        };
        Self {
            append: [share(memory.bytes()), share(bytes_of(true))],
            memory,
            dram,
            partition,
            random: Random::new(workload.seed.wrapping_mul(0x9E37_79B9).wrapping_add(index + 1)),
            slots,
            offsets: Vec::with_capacity(BATCH),
            owed: 0.0,
            counted: Counted {
                latencies: (workload.latency_sample_frequency > 0)
                    .then(|| Histogram::new_with_bounds(1, LATENCY_NS_MAX, 3).ok())
                    .flatten(),
                ..Counted::default()
            },
            job,
        }
    }

    fn work(&mut self, start: Instant, stopped: &AtomicBool) {
        let job = self.job;
        let deadline = job.workload.run_time.map(|seconds| start + Duration::from_secs_f64(seconds));
        let operations = job.partition_operations();
        let per_batch = (BATCH_BYTES / job.workload.operation_bytes().max(1))
            .clamp(1, (BATCH / job.plan.addresses()).max(1) as u64);
        'packages: while let Some(queue) = job.queues.get(self.partition as usize) {
            let mut package = queue.fetch_add(1, Ordering::Relaxed);
            if job.endless {
                package %= job.packages;
            } else if package >= job.packages {
                break;
            }
            let mut first = package * job.package;
            let last = (first + job.package).min(operations);
            while first < last {
                if stopped.load(Ordering::Relaxed) || deadline.is_some_and(|end| Instant::now() >= end) {
                    break 'packages;
                }
                let count = per_batch.min(last - first);
                self.batch(first, count);
                first += count;
                job.done.fetch_add(count, Ordering::Relaxed);
            }
        }
        drain();
        self.counted.ended = Some(Instant::now());
    }

    /// Generates the addresses of `count` operations from number `first` on, and runs them.
    fn batch(&mut self, first: u64, count: u64) {
        let generating = Instant::now();
        let ratio = self.job.workload.dram_operation_ratio;
        self.owed += ratio;
        // 1e-9: ten tenths are a whole, despite rounding.
        let to_dram = self.owed >= 1.0 - 1e-9;
        if to_dram {
            self.owed -= 1.0;
        }
        let mut offsets = std::mem::take(&mut self.offsets);
        self.generate(&mut offsets, first, count, to_dram);
        let medium = if to_dram { self.dram.as_ref().unwrap_or(&self.memory) } else { &self.memory };
        let (bytes, width) = (self.job.workload.access_size, self.job.width);
        let busy;
        match &self.job.plan {
            Plan::Plain(persist) => {
                let bound = medium.bind(&mut offsets, bytes);
                self.counted.generating += generating.elapsed();
                busy = Instant::now();
                match persist {
                    None => bound.read(width),
                    Some(persist) => bound.write(width, *persist),
                }
            }
            Plan::Chase => {
                let bound = medium.bind(&mut offsets, bytes);
                self.counted.generating += generating.elapsed();
                busy = Instant::now();
                bound.chase(width);
            }
            Plan::Chain { chain, .. } => {
                let bound = chain.bind(&self.memory, self.dram.as_ref(), &mut offsets);
                self.counted.generating += generating.elapsed();
                busy = Instant::now();
                match (&mut self.counted.latencies, self.job.workload.latency_sample_frequency) {
                    (Some(latencies), every @ 1..) => {
                        let rate = clock::ticks_per_ns();
                        for index in 0..bound.operations() {
                            if (first + index as u64) % every == every - 1 {
                                let from = clock::ticks();
                                bound.run_one(index);
                                let ticks = clock::ticks().wrapping_sub(from);
                                latencies.saturating_record((ticks as f64 / rate) as u64);
                            } else {
                                bound.run_one(index);
                            }
                        }
                    }
                    _ => bound.run(),
                }
            }
        }
        if let Some(bucket) = &self.job.bucket
            && !to_dram
        {
            bucket.take(self.medium_bytes(count));
        }
        self.counted.busy += busy.elapsed();
        self.counted.operations += count;
        self.offsets = offsets;
    }

    /// Bytes of the medium that `count` operations access.
    fn medium_bytes(&self, count: u64) -> u64 {
        match &self.job.plan {
            Plan::Chain { steps, .. } => {
                count * steps.iter().filter(|step| !step.dram).map(|step| step.bytes).sum::<u64>()
            }
            _ => count * self.job.workload.access_size,
        }
    }

    fn generate(&mut self, offsets: &mut Vec<u64>, first: u64, count: u64, to_dram: bool) {
        offsets.clear();
        let (random, workload) = (&mut self.random, self.job.workload);
        let Some(slots) = self.slots.get(usize::from(to_dram && self.slots.len() > 1)) else { return };
        let (aims, steps) = match &self.job.plan {
            Plan::Plain(_) | Plan::Chase => {
                match workload.exec_mode {
                    Mode::Sequential => offsets.extend((first..first + count).map(|i| slots.at(i))),
                    Mode::SequentialDescending => {
                        let top = slots.count() - 1;
                        offsets.extend((first..first + count).map(|i| slots.at(top - i % slots.count())));
                    }
                    _ => offsets.extend((0..count).map(|_| slots.random(random))),
                }
                return;
            }
            Plan::Chain { aims, steps, .. } => (aims, steps),
        };
        let (mode, top) = (workload.exec_mode, slots.count().saturating_sub(1));
        for operation in first..first + count {
            let own = offsets.len();
            for ((aim, step), slots) in aims.iter().zip(steps).zip(&self.slots) {
                let at = match aim {
                    Aim::Random { .. } if mode == Mode::Sequential => slots.at(operation),
                    Aim::Random { .. } if mode == Mode::SequentialDescending => {
                        slots.at(top - operation % (top + 1))
                    }
                    Aim::Random { pad } => pad + slots.random(random),
                    Aim::Near { step, bytes } => {
                        offsets.get(own + step).copied().unwrap_or(0).wrapping_add_signed(*bytes)
                    }
                    Aim::Append => {
                        let (next, from, to) = &mut self.append[usize::from(step.dram)];
                        if *next + step.bytes > *to {
                            *next = *from;
                        }
                        let at = *next;
                        *next += step.bytes.max(64);
                        at
                    }
                };
                offsets.push(at);
            }
        }
    }
}

/// Bytes from the place of step `index` to the end of the last access that depends on it.
fn reach(steps: &[CustomStep], aims: &[Aim], index: usize) -> u64 {
    let mut at: Vec<Option<i64>> = vec![None; steps.len()];
    let mut end = 0i64;
    for (later, (step, aim)) in steps.iter().zip(aims).enumerate().skip(index) {
        let place = match aim {
            _ if later == index => Some(0),
            Aim::Near { step, bytes } => at.get(*step).copied().flatten().map(|from| from + bytes),
            _ => None,
        };
        if let Some(place) = place {
            end = end.max(place + step.bytes as i64);
        }
        if let Some(slot) = at.get_mut(later) {
            *slot = place;
        }
    }
    end.unsigned_abs()
}

/// Page faults of this process so far: fields 10 and 12 of /proc/self/stat, after the name in parentheses.
fn page_faults() -> u64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = text.rsplit(')').next().unwrap_or_default().split_whitespace();
    fields.skip(7).step_by(2).take(2).filter_map(|field| field.parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests;
