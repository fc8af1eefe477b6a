//! A console: a page that shows the server and reads keys, directive `duramen-console`, at the address of the metrics.
//!
//! The page is three files of this program. Its data comes as JSON from the paths below `/api/`:
//!
//! | module | is about |
//! |---|---|
//! | [`gate`] | who may ask: the name of the host, other sites, users |
//! | [`query`] | the parameters of a path |
//! | [`overview`] | numbers of the process, and jobs of SQL: those of `/metrics` |
//! | [`link`] | the connection on which the others run commands |
//! | [`keys`] | SCAN, and keys by type |
//! | [`value`] | one key, a part at a time |
//! | [`lists`] | the slow log, and clients |
//! | [`text`] | bytes as text |
//!
//! **Invariant 1**: nothing is written. Only GET and HEAD are answered, and [`link`] runs commands that read. **Invariant
//! 2**: keys and values are read by commands of a client that is logged in as the asking user, so the ACL holds.
//! **Invariant 3**: what one request takes is bounded, in keys, bytes and time. **Invariant 4**: text of users is data of
//! JSON, never a part of the page.

mod gate;
mod keys;
mod link;
mod lists;
mod overview;
mod query;
mod text;
mod value;

use crate::acl::{Login, User};
use crate::in_process;
use crate::metrics::facts::BlockCache;
use crate::metrics::http::{Answer, Request, Response, Status};
use crate::server::Server;
use link::{Failed, Link};
use query::Query;
use serde_json::{Value, json};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

/// Headers of every answer: the page runs no script and loads nothing but its own files, and stands in no other page.
const HEADERS: &str = "Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; connect-src \
                       'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n\
                       Referrer-Policy: no-referrer\r\n\
                       Cross-Origin-Resource-Policy: same-origin\r\n\
                       Cross-Origin-Opener-Policy: same-origin\r\n\
                       Vary: Authorization\r\n";

const JSON: &str = "application/json; charset=utf-8";

/// The files of the page: path, media type and text.
const FILES: [(&str, &str, &str); 3] = [
    ("/", "text/html; charset=utf-8", include_str!("page/console.html")),
    ("/console.css", "text/css; charset=utf-8", include_str!("page/console.css")),
    ("/console.js", "text/javascript; charset=utf-8", include_str!("page/console.js")),
];

/// A path below `/api/`.
enum Api {
    /// It is answered from memory, if the user may run INFO.
    Numbers(fn(&Seen<'_>) -> Value),
    /// It runs commands.
    Commands(fn(&mut Link, &Query) -> Result<Value, Failed>),
}

/// The paths below `/api/`, with the names of their parameters.
const API: [(&str, &[&str], Api); 7] = [
    ("overview", &[], Api::Numbers(overview::numbers)),
    ("jobs", &[], Api::Numbers(overview::jobs)),
    ("keys", &["db", "match", "type", "cursor"], Api::Commands(keys::list)),
    ("types", &["db", "cursor"], Api::Commands(keys::types)),
    ("value", &["db", "key", "cursor"], Api::Commands(value::read)),
    ("slowlog", &[], Api::Commands(lists::slow_log)),
    ("clients", &[], Api::Commands(lists::clients)),
];

/// What the console sees of a server.
pub struct Seen<'a> {
    /// The server.
    pub server: &'a Arc<Server>,
    /// Its last count of blocks.
    pub blocks: &'a BlockCache,
    /// Why clients may not write now.
    pub why_not_ready: Option<String>,
}

/// See the module.
pub struct Console {
    is_loopback: bool,
}

impl Console {
    /// Threads that run commands: a page asks for one or two things at a time.
    pub const THREADS: usize = 4;

    /// On an address that only this machine reaches, or on another one.
    pub const fn new(is_loopback: bool) -> Self {
        Self { is_loopback }
    }

    /// The answer to a request; `seen` is there while clients are served.
    pub fn answer(&self, request: &Request, client: IpAddr, seen: Option<Seen<'_>>) -> Answer {
        let mut answer = self.answer_plain(request, client, seen);
        if let Answer::Now(response) | Answer::After(_, response) = &mut answer {
            response.headers = HEADERS;
        }
        answer
    }

    fn answer_plain(&self, request: &Request, client: IpAddr, seen: Option<Seen<'_>>) -> Answer {
        let path = request.path.as_str();
        let api = path.strip_prefix("/api/").and_then(|name| API.iter().find(|(known, ..)| *known == name));
        let file = FILES.iter().find(|(known, ..)| *known == path);
        if api.is_none() && file.is_none() {
            return Response::of(Status::NotFound).into();
        }
        if let Err(status) = gate::check_origin(request, api.is_some()) {
            return Response::of(status).into();
        }
        let Some(seen) = seen else {
            return Response::sentence(Status::Unavailable, "The server starts or ends.").into();
        };
        let user = match gate::log_in(seen.server, request, client, self.is_loopback) {
            Ok(user) => user,
            Err(answer) => return answer,
        };
        if let Some((_, content_type, text)) = file {
            return Response::page(content_type, (*text).to_owned()).into();
        }
        let Some((_, names, api)) = api else { return Response::of(Status::NotFound).into() };
        let query = match Query::parse(&request.query, names) {
            Ok(query) => query,
            Err(why) => return refused(Status::BadRequest, &why).into(),
        };
        match api {
            Api::Numbers(numbers) => {
                let users = &seen.server.users;
                if !Login::of(Arc::clone(&user), users).may(users, "info", None) {
                    return refused(Status::Forbidden, "this user has no right to the command INFO").into();
                }
                page(&numbers(&seen)).into()
            }
            Api::Commands(run) => work(seen.server, user, client, *run, query),
        }
    }
}

/// Runs commands as this user, on another thread.
fn work(
    server: &Server,
    user: Arc<User>,
    client: IpAddr,
    run: fn(&mut Link, &Query) -> Result<Value, Failed>,
    query: Query,
) -> Answer {
    // Here, where the server cannot end meanwhile.
    let stream = in_process::connect(server, format!("console:{client}:0"), Some(user));
    let asked_at = Instant::now();
    Answer::Work(Box::new(move || {
        let result = stream.map_err(|_| Failed::Ended).and_then(|stream| Link::new(stream, asked_at));
        let mut response = match result.and_then(|mut link| run(&mut link, &query)) {
            Ok(value) => page(&value),
            Err(failed) => refused(failed.status(), &failed.to_string()),
        };
        response.headers = HEADERS;
        response
    }))
}

fn page(value: &Value) -> Response {
    Response::page(JSON, value.to_string())
}

/// An error, which the page shows.
fn refused(status: Status, why: &str) -> Response {
    Response { status, ..page(&json!({"error": why})) }
}
