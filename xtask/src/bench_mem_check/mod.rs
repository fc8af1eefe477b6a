//! `cargo xtask bench-mem-check`: checks that `duramen bench mem` agrees with independent tools on the same range in
//! the same minute.
//!
//! The tools are a C program in this directory (a pointer chase, a reading and a writing loop), and Debian's `mbw` and
//! `sysbench` if installed. Runs alternate, so that noise of the machine affects all tools alike; medians are compared.
//! Both sides use accesses of 16 bytes, which C has without flags. The widest accesses, duramen's default, may differ
//! from that by some percent. sysbench and mbw do other work per byte (shared locks per block; a copy). Their results
//! are therefore only shown, unless the accesses are the same.

use crate::failure::{Failure, Result};
use crate::server::release_program;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The largest relative difference of the medians.
const TOLERANCE: f64 = 0.10;

#[derive(clap::Args)]
pub struct Settings {
    /// Rounds of each tool
    #[arg(long, default_value_t = 7)]
    pub rounds: usize,
    /// Mebibytes of memory
    #[arg(long, default_value_t = 1024)]
    pub mebibytes: u64,
    /// Seconds of one run
    #[arg(long, default_value_t = 1.0)]
    pub seconds: f64,
    /// The duramen program [default: built now]
    #[arg(long, value_name = "PATH")]
    pub duramen: Option<PathBuf>,
}

struct Comparison {
    name: &'static str,
    unit: &'static str,
    /// The argument of the C program.
    mode: &'static str,
    /// Workload arguments for duramen.
    args: &'static str,
    metric: &'static str,
    scale: f64,
}

const COMPARISONS: [Comparison; 3] = [
    Comparison {
        name: "sequential read",
        unit: "GB/s",
        mode: "read",
        args: "exec_mode: sequential, operation: read, access_size: 4K, instruction_set: sse2",
        metric: "bandwidth",
        scale: 1e-9,
    },
    Comparison {
        name: "sequential write",
        unit: "GB/s",
        mode: "write",
        args: "exec_mode: sequential, operation: write, persist_instruction: no_cache, access_size: 1M, \
               instruction_set: sse2",
        metric: "bandwidth",
        scale: 1e-9,
    },
    Comparison {
        name: "random read",
        unit: "ns",
        mode: "chase",
        args: "exec_mode: dependent_reads, access_size: 64",
        metric: "time",
        scale: 1.0,
    },
];

impl Comparison {
    /// The best of sorted runs: noise of the machine makes all others worse.
    fn best(&self, sorted: &[f64]) -> f64 {
        let best = if self.unit == "ns" { sorted.first() } else { sorted.last() };
        best.copied().unwrap_or(f64::NAN)
    }
}

/// Compares the tools, and prints medians, spreads and ratios. Returns whether all agree.
pub fn run(repository: &Path, settings: &Settings) -> Result<bool> {
    let scratch = tempfile::tempdir().map_err(|e| Failure::new(format!("cannot make a directory: {e}")))?;
    let duramen = release_program(repository, settings.duramen.clone(), "bench")?;
    let reference = scratch.path().join("reference");
    let source = repository.join("xtask/src/bench_mem_check/reference.c");
    let compiler = Command::new("cc").args(["-O2", "-o"]).arg(&reference).arg(&source).status();
    if !compiler.is_ok_and(|status| status.success()) {
        return Err(Failure::new(format!(
            "cannot compile {} with cc; install a C compiler",
            source.display()
        )));
    }
    let bytes = settings.mebibytes << 20;
    let mut all: Vec<[Vec<f64>; 2]> = COMPARISONS.iter().map(|_| [Vec::new(), Vec::new()]).collect();
    let mut others: Vec<(String, Vec<f64>)> = Vec::new();
    for round in 0..settings.rounds {
        for (comparison, [ours, theirs]) in COMPARISONS.iter().zip(&mut all) {
            let mut turns = [true, false];
            if round % 2 == 1 {
                turns.reverse();
            }
            for own in turns {
                if own {
                    ours.push(measure(&duramen, scratch.path(), comparison, bytes, settings.seconds)?);
                } else {
                    let arguments =
                        [comparison.mode.to_owned(), bytes.to_string(), settings.seconds.to_string()];
                    theirs.push(number(&output(Command::new(&reference).args(&arguments))?)?);
                }
            }
        }
        for (name, found) in debian(settings) {
            match others.iter_mut().find(|(known, _)| *known == name) {
                Some((_, values)) => values.push(found),
                None => others.push((name, vec![found])),
            }
        }
    }
    println!(
        "{} alternating rounds, {} MiB, {} s per run; medians (least to most)",
        settings.rounds, settings.mebibytes, settings.seconds
    );
    let mut agree = true;
    for (comparison, [ours, theirs]) in COMPARISONS.iter().zip(&mut all) {
        let (own, other) = (median(ours), median(theirs));
        let ratio = own / other;
        let near = (ratio - 1.0).abs() <= TOLERANCE;
        agree &= near;
        println!(
            "{:17} duramen {}, C {}, {}: ratio {ratio:.3} (of the best runs {:.3}), {}",
            comparison.name,
            spread(ours),
            spread(theirs),
            comparison.unit,
            comparison.best(ours) / comparison.best(theirs),
            if near { "agrees" } else { "differs by more than 10 %" }
        );
    }
    for (name, values) in &mut others {
        println!("for comparison: {name} {}", spread(values));
    }
    if others.is_empty() {
        println!("neither sysbench nor mbw is installed; Debian has both");
    }
    Ok(agree)
}

fn measure(duramen: &Path, scratch: &Path, comparison: &Comparison, bytes: u64, seconds: f64) -> Result<f64> {
    let (workload, json) = (scratch.join("workload.yaml"), scratch.join("run.json"));
    let text = format!("a:\n  args: {{ memory_range: {bytes}, run_time: {seconds}, {} }}\n", comparison.args);
    std::fs::write(&workload, text)
        .map_err(|e| Failure::new(format!("cannot write {}: {e}", workload.display())))?;
    output(Command::new(duramen).args(["bench", "mem", "--json"]).arg(&json).arg(&workload))?;
    let text = std::fs::read_to_string(&json)
        .map_err(|e| Failure::new(format!("cannot read {}: {e}", json.display())))?;
    // "bandwidth": {\n "value": 1.0, ...: a run of one measurement has one metric of this name.
    let found = text.split(&format!("\"{}\": {{", comparison.metric)).nth(1);
    let value = found
        .and_then(|rest| rest.split("\"value\":").nth(1))
        .and_then(|rest| rest.split([',', '\n']).next());
    Ok(number(value.unwrap_or_default())? * comparison.scale)
}

/// The results of Debian's tools, if installed.
fn debian(settings: &Settings) -> Vec<(String, f64)> {
    let mut found = Vec::new();
    for operation in ["read", "write"] {
        let arguments = [
            "memory".to_owned(),
            "--memory-block-size=64M".to_owned(),
            "--memory-total-size=1T".to_owned(),
            format!("--memory-oper={operation}"),
            format!("--time={}", settings.seconds.ceil()),
            "run".to_owned(),
        ];
        // "65536.00 MiB transferred (9800.12 MiB/sec)"
        if let Ok(text) = output(Command::new("sysbench").args(&arguments))
            && let Some(rate) =
                text.split('(').find_map(|part| part.split_once(" MiB/sec")?.0.parse::<f64>().ok())
        {
            found.push((
                format!("sysbench memory {operation} of blocks of 64 MiB, GB/s"),
                rate * 1.048_576e-3,
            ));
        }
    }
    let size = (settings.mebibytes / 2).to_string();
    // "AVG  Method: MEMCPY  Elapsed: 0.05  MiB: 512.0  Copy: 9800.0 MiB/s"
    if let Ok(text) = output(Command::new("mbw").args(["-n", "3", "-t", "0", &size]))
        && let Some(line) = text.lines().find(|line| line.starts_with("AVG"))
        && let Some(rate) =
            line.split("Copy:").nth(1).and_then(|rest| rest.split_whitespace().next()?.parse::<f64>().ok())
    {
        found.push(("mbw memcpy, GB/s copied".to_owned(), rate * 1.048_576e-3));
    }
    found
}

fn output(command: &mut Command) -> Result<String> {
    let output = command.output().map_err(|e| Failure::new(format!("cannot run {command:?}: {e}")))?;
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr);
        return Err(Failure::new(format!("{command:?} failed: {}", why.trim())));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn number(text: &str) -> Result<f64> {
    text.trim().parse().map_err(|_| Failure::new(format!("{:?} is no figure", text.trim())))
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn spread(values: &mut [f64]) -> String {
    let middle = median(values);
    let (least, most) = (values.first().copied().unwrap_or(middle), values.last().copied().unwrap_or(middle));
    format!("{middle:.2} ({least:.2} to {most:.2})")
}
