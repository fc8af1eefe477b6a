//! Files of Redis into a store, and back.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

fn testdata(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/rdb").join(name)
}

fn duramen(args: &[&str], store: &Path, more: &[&Path]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_duramen"))
        .args(args)
        .arg("--path")
        .arg(store)
        .args(more)
        .output()
        .unwrap()
}

fn done(output: &Output) -> String {
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{told}");
    told
}

fn get(store: &Path, db: &str, key: &str) -> Option<Vec<u8>> {
    let output = duramen(&["get", "--db", db, key], store, &[]);
    output.status.success().then(|| output.stdout.trim_ascii_end().to_vec())
}

/// All lines of a dump, in an order of their own.
fn dump(store: &Path) -> BTreeSet<String> {
    let output = duramen(&["dump"], store, &[]);
    done(&output);
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn an_export_equals_the_import() {
    let dir = TempDir::new().unwrap();
    let (store, again, file) = (dir.path().join("a"), dir.path().join("b"), dir.path().join("out.rdb"));
    let told = done(&duramen(&["import"], &store, &[&testdata("redis-7.0.rdb")]));
    assert!(told.contains("imported 22 keys"), "{told}");
    assert_eq!(get(&store, "0", "int64").unwrap(), b"4611686018427387904");
    assert_eq!(get(&store, "3", "elsewhere").unwrap(), b"1");
    // Over existing keys.
    let told = done(&duramen(&["import"], &store, &[&testdata("redis-5.0.rdb")]));
    assert!(told.contains("imported 8 keys"), "{told}");
    let told = done(&duramen(&["import"], &store, &[&testdata("streams-7.0.rdb")]));
    assert!(told.contains("imported 5 keys"), "{told}");
    let told = done(&duramen(&["export"], &store, &[&file]));
    assert!(told.contains("exported 34 keys") || told.contains("exported 35 keys"), "{told}");
    done(&duramen(&["import"], &again, &[&file]));
    assert_eq!(dump(&again), dump(&store));
    // A store is not written over.
    let refused = duramen(&["export"], &store, &[&again]);
    assert_eq!(refused.status.code(), Some(3));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("it is a store"));
}

#[test]
fn a_damaged_file_is_an_error_with_byte_and_key_and_earlier_keys_are_imported() {
    let dir = TempDir::new().unwrap();
    let (store, file) = (dir.path().join("store"), dir.path().join("cut.rdb"));
    let whole = fs::read(testdata("redis-5.0.rdb")).unwrap();
    // Within the value of the second key.
    let at = whole.windows(14).position(|bytes| bytes == b"list:quicklist").unwrap();
    fs::write(&file, &whole[..at + 16]).unwrap();
    let output = duramen(&["import"], &store, &[&file]);
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{told}");
    let wanted = format!("at byte {}, key 'list:quicklist' of database 0: ", at + 14);
    assert!(told.contains(&wanted) && told.contains("imported before it: 1 key"), "{told}");
    let output = duramen(&["stats"], &store, &[]);
    assert!(String::from_utf8_lossy(&output.stdout).contains("redis.0"));
    // A changed byte that no value shows: the checksum finds it.
    let mut bad = whole;
    let at = bad.windows(3).position(|bytes| bytes == b"xxx").unwrap();
    bad[at] ^= 1;
    fs::write(&file, &bad).unwrap();
    let output = duramen(&["import"], &store, &[&file]);
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains("checksum") && told.contains("imported before it: 8 keys"), "{told}");
}

#[test]
fn an_append_only_directory_is_read_in_the_order_of_its_manifest() {
    let dir = TempDir::new().unwrap();
    let (store, aof) = (dir.path().join("store"), dir.path().join("appendonlydir"));
    fs::create_dir(&aof).unwrap();
    let manifest = "file a.1.base.rdb seq 1 type b\nfile a.0.incr.aof seq 0 type h\n\
                    file a.1.incr.aof seq 1 type i\nfile a.2.incr.aof seq 2 type i\n";
    fs::write(aof.join("a.manifest"), manifest).unwrap();
    fs::copy(testdata("redis-7.0.rdb"), aof.join("a.1.base.rdb")).unwrap();
    let first = b"*2\r\n$6\r\nSELECT\r\n$1\r\n0\r\n*3\r\n$6\r\nAPPEND\r\n$6\r\nstring\r\n$1\r\n!\r\n#TS:1700000000\r\n\
                  *1\r\n$5\r\nMULTI\r\n*2\r\n$4\r\nINCR\r\n$4\r\nint8\r\n*1\r\n$4\r\nEXEC\r\n";
    fs::write(aof.join("a.1.incr.aof"), first).unwrap();
    let second = b"*2\r\n$6\r\nSELECT\r\n$1\r\n3\r\n*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n*3\r\n$3\r\nSET\r\n$1\r\nk";
    fs::write(aof.join("a.2.incr.aof"), second).unwrap();
    let told = done(&duramen(&["import"], &store, &[&aof]));
    assert!(told.contains("left out: ") && told.contains("a command that was cut off"), "{told}");
    assert_eq!(get(&store, "0", "string").unwrap(), b"hello!");
    assert_eq!(get(&store, "0", "int8").unwrap(), b"-99");
    assert_eq!(get(&store, "3", "k").unwrap(), b"v");
    // A command that fails here did not fail there.
    fs::write(aof.join("a.2.incr.aof"), b"*3\r\n$5\r\nLPUSH\r\n$6\r\nstring\r\n$1\r\nx\r\n").unwrap();
    let output = duramen(&["import"], &store, &[&aof]);
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{told}");
    assert!(told.contains("a.2.incr.aof: at byte 0: LPUSH is answered \"WRONGTYPE"), "{told}");
    // A directory that is neither is refused before anything is done.
    let output = duramen(&["import"], &store, &[dir.path()]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("has no manifest"));
}

#[test]
fn a_file_not_of_redis_is_refused_and_makes_no_store() {
    let dir = TempDir::new().unwrap();
    let (store, file) = (dir.path().join("store"), dir.path().join("file"));
    fs::write(&file, "PK\x03\x04 an archive").unwrap();
    let refused = duramen(&["import"], &store, &[&file]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && !store.exists(), "{said}");
    assert!(
        said.contains("wanted REDIS or VALKEY of an RDB file") && !said.contains("redis-check-aof"),
        "{said}"
    );
    let refused = duramen(&["import", "--from", "redis://127.0.0.1:1"], &store, &[]);
    assert!(!refused.status.success() && !store.exists());
    // Behind the end of an RDB file there may be commands, and nothing else: no advice would make that better.
    let rdb = fs::read(testdata("redis-5.0.rdb")).unwrap();
    fs::write(&file, [&rdb[..], b"rubbish"].concat()).unwrap();
    let refused = duramen(&["import"], &store, &[&file]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        said.contains(&format!("ends at byte {}", rdb.len())) && !said.contains("redis-check-aof"),
        "{said}"
    );
    assert!(store.exists() && get(&store, "0", "absent").is_none());
    // What Valkey 9 writes; without a checksum.
    let mut valkey = fs::read(testdata("redis-7.0.rdb")).unwrap();
    valkey[..9].copy_from_slice(b"VALKEY080");
    let end = valkey.len() - 8;
    valkey[end..].fill(0);
    fs::write(&file, valkey).unwrap();
    let told = done(&duramen(&["import"], &store, &[&file]));
    assert!(told.contains("imported 22 keys"), "{told}");
}
