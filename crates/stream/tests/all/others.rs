//! A job removes and overwrites what its own checkpoints say it wrote, and nothing else.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use duramen::{Create, Durability, Options, Store};
use duramen_stream::run::{Existing, Keep, MemoryLimit, Progress, Running, Start, check_script};
use duramen_stream::{Error, Job, Outcome, Session};
use duramen_structures::{DATABASES_MAX, Keyspace, Locks};

fn open(store: &Path) -> Store {
    let options =
        Options { durability: Durability::Manual, create: Create::OpenOrCreate, ..Options::default() };
    options.open(store).unwrap()
}

/// How a job of a script is run: its store, and its name there.
#[derive(Clone, Copy)]
struct How<'h> {
    store: &'h str,
    name: &'h str,
    from_start: bool,
    existing: Existing,
}

const FIRST: How<'static> =
    How { store: "store", name: "job", from_start: false, existing: Existing::Refuse };

fn jobs(script: &str) -> Result<Vec<Job>, Error> {
    let job = |outcome| if let Outcome::Job(job) = outcome { Some(job) } else { None };
    Ok(Session::default().run(script)?.into_iter().filter_map(job).collect())
}

fn start(job: &Job, directory: &Path, keep: Option<&Keep>, existing: Existing) -> Result<Running, Error> {
    let start = Start { directory, keep, threads: Some(1), existing, own: &mut |_, _| Ok(None) };
    Running::start_on(&job.optimised, start)
}

/// Runs all jobs of a script to their ends, one after the other, with a store.
fn run_in(script: &str, directory: &Path, how: How<'_>) -> Result<(), Error> {
    for (number, job) in (1..).zip(jobs(script)?) {
        let name = if number > 1 { format!("{}-{number}", how.name) } else { how.name.to_owned() };
        let keep = Keep {
            store: open(&directory.join(how.store)),
            name,
            every: Duration::from_millis(5),
            from_start: how.from_start,
            note: String::new(),
            room: MemoryLimit::default(),
        };
        start(&job, directory, Some(&keep), how.existing)?.run(&AtomicBool::new(false), |_| ())?;
    }
    Ok(())
}

/// The same without a store.
fn run(script: &str, directory: &Path) -> Result<(), Error> {
    run_over(script, directory, Existing::Refuse)
}

fn run_over(script: &str, directory: &Path, existing: Existing) -> Result<(), Error> {
    for job in jobs(script)? {
        start(&job, directory, None, existing)?.run(&AtomicBool::new(false), |_| ())?;
    }
    Ok(())
}

fn put(directory: &Path, key: &str, value: &str) {
    let store = open(&directory.join("store"));
    let mut worker = Keyspace::open(store.clone(), DATABASES_MAX).unwrap().worker().unwrap();
    worker
        .run::<_, duramen_structures::Error>(0, Locks::One(key.as_bytes()), |txn| {
            txn.put(0, key.as_bytes(), value.as_bytes())
        })
        .unwrap();
    drop(worker);
    store.commit().unwrap();
}

/// Keys of database 0 and their values as they lie there.
fn keys(directory: &Path) -> BTreeMap<String, String> {
    let store = open(&directory.join("store"));
    let mut keys = BTreeMap::new();
    if let Some(table) = store.find_table(b"redis.0").unwrap() {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        table.for_each(|value| drop(keys.insert(text(value.key()), text(value)))).unwrap();
    }
    keys
}

fn names(directory: &Path) -> Vec<String> {
    keys(directory).into_keys().collect()
}

/// Names and bytes of the files of a directory.
fn files(directory: &Path) -> BTreeMap<String, String> {
    let file = |entry: std::io::Result<std::fs::DirEntry>| {
        let entry = entry.unwrap();
        (entry.file_name().into_string().unwrap(), std::fs::read_to_string(entry.path()).unwrap())
    };
    std::fs::read_dir(directory).into_iter().flatten().map(file).collect()
}

fn write(directory: &Path, name: &str, text: &str) {
    std::fs::write(directory.join(name), text).unwrap();
}

fn read(directory: &Path, name: &str) -> String {
    std::fs::read_to_string(directory.join(name)).unwrap_or_default()
}

/// A table of a file of CSV.
fn file(name: &str, path: &str, more: &str) -> String {
    format!(
        "CREATE TABLE {name} (k STRING, v INT) WITH ('connector' = 'filesystem', 'path' = '{path}', 'format' = 'csv'{more});\n"
    )
}

const TOTAL: &str = "CREATE TABLE total (k STRING, v INT, PRIMARY KEY (k) NOT ENFORCED)
    WITH ('connector' = 'duramen', 'value' = 'json');\n";

fn totals() -> String {
    format!("{}{TOTAL}INSERT INTO total SELECT k, SUM(v) FROM i GROUP BY k;", file("i", "in.csv", ""))
}

fn refused(ran: Result<(), Error>, wanted: &[&str]) {
    let error = ran.unwrap_err().to_string();
    for wanted in wanted {
        assert!(error.contains(wanted), "{wanted} is not in: {error}");
    }
}

#[test]
fn a_first_run_over_existing_keys_is_refused_or_follows_the_option_existing() {
    let before = || {
        let directory = tempfile::tempdir().unwrap();
        write(directory.path(), "in.csv", "a,1\nb,2\na,4\n");
        put(directory.path(), "total:alice", "precious");
        put(directory.path(), "totals:a", "of another table");
        put(directory.path(), "total", "no row");
        directory
    };
    let others = ["total", "totals:a"];
    let sorted = |more: &[&str]| {
        let mut names: Vec<String> = others.iter().chain(more).map(|name| (*name).to_owned()).collect();
        names.sort();
        names
    };
    let directory = before();
    let dir = directory.path();
    for _ in 0..2 {
        refused(run_in(&totals(), dir, FIRST), &["key total:alice of database 0", "--overwrite", "--adopt"]);
        assert_eq!(names(dir), sorted(&["total:alice"]));
    }
    run_in(&totals(), dir, How { existing: Existing::Overwrite, ..FIRST }).unwrap();
    assert_eq!(names(dir), sorted(&["total:a", "total:b"]));

    let directory = before();
    let dir = directory.path();
    put(dir, "total:b", "replaced");
    run_in(&totals(), dir, How { existing: Existing::Adopt, ..FIRST }).unwrap();
    assert_eq!(names(dir), sorted(&["total:a", "total:alice", "total:b"]));
    assert_eq!(keys(dir)["total:alice"], "precious");
    assert_eq!(keys(dir)["total:b"], r#"{"k":"b","v":2}"#);
    // It treats adopted keys as its own; a run from the start deletes them.
    run_in(&totals(), dir, FIRST).unwrap();
    assert_eq!(names(dir), sorted(&["total:a", "total:alice", "total:b"]));
    write(dir, "in.csv", "c,1\n");
    run_in(&totals(), dir, How { from_start: true, ..FIRST }).unwrap();
    assert_eq!(names(dir), sorted(&["total:c"]));
    for name in others {
        assert!(["no row", "of another table"].contains(&keys(dir)[name].as_str()));
    }
}

#[test]
fn a_run_from_the_start_deletes_the_jobs_keys_and_keeps_adopted_ones() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path();
    write(dir, "in.csv", "a,1\n");
    run_in(&totals(), dir, FIRST).unwrap();
    put(dir, "total:later", "of others");
    write(dir, "in.csv", "b,1\n");
    refused(run_in(&totals(), dir, How { from_start: true, ..FIRST }), &["total:later"]);
    // Nothing was forgotten.
    assert_eq!(names(dir), ["total:a", "total:later"]);
    run_in(&totals(), dir, FIRST).unwrap();
    run_in(&totals(), dir, How { from_start: true, existing: Existing::Adopt, ..FIRST }).unwrap();
    assert_eq!(names(dir), ["total:b", "total:later"]);
    // The table has another name now: keys under the former one go too.
    let other = totals().replace("total ", "sum ");
    run_in(&other, dir, How { from_start: true, ..FIRST }).unwrap();
    assert_eq!(names(dir), ["sum:b"]);
}

#[test]
fn a_script_that_does_not_start_deletes_no_state() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path();
    write(dir, "in.csv", "a,1\n");
    run_in(&totals(), dir, FIRST).unwrap();
    let wrong = totals().replace("in.csv", "none.csv");
    refused(run_in(&wrong, dir, How { from_start: true, ..FIRST }), &["none.csv"]);
    assert_eq!(names(dir), ["total:a"]);
    // It has ended, and its input is not needed any more.
    std::fs::remove_file(dir.join("in.csv")).unwrap();
    run_in(&totals(), dir, FIRST).unwrap();
}

#[test]
fn two_jobs_of_one_store_leave_each_others_keys_alone() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path();
    write(dir, "in.csv", "a,1\n");
    let inner = totals().replace("total", "`total:x`");
    run_in(&inner, dir, FIRST).unwrap();
    assert_eq!(names(dir), ["total:x:a"]);
    let second = How { name: "second", ..FIRST };
    refused(run_in(&totals(), dir, second), &["total:x:a"]);
    let third =
        totals().replace("CREATE TABLE total ", "CREATE TABLE other ").replace("INTO total", "INTO other");
    run_in(&third, dir, second).unwrap();
    run_in(&third, dir, How { from_start: true, ..second }).unwrap();
    assert_eq!(names(dir), ["other:a", "total:x:a"]);
}

/// Runs a job that follows its input until there are so many records, while `change` does something.
fn follow(
    script: &str,
    directory: &Path,
    how: How<'_>,
    mut change: impl FnMut(&Progress) -> bool + Send,
) -> Result<Progress, Error> {
    let job = jobs(script)?.pop().unwrap();
    let keep = Keep {
        store: open(&directory.join(how.store)),
        name: how.name.to_owned(),
        every: Duration::from_millis(5),
        from_start: how.from_start,
        note: String::new(),
        room: MemoryLimit::default(),
    };
    let mut running = start(&job, directory, Some(&keep), how.existing)?;
    let stop = AtomicBool::new(false);
    running.run(&stop, |progress| {
        if change(progress) || progress.elapsed > Duration::from_secs(20) {
            stop.store(true, Ordering::Relaxed);
        }
    })
}

const FOLLOWED: &str = ", 'source.monitor-interval' = '1 ms'";

#[test]
fn a_key_that_another_client_made_later_is_not_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path();
    write(dir, "in.csv", "a,1\n");
    let script = totals().replace("'format' = 'csv'", &format!("'format' = 'csv'{FOLLOWED}"));
    let until = |records| move |progress: &Progress| progress.records >= records;
    follow(&script, dir, FIRST, until(1)).unwrap();
    put(dir, "total:b", "precious");
    write(dir, "in.csv", "a,1\nb,2\n");
    let error = follow(&script, dir, FIRST, until(9)).unwrap_err().to_string();
    assert!(error.contains("key total:b of database 0") && error.contains("--adopt"), "{error}");
    assert_eq!(keys(dir)["total:b"], "precious");
    follow(&script, dir, How { existing: Existing::Adopt, ..FIRST }, until(2)).unwrap();
    assert_eq!(keys(dir)["total:b"], r#"{"k":"b","v":2}"#);
}

#[test]
fn a_second_store_leaves_finished_parts_alone() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path();
    let script =
        format!("{}{}INSERT INTO o SELECT * FROM i;", file("i", "day.csv", ""), file("o", "out", ""));
    write(dir, "day.csv", "a,1\n");
    run_in(&script, dir, FIRST).unwrap();
    let yesterday = files(&dir.join("out"));
    assert_eq!(yesterday.values().collect::<Vec<_>>(), ["a,1\n"]);
    write(dir, "day.csv", "b,2\n");
    let second = How { store: "second", ..FIRST };
    let name = yesterday.keys().next().unwrap();
    refused(run_in(&script, dir, second), &[name, "--overwrite", "--adopt"]);
    assert_eq!(files(&dir.join("out")), yesterday);
    run_in(&script, dir, How { existing: Existing::Adopt, ..second }).unwrap();
    let both = files(&dir.join("out"));
    assert_eq!(both.len(), 2);
    assert_eq!(both.get(name).map(String::as_str), Some("a,1\n"));
    // Its own and the adopted ones; those of the first store know nothing of it.
    write(dir, "day.csv", "c,3\n");
    run_in(&script, dir, How { from_start: true, ..second }).unwrap();
    assert_eq!(files(&dir.join("out")).values().collect::<Vec<_>>(), ["c,3\n"]);
    refused(run_in(&script, dir, How { from_start: true, ..FIRST }), &["part-job-0-"]);
    run_in(&script, dir, How { from_start: true, existing: Existing::Overwrite, ..FIRST }).unwrap();
    assert_eq!(files(&dir.join("out")).len(), 1);
    // What has no name of a part is nobody's.
    write(dir, "out/part-job-0-notes.txt", "notes");
    write(dir, "out/other.csv", "other");
    run_in(&script, dir, How { from_start: true, existing: Existing::Overwrite, ..FIRST }).unwrap();
    assert_eq!(files(&dir.join("out")).len(), 3);
}

#[test]
fn an_existing_file_is_refused_or_handled_by_the_option_existing() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path();
    let script =
        format!("{}{}INSERT INTO o SELECT * FROM i;", file("i", "in.csv", ""), file("o", "out.csv", ""));
    write(dir, "in.csv", "a,1\n");
    // Nothing is lost of an empty file.
    write(dir, "out.csv", "");
    run(&script, dir).unwrap();
    for _ in 0..2 {
        refused(run(&script, dir), &["`o`", "out.csv with 4 bytes", "--overwrite", "--adopt"]);
        assert_eq!(read(dir, "out.csv"), "a,1\n");
    }
    write(dir, "in.csv", "b,2\n");
    run_over(&script, dir, Existing::Overwrite).unwrap();
    assert_eq!(read(dir, "out.csv"), "b,2\n");
    run_over(&script, dir, Existing::Adopt).unwrap();
    assert_eq!(read(dir, "out.csv"), "b,2\nb,2\n");
    // The existing file may lack the end of its last line.
    write(dir, "out.csv", "c,3");
    run_over(&script, dir, Existing::Adopt).unwrap();
    assert_eq!(read(dir, "out.csv"), "c,3\nb,2\n");
    write(dir, "in.csv", "bad\n");
    run_over(&script, dir, Existing::Adopt).unwrap_err();
    run_over(&script, dir, Existing::Overwrite).unwrap_err();
    assert_eq!(read(dir, "out.csv"), "c,3\nb,2\n");
    // A directory gets one file.
    std::fs::create_dir(dir.join("parts")).unwrap();
    write(dir, "in.csv", "b,2\n");
    let parts = script.replace("out.csv", "parts");
    run(&parts, dir).unwrap();
    refused(run(&parts, dir), &["parts/part-0 with 4 bytes"]);
    let there = [dir, &dir.join("parts")].map(|dir| std::fs::read_dir(dir).unwrap().count());
    assert_eq!(there, [3, 1], "a file beside is left");
    // A file created while the job runs does not belong to the job either.
    for existing in [Existing::Refuse, Existing::Adopt] {
        std::fs::remove_file(dir.join("out.csv")).unwrap();
        let mut running = start(&jobs(&script).unwrap()[0], dir, None, existing).unwrap();
        write(dir, "out.csv", "of others\n");
        let error = running.run(&AtomicBool::new(false), |_| ()).unwrap_err().to_string();
        assert!(error.contains("out.csv with 10 bytes"), "{error}");
        assert_eq!(read(dir, "out.csv"), "of others\n");
    }
}

#[test]
fn an_output_file_is_replaced_only_when_the_job_has_ended() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path();
    let script = |input: &str| {
        format!("{}{}INSERT INTO o SELECT * FROM i;", file("i", input, ""), file("o", "out.csv", ""))
    };
    let over = |script: &str| run_over(script, dir, Existing::Overwrite);
    write(dir, "out.csv", "precious\n");
    write(dir, "bad.csv", "a,1\nbad\n");
    write(dir, "good.csv", "a,1\n");
    write(dir, "empty.csv", "");
    let zero = script("good.csv").replace("SELECT *", "SELECT k, 1 / (v - 1)");
    for wrong in [script("none.csv"), script("bad.csv"), zero] {
        over(&wrong).unwrap_err();
        assert_eq!(read(dir, "out.csv"), "precious\n");
        assert_eq!(files(dir).len(), 4, "a file beside is left: {:?}", files(dir).keys());
    }
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(dir.join("out.csv"), PermissionsExt::from_mode(0o600)).unwrap();
    std::os::unix::fs::symlink("out.csv", dir.join("link.csv")).unwrap();
    over(&script("good.csv").replace("'out.csv'", "'link.csv'")).unwrap();
    assert_eq!(read(dir, "out.csv"), "a,1\n");
    assert!(dir.join("link.csv").is_symlink());
    assert_eq!(dir.join("out.csv").metadata().unwrap().permissions().mode() & 0o777, 0o600);
    over(&script("empty.csv")).unwrap();
    assert_eq!(read(dir, "out.csv"), "");
    // Where input does not end, it appears with the first rows.
    let job =
        jobs(&script("good.csv").replace("'csv')", &format!("'csv'{FOLLOWED})"))).unwrap().pop().unwrap();
    write(dir, "out.csv", "old\n");
    let mut running = start(&job, dir, None, Existing::Overwrite).unwrap();
    let stop = AtomicBool::new(false);
    running
        .run(&stop, |progress| {
            assert!(["old\n", "a,1\n"].contains(&read(dir, "out.csv").as_str()));
            stop.store(
                read(dir, "out.csv") == "a,1\n" || progress.elapsed > Duration::from_secs(20),
                Ordering::Relaxed,
            );
        })
        .unwrap();
    assert_eq!(read(dir, "out.csv"), "a,1\n");
}

#[test]
fn a_job_does_not_write_to_its_own_input() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path();
    write(dir, "t.csv", "a,1\nb,2\n");
    std::fs::create_dir(dir.join("in")).unwrap();
    write(dir, "in/a.csv", "a,1\n");
    let insert = |from: &str, to: &str, more: &str| {
        format!("{}{}INSERT INTO o SELECT k, v + 1 FROM i;", file("i", from, more), file("o", to, ""))
    };
    let itself = format!("{}INSERT INTO t SELECT k, v + 1 FROM t;", file("t", "t.csv", ""));
    let followed = itself.replace("'csv')", &format!("'csv'{FOLLOWED})"));
    for wrong in [
        &itself,
        &followed,
        &insert("t.csv", "./t.csv", ""),
        &insert("in", "in", ""),
        &insert("in", "in/out.csv", ""),
    ] {
        refused(run(wrong, dir), &["which the job reads"]);
        refused(run_in(wrong, dir, FIRST), &["which the job reads"]);
    }
    for letters in ["t.csv", "./t.csv", "out.csv"] {
        let wrong = insert("t.csv", "out.csv", &format!(", 'dead-letter' = '{letters}'"));
        refused(run(&wrong, dir), &["'dead-letter'", "a separate path"]);
    }
    assert_eq!(read(dir, "t.csv"), "a,1\nb,2\n");
    assert_eq!(files(&dir.join("in")).len(), 1);
    run(&insert("in/a.csv", "in/b.csv", ""), dir).unwrap();
}

#[test]
fn inserts_of_a_script_into_one_table_feed_one_writer() {
    let set = |inserts: &str| format!("EXECUTE STATEMENT SET BEGIN {inserts} END;");
    let inserts = "INSERT INTO o SELECT * FROM t; INSERT INTO o SELECT * FROM u;";
    for (format, wanted) in [
        ("csv", "a,1 a,1 a,1 b,2 b,2"),
        ("json", r#"{"k":"a","v":1} {"k":"a","v":1} {"k":"a","v":1} {"k":"b","v":2} {"k":"b","v":2}"#),
    ] {
        for inserts in [set(inserts), inserts.to_owned()] {
            let directory = tempfile::tempdir().unwrap();
            let dir = directory.path();
            write(dir, "t.csv", &"a,1\n".repeat(3));
            write(dir, "u.csv", &"b,2\n".repeat(2));
            let sink = file("o", "out", "").replace("'csv'", &format!("'{format}'"));
            let script = format!("{}{}{sink}{inserts}", file("t", "t.csv", ""), file("u", "u.csv", ""));
            let sorted = |text: String| {
                let mut lines: Vec<&str> = text.lines().collect();
                lines.sort_unstable();
                lines.join(" ")
            };
            run(&script, dir).unwrap();
            assert_eq!(sorted(read(dir, "out")), wanted, "{script}");
            std::fs::remove_file(dir.join("out")).unwrap();
            run_in(&script, dir, FIRST).unwrap();
            assert_eq!(sorted(files(&dir.join("out")).into_values().collect()), wanted, "{script}");
        }
    }
    // Keys too: the newest row counts, whichever INSERT gave it.
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path();
    write(dir, "t.csv", "a,1\n");
    write(dir, "u.csv", "b,2\n");
    let inserts = "INSERT INTO total SELECT * FROM t; INSERT INTO total SELECT * FROM u;";
    let script = format!("{}{}{TOTAL}{inserts}", file("t", "t.csv", ""), file("u", "u.csv", ""));
    run_in(&script, dir, FIRST).unwrap();
    assert_eq!(names(dir), ["total:a", "total:b"]);
    // Jobs that are not about one table stay jobs of their own.
    let two = format!(
        "{}{}{}INSERT INTO o SELECT * FROM t; INSERT INTO p SELECT * FROM o;",
        file("t", "t.csv", ""),
        file("o", "o.csv", ""),
        file("p", "p.csv", "")
    );
    assert_eq!(jobs(&two).unwrap().len(), 2);
    run(&two, dir).unwrap();
    assert_eq!(read(dir, "p.csv"), "a,1\n");
    let circle = two + "INSERT INTO o SELECT * FROM p;";
    let error = jobs(&circle).unwrap_err().to_string();
    assert!(error.contains("UNION ALL") && error.contains("line "), "{error}");
}

#[test]
fn a_listening_socket_replaces_no_file() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path();
    write(dir, "in.sock", "precious");
    let script = format!(
        "CREATE TABLE i (k STRING, v INT)
           WITH ('connector' = 'socket', 'path' = 'in.sock', 'mode' = 'listen', 'format' = 'csv');
         {}INSERT INTO o SELECT * FROM i;",
        file("o", "out.csv", "")
    );
    refused(run(&script, dir), &["in.sock"]);
    assert_eq!(read(dir, "in.sock"), "precious");
}

#[test]
fn two_tables_do_not_write_to_one_place() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path();
    write(dir, "t.csv", "a,1\n");
    let files = format!("{}{}{}", file("t", "t.csv", ""), file("o", "out", ""), file("p", "./out", ""));
    let keys = format!(
        "{}{TOTAL}{}",
        file("t", "t.csv", ""),
        TOTAL.replace("total ", "sum ").replace("'value'", "'key' = 'total', 'value'")
    );
    for (tables, one, two) in [(&files, "o", "p"), (&keys, "total", "sum")] {
        let inserts = format!("INSERT INTO {one} SELECT * FROM t; INSERT INTO {two} SELECT * FROM t;");
        for inserts in [format!("EXECUTE STATEMENT SET BEGIN {inserts} END;"), inserts] {
            refused(
                run_in(&format!("{tables}{inserts}"), dir, FIRST),
                &["`", "which both write to", "one table"],
            );
        }
    }
    let inserts =
        "EXECUTE STATEMENT SET BEGIN INSERT INTO o SELECT * FROM t; INSERT INTO p SELECT * FROM t; END;";
    refused(run(&format!("{files}{inserts}"), dir), &["which both write to"]);
}

/// The planner knows of no directory and of no links: jobs of one script are compared before the first one runs.
#[test]
fn two_jobs_of_a_script_may_not_write_one_path_in_any_spelling() {
    let directory = tempfile::tempdir().unwrap();
    let dir = &directory.path().canonicalize().unwrap();
    write(dir, "t.csv", "a,1\nb,2\n");
    std::fs::create_dir(dir.join("real")).unwrap();
    std::os::unix::fs::symlink("real", dir.join("link")).unwrap();
    std::os::unix::fs::symlink("real/out", dir.join("to a file")).unwrap();
    let check = |path: &str| {
        let script = format!(
            "{}{}{}INSERT INTO o SELECT * FROM t; INSERT INTO p SELECT * FROM t;",
            file("t", "t.csv", ""),
            file("o", "real/out", ""),
            file("p", path, "")
        );
        check_script(jobs(&script).unwrap().iter().flat_map(|job| &job.optimised), dir)
    };
    for path in ["link/out", "to a file", &format!("{}/real/out", dir.display())] {
        refused(check(path), &["`o` and `p`, which both write to the path", "real/out"]);
    }
    check("link/other").unwrap();
    // A link to no file yet leads to where the file appears.
    let script =
        format!("{}{}INSERT INTO p SELECT * FROM t;", file("t", "t.csv", ""), file("p", "to a file", ""));
    for existing in [Existing::Refuse, Existing::Overwrite] {
        run_over(&script, dir, existing).unwrap();
        assert_eq!(read(dir, "real/out"), "a,1\nb,2\n");
        assert!(dir.join("to a file").is_symlink());
    }
}

#[test]
fn dead_letters_of_earlier_runs_and_other_tables_stay() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path();
    let letters = ", 'dead-letter' = 'dead'";
    let script = format!(
        "{}{}{}INSERT INTO o SELECT * FROM t UNION ALL SELECT * FROM u;",
        file("t", "t.csv", letters),
        file("u", "u.csv", letters),
        file("o", "out.csv", "")
    );
    write(dir, "dead", "what was there\n");
    write(dir, "t.csv", "a,1\nbad\n");
    write(dir, "u.csv", "worse\nb,2\n");
    run(&script, dir).unwrap();
    let text = read(dir, "dead");
    assert_eq!(text.lines().count(), 3, "{text}");
    assert!(text.starts_with("what was there\n") && text.contains("\"bad\"") && text.contains("\"worse\""));
    write(dir, "t.csv", "a,1\n");
    write(dir, "u.csv", "b,2\n");
    run_over(&script, dir, Existing::Overwrite).unwrap();
    assert_eq!(read(dir, "dead"), text);
    // A name that a user chooses is no path.
    let strange = script.replace("TABLE t ", "TABLE `../t/x` ").replace("FROM t ", "FROM `../t/x` ");
    write(dir, "t.csv", "bad\n");
    std::fs::remove_file(dir.join("dead")).unwrap();
    std::fs::remove_file(dir.join("out.csv")).unwrap();
    run_in(&strange, dir, FIRST).unwrap();
    let found = files(&dir.join("dead"));
    assert!(found.keys().all(|name| name.starts_with("part-job-dead-%2e%2e%2ft%2fx-")), "{found:?}");
    assert_eq!(found.len(), 1);
}

#[test]
fn composite_primary_keys_are_distinct_and_are_found_as_written() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path();
    let rows = "a:b,c,1\na,b:c,2\na\\,:b,3\n\"\",x,4\nx,\"\",5\nNULL,y,6\n";
    write(dir, "in.csv", rows);
    write(dir, "probe.csv", rows);
    let table = |value: &str| {
        format!(
            "CREATE TABLE dim (x STRING, y STRING, v INT, PRIMARY KEY (x, y) NOT ENFORCED)
               WITH ('connector' = 'duramen', 'value' = '{value}');\n"
        )
    };
    let source = |name: &str, path: &str| {
        format!(
            "CREATE TABLE {name} (x STRING, y STRING, v INT, p AS PROCTIME())
               WITH ('connector' = 'filesystem', 'path' = '{path}', 'format' = 'csv');\n"
        )
    };
    for value in ["hash", "json"] {
        let writing =
            format!("{}{}INSERT INTO dim SELECT x, y, v FROM i;", source("i", "in.csv"), table(value));
        run_in(&writing, dir, How { from_start: true, ..FIRST }).unwrap();
        assert_eq!(
            names(dir),
            ["dim::x", "dim:NULL:y", "dim:a:b:c", "dim:a\\:b:c", "dim:a\\\\::b", "dim:x:"]
        );
        let looking = format!(
            "{}{}CREATE TABLE o (x STRING, y STRING, v INT, w INT)
               WITH ('connector' = 'filesystem', 'path' = 'out-{value}', 'format' = 'csv');
             INSERT INTO o SELECT i.x, i.y, i.v, d.v FROM i LEFT JOIN dim FOR SYSTEM_TIME AS OF i.p AS d
               ON i.x = d.x AND i.y = d.y;",
            source("i", "probe.csv"),
            table(value)
        );
        let second = How { name: "second", from_start: true, ..FIRST };
        run_in(&looking, dir, second).unwrap();
        let found: String = files(&dir.join(format!("out-{value}"))).into_values().collect();
        assert_eq!(found.lines().count(), 6);
        for line in found.lines() {
            let (row, looked_up) = line.rsplit_once(',').unwrap();
            assert!(row.ends_with(&format!(",{looked_up}")), "{line}");
        }
    }
    // Where the columns of the primary key are in the key alone, they are read from there.
    put_hash(dir, "side:a\\:b:c:d", "v", "7");
    let looking = format!(
        "{}{}CREATE TABLE o (v INT, w INT) WITH ('connector' = 'filesystem', 'path' = 'out-side', 'format' = 'csv');
         INSERT INTO o SELECT i.v, d.v FROM i LEFT JOIN dim FOR SYSTEM_TIME AS OF i.p AS d ON i.x = d.x AND i.y = d.y;",
        source("i", "probe.csv"),
        table("hash").replace("'value'", "'key' = 'side', 'value'")
    );
    write(dir, "probe.csv", "a:b,c:d,1\na,b:c:d,2\n");
    run_in(&looking, dir, How { name: "third", ..FIRST }).unwrap();
    assert_eq!(files(&dir.join("out-side")).into_values().collect::<String>(), "1,7\n2,\n");
}

fn put_hash(directory: &Path, key: &str, field: &str, value: &str) {
    let store = open(&directory.join("store"));
    let mut worker = Keyspace::open(store.clone(), DATABASES_MAX).unwrap().worker().unwrap();
    worker
        .run::<_, duramen_structures::Error>(0, Locks::One(key.as_bytes()), |txn| {
            txn.put_hash(0, key.as_bytes(), &[(field.as_bytes(), value.as_bytes())])
        })
        .unwrap();
    drop(worker);
    store.commit().unwrap();
}

#[test]
fn null_is_refused_where_a_column_is_not_null() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path();
    write(dir, "in.csv", "\"NULL\",1\n,2\n\"\",5\n");
    let error = run_in(&totals(), dir, FIRST).unwrap_err().to_string();
    assert!(error.contains("NULL for column `k` of `total`") && error.contains("PRIMARY KEY"), "{error}");
    assert!(error.contains("[NULL, 2]") && error.contains("IS NOT NULL"), "{error}");
    assert_eq!(keys(dir).len(), 0);
    run_in(&totals().replace("FROM i", "FROM i WHERE k IS NOT NULL"), dir, FIRST).unwrap();
    assert_eq!(names(dir), ["total:", "total:NULL"]);

    write(dir, "in.csv", "a,1\nb,\n");
    for sink in
        ["'connector' = 'filesystem', 'path' = 'out.csv', 'format' = 'json'", "'connector' = 'blackhole'"]
    {
        let script = format!(
            "{}CREATE TABLE o (k STRING, v INT NOT NULL) WITH ({sink}); INSERT INTO o SELECT k, v FROM i;",
            file("i", "in.csv", "")
        );
        let error = run(&script, dir).unwrap_err().to_string();
        assert!(
            error.contains("NULL for column `v` of `o`, wanted a value of INT: it is NOT NULL"),
            "{error}"
        );
        run(&script.replace("k, v FROM", "k, COALESCE(v, 0) FROM"), dir).unwrap();
        // A column without a value is reported before anything runs.
        let error =
            run(&script.replace("INTO o SELECT k, v", "INTO o (k) SELECT k"), dir).unwrap_err().to_string();
        assert!(error.contains("no value for column `v`") && error.contains("line "), "{error}");
    }
}

/// Rows that a followed file gives, by the parts of the sink.
fn rows(directory: &Path) -> String {
    files(&directory.join("out"))
        .into_iter()
        .filter(|(name, _)| !name.starts_with('.'))
        .map(|(_, text)| text)
        .collect()
}

fn following(path: &str) -> String {
    format!("{}{}INSERT INTO o SELECT * FROM i;", file("i", path, FOLLOWED), file("o", "out", ""))
}

/// Follows until the sink has this.
fn follow_to(directory: &Path, script: &str, wanted: &str) {
    follow(script, directory, FIRST, |_| rows(directory) == wanted).unwrap();
    assert_eq!(rows(directory), wanted);
}

#[test]
fn a_rotated_file_is_finished_before_the_new_one_is_read() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path();
    let script = following("t.csv");
    write(dir, "t.csv", "a,1\n");
    // While it runs.
    let mut step = 0;
    follow(&script, dir, FIRST, |_| {
        let found = rows(dir);
        match step {
            0 if found == "a,1\n" => {
                std::fs::rename(dir.join("t.csv"), dir.join("t.csv.1")).unwrap();
                // Its writer has it open still, and the last line has no end.
                append(dir, "t.csv.1", "b,2\n");
                step = 1;
            }
            1 if found == "a,1\nb,2\n" => {
                write(dir, "t.csv", "");
                append(dir, "t.csv.1", "c,3");
                step = 2;
            }
            2 => {
                append(dir, "t.csv", "d,4\n");
                step = 3;
            }
            3 if found.ends_with("d,4\n") => {
                append(dir, "t.csv", "e,5\n");
                step = 4;
            }
            _ => {}
        }
        found.ends_with("e,5\n")
    })
    .unwrap();
    assert_eq!(rows(dir), "a,1\nb,2\nc,3\nd,4\ne,5\n");
    // While it is stopped.
    append(dir, "t.csv", "f,6\n");
    std::fs::rename(dir.join("t.csv"), dir.join("t.csv.2")).unwrap();
    write(dir, "t.csv", "g,7\nh,8\n");
    let wanted = "a,1\nb,2\nc,3\nd,4\ne,5\nf,6\ng,7\nh,8\n";
    follow_to(dir, &script, wanted);
    // Renamed, and no new one yet.
    std::fs::rename(dir.join("t.csv"), dir.join("t.csv.3")).unwrap();
    append(dir, "t.csv.3", "i,9\n");
    follow_to(dir, &script, &format!("{wanted}i,9\n"));
    write(dir, "t.csv", "j,10\n");
    follow_to(dir, &script, &format!("{wanted}i,9\nj,10\n"));
}

/// Also if nothing new was read of it since the job resumed, and if the new file is deleted before it is read.
#[test]
fn a_file_that_is_deleted_is_finished_and_the_next_one_is_waited_for() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path();
    let script = following("t.csv");
    write(dir, "t.csv", "a,1\n");
    follow_to(dir, &script, "a,1\n");
    for (more, next) in [("y,25\n", "z,26\n"), ("", "other,1\n")] {
        let (before, mut step) = (rows(dir), 0);
        follow(&script, dir, FIRST, |progress| {
            match step {
                // It has looked some times.
                0 if progress.elapsed > Duration::from_millis(50) => {
                    let mut writer =
                        std::fs::OpenOptions::new().append(true).open(dir.join("t.csv")).unwrap();
                    std::fs::remove_file(dir.join("t.csv")).unwrap();
                    std::io::Write::write_all(&mut writer, more.as_bytes()).unwrap();
                    step = 1;
                }
                1 if progress.elapsed > Duration::from_millis(100) => {
                    assert_eq!(rows(dir), format!("{before}{more}"));
                    write(dir, "t.csv", next);
                    step = 2;
                }
                _ => {}
            }
            step == 2 && rows(dir) == format!("{before}{more}{next}")
        })
        .unwrap();
        assert_eq!(rows(dir), format!("{before}{more}{next}"));
    }
    // While nobody looked: it may have had more.
    std::fs::remove_file(dir.join("t.csv")).unwrap();
    let error = follow(&script, dir, FIRST, |_| false).unwrap_err().to_string();
    assert!(error.contains("is gone") && error.contains("--from-start"), "{error}");
}

#[test]
fn a_followed_file_may_be_deleted_before_it_is_read() {
    for path in ["in", "in/b.csv"] {
        let directory = tempfile::tempdir().unwrap();
        let dir = directory.path();
        std::fs::create_dir(dir.join("in")).unwrap();
        write(dir, "in/a.csv", "a,1\n");
        write(dir, "in/b.csv", "b,1\n");
        let script =
            format!("{}{}INSERT INTO o SELECT * FROM i;", file("i", path, FOLLOWED), file("o", "out", ""));
        // Files are found when the job starts, and opened when their turn comes.
        let mut running = start(&jobs(&script).unwrap()[0], dir, None, Existing::Refuse).unwrap();
        std::fs::remove_file(dir.join("in/b.csv")).unwrap();
        let stop = AtomicBool::new(false);
        running
            .run(&stop, |progress| {
                write(dir, "in/b.csv", "c,1\n");
                let is_read = read(dir, "out").ends_with("c,1\n");
                stop.store(is_read || progress.elapsed > Duration::from_secs(20), Ordering::Relaxed);
            })
            .unwrap();
        assert_eq!(read(dir, "out"), if path == "in" { "a,1\nc,1\n" } else { "c,1\n" });
    }
}

#[test]
fn many_files_of_a_followed_directory_may_be_deleted_before_they_are_read() {
    const FILES: usize = 20_000;
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path();
    std::fs::create_dir(dir.join("in")).unwrap();
    (0..FILES).for_each(|number| write(dir, &format!("in/b{number}.csv"), "b,1\n"));
    let script =
        format!("{}{}INSERT INTO o SELECT * FROM i;", file("i", "in", FOLLOWED), file("o", "out", ""));
    let mut running = start(&jobs(&script).unwrap()[0], dir, None, Existing::Refuse).unwrap();
    std::fs::remove_dir_all(dir.join("in")).unwrap();
    std::fs::create_dir(dir.join("in")).unwrap();
    let stop = AtomicBool::new(false);
    running
        .run(&stop, |progress| {
            write(dir, "in/c.csv", "c,1\n");
            let is_read = dir.join("out").exists() && read(dir, "out").ends_with("c,1\n");
            stop.store(is_read || progress.elapsed > Duration::from_secs(20), Ordering::Relaxed);
        })
        .unwrap();
    assert_eq!(read(dir, "out"), "c,1\n");
}

fn append(directory: &Path, name: &str, text: &str) {
    use std::io::Write;
    let file = std::fs::OpenOptions::new().create(true).append(true).open(directory.join(name));
    file.unwrap().write_all(text.as_bytes()).unwrap();
}

#[test]
fn a_replaced_input_file_is_reported_and_not_read_further() {
    let begin = || {
        let directory = tempfile::tempdir().unwrap();
        write(directory.path(), "t.csv", "a,1\nb,2\n");
        follow_to(directory.path(), &following("t.csv"), "a,1\nb,2\n");
        directory
    };
    let refused = |dir: &Path, wanted: &str| {
        let error = follow(&following("t.csv"), dir, FIRST, |_| false).unwrap_err().to_string();
        assert!(error.contains("is not the file that was read") && error.contains(wanted), "{error}");
        assert!(error.contains("--from-start"), "{error}");
        assert_eq!(rows(dir), "a,1\nb,2\n");
    };
    let directory = begin();
    let dir = directory.path();
    // A longer one in its place: the inode may be the same again.
    std::fs::remove_file(dir.join("t.csv")).unwrap();
    write(dir, "t.csv", "xx,10\nyy,20\nzz,30\n");
    refused(dir, "8 bytes were read");
    // Overwritten.
    let directory = begin();
    write(directory.path(), "t.csv", "xx,10\nyy,20\nzz,30\n");
    refused(directory.path(), "other bytes before that position");
    // Cut.
    let directory = begin();
    write(directory.path(), "t.csv", "x,1\n");
    refused(directory.path(), "a file of 4 bytes");
    // A copy that has grown is the file.
    let directory = begin();
    let dir = directory.path();
    write(dir, "copy", "a,1\nb,2\nc,3\n");
    std::fs::rename(dir.join("copy"), dir.join("t.csv")).unwrap();
    follow_to(dir, &following("t.csv"), "a,1\nb,2\nc,3\n");
    // Rotated twice while nobody looked: the one between is named.
    let directory = begin();
    let dir = directory.path();
    std::fs::rename(dir.join("t.csv"), dir.join("t.csv.2")).unwrap();
    std::thread::sleep(Duration::from_millis(20));
    write(dir, "t.csv.1", "between,1\n");
    write(dir, "t.csv", "new,1\n");
    let error = follow(&following("t.csv"), dir, FIRST, |_| false).unwrap_err().to_string();
    assert!(error.contains("t.csv.1") && error.contains("more than once"), "{error}");
}

#[test]
fn files_of_a_followed_directory_are_identified_by_more_than_their_names() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path();
    std::fs::create_dir(dir.join("in")).unwrap();
    write(dir, "in/a.csv", "a,1\n");
    let script = following("in");
    follow_to(dir, &script, "a,1\n");
    append(dir, "in/a.csv", "b,2\n");
    std::fs::rename(dir.join("in/a.csv"), dir.join("in/a.csv.1")).unwrap();
    write(dir, "in/a.csv", "c,3\n");
    follow(&script, dir, FIRST, |_| rows(dir).len() == 12).unwrap();
    let found = rows(dir);
    let mut lines: Vec<&str> = found.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["a,1", "b,2", "c,3"]);
    write(dir, "in/a.csv", "other,1\nother,2\n");
    let error = follow(&script, dir, FIRST, |_| false).unwrap_err().to_string();
    assert!(error.contains("a.csv") && error.contains("is not the file that was read"), "{error}");
}

#[test]
fn explain_marks_state_that_is_never_dropped() {
    let mut session = Session::default();
    session
        .run(
            "CREATE TABLE a (k INT, p AS PROCTIME()) WITH ('connector' = 'datagen');
             CREATE TABLE b (k INT, p AS PROCTIME()) WITH ('connector' = 'datagen');
             CREATE TABLE o (k INT, n BIGINT) WITH ('connector' = 'print');",
        )
        .unwrap();
    for query in [
        "SELECT k, COUNT(*) FROM a GROUP BY k",
        "SELECT a.k, 1 FROM a JOIN b ON a.k = b.k",
        "SELECT a.k, 1 FROM a JOIN b ON a.k = b.k AND a.p BETWEEN b.p - INTERVAL '1' MINUTE AND b.p",
    ] {
        let text = session.explain(&format!("EXPLAIN INSERT INTO o {query}")).unwrap();
        let states: Vec<&str> = text.lines().filter(|line| line.contains("  state ")).collect();
        assert!(
            !states.is_empty() && states.iter().all(|state| state.ends_with("; kept for ever")),
            "{text}"
        );
    }
}
