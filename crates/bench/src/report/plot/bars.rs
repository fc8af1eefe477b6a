//! Horizontal bars: measurements without a numeric argument, ratios to the bound, and parts of an operation.

use super::{Axis, COLORS, bar_sign, escape, figure, shortened, svg, text_width};
use crate::report::Unit;
use crate::report::scale::Scale;

/// Bars that share an axis.
pub(crate) struct Bars {
    pub(crate) caption: String,
    /// The quantity on the axis.
    pub(crate) title: String,
    pub(crate) unit: Unit,
    pub(crate) bars: Vec<Bar>,
    /// Names of the styles that bars use, when they use more than one.
    pub(crate) legend: Vec<(usize, String)>,
    /// The value of a reference line, and its meaning.
    pub(crate) reference: Option<(f64, &'static str)>,
}

/// One bar with its spread. A bar without a name belongs to the previous one.
pub(crate) struct Bar {
    pub(crate) name: String,
    pub(crate) style: usize,
    pub(crate) value: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

const WIDTH: f64 = 640.0;
const ROW: f64 = 24.0;
const TOP: f64 = 6.0;
// Figures stand at the end of their bars.
const RIGHT: f64 = 86.0;

impl Bars {
    /// The figure, or nothing if there is no bar.
    pub(crate) fn html(&self) -> String {
        let bars: Vec<&Bar> = self.bars.iter().filter(|bar| bar.value.is_finite()).collect();
        if bars.is_empty() {
            return String::new();
        }
        let (left, cut) = names_width(bars.iter().map(|bar| bar.name.as_str()));
        let reference = self.reference.map(|(value, _)| value);
        // Bars start at 0: readers take a length as a quantity, so no logarithm here.
        let reach = bars.iter().map(|bar| bar.high.max(bar.value)).fold(reference.unwrap_or(0.0), f64::max);
        let span = Linear { left, width: WIDTH - left - RIGHT, reach: if reach > 0.0 { reach } else { 1.0 } };
        let height = TOP + ROW * bars.len() as f64 + 36.0;
        let scale = Scale::of(reach, self.unit);
        let mut body = span.axis(&self.title, self.unit, height);
        for (index, bar) in bars.iter().enumerate() {
            let y = TOP + ROW * index as f64;
            let end = span.x(bar.value);
            let whisker = if bar.low < bar.high {
                let (low, high) = (span.x(bar.low), span.x(bar.high));
                format!(
                    "<path class=\"whisker\" d=\"M{low:.1} {y0:.1}H{high:.1}m0 -4v8M{low:.1} {y1:.1}v8\"/>",
                    y0 = y + 11.0,
                    y1 = y + 7.0
                )
            } else {
                String::new()
            };
            let tip = format!(
                "{} {}{}",
                bar.name,
                scale.with_unit(bar.value),
                if bar.low < bar.high {
                    format!(" ({} to {})", scale.number(bar.low), scale.number(bar.high))
                } else {
                    String::new()
                }
            );
            body.push_str(&format!(
                "<g class=\"s{}\">{}<rect class=\"bar\" x=\"{left:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"16\" rx=\"2\" \
                 data-tip=\"{}\"/>{whisker}<text x=\"{:.1}\" y=\"{:.1}\">{}</text></g>",
                bar.style % COLORS,
                row_name(&bar.name, cut, left, y + 15.0),
                y + 3.0,
                (end - left).max(1.0),
                escape(tip.trim()),
                end.max(span.x(bar.high)) + 6.0,
                y + 15.0,
                escape(&scale.with_unit(bar.value))
            ));
        }
        if let Some((value, name)) = self.reference {
            let x = span.x(value);
            body.push_str(&format!(
                "<path class=\"reference\" d=\"M{x:.1} {TOP:.1}V{:.1}\" data-tip=\"{}\"/>",
                height - 36.0,
                escape(name)
            ));
        }
        let description =
            format!("{}: {} bars. The figures are in the table below.", self.caption, bars.len());
        figure(&self.caption, &svg(WIDTH, height, &description, &body), &self.legend, bar_sign)
    }
}

/// One operation as the sum of its parts, in nanoseconds.
pub(crate) struct Stack {
    pub(crate) name: String,
    pub(crate) parts: Vec<(String, f64)>,
}

/// Stacked bars; parts of one name have one colour.
pub(crate) fn stacks(caption: &str, stacks: &[Stack]) -> String {
    let mut names: Vec<&str> = Vec::new();
    for (name, _) in stacks.iter().flat_map(|stack| &stack.parts) {
        if !names.contains(&name.as_str()) {
            names.push(name);
        }
    }
    let usable = |ns: &f64| ns.is_finite() && *ns > 0.0;
    let total = |stack: &Stack| stack.parts.iter().map(|(_, ns)| *ns).filter(usable).sum::<f64>();
    let reach = stacks.iter().map(total).fold(0.0, f64::max);
    if reach <= 0.0 {
        return String::new();
    }
    let (left, cut) = names_width(stacks.iter().map(|stack| stack.name.as_str()));
    let span = Linear { left, width: WIDTH - left - RIGHT, reach };
    let height = TOP + ROW * stacks.len() as f64 + 36.0;
    let mut body = span.axis("time of one operation", Unit::Nanoseconds, height);
    for (index, stack) in stacks.iter().enumerate() {
        let y = TOP + ROW * index as f64;
        body.push_str(&row_name(&stack.name, cut, left, y + 15.0));
        let mut begin = 0.0;
        for (name, ns) in stack.parts.iter().filter(|(_, ns)| usable(ns)) {
            let style = names.iter().position(|known| known == name).unwrap_or(0);
            let (from, to) = (span.x(begin), span.x(begin + ns));
            let tip = format!("{}, {name}: {}", stack.name, crate::report::figure(*ns, Unit::Nanoseconds));
            body.push_str(&format!(
                "<g class=\"s{}\"><rect class=\"bar\" x=\"{from:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"16\" \
                 data-tip=\"{}\"/></g>",
                style % COLORS,
                y + 3.0,
                (to - from).max(0.5),
                escape(&tip)
            ));
            begin += ns;
        }
        body.push_str(&format!(
            "<text x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            span.x(begin) + 6.0,
            y + 15.0,
            escape(&crate::report::figure(begin, Unit::Nanoseconds))
        ));
    }
    let legend: Vec<(usize, String)> =
        names.iter().enumerate().map(|(i, name)| (i, (*name).to_owned())).collect();
    let description = format!("{caption}: {} operations by their parts.", stacks.len());
    figure(caption, &svg(WIDTH, height, &description, &body), &legend, bar_sign)
}

/// Room for names, and the characters that fit into it.
fn names_width<'a>(names: impl Iterator<Item = &'a str>) -> (f64, usize) {
    let longest = names.map(|name| name.chars().count()).max().unwrap_or(0);
    let cut = longest.clamp(4, 36);
    (cut as f64 * 6.8 + 14.0, cut)
}

fn row_name(name: &str, cut: usize, left: f64, y: f64) -> String {
    let shown = shortened(name, cut);
    let tip = if shown == name { String::new() } else { format!(" data-tip=\"{}\"", escape(name)) };
    format!(
        "<text class=\"name\" x=\"{:.1}\" y=\"{y:.1}\" text-anchor=\"end\"{tip}>{}</text>",
        left - 8.0,
        escape(&shown)
    )
}

/// An axis from 0 to `reach`.
struct Linear {
    left: f64,
    width: f64,
    reach: f64,
}

impl Linear {
    fn x(&self, value: f64) -> f64 {
        self.left + (value / self.reach).clamp(0.0, 1.0) * self.width
    }

    fn axis(&self, title: &str, unit: Unit, height: f64) -> String {
        // Both ends, so that the axis is linear.
        let axis = Axis::of_figures(title, unit, [0.0, self.reach]);
        let bottom = height - 34.0;
        let mut grid = String::from("<g class=\"grid\">");
        let mut names = String::from("<g class=\"names\">");
        let mut end = f64::NEG_INFINITY;
        for (value, name) in axis.ticks.iter().filter(|(value, _)| *value <= self.reach * 1.000_001) {
            let (x, half) = (self.x(*value), text_width(name) / 2.0 + 4.0);
            grid.push_str(&format!("<path d=\"M{x:.1} {TOP:.1}V{bottom:.1}\"/>"));
            if x - half > end {
                end = x + half;
                names.push_str(&format!(
                    "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                    bottom + 15.0,
                    escape(name)
                ));
            }
        }
        let middle = self.left + self.width / 2.0;
        names.push_str(&format!(
            "<text class=\"title\" x=\"{middle:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text></g>",
            height - 3.0,
            escape(&axis.title)
        ));
        grid + "</g>" + &names
    }
}
