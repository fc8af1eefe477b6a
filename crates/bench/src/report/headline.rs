//! The conclusion of a run, for a reader who knows none of its terms: a sentence, and the bars for it.
//!
//! Throughput is shown by group (a workload, a command): the best point of each name. If several names were measured
//! (servers, engines), the first is compared with each other one, point by point. It is ahead only if the spread
//! confirms it. Targets are shown by how nearly they were reached. Other runs have no headline: their tool draws its
//! own conclusion.

use crate::report::judgement::{Judgement, judge};
use crate::report::run::{Measurement, Run};
use crate::report::scale::{Scale, digits};
use crate::report::{Better, Unit};

/// The conclusion of a run.
pub(crate) struct Headline {
    /// One to three sentences.
    pub(crate) sentence: String,
    /// The quantity that the bars show.
    pub(crate) caption: &'static str,
    pub(crate) unit: Unit,
    pub(crate) bars: Vec<Length>,
    /// The names for which the colours stand; a single one needs no name.
    pub(crate) names: Vec<String>,
    /// A line across the bars, and its meaning.
    pub(crate) line: Option<(f64, &'static str)>,
}

/// One bar.
pub(crate) struct Length {
    pub(crate) label: String,
    /// The index of its name.
    pub(crate) of: usize,
    pub(crate) value: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

/// A reader does not read more bars than this; the sections have them all.
const BARS_MAX: usize = 40;
const THROUGHPUT: &str = "throughput";

/// The conclusion of `run`, if it can be stated without the run's terms.
pub(crate) fn of(run: &Run) -> Option<Headline> {
    throughput(run).or_else(|| targets(run))
}

fn rate(measurement: &Measurement) -> Option<&crate::report::Metric> {
    measurement.metrics.get(THROUGHPUT).filter(|metric| metric.unit == Unit::OperationsPerSecond)
}

fn throughput(run: &Run) -> Option<Headline> {
    let rated: Vec<&Measurement> = run.measurements.iter().filter(|m| rate(m).is_some()).collect();
    let mut names: Vec<String> = Vec::new();
    let mut groups: Vec<&str> = Vec::new();
    for measurement in &rated {
        if !names.contains(&measurement.name) {
            names.push(measurement.name.clone());
        }
        if !groups.contains(&measurement.group.as_str()) {
            groups.push(&measurement.group);
        }
    }
    let first = names.first()?;
    let best = |group: &str, name: &str| {
        rated
            .iter()
            .filter(|m| m.group == group && m.name == name)
            .filter_map(|m| rate(m))
            .max_by(|a, b| a.value.total_cmp(&b.value))
    };
    let mut bars = Vec::new();
    for group in &groups {
        // A group is named once, above the bars of its names.
        let mut label = (*group).to_owned();
        for (of, name) in names.iter().enumerate() {
            if let Some(metric) = best(group, name) {
                let label = std::mem::take(&mut label);
                bars.push(Length { label, of, value: metric.value, low: metric.min, high: metric.max });
            }
        }
    }
    bars.truncate(BARS_MAX);
    let mut sentences = Vec::new();
    for other in &names[1..] {
        let mut points = ratios(run, &rated, first, other);
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        if let ([(low, _), ..], [.., (high, _)]) = (points.as_slice(), points.as_slice()) {
            let middle = (points[(points.len() - 1) / 2].0 + points[points.len() / 2].0) / 2.0;
            let times =
                format!("{first} does {} times as many operations a second as {other}", digits(middle));
            sentences.push(match points.as_slice() {
                [(_, judgement)] => format!("{times}{}.", alone(*judgement)),
                points => format!(
                    "{times} (the median of {} points, which lie between {} and {}){}.",
                    points.len(),
                    digits(*low),
                    digits(*high),
                    counted(points)
                ),
            });
        }
    }
    let largest = bars.iter().filter(|bar| bar.of == 0).map(|bar| bar.value).fold(0.0, f64::max);
    let (factor, word) = match largest {
        largest if largest >= 1e6 => (1e6, " million"),
        largest if largest >= 1e3 => (1e3, " thousand"),
        _ => (1.0, ""),
    };
    let told: Vec<String> = groups
        .iter()
        .filter_map(|group| Some(format!("{group} {}", digits(best(group, first)?.value / factor))))
        .collect();
    let points = if rated.len() > groups.len() * names.len() { ", each at its best point" } else { "" };
    sentences.push(format!("{first}, in{word} operations a second{points}: {}.", told.join(", ")));
    Some(Headline {
        sentence: sentences.join(" "),
        caption: "operations a second; longer is better",
        unit: Unit::OperationsPerSecond,
        bars,
        names,
        line: None,
    })
}

/// The judgement of one point, in words.
fn alone(judgement: Judgement) -> &'static str {
    match judgement {
        Judgement::Better | Judgement::Worse => "",
        Judgement::UnknownSpread => " (measured once, spread unknown)",
        Judgement::NoDifference | Judgement::OtherUnit => ", which is no difference beyond the spread",
    }
}

/// The number of points at which the first is ahead or behind beyond the spread.
fn counted(points: &[(f64, Judgement)]) -> String {
    let count = |wanted: Judgement| points.iter().filter(|(_, judgement)| *judgement == wanted).count();
    if count(Judgement::UnknownSpread) == points.len() {
        return "; each was measured once, so the spread is unknown".to_owned();
    }
    let (ahead, behind) = (count(Judgement::Better), count(Judgement::Worse));
    format!("; beyond the spread it is faster at {ahead} of them and slower at {behind}")
}

/// How many operations a second `first` does for each of `other`, point by point, with the judgement. Ratios measured
/// in pairs come first, because they exclude changes between two turns. Without them, the figures of both are used.
fn ratios(run: &Run, rated: &[&Measurement], first: &str, other: &str) -> Vec<(f64, Judgement)> {
    let pair = format!("{first} / {other}");
    let throughput = |m: &Measurement| m.metrics.get(THROUGHPUT).cloned();
    let paired = run.measurements.iter().filter(|m| m.name == pair).filter_map(throughput);
    // In pairs, the first is ahead if it was ahead in each round.
    let paired = paired.filter(|ratio| ratio.value.is_finite()).map(|ratio| {
        let judgement = match () {
            () if ratio.samples.len() < 2 && ratio.min >= ratio.max => Judgement::UnknownSpread,
            () if ratio.min > 1.0 => Judgement::Better,
            () if ratio.max < 1.0 => Judgement::Worse,
            () => Judgement::NoDifference,
        };
        (ratio.value, judgement)
    });
    let paired: Vec<(f64, Judgement)> = paired.collect();
    if !paired.is_empty() {
        return paired;
    }
    let of_both = rated.iter().filter(|m| m.name == first).filter_map(|ours| {
        let same =
            |m: &&&Measurement| m.name == other && m.group == ours.group && m.arguments == ours.arguments;
        let (ours, theirs) = (throughput(ours)?, throughput(rated.iter().find(same)?)?);
        Some((ours.value / theirs.value, judge(&theirs, &ours)))
    });
    of_both.filter(|(ratio, _)| ratio.is_finite()).collect()
}

/// How near each target is: the found figure over the wanted one, or the inverse if more is better.
fn targets(run: &Run) -> Option<Headline> {
    let mut bars = Vec::new();
    for measurement in &run.measurements {
        let Some(target) = measurement.metrics.get("target").filter(|target| target.value > 0.0) else {
            continue;
        };
        // The figure in units of the machine if the target is in such units; otherwise the first figure.
        let judged = measurement.metrics.iter().find(|(name, _)| name.starts_with("in "));
        let judged = judged.or_else(|| measurement.metrics.iter().find(|(name, _)| *name != "target"));
        let Some((_, judged)) = judged.filter(|(_, judged)| judged.unit == target.unit) else { continue };
        let over = |value: f64| match target.better {
            Better::Lower => value / target.value,
            Better::Higher => target.value / value,
        };
        let (a, b) = (over(judged.min), over(judged.max));
        let value = over(judged.value);
        if [value, a, b].iter().all(|length| length.is_finite()) && value >= 0.0 {
            let label = measurement.name.clone();
            bars.push(Length { label, of: 0, value, low: a.min(b), high: a.max(b) });
        }
    }
    let (count, reached) = (bars.len(), bars.iter().filter(|bar| bar.value <= 1.0).count());
    let farthest = bars.iter().max_by(|a, b| a.value.total_cmp(&b.value))?;
    let sentence = if farthest.value > 1.0 {
        format!(
            "{reached} of {count} targets are reached; the farthest is {}, which takes {} times its target.",
            farthest.label,
            digits(farthest.value)
        )
    } else {
        format!("All {count} targets are reached.")
    };
    Some(Headline {
        sentence,
        caption: "found, as a multiple of the target; up to the line is reached",
        unit: Unit::Ratio,
        bars,
        names: vec!["found".to_owned()],
        line: Some((1.0, "the target")),
    })
}

/// Lines of text that show the bars in a terminal.
pub(crate) fn lines(headline: &Headline) -> String {
    const WIDE: f64 = 50.0;
    let reach = headline.bars.iter().map(|bar| bar.value).fold(0.0, f64::max);
    if reach <= 0.0 {
        return String::new();
    }
    let scale = Scale::of(reach, headline.unit);
    let several = headline.names.len() > 1;
    let label = |bar: &Length| {
        let name = if several { headline.names[bar.of].as_str() } else { "" };
        [bar.label.as_str(), name]
            .iter()
            .filter(|part| !part.is_empty())
            .copied()
            .collect::<Vec<_>>()
            .join(" ")
    };
    let labels: Vec<String> = headline.bars.iter().map(label).collect();
    let width = labels.iter().map(|label| label.chars().count()).max().unwrap_or(0).min(44);
    let mut text = format!("{}\n", headline.caption);
    for (bar, label) in headline.bars.iter().zip(labels) {
        let label: String = label.chars().take(width).collect();
        let length = (bar.value / reach * WIDE).round() as usize;
        let align =
            if bar.label.is_empty() { format!("{label:>width$}") } else { format!("{label:<width$}") };
        text.push_str(&format!("{align}  {} {}\n", "█".repeat(length.max(1)), scale.with_unit(bar.value)));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Metric;

    fn point(group: &str, name: &str, pipeline: u64, rate: f64) -> Measurement {
        let mut point = Measurement::new(group, name).with("pipeline", pipeline);
        let samples = [rate * 0.99, rate, rate * 1.01];
        let metric = Metric::from_samples(&samples, Unit::OperationsPerSecond, Better::Higher).unwrap();
        point.metrics.insert("throughput".into(), metric);
        point
    }

    #[test]
    fn servers_are_compared_point_by_point() {
        let measurements = vec![
            point("SET", "duramen", 1, 1e5),
            point("SET", "redis", 1, 1e5),
            point("SET", "duramen", 16, 9e5),
            point("SET", "redis", 16, 4.5e5),
            point("GET", "duramen", 16, 12e5),
            point("GET", "redis", 16, 4e5),
        ];
        let headline = of(&Run { measurements, ..Run::default() }).unwrap();
        assert_eq!(
            headline.sentence,
            "duramen does 2 times as many operations a second as redis (the median of 3 points, which lie between 1 and 3); \
             beyond the spread it is faster at 2 of them and slower at 0. duramen, in million operations a second, each at its best point: SET 0.9, GET 1.20."
        );
        let labels: Vec<_> = headline.bars.iter().map(|bar| (bar.label.as_str(), bar.of)).collect();
        assert_eq!(labels, [("SET", 0), ("", 1), ("GET", 0), ("", 1)]);
        assert_eq!(lines(&headline).lines().count(), 5);
    }

    #[test]
    fn a_server_is_faster_only_where_the_spreads_do_not_overlap() {
        // 1.01 times as many at the medians: the samples of one lie among the other's.
        let mut measurements = vec![
            point("SET", "duramen", 1, 1.01e5),
            point("SET", "redis", 1, 1e5),
            point("SET", "duramen", 16, 3e5),
        ];
        measurements.push(point("SET", "redis", 16, 4e5));
        let headline = of(&Run { measurements: measurements.clone(), ..Run::default() }).unwrap();
        assert!(headline.sentence.contains("faster at 0 of them and slower at 1."), "{}", headline.sentence);
        measurements.truncate(2);
        let headline = of(&Run { measurements: measurements.clone(), ..Run::default() }).unwrap();
        assert!(
            headline.sentence.contains("which is no difference beyond the spread."),
            "{}",
            headline.sentence
        );
        // In pairs, each round counts.
        let mut pair = Measurement::new("ratios of SET", "duramen / redis").with("pipeline", 1_u64);
        let ratio = Metric::from_samples(&[0.99, 1.2, 1.3], Unit::Ratio, Better::Higher).unwrap();
        pair.metrics.insert("throughput".into(), ratio);
        measurements.push(pair);
        let headline = of(&Run { measurements, ..Run::default() }).unwrap();
        assert!(headline.sentence.contains("1.20 times"), "{}", headline.sentence);
        assert!(
            headline.sentence.contains("which is no difference beyond the spread."),
            "{}",
            headline.sentence
        );
    }

    #[test]
    fn ratios_measured_in_pairs_go_before_those_of_medians() {
        let pair = |pipeline: u64, ratio: f64| {
            let mut pair = Measurement::new("ratios of SET", "duramen / redis").with("pipeline", pipeline);
            pair.metrics.insert("throughput".into(), Metric::once(ratio, Unit::Ratio, Better::Higher));
            pair
        };
        let mut measurements = vec![point("SET", "duramen", 1, 1e5), point("SET", "redis", 1, 1e5)];
        measurements.extend([pair(1, 1.5), pair(16, 2.5)]);
        let headline = of(&Run { measurements, ..Run::default() }).unwrap();
        // Of two, the median is their mean.
        assert!(headline.sentence.starts_with("duramen does 2 times as many"), "{}", headline.sentence);
        assert_eq!(headline.bars.len(), 2);
    }

    #[test]
    fn targets_are_shown_with_their_distance() {
        let row = |name: &str, found: f64, target: f64, better| {
            let mut row = Measurement::new("targets", name);
            row.metrics.insert("time".into(), Metric::once(5.0, Unit::Nanoseconds, better));
            row.metrics.insert("in L".into(), Metric::once(found, Unit::Ratio, better));
            row.metrics.insert("target".into(), Metric::once(target, Unit::Ratio, better));
            row
        };
        let measurements =
            vec![row("get", 1.5, 0.6, Better::Lower), row("two threads", 2.0, 1.9, Better::Higher)];
        let headline = of(&Run { measurements, ..Run::default() }).unwrap();
        assert_eq!(
            headline.sentence,
            "1 of 2 targets are reached; the farthest is get, which takes 2.50 times its target."
        );
    }

    #[test]
    fn a_run_without_rates_or_targets_has_no_headline() {
        assert!(of(&Run::default()).is_none());
    }
}
