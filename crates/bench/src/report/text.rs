//! Tables for a terminal: aligned columns, one unit per column.

use crate::report::run::{Measurement, Run, Verdict};
use crate::report::scale::{self, Scale, figure};
use crate::report::{Argument, Medium, Metric, Unit, headline};

/// Rows of cells under a head. Numbers are aligned to the right.
#[derive(Clone, Debug, Default)]
pub struct Table {
    head: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with this head.
    pub fn new<T: Into<String>>(head: impl IntoIterator<Item = T>) -> Self {
        Self { head: head.into_iter().map(|cell| printable(&cell.into())).collect(), rows: Vec::new() }
    }

    /// Adds a row; missing cells are empty, excess cells are not shown.
    pub fn row<T: Into<String>>(&mut self, cells: impl IntoIterator<Item = T>) {
        let mut cells: Vec<String> = cells.into_iter().map(|cell| printable(&cell.into())).collect();
        cells.resize(self.head.len(), String::new());
        self.rows.push(cells);
    }

    /// Whether there is no row.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The table in lines of at most `characters`. Columns that do not fit stand in a further table below, which
    /// repeats the first `keys` columns. A column of spreads stays next to its figures.
    fn render_within(&self, characters: usize, keys: usize) -> String {
        let widths: Vec<usize> = (0..self.head.len()).map(|column| self.width(column) + 2).collect();
        let fixed: usize = widths[..keys].iter().sum();
        let mut parts: Vec<Vec<usize>> = Vec::new();
        let mut taken = 0;
        let mut column = keys;
        while column < widths.len() {
            let together = 1 + usize::from(self.head.get(column + 1).is_some_and(|head| head == SPREAD));
            let needs: usize = widths[column..column + together].iter().sum();
            if parts.is_empty() || fixed + taken + needs > characters + 2 {
                parts.push(Vec::new());
                taken = 0;
            }
            taken += needs;
            if let Some(part) = parts.last_mut() {
                part.extend(column..column + together);
            }
            column += together;
        }
        if parts.len() < 2 {
            return self.render();
        }
        let tables = parts.iter().map(|part| {
            let chosen: Vec<usize> = (0..keys).chain(part.iter().copied()).collect();
            let of =
                |cells: &Vec<String>| chosen.iter().map(|column| cells[*column].clone()).collect::<Vec<_>>();
            Self { head: of(&self.head), rows: self.rows.iter().map(of).collect() }.render()
        });
        tables.collect::<Vec<_>>().join("\n")
    }

    /// The table in lines of at most `characters`, if the other columns leave the last one enough room; a long last
    /// cell continues in further lines.
    fn render_last_within(&self, characters: usize) -> String {
        let last = self.head.len().saturating_sub(1);
        let taken: usize = (0..last).map(|column| self.width(column) + 2).sum();
        let room = characters.saturating_sub(taken).max(LAST_MIN);
        let mut narrow = Self { head: self.head.clone(), rows: Vec::new() };
        for row in &self.rows {
            let mut row = row.clone();
            for line in wrapped(&row[last].clone(), room) {
                row[last] = line;
                narrow.rows.push(row);
                row = vec![String::new(); self.head.len()];
            }
        }
        narrow.render()
    }

    fn width(&self, column: usize) -> usize {
        let cells = self.rows.iter().map(|row| &row[column]).chain([&self.head[column]]);
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    }

    /// The lines, each with a newline.
    pub fn render(&self) -> String {
        let mut text = String::new();
        let columns: Vec<(usize, bool)> =
            (0..self.head.len()).map(|column| (self.width(column), self.is_numeric(column))).collect();
        let mut line = |cells: &[String]| {
            let mut line = String::new();
            for (cell, (width, right)) in cells.iter().zip(&columns) {
                let space = " ".repeat(width - cell.chars().count());
                let (before, after) = if *right { (space.as_str(), "") } else { ("", space.as_str()) };
                line.push_str(&format!("{before}{cell}{after}  "));
            }
            text.push_str(line.trim_end());
            text.push('\n');
        };
        line(&self.head);
        line(&columns.iter().map(|(width, _)| "-".repeat(*width)).collect::<Vec<_>>());
        for row in &self.rows {
            line(row);
        }
        text
    }

    fn is_numeric(&self, column: usize) -> bool {
        let mut cells =
            self.rows.iter().map(|row| row[column].as_str()).filter(|cell| !cell.is_empty()).peekable();
        cells.peek().is_some() && cells.all(|cell| cell.starts_with(|c: char| c.is_ascii_digit() || c == '-'))
    }
}

/// The text in lines of at most `characters`, broken at blanks; a longer word has a line to itself. At least one line.
fn wrapped(text: &str, characters: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    let mut taken = 0;
    for word in text.split(' ') {
        let needs = word.chars().count();
        if taken > 0 && taken + 1 + needs > characters {
            lines.push(String::new());
            taken = 0;
        }
        if let Some(line) = lines.last_mut() {
            if taken > 0 {
                line.push(' ');
                taken += 1;
            }
            line.push_str(word);
        }
        taken += needs;
    }
    lines
}

/// A paragraph; lines after the first begin with blanks if the first has a `title`.
fn paragraph(title: &str, text: &str) -> String {
    let indent = if title.is_empty() { "" } else { "  " };
    let whole = printable(&format!("{title}{text}"));
    format!("{}\n", wrapped(&whole, CHARACTERS_MAX - indent.len()).join(&format!("\n{indent}")))
}

/// Names come from files: a control character must not reach the terminal.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

// 120: the width of a terminal next to another one.
const CHARACTERS_MAX: usize = 120;
/// The smallest width of a verdict's last column.
const LAST_MIN: usize = 30;
/// The head of a column with the spread of the previous column.
const SPREAD: &str = "min to max";

/// What a reader must know before any figure, as lines: interrupted runs, and runs that began on a busy machine.
pub fn warnings(runs: &[Run]) -> String {
    let mut text = String::new();
    for (index, run) in runs.iter().enumerate() {
        let which = if runs.len() > 1 { format!("run {}", index + 1) } else { "the run".to_owned() };
        if !run.complete {
            let warning = format!("{which} was interrupted; missing points were not measured");
            text.push_str(&paragraph("INCOMPLETE: ", &warning));
        }
        if let Some(load) = run.machine.busy() {
            let (load, cores) = (scale::digits(load), run.machine.cores);
            let warning = format!(
                "{which} began with {load} runnable threads on {cores} cores over the minute before; times are upper bounds"
            );
            text.push_str(&paragraph("BUSY MACHINE: ", &warning));
        }
    }
    text
}

/// The run as text: warnings, the conclusion, the circumstances, a table for each group.
pub fn run(run: &Run) -> String {
    let mut text = warnings(std::slice::from_ref(run));
    if let Some(headline) = headline::of(run) {
        text.push_str(&paragraph("", &headline.sentence));
        text.push('\n');
        headline::lines(&headline).lines().for_each(|line| {
            text.push_str(&printable(line));
            text.push('\n');
        });
        text.push('\n');
    } else if let Some(verdict) = &run.verdict {
        text.push_str(&paragraph("", &verdict.summary));
        text.push('\n');
    }
    text.push_str(&format!(
        "{} {}, {}\n",
        printable(&run.tool),
        printable(&run.version),
        scale::time(run.started)
    ));
    text.push_str(&paragraph("machine: ", &machine_line(run)));
    text.push_str(&paragraph("medium: ", &medium_line(&run.medium)));
    for note in &run.notes {
        text.push_str(&paragraph("note: ", note));
    }
    if let Some(verdict) = &run.verdict {
        text.push_str(&format!("\n{}", findings(verdict)));
    }
    for (group, measurements) in groups(&run.measurements) {
        let common: Vec<String> = common_arguments(&measurements)
            .map(|(name, value)| format!("{} {}", scale::words(name), scale::argument(name, value)))
            .collect();
        let all_with =
            if common.is_empty() { String::new() } else { format!(": with {}", common.join(", ")) };
        text.push_str(&format!("\n{}", paragraph(group, &all_with)));
        let arguments = varying_arguments(&measurements);
        text.push_str(
            &group_table(&measurements, &arguments).render_within(CHARACTERS_MAX, 1 + arguments.len()),
        );
    }
    for (note, names) in notes(&run.measurements) {
        text.push_str(&format!("\n{}", paragraph(&format!("note on {}: ", names.join(", ")), note)));
    }
    text
}

/// Each note once, with its subject: a group, and the name if that differs.
pub(crate) fn notes<'a>(
    measurements: impl IntoIterator<Item = &'a Measurement>,
) -> Vec<(&'a str, Vec<String>)> {
    let mut notes: Vec<(&str, Vec<String>)> = Vec::new();
    for measurement in measurements {
        let on = match measurement.group == measurement.name {
            true => measurement.name.clone(),
            false => format!("{} {}", measurement.group, measurement.name),
        };
        for note in &measurement.notes {
            match notes.iter_mut().find(|(other, _)| other == note) {
                Some((_, names)) if names.contains(&on) => {}
                Some((_, names)) => names.push(on.clone()),
                None => notes.push((note, vec![on.clone()])),
            }
        }
    }
    notes
}

/// The findings of the verdict, and its recommendations.
fn findings(verdict: &Verdict) -> String {
    let mut text = String::new();
    let mut table = Table::new(["finding", "value", "where, or what it means"]);
    for finding in &verdict.findings {
        table.row([&finding.title, &finding.value, &finding.detail]);
    }
    if !table.is_empty() {
        text.push_str(&table.render_last_within(CHARACTERS_MAX));
    }
    if !verdict.settings.is_empty() {
        text.push_str("recommended settings:\n");
        for (name, value) in &verdict.settings {
            text.push_str(&format!("  {} {}\n", printable(name), printable(value)));
        }
    }
    text
}

/// The machine in a line.
pub(crate) fn machine_line(run: &Run) -> String {
    let machine = &run.machine;
    let mut parts = vec![machine.cpu.clone(), format!("{} cores", machine.cores)];
    parts.push(figure(machine.memory_bytes as f64, Unit::Bytes));
    if machine.numa_nodes.len() > 1 {
        parts.push(format!("{} NUMA nodes", machine.numa_nodes.len()));
    }
    parts.push(machine.kernel.clone());
    parts.extend(machine.virtualisation.as_ref().map(|v| format!("under {v}")));
    parts.retain(|part| !part.is_empty());
    parts.join(", ")
}

/// The medium in a line.
pub(crate) fn medium_line(medium: &Medium) -> String {
    let mut parts = vec![medium.kind.clone(), medium.path.clone(), medium.filesystem.clone()];
    if !medium.granularity.is_empty() {
        parts.push(format!("granularity {}", medium.granularity));
    }
    if medium.page_bytes > 0 {
        parts.push(format!("{} pages", figure(medium.page_bytes as f64, Unit::Bytes)));
    }
    if !medium.huge_pages.is_empty() {
        parts.push(format!("huge pages {}", medium.huge_pages));
    }
    parts.retain(|part| !part.is_empty());
    if parts.is_empty() { "unknown".to_owned() } else { parts.join(", ") }
}

/// Measurements by group, in the order in which groups first appear.
pub(crate) fn groups(measurements: &[Measurement]) -> Vec<(&str, Vec<&Measurement>)> {
    let mut groups: Vec<(&str, Vec<&Measurement>)> = Vec::new();
    for measurement in measurements {
        match groups.iter_mut().find(|(group, _)| *group == measurement.group) {
            Some((_, members)) => members.push(measurement),
            None => groups.push((&measurement.group, vec![measurement])),
        }
    }
    groups
}

/// A metric's column: its name and the scale that suits its largest figure.
pub(crate) fn metric_columns<'a>(measurements: &[&'a Measurement]) -> Vec<(&'a str, Scale)> {
    columns(measurements, |m| &m.metrics)
        .into_iter()
        .map(|name| {
            let metrics: Vec<&Metric> = measurements.iter().filter_map(|m| m.metrics.get(name)).collect();
            let largest = metrics.iter().map(|metric| metric.value.abs()).fold(0.0, f64::max);
            let unit = metrics.first().map_or(Unit::Count, |metric| metric.unit);
            (name, Scale::of(largest, unit))
        })
        .collect()
}

/// The names of arguments that are not the same in all of a group.
pub(crate) fn varying_arguments<'a>(measurements: &[&'a Measurement]) -> Vec<&'a str> {
    let mut names = columns(measurements, |m| &m.arguments);
    let first = measurements.first().map(|m| &m.arguments);
    names.retain(|name| {
        measurements.iter().any(|m| m.arguments.get(*name) != first.and_then(|a| a.get(*name)))
    });
    names
}

/// The arguments that are the same in all of a group, shown once.
pub(crate) fn common_arguments<'a>(
    measurements: &[&'a Measurement],
) -> impl Iterator<Item = (&'a str, &'a Argument)> {
    let varying = varying_arguments(measurements);
    let first = measurements.first().copied();
    let all = first.into_iter().flat_map(|m| m.arguments.iter().map(|(name, value)| (name.as_str(), value)));
    all.filter(move |(name, _)| !varying.contains(name))
}

fn columns<'a, T: 'a>(
    measurements: &[&'a Measurement],
    map: impl Fn(&'a Measurement) -> &'a indexmap::IndexMap<String, T>,
) -> Vec<&'a str> {
    let mut names: Vec<&str> = Vec::new();
    for measurement in measurements {
        for name in map(measurement).keys() {
            if !names.contains(&name.as_str()) {
                names.push(name);
            }
        }
    }
    names
}

fn group_table(measurements: &[&Measurement], arguments: &[&str]) -> Table {
    let metrics = metric_columns(measurements);
    let has_latency = measurements.iter().any(|m| !m.latency.is_empty());
    let has_bound = measurements.iter().any(|m| m.bound.is_some());
    let mut head = vec!["name".to_owned()];
    head.extend(arguments.iter().map(|name| scale::words(name)));
    for (name, scale) in &metrics {
        let unit = if scale.label.is_empty() { String::new() } else { format!(", {}", scale.label) };
        head.push(format!("{}{unit}", scale::words(name)));
        if has_spread(measurements, name) {
            head.push(SPREAD.to_owned());
        }
    }
    if has_latency {
        head.extend(["p50", "p99", "p99.9", "p99.99", "max"].map(ToOwned::to_owned));
    }
    if has_bound {
        head.push("× bound".to_owned());
    }
    let mut table = Table::new(head);
    for measurement in measurements {
        let mut first = vec![measurement.name.clone()];
        first.extend(arguments.iter().map(|name| {
            measurement.arguments.get(*name).map_or(String::new(), |value| scale::argument(name, value))
        }));
        for (name, scale) in &metrics {
            let metric = measurement.metrics.get(*name);
            first.push(metric.map_or(String::new(), |metric| scale.number(metric.value)));
            if has_spread(measurements, name) {
                first.push(metric.map_or(String::new(), |metric| spread(metric, *scale)));
            }
        }
        let bound = measurement.bound.as_ref().map_or(String::new(), |bound| scale::digits(bound.ratio));
        // One line for each operation; figures that belong to no operation stand in the first line only.
        let operations: Vec<_> = measurement.latency.iter().map(Some).collect();
        let operations = if operations.is_empty() { vec![None] } else { operations };
        for (index, operation) in operations.iter().enumerate() {
            let mut cells = if index == 0 { first.clone() } else { vec![String::new(); first.len()] };
            if let Some((name, latency)) = operation {
                if operations.len() > 1 || *name != &measurement.name {
                    cells[0] = format!(
                        "{}{name}",
                        if index == 0 { format!("{}: ", measurement.name) } else { "  ".into() }
                    );
                }
                let at = |percent| {
                    latency
                        .percentile(percent)
                        .map_or(String::new(), |ns| figure(ns as f64, Unit::Nanoseconds))
                };
                cells.extend([
                    at(50.0),
                    at(99.0),
                    at(99.9),
                    at(99.99),
                    figure(latency.max as f64, Unit::Nanoseconds),
                ]);
            } else if has_latency {
                cells.extend(vec![String::new(); 5]);
            }
            if has_bound {
                cells.push(if index == 0 { bound.clone() } else { String::new() });
            }
            table.row(cells);
        }
    }
    table
}

/// Whether any of the measurements has a spread of this metric, so that there is a column for it.
fn has_spread(measurements: &[&Measurement], name: &str) -> bool {
    measurements.iter().any(|m| m.metrics.get(name).is_some_and(|metric| metric.min < metric.max))
}

/// Lowest to highest, or nothing if it was measured once.
pub(crate) fn spread(metric: &Metric, scale: Scale) -> String {
    if metric.min < metric.max {
        format!("{} to {}", scale.number(metric.min), scale.number(metric.max))
    } else {
        String::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Better, Finding};

    #[test]
    fn columns_are_aligned_and_numbers_are_right_aligned() {
        let mut table = Table::new(["name", "ns"]);
        table.row(["get", "5"]);
        table.row(["insert\u{1b}[31m", "1,234"]);
        table.row(["µ"]);
        assert_eq!(
            table.render(),
            "name            ns\n\
             -----------  -----\n\
             get              5\n\
             insert\u{fffd}[31m  1,234\n\
             µ\n"
        );
    }

    #[test]
    fn wide_groups_fit_the_terminal_and_a_note_appears_once() {
        let mut measurements = Vec::new();
        for group in ["get", "put"] {
            for threads in [1_u64, 2] {
                let mut point =
                    Measurement::new(group, "duramen").with("keys", 1000_u64).with("threads", threads);
                for name in
                    ["throughput", "time of an operation", "CPU time of an operation", "medium per record"]
                {
                    let samples = [1e6, 2e6, 3e6];
                    let metric =
                        Metric::from_samples(&samples, Unit::OperationsPerSecond, Better::Higher).unwrap();
                    point.metrics.insert(name.into(), metric);
                }
                point.notes.push("Said once.".into());
                measurements.push(point);
            }
        }
        let text = run(&Run { measurements, complete: true, ..Run::default() });
        assert!(
            text.starts_with(
                "duramen, in million operations a second, each at its best point: get 2, put 2.\n"
            ),
            "{text}"
        );
        assert!(text.lines().all(|line| line.chars().count() <= CHARACTERS_MAX), "{text}");
        assert_eq!(text.matches("Said once.").count(), 1, "{text}");
        assert!(text.contains("note on get duramen, put duramen: Said once."), "{text}");
        assert!(text.contains("get: with keys 1,000\n"), "{text}");
        assert_eq!(text.matches("CPU time of an operation").count(), 2, "{text}");
    }

    #[test]
    fn a_verdict_comes_first_and_fits_the_terminal_and_what_was_measured_once_has_no_spread() {
        let mut once = Measurement::new("read", "sequential");
        once.metrics.insert("bandwidth".into(), Metric::once(1e9, Unit::BytesPerSecond, Better::Higher));
        let finding = |title: &str| Finding {
            title: title.into(),
            value: "1 GB/s".into(),
            detail: "a word and another, ".repeat(20),
        };
        let verdict = Verdict {
            summary: "It is quick enough. ".repeat(12),
            findings: vec![finding("sequential read"), finding("random read")],
            ..Verdict::default()
        };
        let text = run(&Run {
            measurements: vec![once],
            verdict: Some(verdict),
            notes: vec!["said at length ".repeat(20)],
            complete: true,
            ..Run::default()
        });
        assert!(text.starts_with("It is quick enough."), "{text}");
        assert_eq!(text.matches("It is").count(), 12, "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= CHARACTERS_MAX), "{text}");
        assert_eq!(text.matches("another,").count(), 40, "{text}");
        assert!(text.contains("\nread\nname        bandwidth, GB/s\n"), "{text}");
    }

    #[test]
    fn a_busy_machine_is_reported_before_any_figure() {
        let mut busy = Run { complete: true, ..Run::default() };
        (busy.machine.cores, busy.machine.load) = (2, Some(1.5));
        assert!(
            run(&busy).starts_with("BUSY MACHINE: the run began with 1.50 runnable threads on 2 cores"),
            "{}",
            run(&busy)
        );
        let quiet = Run { complete: true, ..Run::default() };
        assert_eq!(warnings(std::slice::from_ref(&quiet)), "");
        assert!(warnings(&[quiet, busy]).starts_with("BUSY MACHINE: run 2 began"));
    }

    #[test]
    fn a_run_has_one_table_per_group_and_is_marked_incomplete() {
        let mut first = Measurement::new("read", "sequential").with("access_size", 4096_u64);
        first.metrics.insert(
            "bandwidth".into(),
            Metric::from_samples(&[1e9, 2e9, 3e9], Unit::BytesPerSecond, Better::Higher).unwrap(),
        );
        let second = Measurement::new("write", "random");
        let text = run(&Run { measurements: vec![first, second], ..Run::default() });
        assert!(text.starts_with("INCOMPLETE: the run was interrupted"), "{text}");
        assert!(text.contains("read: with access size 4 KiB\n"), "{text}");
        assert!(text.contains("name        bandwidth, GB/s  min to max\n"), "{text}");
        assert!(text.contains("sequential                2      1 to 3\n"), "{text}");
        assert!(text.contains("\nwrite\nname\n"), "{text}");
    }
}
