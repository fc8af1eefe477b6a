//! The parameters of a path: `name=value` with `&` between, bytes by percent encoding.

use std::fmt::Write as _;

/// Parameters, each at most once.
#[derive(Debug, Default)]
pub struct Query(Vec<(&'static str, Vec<u8>)>);

impl Query {
    /// Parses what follows the question mark; only these names are known.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str, names: &[&'static str]) -> Result<Self, String> {
        let mut found = Self::default();
        for part in text.split('&').filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let Some(name) = names.iter().find(|known| **known == name) else {
                return Err(format!("unknown parameter; there are {}", names.join(", ")));
            };
            let value = decoded(value).ok_or_else(|| format!("{name}: no percent encoding"))?;
            if found.get(name).is_some() {
                return Err(format!("{name} is given twice"));
            }
            found.0.push((name, value));
        }
        Ok(found)
    }

    /// The bytes of a parameter.
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        self.0.iter().find(|(own, _)| *own == name).map(|(_, value)| value.as_slice())
    }

    /// A parameter that is decimal digits; `0` without it.
    ///
    /// # Errors
    /// When it is something else.
    pub fn digits(&self, name: &str) -> Result<u64, String> {
        let Some(value) = self.get(name) else { return Ok(0) };
        let text =
            std::str::from_utf8(value).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
        text.and_then(|text| text.parse().ok()).ok_or_else(|| format!("{name}: wanted a number"))
    }
}

fn decoded(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        bytes.push(if *first == b'%' {
            let (two, after) = rest.split_at_checked(2)?;
            rest = after;
            let digit = |byte: u8| char::from(byte).to_digit(16);
            u8::try_from(digit(two[0])? << 4 | digit(two[1])?).ok()?
        } else {
            *first
        });
    }
    Some(bytes)
}

/// Bytes as the value of a parameter.
pub fn encoded(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for byte in bytes {
        match char::from(*byte) {
            c if c.is_ascii_alphanumeric() || "-_.~".contains(c) => text.push(c),
            // Writing to a string cannot fail.
            _ => {
                let _ = write!(text, "%{byte:02X}");
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_encoded_and_decoded_as_itself() {
        let all: Vec<u8> = (0..=255).collect();
        let text = encoded(&all);
        assert!(text.bytes().all(|byte| byte.is_ascii_graphic() && !b"&=?#+".contains(&byte)), "{text}");
        assert_eq!(decoded(&text), Some(all));
    }

    #[test]
    fn what_is_no_query_is_refused() {
        let names = &["db", "key"];
        let query = Query::parse("db=3&key=a%00b%2Bc+d&", names).unwrap();
        assert_eq!((query.digits("db"), query.get("key")), (Ok(3), Some(&b"a\0b+c+d"[..])));
        assert_eq!(query.digits("other"), Ok(0));
        for bad in ["x=1", "db=1&db=2", "db=%", "db=%1", "db=%zz", "db=%+1", "DB=1", "db%3d=1"] {
            assert!(Query::parse(bad, names).is_err(), "{bad}");
        }
        for bad in ["db=-1", "db=+1", "db=", "db=99999999999999999999", "db=0x1", "db= 1"] {
            assert!(Query::parse(bad, names).unwrap().digits("db").is_err(), "{bad}");
        }
    }
}
