//! The lines of a case, written out for an n.
//!
//! A word in brackets, or some, is repeated for i from 0 to n - 1: `MSET [k{i} v]`. In words stand
//!
//! | | |
//! |---|---|
//! | `{i}` | i in seven digits; outside of brackets that of the middle, n / 2 |
//! | `{n}`, `{h}`, `{l}` | n; half of it; n - 1 |
//! | `{kib}` | the bit behind n KiB |
//! | `{v}` | n bytes |
//! | `{x}`, `{y}` | a longitude and a latitude that belong to i |
//!
//! Before a line may stand what it is for:
//!
//! | | |
//! |---|---|
//! | `each:` | the command is sent n times, for each i |
//! | `clients:` | n clients more connect and send it, each for its i, and stay; it is answered |
//! | `blocked:` | the same, and it waits |

/// Who sends a line's commands.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Sender {
    /// The client that all is measured with.
    Own,
    /// Each command a client of its own.
    Clients,
    /// The same, and no reply comes.
    Blocked,
}

/// A line, written out.
pub struct Line {
    pub sender: Sender,
    pub commands: Vec<Vec<String>>,
}

impl Line {
    /// The line for this n.
    pub fn of(line: &str, n: usize) -> Line {
        for (prefix, sender) in
            [("each: ", Sender::Own), ("clients: ", Sender::Clients), ("blocked: ", Sender::Blocked)]
        {
            if let Some(rest) = line.strip_prefix(prefix) {
                return Line { sender, commands: (0..n).map(|i| words(rest, n, i)).collect() };
            }
        }
        Line { sender: Sender::Own, commands: vec![words(line, n, n / 2)] }
    }
}

fn words(line: &str, n: usize, i: usize) -> Vec<String> {
    let mut out = Vec::new();
    let mut rest = line;
    while let Some((before, group)) = rest.split_once('[') {
        out.extend(before.split_whitespace().map(|word| filled(word, n, i)));
        let (group, behind) = group.split_once(']').unwrap_or((group, ""));
        for i in 0..n {
            out.extend(group.split_whitespace().map(|word| filled(word, n, i)));
        }
        rest = behind;
    }
    out.extend(rest.split_whitespace().map(|word| filled(word, n, i)));
    out
}

fn filled(word: &str, n: usize, i: usize) -> String {
    if !word.contains('{') {
        return word.to_owned();
    }
    let mut word = word
        .replace("{i}", &format!("{i:07}"))
        .replace("{n}", &n.to_string())
        .replace("{h}", &(n / 2).to_string())
        .replace("{l}", &(n - 1).to_string())
        .replace("{kib}", &(n * 8192).to_string())
        .replace("{x}", &format!("{:.5}", i as f64 * 200.0 / n as f64 - 100.0))
        .replace("{y}", &format!("{:.5}", (i % 1000) as f64 * 0.05));
    if word.contains("{v}") {
        word = word.replace("{v}", &"v".repeat(n));
    }
    word
}
