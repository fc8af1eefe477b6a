//! Users: their rights, and that no way leads around them.

use crate::support::{Client, Server, eventually};
use duramen_server::config::Allowed;
use duramen_server::redis::command::{Args, Entry, Flags, KeyFlags, OwnedArgs, table};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

const NO_COMMAND: &str = "-NOPERM this user has no permissions to run the '";
const NO_KEY: &str = "-NOPERM this user has no permissions to access one of the keys used as arguments\r\n";
const NO_CHANNEL: &str =
    "-NOPERM this user has no permissions to access one of the channels used as arguments\r\n";

fn debuggable() -> Server {
    Server::with(|config| config.enable_debug_command = Allowed::Yes)
}

/// A client of a user with these rules.
fn user(server: &Server, name: &str, rules: &str) -> Client {
    server.client().says(&format!("acl setuser {name} on nopass {rules}"), "+OK\r\n");
    let mut client = server.client();
    client.says(&format!("auth {name} any"), "+OK\r\n");
    client
}

fn encode(words: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend(word);
        bytes.extend(b"\r\n");
    }
    bytes
}

fn words(text: &[&str]) -> Vec<Vec<u8>> {
    text.iter().map(|word| word.as_bytes().to_vec()).collect()
}

/// Sends bytes, and returns all that came in answer.
fn answers(client: &mut Client, bytes: &[u8]) -> String {
    use std::io::Read as _;
    client.send(bytes);
    client.send("*2\r\n$4\r\nECHO\r\n$9\r\n-the-end-\r\n");
    let mut said = Vec::new();
    let mut room = [0; 4096];
    while !said.ends_with(b"$9\r\n-the-end-\r\n") {
        let read = match client.0.read(&mut room) {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            read => read.unwrap(),
        };
        assert!(read > 0, "closed after {}", bytes.escape_ascii());
        said.extend_from_slice(&room[..read]);
    }
    said.truncate(said.len() - b"$9\r\n-the-end-\r\n".len());
    String::from_utf8_lossy(&said).into_owned()
}

#[test]
fn rights_to_commands_keys_and_channels_are_checked() {
    let server = Server::start();
    let mut client = user(&server, "ada", "+@read +set +publish ~a:* %R~r:* &news.*");
    client.says("acl whoami", "-NOPERM this user has no permissions to run the 'acl|whoami' command\r\n");
    client.says("set a:1 x", "+OK\r\n");
    client.says("set r:1 x", NO_KEY);
    client.says("get r:1", "$-1\r\n");
    client.says("mget a:1 r:1 b", NO_KEY);
    client.says("publish news.1 x", ":0\r\n");
    client.says("publish old x", NO_CHANNEL);
    client.says("DEL a:1", "-NOPERM this user has no permissions to run the 'del' command\r\n");
    // Later rights count at once, on this connection too.
    server.client().says("acl setuser ada +del (+incr ~n)", "+OK\r\n");
    client.says("del a:1", ":1\r\n");
    client.says("incr n", ":1\r\n");
    client.says("set n 7", NO_KEY);
    client.says("incr a:1", NO_KEY);
    // As in Redis: with a wrong number of keys no key is checked, and the command fails.
    let mut eve = user(&server, "eve", "+@all ~a:*");
    eve.says("zunionstore b 1 a:1", NO_KEY);
    eve.says("zunionstore b 2 a:1", "-ERR syntax error\r\n");
    eve.says("acl dryrun eve zunionstore b 0 a:1", "+OK\r\n");
    client.says("auth default x", "+OK\r\n");
    client.says("acl whoami", "$7\r\ndefault\r\n");
    assert!(client.text("client info").contains(" user=default "));
    client.says("acl getuser ada", "*12\r\n$5\r\nflags\r\n*2\r\n$2\r\non\r\n$6\r\nnopass\r\n$9\r\npasswords\r\n*0\r\n$8\r\ncommands\r\n$30\r\n-@all +@read +set +publish +del\r\n$4\r\nkeys\r\n$11\r\n~a:* %R~r:*\r\n$8\r\nchannels\r\n$7\r\n&news.*\r\n$9\r\nselectors\r\n*1\r\n*6\r\n$8\r\ncommands\r\n$11\r\n-@all +incr\r\n$4\r\nkeys\r\n$2\r\n~n\r\n$8\r\nchannels\r\n$0\r\n\r\n".replace("$30", "$31").as_str());
}

#[test]
fn each_command_of_a_pipeline_is_checked() {
    let server = Server::start();
    let mut client = user(&server, "bob", "+@all -incr ~a*");
    // Rows of any keys, and runs on one key.
    client.send("set a1 1\r\nset b1 1\r\nset a2 2\r\nget a1\r\nget b1\r\nget a2\r\n");
    client.expect(format!("+OK\r\n{NO_KEY}+OK\r\n$1\r\n1\r\n{NO_KEY}$1\r\n2\r\n"));
    client.send("rpush al x\r\nrpush al y\r\nlpop al\r\nrpush bl x\r\nrpush bl x\r\nllen al\r\n");
    client.expect(format!(":1\r\n:2\r\n$1\r\nx\r\n{NO_KEY}{NO_KEY}:1\r\n"));
    client.send("set a3 1\r\nincr a3\r\nincr a3\r\nget a3\r\n");
    let no_incr = format!("{NO_COMMAND}incr' command\r\n");
    client.expect(format!("+OK\r\n{no_incr}{no_incr}$1\r\n1\r\n"));
    let mut rows = String::new();
    (0..64).for_each(|at| rows += &format!("get {}{at}\r\n", if at == 40 { 'b' } else { 'a' }));
    client.send(rows);
    for at in 0..64 {
        let wanted = match at {
            40 => NO_KEY,
            1 | 3 => "$1\r\n1\r\n",
            2 => "$1\r\n2\r\n",
            _ => "$-1\r\n",
        };
        client.expect(wanted);
    }
}

#[test]
fn exec_and_waiting_clients_are_checked_again() {
    let server = Server::start();
    let mut admin = server.client();
    let mut client = user(&server, "eve", "+@all ~k*");
    client.says("multi", "+OK\r\n");
    client.says("set k1 x", "+QUEUED\r\n");
    client.says("get k1", "+QUEUED\r\n");
    admin.says("acl setuser eve -set", "+OK\r\n");
    client.says("exec", "*2\r\n-NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC call. This command is no longer allowed for the following reason: no permission to execute the command or subcommand\r\n$-1\r\n");
    client.says("multi", "+OK\r\n");
    client.says("get b", NO_KEY);
    client.says("exec", "-EXECABORT Transaction discarded because of previous errors.\r\n");
    client.send("blpop k2 0\r\n");
    eventually("it waits", || admin.field("clients", "blocked_clients") == 1);
    admin.says("acl setuser eve -blpop", "+OK\r\n");
    admin.says("rpush k2 x", ":1\r\n");
    client.expect(format!("{NO_COMMAND}blpop' command\r\n"));
    admin.says("llen k2", ":1\r\n");
    // EXEC itself, and MULTI.
    admin.says("acl setuser eve -exec", "+OK\r\n");
    client.says("multi", "+OK\r\n");
    client.says("exec", "-EXECABORT Transaction discarded because of: NOPERM this user has no permissions to run the 'exec' command\r\n");
}

#[test]
fn clients_of_a_deleted_user_are_closed() {
    let server = Server::start();
    let mut admin = server.client();
    let mut other = user(&server, "gone", "+@all ~*");
    let mut own = user(&server, "gone", "+@all ~*");
    own.says("acl deluser gone nobody", ":1\r\n");
    own.expect_end();
    other.expect_end();
    admin.says("acl deluser gone", ":0\r\n");
    admin.says("acl deluser x default", "-ERR The 'default' user cannot be removed\r\n");
    admin.says("auth gone any", "-WRONGPASS invalid username-password pair or user is disabled.\r\n");
    // One that listens to what it may no longer hear, and one that still may.
    let mut deaf = user(&server, "sub", "+@all &a* &b");
    let mut hears = user(&server, "sub", "+@all &a* &b");
    deaf.says("subscribe b", "*3\r\n$9\r\nsubscribe\r\n$1\r\nb\r\n:1\r\n");
    hears.says("psubscribe a*", "*3\r\n$10\r\npsubscribe\r\n$2\r\na*\r\n:1\r\n");
    admin.says("acl setuser sub resetchannels &a*", "+OK\r\n");
    deaf.expect_end();
    admin.says("publish a1 x", ":1\r\n");
    hears.expect("*4\r\n$8\r\npmessage\r\n$2\r\na*\r\n$2\r\na1\r\n$1\r\nx\r\n");
}

#[test]
fn clients_that_hear_what_their_user_may_no_longer_are_closed() {
    let server = Server::start();
    let mut admin = server.client();
    let mut monitor = user(&server, "mon", "+@all ~*");
    let mut still = user(&server, "mon", "+@all ~*");
    monitor.says("monitor", "+OK\r\n");
    let mut tracks = user(&server, "track", "+@all ~a* ~b*");
    let mut tracks_less = user(&server, "track", "+@all ~a* ~b*");
    for (client, prefix) in [(&mut tracks, "b"), (&mut tracks_less, "a")] {
        client.hello_3();
        client.says(&format!("client tracking on bcast prefix {prefix}"), "+OK\r\n");
    }
    admin.says("acl setuser mon -monitor", "+OK\r\n");
    admin.says("acl setuser track resetkeys ~a*", "+OK\r\n");
    admin.says("mset a1 x b1 x", "+OK\r\n");
    let mut shown = String::new();
    std::io::Read::read_to_string(&mut monitor.0, &mut shown).unwrap();
    assert!(!shown.contains("mset"), "{shown}");
    tracks.expect_end();
    still.says("ping", "+PONG\r\n");
    tracks_less.expect(">2\r\n$10\r\ninvalidate\r\n*1\r\n$2\r\na1\r\n");
}

#[test]
fn a_failed_login_is_noted_and_its_answer_held_back() {
    let server = Server::with(|config| config.requirepass = "secret".to_owned());
    let mut client = server.client();
    let wrong = "-WRONGPASS invalid username-password pair or user is disabled.\r\n";
    let begun = Instant::now();
    for _ in 0..5 {
        client.says("auth ada wrong", wrong);
    }
    // 10, 20, 30, 40 and 50 ms.
    assert!(begun.elapsed() >= Duration::from_millis(150), "{:?}", begun.elapsed());
    client.says("hello 3 auth default wrong", wrong);
    client.says("auth secret", "+OK\r\n");
    client.says("acl setuser ada on >one >two +@all", "+OK\r\n");
    for password in ["one", "two"] {
        server.client().says(&format!("auth ada {password}"), "+OK\r\n");
    }
    client.says("acl setuser ada off", "+OK\r\n");
    server.client().says("auth ada one", wrong);
    client.send("acl log 2\r\n");
    client.expect("*2\r\n*20\r\n$5\r\ncount\r\n:6\r\n$6\r\nreason\r\n$4\r\nauth\r\n$7\r\ncontext\r\n$8\r\ntoplevel\r\n$6\r\nobject\r\n$4\r\nauth\r\n$8\r\nusername\r\n$3\r\nada\r\n");
    let mut exec = server.client();
    let begun = Instant::now();
    exec.says("auth secret", "+OK\r\n");
    exec.says("multi", "+OK\r\n");
    exec.says("auth a b", "+QUEUED\r\n");
    exec.says("auth a b", "+QUEUED\r\n");
    exec.says("exec", &format!("*2\r\n{wrong}{wrong}"));
    assert!(begun.elapsed() >= Duration::from_millis(150), "{:?}", begun.elapsed());
}

#[test]
fn users_are_kept_in_the_acl_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("users.acl");
    let hash = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";
    std::fs::write(&path, format!("\nuser al on #{hash} ~a:* resetchannels -@all +@read -get (~b +set)\n"))
        .unwrap();
    let with = |path: &std::path::Path| {
        let (path, password) = (path.display().to_string(), "pw");
        Server::with(move |config| {
            config.aclfile.clone_from(&path);
            config.requirepass = password.to_owned();
        })
    };
    let server = with(&path);
    let mut client = server.client();
    // The file says nothing of the default user, so `requirepass` counts.
    client.says("get k", "-NOAUTH Authentication required.\r\n");
    client.says("auth pw", "+OK\r\n");
    let line =
        format!("user al on #{hash} ~a:* resetchannels -@all +@read -get (~b resetchannels -@all +set)");
    let shown = format!("*2\r\n${}\r\n{line}\r\n$", line.len());
    client.says("acl list", &shown);
    client.line();
    client.line();
    client.says("acl setuser new on nopass %R~x* &c +get +select|1", "+OK\r\n");
    client.says("acl save", "+OK\r\n");
    let saved = std::fs::read_to_string(&path).unwrap();
    assert!(saved.contains("user new on nopass %R~x* resetchannels &c -@all +get +select|1\n"), "{saved}");
    let mut closed = server.client();
    closed.says("auth new x", "+OK\r\n");
    client.says("acl setuser new off", "+OK\r\n");
    client.says("acl load", "+OK\r\n");
    closed.expect_end();
    server.client().says("auth new x", "+OK\r\n");
    // A bad file changes nothing.
    std::fs::write(&path, format!("{saved}user new on\nuser bad +nosuch\nuser (x ((\nmod\n")).unwrap();
    client.send("acl load\r\n");
    let said = client.line();
    for part in [
        "Duplicate user 'new' found on line 4",
        "operation '+nosuch': Unknown command",
        "Unmatched parenthesis",
        "should start with user keyword",
        "no change to the previously active",
    ] {
        assert!(said.contains(part), "{said}");
    }
    server.client().says("auth new x", "+OK\r\n");
    drop(server);
    std::fs::write(&path, &saved).unwrap();
    with(&path).client().says("auth new x", "+OK\r\n");
}

#[test]
fn bad_users_of_the_configuration_are_refused_at_the_start() {
    let start = |users: &[&str], file: &str| {
        let mut config = duramen_server::Config {
            port: 0,
            medium: duramen::MediumKind::Volatile,
            path: "volatile".into(),
            aclfile: file.to_owned(),
            ..Default::default()
        };
        let split = |line: &&str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        config.users = users.iter().map(split).collect();
        duramen_server::Started::start(config).map(|_| ()).map_err(|error| error.to_string())
    };
    let error = start(&["al on +nosuch"], "").unwrap_err();
    assert!(error.contains("'+nosuch': Unknown command or category name in ACL"), "{error}");
    assert!(start(&["al", "al"], "").unwrap_err().contains("Duplicate user"));
    assert!(start(&["al"], "x.acl").unwrap_err().contains("aclfile"));
    assert!(start(&[], "/nonexistent/x.acl").unwrap_err().contains("opening file"));
}

#[test]
fn the_default_user_may_be_limited_or_off() {
    let server = Server::with(|config| {
        config.users = vec![
            words_of("default on nopass ~pub:* +@read +acl|whoami"),
            words_of("root on >pw ~* &* +@all"),
        ];
    });
    let mut client = server.client();
    client.says("get pub:1", "$-1\r\n");
    client.says("get x", NO_KEY);
    client.says("set pub:1 x", &format!("{NO_COMMAND}set' command\r\n"));
    client.says("auth root pw", "+OK\r\n");
    client.says("acl setuser default off", "+OK\r\n");
    server.client().says("get pub:1", "-NOAUTH Authentication required.\r\n");
    client.says("reset", "+RESET\r\n");
    client.says("acl whoami", "-NOAUTH Authentication required.\r\n");
}

fn words_of(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_owned).collect()
}

#[test]
fn keys_that_a_description_does_not_find_are_checked_too() {
    let server = debuggable();
    let mut admin = server.client();
    admin.says("geoadd a:geo 0 0 x", ":1\r\n");
    admin.says("rpush a:list 1 2", ":2\r\n");
    admin.says("set secret:1 hidden", "+OK\r\n");
    let mut client = user(&server, "geo", "+@all ~a:*");
    client.says("georadius a:geo 0 0 1 km store a:1 store secret:2", NO_KEY);
    client.says("georadius a:geo 0 0 1 km storedist a:1 storedist secret:2", NO_KEY);
    client.says("georadiusbymember a:geo x 1 km store a:1 store secret:2", NO_KEY);
    client.says("sort a:list store a:2 store secret:2", NO_KEY);
    client.says(
        "sort a:list by nosort get secret:*",
        "-ERR GET option of SORT denied due to insufficient ACL permissions.\r\n",
    );
    client.says(
        "sort a:list by secret:*",
        "-ERR BY option of SORT denied due to insufficient ACL permissions.\r\n",
    );
    client.says(
        "sort_ro a:list get #",
        "-ERR GET option of SORT denied due to insufficient ACL permissions.\r\n",
    );
    client.says("sort a:list by nosort", "*2\r\n$1\r\n1\r\n$1\r\n2\r\n");
    client.says("debug object secret:1", NO_KEY);
    client.says("debug digest-value a:1 secret:1", NO_KEY);
    client.says("copy a:list secret:3", NO_KEY);
    client.says("copy secret:1 a:3", NO_KEY);
    client.says("client tracking on bcast", NO_KEY);
    client.says("client tracking on bcast prefix secret:", NO_KEY);
    client.says("client tracking on bcast prefix a:x", "+OK\r\n");
    admin.says("exists secret:2 secret:3 a:3", ":0\r\n");
}

// --- the matrix: every command, by every way

/// Arguments that the command takes, with this key at each place of a key; the places.
fn sample(entry: &Entry, key: &str) -> (Vec<Vec<u8>>, Vec<usize>) {
    let name = entry.spec.name.split('|').map(|word| word.as_bytes().to_vec());
    let least = usize::from(entry.spec.arity.unsigned_abs());
    let mut best = (Vec::new(), Vec::new());
    // Numbers of keys stand at these places.
    for (tail, number_at) in
        [(0, 0), (1, 0), (2, 0), (3, 0), (0, 1), (1, 1), (0, 2), (1, 2), (0, 3), (1, 3), (2, 3)]
    {
        for word in ["", "STREAMS", "STORE", "STOREDIST", "KEYS"] {
            let mut all: Vec<Vec<u8>> = name.clone().collect();
            let count = least.max(all.len()) + tail;
            all.resize(count.max(all.len()), key.as_bytes().to_vec());
            if number_at > 0 && number_at < all.len() && entry.spec.name.split('|').count() <= number_at {
                all[number_at] = b"1".to_vec();
            }
            if !word.is_empty() {
                while all.len() < 7 && word != "STREAMS" {
                    all.push(b"1".to_vec());
                }
                all.push(word.as_bytes().to_vec());
                all.push(key.as_bytes().to_vec());
                if word == "STREAMS" {
                    all.push(b"0".to_vec());
                }
            }
            if !entry.spec.arity_allows(all.len()) {
                continue;
            }
            let parts: Vec<&[u8]> = all.iter().map(Vec::as_slice).collect();
            let owned = OwnedArgs::of(&parts);
            let places: BTreeSet<usize> =
                entry.spec.keys_to_check(owned.args()).map(|place| place.index).collect();
            let is_found = table().find(owned.args()).is_some_and(|found| found.index == entry.index);
            if is_found && (best.0.is_empty() || places.len() > best.1.len()) {
                best = (all, places.into_iter().collect());
            }
        }
    }
    best
}

/// Each way by which a command can come, with the number of replies before that of the command.
fn ways(call: &[Vec<u8>]) -> Vec<(&'static str, Vec<u8>)> {
    let one = encode(call);
    let multi = [&encode(&words(&["MULTI"]))[..], &one, &encode(&words(&["EXEC"]))].concat();
    let mut upper = call.to_vec();
    upper[0].make_ascii_uppercase();
    let inline = call.join(&b' ');
    let within = |head: &[&str]| encode(&[&words(head)[..], call].concat());
    vec![
        ("direct", one.clone()),
        ("in upper case", encode(&upper)),
        ("inline", [&inline[..], b"\r\n"].concat()),
        ("twice in a pipeline", one.repeat(2)),
        ("in MULTI", multi),
        (SCRIPT, within(&["EVAL", "return redis.call(unpack(ARGV))", "0"])),
        (FUNCTION, within(&["FCALL", "run", "0"])),
    ]
}

const SCRIPT: &str = "in a script";
const FUNCTION: &str = "in a function";
const LIBRARY: &str =
    "#!lua name=lib\nredis.register_function('run', function(_, args) return redis.call(unpack(args)) end)";

/// A server with the function of [`ways`], and a client who may everything.
fn with_function() -> (Server, Client) {
    let server = debuggable();
    let mut admin = server.client();
    admin.send(encode(&words(&["FUNCTION", "LOAD", LIBRARY])));
    admin.expect("$3\r\nlib\r\n");
    (server, admin)
}

/// What refuses a command that comes by this way, up to the script's place; `outside`: where it is no script.
fn refusal(entry: &Entry, way: &str, outside: String, inside: &str) -> String {
    let runs = match way {
        SCRIPT => "eval",
        FUNCTION => "fcall",
        _ => return outside,
    };
    match inside {
        // The script itself is refused.
        IN_SCRIPT_NO_COMMAND if entry.spec.name == runs => outside,
        _ if entry.spec.flags.has(Flags::NOSCRIPT) => {
            "-ERR This Redis command is not allowed from script".to_owned()
        }
        inside => inside.to_owned(),
    }
}

const IN_SCRIPT_NO_COMMAND: &str = "-ERR The user executing the script can't run this command or subcommand";
const IN_SCRIPT_NO_KEY: &str = "-ERR The user executing the script can't access at least one of the keys mentioned in the command arguments";

/// A reply without the refusals, and without the place in the script that follows one.
fn without(said: &str, refusal: &str, way: &str) -> String {
    let rest = said.replace(refusal, "");
    let is_place =
        (way == SCRIPT || way == FUNCTION) && rest.starts_with(" script: ") && rest.ends_with(".\r\n");
    if is_place && rest.lines().count() == 1 { String::new() } else { rest }
}

/// Neither closed, nor changed in what its replies are.
fn is_asked(entry: &Entry) -> bool {
    !matches!(entry.spec.name, "quit" | "reset" | "auth" | "hello" | "multi" | "exec" | "discard" | "echo")
}

#[test]
fn no_way_leads_around_the_right_to_a_command() {
    let (server, mut admin) = with_function();
    let mut client = user(&server, "limited", "+@all ~* &*");
    let (mut count, mut in_scripts) = (0, 0);
    for entry in table().all().filter(|entry| is_asked(entry)) {
        let name = entry.spec.name;
        // A container is no command: with an unknown subcommand it is unknown itself.
        if entry.spec.flags.has(Flags::NO_AUTH) || !entry.subcommands.is_empty() && name != "command" {
            continue;
        }
        let (call, _) = sample(entry, "k");
        assert!(!call.is_empty(), "{name} has no sample");
        let few = match name {
            "eval" | "fcall" => "-@all +multi +exec +echo",
            _ => "-@all +multi +exec +echo +eval +fcall",
        };
        for rules in [format!("+@all -{name}"), format!("-@all +@all -{name}"), few.to_owned()] {
            admin.says(&format!("acl setuser limited {rules}"), "+OK\r\n");
            for (way, bytes) in ways(&call) {
                // What MULTI takes not at all is refused for that first.
                if way == "in MULTI" && entry.spec.flags.has(Flags::NO_MULTI) {
                    continue;
                }
                let said = answers(&mut client, &bytes);
                if name == "eval" && way == FUNCTION || name == "fcall" && way == SCRIPT {
                    // With few rights, this way is closed too; else there is its own test.
                    continue;
                }
                let refusal =
                    refusal(entry, way, format!("{NO_COMMAND}{name}' command\r\n"), IN_SCRIPT_NO_COMMAND);
                in_scripts += usize::from(refusal == IN_SCRIPT_NO_COMMAND);
                let refusals = said.matches(&*refusal).count();
                let wanted = if way == "twice in a pipeline" { 2 } else { 1 };
                assert_eq!(refusals, wanted, "{name}, {way}, {rules}: {said}");
                let rest = without(&said, &refusal, way);
                let empty = ["", "+OK\r\n-EXECABORT Transaction discarded because of previous errors.\r\n"];
                assert!(empty.contains(&&*rest), "{name}, {way}: {said}");
                count += 1;
            }
        }
        // Queued with the right, run without.
        if entry.spec.flags.has(Flags::NO_MULTI) || matches!(name, "watch" | "shutdown" | "quit") {
            continue;
        }
        admin.says("acl setuser limited +@all", "+OK\r\n");
        client.send([encode(&words(&["MULTI"])), encode(&call)].concat());
        client.expect("+OK\r\n+QUEUED\r\n");
        admin.says(&format!("acl setuser limited -{name}"), "+OK\r\n");
        let said = answers(&mut client, &encode(&words(&["EXEC"])));
        assert!(said.contains("-NOPERM ACLs rules changed"), "{name}, EXEC: {said}");
        count += 1;
    }
    assert!(count > 4000 && in_scripts > 1500, "{count} ways were tried, {in_scripts} in scripts");
}

/// A command that waits, what wakes it, and how the key is read afterwards, in which the element still is.
const WAITING: [(&str, &str, &str); 10] = [
    ("blpop k 0", "rpush k x", "llen k"),
    ("brpop k 0", "rpush k x", "llen k"),
    ("blmpop 0 1 k LEFT", "rpush k x", "llen k"),
    ("blmove k other LEFT LEFT 0", "rpush k x", "llen k"),
    ("brpoplpush k other 0", "rpush k x", "llen k"),
    ("bzpopmin k 0", "zadd k 1 x", "zcard k"),
    ("bzpopmax k 0", "zadd k 1 x", "zcard k"),
    ("bzmpop 0 1 k MIN", "zadd k 1 x", "zcard k"),
    ("xread block 0 streams k $", "xadd k 1-1 f x", "xlen k"),
    ("xreadgroup group g c block 0 streams k >", "xadd k 1-1 f x", "xlen k"),
];

#[test]
fn no_way_leads_around_a_right_by_waiting() {
    let server = debuggable();
    let mut admin = server.client();
    // WAIT and WAITAOF wait for no key.
    let blocking =
        table().all().filter(|entry| entry.spec.flags.has(Flags::BLOCKING) && entry.spec.has_keys());
    let blocking: BTreeSet<&str> = blocking.map(|entry| entry.spec.name).collect();
    let sampled: BTreeSet<&str> = WAITING.iter().map(|(call, ..)| call.split(' ').next().unwrap()).collect();
    assert_eq!(blocking, sampled);
    for (call, wakes, count) in WAITING {
        let name = call.split(' ').next().unwrap();
        for taken in
            [format!("-{name}"), "resetkeys".to_owned(), "-@all".to_owned(), "resetkeys ~j*".to_owned()]
        {
            admin.send("unlink k other\r\n");
            admin.line();
            if name == "xreadgroup" {
                admin.says("xgroup create k g $ mkstream", "+OK\r\n");
            }
            let mut client = user(&server, "waits", "resetkeys +@all ~*");
            client.send(format!("{call}\r\n"));
            eventually("it waits", || admin.field("clients", "blocked_clients") == 1);
            admin.says(&format!("acl setuser waits {taken}"), "+OK\r\n");
            admin.send(format!("{wakes}\r\n"));
            let woken = admin.line();
            if woken.starts_with('$') {
                admin.line();
            }
            let said = client.line();
            assert!(said.starts_with("-NOPERM"), "{call}, {taken}: {said}");
            admin.says(count, ":1\r\n");
            admin.says("exists other", ":0\r\n");
            if name == "xreadgroup" {
                admin.says("xpending k g", "*4\r\n:0\r\n$-1\r\n$-1\r\n*-1\r\n");
            }
        }
    }
}

#[test]
fn no_way_leads_to_a_key_by_tracking_or_debug() {
    let server = debuggable();
    let mut admin = server.client();
    for options in ["", " noloop", " optout"] {
        let mut client = user(&server, "limited", "+@all ~allowed* &*");
        client.hello_3();
        client.says(&format!("client tracking on{options}"), "+OK\r\n");
        let mut count = 0;
        for entry in table().all().filter(|entry| entry.spec.has_keys() && is_asked(entry)) {
            let (call, places) = sample(entry, "forbidden");
            assert!(!places.is_empty(), "{}", entry.spec.name);
            let said = answers(&mut client, &encode(&call));
            assert!(said.contains(NO_KEY), "{}: {said}", entry.spec.name);
            count += 1;
        }
        assert!(count > 150, "{count} commands");
        // Of the key that it read it is told, of the other not.
        client.says("get allowed", "_\r\n");
        admin.says("set forbidden TOPSECRET", "+OK\r\n");
        admin.says("set allowed x", "+OK\r\n");
        client.expect(">2\r\n$10\r\ninvalidate\r\n*1\r\n$7\r\nallowed\r\n");
        admin.says("unlink forbidden allowed", ":2\r\n");
        client.says("client tracking off", "+OK\r\n");
    }
    admin.says("set forbidden TOPSECRET", "+OK\r\n");
    let mut client = user(&server, "limited", "+@all ~allowed*");
    let source = include_str!("../../src/redis/command/admin/debug.rs");
    let words: BTreeSet<&str> = source
        .lines()
        .filter(|line| line.contains("=> Some(("))
        .filter_map(|line| line.trim().strip_prefix("b\"")?.split('"').next())
        .collect();
    assert!(words.contains("object") && words.contains("digest-value") && words.len() > 8, "{words:?}");
    // These are of all keys, or wait: the right to the command is all that guards them.
    for word in words
        .iter()
        .filter(|word| !matches!(**word, "sleep" | "reload" | "loadaof" | "populate" | "panic" | "segfault"))
    {
        for more in ["forbidden", "forbidden forbidden", "allowed forbidden", "forbidden 1 1"] {
            let said = answers(&mut client, format!("debug {word} {more}\r\n").as_bytes());
            assert!(!said.contains(MARK) && !said.contains("refcount"), "debug {word} {more}: {said}");
            if matches!(*word, "object" | "digest-value") {
                assert_eq!(said, NO_KEY, "debug {word} {more}");
            }
        }
    }
    admin.says("get forbidden", "$9\r\nTOPSECRET\r\n");
}

#[test]
fn no_way_leads_to_a_command_by_its_first_name_once_it_has_another() {
    // A script or a function is one of the ways.
    let ways_to = ["eval", "fcall", "function"];
    let keep = [&["acl", "echo", "auth", "exec", "multi", "config", "ping", "hello"][..], &ways_to].concat();
    let renamed: Vec<&str> =
        table().commands().map(|entry| entry.spec.name).filter(|name| !keep.contains(name)).collect();
    let server = Server::with(|config| {
        // Each second one gets another name, the others have none.
        config.renamed_commands = renamed
            .iter()
            .enumerate()
            .map(|(at, name)| {
                (
                    (*name).to_owned(),
                    if at % 2 == 0 || *name == "dbsize" { format!("my-{name}") } else { String::new() },
                )
            })
            .collect();
        config.enable_debug_command = Allowed::Yes;
    });
    let mut client = server.client();
    client.send(encode(&words(&["FUNCTION", "LOAD", LIBRARY])));
    client.expect("$3\r\nlib\r\n");
    let mut count = 0;
    for name in &renamed {
        let entry = table().command(name.as_bytes()).unwrap();
        let (call, _) = sample(entry, "k");
        for (way, bytes) in ways(&call) {
            let said = answers(&mut client, &bytes);
            let unknown = match way {
                SCRIPT | FUNCTION => "-ERR Unknown Redis command called from script".to_owned(),
                _ => format!("-ERR unknown command '{name}', with args beginning with: "),
            };
            let wanted = if way == "twice in a pipeline" { 2 } else { 1 };
            let refusals = said.to_ascii_lowercase().matches(&*unknown.to_ascii_lowercase()).count();
            assert_eq!(refusals, wanted, "{name}, {way}: {said}");
            count += 1;
        }
    }
    assert!(count > 700, "{count} ways were tried");
    client.says("my-dbsize", ":0\r\n");
    client.says("acl setuser ada on nopass ~* -@all +dbsize", "+OK\r\n");
    client.says("auth ada x", "+OK\r\n");
    client.says("my-dbsize", ":0\r\n");
    client.says("ping", &format!("{NO_COMMAND}ping' command\r\n"));
}

#[test]
fn no_way_leads_around_the_right_to_a_key() {
    let (server, mut admin) = with_function();
    let mut client = user(&server, "limited", "+@all ~allowed* &*");
    let writes = KeyFlags::INSERT.with(KeyFlags::DELETE).with(KeyFlags::UPDATE);
    let (mut count, mut with_keys) = (0, 0);
    for entry in table().all().filter(|entry| entry.spec.has_keys() && is_asked(entry)) {
        let name = entry.spec.name;
        let (call, places) = sample(entry, "allowed");
        assert!(!places.is_empty(), "{name}: no sample with a key");
        with_keys += 1;
        for place in &places {
            let mut call = call.clone();
            call[*place] = b"forbidden".to_vec();
            admin.says("acl setuser limited resetkeys ~allowed*", "+OK\r\n");
            for (way, bytes) in ways(&call) {
                let said = answers(&mut client, &bytes);
                let refusal = refusal(entry, way, NO_KEY.to_owned(), IN_SCRIPT_NO_KEY);
                assert!(said.contains(&refusal), "{name}, {way}, key {place}: {said}");
                let rest = without(&said, &refusal, way);
                let empty = ["", "+OK\r\n-EXECABORT Transaction discarded because of previous errors.\r\n"];
                assert!(empty.contains(&&*rest), "{name}, {way}: {said}");
                count += 1;
            }
        }
        // With the right to read alone, and to write alone.
        let parts: Vec<&[u8]> = call.iter().map(Vec::as_slice).collect();
        let owned = OwnedArgs::of(&parts);
        let uses = |args: Args<'_>| -> Vec<KeyFlags> {
            entry.spec.keys_to_check(args).map(|key| key.flags).collect()
        };
        let uses = uses(owned.args());
        for (rules, is_refused) in [
            ("%R~*", uses.iter().any(|flags| flags.has_any(writes))),
            ("%W~*", uses.iter().any(|flags| flags.has(KeyFlags::ACCESS))),
        ] {
            if !is_refused {
                continue;
            }
            admin.says(&format!("acl setuser limited resetkeys {rules}"), "+OK\r\n");
            for (way, bytes) in ways(&call) {
                let said = answers(&mut client, &bytes);
                let refusal = refusal(entry, way, NO_KEY.to_owned(), IN_SCRIPT_NO_KEY);
                assert!(said.contains(&refusal), "{name}, {way}, {rules}: {said}");
                count += 1;
            }
        }
    }
    assert!(with_keys > 150 && count > 1500, "{with_keys} commands, {count} ways");
    admin.says("exists forbidden", ":0\r\n");
}

/// Words for arguments, among them all that point to keys.
const VOCABULARY: [&str; 64] = [
    "secret:string",
    "secret:list",
    "secret:set",
    "secret:hash",
    "secret:zset",
    "secret:stream",
    "secret:geo",
    "allowed:string",
    "allowed:list",
    "allowed:set",
    "allowed:hash",
    "allowed:zset",
    "allowed:stream",
    "allowed:geo",
    "allowed:none",
    "secret:*",
    "*",
    "secret:hash->f",
    "0",
    "1",
    "2",
    "3",
    "-1",
    "STORE",
    "STOREDIST",
    "BY",
    "GET",
    "LIMIT",
    "STREAMS",
    "COUNT",
    "GROUP",
    "KEYS",
    "WEIGHTS",
    "AGGREGATE",
    "LEFT",
    "RIGHT",
    "MIN",
    "MAX",
    "REPLACE",
    "DB",
    "ALPHA",
    "WITHSCORES",
    "km",
    "m",
    "ASC",
    "DESC",
    "EX",
    "XX",
    "NX",
    "f",
    "x",
    "AND",
    "SUM",
    "FROMMEMBER",
    "BYRADIUS",
    "FROMLONLAT",
    "ABSTTL",
    "MATCH",
    "CH",
    "$",
    ">",
    "0-0",
    "BEFORE",
    "(1",
];

const MARK: &str = "TOPSECRET";

#[test]
fn no_arguments_lead_around_the_right_to_a_key() {
    let (server, mut admin) = with_function();
    let fill = |admin: &mut Client| {
        for prefix in ["secret", "allowed"] {
            let mark = if prefix == "secret" { MARK } else { "plain" };
            for line in [
                format!("set {prefix}:string {mark}"),
                format!("rpush {prefix}:list {mark} 1 2"),
                format!("sadd {prefix}:set {mark} x"),
                format!("hset {prefix}:hash f {mark}"),
                format!("zadd {prefix}:zset 1 {mark} 2 x"),
                format!("xadd {prefix}:stream 5-5 f {mark}"),
                format!("geoadd {prefix}:geo 0 0 {mark} 0 1 x"),
            ] {
                answers(admin, format!("{line}\r\n").as_bytes());
            }
        }
    };
    // A number of seconds of expiry shows whether that was changed.
    const STATE: &str = "debug digest-value secret:string secret:list secret:set secret:hash secret:zset secret:stream secret:geo\r\npttl secret:string\r\nexists allowed:none\r\ndbsize\r\n";
    fill(&mut admin);
    let digest = |admin: &mut Client| answers(admin, STATE.split("exists").next().unwrap().as_bytes());
    let before = digest(&mut admin);
    let mut client = user(&server, "limited", "+@all ~allowed* &*");
    let skips = |entry: &Entry| {
        let name = entry.spec.name;
        // These are of all keys, of other clients or of the server: the right to the command is all that guards them.
        !is_asked(entry)
            || [
                "client", "acl", "config", "debug", "cluster", "latency", "slowlog", "function", "script",
                "pubsub",
            ]
            .contains(&name.split('|').next().unwrap())
            || [
                "flushall",
                "flushdb",
                "swapdb",
                "shutdown",
                "save",
                "bgsave",
                "monitor",
                "keys",
                "scan",
                "randomkey",
                "select",
                "move",
                "failover",
            ]
            .contains(&name)
            || entry.spec.flags.has(Flags::PUBSUB)
    };
    let seed = 20_260_730_u64;
    let mut state = seed;
    let mut random = move |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below as u64) as usize
    };
    let mut count = 0;
    for entry in table().all().filter(|entry| !skips(entry)) {
        let name: Vec<Vec<u8>> = entry.spec.name.split('|').map(|word| word.as_bytes().to_vec()).collect();
        let least = usize::from(entry.spec.arity.unsigned_abs());
        let blocks = entry.spec.flags.has(Flags::BLOCKING);
        for round in 0..60 {
            let mut call = name.clone();
            let more = if entry.spec.arity < 0 { random(6) } else { 0 };
            while call.len() < least + more {
                call.push(VOCABULARY[random(VOCABULARY.len())].as_bytes().to_vec());
            }
            let one = encode(&call);
            let within = |head: &[&str]| encode(&[&words(head)[..], &call].concat());
            let bytes = match round % 5 {
                3 => within(&["EVAL", "return redis.call(unpack(ARGV))", "0"]),
                4 => within(&["FCALL", "run", "0"]),
                _ if blocks => [&encode(&words(&["MULTI"]))[..], &one, &encode(&words(&["EXEC"]))].concat(),
                0 => [&encode(&words(&["MULTI"]))[..], &one, &encode(&words(&["EXEC"]))].concat(),
                1 => one.repeat(2),
                _ => one,
            };
            let said = answers(&mut client, &bytes);
            let shown = call.join(&b' ');
            let shown = String::from_utf8_lossy(&shown);
            assert!(!said.contains(MARK), "seed {seed}: {shown}: {said}");
            count += 1;
            if round % 15 == 14 {
                assert_eq!(digest(&mut admin), before, "seed {seed}: {shown}, or one of the 15 before it");
            }
        }
        // Else the lists would grow.
        answers(&mut admin, b"unlink secret:list secret:stream allowed:list allowed:stream\r\n");
        fill(&mut admin);
    }
    assert!(count > 10_000, "{count} calls");
}

// --- invariant 3: what is written is read back as the same rights

fn word() -> impl proptest::strategy::Strategy<Value = Vec<u8>> {
    use proptest::prelude::*;
    let known = proptest::sample::select(vec![
        "on",
        "off",
        "nopass",
        "resetpass",
        "reset",
        "clearselectors",
        "allkeys",
        "resetkeys",
        "allchannels",
        "resetchannels",
        "allcommands",
        "nocommands",
        "+@all",
        "-@all",
        "+@read",
        "-@read",
        "+@dangerous",
        "-@dangerous",
        "+@hash",
        "-@hash",
        "+get",
        "-get",
        "+config",
        "-config",
        "+config|get",
        "-config|get",
        "+config|set",
        "+acl",
        "-acl|list",
        "+select|0",
        "+select|1",
        "-select",
        "+select",
        "+SELECT|x)",
        "+get|(a",
        ">one",
        "<one",
        ">two",
        "~*",
        "~a*",
        "%R~b",
        "%W~b",
        "%RW~c?[x-y]",
        "&*",
        "&c",
        "&d*",
        "sanitize-payload",
        "skip-sanitize-payload",
        "~x)",
        "~(x",
        "(+get ~a)",
        "(+@all -get %R~z* &k)",
        "(~a) b)",
        "()",
        "(~\"q\" +set)",
        "(\"~\\\"x\" +get)",
        "~\"q",
        "~'",
        "&)",
        "",
    ]);
    let known = known.prop_map(|word| word.as_bytes().to_vec());
    let marks = proptest::sample::select(vec!["~", "&", "+", "-", "+@", "%R~", "(", "(~", "#", ">"]);
    let strange = (marks, proptest::collection::vec(any::<u8>(), 0..6), any::<bool>())
        .prop_map(|(mark, rest, ends)| [mark.as_bytes(), &rest, if ends { b")" } else { b"" }].concat());
    prop_oneof![9 => known, 1 => strange]
}

proptest::proptest! {
    #[test]
    fn rules_are_read_back_as_the_same_rights(words in proptest::collection::vec(word(), 0..20)) {
        use duramen_server::acl::commands::Commands;
        use duramen_server::acl::file;
        use duramen_server::acl::user::Rules;
        let commands = Commands::of(table().all().map(|entry| &entry.spec));
        let mut rules = Rules::new(&commands, false);
        for word in &words {
            // One that is refused changes nothing.
            let before = rules.describe();
            if rules.set(&commands, word, false).is_err() {
                assert_eq!(rules.describe().escape_ascii().to_string(), before.escape_ascii().to_string());
            }
        }
        let text = [b"user u ", &*rules.describe(), b"\n"].concat();
        let shown = text.escape_ascii().to_string();
        let read = file::parse(&text, "file", &commands, false);
        let read = read.unwrap_or_else(|error| panic!("{shown}: {error}"));
        let read = &read[&b"u"[..]];
        assert_eq!(read.describe().escape_ascii().to_string(), rules.describe().escape_ascii().to_string());
        for entry in table().all() {
            for key in ["a1", "b", "c?x", "z", "x)", "q"] {
                let all = [entry.spec.name.as_bytes(), key.as_bytes(), b"1"];
                let owned = OwnedArgs::of(&all);
                let check = |rules: &Rules| rules.check(&entry.spec, entry.index, owned.args());
                assert_eq!(check(read), check(&rules), "{} {key}: {shown}", entry.spec.name);
            }
        }
    }
}
