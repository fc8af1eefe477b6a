//! Heat maps: one figure over two numeric arguments. Each cell shows the figure. Colour only guides the eye; brighter
//! is better in either direction.

use super::{bar_sign, escape, figure, svg, text_width};
use crate::report::scale::{Scale, digits};
use crate::report::{Better, Unit};

/// One map.
pub(crate) struct Heat {
    pub(crate) caption: String,
    pub(crate) x_title: String,
    pub(crate) y_title: String,
    /// Names of columns and rows.
    pub(crate) x: Vec<String>,
    pub(crate) y: Vec<String>,
    /// Row, column, value.
    pub(crate) cells: Vec<(usize, usize, f64)>,
    pub(crate) unit: Unit,
    pub(crate) better: Better,
    /// The lowest and highest value of all maps that are shown side by side.
    pub(crate) extent: (f64, f64),
}

const ROW_MIN: f64 = 26.0;
const TOP: f64 = 6.0;
const BOTTOM: f64 = 44.0;

/// Red, green and blue from dark to bright; lightness rises evenly, so that it is also readable in grey.
const RAMP: [[f64; 3]; 6] = [
    [38.0, 32.0, 92.0],
    [52.0, 75.0, 140.0],
    [38.0, 121.0, 148.0],
    [52.0, 166.0, 134.0],
    [140.0, 206.0, 92.0],
    [247.0, 230.0, 92.0],
];

impl Heat {
    /// The figure, or nothing when there is no cell.
    pub(crate) fn html(&self) -> String {
        let cells: Vec<_> = self.cells.iter().filter(|(_, _, value)| value.is_finite()).collect();
        if cells.is_empty() {
            return String::new();
        }
        let scale = Scale::of(self.extent.1.abs().max(self.extent.0.abs()), self.unit);
        let left = 34.0 + self.y.iter().map(|name| text_width(name)).fold(0.0, f64::max);
        // Few rows are tall, so that there is room for the name of their axis.
        let row_height = (text_width(&self.y_title) / self.y.len() as f64).clamp(ROW_MIN, 40.0);
        let names = self.x.iter().map(|name| text_width(name) + 10.0).fold(46.0, f64::max);
        let column = names.max((520.0 / self.x.len() as f64).min(72.0));
        let (width, height) =
            (left + column * self.x.len() as f64 + 8.0, TOP + row_height * self.y.len() as f64 + BOTTOM);
        let mut body = self.names(left, column, row_height, height);
        for (row, col, value) in cells {
            let (x, y) = (left + column * *col as f64, TOP + row_height * *row as f64);
            let share = self.share(*value);
            let tip = format!(
                "{} {}, {} {}: {}",
                self.x_title,
                self.x.get(*col).map_or("", String::as_str),
                self.y_title,
                self.y.get(*row).map_or("", String::as_str),
                scale.with_unit(*value)
            );
            body.push_str(&format!(
                "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" rx=\"2\" fill=\"{}\" data-tip=\"{}\"/>\
                 <text class=\"cell\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\" fill=\"{}\">{}</text>",
                x + 0.8,
                y + 0.8,
                column - 1.6,
                row_height - 1.6,
                color(share),
                escape(&tip),
                x + column / 2.0,
                y + row_height / 2.0 + 4.0,
                if share > 0.55 { "#10131a" } else { "#ffffff" },
                escape(&digits(value / scale.factor))
            ));
        }
        let unit = if scale.label.is_empty() { String::new() } else { format!(", {}", scale.label) };
        let caption = format!("{}{unit} (brighter is better)", self.caption);
        let description = format!("{caption}: heat map of {} by {}.", self.x_title, self.y_title);
        figure(&caption, &svg(width, height, &description, &body), &[], bar_sign)
    }

    /// 0 for the worst, 1 for the best; logarithmic if the best is far from the worst.
    fn share(&self, value: f64) -> f64 {
        let (low, high) = self.extent;
        if low >= high {
            return 1.0;
        }
        let share = if low > 0.0 && high / low > 20.0 {
            (value / low).ln() / (high / low).ln()
        } else {
            (value - low) / (high - low)
        };
        let share = if self.better == Better::Higher { share } else { 1.0 - share };
        share.clamp(0.0, 1.0)
    }

    fn names(&self, left: f64, column: f64, row_height: f64, height: f64) -> String {
        let mut names = String::from("<g class=\"names\">");
        for (row, name) in self.y.iter().enumerate() {
            let y = TOP + row_height * (row as f64 + 0.5) + 4.0;
            names.push_str(&format!(
                "<text x=\"{:.1}\" y=\"{y:.1}\" text-anchor=\"end\">{}</text>",
                left - 7.0,
                escape(name)
            ));
        }
        for (col, name) in self.x.iter().enumerate() {
            let x = left + column * (col as f64 + 0.5);
            names.push_str(&format!(
                "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                height - BOTTOM + 15.0,
                escape(name)
            ));
        }
        let (x, y) =
            (left + column * self.x.len() as f64 / 2.0, TOP + row_height * self.y.len() as f64 / 2.0);
        names.push_str(&format!(
            "<text class=\"title\" x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\
             <text class=\"title\" transform=\"translate(13 {y:.1}) rotate(-90)\" text-anchor=\"middle\">{}</text></g>",
            height - 7.0,
            escape(&self.x_title),
            escape(&self.y_title)
        ));
        names
    }
}

fn color(share: f64) -> String {
    let place = share.clamp(0.0, 1.0) * (RAMP.len() - 1) as f64;
    let index = (place as usize).min(RAMP.len() - 2);
    let part = place - index as f64;
    let mixed = |channel: usize| {
        let (from, to) = (RAMP[index][channel], RAMP[index + 1][channel]);
        (from + (to - from) * part).round() as u8
    };
    format!("#{:02x}{:02x}{:02x}", mixed(0), mixed(1), mixed(2))
}
