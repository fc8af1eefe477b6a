//! Decides whether two replies are the same, to the extent that the transcript requires.

use super::transcript::Treatment;
use duramen_resp::Reply;

/// Whether the two servers gave the same reply.
pub fn same(treatment: &Treatment, reference: &Reply, subject: &Reply) -> bool {
    // An error on one side only is never an allowed difference.
    if reference.kind() != subject.kind() {
        return false;
    }
    match treatment {
        Treatment::Exact => reference.encode() == subject.encode(),
        Treatment::Any => reference.kind() != b'-' || reference.encode() == subject.encode(),
        Treatment::Digits => without_digits(reference) == without_digits(subject),
        Treatment::Sorted => sorted(reference) == sorted(subject),
        Treatment::Near(distance) => near(reference, subject, distance.unsigned_abs()),
        Treatment::Except(names) => masked(reference, names) == masked(subject, names),
        Treatment::Names(names) => present(reference, names) == present(subject, names),
    }
}

/// The bytes of a reply with each run of digits as one.
fn without_digits(reply: &Reply) -> Vec<u8> {
    let mut bytes = reply.encode();
    bytes.iter_mut().filter(|byte| byte.is_ascii_digit()).for_each(|byte| *byte = b'0');
    bytes.dedup_by(|one, other| *one == b'0' && *other == b'0');
    bytes
}

/// Fields of consumers since Redis 7.2, which the subject has and the reference (7.0) does not.
const TOLD_SINCE_7_2: [&[u8]; 2] = [b"inactive", b"active-time"];

/// The items of the subject's flat list of names and values, without the names that the older reference lacks.
fn of_both(reference: &[Reply], subject: &[Reply]) -> Vec<Reply> {
    let has = |name: &Reply| reference.iter().step_by(2).any(|other| other.text() == name.text());
    let is_newer =
        |name: &Reply| name.text().is_some_and(|text| TOLD_SINCE_7_2.contains(&text)) && !has(name);
    subject.chunks(2).filter(|pair| !is_newer(&pair[0])).flatten().cloned().collect()
}

/// Whether the replies are the same, except for [`TOLD_SINCE_7_2`] and integers that differ by at most `distance`.
fn near(reference: &Reply, subject: &Reply, distance: u64) -> bool {
    if let (Some(a), Some(b)) = (reference.integer(), subject.integer()) {
        return a.abs_diff(b) <= distance;
    }
    match (reference, subject) {
        (
            Reply::Aggregate { kind, header, items },
            Reply::Aggregate { kind: kind_b, header: header_b, items: items_b },
        ) => {
            if header != header_b {
                let both = of_both(items, items_b);
                return kind == kind_b
                    && both.len() < items_b.len()
                    && items.len() == both.len()
                    && items.iter().zip(&both).all(|(a, b)| near(a, b, distance));
            }
            (kind, items.len()) == (kind_b, items_b.len())
                && items.iter().zip(items_b).all(|(a, b)| near(a, b, distance))
        }
        _ => reference == subject,
    }
}

/// Sorts the members of every array that contains no array; pairs of a map stay pairs.
fn sorted(reply: &Reply) -> Reply {
    let Reply::Aggregate { kind, header, items } = reply else { return reply.clone() };
    let nested = items.iter().any(|item| item.items().is_some());
    let mut items: Vec<Reply> = items.iter().map(sorted).collect();
    if *kind == b'%' {
        let mut pairs: Vec<&[Reply]> = items.chunks(2).collect();
        pairs.sort();
        items = pairs.concat();
    } else if !nested {
        items.sort();
    }
    Reply::Aggregate { kind: *kind, header: header.clone(), items }
}

/// Replaces the values of these names, in a map or a flat list of names and values.
fn masked(reply: &Reply, names: &[String]) -> Reply {
    let Reply::Aggregate { kind, header, items } = reply else { return reply.clone() };
    let items = items
        .chunks(2)
        .flat_map(|pair| match pair {
            [name, value] if name.text().is_some_and(|text| names.iter().any(|n| n.as_bytes() == text)) => {
                // The kind of the value still counts.
                let mask = Reply::Line { kind: value.kind(), text: b"masked".to_vec() };
                vec![name.clone(), mask]
            }
            _ => pair.iter().map(|item| masked(item, names)).collect(),
        })
        .collect();
    Reply::Aggregate { kind: *kind, header: header.clone(), items }
}

/// For each name, whether the text has it.
fn present(reply: &Reply, names: &[String]) -> Vec<bool> {
    let text = String::from_utf8_lossy(reply.text().unwrap_or_default()).into_owned();
    let has = |name: &String| {
        text.split_whitespace()
            .any(|word| word.strip_prefix(name.as_str()).is_some_and(|rest| rest.starts_with([':', '='])))
    };
    names.iter().map(has).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use duramen_resp::reply::parse;

    fn reply(bytes: &str) -> Reply {
        match parse(bytes.as_bytes()) {
            Ok(Some((reply, used))) if used == bytes.len() => reply,
            other => panic!("{bytes}: {other:?}"),
        }
    }

    fn same_bytes(treatment: &Treatment, a: &str, b: &str) -> bool {
        same(treatment, &reply(a), &reply(b))
    }

    #[test]
    fn exact_accepts_only_equal_replies() {
        assert!(same_bytes(&Treatment::Exact, "+OK\r\n", "+OK\r\n"));
        assert!(!same_bytes(&Treatment::Exact, "+OK\r\n", "$2\r\nOK\r\n"));
        assert!(!same_bytes(&Treatment::Exact, "-ERR a\r\n", "-ERR b\r\n"));
    }

    #[test]
    fn any_distinguishes_an_error_from_a_value() {
        assert!(same_bytes(&Treatment::Any, ":1\r\n", ":2\r\n"));
        assert!(!same_bytes(&Treatment::Any, ":1\r\n", "-ERR\r\n"));
        assert!(!same_bytes(&Treatment::Any, "-ERR a\r\n", "-ERR b\r\n"));
    }

    #[test]
    fn sorted_ignores_order_but_not_members() {
        let scan = |a: &str, b: &str| format!("*2\r\n$1\r\n0\r\n*2\r\n+{a}\r\n+{b}\r\n");
        assert!(same_bytes(&Treatment::Sorted, &scan("x", "y"), &scan("y", "x")));
        assert!(!same_bytes(&Treatment::Sorted, &scan("x", "y"), &scan("x", "x")));
        assert!(!same_bytes(
            &Treatment::Sorted,
            "%2\r\n+a\r\n:1\r\n+b\r\n:2\r\n",
            "%2\r\n+a\r\n:2\r\n+b\r\n:1\r\n"
        ));
    }

    #[test]
    fn near_allows_only_the_given_distance() {
        assert!(same_bytes(&Treatment::Near(5), ":100\r\n", ":95\r\n"));
        assert!(!same_bytes(&Treatment::Near(5), ":100\r\n", ":94\r\n"));
        assert!(!same_bytes(&Treatment::Near(5), ":100\r\n", "$3\r\n100\r\n"));
        let list = |at: i64, name: &str| format!("*2\r\n+{name}\r\n*1\r\n:{at}\r\n");
        assert!(same_bytes(&Treatment::Near(5), &list(100, "a"), &list(103, "a")));
        assert!(!same_bytes(&Treatment::Near(5), &list(100, "a"), &list(106, "a")));
        assert!(!same_bytes(&Treatment::Near(5), &list(100, "a"), &list(100, "b")));
        assert!(!same_bytes(&Treatment::Near(5), &list(100, "a"), "*1\r\n+a\r\n"));
    }

    #[test]
    fn except_masks_the_values_it_names_only() {
        let hello =
            |version: &str, proto: &str| format!("*4\r\n+version\r\n+{version}\r\n+proto\r\n:{proto}\r\n");
        let except = Treatment::Except(vec!["version".to_owned()]);
        assert!(same_bytes(&except, &hello("7.0.15", "2"), &hello("7.2.4", "2")));
        assert!(!same_bytes(&except, &hello("7.0.15", "2"), &hello("7.2.4", "3")));
    }

    #[test]
    fn names_compares_presence() {
        let names = Treatment::Names(vec!["role".to_owned(), "slaves".to_owned()]);
        assert!(same_bytes(&names, "$16\r\nrole:a\r\nslaves:0\r\n", "$17\r\nslaves:1\r\nrole:bc\r\n"));
        assert!(!same_bytes(&names, "$16\r\nrole:a\r\nslaves:0\r\n", "$6\r\nrole:a\r\n"));
    }
}
