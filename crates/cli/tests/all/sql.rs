//! `duramen sql`, in builds that have it: `cargo test -p duramen-cli --features sql --test all sql`.

use std::process::{Command, Output};

const TABLES: &str = "
    CREATE TABLE o (id BIGINT, ts TIMESTAMP(3), price DECIMAL(10, 2), WATERMARK FOR ts AS ts)
      WITH ('connector' = 'filesystem', 'path' = 'orders.csv', 'format' = 'csv');
    CREATE TABLE s (id BIGINT, wend TIMESTAMP(3), total DECIMAL(38, 2)) WITH ('connector' = 'print');";

fn sql(script: &str, orders: Option<&str>) -> Output {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("job.sql"), format!("{TABLES}{script}")).unwrap();
    if let Some(orders) = orders {
        std::fs::write(directory.path().join("orders.csv"), orders).unwrap();
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_duramen"));
    command.args(["sql", "job.sql"]).current_dir(directory.path()).output().unwrap()
}

const JOB: &str = "INSERT INTO s SELECT id, window_end, SUM(price)
    FROM TABLE(TUMBLE(TABLE o, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) GROUP BY id, window_start, window_end;";

#[test]
fn a_script_runs_to_the_end_of_its_input() {
    let output = sql(JOB, Some("1,2020-01-01 00:00:01,12.50\n1,2020-01-01 00:00:02,1.00\n"));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "+I[1, 2020-01-01 00:01:00.000, 13.50]\n");
    assert!(String::from_utf8_lossy(&output.stderr).contains("2 records"), "{output:?}");
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn a_wrong_script_and_a_missing_file_differ_in_their_codes() {
    let output = sql("INSERT INTO s SELECT id, ts, prise FROM o;", Some(""));
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("did you mean `price`?"), "{output:?}");
    let output = sql(JOB, None);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("orders.csv"), "{output:?}");
}
