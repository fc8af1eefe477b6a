//! The head of a request.

use super::response::Status;

/// The longest head of a request. Prometheus sends some 300 bytes.
pub const HEAD_BYTES_MAX: usize = 8 << 10;
// As many as nginx and Apache take by default, or fewer; a scraper sends about six.
const HEADERS_MAX: usize = 64;

/// A request without its body.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// HEAD: the answer is sent without its body.
    pub is_head: bool,
    /// The path, without the query.
    pub path: String,
    /// What follows the question mark.
    pub query: String,
    /// The header `Accept`, all of them with commas between.
    pub accept: String,
    /// The header `Host`.
    pub host: String,
    /// The header `Authorization`.
    pub authorization: String,
    /// The header `Sec-Fetch-Site`: where a browser says that the page comes from which asks.
    pub fetch_site: String,
    /// The connection is closed after the answer.
    pub closes: bool,
}

/// What the bytes so far are.
#[derive(Debug, PartialEq, Eq)]
pub enum Parsed {
    /// The head is not complete.
    Partial,
    /// A request, and the length of its head.
    Whole(Request, usize),
    /// No request that is answered; the connection is closed after this status.
    Refused(Status),
}

/// Reads the head at the beginning of `bytes`.
pub fn parse(bytes: &[u8]) -> Parsed {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut head = httparse::Request::new(&mut headers);
    let len = match head.parse(bytes) {
        Ok(httparse::Status::Complete(len)) if len <= HEAD_BYTES_MAX => len,
        Ok(httparse::Status::Partial) if bytes.len() < HEAD_BYTES_MAX => return Parsed::Partial,
        Ok(_) | Err(httparse::Error::TooManyHeaders) => return Parsed::Refused(Status::HeadTooLarge),
        Err(_) => return Parsed::Refused(Status::BadRequest),
    };
    let (Some(method), Some(target), Some(version)) = (head.method, head.path, head.version) else {
        return Parsed::Refused(Status::BadRequest);
    };
    let values = |name: &'static str| {
        let same = head.headers.iter().filter(move |header| header.name.eq_ignore_ascii_case(name));
        same.map(|header| std::str::from_utf8(header.value).unwrap_or_default().trim())
    };
    // RFC 9112, section 3.2: exactly one Host in HTTP/1.1.
    if version == 1 && values("host").count() != 1 {
        return Parsed::Refused(Status::BadRequest);
    }
    let is_head = match method {
        "GET" => false,
        "HEAD" => true,
        _ => return Parsed::Refused(Status::MethodNotAllowed),
    };
    // In absolute form the target begins with the scheme and the host.
    let target = match target.split_once("://") {
        Some((scheme, rest)) if !scheme.contains('/') => rest.find('/').map_or("/", |at| &rest[at..]),
        _ => target,
    };
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let has_body =
        values("content-length").any(|length| length != "0") || values("transfer-encoding").count() > 0;
    let says = |word: &str| {
        values("connection")
            .flat_map(|value| value.split(','))
            .any(|own| own.trim().eq_ignore_ascii_case(word))
    };
    let closes = has_body || says("close") || version == 0 && !says("keep-alive");
    let accept = values("accept").collect::<Vec<_>>().join(",");
    let first = |name| values(name).next().unwrap_or_default().to_owned();
    let (host, authorization, fetch_site) = (first("host"), first("authorization"), first("sec-fetch-site"));
    // A header twice is of no client that means well: none of them counts.
    let authorization = if values("authorization").count() > 1 { "?".to_owned() } else { authorization };
    let (path, query) = (path.to_owned(), query.to_owned());
    Parsed::Whole(Request { is_head, path, query, accept, host, authorization, fetch_site, closes }, len)
}

impl Request {
    /// How much the client wants this media type, from 0 (not at all) to 1; types with wildcards do not count.
    pub fn quality(&self, wanted: &str) -> f64 {
        let of = |range: &str| {
            let mut parts = range.split(';').map(str::trim);
            parts.next().filter(|name| name.eq_ignore_ascii_case(wanted))?;
            let quality = parts.find_map(|part| part.strip_prefix("q=")?.parse::<f64>().ok());
            Some(quality.unwrap_or(1.0))
        };
        self.accept.split(',').filter_map(of).fold(0.0, f64::max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(text: &str) -> Request {
        match parse(text.as_bytes()) {
            Parsed::Whole(request, len) if len == text.len() => request,
            other => panic!("{text:?}: {other:?}"),
        }
    }

    #[test]
    fn a_head_is_read_once_it_is_whole() {
        let text =
            "GET /metrics?name=x HTTP/1.1\r\nHost: a\r\nAccept: text/plain\r\naccept: */*;q=0.1\r\n\r\n";
        for end in 0..text.len() {
            assert_eq!(parse(&text.as_bytes()[..end]), Parsed::Partial, "{end}");
        }
        let found = request(text);
        assert_eq!((found.path.as_str(), found.query.as_str(), found.is_head), ("/metrics", "name=x", false));
        assert_eq!((found.accept.as_str(), found.closes), ("text/plain,*/*;q=0.1", false));
        assert_eq!(request("HEAD http://host:1/ready HTTP/1.1\r\nHost: a\r\n\r\n").path, "/ready");
        assert_eq!(request("GET http://host HTTP/1.1\r\nHost: a\r\n\r\n").path, "/");
        assert_eq!(request("GET /a://b HTTP/1.1\r\nHost: a\r\n\r\n").path, "/a://b");
    }

    #[test]
    fn connections_stay_open_unless_the_client_or_a_body_ends_them() {
        for (text, closes) in [
            ("GET / HTTP/1.1\r\nHost: a\r\n\r\n", false),
            ("GET / HTTP/1.1\r\nHost: a\r\nConnection: x, Close\r\n\r\n", true),
            ("GET / HTTP/1.0\r\n\r\n", true),
            ("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", false),
            ("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n", false),
            ("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 7\r\n\r\n", true),
            ("GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", true),
        ] {
            assert_eq!(request(text).closes, closes, "{text:?}");
        }
    }

    #[test]
    fn what_is_no_request_or_too_much_is_refused() {
        let long = format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "x".repeat(HEAD_BYTES_MAX));
        let many = format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "A: b\r\n".repeat(HEADERS_MAX));
        for (text, status) in [
            ("POST / HTTP/1.1\r\nHost: a\r\n\r\n", Status::MethodNotAllowed),
            ("GET / HTTP/1.1\r\n\r\n", Status::BadRequest),
            ("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", Status::BadRequest),
            ("GET /\0 HTTP/1.1\r\n", Status::BadRequest),
            ("PRI * HTTP/2.0\r\n\r\n", Status::BadRequest),
            ("*1\r\n$4\r\nPING\r\n", Status::BadRequest),
            (&long, Status::HeadTooLarge),
            (&long[..HEAD_BYTES_MAX], Status::HeadTooLarge),
            (&many, Status::HeadTooLarge),
        ] {
            assert_eq!(parse(text.as_bytes()), Parsed::Refused(status), "{:.60}", text.escape_debug());
        }
    }

    #[test]
    fn the_quality_of_a_type_is_the_one_that_the_client_names() {
        let of = |accept: &str| {
            let accept = accept.to_owned();
            Request { accept, ..Request::default() }
        };
        let found = of("application/openmetrics-text;version=1.0.0;q=0.8, Text/Plain;q=0.5,*/*;q=0.1");
        assert_eq!(found.quality("application/openmetrics-text"), 0.8);
        assert_eq!(found.quality("text/plain"), 0.5);
        assert_eq!(found.quality("text/html"), 0.0);
        assert_eq!(of("text/plain").quality("text/plain"), 1.0);
    }
}
