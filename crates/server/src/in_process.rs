//! In-process clients: connections for jobs of continuous SQL in the server's own process, and for the console.

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Weak};

use crate::acl::User;
use crate::clients::Origin;
use crate::hosted_jobs::{JobProgress, JobState};
use crate::net::{Message, Stream};
use crate::server::Server;

/// Connects to the server within its process, without a password. It does not keep the server alive.
#[derive(Clone)]
pub struct InProcessClient(Weak<Server>);

impl InProcessClient {
    /// To this server.
    pub(crate) fn of(server: &Arc<Server>) -> Self {
        Self(Arc::downgrade(server))
    }

    fn server(&self) -> io::Result<Arc<Server>> {
        self.0.upgrade().ok_or_else(|| io::Error::new(io::ErrorKind::NotConnected, "the server has ended"))
    }

    /// Connects a new client that speaks Redis's protocol, and returns its end of the connection.
    ///
    /// # Errors
    /// When the server has ended, and errors of `socketpair`.
    pub fn connect(&self) -> io::Result<UnixStream> {
        connect(&*self.server()?, "process:0".to_owned(), None)
    }

    /// Reports the plan of the named job, a text of lines.
    pub fn report_plan(&self, name: &str, plan: &str) {
        if let Ok(server) = self.server() {
            server.hosted_jobs.report_plan(name, plan);
        }
    }

    /// Reports the state of the named job, with one line about it. Without numbers it keeps its last ones.
    pub fn report(&self, name: &str, state: JobState, text: &str, progress: Option<JobProgress>) {
        if let Ok(server) = self.server() {
            server.hosted_jobs.report(name, state, text, progress);
        }
    }
}

/// Connects a new client, as this user or with all rights, and returns its end of the connection. CLIENT LIST shows it
/// with this address.
///
/// # Errors
/// Those of `socketpair`.
pub(crate) fn connect(server: &Server, address: String, user: Option<Arc<User>>) -> io::Result<UnixStream> {
    let (here, there) = UnixStream::pair()?;
    there.set_nonblocking(true)?;
    let stream = Stream::Unix(mio::net::UnixStream::from_std(there));
    let worker = server.clients.count() % server.inboxes.len();
    let client = server.clients.enter(Origin {
        worker,
        address,
        address_local: "process:0".to_owned(),
        unix: true,
        descriptor: stream.descriptor(),
        // Redis's protocol is the first.
        mark: 0,
        trusted: user.is_none(),
        user,
    });
    server.inboxes[worker].send(Message::Connection(stream, client));
    Ok(here)
}
