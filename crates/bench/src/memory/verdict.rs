//! The one-page conclusion from a run of the suite: the properties of this medium, and the settings for Duramen.

use crate::memory::bounds::Bounds;
use crate::memory::kernel::Persist;
use crate::report::{Argument, Finding, Measurement, Run, Unit, Verdict, figure};
use duramen_media::{FlushInstruction, Granularity};

/// A point within this share of the best counts as equally good: runs of one point differ by that much.
const AS_GOOD: f64 = 0.95;

/// A flush that durability does not need pays if it gives this many times the bandwidth of plain stores. This is more
/// than the difference between runs of one point.
const PAYS: f64 = 1.05;

/// A bandwidth this many times that of every adjacent point counts as an error of measurement.
///
/// 2: the next size or number of threads gains at most its factor, mostly far less, and then the point after it has as
/// much. Only a burst of a host's clock, or a range still in a cache, stands alone.
const LONELY: f64 = 2.0;

/// The point to which a figure belongs.
#[derive(Clone, Debug)]
struct Found {
    value: f64,
    size: u64,
    threads: u64,
    persist: String,
    /// The measurement that contains it.
    point: String,
}

/// The conclusion from `run`, whose medium has `granularity`, and from the bounds if they were measured.
pub fn verdict(run: &Run, granularity: Granularity, bounds: Option<&Bounds>) -> Verdict {
    let mut verdict = Verdict::default();
    let mut say = |title: &str, value: String, detail: String| {
        verdict.findings.push(Finding { title: title.to_owned(), value, detail });
    };
    let bandwidths = |group: &str| believed(of(run, group, "bandwidth")).0;
    let best = |group: &str| bandwidths(group).into_iter().max_by(|a, b| a.value.total_cmp(&b.value));
    for (group, title) in [
        ("sequential_read", "sequential read"),
        ("sequential_write", "sequential write"),
        ("random_read", "random read"),
        ("random_write", "random write"),
    ] {
        if let Some(found) = best(group) {
            let mut at = place_text(&found);
            for lonely in believed(of(run, group, "bandwidth")).1 {
                let left_out = figure(lonely.value, Unit::BytesPerSecond);
                at.push_str(&format!("; {left_out} {} left out: ", place_text(&lonely)));
                at.push_str("the neighbouring points have less than half");
            }
            say(title, figure(found.value, Unit::BytesPerSecond), at);
        }
    }
    if let Some(bounds) = bounds {
        let persist = |p: Persist| format!("persisted by {}", p.instruction());
        say(
            "L, latency of a random load",
            ns(bounds.load_ns),
            "64 bytes, each address known after the last load".into(),
        );
        say("W, append of 256 bytes", ns(bounds.append_ns), persist(bounds.append_persist));
        say(
            "R, store of 8 bytes",
            ns(bounds.store_ns),
            format!("at a random line, {}", persist(bounds.store_persist)),
        );
    }
    for (group, title) in [("random_read", "best size to read"), ("random_write", "best size to write")] {
        if let Some(size) = least_good(&bandwidths(group), |found| found.size) {
            say(title, size_text(size), "the least with 95 % of the best random bandwidth".into());
        }
    }
    let read_threads = least_good(&bandwidths("sequential_read"), |found| found.threads);
    let write_threads = least_good(&bandwidths("sequential_write"), |found| found.threads);
    if let (Some(read), Some(write)) = (read_threads, write_threads) {
        say(
            "threads to saturate",
            format!("{read} reading, {write} writing"),
            "95 % of the best bandwidth".into(),
        );
    }
    let cheapest = |group: &str, size: u64| {
        let mut all = of(run, group, "time");
        all.retain(|found| found.size == size);
        // A plain store makes nothing durable if a line must be flushed.
        all.retain(|found| found.persist != "none");
        all.into_iter().min_by(|a, b| a.value.total_cmp(&b.value))
    };
    let (wide, small) = (cheapest("persist_sequential_write", 256), cheapest("persist_random_write", 8));
    if let (Some(wide), Some(small)) = (&wide, &small) {
        say(
            "best persist instruction",
            wide.persist.clone(),
            format!(
                "256 bytes in {}; for 8 bytes at random {} in {}",
                ns(wide.value),
                small.persist,
                ns(small.value)
            ),
        );
    }
    say("granularity", granularity.to_string(), meaning(granularity).into());
    if let Some((value, detail)) = flushing(run, granularity) {
        say("does flushing pay", value, detail);
    }
    for group in
        ["sequential_read", "sequential_write", "random_read", "random_write", "persist_sequential_write"]
    {
        let (_, lonely) = believed(of(run, group, "bandwidth"));
        verdict.left_out.extend(lonely.into_iter().map(|found| found.point));
    }
    let kind = run.medium.kind.clone();
    let settings = &mut verdict.settings;
    // Users call it "dram"; a configuration file calls it "volatile".
    settings.insert("medium.kind".to_owned(), if kind == "dram" { "volatile".to_owned() } else { kind });
    settings
        .insert("medium.flush-instruction".to_owned(), flush_instruction(run, granularity, wide.as_ref()));
    // More threads than cores may win by chance; a server gains nothing from them.
    let bounded = |threads: u64| threads.min(run.machine.cores.max(1)).to_string();
    if let Some(threads) = read_threads {
        settings.insert("engine.recovery-threads".to_owned(), bounded(threads));
    }
    if let Some(threads) = write_threads.max(read_threads) {
        settings.insert("engine.threads".to_owned(), bounded(threads));
    }
    let load = bounds.map_or(String::new(), |b| format!(", {} for a random load", ns(b.load_ns)));
    let read = best("sequential_read").map_or(String::new(), |f| figure(f.value, Unit::BytesPerSecond));
    let write = best("sequential_write").map_or(String::new(), |f| figure(f.value, Unit::BytesPerSecond));
    verdict.summary = format!("{} reads {read} and writes {write}{load}.", run.medium.kind);
    verdict
}

fn ns(value: f64) -> String {
    figure(value, Unit::Nanoseconds)
}

fn meaning(granularity: Granularity) -> &'static str {
    match granularity {
        Granularity::Byte => "a write is persistent as soon as it is visible: only order matters",
        Granularity::CacheLine => "a write survives a power failure once its lines are flushed and drained",
        Granularity::Page => "a write survives a power failure once its pages are written back",
    }
}

/// The figures of one group.
fn of(run: &Run, group: &str, metric: &str) -> Vec<Found> {
    let number =
        |m: &Measurement, name: &str| m.arguments.get(name).and_then(Argument::number).unwrap_or(1.0) as u64;
    run.measurements
        .iter()
        .filter(|m| m.group == group)
        .filter_map(|m| {
            Some(Found {
                value: m.metrics.get(metric)?.value,
                size: number(m, "access_size"),
                threads: number(m, "number_threads"),
                persist: m.arguments.get("persist_instruction").map_or(String::new(), ToString::to_string),
                point: m.point(),
            })
        })
        .collect()
}

fn place_text(found: &Found) -> String {
    let threads = if found.threads == 1 { "thread" } else { "threads" };
    format!("at {} and {} {threads}", size_text(found.size), found.threads)
}

/// The points that others confirm, and the isolated ones: far above every point that differs by one step of size or of
/// threads. A point without such neighbours is accepted.
fn believed(all: Vec<Found>) -> (Vec<Found>, Vec<Found>) {
    let next = |values: &mut Vec<u64>, of: u64| -> Vec<u64> {
        values.sort_unstable();
        values.dedup();
        let at = values.iter().position(|value| *value == of).unwrap_or(0);
        let beside = [at.checked_sub(1), Some(at + 1)];
        beside.into_iter().flatten().filter_map(|at| values.get(at).copied()).collect()
    };
    let lonely = |point: &Found| {
        let same = |found: &&Found| found.persist == point.persist;
        let line = |of: fn(&Found) -> u64, other: fn(&Found) -> u64| -> Vec<f64> {
            let on_it: Vec<&Found> = all.iter().filter(same).filter(|f| other(f) == other(point)).collect();
            let beside = next(&mut on_it.iter().map(|f| of(f)).collect(), of(point));
            on_it.iter().filter(|f| beside.contains(&of(f))).map(|f| f.value).collect()
        };
        let mut beside = line(|f| f.size, |f| f.threads);
        beside.extend(line(|f| f.threads, |f| f.size));
        !beside.is_empty() && beside.iter().all(|value| point.value > LONELY * value)
    };
    let (out, kept): (Vec<Found>, Vec<Found>) = all.iter().cloned().partition(lonely);
    // If no point is confirmed, the measured points are the best available.
    if kept.is_empty() { (out, kept) } else { (kept, out) }
}

/// The least `key` among the points that are as good as the best.
fn least_good(found: &[Found], key: impl Fn(&Found) -> u64) -> Option<u64> {
    let best = found.iter().map(|f| f.value).fold(0.0, f64::max);
    found.iter().filter(|f| f.value >= AS_GOOD * best).map(key).min()
}

/// Whether writing lines back pays if it is not needed, or its cost if it is.
fn flushing(run: &Run, granularity: Granularity) -> Option<(String, String)> {
    let (plain, flushed) = plain_and_flushed(run)?;
    let ratio = flushed.value / plain.value;
    let detail = format!(
        "{} with {} at {}, {} without at {}",
        figure(flushed.value, Unit::BytesPerSecond),
        flushed.persist,
        size_text(flushed.size),
        figure(plain.value, Unit::BytesPerSecond),
        size_text(plain.size)
    );
    let value = match granularity {
        Granularity::CacheLine => format!("needed; {ratio:.2} times the bandwidth of plain stores"),
        Granularity::Byte if ratio > PAYS => {
            format!("yes: {ratio:.2} times the bandwidth, though durability needs none")
        }
        Granularity::Byte => format!("no: {ratio:.2} times the bandwidth of plain stores"),
        Granularity::Page => format!("no: only write-back of pages makes writes durable ({ratio:.2} times)"),
    };
    Some((value, detail))
}

/// The best bandwidth of plain stores, and that of stores that are flushed or go past the cache.
fn plain_and_flushed(run: &Run) -> Option<(Found, Found)> {
    let (all, _) = believed(of(run, "persist_sequential_write", "bandwidth"));
    let best = |plain: bool| {
        let alike = all.iter().filter(|f| (f.persist == "none") == plain);
        alike.max_by(|a, b| a.value.total_cmp(&b.value)).cloned()
    };
    Some((best(true)?, best(false)?))
}

fn size_text(bytes: u64) -> String {
    crate::memory::error::bytes_text(bytes)
}

/// The engine's step. If lines must be flushed, `auto` flushes short records and stores long ones past the cache. If
/// they need not be, on persistent memory, `auto` does neither; the result names the step that paid in the measurement.
/// (On `shm`, a step makes DRAM emulate a medium whose lines must be flushed: it is for measuring.)
fn flush_instruction(run: &Run, granularity: Granularity, wide: Option<&Found>) -> String {
    let flush = |persist: &str| match persist {
        "cache" if cfg!(target_arch = "x86_64") => Some(FlushInstruction::Clwb),
        "cache_invalidate" if cfg!(target_arch = "x86_64") => Some(FlushInstruction::Clflushopt),
        _ => None,
    };
    let past_cache = || {
        let widest = [
            FlushInstruction::NonTemporalAvx512,
            FlushInstruction::NonTemporalAvx2,
            FlushInstruction::NonTemporalSse2,
        ];
        let available = FlushInstruction::available();
        widest.into_iter().find(|step| available.contains(step))
    };
    let step = match granularity {
        Granularity::CacheLine => wide.and_then(|found| flush(&found.persist)),
        Granularity::Byte if matches!(&*run.medium.kind, "devdax" | "fsdax") => plain_and_flushed(run)
            .filter(|(plain, flushed)| flushed.value / plain.value > PAYS)
            .and_then(|(_, flushed)| match &*flushed.persist {
                "no_cache" => past_cache(),
                other => flush(other),
            }),
        Granularity::Byte | Granularity::Page => None,
    };
    step.map_or("auto".to_owned(), |step| step.to_string())
}

/// The settings of a verdict as a file that `duramen serve --tune FILE` and `Options::from_profile` read.
pub fn profile(run: &Run) -> Option<String> {
    let verdict = run.verdict.as_ref()?;
    let mut text = format!("# Recommended by {} {} for {}.\n", run.tool, run.version, run.medium.kind);
    for section in ["medium", "engine"] {
        text.push_str(&format!("\n[{section}]\n"));
        for (name, value) in &verdict.settings {
            if let Some(key) = name.strip_prefix(section).and_then(|rest| rest.strip_prefix('.')) {
                let number = value.parse::<u64>().is_ok();
                text.push_str(&if number {
                    format!("{key} = {value}\n")
                } else {
                    format!("{key} = \"{value}\"\n")
                });
            }
        }
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Better, Machine, Medium, Metric};

    fn run() -> Run {
        let point = |group: &str, size: u64, threads: u64, persist: &str, bandwidth: f64| {
            let mut m =
                Measurement::new(group, group).with("access_size", size).with("number_threads", threads);
            if !persist.is_empty() {
                m = m.with("persist_instruction", persist);
            }
            m.metrics
                .insert("bandwidth".into(), Metric::once(bandwidth, Unit::BytesPerSecond, Better::Higher));
            let time = size as f64 * threads as f64 * 1e9 / bandwidth;
            m.metrics.insert("time".into(), Metric::once(time, Unit::Nanoseconds, Better::Lower));
            m
        };
        let mut measurements = Vec::new();
        for (threads, rate) in [(1, 5e9), (2, 9.8e9), (4, 1e10)] {
            measurements.push(point("sequential_read", 4096, threads, "", rate));
            measurements.push(point("sequential_write", 4096, threads, "", rate / (threads as f64)));
        }
        for (size, rate) in [(64, 1e9), (256, 3e9), (1024, 3.1e9), (4096, 3.15e9)] {
            measurements.push(point("random_read", size, 1, "", rate));
            measurements.push(point("random_write", size, 1, "", rate / 2.0));
        }
        for (persist, rate) in [("cache", 2e9), ("cache_invalidate", 1e9), ("no_cache", 3e9), ("none", 2.5e9)]
        {
            measurements.push(point("persist_sequential_write", 256, 1, persist, rate));
            measurements.push(point(
                "persist_random_write",
                8,
                1,
                persist,
                if persist == "cache" { 9e7 } else { 5e7 },
            ));
        }
        Run {
            medium: Medium { kind: "shm".into(), ..Medium::default() },
            measurements,
            machine: Machine { cores: 2, ..Machine::default() },
            ..Run::default()
        }
    }

    #[test]
    fn the_recommended_page_size_follows_from_the_figures() {
        let found = verdict(&run(), Granularity::Byte, None);
        let value = |title: &str| {
            let finding = found.findings.iter().find(|f| f.title == title).unwrap();
            (finding.value.as_str(), finding.detail.as_str())
        };
        assert_eq!(value("best size to read").0, "256 bytes");
        assert_eq!(value("threads to saturate").0, "2 reading, 1 writing");
        assert_eq!(value("best persist instruction").0, "no_cache");
        assert!(value("best persist instruction").1.contains("at random cache in"));
        assert!(value("does flushing pay").0.starts_with("yes: 1.20 times"));
        assert_eq!(found.settings["medium.flush-instruction"], "auto");
        assert_eq!(found.settings["engine.recovery-threads"], "2");
        let found = verdict(&run(), Granularity::CacheLine, None);
        assert!(found.findings.iter().any(|f| f.value.starts_with("needed")));
    }

    fn is_by(m: &Measurement, persist: &str) -> bool {
        m.arguments.get("persist_instruction") == Some(&Argument::Text(persist.to_owned()))
    }

    #[test]
    fn a_faster_flush_is_recommended_even_if_durability_needs_none() {
        let mut run = run();
        run.medium.kind = "devdax".into();
        let step =
            |run: &Run| verdict(run, Granularity::Byte, None).settings["medium.flush-instruction"].clone();
        let past_cache = step(&run);
        if cfg!(target_arch = "x86_64") {
            assert!(past_cache.starts_with("nt-"), "{past_cache}");
            run.measurements.retain(|m| !is_by(m, "no_cache"));
        }
        // 2 GB/s with clwb against 2.5 with plain stores.
        assert_eq!(step(&run), "auto");
        for m in run.measurements.iter_mut().filter(|m| m.group == "persist_sequential_write") {
            if is_by(m, "cache") {
                m.metrics.insert("bandwidth".into(), Metric::once(8e9, Unit::BytesPerSecond, Better::Higher));
            }
        }
        if cfg!(target_arch = "x86_64") {
            assert_eq!(step(&run), "clwb");
            run.verdict = Some(verdict(&run, Granularity::Byte, None));
            assert!(profile(&run).unwrap().contains("flush-instruction = \"clwb\""));
        }
        run.medium.kind = "shm".into();
        assert_eq!(step(&run), "auto");
    }

    #[test]
    fn one_bad_point_does_not_decide() {
        let mut run = run();
        let wrong = run.measurements.iter_mut().find(|m| m.group == "random_read");
        let bandwidth = wrong.and_then(|m| m.metrics.get_mut("bandwidth")).unwrap();
        *bandwidth = Metric::once(17.3e9, Unit::BytesPerSecond, Better::Higher);
        let found = verdict(&run, Granularity::Byte, None);
        let read = found.findings.iter().find(|f| f.title == "random read").unwrap();
        assert_eq!(read.value, "3.15 GB/s");
        assert!(read.detail.contains("17.3 GB/s at 64 bytes and 1 thread left out"), "{}", read.detail);
        let size = found.findings.iter().find(|f| f.title == "best size to read").unwrap();
        assert_eq!(size.value, "256 bytes");
        // Nor does price-performance count it.
        let left_out = run.measurements.iter().find(|m| m.group == "random_read").map(Measurement::point);
        assert_eq!(found.left_out, Vec::from_iter(left_out));
    }

    #[test]
    fn a_profile_has_sections_of_simple_lines() {
        let mut run = run();
        run.verdict = Some(verdict(&run, Granularity::Byte, None));
        let text = profile(&run).unwrap();
        assert!(text.contains("[medium]\nkind = \"shm\"\nflush-instruction = \"auto\"\n"), "{text}");
        assert!(text.contains("[engine]\nrecovery-threads = 2\nthreads = 2\n"), "{text}");
    }

    #[test]
    fn an_empty_run_gives_a_verdict_without_figures() {
        let found = verdict(&Run::default(), Granularity::Page, None);
        assert_eq!(found.findings.len(), 1);
    }
}
