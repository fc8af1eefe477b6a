//! The page is sound whatever a run contains: hostile names, nothing, one point, zeros, several runs.
use crate::support::full_run;
use duramen_bench::report::{Argument, Better, Measurement, Metric, Run, Unit, html, text};

fn page(runs: &[Run]) -> String {
    let page = html::page(runs);
    assert_well_formed(&page);
    for bad in ["NaN", "inf\"", "http://", "https://", "<link rel=\"stylesheet", " src="] {
        assert!(!page.contains(bad), "the page holds {bad:?}");
    }
    page
}

fn one(value: f64) -> Run {
    let mut measurement = Measurement::new("read", "sequential").with("access_size", 64_u64);
    measurement.metrics.insert("bandwidth".into(), Metric::once(value, Unit::BytesPerSecond, Better::Higher));
    Run { measurements: vec![measurement], complete: true, ..Run::default() }
}

#[test]
fn a_full_run_shows_every_kind_of_plot_with_axes_and_legend() {
    let page = page(&[full_run(1.0)]);
    for part in [
        "id=\"verdict\"",
        "heat map of access size by threads",
        "bandwidth (GB/s)",
        "latency by percentile",
        "parts of an operation",
        "times the bound",
        "class=\"legend\"",
        ">99.99</text>",
        "4 KiB",
        "recommended settings",
    ] {
        assert!(page.to_lowercase().contains(&part.to_lowercase()), "no {part}");
    }
    assert!(
        page.matches("<svg class=\"plot\"").count() >= 7,
        "{}",
        page.matches("<svg class=\"plot\"").count()
    );
    assert!(!page.contains("Incomplete."));
}

#[test]
fn the_structure_of_the_page_matches_the_recorded_one() {
    // The outline: ids, headings, captions and heads of tables, in order.
    let page = page(&[full_run(1.0)]);
    let mut outline = String::new();
    for part in page.split('<') {
        for (tag, mark) in [
            ("h1>", "# "),
            ("h2>", "## "),
            ("h3>", "### "),
            ("figcaption>", "plot: "),
            ("summary>", "table: "),
        ] {
            if let Some(text) = part.strip_prefix(tag) {
                outline.push_str(&format!("{mark}{text}\n"));
            }
        }
    }
    let golden = include_str!("outline.txt");
    assert_eq!(outline, golden, "if the change is meant, put this into tests/all/outline.txt:\n{outline}");
}

#[test]
fn names_with_markup_are_escaped() {
    let evil = "</style><script>alert('x')</script>\"onload=\"&\u{0}\u{1b}";
    let mut run = full_run(1.0);
    run.tool = evil.into();
    run.command = vec![evil.into()];
    run.notes = vec![evil.into()];
    run.medium.path = evil.into();
    run.machine.cpu = evil.into();
    let verdict = run.verdict.as_mut().unwrap();
    verdict.summary = evil.into();
    verdict.settings.insert(evil.into(), evil.into());
    for measurement in &mut run.measurements {
        measurement.group.push_str(evil);
        measurement.name.push_str(evil);
        measurement.notes.push(evil.into());
        measurement.arguments.insert(evil.into(), Argument::Text(evil.into()));
        let metrics: Vec<_> = measurement.metrics.drain(..).collect();
        measurement.metrics.extend(metrics.into_iter().map(|(name, metric)| (name + evil, metric)));
        let latency: Vec<_> = measurement.latency.drain(..).collect();
        measurement.latency.extend(latency.into_iter().map(|(name, latency)| (name + evil, latency)));
        measurement.breakdown.iter_mut().for_each(|part| part.name.push_str(evil));
        measurement.series.iter_mut().for_each(|series| series.name.push_str(evil));
        measurement.bound.iter_mut().for_each(|bound| bound.name.push_str(evil));
    }
    for runs in [vec![run.clone()], vec![run.clone(), run.clone()]] {
        let page = page(&runs);
        assert_eq!(page.matches("<script>").count(), 1, "only our own");
        assert_eq!(page.matches("</style>").count(), 1, "only our own");
        assert!(!page.contains("\"onload=\"") && !page.contains('\u{0}') && !page.contains('\u{1b}'));
        assert!(page.contains("&lt;script&gt;alert(&#39;x&#39;)"));
    }
    let text = text::run(&run);
    assert!(!text.contains('\u{1b}'), "a name must not reach the terminal as a command");
}

#[test]
fn no_run_an_empty_run_and_an_interrupted_run_make_pages() {
    assert!(page(&[]).contains("nothing was measured"));
    let incomplete = page(&[Run::default()]);
    assert!(
        incomplete.contains("<strong>Incomplete.</strong>") && incomplete.contains("nothing was measured")
    );
    let bare = Run { measurements: vec![Measurement::new("g", "n")], complete: true, ..Run::default() };
    assert!(!page(&[bare]).contains("Incomplete."));
}

#[test]
fn one_point_zeros_and_huge_values_are_shown() {
    for value in [0.0, 1.0, f64::MIN_POSITIVE, 1e300, -5.0] {
        page(&[one(value)]);
        page(&[one(value), one(0.0)]);
    }
    let mut two = one(0.0);
    let mut second = two.measurements[0].clone();
    second.arguments.insert("access_size".into(), Argument::Integer(0));
    two.measurements.push(second);
    assert!(page(&[two]).contains("<svg class=\"plot\""));
}

#[test]
fn a_run_with_broken_invariants_makes_a_valid_page() {
    for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let mut run = full_run(1.0);
        for measurement in &mut run.measurements {
            for metric in measurement.metrics.values_mut() {
                (metric.value, metric.min, metric.max) = (value, value, value);
            }
            measurement.series.iter_mut().for_each(|s| s.points[0] = (value, value));
            measurement.breakdown.iter_mut().for_each(|part| part.ns = value);
            measurement.bound.iter_mut().for_each(|bound| bound.ratio = value);
            measurement.latency.values_mut().for_each(|latency| latency.histogram = "broken".into());
        }
        page(&[run.clone()]);
        page(&[run, full_run(1.0)]);
    }
}

#[test]
fn several_runs_are_shown_side_by_side_with_ratios_and_differences() {
    let mut other = full_run(2.0);
    other.machine.cpu = "Another CPU".into();
    other.measurements.pop();
    let page = page(&[full_run(1.0), other]);
    for part in [
        "id=\"compared\"",
        "A and B were not measured alike.",
        "the CPU differs: ",
        "class=\"chip better\">better",
        "B / A",
        "1 measurements only in A",
        "2 runs compared",
    ] {
        assert!(page.contains(part), "no {part}");
    }
}

/// Every element is closed in order, every attribute is quoted and unique, every `&` is a reference.
fn assert_well_formed(page: &str) {
    let body = page.strip_prefix("<!doctype html>\n").unwrap();
    let mut open: Vec<&str> = Vec::new();
    let mut rest = body;
    while let Some(start) = rest.find('<') {
        assert_text(&rest[..start], open.last().copied());
        let end =
            start + rest[start..].find('>').unwrap_or_else(|| panic!("unclosed tag: {:.60}", &rest[start..]));
        let tag = &rest[start + 1..end];
        rest = &rest[end + 1..];
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name), "closing tag, open were {open:?}");
            continue;
        }
        let name = tag.split([' ', '/']).next().unwrap();
        assert!(!name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric()), "tag {tag:?}");
        assert_attributes(tag[name.len()..].trim_end_matches('/'));
        if !tag.ends_with('/') {
            open.push(name);
        }
        if name == "script" || name == "style" {
            // Raw text: it ends at its own closing tag, whatever it contains.
            rest = &rest[rest.find(&format!("</{name}>")).unwrap()..];
        }
    }
    assert!(open.is_empty(), "never closed: {open:?}");
    assert_eq!(rest.trim(), "");
}

fn assert_attributes(mut text: &str) {
    let mut seen = Vec::new();
    while !text.trim().is_empty() {
        let (name, rest) =
            text.split_once("=\"").unwrap_or_else(|| panic!("attribute without value: {text:?}"));
        let (value, rest) = rest.split_once('"').unwrap_or_else(|| panic!("value without end: {text:?}"));
        let name = name.trim();
        assert!(name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-'), "attribute {name:?}");
        assert!(!seen.contains(&name), "{name} twice");
        assert!(rest.is_empty() || rest.starts_with(' '), "after {name}: {rest:.40}");
        seen.push(name);
        assert_text(value, Some("an attribute"));
        text = rest;
    }
}

fn assert_text(text: &str, within: Option<&str>) {
    for (at, _) in text.match_indices('&') {
        let known = ["&amp;", "&lt;", "&gt;", "&quot;", "&#39;"];
        assert!(
            known.iter().any(|known| text[at..].starts_with(known)),
            "bare & in {within:?}: {:.40}",
            &text[at..]
        );
    }
    assert!(
        !text.chars().any(|c| c.is_control() && c != '\n' && c != '\t'),
        "control character in {within:?}"
    );
}
