//! Commands as others are shown them, by SLOWLOG and MONITOR: without passwords.

use super::Args;
use super::spec::Spec;
use std::fmt::Write as _;

const HIDDEN: &[u8] = b"(redacted)";
// Directives of CONFIG SET whose values are secret.
const SECRETS: [&str; 5] =
    ["requirepass", "masterauth", "masteruser", "tls-key-file-pass", "tls-client-key-file-pass"];

/// The arguments.
pub fn arguments<'a>(spec: &Spec, args: Args<'a>) -> Vec<&'a [u8]> {
    let mut shown: Vec<&[u8]> = args.iter().collect();
    match spec.name {
        "auth" => shown[1..].fill(HIDDEN),
        "acl|setuser" => shown[2..].fill(HIDDEN),
        "hello" => {
            for at in (1..args.len()).filter(|at| args.is(*at, "auth")) {
                shown.iter_mut().skip(at + 1).take(2).for_each(|argument| *argument = HIDDEN);
            }
        }
        "config|set" => {
            let is_secret = |at: usize| SECRETS.iter().any(|name| args.is(at, name));
            for at in (2..args.len().saturating_sub(1)).step_by(2).filter(|at| is_secret(*at)) {
                shown[at + 1] = HIDDEN;
            }
        }
        _ => {}
    }
    shown
}

/// The line of MONITOR, with its line end.
pub fn monitored(spec: &Spec, args: Args<'_>, micros: u64, db: u8, address: &str) -> Box<[u8]> {
    let mut line = format!("+{}.{:06} [{db} {address}]", micros / 1_000_000, micros % 1_000_000);
    for argument in arguments(spec, args) {
        line.push_str(" \"");
        for byte in argument {
            // Writing to a string cannot fail.
            let _ = match byte {
                b'\\' | b'"' => write!(line, "\\{}", char::from(*byte)),
                b'\n' => write!(line, "\\n"),
                b'\r' => write!(line, "\\r"),
                b'\t' => write!(line, "\\t"),
                7 => write!(line, "\\a"),
                8 => write!(line, "\\b"),
                b' '..=b'~' => write!(line, "{}", char::from(*byte)),
                _ => write!(line, "\\x{byte:02x}"),
            };
        }
        line.push('"');
    }
    line.push_str("\r\n");
    line.into_bytes().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redis::command::{OwnedArgs, table};

    fn line(parts: &[&str]) -> String {
        let parts: Vec<&[u8]> = parts.iter().map(|part| part.as_bytes()).collect();
        let owned = OwnedArgs::of(&parts);
        let spec = &table().find(owned.args()).unwrap().spec;
        String::from_utf8(monitored(spec, owned.args(), 1_000_007, 3, "1.2.3.4:5").to_vec()).unwrap()
    }

    #[test]
    fn bytes_are_quoted_and_passwords_hidden() {
        let shown = |parts| line(parts).replace("+1.000007 [3 1.2.3.4:5] ", "").replace("\r\n", "");
        assert_eq!(
            shown(&["Set", "a\"\\\r\n\t\u{7}\u{8}\0 ~\u{7f}", ""]),
            r#""Set" "a\"\\\r\n\t\a\b\x00 ~\x7f" """#
        );
        assert_eq!(shown(&["AUTH", "u", "p"]), r#""AUTH" "(redacted)" "(redacted)""#);
        assert_eq!(
            shown(&["hello", "3", "auth", "u", "p", "setname", "n"]),
            r#""hello" "3" "auth" "(redacted)" "(redacted)" "setname" "n""#
        );
        assert_eq!(
            shown(&["CONFIG", "SET", "hz", "1", "RequirePass", "x"]),
            r#""CONFIG" "SET" "hz" "1" "RequirePass" "(redacted)""#
        );
    }
}
