//! The console by HTTP: what is served, to whom, and that it reads no more than it says.

use crate::metrics::{answer, connect, exchange};
use crate::support::{Client, Server};
use crate::tls::Authority;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use duramen_server::hosted_jobs::{JobProgress, JobState};
use duramen_server::{Config, Started};
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};
use serde_json::Value;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

fn start() -> Server {
    with(|_| {})
}

fn with(change: impl Fn(&mut Config)) -> Server {
    Server::with(|config| {
        config.metrics = "127.0.0.1:0".to_owned();
        config.console = true;
        change(config);
    })
}

/// Status, head and body of GET with these headers, each with its line end.
fn get(address: SocketAddr, path: &str, headers: &str) -> (u16, String, String) {
    let host = if headers.contains("Host:") { "" } else { "Host: localhost\r\n" };
    exchange(address, format!("GET {path} HTTP/1.1\r\n{host}{headers}\r\n").as_bytes())
}

/// The JSON of a path that is answered.
#[track_caller]
fn api(server: &Server, path: &str) -> Value {
    let (status, head, body) = get(server.metrics(), &format!("/api/{path}"), "");
    assert!(status == 200 && head.contains("\r\nContent-Type: application/json"), "{path}: {head}{body}");
    serde_json::from_str(&body).unwrap()
}

fn basic(name: &str, password: &str) -> String {
    format!("Authorization: Basic {}\r\n", STANDARD.encode(format!("{name}:{password}")))
}

fn command(client: &mut Client, words: &[&[u8]], wanted: &str) {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend(format!("${}\r\n", word.len()).bytes());
        bytes.extend(*word);
        bytes.extend(b"\r\n");
    }
    client.send(bytes);
    client.expect(wanted);
}

#[test]
fn the_page_is_three_files_with_strict_headers_and_other_paths_are_none() {
    let server = start();
    let address = server.metrics();
    for (path, kind) in [("/", "text/html"), ("/console.css", "text/css"), ("/console.js", "text/javascript")]
    {
        let (status, head, body) = get(address, path, "");
        assert!(
            status == 200 && head.contains(&format!("\r\nContent-Type: {kind}; charset=utf-8\r\n")),
            "{head}"
        );
        assert!(body.len() > 1000, "{path}");
        // Nothing comes from elsewhere; the one address is the name of a format.
        assert!(!body.replace("http://www.w3.org/2000/svg", "").contains("://"), "{path}");
        for banned in [
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            " style=",
            " onclick=",
        ] {
            assert!(!body.contains(banned), "{path} has {banned}");
        }
    }
    for path in ["/", "/api/overview", "/api/keys", "/api/keys?x"] {
        let (_, head, _) = get(address, path, "");
        for wanted in [
            "\r\nContent-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
             img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n",
            "\r\nX-Content-Type-Options: nosniff\r\n",
            "\r\nReferrer-Policy: no-referrer\r\n",
            "\r\nCache-Control: no-store\r\n",
            "\r\nCross-Origin-Resource-Policy: same-origin\r\n",
        ] {
            assert!(head.contains(wanted), "{path}: {head}");
        }
        assert!(!head.contains("Access-Control"), "{head}");
    }
    for path in [
        "/../etc/passwd",
        "/%2e%2e/etc/passwd",
        "/..%2fetc%2fpasswd",
        "/api/../metrics",
        "/api/",
        "/api/value/",
        "//",
        "/index.html",
        "/console.js/",
        "/CONSOLE.JS",
        "/page/console.js",
    ] {
        assert_eq!(get(address, path, "").0, 404, "{path}");
    }
    // Nothing is written.
    let mut client = server.client();
    client.says("set key value", "+OK\r\n");
    for method in ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"] {
        let request =
            format!("{method} /api/value?key=key HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n");
        assert_eq!(exchange(address, request.as_bytes()).0, 405, "{method}");
    }
    client.says("get key", "$5\r\nvalue\r\n");
    let head = exchange(address, b"HEAD /api/keys HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert!(head.0 == 200 && head.2.is_empty(), "{head:?}");
}

#[test]
fn without_the_directive_there_is_no_console() {
    let server = Server::with(|config| config.metrics = "127.0.0.1:0".to_owned());
    for path in ["/", "/console.js", "/api/overview", "/api/keys"] {
        assert_eq!(get(server.metrics(), path, "").0, 404, "{path}");
    }
}

#[test]
fn other_hosts_and_other_sites_are_refused() {
    let server = start();
    let address = server.metrics();
    let port = address.port();
    for host in ["localhost", "127.0.0.1", "[::1]"] {
        for host in [host.to_owned(), format!("{host}:{port}")] {
            assert_eq!(get(address, "/api/overview", &format!("Host: {host}\r\n")).0, 200, "{host}");
        }
    }
    for host in
        ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example:80", "10.0.0.1", "0.0.0.0", ""]
    {
        for path in ["/", "/console.js", "/api/overview", "/api/keys"] {
            let (status, head, body) = get(address, path, &format!("Host: {host}\r\n"));
            assert_eq!(status, 421, "{host} {path}: {head}{body}");
        }
    }
    for (site, status) in
        [("same-origin", 200), ("none", 200), ("cross-site", 403), ("same-site", 403), ("x", 403)]
    {
        for path in ["/api/overview", "/api/keys", "/api/value?key=a"] {
            let found =
                get(address, path, &format!("Sec-Fetch-Site: {site}\r\nOrigin: http://evil.example\r\n")).0;
            let wanted = if path.contains("value") && status == 200 { 400 } else { status };
            assert_eq!(found, wanted, "{site} {path}");
        }
        // A link on another page may lead here.
        assert_eq!(get(address, "/", &format!("Sec-Fetch-Site: {site}\r\n")).0, 200);
    }
    // The metrics are for everybody who reaches the address, as before.
    assert_eq!(get(address, "/metrics", "Host: evil.example\r\nSec-Fetch-Site: cross-site\r\n").0, 200);
}

#[test]
fn parameters_that_are_wrong_are_named() {
    let server = start();
    server.client().says("set key value", "+OK\r\n");
    for (path, why) in [
        ("keys?x=1", "unknown parameter"),
        ("keys?db=x", "db: wanted a number"),
        ("keys?db=-1", "db: wanted a number"),
        ("keys?db=1&db=2", "db is given twice"),
        ("keys?db=99", "DB index is out of range"),
        ("keys?cursor=-1", "cursor: wanted a number"),
        ("keys?match=%", "match: no percent encoding"),
        ("keys?match=%0", "match: no percent encoding"),
        ("overview?db=1", "unknown parameter"),
        ("value", "key: it is missing"),
        ("value?key=none", "no such key"),
        ("value?key=key&cursor=x", "cursor: wanted a number"),
        ("value?key=key&cursor=99999999999999999999", "cursor: wanted a number"),
        ("types?db=16", "DB index is out of range"),
    ] {
        let (status, _, body) = get(server.metrics(), &format!("/api/{path}"), "");
        let error: Value = serde_json::from_str(&body).unwrap();
        assert!(status == 400 && error["error"].as_str().unwrap().contains(why), "{path}: {status} {body}");
    }
    let past = api(&server, "value?key=key&cursor=9999999999999");
    assert!(past["value"]["text"] == "" && past["next"].is_null(), "{past}");
}

#[test]
fn keys_and_values_of_all_types_are_shown_as_text_whatever_is_in_them() {
    let server = start();
    let mut client = server.client();
    let name = b"<script>alert('x')</script>\"\\\0\xff";
    command(&mut client, &[b"set", name, b"</script><img src=x onerror=alert(1)>"], "+OK\r\n");
    command(&mut client, &[b"hset", b"hash", b"field", b"\x01\x02"], ":1\r\n");
    command(&mut client, &[b"rpush", b"list", b"a", b"b", b"c"], ":3\r\n");
    command(&mut client, &[b"sadd", b"set", b"m"], ":1\r\n");
    command(&mut client, &[b"zadd", b"zset", b"1.5", b"one", b"2", b"two"], ":2\r\n");
    command(&mut client, &[b"xadd", b"stream", b"1-1", b"field", b"value"], "$3\r\n1-1\r\n");
    client.says("pexpire list 100000", ":1\r\n");
    let found = api(&server, "keys");
    let keys = found["keys"].as_array().unwrap();
    assert!(keys.len() == 6 && found["next"].is_null(), "{found}");
    let of = |kind: &str| keys.iter().find(|key| key["type"] == kind).unwrap();
    let string = of("string");
    assert_eq!(string["name"]["text"], "<script>alert('x')</script>\"\\\\\\x00\\xff");
    assert!(string["name"]["escaped"] == true && string["ttl"] == -1, "{string}");
    assert!(string["size"].as_u64().unwrap() > 0 && of("list")["ttl"].as_u64().unwrap() > 90_000, "{found}");
    let id = string["id"].as_str().unwrap();
    assert!(!id.contains('<'), "{id}");
    let value = api(&server, &format!("value?key={id}"));
    assert_eq!(value["value"]["text"], "</script><img src=x onerror=alert(1)>");
    assert!(value["value"]["escaped"] == false && value["next"].is_null(), "{value}");
    for (key, columns, row) in [
        ("hash", "field value", "field \\x01\\x02"),
        ("list", "position value", "0 a"),
        ("set", "member", "m"),
        ("zset", "rank member score", "0 one 1.5"),
        ("stream", "ID fields", "1-1 field = value"),
    ] {
        let value = api(&server, &format!("value?key={key}"));
        let join = |cells: &Value, of: fn(&Value) -> &str| {
            cells.as_array().unwrap().iter().map(of).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(join(&value["columns"], |name| name.as_str().unwrap()), columns, "{value}");
        assert_eq!(join(&value["rows"][0], |cell| cell["text"].as_str().unwrap()), row, "{value}");
        assert!(value["type"] == key && value["next"].is_null(), "{value}");
    }
    let only = api(&server, "keys?match=l*&type=list");
    assert_eq!(only["keys"].as_array().unwrap().len(), 1, "{only}");
    assert_eq!(api(&server, "keys?db=1")["keys"].as_array().unwrap().len(), 0);
    let types = api(&server, "types");
    assert!(types["total"] == 6 && types["sampled"] == 6 && types["types"]["zset"]["count"] == 1, "{types}");
    assert_eq!(types["types"]["list"]["largest"][0]["id"], "list");
    // A key that no path can name is listed.
    command(&mut client, &[b"set", &[b'k'; 3000], b"v"], "+OK\r\n");
    let found = api(&server, "keys?match=kkk*");
    assert!(found["keys"][0]["id"].is_null() && found["keys"][0]["name"]["cut"] == true, "{found}");
}

#[test]
fn a_hundred_thousand_keys_come_in_parts_each_of_them_once() {
    let server = start();
    let mut client = server.client();
    for from in (0..100_000).step_by(1000) {
        let lines: String = (from..from + 1000).map(|at| format!("set key:{at} v\r\n")).collect();
        client.send(lines);
        client.expect("+OK\r\n".repeat(1000));
    }
    client.says("set needle v", "+OK\r\n");
    let mut names = std::collections::BTreeSet::new();
    let mut needles = 0;
    for pattern in ["*", "*eedle"] {
        let mut cursor = "0".to_owned();
        let mut requests = 0;
        loop {
            let found = api(&server, &format!("keys?match={pattern}&cursor={cursor}"));
            requests += 1;
            let keys = found["keys"].as_array().unwrap();
            assert!(keys.len() < 2000, "{}", keys.len());
            match pattern {
                "*" => names.extend(keys.iter().map(|key| key["id"].as_str().unwrap().to_owned())),
                _ => needles += keys.len(),
            }
            let Some(next) = found["next"].as_str() else { break };
            cursor = next.to_owned();
        }
        // A request looks at some 40,000 keys at most.
        assert!((2..1000).contains(&requests), "{pattern}: {requests}");
    }
    assert_eq!((names.len(), needles), (100_001, 1));
    let part = api(&server, "types");
    let sampled = part["sampled"].as_u64().unwrap();
    assert!(part["total"] == 100_001 && (900..3000).contains(&sampled) && part["next"].is_string(), "{part}");
}

#[test]
fn large_values_are_cut_and_come_in_parts() {
    let server = start();
    let mut client = server.client();
    let value = b"0123456789".repeat(10 << 20);
    command(&mut client, &[b"set", b"large", &value], "+OK\r\n");
    command(&mut client, &[b"rpush", b"elements", &value[..50_000_000], b"small"], ":2\r\n");
    let (status, _, body) = get(server.metrics(), "/api/value?key=large", "");
    assert!(status == 200 && body.len() < 70_000, "{status} {}", body.len());
    let first: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((&first["length"], first["value"]["bytes"].as_u64()), (&Value::from(100 << 20), Some(65_536)));
    assert_eq!(first["next"], "65536");
    let last = api(&server, "value?key=large&cursor=104857590");
    assert!(last["value"]["text"] == "0123456789" && last["next"].is_null(), "{last}");
    // One element at a time, of which a part is shown.
    let first = api(&server, "value?key=elements");
    let cell = &first["rows"][0][1];
    assert!(cell["cut"] == true && cell["bytes"] == 50_000_000, "{first}");
    assert_eq!(cell["text"].as_str().unwrap().len(), 1024);
    assert_eq!(first["rows"].as_array().unwrap().len(), 1);
    let second = api(&server, "value?key=elements&cursor=1");
    assert!(second["rows"][0][1]["text"] == "small" && second["next"].is_null(), "{second}");
    // An element that is more than a page may take is refused, and nothing else is hurt.
    command(&mut client, &[b"sadd", b"huge", &value], ":1\r\n");
    let (status, _, body) = get(server.metrics(), "/api/value?key=huge", "");
    assert!(status == 503 && body.contains("64 MiB"), "{status} {body:.200}");
    client.says("strlen large", ":104857600\r\n");
}

#[test]
fn a_user_logs_in_and_sees_what_its_rights_allow() {
    let server = with(|config| config.requirepass = "secret".to_owned());
    let address = server.metrics();
    let mut client = server.client();
    client.says("auth secret", "+OK\r\n");
    client.says("acl setuser reader on >word +@read +client|no-touch ~app:*", "+OK\r\n");
    client.says("acl setuser off off >word +@all ~*", "+OK\r\n");
    client.says("set app:1 v", "+OK\r\n");
    client.says("set other v", "+OK\r\n");
    for path in ["/", "/console.js", "/api/overview", "/api/keys"] {
        let (status, head, _) = get(address, path, "");
        assert!(
            status == 401 && head.contains("\r\nWWW-Authenticate: Basic realm=\"Duramen\""),
            "{path}: {head}"
        );
        for wrong in [
            basic("default", "wrong"),
            basic("nobody", "secret"),
            basic("off", "word"),
            basic("", ""),
            "Authorization: Bearer x\r\n".to_owned(),
            "Authorization: Basic =\r\n".to_owned(),
            basic("default", "secret").repeat(2),
        ] {
            assert_eq!(get(address, path, &wrong).0, 401, "{path} {wrong}");
        }
        for right in [basic("default", "secret"), basic("", "secret")] {
            // With a login the name of the host does not matter.
            assert_eq!(get(address, path, &format!("Host: db.example\r\n{right}")).0, 200, "{path}");
        }
    }
    let reader = basic("reader", "word");
    let of = |path: &str| get(address, path, &reader);
    assert_eq!(of("/").0, 200);
    for (path, right) in [
        ("/api/overview", "INFO"),
        ("/api/jobs", "INFO"),
        ("/api/slowlog", "NOPERM"),
        ("/api/clients", "NOPERM"),
        ("/api/value?key=other", "NOPERM"),
    ] {
        let (status, _, body) = of(path);
        assert!(status == 403 && body.contains(right), "{path}: {status} {body}");
    }
    assert_eq!(of("/api/value?key=app%3A1").0, 200);
    let keys: Value = serde_json::from_str(&of("/api/keys").2).unwrap();
    let type_of = |name: &str| {
        let key = keys["keys"].as_array().unwrap().iter().find(|key| key["name"]["text"] == name);
        key.unwrap()["type"].clone()
    };
    assert_eq!((type_of("app:1"), type_of("other")), (Value::from("string"), Value::Null));
    // A change of rights holds for the next request.
    client.says("acl setuser reader -@all", "+OK\r\n");
    assert_eq!(of("/api/keys").0, 403);
    client.says("acl deluser reader", ":1\r\n");
    assert_eq!(of("/api/keys").0, 401);
    // Many wrong passwords wait longer and longer, and hold up nobody.
    for _ in 0..30 {
        exchange_only(address, &basic("default", "guess"));
    }
    let begun = Instant::now();
    assert_eq!(get(address, "/api/overview", &basic("default", "secret")).0, 200);
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
}

/// Sends a request and leaves its answer alone.
fn exchange_only(address: SocketAddr, headers: &str) {
    let mut stream = connect(address);
    stream.write_all(format!("GET / HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n").as_bytes()).unwrap();
}

#[test]
fn beyond_loopback_a_console_wants_tls_and_a_password() {
    let base = || Config {
        port: TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port(),
        bind: vec!["127.0.0.1".to_owned()],
        medium: duramen::MediumKind::Volatile,
        path: "volatile".into(),
        console: true,
        loglevel: duramen_server::log::Level::Nothing,
        ..Config::default()
    };
    for (metrics, wanted) in
        [("*:0", "duramen-metrics-tls yes"), ("0.0.0.0:0", "loopback"), ("", "duramen-metrics")]
    {
        let config = Config { metrics: metrics.to_owned(), ..base() };
        let Err(error) = Started::start(config) else { panic!("{metrics:?} starts") };
        assert!(error.to_string().contains(wanted), "{metrics:?}: {error}");
    }
    let authority = Authority::new();
    authority.sign("server", "localhost", "server");
    let server = with(|config| {
        config.metrics = "0.0.0.0:0".to_owned();
        config.metrics_tls = true;
        config.tls_auth_clients = "no".to_owned();
        config.tls_cert_file = authority.path("server.crt");
        config.tls_key_file = authority.path("server.key");
    });
    let port = server.metrics().port();
    let mut client = server.client();
    client.says("acl setuser ann on >word +@all ~*", "+OK\r\n");
    let open = || {
        let socket = TcpStream::connect(("127.0.0.1", port)).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        StreamOwned::new(ClientConnection::new(authority.client(None), name).unwrap(), socket)
    };
    let ask = |path: &str, headers: &str| {
        let mut stream = open();
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: db.example\r\nConnection: close\r\n{headers}\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        String::from_utf8(bytes).unwrap()
    };
    assert!(ask("/metrics", "").contains("duramen_ready 1"));
    // The default user needs no password, so nobody is logged in without one.
    for (headers, status) in [
        (String::new(), "421"),
        ("Host: localhost\r\n".to_owned(), "400"),
        (basic("default", ""), "403"),
        (basic("default", "x"), "403"),
        (basic("ann", "wrong"), "401"),
        (basic("ann", "word"), "200"),
    ] {
        let found = ask("/api/overview", &headers);
        assert!(found.starts_with(&format!("HTTP/1.1 {status} ")), "{headers}: {found}");
    }
    let page = ask("/console.js", &basic("ann", "word"));
    assert!(page.len() > 20_000 && page.ends_with("start();\n"), "{}", page.len());
    // Several requests on one connection, and a client that speaks no TLS.
    let mut stream = open();
    for _ in 0..3 {
        let request = format!("GET /api/keys HTTP/1.1\r\nHost: a\r\n{}\r\n", basic("ann", "word"));
        stream.write_all(request.as_bytes()).unwrap();
        let mut begin = [0; 12];
        stream.read_exact(&mut begin).unwrap();
        assert_eq!(&begin, b"HTTP/1.1 200");
        let mut rest = Vec::new();
        while !rest.ends_with(b"}") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            rest.push(byte[0]);
        }
    }
    let mut plain = TcpStream::connect(("127.0.0.1", port)).unwrap();
    plain.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    plain.write_all(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    let mut bytes = Vec::new();
    let _ = plain.read_to_end(&mut bytes);
    assert!(!bytes.starts_with(b"HTTP"), "{bytes:?}");
}

#[test]
fn lists_and_jobs_are_shown_with_their_texts() {
    let server = with(|config| config.slowlog_log_slower_than = 0);
    let mut client = server.client();
    client.says("client setname <b>me</b>", "+OK\r\n");
    client.says("set <script>x</script> v", "+OK\r\n");
    let slow = api(&server, "slowlog");
    let entries = slow["entries"].as_array().unwrap();
    let set = entries.iter().find(|entry| entry["args"][0]["text"] == "set").unwrap();
    assert_eq!(set["args"][1]["text"], "<script>x</script>");
    let clients = api(&server, "clients");
    let all = clients["clients"].as_array().unwrap();
    assert!(all.iter().any(|client| client["name"] == "<b>me</b>"), "{clients}");
    let own = all.iter().find(|client| client["addr"] == "console:127.0.0.1:0").unwrap();
    assert!(own["user"] == "default" && own["flags"].as_str().unwrap().contains('T'), "{own}");
    assert_eq!(clients["total"], all.len());
    assert_eq!(api(&server, "jobs")["jobs"].as_array().unwrap().len(), 0);
    let way = server.in_process();
    let progress = JobProgress { records_read: 7, watermark: Some(12.5), ..JobProgress::default() };
    way.report("good", JobState::Running, "", Some(progress));
    way.report_plan("good", "== Plan ==\nScan");
    way.report("bad", JobState::Failed, "error=<i>no such table", None);
    let jobs = api(&server, "jobs");
    assert!(
        jobs["jobs"][0]["state"] == "failed" && jobs["jobs"][0]["text"] == "error=<i>no such table",
        "{jobs}"
    );
    let good = &jobs["jobs"][1];
    assert!(good["plan"] == "== Plan ==\nScan" && good["progress"]["records_read"] == 7, "{jobs}");
    assert_eq!(good["progress"]["watermark"], 12.5);
}

#[test]
fn the_overview_has_the_numbers_from_which_the_page_makes_rates() {
    let server = start();
    let mut client = server.client();
    let before = api(&server, "overview");
    for at in 0..100 {
        client.says(&format!("set key{at} value"), "+OK\r\n");
    }
    client.says("get key1", "$5\r\nvalue\r\n");
    let after = api(&server, "overview");
    let grew = |name: &str| {
        after["numbers"][name].as_u64().unwrap() - before["numbers"][name].as_u64().unwrap_or_default()
    };
    assert!(grew("commands") >= 101 && grew("keyspace_hits") == 1 && grew("store_keys") == 100, "{after}");
    assert!(after["at"].as_u64() >= before["at"].as_u64() && after["not_ready"].is_null(), "{after}");
    assert_eq!(after["numbers"]["command_calls"]["set"], 100);
    assert_eq!(after["numbers"]["database_keys"]["0"], 100);
    let buckets = after["numbers"]["command_duration_seconds"]["set"]["buckets"].as_array().unwrap();
    let sum: u64 = buckets.iter().map(|pair| pair[1].as_u64().unwrap()).sum();
    assert!(sum == 100 && buckets.last().unwrap()[0].is_null(), "{buckets:?}");
}

#[test]
fn slow_commands_and_a_thousand_connections_leave_the_overview_served() {
    let server = start();
    let address = server.metrics();
    let idle: Vec<TcpStream> = (0..1000).filter_map(|_| TcpStream::connect(address).ok()).collect();
    assert!(idle.len() > 900, "{}", idle.len());
    // Behind them in the kernel's queue.
    assert_eq!(get(address, "/api/overview", "").0, 200);
    // Both workers are busy, so commands of the console wait.
    // The clock is the processor time of both.
    let script = "local t = os.clock() while os.clock() - t < 6 do end return 1";
    let mut busy: Vec<Client> = (0..2).map(|_| server.client()).collect();
    busy.iter_mut().for_each(|client| client.send(format!("eval \"{script}\" 0\r\n")));
    std::thread::sleep(Duration::from_millis(200));
    let mut waiting: Vec<TcpStream> = (0..60).map(|_| connect(address)).collect();
    for stream in &mut waiting {
        stream.write_all(b"GET /api/keys HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    }
    // One that does not read its answers.
    let mut deaf = connect(address);
    deaf.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
    let _ = deaf.write_all(&b"GET /console.js HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(1000));
    let begun = Instant::now();
    for path in ["/api/overview", "/", "/metrics"] {
        assert_eq!(get(address, path, "").0, 200, "{path}");
    }
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(2), "{took:?}");
    let statuses: Vec<u16> = waiting.iter_mut().map(|stream| answer(stream, false).0).collect();
    let served = statuses.iter().filter(|status| **status == 200).count();
    assert!(served >= 20 && statuses.iter().all(|status| [200, 503].contains(status)), "{statuses:?}");
    busy.iter_mut().for_each(|client| client.expect(":1\r\n"));
    drop(idle);
    assert_eq!(api(&server, "keys")["keys"].as_array().unwrap().len(), 0);
}
