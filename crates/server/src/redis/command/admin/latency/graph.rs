//! Samples as a picture of letters, as Redis draws it.

use crate::observe::times::Series;
use std::fmt::Write as _;

const COLUMNS: usize = 80;
const ROWS: i64 = 4;
// From the bottom of a row to its top.
const MARKS: [u8; 3] = *b"_o#";

/// The picture of an event's samples, each with how long ago it was.
pub fn draw(event: &str, series: &Series, now: u64) -> String {
    let values = || series.samples.iter().map(|(_, millis)| *millis);
    let (high, low) = (values().max().unwrap_or(0), values().min().unwrap_or(0));
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{event} - high {high} ms, low {low} ms (all time high {} ms)", series.millis_max);
    text.push_str(&"-".repeat(COLUMNS));
    text.push('\n');
    let samples: Vec<(u64, String)> =
        series.samples.iter().map(|(at, millis)| (*millis, ago(now.saturating_sub(*at)))).collect();
    for (at, part) in samples.chunks(COLUMNS).enumerate() {
        if at > 0 {
            text.push('\n');
        }
        draw_part(&mut text, part, low, high);
    }
    text
}

fn draw_part(text: &mut String, part: &[(u64, String)], low: u64, high: u64) {
    let marks = MARKS.len() as i64;
    let span = if high == low { 1.0 } else { (high - low) as f64 };
    let steps = ROWS * marks;
    for row in 0..ROWS {
        for (value, _) in part {
            let step = (((value - low) as f64 * steps as f64 / span) as i64).clamp(0, steps - 1);
            let mark = step - (ROWS - row - 1) * marks;
            text.push(match usize::try_from(mark) {
                Err(_) => ' ',
                Ok(mark) => MARKS.get(mark).map_or('|', |mark| char::from(*mark)),
            });
        }
        text.push('\n');
    }
    text.push_str(&" ".repeat(part.len()));
    text.push('\n');
    let longest = part.iter().map(|(_, label)| label.len()).max().unwrap_or(0);
    for at in 0..longest {
        text.extend(
            part.iter().map(|(_, label)| label.as_bytes().get(at).map_or(' ', |letter| char::from(*letter))),
        );
        text.push('\n');
    }
}

fn ago(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..86_400 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(samples: &[(u64, u64)], now: u64) -> String {
        let series = Series { samples: samples.iter().copied().collect(), millis_max: 99 };
        let text = draw("command", &series, now);
        text.split_once(&format!("{}\n", "-".repeat(COLUMNS))).unwrap().1.to_owned()
    }

    #[test]
    fn a_latency_graph_has_one_sample_at_the_bottom_and_many_rising() {
        assert_eq!(drawn(&[(5, 10)], 5), " \n \n \n_\n \n0\ns\n");
        assert_eq!(drawn(&[(0, 1), (10, 12), (3700, 7)], 3800), " # \n |_\n ||\n_||\n   \n111\nhhm\n");
        assert!(drawn(&[(7, 1); 81], 7).contains("\n\n"));
    }
}
