//! `duramen bench`: the whole way from a measurement to its file, its page, a comparison and its price.
use std::path::Path;
use std::process::{Command, Output};

fn duramen(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_duramen")).args(args).output().unwrap()
}

fn text(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn measure(directory: &Path, name: &str) -> String {
    let json = directory.join(name).display().to_string();
    let place = directory.display().to_string();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
    let found = text(&duramen(&[
        "bench",
        "server",
        "--server",
        "duramen",
        "--commands",
        "set,get,incr,mset,mixed:50",
        "--pipeline",
        "1,32",
        "--rounds",
        "2",
        "--count",
        "2000",
        "--warm-up",
        "0",
        "--keys",
        "500",
        "--connections",
        "4",
        "--place",
        &place,
        "--port",
        &port,
        "--json",
        &json,
        "--html",
        &format!("{json}.html"),
    ]));
    assert!(found.contains("throughput") && found.contains("note: every reply was compared"), "{found}");
    json
}

#[test]
fn a_server_is_measured_compared_and_priced() {
    let directory = tempfile::tempdir().unwrap();
    let (a, b) = (measure(directory.path(), "a.json"), measure(directory.path(), "b.json"));
    let page = std::fs::read_to_string(format!("{a}.html")).unwrap();
    assert!(page.contains("<svg class=\"plot\"") && !page.contains("NaN"));
    let html = directory.path().join("both.html").display().to_string();
    let compared = text(&duramen(&["bench", "compare", &a, &b, "--html", &html]));
    assert!(compared.contains("second / first") && compared.contains("throughput"), "{compared}");
    assert!(std::fs::read_to_string(html).unwrap().contains("2 runs compared"));
    let shown = text(&duramen(&["bench", "compare", &a]));
    assert!(shown.contains("mixed") || shown.contains("50 % GET"), "{shown}");
    let prices = directory.path().join("prices.toml");
    let kinds = ["file", "shm"].map(|kind| {
        format!("[[medium]]\nkind = '{kind}'\nname = 'test'\ndevice_gb = 10.0\ndevice_euro = 50.0\n")
    });
    let figure = "[[figure]]\ntitle = 'million gets/s'\nwords = ['get']\nunit = 'op/s'\nper = 1e6\n";
    std::fs::write(&prices, kinds.concat() + figure).unwrap();
    let priced = text(&duramen(&["bench", "price", &a, "--prices", &prices.display().to_string()]));
    assert!(priced.contains("GB of capacity") && priced.contains("million gets/s"), "{priced}");
}

#[test]
fn a_file_without_results_is_refused_with_its_name_and_what_to_do() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.json");
    std::fs::write(&path, "{}").unwrap();
    let path = path.display().to_string();
    for (args, wanted) in [
        (vec!["bench", "compare", "/nonexistent.json"], "cannot read results from /nonexistent.json"),
        (vec!["bench", "compare", &path], "\"schema\" is none, wanted \"duramen-bench-run\""),
        (vec!["bench", "price", &path, "--prices", &path], "is not a file of prices"),
    ] {
        let output = duramen(&args);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(3), "{error}");
        assert!(error.contains(wanted), "{error}");
    }
    let output = duramen(&["bench", "server", "--pipeline", "0", "--rounds", "1"]);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(2) && error.contains("pipeline is 0, wanted 1 to 10000"), "{error}");
}
