//! The paths `/metrics`, `/health` and `/ready`, and those of the console.

use super::facts::{BlockCache, Facts};
use super::family::{self, Format, OPEN_METRICS};
use super::http::{Answer, Request, Response, Site, Status};
use super::table::families;
use crate::console::{Console, Seen};
use crate::hosted_jobs::HostedJobs;
use crate::server::Server;
use std::net::IpAddr;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

/// What the process does.
pub enum Phase {
    /// The store is opened, and recovered if it must be.
    Loading,
    /// Clients are served.
    Server(Arc<Server>),
    /// Clients are gone, and the store is closed.
    Closing,
    /// Jobs of SQL run, and no server.
    Jobs(Arc<HostedJobs>),
}

/// The process as the metrics see it. It is told what the process does, and answers from that.
pub struct Observed {
    phase: RwLock<Phase>,
    blocks: BlockCache,
    console: Option<Console>,
}

impl Observed {
    /// A process in this phase.
    pub fn new(phase: Phase) -> Arc<Self> {
        Self::with(phase, None)
    }

    /// The same, perhaps with a console.
    pub fn with(phase: Phase, console: Option<Console>) -> Arc<Self> {
        Arc::new(Self { phase: RwLock::new(phase), blocks: BlockCache::default(), console })
    }

    /// Another phase begins. When this returns, nothing of the one before is used any more.
    pub fn enter(&self, phase: Phase) {
        *self.phase.write().unwrap_or_else(PoisonError::into_inner) = phase;
    }

    fn phase(&self) -> RwLockReadGuard<'_, Phase> {
        self.phase.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn metrics(&self, format: Format) -> Response {
        let phase = self.phase();
        let is_ready = why_not_ready(&phase).is_none();
        let facts = match &*phase {
            Phase::Server(server) => {
                Facts::now(Some((server, &self.blocks)), is_ready, server.hosted_jobs.reports())
            }
            Phase::Jobs(jobs) => Facts::now(None, is_ready, jobs.reports()),
            Phase::Loading | Phase::Closing => Facts::now(None, is_ready, Vec::new()),
        };
        match family::text(families(), &facts, format) {
            Ok(text) => Response::page(format.content_type(), text),
            Err(error) => Response::sentence(Status::Unavailable, &error.to_string()),
        }
    }
}

/// Why clients may not write now; `None` if they may.
fn why_not_ready(phase: &Phase) -> Option<String> {
    let server = match phase {
        Phase::Loading => {
            return Some("loading: the store is being opened, and recovered if it must be".to_owned());
        }
        Phase::Closing => return Some("shutting down: the store is being closed".to_owned()),
        Phase::Jobs(_) => return None,
        Phase::Server(server) => server,
    };
    if server.stop.is_requested() {
        return Some("shutting down: clients are being disconnected".to_owned());
    }
    if let Err(error) = server.keyspace.store().check_writable() {
        return Some(format!("poisoned store: {error}"));
    }
    server
        .is_full()
        .then(|| "no room: writes are refused until keys are deleted or maxmemory is raised".to_owned())
}

impl Site for Arc<Observed> {
    fn threads(&self) -> usize {
        if self.console.is_some() { Console::THREADS } else { 0 }
    }

    fn answer(&self, request: &Request, client: IpAddr) -> Answer {
        let response = match request.path.as_str() {
            "/metrics" => {
                let open = request.quality(OPEN_METRICS);
                let is_open = open > 0.0 && open >= request.quality("text/plain");
                self.metrics(if is_open { Format::OpenMetrics } else { Format::Prometheus })
            }
            "/health" => Response::of(Status::Ok),
            "/ready" => match why_not_ready(&self.phase()) {
                None => Response::sentence(Status::Ok, "ready"),
                Some(why) => Response::sentence(Status::Unavailable, &why),
            },
            _ => {
                let Some(console) = &self.console else { return Response::of(Status::NotFound).into() };
                let phase = self.phase();
                let why = why_not_ready(&phase);
                let seen = match &*phase {
                    Phase::Server(server) => Some(Seen { server, blocks: &self.blocks, why_not_ready: why }),
                    Phase::Loading | Phase::Closing | Phase::Jobs(_) => None,
                };
                return console.answer(request, client, seen);
            }
        };
        response.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn a_process_that_loads_or_closes_is_healthy_and_not_ready() {
        let observed = Observed::new(Phase::Loading);
        let get = |path: &str| {
            let accept = "application/openmetrics-text".to_owned();
            let request = Request { path: path.to_owned(), accept, ..Request::default() };
            match observed.answer(&request, Ipv4Addr::LOCALHOST.into()) {
                Answer::Now(response) => (response.status, response.body),
                Answer::After(..) | Answer::Work(_) => panic!("{path} is answered at once"),
            }
        };
        for (phase, why) in [(Phase::Loading, "loading: "), (Phase::Closing, "shutting down: ")] {
            observed.enter(phase);
            let (status, body) = get("/ready");
            assert!(status == Status::Unavailable && body.starts_with(why), "{body}");
            assert_eq!(get("/health").0, Status::Ok);
            let (status, body) = get("/metrics");
            assert!(
                status == Status::Ok && body.contains("\nduramen_ready 0\n") && body.ends_with("# EOF\n"),
                "{body}"
            );
            assert!(!body.contains("duramen_clients"), "{body}");
        }
        observed.enter(Phase::Jobs(Arc::default()));
        assert_eq!(get("/ready").0, Status::Ok);
        assert_eq!(get("/console").0, Status::NotFound);
    }
}
