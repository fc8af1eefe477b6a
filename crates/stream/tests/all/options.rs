//! Options of WITH and SET: an unknown option is refused.

use duramen_stream::{ErrorKind, Session};

fn refused(script: &str) -> String {
    let error = Session::default().run(script).err().unwrap_or_else(|| panic!("this was taken: {script}"));
    assert!(matches!(error.kind(), ErrorKind::Invalid | ErrorKind::Unsupported), "{error}");
    error.to_string()
}

#[test]
fn an_unknown_option_is_refused_by_every_connector() {
    let connectors = [
        ("blackhole", "", "number-of-rows", ""),
        ("datagen", "", "number-of-row", "number-of-rows"),
        ("datagen", "", "fields.b.lenght", "fields.b.length"),
        ("datagen", "", "fields.c.min", "fields.a.min"),
        ("duramen", "", "databse", "database"),
        ("filesystem", "'format' = 'csv',", "source.monitor-intervall", "source.monitor-interval"),
        ("filesystem", "'format' = 'csv',", "csv.ignore-parse-errros", "csv.ignore-parse-errors"),
        ("filesystem", "'format' = 'json',", "csv.null-literal", ""),
        ("filesystem", "'format' = 'csv',", "sink.rolling-policy.file-size", ""),
        ("kafka", "'format' = 'json',", "scan.startup.mod", "scan.startup.mode"),
        ("kafka", "'format' = 'json',", "json.fail-on-missing-fields", "json.fail-on-missing-field"),
        ("nexmark", "", "event", "events"),
        ("print", "", "print-identifer", "print-identifier"),
        ("redis", "", "hostnam", "hostname"),
        ("redis-stream", "", "streem", "stream"),
        ("socket", "'format' = 'csv',", "mod", "mode"),
        ("upsert-kafka", "'format' = 'json', 'key.format' = 'json',", "topics", "topic"),
    ];
    for (connector, others, option, nearest) in connectors {
        let script = format!(
            "CREATE TABLE t (a INT, b STRING, PRIMARY KEY (a) NOT ENFORCED) WITH ('connector' = '{connector}', {others}\n  '{option}' = '1')"
        );
        let error = refused(&script);
        let begins = format!(
            "line 2, column 3: Unsupported options found for '{connector}': '{option}'. Supported options: "
        );
        assert!(error.starts_with(&begins), "{error}");
        match nearest {
            "" => assert!(!error.contains("did you mean"), "{error}"),
            nearest => assert!(error.ends_with(&format!("; did you mean `{nearest}`?")), "{error}"),
        }
    }
}

#[test]
fn an_option_value_of_the_wrong_kind_is_refused() {
    for (options, wanted) in [
        (
            "'connector' = 'datagen', 'number-of-rows' = 'many'",
            "found 'number-of-rows' = 'many', wanted a whole number",
        ),
        (
            "'connector' = 'filesystem', 'path' = 'x', 'format' = 'csv', 'csv.ignore-parse-errors' = 'yes'",
            "found 'csv.ignore-parse-errors' = 'yes', wanted 'true' or 'false'",
        ),
        (
            "'connector' = 'filesystem', 'path' = 'x', 'format' = 'csv', 'source.monitor-interval' = 'soon'",
            "wanted a time such as '500 ms' or '10 s'",
        ),
        (
            "'connector' = 'filesystem', 'path' = '', 'format' = 'csv'",
            "'path' = '', wanted a text that is not empty",
        ),
        (
            "'connector' = 'filesystem', 'path' = 'x', 'format' = 'csv', 'dead-letter' = ''",
            "'dead-letter' = '', wanted a text that is not empty",
        ),
        (
            "'connector' = 'socket', 'path' = '', 'format' = 'csv'",
            "'path' = '', wanted a text that is not empty",
        ),
        ("'connector' = 'redis-stream', 'stream' = ''", "'stream' = '', wanted a text that is not empty"),
        ("'connector' = 'socket', 'format' = 'csv', 'mode' = 'wait'", "wanted 'connect' or 'listen'"),
        (
            "'connector' = 'kafka', 'value.format' = 'json', 'value.json.timestamp-format.standard' = 'ISO'",
            "wanted 'SQL' or 'ISO-8601'",
        ),
    ] {
        let error = refused(&format!("CREATE TABLE t (a INT) WITH ({options})"));
        assert!(error.starts_with("line 1, column ") && error.contains(wanted), "{error}");
    }
}

/// Formats of Flink's are not named that are not there.
#[test]
fn an_unknown_format_is_refused_with_its_position() {
    for connector in ["filesystem', 'path' = 'x", "socket', 'port' = '1", "kafka"] {
        for format in ["parquet", "avro", "orc", "raw", "protobuf"] {
            let script =
                format!("CREATE TABLE t (a INT)\nWITH ('connector' = '{connector}', 'format' = '{format}')");
            let error = refused(&script);
            assert!(
                error.starts_with("line 2, column ") && error.contains(&format!("'{format}'")),
                "{error}"
            );
            let (_, wanted) = error.split_once("wanted ").unwrap();
            assert!(wanted.starts_with("'csv' or 'json'"), "{error}");
        }
    }
}

#[test]
fn key_and_value_formats_have_separate_options() {
    let script =
        "CREATE TABLE t (a INT, b INT) WITH ('connector' = 'kafka', 'key.format' = 'csv', 'key.fields' = 'a',
        'value.format' = 'json', 'key.csv.field-delimiter' = ';', 'value.json.fail-on-missing-field' = 'true',
        'properties.group.id' = 'g', 'properties.max.poll.interval.ms' = '1000')";
    Session::default().run(script).unwrap();
}

#[test]
fn set_refuses_unknown_options() {
    let error = refused("SET 'table.local-time-zon' = 'UTC'");
    assert_eq!(
        error,
        "line 1, column 5: Unsupported options found for SET: 'table.local-time-zon'. Supported options: \
         table.exec.source.idle-timeout, table.local-time-zone; did you mean `table.local-time-zone`?"
    );
    assert!(refused("SET 'table.exec.source.idle-timeout' = 'soon'").contains("wanted a time"));
}

#[test]
fn partitioned_by_is_refused_with_its_position() {
    let error = refused(
        "CREATE TABLE o (a INT)\nPARTITIONED BY (a) WITH ('connector' = 'filesystem', 'path' = 'o', 'format' = 'csv')",
    );
    assert!(error.starts_with("line 2, column 1: not supported yet: PARTITIONED BY; "), "{error}");
}

/// Its rows have no order, and no position from which they could be read again.
#[test]
fn keys_are_looked_up_and_not_read_as_a_stream() {
    let script = "CREATE TABLE k (a INT, PRIMARY KEY (a) NOT ENFORCED) WITH ('connector' = 'duramen');
        CREATE TABLE o (a INT) WITH ('connector' = 'print');
        INSERT INTO o SELECT a FROM k";
    for connector in ["duramen", "redis"] {
        let error = refused(&script.replace("duramen", connector));
        assert!(error.starts_with("line 3, column 37: "), "{error}");
        assert!(error.contains("wanted a table that can be read as a stream"), "{error}");
        assert!(error.contains("FOR SYSTEM_TIME AS OF"), "{error}");
    }
}
