//! The first line of a script or library: `#!lua name=… flags=…`.

use crate::flags::ScriptFlags;
use duramen_resp::inline;

/// What the first line says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Its flags.
    pub flags: ScriptFlags,
    /// Where the code begins: at the end of the first line, so that lines keep their numbers.
    pub code: usize,
}

/// The header of a script.
///
/// # Errors
/// Redis's text, without a code.
pub fn script_header(body: &[u8]) -> Result<Header, String> {
    let mut flags = ScriptFlags::COMPATIBLE;
    if !body.starts_with(b"#!") {
        return Ok(Header { flags, code: 0 });
    }
    let code = line_end(body).ok_or("Invalid script shebang")?;
    let parts = parts(&body[..code]).ok_or("Invalid engine in script shebang")?;
    let (engine, options) = parts.split_first().ok_or("Invalid engine in script shebang")?;
    if engine != b"#!lua" {
        return Err(format!("Unexpected engine in script shebang: {}", shown(engine)));
    }
    flags = ScriptFlags::default();
    for option in options {
        let Some(list) = option.strip_prefix(b"flags=") else {
            return Err(format!("Unknown lua shebang option: {}", shown(option)));
        };
        // An empty list has no parts.
        for name in list.split(|&byte| byte == b',').filter(|_| !list.is_empty()) {
            let flag = ScriptFlags::named(name, false)
                .ok_or_else(|| format!("Unexpected flag in script shebang: {}", shown(name)))?;
            flags = flags.with(flag);
        }
    }
    Ok(Header { flags, code })
}

/// The engine and the name of a library of functions, and where its code begins.
///
/// # Errors
/// Redis's text, without a code.
pub fn library_header(body: &[u8]) -> Result<(Vec<u8>, Vec<u8>, usize), String> {
    if !body.starts_with(b"#!") {
        return Err("Missing library metadata".to_owned());
    }
    let code = line_end(body).ok_or("Invalid library metadata")?;
    let parts = parts(&body[..code]).ok_or("Invalid library metadata")?;
    let (engine, options) = parts.split_first().ok_or("Invalid library metadata")?;
    let mut name = None;
    for option in options {
        match option.split_at_checked(5) {
            Some((key, value)) if key.eq_ignore_ascii_case(b"name=") => {
                if name.is_some() {
                    return Err("Invalid metadata value, name argument was given multiple times".to_owned());
                }
                name = Some(value.to_vec());
            }
            _ => return Err(format!("Invalid metadata value given: {}", shown(option))),
        }
    }
    let name = name.ok_or("Library name was not given")?;
    Ok((engine[2..].to_vec(), name, code))
}

/// Where the first line ends. As C looks for it: not behind a zero.
fn line_end(body: &[u8]) -> Option<usize> {
    let end = body.iter().position(|&byte| byte == b'\n' || byte == 0)?;
    (body[end] == b'\n').then_some(end)
}

/// The words of a line, with quotes as in a configuration file.
fn parts(line: &[u8]) -> Option<Vec<Vec<u8>>> {
    let (mut buffer, mut spans) = (Vec::new(), Vec::new());
    inline::split(line, &mut buffer, &mut spans).ok()?;
    Some(spans.iter().map(|span| buffer[span.start..span.end].to_vec()).collect())
}

fn shown(text: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_without_a_header_is_compatible() {
        let header = script_header(b"return 1").unwrap();
        assert_eq!(header, Header { flags: ScriptFlags::COMPATIBLE, code: 0 });
    }

    #[test]
    fn flags_of_a_header_are_read() {
        let header = script_header(b"#!lua flags=no-writes,allow-stale\nreturn 1").unwrap();
        assert!(header.flags.has(ScriptFlags::NO_WRITES) && header.flags.has(ScriptFlags::ALLOW_STALE));
        assert!(!header.flags.has(ScriptFlags::COMPATIBLE) && !header.flags.has(ScriptFlags::ALLOW_OOM));
        assert_eq!(header.code, 33);
        assert_eq!(script_header(b"#!lua flags=\n").unwrap().flags, ScriptFlags::default());
    }

    #[test]
    fn a_wrong_header_is_refused_with_its_reason() {
        for (body, error) in [
            (&b"#!lua"[..], "Invalid script shebang"),
            (b"#!not-lua\nreturn 1", "Unexpected engine in script shebang: #!not-lua"),
            (b"#!lua bad=1\n", "Unknown lua shebang option: bad=1"),
            (b"#!lua flags=x\n", "Unexpected flag in script shebang: x"),
            (b"#!lua \"a\n", "Invalid engine in script shebang"),
        ] {
            assert_eq!(script_header(body).unwrap_err(), error);
        }
        for (body, error) in [
            (&b"return 1"[..], "Missing library metadata"),
            (b"#!lua name=a", "Invalid library metadata"),
            (b"#!lua name=a NAME=b\n", "Invalid metadata value, name argument was given multiple times"),
            (b"#!lua\n", "Library name was not given"),
            (b"#!lua name=a foo=1\n", "Invalid metadata value given: foo=1"),
        ] {
            assert_eq!(library_header(body).unwrap_err(), error);
        }
        assert_eq!(library_header(b"#!LUA name=a\nx").unwrap(), (b"LUA".to_vec(), b"a".to_vec(), 12));
    }
}
