//! An answer to a request.

use std::fmt::Write as _;

/// The outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// 200.
    Ok,
    /// 400: it is no request of HTTP/1.
    BadRequest,
    /// 401: a user and its password are wanted.
    Unauthorized,
    /// 403: the user may not, or another site asks.
    Forbidden,
    /// 404: there is no such path.
    NotFound,
    /// 405: neither GET nor HEAD.
    MethodNotAllowed,
    /// 408: its head took too long.
    Timeout,
    /// 421: it is for another host.
    Misdirected,
    /// 431: its head is too long.
    HeadTooLarge,
    /// 500: a bug.
    Failed,
    /// 503: not now.
    Unavailable,
    /// 504: the server took too long.
    Late,
}

impl Status {
    /// Code and reason.
    const fn line(self) -> &'static str {
        match self {
            Self::Ok => "200 OK",
            Self::BadRequest => "400 Bad Request",
            Self::Unauthorized => "401 Unauthorized",
            Self::Forbidden => "403 Forbidden",
            Self::NotFound => "404 Not Found",
            Self::MethodNotAllowed => "405 Method Not Allowed",
            Self::Timeout => "408 Request Timeout",
            Self::Misdirected => "421 Misdirected Request",
            Self::HeadTooLarge => "431 Request Header Fields Too Large",
            Self::Failed => "500 Internal Server Error",
            Self::Unavailable => "503 Service Unavailable",
            Self::Late => "504 Gateway Timeout",
        }
    }

    /// What a person reads in the body.
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::BadRequest => "This is no request of HTTP/1.1.",
            Self::Unauthorized => "The console wants the name and the password of a user (ACL).",
            Self::Forbidden => "This is not allowed.",
            Self::NotFound => "There is no such page; /metrics, /health and /ready are served.",
            Self::MethodNotAllowed => "Only GET and HEAD are answered.",
            Self::Timeout => "The head of the request took too long.",
            Self::Misdirected => "The console is not served by this name; use localhost, 127.0.0.1 or [::1].",
            Self::HeadTooLarge => "The head of the request is too long.",
            Self::Failed => "This is a bug, which the log describes; please report it.",
            Self::Unavailable => "Not now.",
            Self::Late => "The server took too long.",
        }
    }
}

/// The media type of sentences.
const PLAIN: &str = "text/plain; charset=utf-8";

/// An answer.
#[derive(Debug)]
pub struct Response {
    /// Its outcome.
    pub status: Status,
    /// The media type of the body.
    pub content_type: &'static str,
    /// The body.
    pub body: String,
    /// More headers, each with its line end.
    pub headers: &'static str,
}

impl Response {
    /// A page of this media type.
    pub fn page(content_type: &'static str, body: String) -> Self {
        Self { status: Status::Ok, content_type, body, headers: "" }
    }

    /// A sentence for a person.
    pub fn sentence(status: Status, sentence: &str) -> Self {
        Self { status, content_type: PLAIN, body: format!("{sentence}\n"), headers: "" }
    }

    /// The same with the sentence of the status.
    pub fn of(status: Status) -> Self {
        Self::sentence(status, status.sentence())
    }

    /// Its bytes; without the body for HEAD, whose header has the length of the body that GET would get.
    pub fn bytes(&self, is_head: bool, closes: bool) -> Vec<u8> {
        let mut text = String::with_capacity(256 + if is_head { 0 } else { self.body.len() });
        // Writing to a string cannot fail. A page shows the present: no cache keeps it.
        let _ = write!(
            text,
            "HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nCache-Control: no-store\r\n\
             X-Content-Type-Options: nosniff\r\n",
            self.status.line(),
            self.content_type,
            self.body.len()
        );
        if self.status == Status::MethodNotAllowed {
            text.push_str("Allow: GET, HEAD\r\n");
        }
        if self.status == Status::Unauthorized {
            text.push_str("WWW-Authenticate: Basic realm=\"Duramen\", charset=\"UTF-8\"\r\n");
        }
        text.push_str(self.headers);
        if closes {
            text.push_str("Connection: close\r\n");
        }
        text.push_str("\r\n");
        if !is_head {
            text.push_str(&self.body);
        }
        text.into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_has_the_length_of_the_body_and_no_body() {
        let response = Response::of(Status::MethodNotAllowed);
        let (whole, head) = (response.bytes(false, true), response.bytes(true, true));
        let (whole, head) = (String::from_utf8(whole).unwrap(), String::from_utf8(head).unwrap());
        assert_eq!(whole, format!("{head}Only GET and HEAD are answered.\n"));
        assert!(
            head.starts_with("HTTP/1.1 405 Method Not Allowed\r\n") && head.ends_with("\r\n\r\n"),
            "{head}"
        );
        assert!(
            head.contains("\r\nContent-Length: 32\r\n") && head.contains("\r\nAllow: GET, HEAD\r\n"),
            "{head}"
        );
        assert!(head.contains("\r\nConnection: close\r\n"), "{head}");
    }
}
