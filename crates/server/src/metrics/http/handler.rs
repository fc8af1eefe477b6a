//! The interface to what answers requests.

use super::request::Request;
use super::response::Response;

/// What is served.
pub trait Site: Send {
    /// The answer to a request, at once: it holds up all others.
    fn answer(&self, request: &Request) -> Response;
}
