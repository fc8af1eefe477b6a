//! Dates and times of the proleptic Gregorian calendar, years 0 to 9999, without leap seconds.

use std::fmt::Write;

use crate::error::{Error, Result};

/// Microseconds of a day.
pub const DAY_MICROS: i64 = 86_400_000_000;
/// Milliseconds of a day.
pub const DAY_MILLIS: i64 = 86_400_000;
/// Microseconds of a millisecond.
pub const MILLI_MICROS: i64 = 1000;

/// Days since 1970-01-01 of a date. Months beyond 1 to 12 carry into the year.
// Howard Hinnant's algorithm, http://howardhinnant.github.io/date_algorithms.html: eras of 400 years, years from March.
pub fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = year + (month - 1).div_euclid(12);
    let month = (month - 1).rem_euclid(12) + 1;
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

/// Year, month (1 to 12), day (1 to 31) of a count of days since 1970-01-01.
pub fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

fn days_of_month(year: i64, month: i64) -> i64 {
    days_from_civil(year, month + 1, 1) - days_from_civil(year, month, 1)
}

/// A date `months` later; the day is the month's last if the month is too short.
pub fn add_months(days: i64, months: i64) -> i64 {
    let (year, month, day) = civil_from_days(days);
    let first = days_from_civil(year, month + months, 1);
    let (year, month, _) = civil_from_days(first);
    first + day.min(days_of_month(year, month)) - 1
}

/// Whole months from one timestamp to another, both in microseconds.
pub fn months_between(from: i64, to: i64) -> i64 {
    let (day_a, day_b) = (from.div_euclid(DAY_MICROS), to.div_euclid(DAY_MICROS));
    let ((year_a, month_a, _), (year_b, month_b, _)) = (civil_from_days(day_a), civil_from_days(day_b));
    let mut months = (year_b - year_a) * 12 + month_b - month_a;
    let moved = |months: i64| add_months(day_a, months) * DAY_MICROS + from.rem_euclid(DAY_MICROS);
    if months > 0 && moved(months) > to {
        months -= 1;
    } else if months < 0 && moved(months) < to {
        months += 1;
    }
    months
}

/// Appends `2020-01-31`.
pub fn write_date(days: i64, out: &mut String) {
    let (year, month, day) = civil_from_days(days);
    if year < 0 {
        out.push('-');
    }
    let year = year.unsigned_abs();
    if year < 10_000 {
        write_two(year / 100, out);
        write_two(year % 100, out);
    } else {
        // Writing to a string cannot fail.
        let _ = write!(out, "{year}");
    }
    out.push('-');
    write_two(month as u64, out);
    out.push('-');
    write_two(day as u64, out);
}

/// Appends two digits of a number below 100.
fn write_two(number: u64, out: &mut String) {
    out.push(char::from(b'0' + (number / 10) as u8));
    out.push(char::from(b'0' + (number % 10) as u8));
}

/// Appends `23:59:59.123`, with `precision` digits after the point.
pub fn write_time(millis: i64, precision: u8, out: &mut String) {
    write_clock(millis * MILLI_MICROS, precision, out);
}

fn write_clock(micros: i64, precision: u8, out: &mut String) {
    let seconds = micros / 1_000_000;
    let (hours, fraction) = (seconds / 3600, micros % 1_000_000);
    if micros < 0 || hours > 99 {
        // No time of day.
        let _ = write!(out, "{hours:02}:{:02}:{:02}", seconds / 60 % 60, seconds % 60);
        if precision > 0 {
            let fraction = format!("{fraction:06}");
            let _ = write!(out, ".{}", &fraction[..usize::from(precision.min(6))]);
        }
        return;
    }
    write_two(hours as u64, out);
    out.push(':');
    write_two((seconds / 60 % 60) as u64, out);
    out.push(':');
    write_two((seconds % 60) as u64, out);
    if precision > 0 {
        out.push('.');
        let mut unit = 100_000;
        for _ in 0..precision.min(6) {
            out.push(char::from(b'0' + (fraction / unit % 10) as u8));
            unit /= 10;
        }
    }
}

/// Appends `2020-01-31 23:59:59.123`, with `precision` digits after the point.
pub fn write_timestamp(micros: i64, precision: u8, out: &mut String) {
    write_date(micros.div_euclid(DAY_MICROS), out);
    out.push(' ');
    write_clock(micros.rem_euclid(DAY_MICROS), precision, out);
}

/// `+1-06`: years and months.
pub fn interval_months_text(months: i64) -> String {
    let sign = if months < 0 { '-' } else { '+' };
    format!("{sign}{}-{:02}", months.abs() / 12, months.abs() % 12)
}

/// `+1 02:03:04.000`: days and time.
pub fn interval_millis_text(millis: i64) -> String {
    let sign = if millis < 0 { '-' } else { '+' };
    let size = millis.unsigned_abs() as i64;
    let mut text = format!("{sign}{} ", size / DAY_MILLIS);
    write_time(size % DAY_MILLIS, 3, &mut text);
    text
}

/// Reads `2020-1-31`.
pub fn parse_date(text: &str) -> Option<i64> {
    let mut parts = text.trim().splitn(3, '-');
    let (year, month, day) = (number(parts.next()?)?, number(parts.next()?)?, number(parts.next()?)?);
    checked_days(year, month, day)
}

fn checked_days(year: i64, month: i64, day: i64) -> Option<i64> {
    let valid = (0..=9999).contains(&year) && (1..=12).contains(&month) && day >= 1;
    // Every month has 28 days.
    (valid && (day <= 28 || day <= days_of_month(year, month))).then(|| days_from_civil(year, month, day))
}

fn number(text: &str) -> Option<i64> {
    let digits = !text.is_empty() && text.len() <= 9 && text.bytes().all(|byte| byte.is_ascii_digit());
    if digits { text.parse().ok() } else { None }
}

/// Reads `23:59:59.123456` to microseconds of the day; minutes, seconds and fraction are optional.
fn parse_clock(text: &str) -> Option<i64> {
    let (clock, fraction) = text.split_once('.').unwrap_or((text, ""));
    let mut parts = clock.splitn(3, ':');
    let hour = number(parts.next()?)?;
    let minute = parts.next().map_or(Some(0), number)?;
    let second = match parts.next() {
        Some(second) => number(second)?,
        // Only seconds may have a fraction.
        None if text.contains('.') => return None,
        None => 0,
    };
    let micros = if fraction.is_empty() {
        0
    } else if fraction.len() <= 9 {
        number(fraction)? * 10i64.pow(9 - fraction.len() as u32) / 1000
    } else {
        return None;
    };
    let valid = hour < 24 && minute < 60 && second < 60;
    valid.then_some(((hour * 60 + minute) * 60 + second) * 1_000_000 + micros)
}

/// Reads a time of day to milliseconds.
pub fn parse_time(text: &str) -> Option<i64> {
    parse_clock(text.trim()).map(|micros| micros / MILLI_MICROS)
}

/// Reads the usual form, `2020-01-31 23:59:59` or with `T`, with at most six digits after the second.
fn parse_usual(text: &[u8]) -> Option<i64> {
    let (fixed, fraction) = text.split_first_chunk::<19>()?;
    let digits = |from: usize, to: usize| {
        fixed[from..to]
            .iter()
            .try_fold(0, |number, byte| byte.is_ascii_digit().then(|| number * 10 + i64::from(byte - b'0')))
    };
    if !matches!(fixed, [_, _, _, _, b'-', _, _, b'-', _, _, b' ' | b'T', _, _, b':', _, _, b':', _, _]) {
        return None;
    }
    let micros = match fraction {
        [] => 0,
        [b'.', digits @ ..] if (1..=6).contains(&digits.len()) => {
            let mut micros = 0;
            for place in 0..6 {
                let byte = digits.get(place).unwrap_or(&b'0');
                micros = micros * 10 + byte.is_ascii_digit().then(|| i64::from(byte - b'0'))?;
            }
            micros
        }
        _ => return None,
    };
    let (hour, minute, second) = (digits(11, 13)?, digits(14, 16)?, digits(17, 19)?);
    let days = checked_days(digits(0, 4)?, digits(5, 7)?, digits(8, 10)?)?;
    let valid = hour < 24 && minute < 60 && second < 60;
    valid.then_some(days * DAY_MICROS + ((hour * 60 + minute) * 60 + second) * 1_000_000 + micros)
}

/// Reads `2020-01-31 23:59:59.123456` or with `T` and `Z`, or a date alone, to microseconds.
pub fn parse_timestamp(text: &str) -> Option<i64> {
    if let Some(micros) = parse_usual(text.as_bytes()) {
        return Some(micros);
    }
    let text = text.trim().trim_end_matches('Z');
    match text.split_once([' ', 'T']) {
        Some((date, clock)) => Some(parse_date(date)? * DAY_MICROS + parse_clock(clock.trim())?),
        None => Some(parse_date(text)? * DAY_MICROS),
    }
}

/// Reads a text as CAST does: `2020-1-31`, or with ` 23:59:59` and a fraction. A day beyond the end of a month becomes
/// the last day.
pub fn cast_timestamp(text: &str) -> Option<i64> {
    let (date, clock) = match text.split_once(' ') {
        Some((date, clock)) => (date, Some(clock)),
        None => (text, None),
    };
    let mut parts = date.splitn(3, '-');
    let (year, month, day) = (parts.next()?, number(parts.next()?)?, number(parts.next()?)?);
    if year.len() != 4 || !(1..=31).contains(&day) {
        return None;
    }
    let year = number(year)?;
    let days = checked_days(year, month, 1)? + day.min(days_of_month(year, month)) - 1;
    match clock {
        None => Some(days * DAY_MICROS),
        Some(clock) if clock.bytes().filter(|byte| *byte == b':').count() == 2 => {
            Some(days * DAY_MICROS + parse_clock(clock)?)
        }
        Some(_) => None,
    }
}

/// Reads the date at the beginning of a text as CAST does: `2020-1-31`, `2020-1`, `2020`. Text after a blank is
/// ignored.
pub fn cast_date(text: &str) -> Option<i64> {
    let date = text.split_once(' ').map_or(text, |(date, _)| date);
    let mut parts = date.splitn(3, '-');
    let year = number(parts.next()?)?;
    let mut next = || parts.next().map_or(Some(1), number);
    checked_days(year, next()?, next()?)
}

/// Truncates a timestamp to `precision` digits after the second.
pub fn truncate(micros: i64, precision: u8) -> i64 {
    let unit = 10i64.pow(u32::from(6 - precision.min(6)));
    micros.div_euclid(unit) * unit
}

/// A unit of time that can be extracted, floored to, added and counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Unit {
    Millisecond,
    Second,
    Minute,
    Hour,
    Day,
    Week,
    Month,
    Quarter,
    Year,
    DayOfWeek,
    DayOfYear,
    Epoch,
}

impl Unit {
    /// Its name in SQL, singular or as Flink's functions write it.
    pub fn parse(name: &str) -> Option<Unit> {
        Some(match name.to_ascii_uppercase().trim_start_matches("SQL_TSI_") {
            "MILLISECOND" => Unit::Millisecond,
            "SECOND" => Unit::Second,
            "MINUTE" => Unit::Minute,
            "HOUR" => Unit::Hour,
            "DAY" => Unit::Day,
            "WEEK" => Unit::Week,
            "MONTH" => Unit::Month,
            "QUARTER" => Unit::Quarter,
            "YEAR" => Unit::Year,
            "DOW" | "DAYOFWEEK" => Unit::DayOfWeek,
            "DOY" | "DAYOFYEAR" => Unit::DayOfYear,
            "EPOCH" => Unit::Epoch,
            _ => return None,
        })
    }

    /// Its length if it is constant.
    pub fn micros(self) -> Option<i64> {
        Some(match self {
            Unit::Millisecond => 1000,
            Unit::Second => 1_000_000,
            Unit::Minute => 60_000_000,
            Unit::Hour => 3_600_000_000,
            Unit::Day => DAY_MICROS,
            Unit::Week => 7 * DAY_MICROS,
            _ => return None,
        })
    }

    /// Its length in months, if it is a number of months.
    pub fn months(self) -> Option<i64> {
        Some(match self {
            Unit::Month => 1,
            Unit::Quarter => 3,
            Unit::Year => 12,
            _ => return None,
        })
    }

    /// This field of a timestamp.
    pub fn extract(self, micros: i64) -> i64 {
        let (days, clock) = (micros.div_euclid(DAY_MICROS), micros.rem_euclid(DAY_MICROS));
        let (year, month, day) = civil_from_days(days);
        match self {
            Unit::Millisecond => clock / 1000 % 1000,
            Unit::Second => clock / 1_000_000 % 60,
            Unit::Minute => clock / 60_000_000 % 60,
            Unit::Hour => clock / 3_600_000_000,
            Unit::Day => day,
            Unit::Month => month,
            Unit::Quarter => (month + 2) / 3,
            Unit::Year => year,
            // 1970-01-01 was a Thursday; Sunday is 1.
            Unit::DayOfWeek => (days + 4).rem_euclid(7) + 1,
            Unit::DayOfYear => days - days_from_civil(year, 1, 1) + 1,
            Unit::Week => iso_week(days),
            Unit::Epoch => micros.div_euclid(1_000_000),
        }
    }

    /// The beginning of the unit that contains a timestamp.
    pub fn floor(self, micros: i64) -> i64 {
        let days = micros.div_euclid(DAY_MICROS);
        match self {
            // Weeks begin on Sunday; 1970-01-04 was one.
            Unit::Week => ((days - 3).div_euclid(7) * 7 + 3) * DAY_MICROS,
            _ => match (self.micros(), self.months()) {
                (Some(unit), _) => micros.div_euclid(unit) * unit,
                (None, Some(months)) => {
                    let (year, month, _) = civil_from_days(days);
                    let count = (year * 12 + month - 1).div_euclid(months) * months;
                    days_from_civil(0, count + 1, 1) * DAY_MICROS
                }
                (None, None) => micros,
            },
        }
    }

    /// The first beginning of such a unit that is not before a timestamp.
    pub fn ceil(self, micros: i64) -> i64 {
        let floor = self.floor(micros);
        if floor == micros { floor } else { self.add(floor, 1) }
    }

    /// The timestamp `count` units later.
    pub fn add(self, micros: i64, count: i64) -> i64 {
        match (self.micros(), self.months()) {
            (Some(unit), _) => micros.wrapping_add(unit.wrapping_mul(count)),
            (None, Some(months)) => {
                // More months than there are in all years leave the calendar; the limit keeps the arithmetic from
                // overflowing.
                let months = months.saturating_mul(count).clamp(-1_200_000, 1_200_000);
                let days = add_months(micros.div_euclid(DAY_MICROS), months);
                days * DAY_MICROS + micros.rem_euclid(DAY_MICROS)
            }
            (None, None) => micros,
        }
    }

    /// Whole units from one timestamp to another.
    pub fn between(self, from: i64, to: i64) -> i64 {
        match (self.micros(), self.months()) {
            (Some(unit), _) => to.wrapping_sub(from) / unit,
            (None, Some(months)) => months_between(from, to) / months,
            (None, None) => 0,
        }
    }
}

/// Week of the year by ISO 8601: weeks begin on Monday, the first has the year's first Thursday.
fn iso_week(days: i64) -> i64 {
    let weekday = (days + 3).rem_euclid(7);
    let thursday = days - weekday + 3;
    let (year, _, _) = civil_from_days(thursday);
    (thursday - days_from_civil(year, 1, 1)) / 7 + 1
}

/// One piece of a pattern such as `yyyy-MM-dd HH:mm:ss`.
#[derive(Debug, Clone)]
enum Piece {
    Field(char, usize),
    Text(String),
}

fn pieces(pattern: &str) -> Result<Vec<Piece>> {
    let mut pieces = Vec::new();
    let mut chars = pattern.chars().peekable();
    while let Some(char) = chars.next() {
        if char == '\'' {
            let mut text = String::new();
            loop {
                match chars.next() {
                    Some('\'') if chars.peek() == Some(&'\'') => {
                        chars.next();
                        text.push('\'');
                    }
                    Some('\'') => break,
                    Some(other) => text.push(other),
                    None => {
                        return Err(Error::evaluation(format!("the pattern `{pattern}` has an open quote")));
                    }
                }
            }
            pieces.push(Piece::Text(if text.is_empty() { "'".to_owned() } else { text }));
        } else if char.is_ascii_alphabetic() {
            let mut count = 1;
            while chars.peek() == Some(&char) {
                chars.next();
                count += 1;
            }
            if !"yMdHhmsSa".contains(char) {
                return Err(Error::evaluation(format!(
                    "the pattern `{pattern}` has `{char}`; wanted letters of y, M, d, H, h, m, s, S, a"
                )));
            }
            pieces.push(Piece::Field(char, count));
        } else {
            pieces.push(Piece::Text(char.to_string()));
        }
    }
    Ok(pieces)
}

/// A pattern of Java's letters, parsed once for many timestamps.
#[derive(Debug, Clone)]
pub struct Pattern(Vec<Piece>);

/// A timestamp formatted by a pattern of Java's letters.
pub fn format(micros: i64, pattern: &str) -> Result<String> {
    let mut out = String::new();
    Pattern::read(pattern)?.write(micros, &mut out);
    Ok(out)
}

impl Pattern {
    /// Parses this pattern.
    pub fn read(text: &str) -> Result<Pattern> {
        Ok(Pattern(pieces(text)?))
    }

    /// Formatted text may change only at multiples of this many microseconds since 1970-01-01.
    pub fn unit(&self) -> i64 {
        let units = self.0.iter().filter_map(|piece| match piece {
            Piece::Text(_) => None,
            Piece::Field(letter, _) => Some(match letter {
                'y' | 'M' | 'd' => DAY_MICROS,
                'H' | 'h' | 'a' => 3_600_000_000,
                'm' => 60_000_000,
                's' => 1_000_000,
                _ => 1,
            }),
        });
        units.min().unwrap_or(DAY_MICROS)
    }

    /// Appends a formatted timestamp.
    pub fn write(&self, micros: i64, out: &mut String) {
        write(&self.0, micros, out);
    }
}

fn write(pieces: &[Piece], micros: i64, out: &mut String) {
    const MONTHS: [&str; 12] = [
        "January",
        "February",
        "March",
        "April",
        "May",
        "June",
        "July",
        "August",
        "September",
        "October",
        "November",
        "December",
    ];
    let (year, month, day) = civil_from_days(micros.div_euclid(DAY_MICROS));
    let clock = micros.rem_euclid(DAY_MICROS);
    let hour = clock / 3_600_000_000;
    for piece in pieces {
        let (letter, count) = match piece {
            Piece::Text(text) => {
                out.push_str(text);
                continue;
            }
            Piece::Field(letter, count) => (*letter, *count),
        };
        let value = match letter {
            'y' if count == 2 => year % 100,
            'y' => year,
            'M' if count >= 3 => {
                let name = MONTHS[(month - 1) as usize];
                out.push_str(if count == 3 { &name[..3] } else { name });
                continue;
            }
            'M' => month,
            'd' => day,
            'H' => hour,
            'h' => (hour + 11) % 12 + 1,
            'm' => clock / 60_000_000 % 60,
            's' => clock / 1_000_000 % 60,
            'a' => {
                out.push_str(if hour < 12 { "AM" } else { "PM" });
                continue;
            }
            _ => {
                let digits = format!("{:06}000", clock % 1_000_000);
                out.push_str(&digits[..count.min(9)]);
                continue;
            }
        };
        // Writing to a string cannot fail.
        let _ = write!(out, "{value:0count$}");
    }
}

/// Reads a timestamp by a pattern; `None` if the text does not match it.
pub fn parse(text: &str, pattern: &str) -> Result<Option<i64>> {
    let mut rest = text;
    let (mut year, mut month, mut day) = (1970, 1, 1);
    let (mut hour, mut minute, mut second, mut micros) = (0, 0, 0, 0);
    let mut afternoon = None;
    let pieces = pieces(pattern)?;
    for (index, piece) in pieces.iter().enumerate() {
        let (letter, count) = match piece {
            Piece::Text(text) => match rest.strip_prefix(text.as_str()) {
                Some(after) => {
                    rest = after;
                    continue;
                }
                None => return Ok(None),
            },
            Piece::Field(letter, count) => (*letter, *count),
        };
        if letter == 'a' {
            let Some(half) = rest.get(..2) else { return Ok(None) };
            afternoon = match half.to_ascii_uppercase().as_str() {
                "AM" => Some(false),
                "PM" => Some(true),
                _ => return Ok(None),
            };
            rest = &rest[2..];
            continue;
        }
        // A field directly before another field has as many digits as its letters; one before text takes all digits.
        let beside = matches!(pieces.get(index + 1), Some(Piece::Field(..)));
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let length = if beside || letter == 'S' { digits.min(count) } else { digits };
        let Some(value) = number(&rest[..length]) else { return Ok(None) };
        rest = &rest[length..];
        match letter {
            'y' => year = if count == 2 { 2000 + value } else { value },
            'M' => month = value,
            'd' => day = value,
            'H' | 'h' => hour = value,
            'm' => minute = value,
            's' => second = value,
            _ => micros = value * 10i64.pow(9 - length as u32) / 1000,
        }
    }
    if let Some(afternoon) = afternoon {
        hour = hour % 12 + if afternoon { 12 } else { 0 };
    }
    let valid = rest.is_empty() && hour < 24 && minute < 60 && second < 60;
    let days = if valid { checked_days(year, month, day) } else { None };
    Ok(days.map(|days| days * DAY_MICROS + ((hour * 60 + minute) * 60 + second) * 1_000_000 + micros))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timestamp_text(micros: i64, precision: u8) -> String {
        let mut text = String::new();
        write_timestamp(micros, precision, &mut text);
        text
    }

    #[test]
    fn every_day_of_ten_thousand_years_converts_to_a_date_and_back() {
        let mut expected = days_from_civil(0, 1, 1);
        assert_eq!(expected, -719_528);
        for year in 0..10_000 {
            for month in 1..=12 {
                for day in [1, 15, days_of_month(year, month)] {
                    let days = days_from_civil(year, month, day);
                    assert_eq!(civil_from_days(days), (year, month, day));
                }
                assert_eq!(days_from_civil(year, month, 1), expected);
                expected += days_of_month(year, month);
            }
        }
    }

    #[test]
    fn timestamps_are_read_and_written() {
        let moment = parse_timestamp("2020-02-29 23:59:59.123456").unwrap();
        assert_eq!(timestamp_text(moment, 6), "2020-02-29 23:59:59.123456");
        assert_eq!(timestamp_text(moment, 3), "2020-02-29 23:59:59.123");
        assert_eq!(timestamp_text(truncate(-1, 3), 3), "1969-12-31 23:59:59.999");
        assert_eq!(parse_timestamp("2021-02-29 00:00:00"), None);
        assert_eq!(parse_timestamp("2020-01-01T01:02:03Z"), parse_timestamp("2020-01-01 01:02:03"));
        assert_eq!(parse_time("24:00:00"), None);
    }

    #[test]
    fn the_usual_form_is_read_as_every_other_form() {
        for day in (-700_000..2_900_000).step_by(1013) {
            let micros = day * DAY_MICROS + day.rem_euclid(86_400) * 1_000_000 + day.rem_euclid(1_000_000);
            for precision in 0..=6 {
                let text = timestamp_text(micros, precision);
                assert_eq!(parse_usual(text.as_bytes()), Some(truncate(micros, precision)), "{text}");
                // A blank more is not the usual form.
                assert_eq!(parse_timestamp(&format!(" {text}")), Some(truncate(micros, precision)));
            }
        }
        for text in [
            "2020-02-30 00:00:00",
            "2020-13-01 00:00:00",
            "2020-00-01 00:00:00",
            "2020-01-01 24:00:00",
            "2020-01-01 00:60:00",
            "2020-01-01 00:00:60",
            "2020-01-01 00:00:00.x",
            "2020-01-01 00:00:00,5",
            "2020-01-01 0a:00:00",
        ] {
            assert_eq!((parse_usual(text.as_bytes()), parse_timestamp(text)), (None, None), "{text}");
        }
    }

    #[test]
    fn patterns_format_and_parse() {
        let moment = parse_timestamp("2020-02-09 15:04:05.678").unwrap();
        assert_eq!(format(moment, "yyyy-MM-dd HH:mm:ss.SSS").unwrap(), "2020-02-09 15:04:05.678");
        assert_eq!(format(moment, "d/M/yy h:mm a 'o''clock'").unwrap(), "9/2/20 3:04 PM o'clock");
        assert_eq!(
            parse("20200209150405", "yyyyMMddHHmmss").unwrap(),
            parse_timestamp("2020-02-09 15:04:05")
        );
        assert_eq!(parse("2020-02-30", "yyyy-MM-dd").unwrap(), None);
        assert!(format(moment, "qqq").is_err());
    }

    #[test]
    fn a_formatted_time_changes_only_with_the_unit_of_its_pattern() {
        for text in ["yyyy-MM-dd", "MMM yy", "HH 'h'", "h a", "mm", "yyyy s", "SSS", "''", "HH:mm"] {
            let pattern = Pattern::read(text).unwrap();
            let unit = pattern.unit();
            for day in [-719_528, -1, 0, 11_016, 18_321, 2_932_896] {
                for clock in [0, 1, 3_599_999_999, 43_200_000_000, DAY_MICROS - 1] {
                    let moment = day * DAY_MICROS + clock;
                    let first = moment.div_euclid(unit) * unit;
                    let written = format(moment, text).unwrap();
                    assert_eq!(format(first, text).unwrap(), written, "{text} at {first}");
                    assert_eq!(format(first + unit - 1, text).unwrap(), written, "{text} at {first}");
                }
            }
        }
    }

    #[test]
    fn time_units_round_down_add_and_count() {
        let moment = parse_timestamp("2020-03-31 15:04:05.678").unwrap();
        let text = |micros| timestamp_text(micros, 0);
        assert_eq!(text(Unit::Month.floor(moment)), "2020-03-01 00:00:00");
        assert_eq!(text(Unit::Quarter.ceil(moment)), "2020-04-01 00:00:00");
        assert_eq!(text(Unit::Month.add(moment, 1)), "2020-04-30 15:04:05");
        assert_eq!(text(Unit::Week.floor(moment)), "2020-03-29 00:00:00");
        assert_eq!(
            Unit::Month.between(moment, Unit::Month.add(moment, 11)),
            11,
            "the last day of a short month counts"
        );
        assert_eq!(Unit::Day.between(moment, moment - DAY_MICROS), -1);
        assert_eq!(Unit::Week.extract(parse_timestamp("2021-01-03").unwrap()), 53);
        assert_eq!(Unit::DayOfWeek.extract(0), 5);
    }
}
