//! The interface to what answers requests.

use super::request::Request;
use super::response::Response;
use std::net::IpAddr;
use std::time::Duration;

/// What is served.
pub trait Site: Send {
    /// The answer to a request of this client. It comes at once, since it holds up all others, or it is a [`Answer::Work`].
    fn answer(&self, request: &Request, client: IpAddr) -> Answer;

    /// How many threads do [`Answer::Work`].
    fn threads(&self) -> usize {
        0
    }
}

/// Work of which the response comes later. It ends by itself, within seconds.
pub type Work = Box<dyn FnOnce() -> Response + Send>;

/// How a request is answered.
pub enum Answer {
    /// By this response.
    Now(Response),
    /// By this response, after this time: a wrong password.
    After(Duration, Response),
    /// By the response of some work, which another thread does.
    Work(Work),
}

impl From<Response> for Answer {
    fn from(response: Response) -> Self {
        Self::Now(response)
    }
}
