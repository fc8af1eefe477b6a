//! memcached's protocols without sockets, for the fuzz targets.

use super::connection_state::ConnectionState;
use super::service::Service;
use super::shared::Shared;
use crate::acl::{Login, Users};
use crate::clients::Origin;
use crate::config::Config;
use crate::net::Output;
use crate::server::{Server, Stop};
use duramen::{MediumKind, Options};
use duramen_structures::{Keyspace, Worker};
use mio::{Poll, Token, Waker};
use std::sync::Arc;

// Some time, so that the same bytes have the same replies.
const NOW_MILLIS: u64 = 1_700_000_000_000;
const MARK: u8 = 0;

/// A server without connections, on volatile memory.
pub struct Offline {
    service: Service,
    worker: Worker,
    server: Arc<Server>,
    config: Arc<Config>,
    // The waker's.
    _poll: Poll,
}

impl Offline {
    /// An empty one.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn new() -> Result<Self, Box<dyn std::error::Error>> {
        let poll = Poll::new()?;
        let stop = Arc::new(Stop::new(Waker::new(poll.registry(), Token(0))?));
        let options = Options { medium: MediumKind::Volatile, background: false, ..Options::default() };
        let keyspace = Keyspace::open(options.open("volatile")?, 1)?;
        let shared = Arc::new(Shared::open(&keyspace, None, 1)?);
        let worker = keyspace.worker()?;
        let config = Config::default();
        let memcached = Some(Arc::clone(&shared));
        let users = Users::nobody();
        let server =
            Arc::new(Server::new(config, keyspace, memcached, Vec::new(), stop, String::new(), users));
        let service = Service::new(Arc::clone(&server), shared, 0);
        Ok(Self { service, worker, config: server.config(), server, _poll: poll })
    }

    /// The replies to a new connection that sends `input` in pieces of this size. All items are deleted afterwards.
    ///
    /// # Errors
    /// Those of the store.
    pub fn replies(
        &mut self,
        input: &[u8],
        piece_bytes: usize,
    ) -> Result<Vec<u8>, duramen_structures::Error> {
        let client = self.server.clients.enter(Origin {
            worker: 0,
            address: String::new(),
            address_local: String::new(),
            unix: false,
            descriptor: -1,
            mark: MARK,
            trusted: false,
            user: None,
        });
        let id = client.id;
        let mut connection = ConnectionState::new(client, Login::trusted(), true);
        let mut output = Output::default();
        let (mut start, mut end) = (0, 0);
        self.worker.group();
        self.service.begin_turn(&mut self.worker, NOW_MILLIS);
        while !connection.closing {
            if start < end
                && let Some(bytes) = self.service.execute(
                    &mut self.worker,
                    &mut connection,
                    &input[start..end],
                    &mut output,
                    &self.config,
                )
            {
                assert!(bytes > 0 && bytes <= end - start, "a request is within the received bytes");
                start += bytes;
                continue;
            }
            if end == input.len() {
                break;
            }
            end = (end + piece_bytes.max(1)).min(input.len());
        }
        assert!(!self.service.panicked(), "a command panicked");
        self.worker.flush_group()?;
        self.service.finish_turn();
        self.server.clients.leave(id);
        self.worker.flush(self.server.keyspace.items())?;
        if let Some(shared) = &self.server.memcached {
            shared.flush_at(None);
        }
        Ok(output.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::cell::RefCell;

    /// Lines and packets as clients send them, or nearly.
    fn requests() -> impl Strategy<Value = Vec<u8>> {
        let text = prop::sample::select(vec![
            "get a b\r\n",
            "gets a\r\n",
            "set a 1 0 3\r\nabc\r\n",
            "set a 0 0 3 noreply\r\n123\r\n",
            "add b 0 0 0\r\n\r\n",
            "cas a 0 0 1 1025\r\nx\r\n",
            "append a 0 0 2\r\nzz\r\n",
            "incr a 1\r\n",
            "decr a 5\r\n",
            "touch a 10\r\n",
            "gat 10 a\r\n",
            "delete a\r\n",
            "mg a v t f c k s Oxy\r\n",
            "ms a 2 c T5\r\nhi\r\n",
            "md a I\r\n",
            "ma b N0 J5 v\r\n",
            "me a\r\n",
            "mn\r\n",
            "flush_all\r\n",
            "set big 0 0 2000000\r\n",
            "ms a 2 x\r\nhi\r\n",
            "set a 0 0 3\r\nabcdef\r\n",
            "version\r\n",
            "\r\n",
            "set a 0 0 -1\r\n",
            "bogus a b\n",
        ]);
        let bytes = prop::collection::vec(any::<u8>(), 0..40);
        let packet = (0u8..0x26, 0u8..3, 0u8..21, 0u8..4, any::<u8>()).prop_map(
            |(opcode, key, extras, value, byte)| {
                let body = key + extras + value;
                let mut bytes = vec![0x80, opcode, 0, key, extras, 0, 0, 0, 0, 0, 0, body];
                bytes.extend_from_slice(&[byte % 2; 12]);
                bytes.resize(24 + usize::from(body), byte);
                bytes
            },
        );
        let lines = prop::collection::vec(
            prop_oneof![8 => text.prop_map(|text| text.as_bytes().to_vec()), 1 => bytes],
            1..12,
        );
        prop_oneof![lines, prop::collection::vec(packet, 1..12)].prop_map(|parts| parts.concat())
    }

    #[test]
    fn replies_do_not_depend_on_how_requests_arrive() {
        let servers = RefCell::new([Offline::new().unwrap(), Offline::new().unwrap()]);
        let mut runner = proptest::test_runner::TestRunner::default();
        runner
            .run(&(requests(), 1usize..30), |(input, piece)| {
                // Longer lines without an end are another matter: how much of them has arrived decides.
                let input = &input[..input.len().min(2000)];
                let [whole, parts] = &mut *servers.borrow_mut();
                let at_once = whole.replies(input, input.len()).unwrap();
                prop_assert_eq!(at_once, parts.replies(input, piece).unwrap());
                Ok(())
            })
            .unwrap();
    }
}
