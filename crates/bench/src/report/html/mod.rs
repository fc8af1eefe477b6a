//! Runs as one HTML file that needs nothing else: no network, no font, no script except a few inline lines for
//! tooltips. It is also well-formed XML, so that its structure can be checked.
//!
//! The order suits a reader in a hurry: warnings, the verdict, one section for each group with plots before tables,
//! then the machine and medium.

mod choose;
mod section;
mod tables;

use crate::report::compare::{self, Judgement};
use crate::report::headline;
use crate::report::plot::{Bar, Bars, escape};
use crate::report::price::Bill;
use crate::report::run::{Run, Verdict};
use crate::report::scale;
use crate::report::text;

/// The page for one run, or for several runs side by side. The others are compared with the first.
pub fn page(runs: &[Run]) -> String {
    page_with_prices(runs, &[])
}

/// The page with the price of each figure.
pub fn page_with_prices(runs: &[Run], bills: &[Bill]) -> String {
    let mut names: Vec<&str> = Vec::new();
    for measurement in runs.iter().flat_map(|run| &run.measurements) {
        if !names.contains(&measurement.group.as_str()) {
            names.push(&measurement.group);
        }
    }
    let title = title(runs);
    let mut main = warnings(runs);
    main.push_str(&verdicts(runs));
    main.push_str(&compared(runs));
    main.push_str(&tables::prices(bills));
    for (index, group) in names.iter().enumerate() {
        main.push_str(&section::section(index, group, runs));
    }
    if names.is_empty() {
        main.push_str("<section><h2>Measurements</h2><p>None: nothing was measured.</p></section>");
    }
    main.push_str(&tables::notes(runs));
    main.push_str(&provenance(runs));
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/>\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; \
         script-src 'unsafe-inline'; img-src data:\"/>\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/><link rel=\"icon\" href=\"data:,\"/>\
         <title>{title}</title>\n<style>\n{style}</style></head>\n<body><a class=\"skip\" href=\"#main\">To the results</a>\n\
         <header><h1>{title}</h1><p>{when}</p><button id=\"theme\" type=\"button\" hidden=\"hidden\">Light or dark</button></header>\n\
         <div class=\"body\"><nav aria-label=\"Contents\"><ol>{contents}</ol></nav>\n<main id=\"main\">{main}</main></div>\n\
         <footer>Medians; lowest to highest sample in small print, and as whiskers in plots. Written by duramen bench.</footer>\n\
         <div id=\"tip\" role=\"presentation\"></div>\n<script>\n{script}</script></body></html>\n",
        title = escape(&title),
        style = include_str!("style.css"),
        script = include_str!("script.js"),
        when = escape(&runs.iter().map(|run| scale::time(run.started)).collect::<Vec<_>>().join("; ")),
        contents = contents(runs, &names, !bills.is_empty()),
    )
}

/// `A`, `B`, ... for the runs of a page; one run needs no letter.
fn letter(index: usize) -> String {
    match u8::try_from(index) {
        Ok(index @ 0..26) => char::from(b'A' + index).to_string(),
        _ => format!("R{index}"),
    }
}

fn title(runs: &[Run]) -> String {
    let mut tools: Vec<&str> =
        runs.iter().map(|run| run.tool.as_str()).filter(|tool| !tool.is_empty()).collect();
    tools.dedup();
    let tools = if tools.is_empty() { "benchmark results".to_owned() } else { tools.join(", ") };
    match runs {
        [run] => {
            let medium = [run.medium.kind.as_str(), run.medium.path.as_str()].join(" ");
            let medium = medium.trim();
            if medium.is_empty() { tools } else { format!("{tools} · {medium}") }
        }
        _ => format!("{tools}: {} runs compared", runs.len()),
    }
}

fn contents(runs: &[Run], groups: &[&str], priced: bool) -> String {
    let mut entries = Vec::new();
    if runs.iter().any(|run| run.verdict.is_some()) || matches!(runs, [run] if headline::of(run).is_some()) {
        entries.push(("verdict".to_owned(), "Verdict".to_owned()));
    }
    if runs.len() > 1 {
        entries.push(("compared".to_owned(), "Comparison".to_owned()));
    }
    if priced {
        entries.push(("prices".to_owned(), "Price-performance".to_owned()));
    }
    entries.extend(groups.iter().enumerate().map(|(index, group)| (section::id(index), scale::words(group))));
    entries.push(("provenance".to_owned(), "Where it was measured".to_owned()));
    entries.iter().map(|(id, name)| format!("<li><a href=\"#{id}\">{}</a></li>", escape(name))).collect()
}

/// What a reader must know before any figure: interruptions and busy machines.
fn warnings(runs: &[Run]) -> String {
    let mut html = String::new();
    for (index, run) in runs.iter().enumerate().filter(|(_, run)| !run.complete) {
        let which =
            if runs.len() > 1 { format!("Run {} is", letter(index)) } else { "This run is".to_owned() };
        html.push_str(&format!(
            "<p class=\"warn\" role=\"alert\"><strong>Incomplete.</strong> {which} not finished: it was interrupted. Its \
             {} measurements are complete; missing ones were not made.</p>",
            run.measurements.len()
        ));
    }
    for (index, run) in runs.iter().enumerate() {
        if let Some(load) = run.machine.busy() {
            let which = if runs.len() > 1 { format!("Run {}", letter(index)) } else { "This run".to_owned() };
            html.push_str(&format!(
                "<p class=\"warn\">{which} began on a busy machine: {} runnable threads on {} cores over the minute before. \
                 Times are upper bounds.</p>",
                scale::digits(load),
                run.machine.cores
            ));
        }
    }
    html
}

fn verdicts(runs: &[Run]) -> String {
    let with: Vec<(usize, &Verdict)> =
        runs.iter().enumerate().filter_map(|(index, run)| Some((index, run.verdict.as_ref()?))).collect();
    let headline = if let [run] = runs { headline::of(run) } else { None };
    if with.is_empty() && headline.is_none() {
        return String::new();
    }
    let mut html = "<section id=\"verdict\"><h2>Verdict</h2>".to_owned();
    if let Some(headline) = headline {
        html.push_str(&format!(
            "<p class=\"summary\">{}</p><div class=\"plots\">",
            escape(&headline.sentence)
        ));
        let names = headline.names.clone();
        let several = names.len() > 1;
        html.push_str(
            &Bars {
                caption: headline.caption.to_owned(),
                title: String::new(),
                unit: headline.unit,
                bars: headline
                    .bars
                    .into_iter()
                    .map(|bar| Bar {
                        name: bar.label,
                        style: bar.of,
                        value: bar.value,
                        low: bar.low,
                        high: bar.high,
                    })
                    .collect(),
                legend: if several { headline.names.into_iter().enumerate().collect() } else { Vec::new() },
                reference: headline.line,
            }
            .html(),
        );
        html.push_str("</div>");
        html.push_str(&circumstances(&runs[0], &names));
    }
    for (index, verdict) in with {
        if runs.len() > 1 {
            html.push_str(&format!("<h3><span class=\"run\">{}</span></h3>", letter(index)));
        }
        html.push_str(&format!("<p class=\"summary\">{}</p>", escape(&verdict.summary)));
        if !verdict.findings.is_empty() {
            html.push_str("<ul class=\"cards\">");
            for finding in &verdict.findings {
                html.push_str(&format!(
                    "<li><span class=\"title\">{}</span><span class=\"value\">{}</span><span class=\"detail\">{}</span></li>",
                    escape(&finding.title),
                    escape(&finding.value),
                    escape(&finding.detail)
                ));
            }
            html.push_str("</ul>");
        }
        if !verdict.settings.is_empty() {
            html.push_str("<h3>Recommended settings</h3><div class=\"wide\" tabindex=\"0\"><table><tbody>");
            for (name, value) in &verdict.settings {
                html.push_str(&format!(
                    "<tr><th scope=\"row\"><code>{}</code></th><td class=\"long\"><code>{}</code></td></tr>",
                    escape(name),
                    escape(value)
                ));
            }
            html.push_str("</tbody></table></div>");
        }
    }
    html + "</section>"
}

/// What a reader of the headline must know: the conditions of all measurements, and the meaning of the names.
fn circumstances(run: &Run, names: &[String]) -> String {
    let all: Vec<_> = run.measurements.iter().collect();
    let mut lines = Vec::from_iter(tables::common(&all));
    lines.extend(run.notes.iter().filter(|note| is_of_a_name(note, names)).map(|note| escape(note)));
    lines.iter().map(|line| format!("<p class=\"soft\">{line}</p>")).collect()
}

/// Whether a note explains one of the names.
fn is_of_a_name(note: &str, names: &[String]) -> bool {
    names.iter().any(|name| note.strip_prefix(name.as_str()).is_some_and(|rest| rest.starts_with(": ")))
}

/// How the other runs compare with the first, in numbers of figures; the figures are in their sections.
fn compared(runs: &[Run]) -> String {
    let [first, others @ ..] = runs else { return String::new() };
    if others.is_empty() {
        return String::new();
    }
    let mut html = "<section id=\"compared\"><h2>Comparison</h2>".to_owned();
    for (index, other) in others.iter().enumerate() {
        let comparison = compare::compare(first, other);
        let (a, b) = (letter(0), letter(index + 1));
        if !comparison.circumstances.is_empty() {
            let sentences: String = comparison
                .circumstances
                .iter()
                .map(|sentence| format!("<li>{}</li>", escape(sentence)))
                .collect();
            html.push_str(&format!(
                "<div class=\"warn\" role=\"note\"><strong>{a} and {b} were not measured alike.</strong><ul>{sentences}</ul></div>"
            ));
        }
        let count = |judgement| comparison.rows.iter().filter(|row| row.judgement == judgement).count();
        html.push_str(&format!(
            "<p><span class=\"run\">{b}</span> against <span class=\"run\">{a}</span>: \
             <span class=\"chip better\">{} better</span> <span class=\"chip worse\">{} worse</span> \
             <span class=\"chip\">{} no difference beyond the spread</span> <span class=\"chip\">{} measured once, spread \
             unknown</span></p>",
            count(Judgement::Better),
            count(Judgement::Worse),
            count(Judgement::NoDifference),
            count(Judgement::UnknownSpread)
        ));
        for (which, points) in [(&a, &comparison.only_first), (&b, &comparison.only_second)] {
            if !points.is_empty() {
                let list: String = points.iter().map(|point| format!("<li>{}</li>", escape(point))).collect();
                html.push_str(&format!(
                    "<details><summary>{} measurements only in {which}</summary><ul>{list}</ul></details>",
                    points.len()
                ));
            }
        }
        if comparison.rows.is_empty() {
            html.push_str("<p>No measurement in common: group, name and arguments must agree.</p>");
        }
    }
    html + "</section>"
}

/// Machine, medium, command: a column for each run.
fn provenance(runs: &[Run]) -> String {
    let mut html =
        "<section id=\"provenance\"><h2>Where it was measured</h2><div class=\"wide\" tabindex=\"0\"><table>"
            .to_owned();
    if runs.len() > 1 {
        html.push_str("<thead><tr><th></th>");
        for index in 0..runs.len() {
            html.push_str(&format!("<th scope=\"col\"><span class=\"run\">{}</span></th>", letter(index)));
        }
        html.push_str("</tr></thead>");
    }
    html.push_str("<tbody>");
    let mut row = |name: &str, cell: &dyn Fn(&Run) -> String| {
        let cells: Vec<String> = runs.iter().map(cell).collect();
        if cells.iter().any(|cell| !cell.is_empty()) {
            html.push_str(&format!("<tr><th scope=\"row\">{name}</th>"));
            for cell in &cells {
                html.push_str(&format!("<td class=\"long\">{cell}</td>"));
            }
            html.push_str("</tr>");
        }
    };
    row("tool", &|run| escape(format!("{} {}", run.tool, run.version).trim()));
    row("began", &|run| scale::time(run.started));
    row("took", &|run| {
        if run.elapsed_s > 0.0 {
            crate::report::figure(run.elapsed_s, crate::report::Unit::Seconds)
        } else {
            String::new()
        }
    });
    row("command", &|run| format!("<code>{}</code>", escape(&run.command.join(" "))));
    row("medium", &|run| escape(&text::medium_line(&run.medium)));
    row("machine", &|run| escape(&text::machine_line(run)));
    row("features", &|run| escape(&run.machine.features.join(" ")));
    row("caches", &|run| escape(&tables::caches(&run.machine)));
    row("NUMA nodes", &|run| escape(&tables::nodes(&run.machine)));
    row("huge pages", &|run| {
        let machine = &run.machine;
        let told = [("memory", &machine.huge_pages), ("shared memory", &machine.huge_pages_shm)];
        let told =
            told.iter().filter(|(_, word)| !word.is_empty()).map(|(what, word)| format!("{what}: {word}"));
        escape(&told.collect::<Vec<_>>().join(", "))
    });
    row("governor", &|run| escape(run.machine.governor.as_deref().unwrap_or("unknown")));
    row("load before", &|run| run.machine.load.map_or(String::new(), |load| format!("{load:.2}")));
    // The verdict already has the notes on these names.
    let names = if let [run] = runs { headline::of(run).map(|headline| headline.names) } else { None };
    let names = names.unwrap_or_default();
    row("notes", &|run| {
        let notes = run.notes.iter().filter(|note| !is_of_a_name(note, &names));
        let notes: String = notes.map(|note| format!("<li>{}</li>", escape(note))).collect();
        if notes.is_empty() { notes } else { format!("<ul>{notes}</ul>") }
    });
    html + "</tbody></table></div></section>"
}
