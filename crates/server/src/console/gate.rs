//! Who may ask.
//!
//! - A page of another site may not have a browser ask for data (`Sec-Fetch-Site`), nor read an answer: there are no
//!   headers of CORS.
//! - A name of another site that resolves to this machine (DNS rebinding) is refused: without a login only names of the
//!   loopback count. With a login the name does not matter, since a browser gives it to the host alone for which a person
//!   has typed it.
//! - A user logs in by HTTP's Basic scheme. On a loopback address the default user needs no login if it needs no
//!   password, as for a client of Redis. On any other address every user needs a password.

use crate::acl::User;
use crate::metrics::http::{Answer, Request, Response, Status};
use crate::server::Server;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// Whether the request may come from where it comes from.
///
/// # Errors
/// The status of its refusal.
pub fn check_origin(request: &Request, is_api: bool) -> Result<(), Status> {
    if request.authorization.is_empty() && !is_loopback_name(&request.host) {
        return Err(Status::Misdirected);
    }
    // Browsers send it; other clients need not.
    if is_api && !matches!(request.fetch_site.as_str(), "" | "same-origin" | "none") {
        return Err(Status::Forbidden);
    }
    Ok(())
}

/// Whether a `Host`, with or without a port, is this machine whoever resolves it.
fn is_loopback_name(host: &str) -> bool {
    let (name, port) = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((name, port)) => (name, port),
        None => host.find(':').map_or((host, ""), |at| host.split_at(at)),
    };
    let is_port =
        port.is_empty() || port.strip_prefix(':').is_some_and(|digits| digits.parse::<u16>().is_ok());
    let is_ip = name.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
    is_port && (is_ip || name.eq_ignore_ascii_case("localhost"))
}

/// The user who asks.
///
/// # Errors
/// The answer if there is none.
pub fn log_in(
    server: &Server,
    request: &Request,
    client: IpAddr,
    is_loopback: bool,
) -> Result<Arc<User>, Answer> {
    let users = &server.users;
    if request.authorization.is_empty() {
        if is_loopback && users.is_open() {
            return Ok(Arc::clone(users.default_user()));
        }
        return Err(Response::of(Status::Unauthorized).into());
    }
    let (name, password) = credentials(&request.authorization).unwrap_or_default();
    let Some(user) = users.authenticate(&name, &password) else {
        // The counters of failures drop a port.
        let delay = server.failed_login(&format!("{client}:0"), &name);
        return Err(Answer::After(delay.max(Duration::from_millis(1)), Response::of(Status::Unauthorized)));
    };
    if !is_loopback && user.rules().needs_no_password() {
        let why = "This user needs no password, so it has no console beyond this machine.";
        return Err(Response::sentence(Status::Forbidden, why).into());
    }
    Ok(user)
}

/// Name and password of `Basic`. Without a name it is the default user, as for AUTH.
fn credentials(header: &str) -> Option<(Vec<u8>, Vec<u8>)> {
    let (scheme, encoded) = header.split_once(' ')?;
    let decoded = STANDARD.decode(encoded.trim()).ok().filter(|_| scheme.eq_ignore_ascii_case("basic"))?;
    let colon = decoded.iter().position(|byte| *byte == b':')?;
    let name = if colon == 0 { b"default".to_vec() } else { decoded[..colon].to_vec() };
    Some((name, decoded[colon + 1..].to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_the_loopback_are_this_machine_for_everybody() {
        for host in ["localhost", "LOCALHOST:9121", "127.0.0.1:9121", "127.0.0.2", "[::1]:9121", "[::1]"] {
            assert!(is_loopback_name(host), "{host}");
        }
        for host in [
            "",
            "evil.example",
            "evil.example:9121",
            "localhost.evil.example",
            "127.0.0.1.evil.example:80",
            "localhost:x",
            "localhost:",
            "10.0.0.1:9121",
            "0.0.0.0:9121",
            "[::2]:1",
            "[::1]x",
            "::1",
        ] {
            assert!(!is_loopback_name(host), "{host}");
        }
    }

    #[test]
    fn a_name_ends_at_the_first_colon_and_a_password_may_have_more() {
        let of = |text: &str| credentials(&format!("Basic {}", STANDARD.encode(text)));
        let pair =
            |name: &str, password: &str| Some((name.as_bytes().to_vec(), password.as_bytes().to_vec()));
        assert_eq!(of("ann:a:b"), pair("ann", "a:b"));
        assert_eq!(of(":secret"), pair("default", "secret"));
        assert_eq!(of("ann"), None);
        assert_eq!(credentials("Bearer YTpi"), None);
        assert_eq!(credentials("basic YTpi"), pair("a", "b"));
        assert_eq!(credentials("Basic %%%"), None);
        assert_eq!(credentials("Basic"), None);
    }
}
