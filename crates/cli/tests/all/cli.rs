//! The program from outside: the output of its commands, and the errors of bad input.
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn duramen(dir: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_duramen")).args(args).current_dir(dir).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs a command that must end with `code`; returns what it printed, both streams.
fn ends(dir: &Path, code: i32, args: &[&str]) -> String {
    let output = duramen(dir, args);
    let said = text(&output.stdout) + &text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{args:?}: {said}");
    assert!(!said.contains("panicked"), "{args:?}: {said}");
    said
}

/// A store with `count` keys.
fn store(dir: &Path, count: u32) {
    let lines: String =
        (0..count).map(|i| format!("{{\"key\":\"key{i}\",\"value\":\"{}\"}}\n", "v".repeat(200))).collect();
    fs::write(dir.join("lines"), lines).unwrap();
    ends(dir, 0, &["load", "lines"]);
}

#[test]
fn values_are_put_read_listed_and_removed() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    assert!(ends(dir, 3, &["get", "greeting"]).contains("duramen-data"));
    ends(dir, 0, &["put", "greeting", "hello"]);
    ends(dir, 0, &["put", "--db", "3", "other", "world"]);
    assert_eq!(ends(dir, 0, &["get", "greeting"]), "hello");
    assert_eq!(ends(dir, 0, &["get", "--db", "3", "other"]), "world");
    assert_eq!(ends(dir, 1, &["get", "other"]), "");
    assert_eq!(ends(dir, 0, &["scan", "--prefix", "gree"]), "greeting\n");
    assert_eq!(ends(dir, 0, &["scan", "--db", "3"]), "other\n");
    for key in ["ash", "beech", "birch", "oak"] {
        ends(dir, 0, &["put", "--db", "4", key, "tree"]);
    }
    let scan = |args: &[&str]| ends(dir, 0, &[&["scan", "--db", "4"], args].concat());
    assert_eq!(scan(&[]), "ash\nbeech\nbirch\noak\n");
    assert_eq!(scan(&["--from", "b", "--to", "oak"]), "beech\nbirch\n");
    assert_eq!(scan(&["--reverse", "--to", "oak", "--limit", "2"]), "birch\nbeech\n");
    assert_eq!(scan(&["--reverse", "--from", "beech"]), "oak\nbirch\nbeech\n");
    assert_eq!(scan(&["--prefix", "b", "--from", "bf"]), "birch\n");
    for key in ["ash", "beech", "birch", "oak"] {
        ends(dir, 0, &["del", "--db", "4", key]);
    }
    assert!(ends(dir, 0, &["stats"]).contains("\nkeys 2\n"));
    assert_eq!(ends(dir, 0, &["del", "greeting", "nothing"]), "1\n");
    // Its own table is empty now, and a server's client has keys elsewhere.
    let said = ends(dir, 1, &["del", "greeting"]);
    assert!(said.starts_with("0\nduramen: note: ") && said.ends_with(": --db 3\n"), "{said}");
    assert!(ends(dir, 0, &["check"]).contains("sound"));
}

#[test]
fn dump_and_load_copy_all_data() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    fs::write(
        dir.join("lines"),
        "{\"key\":\"a\",\"value\":\"1\"}\n{\"key_base64\":\"AP8=\",\"value_base64\":\"gA==\",\"tag\":7,\"expires_at\":99999999999999}\n",
    )
    .unwrap();
    ends(dir, 0, &["load", "--path", "first", "lines"]);
    ends(dir, 0, &["dump", "--path", "first", "dumped"]);
    ends(dir, 0, &["load", "--path", "second", "dumped"]);
    let mut again: Vec<_> = ends(dir, 0, &["dump", "--path", "second"]).lines().map(str::to_owned).collect();
    again.sort();
    let mut lines: Vec<_> =
        fs::read_to_string(dir.join("lines")).unwrap().lines().map(str::to_owned).collect();
    lines.sort();
    assert_eq!(again, lines);
    fs::write(dir.join("bad"), "{\"key\":\"b\",\"value\":\"2\"}\n{\"key\":3}\n").unwrap();
    let said = ends(dir, 3, &["load", "--path", "second", "bad"]);
    assert!(said.contains("bad line 2") && said.contains("stored before it: 1 line"), "{said}");
    assert_eq!(ends(dir, 0, &["get", "--path", "second", "b"]), "2");
}

#[test]
fn no_output_file_replaces_a_store() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    store(dir, 10);
    let before = fs::read(dir.join("duramen-data")).unwrap();
    std::os::unix::fs::symlink("duramen-data", dir.join("link")).unwrap();
    for args in [
        &["dump", "duramen-data"][..],
        &["dump", "link"],
        &["bench", "kv", "get", "--keys", "1000", "--path", "bench", "--json", "duramen-data"],
        &["bench", "kv", "get", "--keys", "1000", "--path", "bench", "--html", "link"],
    ] {
        let said = ends(dir, 3, args);
        assert!(said.contains("it is a store"), "{args:?}: {said}");
        assert!(fs::read(dir.join("duramen-data")).unwrap() == before, "{args:?}");
    }
    // The old content stays until the dump is complete, and no other user may read the dump.
    ends(dir, 0, &["dump", "backup"]);
    let whole = fs::read(dir.join("backup")).unwrap();
    assert_eq!(fs::metadata(dir.join("backup")).unwrap().permissions().mode() & 0o777, 0o600);
    let full = Command::new("sh")
        .args(["-c", "trap '' XFSZ; ulimit -f 1; exec \"$0\" dump backup", env!("CARGO_BIN_EXE_duramen")])
        .current_dir(dir)
        .output()
        .unwrap();
    let said = text(&full.stderr);
    assert!(full.status.code() == Some(3) && said.contains("backup"), "{said}");
    assert!(fs::read(dir.join("backup")).unwrap() == whole);
    assert_eq!(fs::read_dir(dir).unwrap().filter(|file| is_part(file.as_ref().unwrap())).count(), 0);
    ends(dir, 0, &["dump", "/dev/null"]);
    let said = ends(dir, 3, &["dump", "nowhere/backup"]);
    assert!(said.contains("nowhere/backup"), "{said}");
}

fn is_part(file: &fs::DirEntry) -> bool {
    file.file_name().to_string_lossy().ends_with(".part")
}

#[test]
fn a_place_that_cannot_hold_a_store_is_not_erased() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    fs::write(dir.join("text"), "text\n").unwrap();
    let said = ends(dir, 3, &["erase", "--path", "text", "--force"]);
    assert!(said.contains("remove it instead"), "{said}");
    assert_eq!(fs::read(dir.join("text")).unwrap(), b"text\n");
}

#[test]
fn a_put_that_would_be_lost_or_unreachable_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    assert!(ends(dir, 2, &["put", "--medium", "volatile", "a", "1"]).contains("ends with the command"));
    ends(dir, 2, &["put", "--db", "128", "a", "1"]);
    ends(dir, 0, &["put", "--db", "127", "a", "1"]);
}

#[test]
fn a_server_hash_is_not_printed_as_a_string_and_is_dumped_unchanged() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    // Field f with value v, as `crates/structures/src/packed.rs` has it; 2 is the tag of a hash.
    let table = "{\"table\":\"redis.3\",\"index\":\"hash\"}\n";
    let line = "{\"table\":\"redis.3\",\"key\":\"hash\",\"value\":\"\\u0001\\u0002\\u0000\\u0000\\u0000\\u0001f\\u0001v\",\"tag\":2}\n";
    let lines = [table, line].concat();
    fs::write(dir.join("lines"), &lines).unwrap();
    ends(dir, 0, &["load", "lines"]);
    assert!(ends(dir, 3, &["get", "--db", "3", "hash"]).contains("\"hash\" holds a hash"));
    assert_eq!(ends(dir, 0, &["scan", "--db", "3"]), "hash\n");
    assert_eq!(ends(dir, 0, &["dump"]), lines);
}

/// A string in pieces, as `crates/structures/src/large/string.rs` has it, a set, and a collection of nobody's in the
/// store's own table.
#[test]
fn collections_are_dumped_and_loaded_with_their_elements() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let lines = [
        r#"{"key":"own","value":"state","tag":9,"expires_at":99999999999999,"collection":"by-value"}"#,
        r#"{"value":"00000001","element":"of own"}"#,
        r#"{"key":"plain","value":"1"}"#,
        r#"{"table":"redis.0","index":"hash"}"#,
        r#"{"table":"redis.0","key":"bits","value":"\u0002","tag":1,"collection":"by-key"}"#,
        r#"{"value":"one","element":"\u0000\u0000\u0000\u0000\u0000\u0000\u0000\u0000"}"#,
        r#"{"value":"two","element":"\u0000\u0000\u0000\u0000\u0000\u0000\u0000\u0001"}"#,
        r#"{"table":"redis.0","key":"set","value":"\u0012","tag":4,"collection":"unordered"}"#,
        r#"{"value":"","element":"a"}"#,
        r#"{"value":"","element":"b"}"#,
        r#"{"table":"redis.0","key":"hash","value":"\"","tag":2,"collection":"unordered"}"#,
        r#"{"value":"\u0000v","expires_at":99999999999999,"element":"timed"}"#,
    ];
    fs::write(dir.join("lines"), lines.join("\n")).unwrap();
    assert!(ends(dir, 0, &["load", "lines"]).contains("loaded 5 keys"));
    let string = ends(dir, 0, &["get", "--db", "0", "bits"]);
    assert_eq!(string, format!("one{}two", "\0".repeat(1021)));
    let dumped = ends(dir, 0, &["dump"]);
    let sorted = |lines: &mut dyn Iterator<Item = &str>| {
        let mut lines: Vec<String> = lines.map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(sorted(&mut dumped.lines()), sorted(&mut lines.into_iter()));
    fs::write(dir.join("dumped"), &dumped).unwrap();
    assert!(ends(dir, 0, &["load", "--path", "again", "dumped"]).contains("loaded 5 keys"));
    let again = ends(dir, 0, &["dump", "--path", "again"]);
    assert_eq!(sorted(&mut again.lines()), sorted(&mut lines.into_iter()));
    assert!(ends(dir, 0, &["check", "--path", "again"]).contains("sound"));
    let root = r#"{"key":"k","value":"v","collection":"by-key"}"#;
    for (wrong, why) in [
        (lines[1].to_owned(), "line 1: found element, but the line before is neither"),
        (format!("{}\n{}", lines[2], lines[1]), "line 2: found element, but the line before is neither"),
        (
            format!("{root}\n{{\"element\":\"e\",\"value\":\"v\",\"key\":\"k\"}}"),
            "line 2: found element, which",
        ),
        (root.replace("by-key", "by-name"), "wanted unordered, by-value or by-key"),
    ] {
        fs::write(dir.join("wrong"), wrong).unwrap();
        let said = ends(dir, 3, &["load", "--path", "third", "wrong"]);
        assert!(said.contains(why), "{said}");
    }
}

/// A counter as the server keeps it, under a key of eight bytes.
#[test]
fn a_server_counter_is_printed_as_text_and_dumped_unchanged() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    // 48 bits of -42, then 0x1234 changes; 129 is the tag of such a number.
    let line = "{\"table\":\"redis.3\",\"index\":\"ordered\"}\n\
                {\"table\":\"redis.3\",\"key\":\"counters\",\"value_base64\":\"1v//////NBI=\",\"tag\":129}\n";
    fs::write(dir.join("lines"), line).unwrap();
    ends(dir, 0, &["load", "lines"]);
    assert_eq!(ends(dir, 0, &["get", "--db", "3", "counters"]), "-42");
    assert_eq!(ends(dir, 0, &["dump"]), line);
    assert!(ends(dir, 0, &["check"]).contains("sound"));
}

#[test]
fn tables_are_put_into_listed_dumped_and_loaded() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    ends(dir, 0, &["put", "key", "own"]);
    for key in ["b", "a", "c"] {
        ends(dir, 0, &["put", "--table", "t", key, "of the table"]);
    }
    assert!(ends(dir, 2, &["put", "--table", "t", "--db", "1", "key", "x"]).contains("cannot be used"));
    assert_eq!(ends(dir, 0, &["get", "--table", "t", "a"]), "of the table");
    assert_eq!(ends(dir, 1, &["get", "--table", "t", "key"]), "");
    assert_eq!(ends(dir, 1, &["get", "--table", "none", "key"]), "");
    assert_eq!(ends(dir, 0, &["scan", "--table", "t"]), "a\nb\nc\n");
    assert_eq!(ends(dir, 0, &["scan", "--table", "t", "--reverse", "--limit", "1", "--to", "c"]), "b\n");
    assert_eq!(ends(dir, 0, &["scan", "--table", "none"]), "");
    assert_eq!(ends(dir, 0, &["scan"]), "key\n");
    assert_eq!(ends(dir, 0, &["del", "--table", "t", "c", "key"]), "1\n");
    assert_eq!(ends(dir, 1, &["del", "--table", "none", "c"]), "0\n");

    // An empty table, whose name is not text, and one with an ordered index; and errors.
    let more = "{\"table_base64\":\"/wA=\",\"index\":\"ordered\"}\n\
                {\"table\":\"o\",\"index\":\"ordered\"}\n{\"table\":\"o\",\"key\":\"1\",\"value\":\"\"}\n";
    fs::write(dir.join("more"), more).unwrap();
    assert!(ends(dir, 0, &["load", "more"]).contains("loaded 1 key\n"));
    for (line, why) in [
        ("{\"table\":\"t\",\"index\":\"tree\"}", "index: "),
        ("{\"table\":\"t\",\"index\":\"hash\",\"key\":\"k\",\"value\":\"\"}", "in a line with just a table"),
        ("{\"index\":\"hash\"}", "in a line with just a table"),
        ("{\"table\":\"t\"}", "neither key nor key_base64"),
    ] {
        fs::write(dir.join("wrong"), format!("{line}\n")).unwrap();
        let said = ends(dir, 3, &["load", "wrong"]);
        assert!(said.contains("line 1") && said.contains(why), "{said}");
    }

    let said = ends(dir, 0, &["stats", "--json", "stats.json"]);
    assert!(said.contains("\nkeys 4\n") && said.contains("\ntable \"t\": hash, 2 keys, "), "{said}");
    assert!(said.contains("\ntable \"\\xff\\x00\": ordered, 0 keys, "), "{said}");
    let json: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(dir.join("stats.json")).unwrap()).unwrap();
    assert_eq!(json["keys"], 4);
    assert_eq!((&json["tables"][0]["table"], &json["tables"][0]["keys"]), (&"o".into(), &1.into()));
    assert_eq!(json["tables"][1]["index"], "hash");
    assert_eq!(json["tables"][2]["table_base64"], "/wA=");
    let said = ends(dir, 0, &["check", "--json", "check.json"]);
    assert!(said.contains("table \"t\": 2 keys\n") && said.contains("sound"), "{said}");
    let json: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(dir.join("check.json")).unwrap()).unwrap();
    assert_eq!((&json["tables"][1]["table"], &json["tables"][1]["keys"]), (&"t".into(), &2.into()));

    // A dump is loaded whole, and so is a salvaged one.
    let dumped = ends(dir, 0, &["dump"]);
    let sorted = |text: &str| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(dumped.lines().count(), 4 + 3, "{dumped}");
    fs::write(dir.join("dumped"), &dumped).unwrap();
    assert!(ends(dir, 0, &["load", "--path", "again", "dumped"]).contains("loaded 4 keys"));
    assert_eq!(sorted(&ends(dir, 0, &["dump", "--path", "again"])), sorted(&dumped));
    assert!(ends(dir, 0, &["check", "--salvage", "saved"]).contains("saved 4 keys"));
    assert_eq!(sorted(&ends(dir, 0, &["dump", "--path", "saved"])), sorted(&dumped));
}

#[test]
fn a_truncated_store_is_reported_and_kept() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    store(dir, 5000);
    let path = dir.join("duramen-data");
    let whole = fs::read(&path).unwrap();
    for keep in [100, 5000, 20_000, 500_000] {
        fs::write(&path, &whole[..keep]).unwrap();
        let said = ends(dir, 3, &["get", "key1"]);
        assert!(said.contains("duramen-data"), "{said}");
        assert!(said.contains("bytes"), "{said}");
    }
    fs::write(&path, &whole).unwrap();
    assert_eq!(ends(dir, 0, &["get", "key1"]), "v".repeat(200));
}

#[test]
fn flipped_bytes_are_reported_and_the_rest_is_salvaged() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    store(dir, 5000);
    let path = dir.join("duramen-data");
    let whole = fs::read(&path).unwrap();
    let mut damaged = whole.clone();
    let at = 196_608 + 150_000;
    for byte in &mut damaged[at..at + 3] {
        *byte ^= 0x5a;
    }
    fs::write(&path, &damaged).unwrap();
    let said = ends(dir, 3, &["get", "key1"]);
    assert!(said.contains("checksum") && said.contains("salvage"), "{said}");
    assert!(ends(dir, 1, &["check"]).contains("damage:"));
    assert!(ends(dir, 1, &["dump", "dumped"]).contains("damaged in 1 place"));
    assert!(!dir.join("dumped").exists());
    let said = ends(dir, 0, &["check", "--salvage", "saved"]);
    assert!(fs::read(&path).unwrap() == damaged, "salvage changes nothing");
    let keys = ends(dir, 0, &["scan", "--path", "saved"]).lines().count();
    assert!((4990..5000).contains(&keys), "{keys} keys saved; {said}");
    // Any byte of the head: reported, or repaired from the other copy; never a panic, never wrong data.
    for at in [0, 13, 40, 88, 4096, 4100] {
        let mut damaged = whole.clone();
        damaged[at] ^= 0xff;
        fs::write(&path, &damaged).unwrap();
        assert!(ends(dir, 1, &["check"]).contains("superblock copy"), "byte {at}");
        assert_eq!(ends(dir, 0, &["get", "key1"]), "v".repeat(200), "byte {at}");
        for reads in
            [&["stats"][..], &["scan", "--limit", "1"], &["dump"], &["check", "--salvage", "saved again"]]
        {
            let _ = fs::remove_file(dir.join("saved again"));
            ends(dir, 0, reads);
            assert!(fs::read(&path).unwrap() == damaged, "{reads:?} changes nothing");
        }
        ends(dir, 0, &["put", "key1", &"v".repeat(200)]);
        assert!(ends(dir, 0, &["check"]).contains("sound"), "byte {at}: repaired by the open");
    }
}

/// Of a store of this size a clean close leaves an index checkpoint, and the next open does not read its records.
#[test]
fn damage_that_an_open_did_not_read_is_reported() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let dir = dir.path();
    let value = "v".repeat(100_000);
    let lines: String = (0..800).map(|i| format!("{{\"key\":\"key{i}\",\"value\":\"{value}\"}}\n")).collect();
    fs::write(dir.join("lines"), lines).unwrap();
    ends(dir, 0, &["load", "lines"]);
    let whole = ends(dir, 0, &["dump"]);
    assert_eq!(whole.lines().count(), 800);
    let path = dir.join("duramen-data");
    let mut damaged = fs::read(&path).unwrap();
    assert!(damaged.len() > 64 << 20);
    // Within a value, wherever the blocks are: headers and the free space after records are another matter.
    let from = 30 << 20;
    let at = from + damaged[from..].windows(200).position(|bytes| bytes == [b'v'; 200]).unwrap();
    damaged[at + 100] ^= 0x5a;
    fs::write(&path, &damaged).unwrap();

    let said = ends(dir, 0, &["stats"]);
    assert!(said.contains("\ndamaged_blocks ") && said.contains("\nunverified_bytes "), "{said}");
    let said = ends(dir, 1, &["dump"]);
    assert!(said.contains("damaged in 1 block: at extent") && !said.contains("vvvv"), "{said}");
    assert!(ends(dir, 1, &["dump", "dumped"]).contains("damaged in 1 block"));
    assert!(!dir.join("dumped").exists());

    let mut serving = Command::new(env!("CARGO_BIN_EXE_duramen"))
        .args(["serve", "--port", "0", "--unixsocket", "socket"])
        .current_dir(dir)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let log = BufReader::new(serving.stdout.take().unwrap());
    let told = log.lines().map(Result::unwrap).find(|line| line.contains("the store is damaged")).unwrap();
    let mut client = UnixStream::connect(dir.join("socket")).unwrap();
    client.write_all(b"INFO duramen\r\n").unwrap();
    let replied = BufReader::new(client.try_clone().unwrap()).lines().map(Result::unwrap);
    let info: Vec<String> = replied.take_while(|line| !line.starts_with("duramen_recovery_nanos")).collect();
    client.write_all(b"SHUTDOWN\r\n").unwrap();
    serving.wait().unwrap();
    assert!(told.contains("damaged in 1 block") && told.contains("duramen check --path"), "{told}");
    assert!(info.iter().any(|line| line == "duramen_damaged_blocks:1"), "{info:?}");
}

#[test]
fn a_file_that_is_no_store_is_refused_and_unchanged() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    fs::write(dir.join("duramen-data"), vec![0x55; 100_000]).unwrap();
    let said = ends(dir, 3, &["put", "a", "b"]);
    assert!(said.contains("not a Duramen store"), "{said}");
    assert!(fs::read(dir.join("duramen-data")).unwrap() == vec![0x55; 100_000], "it was changed");
    // An empty file is a store to be.
    fs::write(dir.join("duramen-data"), "").unwrap();
    ends(dir, 0, &["put", "a", "b"]);
    // A newer format.
    let mut newer = fs::read(dir.join("duramen-data")).unwrap();
    newer[8] = 200;
    fs::write(dir.join("duramen-data"), &newer).unwrap();
    let said = ends(dir, 3, &["get", "a"]);
    assert!(said.contains("format version is 200") && said.contains("newer duramen"), "{said}");
}

#[test]
fn the_error_of_a_second_open_has_the_first_ones_pid() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    ends(dir, 0, &["put", "a", "b"]);
    let mut loading = Command::new(env!("CARGO_BIN_EXE_duramen"))
        .args(["load"])
        .current_dir(dir)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = loading.stdin.take().unwrap();
    input.write_all(b"{\"key\":\"k\",\"value\":\"v\"}\n").unwrap();
    // Until it has opened the store; looking too often would keep it from that.
    let said = (0..50)
        .find_map(|_| {
            std::thread::sleep(std::time::Duration::from_millis(200));
            let output = duramen(dir, &["get", "a"]);
            (output.status.code() == Some(3)).then(|| text(&output.stderr))
        })
        .unwrap();
    assert!(said.contains(&loading.id().to_string()), "{said}");
    drop(input);
    assert!(loading.wait().unwrap().success());
}

#[test]
fn wrong_usage_has_its_own_exit_code() {
    let dir = tempfile::tempdir().unwrap();
    ends(dir.path(), 2, &["get"]);
    ends(dir.path(), 2, &["nonsense"]);
    ends(dir.path(), 2, &["get", "--medium", "nonsense", "a"]);
    ends(dir.path(), 2, &["serve", "--nonsense", "a"]);
    let said = ends(dir.path(), 3, &["put", "--path", "no/such/directory/x", "a", "b"]);
    assert!(said.contains("no/such/directory"), "{said}");
}

#[test]
fn a_build_without_a_command_says_which_build_has_it() {
    let dir = tempfile::tempdir().unwrap();
    let (has_sql, has_bench) = (cfg!(feature = "sql"), cfg!(feature = "bench"));
    for (command, feature, is_here) in
        [("sql", "sql", has_sql), ("jobs", "sql", has_sql), ("bench", "bench", has_bench)]
    {
        let is_listed = ends(dir.path(), 0, &["--help"]).contains(&format!("  {command} "));
        assert_eq!(is_listed, is_here, "{command}");
        if is_here {
            continue;
        }
        for arguments in [&["server", "--store", "x"][..], &["--help"], &[]] {
            let said = ends(dir.path(), 2, &[&[command], arguments].concat());
            assert!(said.contains(&format!("--features {feature}`")), "{said}");
        }
    }
}

#[test]
fn the_exit_code_of_serve_gives_the_kind_of_error() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    assert!(ends(dir, 0, &["serve", "--help"]).contains("duramen-durability"));
    let said = ends(dir, 2, &["serve", "--port", "many"]);
    assert!(said.contains("--port many"), "{said}");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    assert!(ends(dir, 4, &["serve", "--bind", "127.0.0.1", "--port", &port]).contains(&port));
    fs::write(dir.join("duramen-data"), vec![0x55; 100_000]).unwrap();
    let said = ends(dir, 3, &["serve", "--bind", "127.0.0.1", "--port", "0", "--unixsocket", "s"]);
    assert!(said.contains("not a Duramen store"), "{said}");
    // The help of the program says what each means.
    let help = ends(dir, 0, &["--help"]);
    (0..=4).for_each(|code| assert!(help.contains(&format!("{code} ")), "{help}"));
}

#[cfg(feature = "bench")]
#[test]
fn bench_kv_writes_results_for_the_report_and_cleans_up() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let said = ends(
        dir,
        0,
        &[
            "bench", "kv", "insert", "get", "--keys", "2000", "--path", "store", "--json", "out.json",
            "--html", "out.html",
        ],
    );
    assert!(said.contains("throughput"), "{said}");
    let run = duramen_bench::report::Run::read(&dir.join("out.json")).unwrap();
    let groups: Vec<&str> = run.measurements.iter().map(|m| m.group.as_str()).collect();
    assert_eq!((groups, run.complete), (vec!["insert", "get"], true));
    assert!(run.measurements.iter().all(|m| m.bound.is_some() && !m.latency.is_empty()));
    assert!(fs::read_to_string(dir.join("out.html")).unwrap().contains("insert"));
    let mut left: Vec<_> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["out.html", "out.json"]);
}

#[cfg(feature = "bench")]
#[test]
fn bench_kv_refuses_bad_input() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    store(dir, 10);
    fs::write(dir.join("empty"), "").unwrap();
    for (args, says) in [
        (&["insert", "--keys", "10", "--path", "empty"][..], "--path that does not exist"),
        (&["ycsb_a"], "did you mean ycsb-a?"),
        (&["growht"], "did you mean growth?"),
        (&["--variants", "in-drm"], "did you mean in-dram?"),
        (&["--targets", "delte"], "did you mean delete?"),
        (&["--records", "4+100"], "keys of 4 bytes"),
        (&["--records", "huge"], "KEY+VALUE"),
        (&["--threads", "0"], "1 to 1024"),
        (&["--rate", "0"], "operations per second"),
        (&["--durability", "never"], "every-write, manual"),
        (&["--keys", "0"], "0 is not in 1.."),
        (&["--distribution", "normal"], "uniform, zipfian or latest"),
        (&["--json", "no/such/place.json"], "directory does not exist"),
        (&["insert", "--keys", "10", "--path", "duramen-data"], "--path that does not exist"),
    ] {
        let said = ends(dir, 2, &[&["bench", "kv"], args].concat());
        assert!(said.contains(says), "{args:?}: {said}");
    }
    assert_eq!(ends(dir, 0, &["get", "key3"]), "v".repeat(200), "the store that was there is whole");
    assert!(dir.join("empty").exists());
}

#[test]
fn a_file_that_is_no_store_is_erased_only_with_a_second_confirmation() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    fs::write(dir.join("other"), [7; 64 << 10]).unwrap();
    assert!(ends(dir, 3, &["get", "--path", "other", "key"]).contains("\"duramen erase --force\""));
    assert!(ends(dir, 2, &["erase", "--path", "other"]).contains("--force"));
    assert_eq!(fs::read(dir.join("other")).unwrap(), [7; 64 << 10]);
    assert!(ends(dir, 0, &["erase", "--force", "--path", "other"]).contains("other: 65536 bytes erased"));
    ends(dir, 0, &["put", "--path", "other", "key", "value"]);
    assert_eq!(ends(dir, 0, &["get", "--path", "other", "key"]), "value");
}

#[test]
fn a_store_is_compacted_to_little_more_than_what_lives() {
    use std::os::unix::fs::MetadataExt;
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let lines = |value: &str| -> String {
        (0..6000).map(|key| format!("{{\"key\":\"key {key}\",\"value\":\"{value}\"}}\n")).collect()
    };
    fs::write(dir.join("long"), lines(&"v".repeat(2000))).unwrap();
    fs::write(dir.join("short"), lines("v")).unwrap();
    ends(dir, 0, &["load", "--path", "store", "long"]);
    ends(dir, 0, &["load", "--path", "store", "short"]);
    let space = || fs::metadata(dir.join("store")).unwrap().blocks() * 512;
    let before = space();
    let said = ends(dir, 0, &["compact", "--path", "store"]);
    assert!(said.starts_with("store: takes "), "{said}");
    assert!(before > 12 << 20 && space() < before / 3, "{before} bytes became {}: {said}", space());
    assert_eq!(ends(dir, 0, &["get", "--path", "store", "key 5999"]), "v");
    assert!(ends(dir, 0, &["check", "store"]).contains("sound"));
    assert!(ends(dir, 3, &["compact", "--path", "none"]).contains("there is no such file"));
}

#[test]
fn get_on_a_servers_store_says_where_its_keys_are() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    ends(dir, 0, &["put", "--path", "store", "--db", "3", "k", "v"]);
    let said = ends(dir, 1, &["get", "--path", "store", "k"]);
    assert!(said.contains("the store's own table") && said.contains("--db 3"), "{said}");
    assert!(!ends(dir, 0, &["get", "--path", "store", "--db", "3", "k"]).contains("note"));
    assert!(ends(dir, 0, &["check", "store"]).contains("sound"));
    let help = ends(dir, 0, &["help"]);
    assert!(help.lines().next().is_some_and(|first| first.contains("import, export")), "{help}");
}
