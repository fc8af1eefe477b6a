//! Lines over one numeric argument, over time, or over percentiles.

use super::{Axis, COLORS, escape, figure, line_sign, marker, svg, text_width};

/// Lines in one frame.
pub(crate) struct Lines {
    pub(crate) caption: String,
    pub(crate) x: Axis,
    pub(crate) y: Axis,
    pub(crate) lines: Vec<Line>,
    /// Whether each point is marked; curves of many points are not.
    pub(crate) marked: bool,
}

/// One line. `style` chooses colour, marker and dashes.
pub(crate) struct Line {
    pub(crate) name: String,
    pub(crate) style: usize,
    pub(crate) points: Vec<Point>,
}

/// One point with its spread.
pub(crate) struct Point {
    pub(crate) x: f64,
    pub(crate) y: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
    pub(crate) tip: String,
}

// Two plots fit side by side on a screen of 1280 pixels.
const WIDTH: f64 = 450.0;
const HEIGHT: f64 = 300.0;
const TOP: f64 = 14.0;
const RIGHT: f64 = 24.0;
const BOTTOM: f64 = 48.0;

impl Lines {
    /// The figure, or nothing when no point can be shown.
    pub(crate) fn html(&self) -> String {
        let shown = |line: &&Line| line.points.iter().any(|point| self.holds(point));
        let lines: Vec<&Line> = self.lines.iter().filter(shown).collect();
        if lines.is_empty() {
            return String::new();
        }
        let left = 34.0 + self.y.ticks.iter().map(|(_, name)| text_width(name)).fold(0.0, f64::max);
        let frame = Frame { left, width: WIDTH - left - RIGHT, height: HEIGHT - TOP - BOTTOM };
        let mut body = frame.axes(&self.x, &self.y);
        for line in &lines {
            body.push_str(&self.line(line, &frame));
        }
        let names: Vec<&str> = lines.iter().map(|line| line.name.as_str()).collect();
        let description = format!(
            "{}: {} over {} for {}. The figures are in the table below.",
            self.caption,
            self.y.title,
            self.x.title,
            names.join("; ")
        );
        let legend: Vec<(usize, String)> = if lines.len() == 1 && lines[0].name.is_empty() {
            Vec::new()
        } else {
            lines.iter().map(|line| (line.style, line.name.clone())).collect()
        };
        figure(&self.caption, &svg(WIDTH, HEIGHT, &description, &body), &legend, line_sign)
    }

    fn holds(&self, point: &Point) -> bool {
        self.x.holds(point.x) && self.y.holds(point.y)
    }

    fn line(&self, line: &Line, frame: &Frame) -> String {
        let (mut path, mut spread, mut marks) = (String::new(), String::new(), String::new());
        for point in line.points.iter().filter(|point| self.holds(point)) {
            let (x, y) = (frame.x(self.x.at(point.x)), frame.y(self.y.at(point.y)));
            path.push_str(&format!("{}{x:.1} {y:.1}", if path.is_empty() { "M" } else { "L" }));
            if point.low < point.high && self.y.holds(point.low) && self.y.holds(point.high) {
                let (low, high) = (frame.y(self.y.at(point.low)), frame.y(self.y.at(point.high)));
                spread.push_str(&format!("M{x:.1} {low:.1}V{high:.1}"));
            }
            if self.marked {
                marks.push_str(&marker(line.style, x, y, &point.tip));
            } else if !point.tip.is_empty() {
                marks.push_str(&format!(
                    "<circle class=\"touch\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"5\" data-tip=\"{}\"/>",
                    escape(&point.tip)
                ));
            }
        }
        format!(
            "<g class=\"s{}\"><path class=\"spread\" d=\"{}\"/><path class=\"line d{}\" d=\"{path}\"/>{marks}</g>",
            line.style % COLORS,
            if spread.is_empty() { "M0 0" } else { &spread },
            line.style / COLORS % 4,
        )
    }
}

struct Frame {
    left: f64,
    width: f64,
    height: f64,
}

impl Frame {
    fn x(&self, at: f64) -> f64 {
        self.left + at.clamp(0.0, 1.0) * self.width
    }

    fn y(&self, at: f64) -> f64 {
        TOP + (1.0 - at.clamp(0.0, 1.0)) * self.height
    }

    fn axes(&self, x: &Axis, y: &Axis) -> String {
        let (right, bottom) = (self.left + self.width, TOP + self.height);
        let mut body = String::from("<g class=\"grid\">");
        let mut names = String::new();
        for (value, name) in &y.ticks {
            let at = self.y(y.at(*value));
            body.push_str(&format!("<path d=\"M{:.1} {at:.1}H{right:.1}\"/>", self.left));
            names.push_str(&format!(
                "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                self.left - 7.0,
                at + 4.0,
                escape(name)
            ));
        }
        for (value, name) in &x.ticks {
            let at = self.x(x.at(*value));
            body.push_str(&format!("<path d=\"M{at:.1} {bottom:.1}v4\"/>"));
            names.push_str(&format!(
                "<text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                bottom + 17.0,
                escape(name)
            ));
        }
        let middle = TOP + self.height / 2.0;
        format!(
            "{body}<path class=\"base\" d=\"M{:.1} {bottom:.1}H{right:.1}\"/></g><g class=\"names\">{names}\
             <text class=\"title\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\
             <text class=\"title\" transform=\"translate(13 {middle:.1}) rotate(-90)\" text-anchor=\"middle\">{}</text></g>",
            self.left,
            self.left + self.width / 2.0,
            HEIGHT - 8.0,
            escape(&x.title),
            escape(&y.title)
        )
    }
}
