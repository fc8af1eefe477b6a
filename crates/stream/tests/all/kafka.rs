//! Kafka: a real broker, real kills. `cargo xtask kafka` fetches Apache Kafka and runs these tests; each starts its
//! own broker.
//!
//! Jobs that are killed run in a child process, which is this test binary again.

use std::collections::BTreeMap;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use duramen::{Create, Durability, Options, Store};
use duramen_stream::run::{Existing, Keep, MemoryLimit, Progress, Running, Start};
use duramen_stream::types::Value;
use duramen_stream::{Outcome, Session};
use proptest::test_runner::{Config, TestRunner};
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use rdkafka::topic_partition_list::Offset;
use rdkafka::{Message, TopicPartitionList};

use super::round_trip::{self, FORMATS, FOUND, How, file, own, same, table, tables, wanted};
use super::support::{Moments, Random, kill_until_it_ends};

/// The directory with Kafka's libraries.
const LIBRARIES: &str = "DURAMEN_KAFKA_LIBS";
/// How many kills there are at least.
const KILLS: &str = "DURAMEN_STREAM_KILLS";
/// Where the child runs; without it the child's test does nothing.
const DIRECTORY: &str = "DURAMEN_KAFKA_KILLED";
/// On how many threads the child's job runs.
const THREADS: &str = "DURAMEN_STREAM_THREADS";
/// The file that the child makes when it begins to read.
const STARTED: &str = "started";

/// Key and value of a message.
type Said = (Option<String>, Option<String>);
/// Partition, milliseconds, key, value.
type Written = (i32, i64, Option<String>, Option<String>);

/// A broker of one node, which is its own controller.
struct Broker {
    directory: tempfile::TempDir,
    port: u16,
    child: Option<Child>,
}

fn java() -> Command {
    let libraries = std::env::var(LIBRARIES);
    let libraries = libraries.unwrap_or_else(|_| panic!("{LIBRARIES} is not set: run `cargo xtask kafka`"));
    let mut java = Command::new("java");
    java.args(["-Xmx384m", "-cp"]).arg(format!("{libraries}/*")).stdin(Stdio::null());
    java
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

impl Broker {
    /// One that is there, but does not run. Its topics have three partitions.
    fn new() -> Broker {
        Broker::with_partitions(3)
    }

    fn with_partitions(partitions: u32) -> Broker {
        let directory = tempfile::tempdir().unwrap();
        let (port, controller) = (free_port(), free_port());
        let data = directory.path().join("data");
        let properties = format!(
            "process.roles=broker,controller\nnode.id=1\ncontroller.quorum.voters=1@127.0.0.1:{controller}\n\
             listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}\n\
             advertised.listeners=PLAINTEXT://127.0.0.1:{port}\ncontroller.listener.names=CONTROLLER\n\
             listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT\nlog.dirs={}\n\
             offsets.topic.replication.factor=1\noffsets.topic.num.partitions=2\n\
             transaction.state.log.replication.factor=1\ntransaction.state.log.min.isr=1\n\
             transaction.state.log.num.partitions=2\nnum.partitions={partitions}\nlog.retention.ms=-1\n\
             log.message.timestamp.before.max.ms=9223372036854775807\n",
            data.display()
        );
        let file = directory.path().join("server.properties");
        std::fs::write(&file, properties).unwrap();
        let mut format = java();
        format.args(["kafka.tools.StorageTool", "format", "-t", "4L6g3nShT-eMCtK--X86sw", "-c"]).arg(&file);
        let said = format.output().unwrap();
        assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
        Broker { directory, port, child: None }
    }

    fn start(&mut self) {
        let log = std::fs::File::create(self.directory.path().join("log")).unwrap();
        let mut kafka = java();
        kafka.arg("kafka.Kafka").arg(self.directory.path().join("server.properties"));
        self.child = Some(kafka.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap());
        let began = Instant::now();
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            let log = || std::fs::read_to_string(self.directory.path().join("log")).unwrap_or_default();
            assert!(began.elapsed() < Duration::from_secs(120), "the broker does not start:\n{}", log());
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    fn servers(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    fn client(&self, settings: &[(&str, &str)]) -> ClientConfig {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", self.servers());
        for (name, value) in settings {
            config.set(*name, *value);
        }
        config
    }

    /// Writes messages.
    fn write(&self, topic: &str, messages: impl IntoIterator<Item = Written>) {
        let settings = [("linger.ms", "20"), ("queue.buffering.max.messages", "1000000")];
        let producer: BaseProducer = self.client(&settings).create().unwrap();
        for (partition, time, key, value) in messages {
            let mut record = BaseRecord::<str, str>::to(topic).partition(partition).timestamp(time);
            record.key = key.as_deref();
            record.payload = value.as_deref();
            producer.send(record).map_err(|(error, _)| error).unwrap();
            producer.poll(Duration::ZERO);
        }
        producer.flush(Duration::from_secs(60)).unwrap();
    }

    /// All messages of a topic that are committed: of each partition, in order.
    fn read(&self, topic: &str) -> BTreeMap<i32, Vec<Said>> {
        let settings =
            [("group.id", "test"), ("enable.partition.eof", "true"), ("isolation.level", "read_committed")];
        let consumer: BaseConsumer = self.client(&settings).create().unwrap();
        let mut assigned = TopicPartitionList::new();
        for partition in 0..3 {
            assigned.add_partition_offset(topic, partition, Offset::Beginning).unwrap();
        }
        consumer.assign(&assigned).unwrap();
        let (mut read, mut ended) = (BTreeMap::<i32, Vec<_>>::new(), 0);
        let began = Instant::now();
        while ended < 3 {
            assert!(began.elapsed() < Duration::from_secs(60), "cannot read {topic}");
            match consumer.poll(Duration::from_millis(500)) {
                None => {}
                Some(Err(KafkaError::PartitionEOF(_))) => ended += 1,
                Some(Err(error)) => panic!("{topic}: {error}"),
                Some(Ok(message)) => {
                    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                    let message = (message.partition(), message.key().map(text), message.payload().map(text));
                    read.entry(message.0).or_default().push((message.1, message.2));
                }
            }
        }
        read
    }

    /// The same of all partitions, sorted.
    fn read_sorted(&self, topic: &str) -> Vec<Said> {
        let mut all: Vec<_> = self.read(topic).into_values().flatten().collect();
        all.sort();
        all
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.kill();
    }
}

fn open(directory: &Path) -> Store {
    let options =
        Options { durability: Durability::Manual, create: Create::OpenOrCreate, ..Options::default() };
    options.open(directory.join("store")).unwrap()
}

fn start(script: &str, directory: &Path, threads: usize, every: u64) -> duramen_stream::Result<Running> {
    let Some(Outcome::Job(job)) = Session::default().run(script)?.pop() else { panic!("{script}") };
    let keep = Keep {
        store: open(directory),
        name: "job".to_owned(),
        every: Duration::from_millis(every),
        from_start: false,
        note: String::new(),
        room: MemoryLimit::default(),
    };
    let own = &mut |_: &_, _: &_| Ok(None);
    let existing = Existing::Refuse;
    Running::start_on(
        &job.optimised,
        Start { directory, keep: Some(&keep), threads: Some(threads), existing, own },
    )
}

/// Runs a job until it ends, or until `enough` returns true for its progress.
fn run_until(
    script: &str,
    directory: &Path,
    every: u64,
    enough: impl Fn(&Progress) -> bool + Sync,
) -> duramen_stream::Result<Progress> {
    let stop = AtomicBool::new(false);
    let told: Mutex<Option<Progress>> = Mutex::new(None);
    start(script, directory, 1, every)?.run(&stop, |progress| {
        if enough(progress) {
            stop.store(true, Ordering::Relaxed);
        }
        *told.lock().unwrap() = Some(progress.clone());
    })
}

fn run(script: &str, directory: &Path) -> Progress {
    run_until(script, directory, 20, |_| false).unwrap()
}

const RECORDS: i64 = 150_000;

/// Numbers in three partitions, in the order of their times; one of a thousand is no record.
fn numbers() -> impl Iterator<Item = Written> {
    (0..RECORDS).map(|number| {
        let time = 1_700_000_000_000 + number * 7;
        let (second, millis) = (number * 7 / 1000, number * 7 % 1000);
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        let value = if number % 1000 == 500 {
            format!("broken {number}")
        } else {
            format!(
                r#"{{"k": {}, "v": {number}, "ts": "2024-01-01 {hour:02}:{minute:02}:{second:02}.{millis:03}"}}"#,
                number * 2_654_435_761 % 97
            )
        };
        ((number % 3) as i32, time, None, Some(value))
    })
}

/// Every kind of sink that gives exactly once, of one input.
const JOB: &str = "
CREATE TABLE i (k BIGINT, v BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND) WITH (
  'connector' = 'kafka', 'topic' = 'in', 'properties.bootstrap.servers' = 'SERVERS', 'format' = 'json',
  'scan.startup.mode' = 'earliest-offset', 'scan.bounded.mode' = 'latest-offset', 'dead-letter' = 'out/dead');
CREATE TABLE copied (k BIGINT, v BIGINT) WITH (
  'connector' = 'kafka', 'topic' = 'copied-ROUND', 'properties.bootstrap.servers' = 'SERVERS', 'format' = 'csv',
  'key.format' = 'csv', 'key.fields' = 'k', 'sink.transactional-id-prefix' = 'ROUND');
CREATE TABLE tumbled (k BIGINT, wend TIMESTAMP(3), n BIGINT, total BIGINT) WITH (
  'connector' = 'kafka', 'topic' = 'tumbled-ROUND', 'properties.bootstrap.servers' = 'SERVERS',
  'key.format' = 'json', 'key.fields' = 'k', 'value.format' = 'json', 'value.fields-include' = 'EXCEPT_KEY',
  'sink.transactional-id-prefix' = 'ROUND', 'sink.delivery-guarantee' = 'exactly-once');
CREATE TABLE totals (k BIGINT, n BIGINT, total BIGINT, PRIMARY KEY (k) NOT ENFORCED) WITH (
  'connector' = 'upsert-kafka', 'topic' = 'totals-ROUND', 'properties.bootstrap.servers' = 'SERVERS',
  'key.format' = 'csv', 'value.format' = 'csv', 'sink.transactional-id-prefix' = 'ROUND');
CREATE TABLE files (k BIGINT, wend TIMESTAMP(3), n BIGINT)
  WITH ('connector' = 'filesystem', 'path' = 'out/files', 'format' = 'csv');
CREATE TABLE kept (k BIGINT, n BIGINT, PRIMARY KEY (k) NOT ENFORCED) WITH ('connector' = 'duramen', 'value' = 'json');
EXECUTE STATEMENT SET BEGIN
INSERT INTO copied SELECT k, v FROM i;
INSERT INTO tumbled SELECT k, window_end, COUNT(*), SUM(v)
  FROM TABLE(TUMBLE(TABLE i, DESCRIPTOR(ts), INTERVAL '10' SECOND)) GROUP BY k, window_start, window_end;
INSERT INTO totals SELECT k, COUNT(*), SUM(v) FROM i WHERE v < 30000 GROUP BY k;
INSERT INTO files SELECT k, window_end, COUNT(*)
  FROM TABLE(TUMBLE(TABLE i, DESCRIPTOR(ts), INTERVAL '30' SECOND)) GROUP BY k, window_start, window_end;
INSERT INTO kept SELECT k, COUNT(*) FROM i GROUP BY k;
END;";

fn job(broker: &Broker, round: &str) -> String {
    JOB.replace("SERVERS", &broker.servers()).replace("ROUND", round)
}

/// What a round has given: of each topic and partition, each directory and the store. What several threads give, and
/// groups of one window, are in no order.
fn given(broker: &Broker, round: &str, directory: &Path, threads: usize) -> BTreeMap<String, Vec<String>> {
    let mut given = BTreeMap::new();
    for topic in ["copied", "tumbled", "totals"] {
        for (partition, messages) in broker.read(&format!("{topic}-{round}")) {
            let messages = messages.iter().map(|message| format!("{message:?}")).collect();
            given.insert(format!("{topic} {partition}"), messages);
        }
    }
    for sink in ["files", "dead"] {
        let mut parts: Vec<_> = std::fs::read_dir(directory.join("out").join(sink))
            .unwrap()
            .map(|part| part.unwrap().path())
            .collect();
        parts.sort();
        let text: String = parts.iter().map(|part| std::fs::read_to_string(part).unwrap()).collect();
        given.insert(sink.to_owned(), text.lines().map(str::to_owned).collect());
    }
    let store = open(directory);
    let mut kept = Vec::new();
    let mut add = |value: &duramen::Value<'_>| kept.push(String::from_utf8_lossy(value).into_owned());
    store.find_table(b"redis.0").unwrap().unwrap().for_each(&mut add).unwrap();
    kept.sort();
    given.insert("kept".to_owned(), kept);
    // In which order a window gives its groups depends on how many messages came at a time.
    let by_window = |name: &str| name.starts_with("tumbled") || name == "files";
    given.iter_mut().filter(|(name, _)| threads > 1 || by_window(name)).for_each(|(_, lines)| lines.sort());
    given
}

#[test]
#[ignore = "another test runs it as a process that it kills"]
fn child() {
    let Ok(directory) = std::env::var(DIRECTORY) else { return };
    let directory = Path::new(&directory);
    let threads = std::env::var(THREADS).unwrap().parse().unwrap();
    let script = std::fs::read_to_string(directory.join("job.sql")).unwrap();
    let mut running = start(&script, directory, threads, 20).unwrap();
    std::fs::write(directory.join(STARTED), "").unwrap();
    running.run(&AtomicBool::new(false), |_| ()).unwrap();
}

fn child_in(directory: &Path, threads: usize) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["kafka::child", "--exact", "--ignored", "--nocapture"])
        .env(DIRECTORY, directory)
        .env(THREADS, threads.to_string())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Runs jobs to their ends until so many were killed, and compares each.
fn kill(count: usize, threads: usize) {
    let seed =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as u64 | 1;
    eprintln!("seed {seed}");
    let mut broker = Broker::new();
    broker.start();
    broker.write("in", numbers());
    let undisturbed = tempfile::tempdir().unwrap();
    let progress = run(&job(&broker, "calm"), undisturbed.path());
    assert_eq!((progress.records, progress.skipped), ((RECORDS - 150) as u64, 150));
    let wanted = given(&broker, "calm", undisturbed.path(), threads);
    for topic in ["copied", "tumbled", "totals"] {
        let of_topic = wanted.iter().filter(|(name, _)| name.starts_with(topic));
        let messages: Vec<usize> = of_topic.map(|(_, messages)| messages.len()).collect();
        assert!(messages.len() == 3 && messages.iter().all(|count| *count > 1000), "{topic}: {messages:?}");
    }
    let mut random = Random(seed);
    let (mut kills, mut rounds) = (0, 0);
    while kills < count {
        rounds += 1;
        let round = format!("round-{rounds}");
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("job.sql"), job(&broker, &round)).unwrap();
        let started = directory.path().join(STARTED);
        let moments = Moments { opens: 1000, runs: 400, later: 100 };
        let tries =
            kill_until_it_ends(&mut random, &moments, &started, &|| child_in(directory.path(), threads));
        kills += tries - 1;
        let found = given(&broker, &round, directory.path(), threads);
        for (name, lines) in &wanted {
            let found = found.get(name).map_or(&[][..], Vec::as_slice);
            let at = lines.iter().zip(found).position(|(wanted, found)| wanted != found).unwrap_or(0);
            let around =
                |lines: &[String]| lines.iter().skip(at).take(3).cloned().collect::<Vec<_>>().join("\n");
            assert!(
                found == lines,
                "{name} differs after {tries} runs: {} of {} at {at}: wanted\n{}\nfound\n{}\nseed {seed}",
                found.len(),
                lines.len(),
                around(lines),
                around(found)
            );
        }
        assert_eq!(found.len(), wanted.len(), "more than wanted; seed {seed}");
        eprintln!("round {rounds}: {kills} kills");
    }
    eprintln!("{kills} kills in {rounds} rounds on {threads} threads: none lost, none twice");
}

#[test]
#[ignore = "needs Kafka: cargo xtask kafka"]
fn killed_jobs_write_each_row_once() {
    let count = std::env::var(KILLS).ok().and_then(|count| count.parse().ok()).unwrap_or(50);
    kill(count, 1);
}

#[test]
#[ignore = "needs Kafka: cargo xtask kafka"]
fn killed_jobs_on_two_threads_write_each_row_once() {
    let count: usize = std::env::var(KILLS).ok().and_then(|count| count.parse().ok()).unwrap_or(50);
    kill(count / 3 + 1, 2);
}

#[test]
#[ignore = "needs Kafka: cargo xtask kafka"]
fn a_job_waits_for_a_missing_broker_and_reports_it() {
    let mut broker = Broker::new();
    let script = job(&broker, "calm");
    let directory = tempfile::tempdir().unwrap();
    // Without a broker: the job reports it, and ends when it is stopped.
    let progress = run_until(&script, directory.path(), 50, |progress| !progress.waits.is_empty()).unwrap();
    let waits = progress.waits.join("; ");
    assert!(waits.contains("s for 127.0.0.1:") && progress.records == 0, "{waits}");
    broker.start();
    broker.write("in", numbers());
    let calm = tempfile::tempdir().unwrap();
    run(&script, calm.path());
    let wanted = given(&broker, "calm", calm.path(), 1);
    // The broker is killed during transactions, and started again while the job runs.
    let broker = Mutex::new(broker);
    let script = script.replace("calm", "storm");
    let (shown, over) = (Mutex::new(Vec::new()), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut broker = broker.lock().unwrap();
            for pause in [300, 700, 500] {
                std::thread::sleep(Duration::from_millis(pause));
                broker.kill();
                std::thread::sleep(Duration::from_secs(3));
                broker.start();
            }
            over.store(true, Ordering::Relaxed);
        });
        let mut running = start(&script, directory.path(), 1, 50).unwrap();
        let report = |progress: &Progress| shown.lock().unwrap().extend(progress.waits.clone());
        running.run(&AtomicBool::new(false), report).unwrap();
        assert!(running.is_finished());
    });
    assert!(over.load(Ordering::Relaxed));
    let broker = broker.into_inner().unwrap();
    let found = given(&broker, "storm", directory.path(), 1);
    for (name, lines) in &wanted {
        assert!(
            found.get(name) == Some(lines),
            "{name}: {:?} of {}",
            found.get(name).map(Vec::len),
            lines.len()
        );
    }
    let shown = shown.into_inner().unwrap();
    assert!(shown.iter().any(|text| text.contains("has waited")), "{shown:?}");
}

/// The options of a format after a prefix.
fn behind(prefix: &str, format: &str) -> String {
    ["'format'", "'csv.", "'json."]
        .iter()
        .fold(format.to_owned(), |options, name| options.replace(name, &format!("'{prefix}{}", &name[1..])))
}

/// Each format with its options, as values and as keys, each type at its borders, in a job with a store and in one
/// without, by both connectors.
#[test]
#[ignore = "needs Kafka: cargo xtask kafka"]
fn messages_read_back_as_written() {
    // One partition, whose messages are in order.
    let mut broker = Broker::with_partitions(1);
    broker.start();
    let numbers = AtomicUsize::new(0);
    let mut runner = TestRunner::new(Config { cases: 8 * FORMATS.len() as u32, ..Config::default() });
    let ran = runner.run(&tables(), |(columns, rows)| {
        let number = numbers.fetch_add(1, Ordering::Relaxed);
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path();
        let (value, key) = (FORMATS[number % FORMATS.len()], FORMATS[(number * 7 + 3) % FORMATS.len()]);
        let columns = format!("id BIGINT NOT NULL, {columns}");
        let rows: Vec<Vec<Value>> = (0..)
            .zip(&rows)
            .map(|(place, row)| [vec![Value::Int(place)], row.clone()].concat())
            .collect();
        let topic = format!(
            "'topic' = 't{number}', 'properties.bootstrap.servers' = '{}', 'sink.transactional-id-prefix' = 'p{number}'",
            broker.servers()
        );
        let source = "'scan.startup.mode' = 'earliest-offset', 'scan.bounded.mode' = 'latest-offset'";
        let both = format!("{}, {}", behind("key.", key), behind("value.", value));
        // A key of another column: it may be NULL but in a primary key.
        let is_upsert = number / FORMATS.len() % 4 == 3;
        let first = columns.split(", c1 ").next().unwrap();
        let fields = match is_upsert && !first.ends_with(" NOT NULL") {
            true => vec!["id"],
            false => vec!["c0", "id"],
        };
        let keyed = format!("{both}, 'key.fields' = '{}'", fields.join(";"));
        let options = match number / FORMATS.len() % 4 {
            0 => value.to_owned(),
            1 => format!("{keyed}, 'value.fields-include' = 'EXCEPT_KEY'"),
            _ => keyed,
        };
        let there = format!("'connector' = 'kafka', {topic}, {options}");
        let written = match is_upsert {
            true => table(
                "t",
                &format!("{columns}, PRIMARY KEY ({}) NOT ENFORCED", fields.join(", ")),
                &format!("'connector' = 'upsert-kafka', {topic}, {both}"),
            ),
            false => table("t", &columns, &there),
        };
        let store = (number / FORMATS.len() / 4).is_multiple_of(2).then(|| round_trip::open(directory));
        round_trip::run_in(
            &format!("{}{written}INSERT INTO t SELECT * FROM own", own(&columns)),
            directory,
            &rows,
            How { kept: store.as_ref().map(|store| (store, "write")), ..How::default() },
        );
        let read = format!(
            "{}{}INSERT INTO f SELECT * FROM t",
            table("t", &columns, &format!("{there}, {source}")),
            table("f", &columns, FOUND)
        );
        round_trip::run(&read, directory, &[]);
        same(&file(directory, "found"), &wanted(&columns, &rows, directory), &read)
    });
    ran.unwrap();
}

#[test]
#[ignore = "needs Kafka: cargo xtask kafka"]
fn keys_metadata_columns_and_deletions_follow_the_options() {
    let mut broker = Broker::new();
    broker.start();
    let servers = broker.servers();
    let text = |text: &str| Some(text.to_owned());
    let messages = [
        (0, 1, text(r#"{"k": 1}"#), text("5,a")),
        (0, 2, text(r#"{"k": 2}"#), text("6,b")),
        (1, 3, text(r#"{"k": 1}"#), text("7,c")),
        // No key, no value, no number: left out.
        (1, 4, None, text("8,d")),
        (2, 5, text(r#"{"k": 3}"#), None),
        (2, 6, text(r#"{"k": 3}"#), text("x,e")),
    ];
    broker.write("pairs", messages);
    let script = format!(
        "CREATE TABLE i (v BIGINT, k BIGINT, s STRING) WITH ('connector' = 'kafka', 'topic' = 'pairs',
           'properties.bootstrap.servers' = '{servers}', 'scan.startup.mode' = 'earliest-offset',
           'scan.bounded.mode' = 'latest-offset', 'key.format' = 'json', 'key.fields' = 'k', 'value.format' = 'csv',
           'value.fields-include' = 'EXCEPT_KEY', 'dead-letter' = 'dead');
         CREATE TABLE o (k BIGINT, s STRING, v BIGINT) WITH ('connector' = 'kafka', 'topic' = 'swapped',
           'properties.bootstrap.servers' = '{servers}', 'format' = 'json', 'key.format' = 'csv', 'key.fields' = 's;k');
         CREATE TABLE few (k BIGINT, total BIGINT, PRIMARY KEY (k) NOT ENFORCED) WITH ('connector' = 'upsert-kafka',
           'topic' = 'few', 'properties.bootstrap.servers' = '{servers}', 'key.format' = 'csv', 'value.format' = 'csv');
         EXECUTE STATEMENT SET BEGIN
         INSERT INTO o SELECT k, s, v FROM i;
         INSERT INTO few SELECT k, SUM(v) FROM i GROUP BY k HAVING SUM(v) < 10;
         END;"
    );
    let directory = tempfile::tempdir().unwrap();
    let progress = run(&script, directory.path());
    assert_eq!((progress.records, progress.skipped), (3, 3));
    let wanted = [
        (text("a,1"), text(r#"{"k":1,"s":"a","v":5}"#)),
        (text("b,2"), text(r#"{"k":2,"s":"b","v":6}"#)),
        (text("c,1"), text(r#"{"k":1,"s":"c","v":7}"#)),
    ];
    assert_eq!(broker.read_sorted("swapped"), wanted);
    // 12 is not less than 10: the row is deleted.
    assert_eq!(
        broker.read_sorted("few"),
        [(text("1"), None), (text("1"), text("1,5")), (text("2"), text("2,6"))]
    );
    let dead: String = std::fs::read_dir(directory.path().join("dead"))
        .unwrap()
        .map(|part| std::fs::read_to_string(part.unwrap().path()).unwrap())
        .collect();
    for part in ["without a key", "without a value", "topic pairs, partition 2, offset 1"] {
        assert!(dead.contains(part), "{part}: {dead}");
    }
    // Without a store: at least once, and all of it when the job ends.
    let script =
        script.replace("'swapped'", "'again'").replace("'few'", "'once more'".replace(' ', "-").as_str());
    let Some(Outcome::Job(job)) = Session::default().run(&script).unwrap().pop() else { panic!() };
    let directory = tempfile::tempdir().unwrap();
    std::fs::create_dir(directory.path().join("x")).unwrap();
    Running::start(&job.optimised, directory.path()).unwrap().run(&AtomicBool::new(false), |_| ()).unwrap();
    assert_eq!(broker.read_sorted("again"), wanted);
    assert_eq!(broker.read_sorted("once-more").len(), 3);
    let exactly = script
        .replace("'format' = 'json',", "'format' = 'json', 'sink.delivery-guarantee' = 'exactly-once',");
    let Some(Outcome::Job(job)) = Session::default().run(&exactly).unwrap().pop() else { panic!() };
    let error = Running::start(&job.optimised, directory.path()).unwrap_err().to_string();
    assert!(error.contains("--store"), "{error}");
}

#[test]
#[ignore = "needs Kafka: cargo xtask kafka"]
fn a_topic_is_read_from_the_startup_offset_and_a_second_job_of_one_name_fences_the_first() {
    let mut broker = Broker::new();
    broker.start();
    let messages =
        (0..30).map(|number| (number % 3, 1000 + i64::from(number), None, Some(number.to_string())));
    broker.write("in", messages);
    let script = |options: &str, bounded: &str| {
        format!(
            "CREATE TABLE i (v BIGINT) WITH ('connector' = 'kafka', 'topic' = 'in', 'format' = 'csv',
               'properties.bootstrap.servers' = '{}', 'scan.bounded.mode' = '{bounded}', {options});
             CREATE TABLE o (v BIGINT) WITH ('connector' = 'kafka', 'topic' = 'out', 'format' = 'csv',
               'properties.bootstrap.servers' = '{}');
             INSERT INTO o SELECT v FROM i;",
            broker.servers(),
            broker.servers()
        )
    };
    let count = |options: &str| {
        let directory = tempfile::tempdir().unwrap();
        run(&script(&format!("'scan.startup.mode' = {options}"), "latest-offset"), directory.path()).records
    };
    assert_eq!(count("'earliest-offset'"), 30);
    assert_eq!(count("'latest-offset'"), 0);
    assert_eq!(count("'timestamp', 'scan.startup.timestamp-millis' = '1020'"), 10);
    let offsets = "'specific-offsets', 'scan.startup.specific-offsets'";
    assert_eq!(
        count(&format!("{offsets} = 'partition:0,offset:9;partition:1,offset:7;partition:2,offset:10'")),
        4
    );
    let group: BaseConsumer = broker.client(&[("group.id", "others")]).create().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let of_group = "'properties.group.id' = 'others'";
    let error = run_until(&script(of_group, "latest-offset"), directory.path(), 20, |_| false).unwrap_err();
    assert!(error.to_string().contains("found no offset for partition 0 in the consumer group"), "{error}");
    let mut committed = TopicPartitionList::new();
    for partition in 0..3 {
        committed.add_partition_offset("in", partition, Offset::Offset(8)).unwrap();
    }
    group.commit(&committed, rdkafka::consumer::CommitMode::Sync).unwrap();
    let directory = tempfile::tempdir().unwrap();
    assert_eq!(run(&script(of_group, "latest-offset"), directory.path()).records, 6);

    // Two jobs of one name in two stores: the later one writes, the other one ends.
    let follow = script("'scan.startup.mode' = 'earliest-offset'", "unbounded");
    let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let running = scope.spawn(|| start(&follow, first.path(), 1, 50).unwrap().run(&stop, |_| ()));
        std::thread::sleep(Duration::from_secs(3));
        let ran = run_until(&follow, second.path(), 50, |progress| progress.elapsed > Duration::from_secs(3));
        assert_eq!(ran.unwrap().records, 30);
        broker.write("in", [(0, 2000, None, Some("30".to_owned()))]);
        let error = running.join().unwrap().unwrap_err().to_string();
        assert!(error.contains("transactional id is duramen-job-0"), "{error}");
    });
    // A marker of another run is not taken for this one's.
    let error = run_until(&follow, first.path(), 50, |_| false).unwrap_err().to_string();
    assert!(error.contains("cannot tell whether delivery") && error.contains("--from-start"), "{error}");
}
