//! A writer's events as lines of text, in a file that outlives the writer.
//!
//! The child process appends one line with one `write` before it sends an operation, and one after the acknowledgement.
//! When `write` has returned, the line is in the page cache, which SIGKILL does not affect. The `write` of a last line
//! cut short never returned, so its event did not happen.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use super::content::Content;
use super::history::{Event, Expiry, State, Window};

/// The writing side.
pub struct Journal {
    file: File,
    line: String,
}

impl Journal {
    /// A new journal.
    pub fn create(path: &Path) -> io::Result<Journal> {
        Ok(Journal { file: File::create(path)?, line: String::new() })
    }

    /// Returns when the event will survive the process.
    pub fn add(&mut self, event: &Event) -> io::Result<()> {
        self.line.clear();
        put_event(&mut self.line, event);
        self.line.push('\n');
        self.file.write_all(self.line.as_bytes())
    }
}

/// The events of a journal, in order; an error is a line that is no event.
pub fn parse(text: &str) -> Result<Vec<Event>, String> {
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole.lines().map(|line| event(line).ok_or_else(|| format!("not an event: {line}"))).collect()
}

// Writing to a String cannot fail, so the results are dropped.
fn put_event(out: &mut String, event: &Event) {
    let _ = match event {
        Event::Sent { op, unit, at, states } => {
            let _ = write!(out, "S {op} {unit} {at} ");
            put_list(out, states, put_state);
            Ok(())
        }
        Event::Acked { op, at } => write!(out, "A {op} {at}"),
        Event::Committed { op } => write!(out, "C {op}"),
        Event::Read { unit, after, window, found } => {
            let _ = write!(out, "R {unit} {after} {} {} ", window.from, window.to);
            put_list(out, found, put_content);
            Ok(())
        }
        Event::Recovered { unit, window, found } => {
            let _ = write!(out, "V {unit} {} {} ", window.from, window.to);
            put_list(out, found, put_content);
            Ok(())
        }
        Event::SharedSent { counter } => write!(out, "I {counter}"),
        Event::SharedAcked { counter } => write!(out, "J {counter}"),
        Event::SharedDeclined { counter } => write!(out, "K {counter}"),
        Event::Refused { what } => write!(out, "X {}", plain(what)),
    };
}

fn put_list<T>(out: &mut String, items: &[T], put: impl Fn(&mut String, &T)) {
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            out.push(';');
        }
        put(out, item);
    }
}

fn put_content(out: &mut String, content: &Content) {
    let _ = match content {
        Content::Absent => write!(out, "-"),
        Content::Stamped { seq, len } => write!(out, "v{seq},{len}"),
        Content::Number(number) => write!(out, "n{number}"),
        Content::Chunks { base, count } => write!(out, "c{base},{count}"),
        Content::Entries { base, first, count } => write!(out, "e{base},{first},{count}"),
        Content::Torn(what) => write!(out, "t{}", plain(what)),
    };
}

fn put_state(out: &mut String, state: &State) {
    put_content(out, &state.content);
    if let Some(expiry) = state.expires {
        let _ = write!(out, "@{},{}", expiry.earliest, expiry.latest);
    }
}

/// The text without the separators of lines and fields.
fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() || ";@".contains(c) { '?' } else { c }).collect()
}

fn event(line: &str) -> Option<Event> {
    let (kind, rest) = line.split_once(' ')?;
    if kind == "X" {
        return Some(Event::Refused { what: rest.to_owned() });
    }
    let mut fields = rest.split(' ');
    let mut number = || fields.next()?.parse::<u64>().ok();
    Some(match kind {
        "S" => {
            let (op, unit, at) = (number()?, number()? as usize, number()?);
            Event::Sent { op, unit, at, states: list(rest, 3, state)? }
        }
        "A" => Event::Acked { op: number()?, at: number()? },
        "C" => Event::Committed { op: number()? },
        "R" => {
            let (unit, after) = (number()? as usize, number()?);
            let window = Window { from: number()?, to: number()? };
            Event::Read { unit, after, window, found: list(rest, 4, content)? }
        }
        "V" => {
            let unit = number()? as usize;
            let window = Window { from: number()?, to: number()? };
            Event::Recovered { unit, window, found: list(rest, 3, content)? }
        }
        "I" => Event::SharedSent { counter: number()? as usize },
        "J" => Event::SharedAcked { counter: number()? as usize },
        "K" => Event::SharedDeclined { counter: number()? as usize },
        _ => return None,
    })
}

/// The list after the first `fields` fields.
fn list<T>(rest: &str, fields: usize, read: impl Fn(&str) -> Option<T>) -> Option<Vec<T>> {
    rest.splitn(fields + 1, ' ').last()?.split(';').map(read).collect()
}

fn state(text: &str) -> Option<State> {
    let Some((text, expiry)) = text.split_once('@') else { return Some(State::lasting(content(text)?)) };
    let (earliest, latest) = expiry.split_once(',')?;
    let expires = Some(Expiry { earliest: earliest.parse().ok()?, latest: latest.parse().ok()? });
    Some(State { content: content(text)?, expires })
}

fn content(text: &str) -> Option<Content> {
    let mut chars = text.chars();
    let kind = chars.next()?;
    let rest = chars.as_str();
    let pair = || rest.split_once(',');
    Some(match kind {
        '-' => Content::Absent,
        'v' => Content::Stamped { seq: pair()?.0.parse().ok()?, len: pair()?.1.parse().ok()? },
        'n' => Content::Number(rest.parse().ok()?),
        'c' => Content::Chunks { base: pair()?.0.parse().ok()?, count: pair()?.1.parse().ok()? },
        'e' => {
            let mut numbers = rest.splitn(3, ',');
            let base = numbers.next()?.parse().ok()?;
            let mut number = || numbers.next()?.parse().ok();
            Content::Entries { base, first: number()?, count: number()? }
        }
        't' => Content::Torn(rest.to_owned()),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_event_reads_back_as_itself() {
        let window = Window { from: 5, to: 6 };
        let contents = vec![
            Content::Absent,
            Content::Stamped { seq: 3, len: 100 },
            Content::Number(-7),
            Content::Chunks { base: 2, count: 9 },
            Content::Entries { base: 2, first: 3, count: 9 },
            Content::Torn("4 bytes that begin a b".to_owned()),
        ];
        let states = vec![
            State::lasting(Content::Absent),
            State {
                content: Content::Stamped { seq: 3, len: 100 },
                expires: Some(Expiry { earliest: 7, latest: 8 }),
            },
        ];
        let events = [
            Event::Sent { op: 1, unit: 2, at: 3, states },
            Event::Acked { op: 1, at: 4 },
            Event::Committed { op: 1 },
            Event::Read { unit: 2, after: 1, window, found: contents.clone() },
            Event::Recovered { unit: 2, window, found: contents },
            Event::SharedSent { counter: 0 },
            Event::SharedAcked { counter: 0 },
            Event::SharedDeclined { counter: 0 },
            Event::Refused { what: "put: out of space".to_owned() },
        ];
        let mut text = String::new();
        for event in &events {
            put_event(&mut text, event);
            text.push('\n');
        }
        assert_eq!(parse(&text).unwrap(), events);
        assert_eq!(parse(&format!("{text}S 2 0 9 v2")).unwrap(), events, "a line cut short did not happen");
    }

    #[test]
    fn a_line_that_is_no_event_is_reported() {
        assert!(parse("A 1 2\nS 1\n").is_err());
        assert!(parse("Z 1\n").is_err());
    }
}
