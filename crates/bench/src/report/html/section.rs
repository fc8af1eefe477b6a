//! One group of measurements: its plots, then its table.

use super::choose::{Member, Shape, by, distinct};
use super::tables;
use crate::report::Unit;
use crate::report::latency::Latency;
use crate::report::plot::{Axis, Bar, Bars, Heat, Line, Lines, Point, Stack, escape, stacks};
use crate::report::run::{Metric, Run};
use crate::report::scale::{self, figure};

// If there are more lines than distinguishable colours and markers, they are split over several plots.
const LINES_MAX: usize = 8;
// A reader does not read more maps than this; the table has all figures.
const MAPS_MAX: usize = 12;

const SHARE_MIN: f64 = 0.05;

/// The id of a section in the page.
pub(super) fn id(index: usize) -> String {
    format!("group-{index}")
}

pub(super) fn section(index: usize, group: &str, runs: &[Run]) -> String {
    let members: Vec<Member> = runs
        .iter()
        .enumerate()
        .flat_map(|(run, of)| of.measurements.iter().map(move |measurement| Member { run, measurement }))
        .filter(|member| member.measurement.group == group)
        .collect();
    let mut html = format!("<section id=\"{}\"><h2>{}</h2>", id(index), escape(&scale::words(group)));
    html.push_str("<div class=\"plots\">");
    // Measurements with another first figure get a separate plot.
    let first =
        |member: Member| member.measurement.metrics.first().map(|(name, metric)| (name.clone(), metric.unit));
    for (metric, members) in by(&members, first) {
        if let Some((metric, _)) = metric {
            html.push_str(&metric_plots(&metric, &members, runs.len()));
        }
    }
    html.push_str(&latency_plots(&members, runs.len()));
    html.push_str(&series_plots(&members, runs.len()));
    html.push_str(&breakdown(&members, runs.len()));
    html.push_str(&bounds(&members, runs.len()));
    html.push_str("</div>");
    html.push_str(&tables::group(&members, runs));
    html + "</section>"
}

fn metric_plots(metric: &str, members: &[Member], runs: usize) -> String {
    let shape = Shape::of(members, runs);
    match shape.numeric.as_slice() {
        [] => bars(metric, members, &shape),
        [x] => lines(metric, members, &shape, x, ""),
        [x, y, ..] => {
            let maps = heat_maps(metric, members, &shape, x, y);
            // Lines in addition to the maps, if they stay readable.
            let few = distinct(members, y).len() <= LINES_MAX
                && by(members, |m| shape.label(m, &[x, y])).len() == 1;
            if few { lines(metric, members, &shape, x, "") + &maps } else { maps }
        }
    }
}

fn caption(metric: &str, of: &str) -> String {
    let metric = scale::words(metric);
    if of.is_empty() { metric } else { format!("{metric}: {of}") }
}

fn lines(metric: &str, members: &[Member], shape: &Shape, x: &str, of: &str) -> String {
    let label = |member: Member| shape.label(member, &[x]);
    let all = by(members, label);
    let first_unit =
        members.iter().find_map(|m| m.measurement.metrics.get(metric)).map_or(Unit::Count, |m| m.unit);
    let mut html = String::new();
    for chunk in all.chunks(LINES_MAX) {
        let figures = chunk.iter().flat_map(|(_, of)| of).filter_map(|m| m.measurement.metrics.get(metric));
        let y = Axis::of_figures(
            &scale::words(metric),
            first_unit,
            figures.flat_map(|m| [m.value, m.min, m.max]),
        );
        let lines = chunk.iter().enumerate().map(|(style, (name, members))| {
            let mut points: Vec<Point> =
                members.iter().filter_map(|member| point(*member, metric, x, name)).collect();
            points.sort_by(|a, b| a.x.total_cmp(&b.x));
            Line { name: name.clone(), style, points }
        });
        let places =
            Axis::of_points(&scale::words(x), &distinct(members, x), |value| scale::coordinate(x, value));
        let plot = Lines { caption: caption(metric, of), x: places, y, lines: lines.collect(), marked: true };
        html.push_str(&plot.html());
    }
    html
}

fn point(member: Member, metric: &str, x: &str, name: &str) -> Option<Point> {
    let argument = member.measurement.arguments.get(x)?;
    let found = member.measurement.metrics.get(metric)?;
    let tip = format!("{name}\n{} {}: {}", scale::words(x), scale::argument(x, argument), with_spread(found));
    Some(Point { x: argument.number()?, y: found.value, low: found.min, high: found.max, tip })
}

fn with_spread(metric: &Metric) -> String {
    let value = figure(metric.value, metric.unit);
    if metric.min < metric.max {
        format!("{value} ({} to {})", figure(metric.min, metric.unit), figure(metric.max, metric.unit))
    } else {
        value
    }
}

fn heat_maps(metric: &str, members: &[Member], shape: &Shape, x: &str, y: &str) -> String {
    let found = || members.iter().filter_map(|m| m.measurement.metrics.get(metric));
    let Some(first) = found().next() else { return String::new() };
    let finite = found().map(|metric| metric.value).filter(|value| value.is_finite());
    let extent = finite
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)));
    let (columns, rows) = (distinct(members, x), distinct(members, y));
    let names = |argument: &str, values: &[f64]| -> Vec<String> {
        values.iter().map(|value| scale::coordinate(argument, *value)).collect()
    };
    let place = |values: &[f64], member: Member, argument: &str| {
        let number = member.measurement.arguments.get(argument)?.number()?;
        values.iter().position(|value| value.total_cmp(&number).is_eq())
    };
    let mut html = String::new();
    let all = by(members, |member| shape.label(member, &[x, y]));
    // A single map needs no caption beyond the section's.
    let alone = all.len() == 1;
    for (label, members) in all.into_iter().take(MAPS_MAX) {
        let cell = |member: &Member| {
            let value = member.measurement.metrics.get(metric)?.value;
            // The highest number at the top, as on an axis.
            let row = rows.len() - 1 - place(&rows, *member, y)?;
            Some((row, place(&columns, *member, x)?, value))
        };
        let mut y_names = names(y, &rows);
        y_names.reverse();
        let map = Heat {
            caption: caption(metric, if alone { "" } else { &label }),
            x_title: scale::words(x),
            y_title: scale::words(y),
            x: names(x, &columns),
            y: y_names,
            cells: members.iter().filter_map(cell).collect(),
            unit: first.unit,
            better: first.better,
            extent,
        };
        html.push_str(&map.html());
    }
    html
}

fn bars(metric: &str, members: &[Member], shape: &Shape) -> String {
    // One bar alone says less than the table.
    if members.len() < 2 {
        return String::new();
    }
    let unit = members.iter().find_map(|m| m.measurement.metrics.get(metric)).map_or(Unit::Count, |m| m.unit);
    let mut bars = Vec::new();
    for (name, of) in by(members, |member| shape.point(member, &[])) {
        for (index, member) in of.iter().enumerate() {
            let Some(found) = member.measurement.metrics.get(metric) else { continue };
            let name = if name.is_empty() { member.measurement.name.clone() } else { name.clone() };
            let name = if index == 0 { name } else { String::new() };
            bars.push(Bar { name, style: member.run, value: found.value, low: found.min, high: found.max });
        }
    }
    Bars {
        caption: caption(metric, ""),
        title: scale::words(metric),
        unit,
        bars,
        legend: run_legend(members, shape),
        reference: None,
    }
    .html()
}

fn run_legend(members: &[Member], shape: &Shape) -> Vec<(usize, String)> {
    if !shape.runs {
        return Vec::new();
    }
    by(members, |member| member.run).into_iter().map(|(run, _)| (run, super::letter(run))).collect()
}

fn latency_plots(members: &[Member], runs: usize) -> String {
    let with: Vec<Member> = members.iter().copied().filter(|m| !m.measurement.latency.is_empty()).collect();
    let shape = Shape::of(&with, runs);
    let mut curves: Vec<(String, &Latency)> = Vec::new();
    for member in &with {
        for (operation, latency) in &member.measurement.latency {
            let label = shape.label(*member, &[]);
            let alone = member.measurement.latency.len() == 1 || label == *operation;
            let name = if alone { label } else { format!("{label}: {operation}") };
            curves.push((name, latency));
        }
    }
    let mut html = String::new();
    for chunk in curves.chunks(LINES_MAX) {
        let lines: Vec<Line> = chunk
            .iter()
            .enumerate()
            .filter_map(|(style, (name, latency))| {
                Some(Line { name: name.clone(), style, points: curve(name, latency)? })
            })
            .collect();
        let nines = lines.iter().flat_map(|line| &line.points).map(|point| point.x).fold(2.0, f64::max).ceil()
            as usize;
        let extent = lines.iter().flat_map(|line| &line.points).map(|point| point.y).filter(|ns| *ns > 0.0);
        let (low, high) =
            extent.fold((f64::INFINITY, 1.0), |(low, high), ns| (f64::min(low, ns), f64::max(high, ns)));
        if low.is_finite() {
            let name = |ns: f64| figure(ns, Unit::Nanoseconds);
            let y = Axis::logarithmic("latency, log".to_owned(), low, high, name);
            let x = Axis::of_percentiles(nines);
            html.push_str(
                &Lines { caption: "latency by percentile".to_owned(), x, y, lines, marked: false }.html(),
            );
        }
    }
    html
}

/// Points of a percentile curve, from the fastest to the slowest operation.
fn curve(name: &str, latency: &Latency) -> Option<Vec<Point>> {
    let histogram = latency.to_histogram().ok()?;
    // The slowest of n operations is placed at 1 in n.
    let end = (histogram.len() as f64).log10().max(1.0);
    let mut points = Vec::new();
    for step in histogram.iter_quantiles(5) {
        let share = step.quantile_iterated_to();
        // The few fastest would stretch the axis downwards; the table has the very fastest.
        if share < SHARE_MIN {
            continue;
        }
        let x = if share < 1.0 { (-(1.0 - share).log10()).min(end) } else { end };
        let ns = step.value_iterated_to().min(histogram.max());
        let what = if x >= end { "slowest".to_owned() } else { format!("{} %", trimmed(share * 100.0)) };
        let tip = format!("{name}\n{what}: {}", figure(ns as f64, Unit::Nanoseconds));
        points.push(Point { x, y: ns as f64, low: 0.0, high: 0.0, tip });
        if x >= end {
            break;
        }
    }
    Some(points)
}

/// A percentile with its nines and no trailing zeros.
fn trimmed(percent: f64) -> String {
    let text = format!("{percent:.5}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn series_plots(members: &[Member], runs: usize) -> String {
    let shape = Shape::of(members, runs);
    let all: Vec<(String, &crate::report::Series)> = members
        .iter()
        .flat_map(|member| member.measurement.series.iter().map(|series| (shape.label(*member, &[]), series)))
        .collect();
    let mut html = String::new();
    let mut kinds: Vec<(&str, &str)> = Vec::new();
    for (_, series) in &all {
        if !kinds.contains(&(series.name.as_str(), series.x_name.as_str())) {
            kinds.push((&series.name, &series.x_name));
        }
    }
    for (name, x_name) in kinds {
        let of: Vec<_> =
            all.iter().filter(|(_, s)| (s.name.as_str(), s.x_name.as_str()) == (name, x_name)).collect();
        for chunk in of.chunks(LINES_MAX) {
            let points = || chunk.iter().flat_map(|(_, series)| &series.points);
            let Some((_, first)) = chunk.first() else { continue };
            // From 0, so that the axis is linear, as time and growth are.
            let x =
                Axis::of_figures(&scale::words(x_name), first.x_unit, points().map(|(x, _)| *x).chain([0.0]));
            let y = Axis::of_figures(&scale::words(name), first.y_unit, points().map(|(_, y)| *y));
            let line = |(style, (label, series)): (usize, &&(String, &crate::report::Series))| Line {
                name: label.clone(),
                style,
                points: series
                    .points
                    .iter()
                    .map(|(x, y)| Point {
                        x: *x,
                        y: *y,
                        low: 0.0,
                        high: 0.0,
                        tip: format!("{label}\n{}: {}", figure(*x, series.x_unit), figure(*y, series.y_unit)),
                    })
                    .collect(),
            };
            let lines = chunk.iter().enumerate().map(line).collect();
            html.push_str(&Lines { caption: scale::words(name), x, y, lines, marked: false }.html());
        }
    }
    html
}

fn breakdown(members: &[Member], runs: usize) -> String {
    let with: Vec<Member> = members.iter().copied().filter(|m| !m.measurement.breakdown.is_empty()).collect();
    let shape = Shape::of(&with, runs);
    let parts = |member: &Member| Stack {
        name: shape.label(*member, &[]),
        parts: member.measurement.breakdown.iter().map(|part| (part.name.clone(), part.ns)).collect(),
    };
    stacks("parts of an operation", &with.iter().map(parts).collect::<Vec<_>>())
}

fn bounds(members: &[Member], runs: usize) -> String {
    let with: Vec<Member> = members.iter().copied().filter(|m| m.measurement.bound.is_some()).collect();
    let shape = Shape::of(&with, runs);
    let bar = |member: &Member| {
        let ratio = member.measurement.bound.as_ref()?.ratio;
        Some(Bar {
            name: shape.label(*member, &[]),
            style: member.run,
            value: ratio,
            low: ratio,
            high: ratio,
        })
    };
    Bars {
        caption: "measured time / time of the bare memory accesses".to_owned(),
        title: "times the bound".to_owned(),
        unit: Unit::Ratio,
        bars: with.iter().filter_map(bar).collect(),
        legend: Vec::new(),
        reference: Some((1.0, "the bound: the same memory accesses alone")),
    }
    .html()
}
