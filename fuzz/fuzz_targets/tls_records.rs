//! TLS into the event loop of a server: bytes in place of a handshake, and bytes among the records of a client that
//! has finished it. No panic; each connection ends or is served, and another one is served all the time.

#![no_main]

use libfuzzer_sys::fuzz_target;
use duramen_server::{Config, Started};
use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

type Tls = StreamOwned<ClientConnection, TcpStream>;

struct Place {
    port: u16,
    client: Arc<ClientConfig>,
    /// A connection that is served all the time.
    witness: Mutex<Tls>,
}

static PLACE: LazyLock<Place> = LazyLock::new(Place::new);

impl Place {
    fn new() -> Self {
        let directory = std::env::temp_dir().join(format!("duramen-fuzz-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a directory for the certificate");
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
        let certificate = params.self_signed(&key).expect("a certificate");
        let path = |name: &str| directory.join(name).display().to_string();
        std::fs::write(path("crt"), certificate.pem()).expect("the certificate is written");
        std::fs::write(path("key"), key.serialize_pem()).expect("the key is written");
        let port = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("its number").port();
        let started = Started::start(Config {
            port: 0,
            tls_port: port,
            bind: vec!["127.0.0.1".to_owned()],
            tls_cert_file: path("crt"),
            tls_key_file: path("key"),
            tls_auth_clients: "no".to_owned(),
            medium: duramen::MediumKind::Volatile,
            path: "volatile".into(),
            threads: 1,
            loglevel: duramen_server::log::Level::Nothing,
            ..Config::default()
        });
        let started = started.unwrap_or_else(|error| panic!("{error}"));
        std::thread::spawn(move || started.run().expect("the server runs"));
        let _ = std::fs::remove_dir_all(&directory);
        let mut roots = RootCertStore::empty();
        roots.add(certificate.der().clone()).expect("the certificate is an authority");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let client = builder.expect("the versions").with_root_certificates(roots).with_no_client_auth();
        let client = Arc::new(client);
        let witness = Mutex::new(connect(port, &client));
        Self { port, client, witness }
    }
}

fn connect(port: u16, client: &Arc<ClientConfig>) -> Tls {
    let name = ServerName::try_from("localhost").expect("a name");
    let session = ClientConnection::new(Arc::clone(client), name).expect("a session");
    let mut stream = StreamOwned::new(session, plain(port));
    while stream.conn.is_handshaking() {
        stream.conn.complete_io(&mut stream.sock).expect("a handshake");
    }
    stream
}

fn plain(port: u16) -> TcpStream {
    let socket = TcpStream::connect(("127.0.0.1", port)).expect("the server listens");
    socket.set_nodelay(true).expect("an open socket");
    socket.set_read_timeout(Some(Duration::from_secs(5))).expect("an open socket");
    socket
}

/// Sends bytes in pieces, ends the sending, at once or later, and reads what comes until the server ends too.
fn ends(mut socket: TcpStream, bytes: &[u8], piece_bytes: usize, at_once: bool) {
    for piece in bytes.chunks(piece_bytes) {
        // The server may have ended it already.
        if socket.write_all(piece).is_err() {
            break;
        }
    }
    if !at_once {
        // The server reads what there is, and then the end alone.
        std::thread::sleep(Duration::from_micros(500));
    }
    let _ = socket.shutdown(std::net::Shutdown::Write);
    let mut room = [0; 4096];
    loop {
        match socket.read(&mut room) {
            Ok(0) => break,
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => panic!("the server does not end it"),
            Err(_) => break,
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let [head, cut, input @ ..] = data else { return };
    let place = &*PLACE;
    let (piece_bytes, at_once) = (usize::from(*cut) % 61 + 1, head & 4 == 0);
    match head % 4 {
        0 => ends(plain(place.port), input, piece_bytes, at_once),
        1 => {
            // A greeting of which bytes are replaced, each by two bytes of the input: where, and by what.
            let name = ServerName::try_from("localhost").expect("a name");
            let mut hello = Vec::new();
            let mut session = ClientConnection::new(Arc::clone(&place.client), name).expect("a session");
            session.write_tls(&mut hello).expect("a greeting");
            for change in input.chunks_exact(2) {
                let at = usize::from(change[0]) * 3 % hello.len();
                hello[at] = change[1];
            }
            ends(plain(place.port), &hello, piece_bytes, at_once);
        }
        2 => {
            // After the handshake: bytes that are no record, or a wrong one.
            let stream = connect(place.port, &place.client);
            ends(stream.sock, input, piece_bytes, at_once);
        }
        _ => {
            // Requests of which the records are cut, and changed by the last bytes of the input.
            let mut stream = connect(place.port, &place.client);
            let (sent, changes) = input.split_at(input.len() / 2);
            let mut records = Vec::new();
            for part in sent.chunks(16) {
                stream.conn.writer().write_all(part).expect("room for a part");
                while stream.conn.wants_write() {
                    stream.conn.write_tls(&mut records).expect("records");
                }
            }
            for change in changes.chunks_exact(4) {
                if let Some(byte) = records.get_mut(usize::from(change[0]) << 8 | usize::from(change[1])) {
                    *byte ^= change[2];
                }
            }
            ends(stream.sock, &records, piece_bytes, at_once);
        }
    }
    let mut witness = place.witness.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    witness.write_all(b"PING\r\n").expect("the witness sends");
    let mut reply = [0; 7];
    witness.read_exact(&mut reply).expect("the witness is served");
    assert_eq!(&reply, b"+PONG\r\n");
});
