//! Glob patterns as KEYS, SCAN and CONFIG GET take them: Redis's `stringmatchlen`.
//!
//! `*` any bytes, `?` one byte, `[abc]`, `[a-z]`, `[^a-z]` one byte of a class, `\` the next byte as it is.
//! Patterns are never wrong: a class without its `]` ends with the pattern.
//!
//! Redis tries every way to divide the text among the stars. Here only the last star is ever tried again. This finds
//! the same matches (a shorter fit of an earlier star leaves more text to the later ones) in at most pattern × text
//! steps, so no pattern can block a worker.

/// Whether `text` fits `pattern`.
pub fn matches(pattern: &[u8], text: &[u8]) -> bool {
    run(pattern, text, false)
}

/// Whether `text` fits `pattern`, ASCII letters of either case being the same.
pub fn matches_ignore_case(pattern: &[u8], text: &[u8]) -> bool {
    run(pattern, text, true)
}

/// What every text that fits `pattern` begins with: the pattern up to the first byte that may stand for others.
pub fn literal_prefix(pattern: &[u8]) -> &[u8] {
    let end = pattern.iter().position(|byte| b"*?[\\".contains(byte));
    &pattern[..end.unwrap_or(pattern.len())]
}

fn run(pattern: &[u8], text: &[u8], ignore_case: bool) -> bool {
    // Redis looks at the pattern only while there is text. So only the empty pattern, and the `*` that its callers
    // treat separately, fit the empty text.
    if text.is_empty() {
        return pattern.is_empty() || pattern == b"*";
    }
    let (mut p, mut t) = (0, 0);
    // Where to continue when a byte does not fit: after the last star, one byte further in the text.
    let mut retry: Option<(usize, usize)> = None;
    while t < text.len() {
        let step = match pattern.get(p) {
            Some(b'*') => {
                p += 1;
                retry = Some((p, t));
                continue;
            }
            Some(_) => one(&pattern[p..], text[t], ignore_case),
            None => None,
        };
        if let Some(used) = step {
            p += used;
            t += 1;
        } else if let Some((star, from)) = retry {
            (p, t) = (star, from + 1);
            retry = Some((star, t));
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|&byte| byte == b'*')
}

/// Whether the first element of `pattern`, no star, fits `byte`; if so, its length.
fn one(pattern: &[u8], byte: u8, ignore_case: bool) -> Option<usize> {
    match pattern {
        [b'?', ..] => Some(1),
        [b'[', class @ ..] => {
            let (fits, used) = one_of_class(class, byte, ignore_case);
            fits.then_some(1 + used)
        }
        [b'\\', literal, ..] => same(*literal, byte, ignore_case).then_some(2),
        [literal, ..] => same(*literal, byte, ignore_case).then_some(1),
        [] => None,
    }
}

/// Whether `byte` is in the class that begins after `[`, and the length of the class including its `]`.
fn one_of_class(class: &[u8], byte: u8, ignore_case: bool) -> (bool, usize) {
    let negated = class.first() == Some(&b'^');
    let mut at = usize::from(negated);
    let mut found = false;
    loop {
        match &class[at.min(class.len())..] {
            [] => break,
            [b'\\', literal, ..] => {
                // Redis compares an escaped byte with its case.
                found |= *literal == byte;
                at += 2;
            }
            [b']', ..] => {
                at += 1;
                break;
            }
            [first, b'-', last, ..] => {
                found |= in_range(*first, *last, byte, ignore_case);
                at += 3;
            }
            [literal, ..] => {
                found |= same(*literal, byte, ignore_case);
                at += 1;
            }
        }
    }
    (found != negated, at)
}

/// Redis compares in C's signed `char`, and turns a range that is upside down.
fn in_range(first: u8, last: u8, byte: u8, ignore_case: bool) -> bool {
    let (first, last) = if (first as i8) > (last as i8) { (last, first) } else { (first, last) };
    let fold = |byte: u8| if ignore_case { byte.to_ascii_lowercase() as i8 } else { byte as i8 };
    (fold(first)..=fold(last)).contains(&fold(byte))
}

fn same(a: u8, b: u8, ignore_case: bool) -> bool {
    a == b || ignore_case && a.eq_ignore_ascii_case(&b)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn patterns_of_the_manual_match() {
        for (pattern, yes, no) in [
            ("h?llo", "hxllo", "hllo"),
            ("h*llo", "heeeello", "hellO"),
            ("h*llo", "hllo", "hllox"),
            ("h[ae]llo", "hallo", "hillo"),
            ("h[^e]llo", "hbllo", "hello"),
            ("h[a-b]llo", "hbllo", "hcllo"),
            ("h[b-a]llo", "hallo", "hcllo"),
            ("a\\*b", "a*b", "axb"),
            ("[\\]]", "]", "\\"),
            ("[a", "a", "b"),
            ("[^", "x", "xy"),
            ("\\", "\\", "x"),
            ("**a**", "xxaxx", "xx"),
            ("*a*b*", "xaxbx", "xbxax"),
            ("a*", "a", "ba"),
        ] {
            assert!(matches(pattern.as_bytes(), yes.as_bytes()), "{pattern} {yes}");
            assert!(!matches(pattern.as_bytes(), no.as_bytes()), "{pattern} {no}");
        }
        assert!(matches_ignore_case(b"MaxMemory*", b"maxmemory-policy"));
        assert!(matches_ignore_case(b"[A-C]", b"b"));
        assert!(matches(b"*", b"") && matches(b"", b"") && !matches(b"**", b""));
    }

    #[test]
    fn many_stars_end_soon() {
        let pattern = "a*".repeat(1000) + "b";
        assert!(!matches(pattern.as_bytes(), &[b'a'; 5000]));
    }

    /// `stringmatchlen` as Redis wrote it, with its recursion.
    fn model(mut p: &[u8], mut s: &[u8]) -> bool {
        while !p.is_empty() && !s.is_empty() {
            match p[0] {
                b'*' => {
                    while p.len() > 1 && p[1] == b'*' {
                        p = &p[1..];
                    }
                    if p.len() == 1 {
                        return true;
                    }
                    while !s.is_empty() {
                        if model(&p[1..], s) {
                            return true;
                        }
                        s = &s[1..];
                    }
                    return false;
                }
                b'[' => {
                    let (fits, used) = one_of_class(&p[1..], s[0], false);
                    if !fits {
                        return false;
                    }
                    (p, s) = (&p[used..], &s[1..]);
                }
                b'?' => s = &s[1..],
                _ => {
                    if p[0] == b'\\' && p.len() >= 2 {
                        p = &p[1..];
                    }
                    if p[0] != s[0] {
                        return false;
                    }
                    s = &s[1..];
                }
            }
            p = &p[1..];
            if s.is_empty() {
                while p.first() == Some(&b'*') {
                    p = &p[1..];
                }
                break;
            }
        }
        p.is_empty() && s.is_empty()
    }

    proptest! {
        #[test]
        fn the_loop_matches_the_same_as_the_recursion(pattern in r"[ab*?\[\]^\\-]{0,10}", text in "[ab*^-]{1,12}") {
            let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
            prop_assert_eq!(matches(pattern, text), model(pattern, text));
        }

        #[test]
        fn any_bytes_are_a_pattern(pattern: Vec<u8>, text: Vec<u8>, ignore_case: bool) {
            run(&pattern, &text, ignore_case);
        }
    }
}
