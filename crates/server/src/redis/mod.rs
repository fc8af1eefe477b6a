//! The Redis protocol on the event loop: requests are found by [`resp`] and executed by [`dispatch`].
//!
//! | module | is about |
//! |---|---|
//! | [`resp`] | the protocol: bytes to commands, values to bytes |
//! | [`dispatch`] | from a command's arguments to its reply: admit, plan, apply, publish |
//! | [`command`] | what each command does |
//! | [`blocking`], [`tracking`] | clients that wait for keys, and clients that keep copies of them |
//! | [`session`], [`worker_state`] | the state that commands may use, of a connection and of a worker |

pub mod blocking;
pub mod command;
mod conversation;
pub mod dispatch;
pub mod resp;
pub mod session;
pub mod tracking;
pub mod worker_state;

use crate::clients::Client;
use crate::command_error::CommandError;
use crate::config::Config;
use crate::messages::{Content, Message};
use crate::net::{Output, Place, Protocol, Refusal, Turn};
use crate::observe::stats::WorkerStats;
use crate::server::Server;
use command::{Args, Table, table, table_renamed};
use conversation::Conversation;
use dispatch::Dispatcher;
use resp::{Limits, Reply, Request, Requests};
use session::Session;
use std::sync::Arc;
use std::sync::atomic::Ordering;

const TOO_MANY: &[u8] = b"-ERR max number of clients reached\r\n";
const PROTECTED: &[u8] = b"-DENIED Redis is running in protected mode because protected mode is enabled and no \
password is set for the default user. In this mode connections are only accepted from the loopback interface. If \
you want to connect from external computers to Redis you may adopt one of the following solutions: 1) Just disable \
protected mode sending the command 'CONFIG SET protected-mode no' from the loopback interface by connecting to \
Redis from the same host the server is running, however MAKE SURE Redis is not publicly accessible from internet \
if you do so. Use CONFIG REWRITE to make this change permanent. 2) Alternatively you can just disable the \
protected mode by editing the Redis configuration file, and setting the protected mode option to 'no', and then \
restarting the server. 3) If you started the server manually just for testing, restart it with the \
'--protected-mode no' option. 4) Setup a an authentication password for the default user. NOTE: You only need to do \
one of the above things in order for the server to start accepting connections from the outside.\r\n";

/// The Redis protocol, as one worker has it.
pub struct Redis {
    dispatcher: Dispatcher,
    server: Arc<Server>,
    stats: Arc<WorkerStats>,
}

/// The commands by the names that they have here.
fn commands(server: &Server) -> &'static Table {
    // The start has checked the names.
    table_renamed(&server.config().renamed_commands).unwrap_or_else(|_| table())
}

impl Protocol for Redis {
    type Conversation = Conversation;

    fn places(config: &Config) -> Vec<Place<'_>> {
        let plain = Place {
            mark: 0,
            bind: &config.bind,
            port: config.port,
            is_tls: false,
            unixsocket: &config.unixsocket,
            directives: ["--port", "--unixsocket"],
        };
        let tls = Place {
            port: config.tls_port,
            is_tls: true,
            unixsocket: "",
            directives: ["--tls-port", ""],
            ..plain
        };
        vec![plain, tls]
    }

    fn refusal(why: Refusal, _: u8) -> &'static [u8] {
        match why {
            Refusal::TooMany => TOO_MANY,
            Refusal::Protected => PROTECTED,
        }
    }

    fn new(server: &Arc<Server>, worker: usize) -> Self {
        let stats = Arc::clone(&server.stats[worker]);
        let dispatcher = Dispatcher::new(Arc::clone(server), Arc::clone(&stats), worker, commands(server));
        Self { dispatcher, server: Arc::clone(server), stats }
    }

    fn conversation(&self, client: Arc<Client>, _: u8) -> Conversation {
        Conversation {
            session: Session::of_client(client, &self.server.users),
            requests: Requests::default(),
        }
    }

    fn identify(&self, conversation: &mut Conversation, name: &[u8]) {
        let users = &self.server.users;
        if let Some(user) = users.find(name).filter(|user| user.rules().is_on()) {
            conversation.session.log_in(user, users);
        }
    }

    #[inline]
    fn execute(
        &mut self,
        turn: &mut Turn,
        conversation: &mut Conversation,
        input: &[u8],
        output: &mut Output,
        config: &Config,
    ) -> Option<usize> {
        let Conversation { session, requests } = conversation;
        let limits =
            Limits { bulk_bytes_max: config.proto_max_bulk_len, authenticated: session.authenticated };
        match requests.next(input, &limits) {
            Ok(Request::Command { bytes }) => {
                let (mut bytes, mut merged) = (bytes, 1);
                let dispatcher = &mut self.dispatcher;
                if bytes < input.len() && dispatcher.merges(session, Args::of(requests, input)) {
                    (merged, bytes) =
                        dispatcher.merge(turn, session, requests, input, &limits).unwrap_or((1, bytes));
                }
                let args = Args::of(requests, input);
                let is_done = match session.client.no_touch.load(Ordering::Relaxed)
                    && !dispatcher.is_touch(args)
                {
                    false => dispatcher.execute(turn, session, args, merged, output),
                    true => duramen::uncounted(|| dispatcher.execute(turn, session, args, merged, output)),
                };
                // A held connection retries.
                Some(if is_done { bytes } else { 0 })
            }
            Ok(Request::Nothing { bytes }) => Some(bytes),
            Ok(Request::Incomplete { .. }) => None,
            Err(error) => {
                self.stats.error("ERR");
                Reply::new(output, session.protocol).error(format!("ERR Protocol error: {error}"));
                session.closing = true;
                Some(input.len())
            }
        }
    }

    fn answer_meanwhile(
        server: &Server,
        conversation: &mut Conversation,
        input: &[u8],
        output: &mut Output,
        config: &Config,
    ) -> Option<usize> {
        let Conversation { session, requests } = conversation;
        let limits =
            Limits { bulk_bytes_max: config.proto_max_bulk_len, authenticated: session.authenticated };
        match requests.next(input, &limits) {
            Ok(Request::Command { bytes }) => {
                let args = Args::of(requests, input);
                command::scripting::answer_meanwhile(commands(server), server, session, args, output)
                    .then_some(bytes)
            }
            Ok(Request::Nothing { bytes }) => Some(bytes),
            // The rest, and the error, when the worker is free.
            Ok(Request::Incomplete { .. }) | Err(_) => None,
        }
    }

    fn refuse(conversation: &mut Conversation, failure: &CommandError, output: &mut Output) {
        Reply::new(output, conversation.session.protocol).error(failure.text());
        conversation.session.closing = true;
    }

    #[inline]
    fn look_ahead(&mut self, turn: &mut Turn, conversation: &Conversation, input: &[u8]) -> usize {
        self.dispatcher.look_ahead(turn, &conversation.session, input)
    }

    fn begin_turn(&mut self, turn: &mut Turn) {
        self.dispatcher.begin_turn(turn);
    }

    fn end_turn(&mut self, turn: &mut Turn) {
        self.dispatcher.end_turn(turn);
    }

    fn finish_turn(&mut self, flushed: Result<(), &CommandError>) {
        self.dispatcher.finish_turn(flushed);
    }

    fn has_work(&self) -> bool {
        self.dispatcher.has_work()
    }

    fn receivers(&self, message: &Message, clients: &mut Vec<u64>) {
        self.dispatcher.worker_state().subscribers.receivers(message, clients);
    }

    fn undeliverable(&mut self, message: &Message) {
        if let Content::Reply { put_back: Some(put_back), .. } = &message.content {
            self.dispatcher.put_back(put_back);
        }
    }

    fn expire(&mut self, conversation: &mut Conversation, output: &mut Output) {
        self.dispatcher.expire(&mut conversation.session, output);
    }

    fn leave(&mut self, conversation: &mut Conversation) {
        self.dispatcher.leave(&mut conversation.session);
    }
}
