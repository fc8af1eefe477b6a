//! Tables: every figure in the plots, and the figures that no plot shows.

use super::choose::Member;
use crate::report::compare::same_point;
use crate::report::judgement::{Judgement, judge};
use crate::report::latency::Latency;
use crate::report::machine::Machine;
use crate::report::plot::escape;
use crate::report::price::Bill;
use crate::report::run::{Measurement, Metric, Run};
use crate::report::scale::{self, Scale, figure};
use crate::report::text;
use crate::report::{Better, Unit};

const OPEN: &str = "<div class=\"wide\" tabindex=\"0\"><table><thead><tr>";
const CLOSE: &str = "</tbody></table></div>";

/// The table of a group: one run's figures, or all runs' figures side by side.
pub(super) fn group(members: &[Member], runs: &[Run]) -> String {
    let table = if runs.len() > 1 { beside(members, runs) } else { single(members) };
    let mut html = constant(members);
    html.push_str(&format!("<details open=\"open\"><summary>Figures</summary>{table}</details>"));
    let latency = latencies(members, runs.len());
    if !latency.is_empty() {
        html.push_str(&format!("<details open=\"open\"><summary>Latency</summary>{latency}</details>"));
    }
    html
}

/// Arguments that are not the same in all members.
fn varying<'a>(members: &[Member<'a>]) -> Vec<&'a str> {
    text::varying_arguments(&measurements(members))
}

fn measurements<'a>(members: &[Member<'a>]) -> Vec<&'a Measurement> {
    members.iter().map(|member| member.measurement).collect()
}

/// The arguments that all members have in common, once.
fn constant(members: &[Member]) -> String {
    common(&measurements(members)).map_or(String::new(), |line| format!("<p class=\"soft\">{line}</p>"))
}

/// The arguments that all of these have in common, as a sentence.
pub(super) fn common(measurements: &[&Measurement]) -> Option<String> {
    let common: Vec<String> = text::common_arguments(measurements)
        .map(|(name, value)| format!("{} {}", scale::words(name), scale::argument(name, value)))
        .collect();
    (!common.is_empty()).then(|| format!("With {}.", escape(&common.join(", "))))
}

/// The notes of some measurements, each once.
pub(super) fn notes(runs: &[Run]) -> String {
    let notes: String = text::notes(runs.iter().flat_map(|run| &run.measurements))
        .into_iter()
        .map(|(note, names)| {
            format!("<li><strong>{}</strong>: {}</li>", escape(&names.join(", ")), escape(note))
        })
        .collect();
    if notes.is_empty() {
        return notes;
    }
    format!("<section id=\"notes\"><h2>Notes</h2><ul class=\"soft\">{notes}</ul></section>")
}

fn single(members: &[Member]) -> String {
    let measurements = measurements(members);
    let arguments = varying(members);
    let metrics = text::metric_columns(&measurements);
    let bounded = measurements.iter().any(|m| m.bound.is_some());
    let mut html = OPEN.to_owned();
    html.push_str("<th scope=\"col\">name</th>");
    for name in &arguments {
        html.push_str(&format!("<th scope=\"col\" class=\"n\">{}</th>", escape(&scale::words(name))));
    }
    for (name, scale) in &metrics {
        let better =
            measurements.iter().find_map(|m| m.metrics.get(*name)).map_or("", |m| direction(m.better));
        html.push_str(&format!(
            "<th scope=\"col\" class=\"n\" title=\"{better}\">{} <span class=\"unit\">{}</span></th>",
            escape(&scale::words(name)),
            scale.label
        ));
    }
    if bounded {
        html.push_str("<th scope=\"col\" class=\"n\">bound</th><th scope=\"col\" class=\"n\">× bound</th>");
    }
    html.push_str("</tr></thead><tbody>");
    for measurement in &measurements {
        html.push_str(&format!("<tr><th scope=\"row\">{}</th>", escape(&measurement.name)));
        for name in &arguments {
            let value = measurement.arguments.get(*name);
            let value = value.map_or(String::new(), |value| scale::argument(name, value));
            html.push_str(&format!("<td class=\"n\">{}</td>", escape(&value)));
        }
        for (name, scale) in &metrics {
            let cell = measurement
                .metrics
                .get(*name)
                .map_or(String::new(), |metric| metric_cell(metric, *scale, ""));
            html.push_str(&format!("<td class=\"n\">{cell}</td>"));
        }
        if bounded {
            let (ns, ratio, name) = measurement.bound.as_ref().map_or_else(Default::default, |bound| {
                (figure(bound.ns, Unit::Nanoseconds), figure(bound.ratio, Unit::Ratio), escape(&bound.name))
            });
            html.push_str(&format!(
                "<td class=\"n\" data-tip=\"{name}\">{ns}</td><td class=\"n\">{ratio}</td>"
            ));
        }
        html.push_str("</tr>");
    }
    html + CLOSE
}

/// A figure, the label of its unit where the column has none, and its spread.
fn metric_cell(metric: &Metric, scale: Scale, label: &str) -> String {
    let spread = text::spread(metric, scale);
    let spread = if spread.is_empty() { spread } else { format!(" <small>{spread}</small>") };
    let label = if label.is_empty() { String::new() } else { format!(" {label}") };
    format!("{}{label}{spread}", scale.number(metric.value))
}

/// A row for each figure of each point; a column for each run, and its ratio to the first run.
fn beside(members: &[Member], runs: &[Run]) -> String {
    let varying = varying(members);
    let mut points: Vec<&Measurement> = Vec::new();
    for member in members {
        if !points.iter().any(|known| same_point(known, member.measurement)) {
            points.push(member.measurement);
        }
    }
    let mut html = OPEN.to_owned();
    html.push_str("<th scope=\"col\">what</th><th scope=\"col\">figure</th>");
    for index in 0..runs.len() {
        let letter = super::letter(index);
        html.push_str(&format!("<th scope=\"col\" class=\"n\"><span class=\"run\">{letter}</span></th>"));
        if index > 0 {
            html.push_str(&format!("<th scope=\"col\" class=\"n\">{letter} / A</th><th scope=\"col\"></th>"));
        }
    }
    html.push_str("</tr></thead><tbody>");
    for point in points {
        let in_run = |run: usize| {
            members.iter().find(|m| m.run == run && same_point(m.measurement, point)).map(|m| m.measurement)
        };
        let all: Vec<&Measurement> = (0..runs.len()).filter_map(in_run).collect();
        for (name, scale) in text::metric_columns(&all) {
            html.push_str(&format!(
                "<tr><th scope=\"row\">{}</th><td>{}</td>",
                escape(&words_of(point, &varying)),
                escape(&scale::words(name))
            ));
            let first = in_run(0).and_then(|m| m.metrics.get(name));
            for run in 0..runs.len() {
                let metric = in_run(run).and_then(|m| m.metrics.get(name));
                let cell = metric.map_or("–".to_owned(), |metric| {
                    let own = if first.is_some_and(|first| first.unit != metric.unit) {
                        Scale::of(metric.value, metric.unit)
                    } else {
                        scale
                    };
                    metric_cell(metric, own, own.label)
                });
                html.push_str(&format!("<td class=\"n\">{cell}</td>"));
                if run > 0 {
                    html.push_str(&ratio_cells(first, metric));
                }
            }
            html.push_str("</tr>");
        }
    }
    html + CLOSE
}

fn words_of(measurement: &Measurement, varying: &[&str]) -> String {
    let arguments = measurement.arguments.iter().filter(|(name, _)| varying.contains(&name.as_str()));
    let arguments =
        arguments.map(|(name, value)| format!(", {} {}", scale::words(name), scale::argument(name, value)));
    measurement.name.clone() + &arguments.collect::<String>()
}

fn ratio_cells(first: Option<&Metric>, other: Option<&Metric>) -> String {
    let Some((first, other)) = first.zip(other) else { return "<td></td><td></td>".to_owned() };
    let judgement = judge(first, other);
    let ratio = (judgement != Judgement::OtherUnit && first.value != 0.0).then(|| other.value / first.value);
    let ratio = ratio.map_or(String::new(), |ratio| figure(ratio, Unit::Ratio));
    let class = match judgement {
        Judgement::Better => " better",
        Judgement::Worse => " worse",
        Judgement::NoDifference | Judgement::UnknownSpread | Judgement::OtherUnit => "",
    };
    format!("<td class=\"n\">{ratio}</td><td><span class=\"chip{class}\">{}</span></td>", judgement.words())
}

fn latencies(members: &[Member], runs: usize) -> String {
    let varying = varying(members);
    let mut rows = String::new();
    let mut operations = members.iter().flat_map(|member| member.measurement.latency.keys());
    // A single operation is the subject of the section, and needs no name.
    let operation = operations.next();
    let several = operations.any(|other| Some(other) != operation);
    for member in members {
        for (operation, latency) in &member.measurement.latency {
            rows.push_str("<tr>");
            if runs > 1 {
                rows.push_str(&format!("<td><span class=\"run\">{}</span></td>", super::letter(member.run)));
            }
            rows.push_str(&format!(
                "<th scope=\"row\">{}</th>{}{}</tr>",
                escape(&words_of(member.measurement, &varying)),
                if several { format!("<td>{}</td>", escape(operation)) } else { String::new() },
                latency_cells(latency)
            ));
        }
    }
    if rows.is_empty() {
        return rows;
    }
    let run = if runs > 1 { "<th scope=\"col\">run</th>" } else { "" };
    let operation = if several { "<th scope=\"col\">operation</th>" } else { "" };
    let names = ["count", "mean", "fastest", "50 %", "90 %", "99 %", "99.9 %", "99.99 %", "slowest"];
    let names: String =
        names.iter().map(|name| format!("<th scope=\"col\" class=\"n\">{name}</th>")).collect();
    format!("{OPEN}{run}<th scope=\"col\">what</th>{operation}{names}</tr></thead><tbody>{rows}{CLOSE}")
}

fn latency_cells(latency: &Latency) -> String {
    let time = |ns: f64| figure(ns, Unit::Nanoseconds);
    let mut cells =
        vec![figure(latency.count as f64, Unit::Count), time(latency.mean), time(latency.min as f64)];
    for percent in crate::report::latency::PERCENTILES {
        cells.push(latency.percentile(percent).map_or(String::new(), |ns| time(ns as f64)));
    }
    cells.push(time(latency.max as f64));
    cells.iter().map(|cell| format!("<td class=\"n\">{cell}</td>")).collect()
}

/// The price of each figure: a column for each medium.
pub(super) fn prices(bills: &[Bill]) -> String {
    if bills.is_empty() {
        return String::new();
    }
    let mut titles: Vec<&str> = Vec::new();
    for cost in bills.iter().flat_map(|bill| &bill.costs) {
        if !titles.contains(&cost.title.as_str()) {
            titles.push(&cost.title);
        }
    }
    let mut html = "<section id=\"prices\"><h2>Price-performance</h2><p class=\"soft\">The price of a GB per unit of the \
                    named figure, and in brackets that of all devices; for times, price × time. Less is better. The \
                    best measurement of each run counts.</p>"
        .to_owned();
    html.push_str(&format!("{OPEN}<th scope=\"col\">EUR of a GB per</th>"));
    for bill in bills {
        let (name, euro) = (escape(&bill.name), scale::digits(bill.euro));
        html.push_str(&format!("<th scope=\"col\" class=\"n\">{name}, EUR {euro}</th>"));
    }
    html.push_str("</tr></thead><tbody>");
    for title in titles {
        html.push_str(&format!("<tr><th scope=\"row\">{}</th>", escape(title)));
        for bill in bills {
            let cell = bill.costs.iter().find(|cost| cost.title == title).map_or("–".to_owned(), |cost| {
                let (euro, euro_all) = (scale::digits(cost.euro), scale::digits(cost.euro_all));
                format!("{euro} <small>({euro_all}) {}</small>", escape(&cost.found))
            });
            html.push_str(&format!("<td class=\"n\">{cell}</td>"));
        }
        html.push_str("</tr>");
    }
    html + CLOSE + "</section>"
}

pub(super) fn caches(machine: &Machine) -> String {
    let cache = |cache: &crate::report::Cache| {
        let kind =
            if cache.kind == "Unified" { String::new() } else { format!(" {}", cache.kind.to_lowercase()) };
        format!("L{}{kind} {}", cache.level, figure(cache.bytes as f64, Unit::Bytes))
    };
    machine.caches.iter().map(cache).collect::<Vec<_>>().join(", ")
}

pub(super) fn nodes(machine: &Machine) -> String {
    let node = |node: &crate::report::NumaNode| {
        let cores =
            if node.cores.is_empty() { "no cores".to_owned() } else { format!("cores {}", node.cores) };
        format!("{}: {cores}, {}", node.node, figure(node.memory_bytes as f64, Unit::Bytes))
    };
    machine.numa_nodes.iter().map(node).collect::<Vec<_>>().join("; ")
}

/// The word for a direction, for the heads of tables.
fn direction(better: Better) -> &'static str {
    match better {
        Better::Higher => "higher is better",
        Better::Lower => "lower is better",
    }
}
