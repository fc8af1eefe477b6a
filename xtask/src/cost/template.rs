//! The lines of a case, expanded for an n.
//!
//! One or more words in brackets are repeated for i from 0 to n - 1: `MSET [k{i} v]`. Words may contain:
//!
//! | | |
//! |---|---|
//! | `{i}` | i in seven digits; outside of brackets i is n / 2, the middle |
//! | `{n}`, `{h}`, `{l}` | n; n / 2; n - 1 |
//! | `{kib}` | the number of the bit after n KiB |
//! | `{v}` | n bytes |
//! | `{x}`, `{y}` | a longitude and a latitude, derived from i |
//! | `{s}`, `{1}` | in scripts: a space within a word; `[1]` |
//!
//! A line may begin with a prefix:
//!
//! | | |
//! |---|---|
//! | `each:` | send the command n times, for each i |
//! | `clients:` | n more clients connect, send it, each for its i, get the reply, and stay connected |
//! | `blocked:` | the same, but the command blocks |

/// The clients that send a line's commands.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Sender {
    /// The measured client.
    Own,
    /// A separate client for each command.
    Clients,
    /// The same, and no reply comes.
    Blocked,
}

/// An expanded line.
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
        .replace("{y}", &format!("{:.5}", (i % 1000) as f64 * 0.05))
        .replace("{s}", " ")
        .replace("{1}", "[1]");
    if word.contains("{v}") {
        word = word.replace("{v}", &"v".repeat(n));
    }
    word
}
