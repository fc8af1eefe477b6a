//! Jobs that are killed: what they have given at the end is, byte for byte, what one gives that nobody disturbs.
//!
//! The job runs in a child process, which is this test binary again. It is killed with SIGKILL at random moments and
//! started again until it has ended; then the directories of its file sinks and the keys in its store are compared.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use duramen::{Create, Durability, Options, Store};
use duramen_stream::run::{Existing, Keep, MemoryLimit, Running, Start, jobs};
use duramen_stream::{Outcome, Session};
use duramen_structures::{DATABASES_MAX, Keyspace, Locks};

use super::support::{Moments, Random, kill_until_it_ends};

/// Where the child runs; without it the child's test does nothing.
const DIRECTORY: &str = "DURAMEN_STREAM_KILLED";
/// The file that the child makes when it begins to read.
const STARTED: &str = "started";
/// Where the tests put their directories: `/dev/shm` by default, where a wait for a device does not take longer than
/// everything else.
const PLACE: &str = "DURAMEN_STREAM_PLACE";
/// The file that makes the child begin from the start; the child removes it afterwards.
const ANEW: &str = "anew";
/// The file by which the child knows that it may adopt what others have written.
const ADOPT: &str = "adopt";
/// On how many threads the child's job runs.
const THREADS: &str = "DURAMEN_STREAM_THREADS";
/// How many kills `many_kills_leave_the_results_of_an_undisturbed_job` does.
const KILLS: &str = "DURAMEN_STREAM_KILLS";

/// Every kind of state, also sets of distinct values that several aggregates share, and every kind of sink that gives
/// exactly once.
const JOB: &str = "
CREATE TABLE person (id BIGINT, name STRING, state STRING, dateTime TIMESTAMP(3),
  WATERMARK FOR dateTime AS dateTime - INTERVAL '4' SECOND) WITH ('connector' = 'nexmark', 'events' = 'EVENTS');
CREATE TABLE auction (id BIGINT, itemName STRING, seller BIGINT, category BIGINT, dateTime TIMESTAMP(3),
  WATERMARK FOR dateTime AS dateTime - INTERVAL '4' SECOND) WITH ('connector' = 'nexmark', 'events' = 'EVENTS');
CREATE TABLE bid (auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, dateTime TIMESTAMP(3),
  WATERMARK FOR dateTime AS dateTime - INTERVAL '4' SECOND)
  WITH ('connector' = 'filesystem', 'path' = 'bids', 'format' = 'csv');
CREATE TABLE tumbled (auction BIGINT, wend TIMESTAMP(3), n BIGINT, total BIGINT, channel STRING, bidders BIGINT)
  WITH ('connector' = 'filesystem', 'path' = 'out/tumbled', 'format' = 'csv');
CREATE TABLE hopped (bidder BIGINT, wend TIMESTAMP(3), mean BIGINT)
  WITH ('connector' = 'filesystem', 'path' = 'out/hopped', 'format' = 'csv');
CREATE TABLE sessions (bidder BIGINT, wstart TIMESTAMP(3), wend TIMESTAMP(3), n BIGINT, least STRING)
  WITH ('connector' = 'filesystem', 'path' = 'out/sessions', 'format' = 'json');
CREATE TABLE newcomers (id BIGINT, name STRING, wend TIMESTAMP(3))
  WITH ('connector' = 'filesystem', 'path' = 'out/newcomers', 'format' = 'csv');
CREATE TABLE early (auction BIGINT, itemName STRING, price BIGINT)
  WITH ('connector' = 'filesystem', 'path' = 'out/early', 'format' = 'csv');
CREATE TABLE sellers (name STRING, state STRING, auction BIGINT)
  WITH ('connector' = 'filesystem', 'path' = 'out/sellers', 'format' = 'csv');
CREATE TABLE seen (bidder BIGINT, auction BIGINT, price BIGINT)
  WITH ('connector' = 'filesystem', 'path' = 'out/seen', 'format' = 'csv');
CREATE TABLE highest (auction BIGINT, price BIGINT, wend TIMESTAMP(3))
  WITH ('connector' = 'filesystem', 'path' = 'out/highest', 'format' = 'csv');
CREATE TABLE spread (bidder BIGINT, wend TIMESTAMP(3), auctions BIGINT, dear BIGINT, ids BIGINT)
  WITH ('connector' = 'filesystem', 'path' = 'out/spread', 'format' = 'csv');
CREATE TABLE totals (bidder BIGINT, n BIGINT, total BIGINT, auctions BIGINT, dear BIGINT, PRIMARY KEY (bidder) NOT ENFORCED)
  WITH ('connector' = 'duramen');
CREATE TABLE best (auction BIGINT, price BIGINT, bidder BIGINT, place BIGINT, PRIMARY KEY (auction, place) NOT ENFORCED)
  WITH ('connector' = 'duramen', 'database' = '1', 'key' = 'top', 'value' = 'json');
CREATE TABLE latest (bidder BIGINT, channel STRING, dateTime TIMESTAMP(3), PRIMARY KEY (bidder) NOT ENFORCED)
  WITH ('connector' = 'duramen');
EXECUTE STATEMENT SET BEGIN
INSERT INTO tumbled SELECT auction, window_end, COUNT(*), SUM(price), MAX(channel), COUNT(DISTINCT bidder)
  FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(dateTime), INTERVAL '10' SECOND)) GROUP BY auction, window_start, window_end;
INSERT INTO hopped SELECT bidder, window_end, AVG(price)
  FROM TABLE(HOP(TABLE bid, DESCRIPTOR(dateTime), INTERVAL '5' SECOND, INTERVAL '15' SECOND))
  GROUP BY bidder, window_start, window_end;
INSERT INTO sessions SELECT bidder, window_start, window_end, COUNT(*), MIN(channel)
  FROM TABLE(SESSION(TABLE bid PARTITION BY bidder, DESCRIPTOR(dateTime), INTERVAL '3' SECOND))
  GROUP BY bidder, window_start, window_end;
INSERT INTO newcomers SELECT P.id, P.name, P.endtime FROM (
    SELECT id, name, window_start AS starttime, window_end AS endtime
    FROM TABLE(TUMBLE(TABLE person, DESCRIPTOR(dateTime), INTERVAL '10' SECOND)) GROUP BY id, name, window_start, window_end
  ) P JOIN (
    SELECT seller, window_start AS starttime, window_end AS endtime
    FROM TABLE(TUMBLE(TABLE auction, DESCRIPTOR(dateTime), INTERVAL '10' SECOND)) GROUP BY seller, window_start, window_end
  ) A ON P.id = A.seller AND P.starttime = A.starttime AND P.endtime = A.endtime;
INSERT INTO early SELECT A.id, A.itemName, B.price FROM auction A JOIN bid B
  ON A.id = B.auction AND B.dateTime BETWEEN A.dateTime AND A.dateTime + INTERVAL '2' SECOND;
INSERT INTO sellers SELECT P.name, P.state, A.id FROM auction A JOIN person P ON A.seller = P.id WHERE A.category = 10;
INSERT INTO highest SELECT auction, price, window_end FROM (
    SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY price DESC) AS place
    FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(dateTime), INTERVAL '10' SECOND))
  ) WHERE place <= 5;
INSERT INTO seen SELECT bidder, auction, price FROM bid;
INSERT INTO spread SELECT bidder, window_end, COUNT(DISTINCT auction),
    COUNT(DISTINCT auction) FILTER (WHERE price > 100000), SUM(DISTINCT auction)
  FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(dateTime), INTERVAL '20' SECOND)) GROUP BY bidder, window_start, window_end;
INSERT INTO totals SELECT bidder, COUNT(*), SUM(price), COUNT(DISTINCT auction),
  COUNT(DISTINCT auction) FILTER (WHERE price > 100000) FROM bid GROUP BY bidder;
INSERT INTO best SELECT auction, price, bidder, place FROM (
    SELECT *, ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price DESC) AS place FROM bid
  ) WHERE place <= 3;
INSERT INTO latest SELECT bidder, channel, dateTime FROM (
    SELECT *, ROW_NUMBER() OVER (PARTITION BY bidder ORDER BY dateTime DESC) AS place FROM bid
  ) WHERE place = 1;
END;";

/// Bids in several files, as another job writes them.
const BIDS: &str = "
CREATE TABLE bid (auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, dateTime TIMESTAMP(3))
  WITH ('connector' = 'nexmark', 'events' = 'EVENTS');
CREATE TABLE bids (auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, dateTime TIMESTAMP(3))
  WITH ('connector' = 'filesystem', 'path' = 'all.csv', 'format' = 'csv');
INSERT INTO bids SELECT * FROM bid;";

const EVENTS: &str = "60000";

/// Sinks of inserts that keep a job on one thread: they need other partition keys than the rest, or none is possible.
const ELSEWHERE: [&str; 4] = ["tumbled", "early", "highest", "best"];

/// The job for so many threads.
fn script(threads: usize) -> String {
    let script = JOB.replace("EVENTS", EVENTS);
    let (tables, inserts) = script.split_once("EXECUTE STATEMENT SET BEGIN").unwrap();
    let stays = |insert: &&str| {
        threads == 1 || !ELSEWHERE.iter().any(|sink| insert.contains(&format!("INSERT INTO {sink} ")))
    };
    let inserts: Vec<&str> = inserts.split_inclusive(";\n").filter(stays).collect();
    format!("{tables}EXECUTE STATEMENT SET BEGIN\n{}", inserts.concat())
}

fn open(directory: &Path) -> Store {
    open_named(directory, "store")
}

fn open_named(directory: &Path, name: &str) -> Store {
    let options =
        Options { durability: Durability::Manual, create: Create::OpenOrCreate, ..Options::default() };
    options.open(directory.join(name)).unwrap()
}

fn start(script: &str, directory: &Path, from_start: bool) -> Running {
    start_on(script, directory, from_start, 1).unwrap()
}

fn start_on(
    script: &str,
    directory: &Path,
    from_start: bool,
    threads: usize,
) -> duramen_stream::Result<Running> {
    start_as(script, directory, ("store", "job"), from_start, threads)
}

/// The same in a store, and under a name.
fn start_as(
    script: &str,
    directory: &Path,
    (store, name): (&str, &str),
    from_start: bool,
    threads: usize,
) -> duramen_stream::Result<Running> {
    let Some(Outcome::Job(job)) = Session::default().run(script).unwrap().pop() else { panic!("{script}") };
    let adopt = directory.join(ADOPT).exists();
    let keep = Keep {
        store: open_named(directory, store),
        name: name.to_owned(),
        every: Duration::from_millis(15),
        from_start,
        note: String::new(),
        room: MemoryLimit::of(directory, 256 << 10),
    };
    let own = &mut |_: &_, _: &_| Ok(None);
    let existing = if adopt { Existing::Adopt } else { Existing::Refuse };
    let running = Running::start_on(
        &job.optimised,
        Start { directory, keep: Some(&keep), threads: Some(threads), existing, own },
    )?;
    assert!(running.is_finished() || running.threads() == threads);
    Ok(running)
}

fn run(script: &str, directory: &Path) {
    start(script, directory, false).run(&AtomicBool::new(false), |_| ()).unwrap();
}

fn new_directory() -> tempfile::TempDir {
    let place = std::env::var(PLACE).unwrap_or_else(|_| "/dev/shm".to_owned());
    tempfile::tempdir_in(place).or_else(|_| tempfile::tempdir()).unwrap()
}

/// The input, in a separate directory.
fn bids() -> tempfile::TempDir {
    let directory = new_directory();
    let script = BIDS.replace("EVENTS", EVENTS);
    let Some(Outcome::Job(job)) = Session::default().run(&script).unwrap().pop() else { panic!() };
    Running::start(&job.optimised, directory.path()).unwrap().run(&AtomicBool::new(false), |_| ()).unwrap();
    let text = std::fs::read_to_string(directory.path().join("all.csv")).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    std::fs::create_dir(directory.path().join("bids")).unwrap();
    for (number, lines) in lines.chunks(lines.len() / 5 + 1).enumerate() {
        let path = directory.path().join(format!("bids/part-{number}.csv"));
        std::fs::write(path, format!("{}\n", lines.join("\n"))).unwrap();
    }
    directory
}

fn input(bids: &Path, threads: usize) -> tempfile::TempDir {
    let directory = new_directory();
    std::os::unix::fs::symlink(bids.join("bids"), directory.path().join("bids")).unwrap();
    std::fs::write(directory.path().join("job.sql"), script(threads)).unwrap();
    directory
}

/// Files and keys by their names.
type Things = BTreeMap<String, Vec<u8>>;

/// All that a job has given: bytes of each directory's parts in order, and of each key. What several threads give is in
/// no order: lines are sorted then.
fn given(directory: &Path, threads: usize) -> Things {
    given_beside(directory, threads, &Things::new())
}

/// The same without what others have written before.
fn given_beside(directory: &Path, threads: usize, others: &Things) -> Things {
    let mut given = BTreeMap::new();
    for sink in std::fs::read_dir(directory.join("out")).unwrap() {
        let sink = sink.unwrap().path();
        let mut parts: Vec<PathBuf> =
            std::fs::read_dir(&sink).unwrap().map(|part| part.unwrap().path()).collect();
        parts.retain(|part| !others.contains_key(&part.display().to_string()));
        parts.sort();
        let name = sink.file_name().unwrap().to_string_lossy().into_owned();
        for part in &parts {
            let file = part.file_name().unwrap().to_string_lossy().into_owned();
            assert!(!file.starts_with('.'), "{part:?} was never published");
        }
        let mut bytes: Vec<u8> = parts.iter().flat_map(|part| std::fs::read(part).unwrap()).collect();
        if threads > 1 {
            let mut lines: Vec<&[u8]> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
            lines.sort_unstable();
            bytes = lines.concat();
        }
        given.insert(name, bytes);
    }
    let keys = keys(&open(directory));
    given.extend(keys.into_iter().filter(|(name, _)| !others.contains_key(name)));
    given
}

fn keys(store: &Store) -> Things {
    let mut keys = Things::new();
    for database in ["redis.0", "redis.1"] {
        let Some(table) = store.find_table(database.as_bytes()).unwrap() else { continue };
        let mut entry = |value: &duramen::Value<'_>| {
            let key = format!("{database} {} {}", String::from_utf8_lossy(value.key()), value.tag());
            keys.insert(key, value.to_vec());
        };
        table.for_each(&mut entry).unwrap();
    }
    keys
}

/// Keys in the store and files of the sinks.
fn everything(directory: &Path) -> Things {
    let mut all = keys(&open(directory));
    for sink in std::fs::read_dir(directory.join("out")).unwrap() {
        for part in std::fs::read_dir(sink.unwrap().path()).unwrap() {
            let part = part.unwrap().path();
            all.insert(part.display().to_string(), std::fs::read(&part).unwrap());
        }
    }
    all
}

fn child_in(directory: &Path, threads: usize) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["kill::child", "--exact", "--ignored", "--nocapture"])
        .env(DIRECTORY, directory)
        .env(THREADS, threads.to_string())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

#[test]
#[ignore = "the other tests of this file run it as a process that they kill"]
fn child() {
    let Ok(directory) = std::env::var(DIRECTORY) else { return };
    let directory = Path::new(&directory);
    let threads = std::env::var(THREADS).unwrap().parse().unwrap();
    let script = std::fs::read_to_string(directory.join("job.sql")).unwrap();
    let anew = directory.join(ANEW);
    let mut running = start_on(&script, directory, anew.exists(), threads).unwrap();
    let _ = std::fs::remove_file(anew);
    std::fs::write(directory.join(STARTED), "").unwrap();
    running.run(&AtomicBool::new(false), |_| ()).unwrap();
}

/// Runs jobs to their ends until so many were killed, and compares each.
fn kill(count: usize, seed: u64, threads: usize) {
    let bids = bids();
    let undisturbed = input(bids.path(), threads);
    // On one thread in any case: several give the same.
    run(&script(threads), undisturbed.path());
    let wanted = given(undisturbed.path(), threads);
    assert!(wanted.len() > 1000, "{} results", wanted.len());
    let files = if threads == 1 { 9 } else { 6 };
    assert!(wanted.values().filter(|bytes| bytes.len() > 2_000).count() == files, "a sink was given little");
    let mut random = Random(seed);
    let (mut kills, mut rounds) = (0, 0);
    while kills < count {
        rounds += 1;
        let directory = input(bids.path(), threads);
        let started = directory.path().join(STARTED);
        let moments = Moments { opens: 1500, runs: 300, later: 50 };
        let tries =
            kill_until_it_ends(&mut random, &moments, &started, &|| child_in(directory.path(), threads));
        kills += tries - 1;
        let found = given(directory.path(), threads);
        for (name, bytes) in &wanted {
            let found = found.get(name).unwrap_or_else(|| panic!("nothing of {name}; seed {seed}"));
            assert!(
                found == bytes,
                "{name} differs after {tries} runs: {} bytes, wanted {}; seed {seed}",
                found.len(),
                bytes.len()
            );
        }
        assert_eq!(found.len(), wanted.len(), "more keys than wanted; seed {seed}");
        let store = open(directory.path());
        assert!(jobs(&store).unwrap()[0].finished);
    }
    eprintln!("{kills} kills in {rounds} rounds");
}

#[test]
fn killed_jobs_have_the_results_of_undisturbed_ones() {
    kill(10, 0x5eed, 1);
}

#[test]
fn killed_jobs_on_several_threads_have_the_results_of_undisturbed_ones_on_one() {
    kill(6, 0x5eed, 2);
    kill(3, 0x5eed, 3);
}

/// Existing data at and near the places of the job: of applications, of another job of its store, and of a job of the
/// same name in another store.
struct Others {
    /// What the job of its name has given: the same.
    given: Things,
    /// What the job adopts.
    adopted: Things,
    /// What does not concern it.
    beside: Things,
}

/// Keys of applications: those that begin as keys of the job's sinks do, and neighbours of these.
const ADOPTED_KEYS: [(u8, &str); 4] = [(0, "totals:x"), (0, "latest:"), (1, "top:a:b"), (1, "top:0\\:1:1")];
const KEYS_BESIDE: [(u8, &str); 6] =
    [(0, "totals"), (0, "totals2:1"), (0, "top:1:1"), (1, "totals:1"), (1, "top:1"), (0, "sql:job:0")];

fn with_others(directory: &Path) -> Others {
    start_as(&script(1), directory, ("second", "job"), false, 1)
        .unwrap()
        .run(&AtomicBool::new(false), |_| ())
        .unwrap();
    let other = "CREATE TABLE i (k BIGINT) WITH ('connector' = 'datagen', 'number-of-rows' = '50',
           'fields.k.kind' = 'sequence', 'fields.k.start' = '1', 'fields.k.end' = '50');
         CREATE TABLE total (k BIGINT, n BIGINT, PRIMARY KEY (k) NOT ENFORCED) WITH ('connector' = 'duramen');
         CREATE TABLE seen (k BIGINT) WITH ('connector' = 'filesystem', 'path' = 'out/seen', 'format' = 'csv');
         EXECUTE STATEMENT SET BEGIN
         INSERT INTO total SELECT k, COUNT(*) FROM i GROUP BY k;
         INSERT INTO seen SELECT k FROM i;
         END;";
    let mut running = start_as(other, directory, ("store", "other"), false, 1).unwrap();
    running.run(&AtomicBool::new(false), |_| ()).unwrap();
    drop(running);
    let store = open(directory);
    let mut worker = Keyspace::open(store.clone(), DATABASES_MAX).unwrap().worker().unwrap();
    for (database, key) in ADOPTED_KEYS.iter().chain(&KEYS_BESIDE) {
        let value = format!("the application's {key}");
        worker
            .run::<_, duramen_structures::Error>(0, Locks::One(key.as_bytes()), |txn| {
                txn.put(*database, key.as_bytes(), value.as_bytes())
            })
            .unwrap();
    }
    store.commit().unwrap();
    drop((worker, store));
    let is_adopted = |name: &str| {
        name.contains("/part-job-")
            || ADOPTED_KEYS
                .iter()
                .any(|(database, key)| name.starts_with(&format!("redis.{database} {key} ")))
    };
    let (adopted, beside): (Things, Things) =
        everything(directory).into_iter().partition(|(name, _)| is_adopted(name));
    assert!(adopted.len() > ADOPTED_KEYS.len() + 8 && beside.len() == KEYS_BESIDE.len() + 50 + 1);
    // Its keys are in the other store.
    let mut given = given_beside(directory, 1, &everything(directory));
    let parts = adopted.iter().filter(|(name, _)| name.contains("/part-job-"));
    for (name, bytes) in parts {
        let sink = Path::new(name).parent().unwrap().file_name().unwrap().to_string_lossy().into_owned();
        given.entry(sink).or_default().extend_from_slice(bytes);
    }
    given.extend(keys(&open_named(directory, "second")));
    Others { given, adopted, beside }
}

fn assert_has(directory: &Path, things: &Things, what: &str) {
    let all = everything(directory);
    for (name, bytes) in things {
        assert!(all.get(name) == Some(bytes), "{name} is not as it was {what}");
    }
}

#[test]
fn a_killed_job_leaves_the_keys_of_others_unchanged() {
    kill_beside_others(8, 0x5eed);
}

/// Kills jobs `count` times, with existing keys, with keys of other jobs, and with two stores.
fn kill_beside_others(count: usize, seed: u64) {
    let bids = bids();
    let mut random = Random(seed);
    let mut kills = 0;
    while kills < count {
        let directory = input(bids.path(), 1);
        let dir = directory.path();
        let moments = Moments { opens: 1500, runs: 300, later: 50 };
        let mut killed =
            || kill_until_it_ends(&mut random, &moments, &dir.join(STARTED), &|| child_in(dir, 1));
        let others = with_others(dir);
        let before = everything(dir);
        let error = start_on(&script(1), dir, false, 1).unwrap_err().to_string();
        assert!(error.contains("--adopt"), "{error}");
        assert!(everything(dir) == before, "a job that was refused has changed something");
        std::fs::write(dir.join(ADOPT), "").unwrap();
        kills += killed() - 1;
        assert_has(dir, &others.beside, "beside a job that was killed");
        assert_has(dir, &others.adopted, "under a job that was killed");
        let all: Things =
            others.beside.iter().chain(&others.adopted).map(|(n, b)| (n.clone(), b.clone())).collect();
        let found = given_beside(dir, 1, &all);
        assert!(found.len() > 1000 && found == others.given, "not what an undisturbed job gives");
        // Begun from the start over less input, and killed again: only the keys that it wrote or adopted are deleted.
        std::fs::remove_file(dir.join("bids")).unwrap();
        std::fs::create_dir(dir.join("bids")).unwrap();
        std::fs::copy(bids.path().join("bids/part-1.csv"), dir.join("bids/part-1.csv")).unwrap();
        std::fs::write(dir.join(ANEW), "").unwrap();
        kills += killed() - 1;
        let undisturbed = input(bids.path(), 1);
        std::fs::remove_file(undisturbed.path().join("bids")).unwrap();
        std::os::unix::fs::symlink(dir.join("bids"), undisturbed.path().join("bids")).unwrap();
        run(&script(1), undisturbed.path());
        assert_has(dir, &others.beside, "beside a job that began anew");
        let wanted = given(undisturbed.path(), 1);
        let found = given_beside(dir, 1, &others.beside);
        let names = |things: &Things| things.keys().cloned().collect::<BTreeSet<_>>();
        assert_eq!(names(&found), names(&wanted));
        assert!(found == wanted, "not what an undisturbed job gives of less");
        assert!(keys(&open_named(dir, "second")).len() > 1000);
    }
    eprintln!("{kills} kills");
}

#[test]
fn a_job_resumes_with_its_previous_number_of_threads() {
    let directory = tempfile::tempdir().unwrap();
    let job = "CREATE TABLE i (k BIGINT, v BIGINT)
          WITH ('connector' = 'datagen', 'number-of-rows' = '100000', 'fields.k.min' = '0', 'fields.k.max' = '99',
            'fields.v.min' = '0', 'fields.v.max' = '9');
        CREATE TABLE o (k BIGINT, n BIGINT, PRIMARY KEY (k) NOT ENFORCED) WITH ('connector' = 'duramen', 'value' = 'json');
        INSERT INTO o SELECT k, COUNT(*) FROM i GROUP BY k";
    let stop = AtomicBool::new(true);
    // Stopped before it has begun: its checkpoint is of two threads.
    start_on(job, directory.path(), false, 2).unwrap().run(&stop, |_| ()).unwrap();
    let text = start_on(job, directory.path(), false, 3).unwrap_err().to_string();
    assert!(text.contains("3 threads") && text.contains("2 threads as before"), "{text}");
    let text = start_on(job, directory.path(), false, 1).unwrap_err().to_string();
    assert!(text.contains("one thread for job"), "{text}");
    start_on(job, directory.path(), false, 2).unwrap().run(&AtomicBool::new(false), |_| ()).unwrap();
    let sum = |directory: &Path| {
        let store = open(directory);
        let mut sum = 0;
        let table = store.find_table(b"redis.0").unwrap().unwrap();
        let mut add = |value: &duramen::Value<'_>| {
            let row: serde_json::Value = serde_json::from_slice(value).unwrap();
            sum += row["n"].as_u64().unwrap();
        };
        table.for_each(&mut add).unwrap();
        (table.len(), sum)
    };
    assert_eq!(sum(directory.path()), (100, 100_000));
    // From the start with another number, and the state belongs to that one.
    start_on(job, directory.path(), true, 3).unwrap().run(&AtomicBool::new(false), |_| ()).unwrap();
    assert_eq!(sum(directory.path()), (100, 100_000));
}

/// `DURAMEN_STREAM_KILLS=200 DURAMEN_STREAM_THREADS=2 cargo test -p duramen-stream --test all many_kills_leave_the_results_of_an_undisturbed_job -- --ignored --nocapture`
#[test]
#[ignore = "takes minutes; the number of kills is in DURAMEN_STREAM_KILLS"]
fn many_kills_leave_the_results_of_an_undisturbed_job() {
    let count = std::env::var(KILLS).ok().and_then(|count| count.parse().ok()).unwrap_or(200);
    let seed = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as u64;
    eprintln!("seed {seed}");
    let threads = std::env::var(THREADS).ok().and_then(|threads| threads.parse().ok()).unwrap_or(1);
    kill(count, seed | 1, threads);
    kill_beside_others(count, seed | 1);
}

#[test]
fn a_changed_query_is_refused_unless_it_begins_from_the_start() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("in.csv"), "1,5\n2,6\n1,7\n").unwrap();
    let job = |what: &str| {
        format!(
            "CREATE TABLE i (k BIGINT, v BIGINT) WITH ('connector' = 'filesystem', 'path' = 'in.csv', 'format' = 'csv');
             CREATE TABLE o (k BIGINT, v BIGINT, PRIMARY KEY (k) NOT ENFORCED) WITH ('connector' = 'duramen');
             INSERT INTO o SELECT k, {what} FROM i GROUP BY k"
        )
    };
    run(&job("SUM(v)"), directory.path());
    let value = |directory: &Path, key: &str| {
        let store = open(directory);
        let table = store.find_table(b"redis.0").unwrap().unwrap();
        table.get(key.as_bytes()).unwrap().map(|value| String::from_utf8_lossy(&value).into_owned())
    };
    assert!(value(directory.path(), "o:1").unwrap().contains("12"));
    let changed = job("MAX(v)");
    let Some(Outcome::Job(other)) = Session::default().run(&changed).unwrap().pop() else { panic!() };
    let keep = |from_start| Keep {
        store: open(directory.path()),
        name: "job".to_owned(),
        every: Duration::from_secs(10),
        from_start,
        note: String::new(),
        room: MemoryLimit::default(),
    };
    let error = Running::start_in(&other.optimised, directory.path(), Some(&keep(false))).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("MAX(v)") && text.contains("SUM(v)") && text.contains("--from-start"), "{text}");
    // The same query has ended, so records appended to its input later are not read.
    std::fs::write(directory.path().join("in.csv"), "2,6\n").unwrap();
    assert!(start(&job("SUM(v)"), directory.path(), false).is_finished());
    start(&changed, directory.path(), true).run(&AtomicBool::new(false), |_| ()).unwrap();
    assert!(value(directory.path(), "o:2").unwrap().contains('6'));
    assert_eq!(value(directory.path(), "o:1"), None);
}

#[test]
fn a_stopped_job_resumes_and_reads_appended_records() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("in.csv");
    std::fs::write(&path, "1,5\n2,6\n1,").unwrap();
    let job = "CREATE TABLE i (k BIGINT, v BIGINT)
          WITH ('connector' = 'filesystem', 'path' = 'in.csv', 'format' = 'csv', 'source.monitor-interval' = '1 ms');
        CREATE TABLE o (k BIGINT, v BIGINT, PRIMARY KEY (k) NOT ENFORCED) WITH ('connector' = 'duramen', 'value' = 'json');
        INSERT INTO o SELECT k, SUM(v) FROM i GROUP BY k";
    let stop = AtomicBool::new(false);
    // It follows the file: nothing ends it but somebody.
    let run_until = |records: u64| {
        let mut running = start(job, directory.path(), false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(700));
                stop.store(true, std::sync::atomic::Ordering::Relaxed);
            });
            assert_eq!(running.run(&stop, |_| ()).unwrap().records, records);
        });
        stop.store(false, std::sync::atomic::Ordering::Relaxed);
        assert!(!running.is_finished());
    };
    // The last line has no end yet.
    run_until(2);
    let mut text = std::fs::read_to_string(&path).unwrap();
    text.push_str("7\n2,1\n");
    std::fs::write(&path, text).unwrap();
    run_until(4);
    let store = open(directory.path());
    let table = store.find_table(b"redis.0").unwrap().unwrap();
    assert_eq!(table.get(b"o:1").unwrap().as_deref(), Some(&br#"{"k":1,"v":12}"#[..]));
    assert_eq!(table.get(b"o:2").unwrap().as_deref(), Some(&br#"{"k":2,"v":7}"#[..]));
    assert_eq!(table.len(), 2);
}
