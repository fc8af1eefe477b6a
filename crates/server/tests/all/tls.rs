//! TLS: settings, certificates, and clients that misbehave.

use crate::support::{Server, eventually};
use duramen_server::Config;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::client::ResolvesClientCert;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, ClientConnection, HandshakeKind, RootCertStore, StreamOwned};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

type Tls = StreamOwned<ClientConnection, TcpStream>;

/// An authority, and the directory of its files.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    directory: tempfile::TempDir,
}

impl Authority {
    pub fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "authority");
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let authority = Self { issuer, directory: tempfile::tempdir().unwrap() };
        std::fs::write(authority.path("ca.crt"), authority.issuer.pem()).unwrap();
        authority
    }

    pub fn path(&self, name: &str) -> String {
        self.directory.path().join(name).display().to_string()
    }

    /// Writes `NAME.crt` and `NAME.key`: a certificate for a host, of this common name.
    pub fn sign(&self, name: &str, host: &str, common_name: &str) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![host.to_owned()]).unwrap();
        params.distinguished_name.push(DnType::OrganizationName, "other");
        params.distinguished_name.push(DnType::CommonName, common_name);
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        std::fs::write(self.path(&format!("{name}.crt")), certificate.pem()).unwrap();
        std::fs::write(self.path(&format!("{name}.key")), key.serialize_pem()).unwrap();
    }

    /// A client's settings, with its certificate if it has one.
    pub fn client(&self, certificate: Option<&str>) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(self.issuer.der().clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let builder = builder.unwrap().with_root_certificates(roots);
        Arc::new(match certificate {
            None => builder.with_no_client_auth(),
            Some(name) => {
                let file = |end: &str| self.path(&format!("{name}.{end}"));
                let chain = vec![CertificateDer::from_pem_file(file("crt")).unwrap()];
                let key = PrivateKeyDer::from_pem_file(file("key")).unwrap();
                builder.with_client_auth_cert(chain, key).unwrap()
            }
        })
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// A server whose port for TLS is also returned.
fn start(authority: &Authority, change: impl Fn(&mut Config)) -> (Server, u16) {
    let port = std::cell::Cell::new(0);
    let server = Server::with(|config| {
        port.set(free_port());
        config.tls_port = port.get();
        config.tls_cert_file = authority.path("server.crt");
        config.tls_key_file = authority.path("server.key");
        config.tls_ca_cert_file = authority.path("ca.crt");
        config.tls_auth_clients = "no".to_owned();
        change(config);
    });
    (server, port.get())
}

fn connect(port: u16, config: &Arc<ClientConfig>, host: &'static str) -> Tls {
    let socket = TcpStream::connect(("127.0.0.1", port)).unwrap();
    socket.set_nodelay(true).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let name = ServerName::try_from(host).unwrap();
    StreamOwned::new(ClientConnection::new(Arc::clone(config), name).unwrap(), socket)
}

#[track_caller]
fn says(client: &mut Tls, line: &str, wanted: &str) {
    client.write_all(format!("{line}\r\n").as_bytes()).unwrap();
    expect(client, wanted.as_bytes());
}

#[track_caller]
fn expect(client: &mut Tls, wanted: &[u8]) {
    let mut got = vec![0; wanted.len()];
    client.read_exact(&mut got).unwrap();
    let show = |bytes: &[u8]| String::from_utf8_lossy(&bytes[..bytes.len().min(500)]).into_owned();
    assert_eq!(show(&got), show(wanted));
    assert!(got == wanted);
}

/// Whether the server closes the connection without having answered.
fn is_refused(mut client: Tls) -> bool {
    let _ = client.write_all(b"ping\r\n");
    !matches!(client.read(&mut [0]), Ok(1))
}

#[test]
fn commands_and_large_values_go_over_tls() {
    let authority = Authority::new();
    authority.sign("server", "localhost", "server");
    let (server, port) = start(&authority, |_| {});
    let config = authority.client(None);
    let mut client = connect(port, &config, "localhost");
    says(&mut client, "set k v", "+OK\r\n");
    server.client().says("get k", "$1\r\nv\r\n");
    let value: Vec<u8> = (0..20 << 20).map(|at: u32| (at % 251) as u8).collect();
    client.write_all(format!("*3\r\n$3\r\nSET\r\n$3\r\nbig\r\n${}\r\n", value.len()).as_bytes()).unwrap();
    client.write_all(&value).unwrap();
    client.write_all(b"\r\n").unwrap();
    expect(&mut client, b"+OK\r\n");
    says(&mut client, "get big", &format!("${}\r\n", value.len()));
    expect(&mut client, &value);
    expect(&mut client, b"\r\n");
    let rows = 20_000;
    let sent: String = (0..rows).map(|at| format!("set k{at} {at}\r\nget k{at}\r\n")).collect();
    client.write_all(sent.as_bytes()).unwrap();
    let wanted: String =
        (0..rows).map(|at| format!("+OK\r\n${}\r\n{at}\r\n", at.to_string().len())).collect();
    expect(&mut client, wanted.as_bytes());
    // A reply that the client takes late, and the end after QUIT.
    client.write_all(b"get big\r\nget big\r\nget big\r\nquit\r\n").unwrap();
    std::thread::sleep(Duration::from_millis(300));
    for _ in 0..3 {
        expect(&mut client, format!("${}\r\n", value.len()).as_bytes());
        expect(&mut client, &value);
        expect(&mut client, b"\r\n");
    }
    expect(&mut client, b"+OK\r\n");
    assert_eq!(client.read(&mut [0]).unwrap(), 0, "the end is said");
    // Without TLS, and without a certificate that is known.
    let mut plain = TcpStream::connect(("127.0.0.1", port)).unwrap();
    plain.write_all(b"ping\r\n").unwrap();
    let mut said = Vec::new();
    let _ = plain.read_to_end(&mut said);
    assert!(!said.starts_with(b"+PONG"), "{said:?}");
    let mut strange = connect(port, &Authority::new().client(None), "localhost");
    assert!(strange.write_all(b"ping\r\n").and_then(|()| strange.read_exact(&mut [0])).is_err());
}

#[test]
fn messages_arrive_over_tls() {
    let authority = Authority::new();
    authority.sign("server", "localhost", "server");
    let (server, port) = start(&authority, |_| {});
    let mut client = connect(port, &authority.client(None), "localhost");
    says(&mut client, "subscribe c", "*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n");
    server.client().says("publish c hello", ":1\r\n");
    expect(&mut client, b"*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$5\r\nhello\r\n");
    let mut waits = connect(port, &authority.client(None), "localhost");
    waits.write_all(b"blpop l 0\r\n").unwrap();
    waits.flush().unwrap();
    let mut admin = server.client();
    eventually("it waits", || admin.field("clients", "blocked_clients") == 1);
    admin.says("rpush l x", ":1\r\n");
    expect(&mut waits, b"*2\r\n$1\r\nl\r\n$1\r\nx\r\n");
}

#[test]
fn certificates_of_clients_are_asked_for_and_name_their_users() {
    let authority = Authority::new();
    authority.sign("server", "localhost", "server");
    authority.sign("ada", "ada", "ada");
    authority.sign("nobody", "nobody", "nobody");
    let other = Authority::new();
    other.sign("eve", "eve", "ada");
    let (server, port) = start(&authority, |config| {
        config.tls_auth_clients = "yes".to_owned();
        config.tls_auth_clients_user = true;
        config.requirepass = "pw".to_owned();
        config.users = vec!["ada on resetpass ~a* +@all".split(' ').map(str::to_owned).collect()];
    });
    assert!(is_refused(connect(port, &authority.client(None), "localhost")));
    assert!(is_refused(connect(port, &other_client(&authority, &other), "localhost")));
    let mut ada = connect(port, &authority.client(Some("ada")), "localhost");
    says(&mut ada, "acl whoami", "$3\r\nada\r\n");
    says(
        &mut ada,
        "get b",
        "-NOPERM this user has no permissions to access one of the keys used as arguments\r\n",
    );
    // Without a user of its name it must log in.
    let mut nobody = connect(port, &authority.client(Some("nobody")), "localhost");
    says(&mut nobody, "ping", "-NOAUTH Authentication required.\r\n");
    says(&mut nobody, "auth pw", "+OK\r\n");
    let mut admin = server.client();
    admin.says("auth pw", "+OK\r\n");
    admin.says("acl setuser ada off", "+OK\r\n");
    let mut off = connect(port, &authority.client(Some("ada")), "localhost");
    says(&mut off, "ping", "-NOAUTH Authentication required.\r\n");
    admin.says("config set tls-auth-clients optional", "+OK\r\n");
    let mut without = connect(port, &authority.client(None), "localhost");
    says(&mut without, "auth pw", "+OK\r\n");
    assert!(is_refused(connect(port, &other_client(&authority, &other), "localhost")));
}

/// A client that trusts one authority, and has a certificate of another.
fn other_client(trusted: &Authority, other: &Authority) -> Arc<ClientConfig> {
    for end in ["crt", "key"] {
        std::fs::copy(other.path(&format!("eve.{end}")), trusted.path(&format!("eve.{end}"))).unwrap();
    }
    trusted.client(Some("eve"))
}

#[test]
fn certificates_are_read_again_without_a_restart_and_chosen_by_name() {
    let authority = Authority::new();
    authority.sign("server", "localhost", "first");
    authority.sign("other", "other.example", "other");
    let (server, port) = start(&authority, |config| {
        let files = [authority.path("other.crt"), authority.path("other.key")];
        config.tls_sni = ["Other.Example".to_owned()].into_iter().chain(files).collect();
    });
    let serial = |host: &'static str| {
        let mut client = connect(port, &authority.client(None), host);
        says(&mut client, "ping", "+PONG\r\n");
        client.conn.peer_certificates().unwrap()[0].to_vec()
    };
    let (first, other) = (serial("localhost"), serial("other.example"));
    assert!(first != other);
    let mut stays = connect(port, &authority.client(None), "localhost");
    says(&mut stays, "ping", "+PONG\r\n");
    authority.sign("server", "localhost", "second");
    let mut admin = server.client();
    let cert = authority.path("server.crt");
    admin.says(&format!("config set tls-cert-file {cert}"), "+OK\r\n");
    assert!(serial("localhost") != first);
    assert!(serial("other.example") == other);
    says(&mut stays, "ping", "+PONG\r\n");
    // A bad file changes nothing.
    let second = serial("localhost");
    std::fs::write(Path::new(&cert), "nothing").unwrap();
    admin.says(&format!("config set tls-cert-file {cert}"), "-ERR CONFIG SET failed (possibly related to argument 'tls-cert-file') - Unable to update TLS configuration. Check server logs.\r\n");
    assert!(serial("localhost") == second);
}

#[test]
fn versions_suites_and_resumed_sessions_are_as_configured() {
    let authority = Authority::new();
    authority.sign("server", "localhost", "server");
    let (server, port) = start(&authority, |config| {
        config.tls_protocols = "TLSv1.2".to_owned();
        config.tls_ciphers = "ECDHE-ECDSA-AES128-GCM-SHA256".to_owned();
    });
    let config = authority.client(None);
    let kind = |config: &Arc<ClientConfig>| {
        let mut client = connect(port, config, "localhost");
        says(&mut client, "ping", "+PONG\r\n");
        (client.conn.negotiated_cipher_suite().unwrap(), client.conn.handshake_kind().unwrap())
    };
    let (suite, first) = kind(&config);
    assert_eq!(format!("{:?}", suite.suite()), "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256");
    assert_eq!((first, kind(&config).1), (HandshakeKind::Full, HandshakeKind::Resumed));
    let mut admin = server.client();
    admin.says("config set tls-protocols TLSv1.3 tls-ciphersuites TLS_CHACHA20_POLY1305_SHA256", "+OK\r\n");
    let (suite, _) = kind(&config);
    assert_eq!(format!("{:?}", suite.suite()), "TLS13_CHACHA20_POLY1305_SHA256");
    assert_eq!(kind(&config).1, HandshakeKind::Resumed);
    admin.says("config set tls-session-caching no", "+OK\r\n");
    let config = authority.client(None);
    assert_eq!((kind(&config).1, kind(&config).1), (HandshakeKind::Full, HandshakeKind::Full));
    for (name, value) in [
        ("tls-protocols", "TLSv1.1"),
        ("tls-ciphers", "RC4-MD5"),
        ("tls-ciphersuites", "ECDHE-ECDSA-AES128-GCM-SHA256"),
        ("tls-key-file", "/nonexistent"),
    ] {
        admin.send(format!("config set {name} {value}\r\n"));
        assert!(admin.line().contains("Unable to update TLS configuration"), "{name}");
    }
}

#[test]
fn strange_bytes_and_slow_handshakes_end_and_others_are_served() {
    let authority = Authority::new();
    authority.sign("server", "localhost", "server");
    let (server, port) = start(&authority, |_| {});
    let config = authority.client(None);
    let mut hello = Vec::new();
    let name = ServerName::try_from("localhost").unwrap();
    ClientConnection::new(Arc::clone(&config), name).unwrap().write_tls(&mut hello).unwrap();
    let mut slow: Vec<TcpStream> = (0..50)
        .map(|at| {
            let mut socket = TcpStream::connect(("127.0.0.1", port)).unwrap();
            socket.write_all(&hello[..(at * 3).min(hello.len() - 1)]).unwrap();
            socket
        })
        .collect();
    let mut random = 88_172_645_463_325_252_u64;
    for round in 0..300 {
        let mut bytes = hello.clone();
        for _ in 0..1 + round % 8 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let at = random as usize % bytes.len();
            bytes[at] = (random >> 32) as u8;
        }
        let mut socket = TcpStream::connect(("127.0.0.1", port)).unwrap();
        socket.write_all(&bytes).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
        let _ = socket.read(&mut [0; 100]);
    }
    let mut client = connect(port, &config, "localhost");
    says(&mut client, "ping", "+PONG\r\n");
    let begun = Instant::now();
    for socket in &mut slow {
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let _ = socket.read_to_end(&mut Vec::new());
    }
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
    says(&mut client, "ping", "+PONG\r\n");
    let mut admin = server.client();
    eventually("they are gone", || admin.field("clients", "connected_clients") == 2);
}

/// Presents a chain of any bytes, with a key that signs.
#[derive(Debug)]
struct Presents(Arc<CertifiedKey>);

impl ResolvesClientCert for Presents {
    fn resolve(&self, _: &[&[u8]], _: &[rustls::SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }

    fn has_certs(&self) -> bool {
        true
    }
}

#[test]
fn malformed_certificates_of_clients_are_refused_and_others_are_served() {
    let authority = Authority::new();
    authority.sign("server", "localhost", "server");
    authority.sign("ada", "ada", "ada");
    let (server, port) = start(&authority, |config| {
        config.tls_auth_clients_user = true;
        config.tls_auth_clients = "yes".to_owned();
        config.requirepass = "pw".to_owned();
        config.users = vec!["ada on resetpass ~a* +@all".split(' ').map(str::to_owned).collect()];
    });
    let good = CertificateDer::from_pem_file(authority.path("ada.crt")).unwrap().to_vec();
    let key = PrivateKeyDer::from_pem_file(authority.path("ada.key")).unwrap();
    let key = rustls::crypto::ring::sign::any_supported_type(&key).unwrap();
    let presents = |chain: Vec<Vec<u8>>| {
        let chain = chain.into_iter().map(CertificateDer::from).collect();
        let mut config = ClientConfig::clone(&authority.client(None));
        let resolver = Presents(Arc::new(CertifiedKey::new(chain, Arc::clone(&key))));
        config.client_auth_cert_resolver = Arc::new(resolver);
        connect(port, &Arc::new(config), "localhost")
    };
    let mut ada = presents(vec![good.clone()]);
    says(&mut ada, "acl whoami", "$3\r\nada\r\n");
    let mut chains = vec![
        vec![Vec::new()],
        vec![vec![0; 20_000]],
        vec![vec![0x30, 0x84, 0xff, 0xff, 0xff, 0xff]],
        vec![b"\x30\x80".repeat(5_000)],
        vec![good[..good.len() - 1].to_vec()],
        vec![good.clone().into_iter().chain([0]).collect()],
        vec![authority.issuer.der().to_vec()],
    ];
    for at in (0..good.len()).step_by(7) {
        let mut changed = good.clone();
        changed[at] ^= 1 << (at % 8);
        chains.push(vec![changed]);
        chains.push(vec![good[..at].to_vec()]);
        let mut longer = good.clone();
        longer.insert(at, 0x80);
        chains.push(vec![longer]);
    }
    let count = chains.len();
    for (at, chain) in chains.into_iter().enumerate() {
        let mut client = presents(chain);
        let _ = client.write_all(b"acl whoami\r\n");
        let mut said = Vec::new();
        let _ = client.read_to_end(&mut said);
        assert!(said.is_empty(), "chain {at}: {}", said.escape_ascii());
    }
    assert!(count > 150, "{count} certificates");
    // What comes after the first certificate is at most of no use.
    for more in [vec![0; 100], good[..40].to_vec(), vec![0x30; 9_000]] {
        let mut client = presents(vec![good.clone(), more]);
        let _ = client.write_all(b"get b\r\n");
        let mut said = [0; 7];
        let _ = client.read_exact(&mut said);
        assert!(said == [0; 7] || said == *b"-NOPERM", "{}", said.escape_ascii());
    }
    says(&mut ada, "ping", "+PONG\r\n");
    let mut admin = server.client();
    admin.says("auth pw", "+OK\r\n");
    eventually("they are gone", || admin.field("clients", "connected_clients") <= 2);
}

#[test]
fn a_renegotiation_is_refused_and_others_are_served() {
    let authority = Authority::new();
    authority.sign("server", "localhost", "server");
    let (_server, port) = start(&authority, |config| config.tls_protocols = "TLSv1.2".to_owned());
    let mut other = connect(port, &authority.client(None), "localhost");
    says(&mut other, "ping", "+PONG\r\n");
    // OpenSSL's program asks for one after a line `R`.
    let mut program = std::process::Command::new("openssl");
    program.args(["s_client", "-tls1_2", "-connect", &format!("127.0.0.1:{port}"), "-CAfile"]);
    program.arg(authority.path("ca.crt")).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let Ok(mut openssl) = program.spawn() else {
        println!("skipped: there is no openssl");
        return;
    };
    let mut input = openssl.stdin.take().unwrap();
    for line in ["ping\n", "R\n", "R\n", "ping\n", "Q\n"] {
        std::thread::sleep(Duration::from_millis(200));
        if input.write_all(line.as_bytes()).is_err() {
            break;
        }
        says(&mut other, "ping", "+PONG\r\n");
    }
    drop(input);
    let output = openssl.wait_with_output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(said.contains("+PONG") && said.contains("RENEGOTIATING"), "{said}");
    assert!(said.contains("no renegotiation") || said.contains("no_renegotiation"), "{said}");
    says(&mut other, "ping", "+PONG\r\n");
}

#[test]
fn an_end_right_after_part_of_a_record_ends_the_connection() {
    let authority = Authority::new();
    authority.sign("server", "localhost", "server");
    let (server, port) = start(&authority, |_| {});
    let config = authority.client(None);
    let ends = |mut socket: TcpStream, bytes: &[u8]| {
        socket.write_all(bytes).unwrap();
        socket.shutdown(std::net::Shutdown::Write).unwrap();
        let begun = Instant::now();
        let _ = socket.read_to_end(&mut Vec::new());
        assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    };
    for round in 0..20 {
        let mut hello = Vec::new();
        let name = ServerName::try_from("localhost").unwrap();
        ClientConnection::new(Arc::clone(&config), name).unwrap().write_tls(&mut hello).unwrap();
        ends(TcpStream::connect(("127.0.0.1", port)).unwrap(), &hello[..hello.len() - 1 - round]);
        let mut client = connect(port, &config, "localhost");
        says(&mut client, "ping", "+PONG\r\n");
        ends(client.sock, &[0x17, 3, 3, 0, 32, 1, 2]);
    }
    let mut admin = server.client();
    eventually("they are gone", || admin.field("clients", "connected_clients") == 1);
}

/// rustls takes nothing after its alert.
#[test]
fn bytes_behind_a_broken_record_are_dropped_and_the_alert_arrives() {
    let authority = Authority::new();
    authority.sign("server", "localhost", "server");
    let (server, port) = start(&authority, |_| {});
    for pause in [0, 30] {
        let mut socket = TcpStream::connect(("127.0.0.1", port)).unwrap();
        for _ in 0..20 {
            // After the server's end a write may fail.
            let _ =
                socket.write_all(&[0x5b, 0x0a, 0x27, 0x8e, 0x8e, 0xff, 0xff, 0x22, 0xff, 0x2c, 0xfc, 0x0a]);
            std::thread::sleep(Duration::from_millis(pause));
        }
        let _ = socket.shutdown(std::net::Shutdown::Write);
        let mut alert = Vec::new();
        let end = socket.read_to_end(&mut alert);
        assert_eq!(alert.first(), Some(&21), "pause {pause}: an alert, and then {end:?}: {alert:?}");
    }
    server.client().says("ping", "+PONG\r\n");
}

#[test]
fn memcached_speaks_tls_too() {
    let authority = Authority::new();
    authority.sign("server", "localhost", "server");
    let port = std::cell::Cell::new(0);
    let (_server, _) = start(&authority, |config| {
        port.set(free_port());
        (config.memcached, config.memcached_tls) = (port.get(), true);
    });
    let mut client = connect(port.get(), &authority.client(None), "localhost");
    says(&mut client, "set k 0 0 1\r\nx", "STORED\r\n");
    says(&mut client, "get k", "VALUE k 0 1\r\nx\r\nEND\r\n");
}

#[test]
fn bad_settings_are_refused_at_the_start() {
    let authority = Authority::new();
    authority.sign("server", "localhost", "server");
    authority.sign("second", "localhost", "server");
    let start = |change: &dyn Fn(&mut Config)| {
        let mut config = Config {
            port: 0,
            tls_port: 1,
            medium: duramen::MediumKind::Volatile,
            path: "volatile".into(),
            tls_cert_file: authority.path("server.crt"),
            tls_key_file: authority.path("server.key"),
            ..Config::default()
        };
        change(&mut config);
        duramen_server::Started::start(config).map(|_| ()).unwrap_err().to_string()
    };
    assert!(start(&|_| {}).contains("tls-ca-cert-file"));
    let error = start(&|config| {
        config.tls_auth_clients = "no".to_owned();
        config.tls_cert_file.clear();
    });
    assert!(error.contains("are not set"), "{error}");
    let error = start(&|config| {
        config.tls_auth_clients = "no".to_owned();
        config.tls_key_file = authority.path("second.key");
    });
    assert!(error.contains("is not that of the certificate"), "{error}");
}
