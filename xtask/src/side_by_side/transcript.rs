//! Transcripts: the text files of the commands that both servers get.
//!
//! One command a line, quoted as redis-cli quotes; `"x"*1000` repeats a quoted part. A line that begins with `#` is a
//! comment. A line that begins with `@` is a directive:
//!
//! | directive | meaning |
//! |---|---|
//! | `@client 2` | client 2 sends the following lines, and connects when first needed; files begin with client 1 |
//! | `@close` | this client disconnects |
//! | `@server --a b` | the following lines go to new servers, which get these arguments |
//! | `@sleep 20` | wait 20 milliseconds |
//! | `@resp3`, `@resp2` | this client sends `HELLO` with that version; the reply is not compared |
//! | `@any CMD` | compare only the kind of the reply (its first byte) |
//! | `@sorted CMD` | sort the innermost arrays of the reply before comparing |
//! | `@digits CMD` | numbers in the reply may differ |
//! | `@near 50 CMD` | integers of the reply may differ by 50 |
//! | `@except a,b CMD` | in a reply of names and values, do not compare the values of `a` and `b` |
//! | `@names a,b CMD` | in a text of `name:value` or `name=value`, compare only the presence of these names |
//! | `@noreply CMD` | read no reply |
//! | `@read`, `@read sorted`, `@read digits` | read another reply: a message, or that of a command that had to wait |
//! | `@silent` | no reply comes for a while |
//! | `@raw "…" "…"*9` | send these bytes as they are; compare all replies, and whether the connection is closed |
//! | `@pipeline` … `@end` | send the lines between in one write, then read their replies |
//! | `@exchange a b` | DUMP `a` on each server, and RESTORE that as `b` on the other |

use std::time::Duration;

/// One parsed line of a transcript.
#[derive(Debug, PartialEq, Eq)]
pub struct Step {
    /// From 1.
    pub line: usize,
    /// The line as written.
    pub text: String,
    /// What to do.
    pub action: Action,
}

/// The action of a line.
#[derive(Debug, PartialEq, Eq)]
pub enum Action {
    /// Continue as this client.
    Client(u32),
    /// Close the client's connection.
    Close,
    /// Start servers with these arguments.
    Server(Vec<Vec<u8>>),
    /// Wait.
    Sleep(Duration),
    /// `HELLO` with this version.
    Hello(u8),
    /// A command, and the way to compare its reply.
    Command(Vec<Vec<u8>>, Treatment),
    /// A command that has no reply.
    NoReply(Vec<Vec<u8>>),
    /// Another reply.
    Read(Treatment),
    /// No other reply.
    Silent,
    /// Bytes as they are.
    Raw(Vec<u8>),
    /// Commands in one write.
    Pipeline(Vec<Step>),
    /// Copy the value of one key to the other server's other key.
    Exchange(Vec<u8>, Vec<u8>),
}

/// The differences that are allowed between replies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Treatment {
    /// None.
    Exact,
    /// Everything except the kind.
    Any,
    /// The order within the innermost arrays.
    Sorted,
    /// All digits: a run of them counts as one.
    Digits,
    /// Integers, by this much.
    Near(i64),
    /// The values of these names.
    Except(Vec<String>),
    /// Everything except the presence of these names.
    Names(Vec<String>),
}

/// Parses a transcript. The error is the line's number and the problem.
pub fn parse(text: &str) -> Result<Vec<Step>, (usize, String)> {
    let mut steps = Vec::new();
    let mut pipeline: Option<(usize, Vec<Step>)> = None;
    for (index, line) in text.lines().enumerate() {
        let number = index + 1;
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        match (line, &mut pipeline) {
            ("@pipeline", None) => pipeline = Some((number, Vec::new())),
            ("@pipeline", Some(_)) => return Err((number, "a pipeline inside a pipeline".to_owned())),
            ("@end", _) => {
                let Some((line, steps_inside)) = pipeline.take() else {
                    return Err((number, "@end without @pipeline".to_owned()));
                };
                let text = "@pipeline".to_owned();
                steps.push(Step { line, text, action: Action::Pipeline(steps_inside) });
            }
            (line, pipeline) => {
                let action = action(line).map_err(|message| (number, message))?;
                let inside = matches!(action, Action::Command(..) | Action::NoReply(_));
                let step = Step { line: number, text: line.to_owned(), action };
                match pipeline {
                    Some((_, inner)) if inside => inner.push(step),
                    Some(_) => return Err((number, "only commands can be in a pipeline".to_owned())),
                    None => steps.push(step),
                }
            }
        }
    }
    match pipeline {
        Some((line, _)) => Err((line, "@pipeline without @end".to_owned())),
        None => Ok(steps),
    }
}

fn action(line: &str) -> Result<Action, String> {
    let Some(directive) = line.strip_prefix('@') else {
        return Ok(Action::Command(command(line)?, Treatment::Exact));
    };
    let (name, rest) = directive.split_once(' ').unwrap_or((directive, ""));
    let number = |text: &str| text.parse::<u64>().map_err(|_| format!("no number: {text}"));
    let list = |text: &str| text.split(',').map(str::to_owned).collect::<Vec<_>>();
    // The directive's own argument, and the command after it.
    let (own, after) = rest.split_once(' ').unwrap_or((rest, ""));
    Ok(match name {
        "client" => Action::Client(number(rest)? as u32),
        "close" => Action::Close,
        "server" => Action::Server(words(rest)?),
        "sleep" => Action::Sleep(Duration::from_millis(number(rest)?)),
        "resp2" => Action::Hello(2),
        "resp3" => Action::Hello(3),
        "any" => Action::Command(command(rest)?, Treatment::Any),
        "digits" => Action::Command(command(rest)?, Treatment::Digits),
        "sorted" => Action::Command(command(rest)?, Treatment::Sorted),
        "near" => Action::Command(command(after)?, Treatment::Near(number(own)? as i64)),
        "except" => Action::Command(command(after)?, Treatment::Except(list(own))),
        "names" => Action::Command(command(after)?, Treatment::Names(list(own))),
        "noreply" => Action::NoReply(command(rest)?),
        "read" => Action::Read(match rest {
            "sorted" => Treatment::Sorted,
            "digits" => Treatment::Digits,
            _ => Treatment::Exact,
        }),
        "silent" => Action::Silent,
        "raw" => Action::Raw(words(rest)?.concat()),
        "exchange" => match words(rest)?.as_slice() {
            [from, to] => Action::Exchange(from.clone(), to.clone()),
            _ => return Err("@exchange takes two keys".to_owned()),
        },
        _ => return Err(format!("no such directive: @{name}")),
    })
}

fn command(line: &str) -> Result<Vec<Vec<u8>>, String> {
    let words = words(line)?;
    if words.is_empty() {
        return Err("a command is missing".to_owned());
    }
    Ok(words)
}

/// Splits a line as redis-cli does.
pub fn words(line: &str) -> Result<Vec<Vec<u8>>, String> {
    let mut words = Vec::new();
    let mut rest = line.as_bytes();
    loop {
        rest = rest.trim_ascii_start();
        let Some(&first) = rest.first() else { return Ok(words) };
        let mut word = Vec::new();
        match first {
            b'"' | b'\'' => {
                rest = quoted(&rest[1..], first, &mut word).ok_or("a quote is not closed")?;
                if let Some(times) = rest.strip_prefix(b"*") {
                    let digits = times.iter().take_while(|b| b.is_ascii_digit()).count();
                    let (count, after) = times.split_at(digits);
                    let count: usize = std::str::from_utf8(count)
                        .ok()
                        .and_then(|text| text.parse().ok())
                        .ok_or("no count after *")?;
                    word = word.repeat(count);
                    rest = after;
                }
                if rest.first().is_some_and(|b| !b.is_ascii_whitespace()) {
                    return Err("a blank must follow a closing quote".to_owned());
                }
            }
            _ => {
                let end = rest.iter().position(u8::is_ascii_whitespace).unwrap_or(rest.len());
                word.extend_from_slice(&rest[..end]);
                rest = &rest[end..];
            }
        }
        words.push(word);
    }
}

/// Reads up to the closing `quote`; returns the rest after it.
fn quoted<'a>(mut rest: &'a [u8], quote: u8, word: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        let (&byte, after) = rest.split_first()?;
        rest = after;
        match byte {
            byte if byte == quote => return Some(rest),
            b'\\' if quote == b'\'' && rest.first() == Some(&b'\'') => {
                word.push(b'\'');
                rest = &rest[1..];
            }
            b'\\' if quote == b'"' => {
                let (&escape, after) = rest.split_first()?;
                rest = after;
                let hex = |digits: &[u8]| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok();
                match escape {
                    b'x' if let Some(byte) = rest.get(..2).and_then(hex) => {
                        word.push(byte);
                        rest = &rest[2..];
                    }
                    b'n' => word.push(b'\n'),
                    b'r' => word.push(b'\r'),
                    b't' => word.push(b'\t'),
                    b'b' => word.push(8),
                    b'a' => word.push(7),
                    other => word.push(other),
                }
            }
            byte => word.push(byte),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_as_redis_cli_quotes() {
        let words = words(r#"SET "a b\x00\n\"" 'it\'s\n' x"y "ab"*3 """#).unwrap();
        let expected: [&[u8]; 6] = [b"SET", b"a b\x00\n\"", b"it's\\n", b"x\"y", b"ababab", b""];
        assert_eq!(words, expected);
    }

    #[test]
    fn wrong_lines_are_reported_with_their_number() {
        for (text, line) in [
            ("GET a\n\"open", 2),
            ("@nothing", 1),
            ("\n@near x GET a", 2),
            ("@pipeline\nGET a", 1),
            ("@end", 1),
            ("@pipeline\n@sleep 1\n@end", 2),
            ("GET \"a\"b", 1),
            ("@any", 1),
        ] {
            assert_eq!(parse(text).unwrap_err().0, line, "{text}");
        }
    }

    #[test]
    fn directives_are_parsed() {
        let text = "# comment\n@client 2\n@near 50 PTTL k\n@raw \"*1\\r\\n\" \"a\"*2\n@pipeline\nGET a\n@any TIME\n@end";
        let actions: Vec<Action> = parse(text).unwrap().into_iter().map(|step| step.action).collect();
        let words = |text: &str| text.split(' ').map(|word| word.as_bytes().to_vec()).collect::<Vec<_>>();
        assert_eq!(
            actions[..3],
            [
                Action::Client(2),
                Action::Command(words("PTTL k"), Treatment::Near(50)),
                Action::Raw(b"*1\r\naa".to_vec())
            ]
        );
        let Action::Pipeline(inside) = &actions[3] else { panic!("{actions:?}") };
        assert_eq!(inside[1].action, Action::Command(words("TIME"), Treatment::Any));
        assert_eq!(inside[1].line, 7);
    }
}
