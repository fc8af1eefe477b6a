//! Replies of commands to Lua's values and back, from any bytes: no panic, and a reply of one value. Integers, strings,
//! arrays, statuses, nulls and booleans come back as they were.

#![no_main]

mod lua;

use duramen_resp::Reply;
use duramen_resp::reply::parse;
use libfuzzer_sys::fuzz_target;
use lua::Machine;
use std::cell::RefCell;

const SCRIPT: &str = "
if ARGV[1] == '3' then redis.setresp(3) end
return redis.call('reply')";

/// Doubles have all integers up to here.
const EXACT_MAX: u64 = 1 << 53;

thread_local! {
    static MACHINE: RefCell<Machine> = RefCell::new(Machine::new(SCRIPT));
}

/// Appends the reply that a script returns for one that it got; `None` for those that have another form in Lua.
fn returned(reply: &Reply, is_resp3: bool, out: &mut Vec<u8>) -> Option<()> {
    match reply {
        Reply::Line { kind: b':', text } => {
            let number: i64 = std::str::from_utf8(text).ok()?.parse().ok()?;
            if number.to_string().as_bytes() != text || number.unsigned_abs() > EXACT_MAX {
                return None;
            }
            out.extend_from_slice(&reply.encode());
        }
        Reply::Line { kind: b'+', text } if !text.iter().any(|byte| matches!(byte, 0 | b'\r')) => {
            out.extend_from_slice(&reply.encode())
        }
        Reply::Line { kind: b'$' | b'*', text } if text == b"-1" => match is_resp3 {
            true => out.extend_from_slice(b"#f\r\n"),
            false => out.extend_from_slice(b"_\r\n"),
        },
        Reply::Line { kind: b'_', text } if text.is_empty() => out.extend_from_slice(b"_\r\n"),
        Reply::Line { kind: b'#', text } if is_resp3 && matches!(&text[..], b"t" | b"f") => {
            out.extend_from_slice(&reply.encode());
        }
        Reply::Bulk { kind: b'$', header, bytes } if *header == bytes.len().to_string().as_bytes() => {
            out.extend_from_slice(&reply.encode());
        }
        Reply::Aggregate { kind: b'*', header, items } if *header == items.len().to_string().as_bytes() => {
            // A table ends at its first nil.
            let end = items.iter().position(|item| item.kind() == b'_' && item.encode() == b"_\r\n");
            let items = &items[..end.unwrap_or(items.len())];
            out.extend_from_slice(format!("*{}\r\n", items.len()).as_bytes());
            for item in items {
                returned(item, is_resp3, out)?;
            }
        }
        _ => return None,
    }
    Some(())
}

fuzz_target!(|data: &[u8]| {
    let Some((&head, input)) = data.split_first() else { return };
    let is_resp3 = head & 1 != 0;
    let got = MACHINE.with_borrow_mut(|machine| machine.run(&[if is_resp3 { b"3" } else { b"2" }], input));
    let Ok(Some((reply, _))) = parse(input) else { return };
    let mut wanted = Vec::new();
    if returned(&reply, is_resp3, &mut wanted).is_some() {
        assert_eq!(got.as_deref(), Ok(&wanted[..]), "of {}", input.escape_ascii());
    }
});
