//! A request to a server on loopback.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

use crate::failure::{Attempt, Failure, Result};

/// Status and body.
pub fn get(port: u16, path: &str) -> Result<(u16, String)> {
    let what = || format!("get http://127.0.0.1:{port}{path}");
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).attempt(what)?;
    stream.set_read_timeout(Some(Duration::from_secs(30))).attempt(what)?;
    // An answer to 1.0 is not chunked.
    stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n").as_bytes()).attempt(what)?;
    let mut text = Vec::new();
    stream.read_to_end(&mut text).attempt(what)?;
    let text = String::from_utf8_lossy(&text).into_owned();
    let (head, body) =
        text.split_once("\r\n\r\n").ok_or_else(|| Failure::new(format!("{}: no head", what())))?;
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    let status = status.ok_or_else(|| Failure::new(format!("{}: no status in {head:?}", what())))?;
    Ok((status, body.to_owned()))
}

/// Text in a query of an address.
pub fn quoted(text: &str) -> String {
    let byte = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(byte).collect()
}
