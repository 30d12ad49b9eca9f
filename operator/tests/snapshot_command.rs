//! The `snapshot` command as a person runs it: the binary, its arguments, its output, its exit status.
//!
//! Expected figures come from another program with a parser of its own, run on the same captures.

mod played;

use std::process::{Command, Output};

use serde_json::{Value, json};

use played::Played;

const BUSY: [&str; 2] = ["vllm-0.32.0_single_03_busy_t0", "vllm-0.32.0_single_04_busy_t20s"];

fn capture(name: &str) -> String {
    format!(
        "{}/../tests/fixtures/exposition/{name}.prom",
        env!("CARGO_MANIFEST_DIR")
    )
}

fn example(name: &str) -> String {
    format!("{}/../examples/{name}.yaml", env!("CARGO_MANIFEST_DIR"))
}

fn run(manifest: &str, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_model-deployment-operator"))
        .args(["snapshot", "-f", manifest])
        .args(arguments)
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// The answer of a run that ends well, of readings `(word, source)`.
fn answer(manifest: &str, readings: &[(&str, String)], more: &[&str]) -> Value {
    let output = output(manifest, readings, more);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(text(&output.stderr), "");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn output(manifest: &str, readings: &[(&str, String)], more: &[&str]) -> Output {
    let readings: Vec<_> = readings
        .iter()
        .map(|(word, source)| format!("--reading={word}={source}"))
        .collect();
    let mut arguments: Vec<_> = readings.iter().map(String::as_str).collect();
    arguments.extend(more);
    run(&example(manifest), &arguments)
}

fn busy() -> [(&'static str, String); 2] {
    [("server/0", capture(BUSY[0])), ("server/0@20", capture(BUSY[1]))]
}

/// `name` or `scope` of an entry is `word`, or its source.
fn entry<'a>(answer: &'a Value, list: &str, word: &str) -> &'a Value {
    let is_it = |entry: &&Value| [&entry["name"], &entry["scope"], &entry["source"]].contains(&&json!(word));
    answer[list]
        .as_array()
        .unwrap()
        .iter()
        .find(is_it)
        .unwrap_or_else(|| panic!("{word} in {list} of {answer:#}"))
}

#[test]
fn two_captures_of_a_busy_vllm_are_two_reads_twenty_seconds_apart() {
    let answer = answer("vllm", &busy(), &[]);
    let at = "2000-01-01T00:00:20.000000Z";
    assert_eq!(answer["metadata"], json!({"name": "chat", "namespace": "default"}));
    assert_eq!(answer["timestamp"], at);
    for (list, name, source, value) in [
        ("processing", "running", "vllm:num_requests_running", 4),
        ("queueing", "waiting", "vllm:num_requests_waiting", 8),
    ] {
        let expected = json!({"name": name, "source": source, "scope": "engine", "role": "server", "roleKind": "Server",
            "unit": "requests", "value": value, "podCount": 1, "expectedPods": 2, "observedAt": at});
        assert_eq!(*entry(&answer, list, name), expected);
    }
    let hits = json!([{"pod": "chat-server-0", "source": "vllm:prefix_cache_hits_total+vllm:prefix_cache_queries_total",
        "scope": "local-prefix", "role": "server", "roleKind": "Server", "unit": "tokens", "hits": 0, "queries": 9492,
        "rate": 0, "windowSeconds": 20, "podCount": 1, "observedAt": at}]);
    assert_eq!(answer["cacheHits"], hits);
    let figures = [
        ("ttft", 84.0, 1.802_932_676_814_851_3, [1.75, 2.35, 2.425, 2.485]),
        ("tpot", 84.0, 0.002_302_308_346_521_085, [0.005, 0.009, 0.0095, 0.0099]),
        (
            "itl",
            34324.0,
            0.002_327_845_361_875_101_8,
            [
                0.005_000_582_750_582_75,
                0.009_001_048_951_048_952,
                0.009_501_107_226_107_227,
                0.009_901_153_846_153_846,
            ],
        ),
    ];
    for (name, samples, mean, quantiles) in figures {
        let entry = entry(&answer, "latency", name);
        assert_eq!(
            (&entry["samples"], &entry["windowSeconds"], &entry["unit"]),
            (&json!(samples as u64), &json!(20), &json!("seconds"))
        );
        let near = |value: &Value, expected: f64| (value.as_f64().unwrap() / expected - 1.0).abs() < 1e-9;
        assert!(near(&entry["value"], mean), "{entry}");
        for (quantile, expected) in ["p50", "p90", "p95", "p99"].into_iter().zip(quantiles) {
            assert!(near(&entry["quantiles"][quantile], expected), "{entry}");
        }
    }
    // The second replica has no reading, so it does not exist.
    let pods = entry(&answer, "missing", "engine/server");
    assert_eq!(
        (&pods["code"], &pods["required"]),
        (&json!("PodsMissing"), &json!(true))
    );
    assert_eq!(entry(&answer, "missing", "external-store")["code"], "Unsupported");
    assert_eq!(answer["partial"], true);
}

#[test]
fn readings_are_taken_in_the_order_of_their_times_with_decimals_from_the_start() {
    let [first, second] = BUSY.map(capture);
    let readings = [
        ("server/0@30.25", second),
        ("server/1", capture(BUSY[1])),
        ("server/0@10", first),
    ];
    let answer = answer("vllm", &readings, &["--start=2026-03-04T05:06:07Z"]);
    let ttft = entry(&answer, "latency", "ttft");
    assert_eq!(ttft["windowSeconds"], 20.25);
    assert_eq!(ttft["observedAt"], "2026-03-04T05:06:37.250000Z");
    // The earlier of both Pods' last reads.
    assert_eq!(
        entry(&answer, "processing", "running")["observedAt"],
        "2026-03-04T05:06:07.000000Z"
    );
    assert_eq!(answer["timestamp"], "2026-03-04T05:06:37.250000Z");
}

#[test]
fn a_router_pod_is_named_by_its_number() {
    let router = ["before_any_request", "in_flight_8"].map(|state| {
        let number = if state == "in_flight_8" { "03" } else { "01" };
        capture(&format!("vllm-router-0.1.17_ordinary_{number}_{state}"))
    });
    let [before, after] = router;
    let readings = [
        ("router/0", before),
        ("router/0@10", after),
        ("server/0", capture(BUSY[0])),
    ];
    let answer = answer("vllm-router", &readings, &[]);
    // 35 successes and 2 errors in ten seconds.
    for (name, value, samples) in [("successful-requests", 3.5, 35), ("errors", 0.2, 2)] {
        let entry = entry(&answer, "traffic", name);
        assert_eq!(
            (&entry["pod"], &entry["value"], &entry["samples"]),
            (&json!("chat-router-0"), &json!(value), &json!(samples))
        );
    }
    assert_eq!(entry(&answer, "processing", "router-reported-workers")["value"], 2);
}

#[test]
fn a_restart_between_two_readings_is_a_reset() {
    for (restart, code) in [("server/0@0.5", "Reset"), ("server/0@20", "Reset")] {
        let answer = answer("vllm", &busy(), &["--restarts", restart]);
        assert_eq!(
            entry(&answer, "missing", "vllm:time_to_first_token_seconds")["code"],
            code
        );
        assert_eq!(answer.get("latency"), None);
    }
}

#[test]
fn a_failure_and_a_body_over_the_cap_are_named_by_their_codes() {
    let folder = tempfile::tempdir().unwrap();
    let padded = |bytes: usize| {
        let mut body = std::fs::read(capture(BUSY[0])).unwrap();
        body.push(b'#');
        body.resize(bytes - 1, b' ');
        body.push(b'\n');
        let path = folder.path().join(bytes.to_string());
        std::fs::write(&path, body).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let cap = 1024 * 1024;
    let html = folder.path().join("html");
    std::fs::write(&html, "<!doctype html>\n<html></html>\n").unwrap();
    let sources = [
        ("error:Timeout".to_owned(), Some(("Timeout", true))),
        ("error:HttpStatus=503".to_owned(), Some(("HttpStatus", true))),
        ("error:Terminating".to_owned(), Some(("Terminating", false))),
        ("error:NoAddress".to_owned(), Some(("NoAddress", true))),
        (html.to_str().unwrap().to_owned(), Some(("NotExposition", true))),
        (padded(cap + 1), Some(("TooLarge", true))),
        (padded(cap), None),
    ];
    for (source, expected) in sources {
        let readings = [("server/0@1", source.clone()), ("server/1", capture(BUSY[0]))];
        let answer = answer("vllm", &readings, &[]);
        let missing = answer["missing"].as_array().unwrap();
        let scrape = missing.iter().find(|entry| entry["source"] == "scrape");
        let found = scrape.map(|entry| (entry["code"].as_str().unwrap(), entry["required"].as_bool().unwrap()));
        assert_eq!(found, expected, "{source}");
        if expected.is_some() {
            assert_eq!(scrape.unwrap()["pod"], "chat-server-0");
            assert_eq!(entry(&answer, "processing", "running")["podCount"], 1);
        }
        if source.ends_with("503") {
            assert_eq!(scrape.unwrap()["reason"], "The Pod answered with HTTP status 503.");
        }
    }
}

#[test]
fn a_503_is_its_status_object_with_exit_status_1() {
    let unreadable = [
        ("server/0", "error:Refused".to_owned()),
        ("server/1", "error:Timeout".to_owned()),
    ];
    for (readings, message) in [
        (&[][..], "ModelDeployment chat has no Pods with metrics yet"),
        (
            &unreadable[..],
            "none of the 2 Pods of ModelDeployment chat could be read, first cause Refused",
        ),
    ] {
        let expected = json!({"apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Failure", "code": 503,
            "reason": "ServiceUnavailable", "message": message, "details": {"retryAfterSeconds": 1}});
        for format in ["json", "yaml", "table"] {
            let output = output("vllm", readings, &["-o", format]);
            assert_eq!(output.status.code(), Some(1));
            assert_eq!(text(&output.stderr), "");
            // JSON is YAML.
            let status: Value = serde_yaml::from_slice(&output.stdout).unwrap();
            assert_eq!(status, expected, "{format}");
        }
    }
}

#[test]
fn only_take_over_roles_are_an_answer_without_readings() {
    let answer = answer("vllm-take-over", &[], &[]);
    assert_eq!(answer["missing"][0]["code"], "TakeOver");
    assert_eq!(answer["partial"], false);
}

#[test]
fn the_three_forms_say_the_same() {
    let json = text(&output("vllm", &busy(), &[]).stdout);
    let yaml = text(&output("vllm", &busy(), &["-o", "yaml"]).stdout);
    // One reader for both, since JSON is YAML: two may differ in a number's last digit.
    let read = |text: &str| serde_yaml::from_str::<Value>(text).unwrap();
    assert_eq!(read(&json), read(&yaml));
    // Members stand as the type has them, not by the alphabet.
    let members = ["apiVersion", "kind", "metadata", "timestamp", "processing", "partial"];
    for text in [&json, &yaml] {
        let places = members.map(|member| {
            text.find(&format!("{member}\""))
                .or_else(|| text.find(&format!("{member}:")))
        });
        assert!(places.is_sorted() && places[0].is_some(), "{text}");
    }
    insta::assert_snapshot!(text(&output("vllm", &busy(), &["-o", "table"]).stdout), @r"
    chat in default, 2000-01-01T00:00:20Z, partial

    ROLE    POD            PODS  RUNNING  WAITING  LOCAL HITS  TTFT P50/P99   TPOT P50/P99    ITL P50/P99
    server                  1/2        4        8
    server  chat-server-0                                  0%   1.75s/2.48s  5.00ms/9.90ms  5.00ms/9.90ms

    MISSING      REQUIRED  POD            SOURCE          REASON
    PodsMissing  yes                      engine/server   Role server has 1 of its 2 expected Pods.
    Unsupported  no        chat-server-0  external-store  The Pod runs no KV connector, so vLLM asks no external cache.
    ");
}

#[test]
fn a_url_is_read_now_and_twice_with_a_window() {
    let bodies = BUSY.map(|name| std::fs::read_to_string(capture(name)).unwrap());
    let server = Played::start(move |number| (200, bodies[number.min(1)].clone()));
    let refusing = Played::start(|_| (418, String::new()));
    let url = |server: &Played| format!("http://{}/metrics?a=b", server.address);
    let readings = [
        ("server/0", url(&server)),
        ("server/1", url(&refusing).replace("127.0.0.1", "localhost")),
    ];
    let before = jiff::Timestamp::now();
    let answer = answer("vllm", &readings, &["--window", "1s", "--start=2026-03-04T05:06:07Z"]);
    assert_eq!(server.asked(), ["/metrics?a=b"; 2]);
    assert_eq!(refusing.asked(), ["/metrics?a=b"]);
    let ttft = entry(&answer, "latency", "ttft");
    assert_eq!(ttft["samples"], 84);
    let window = ttft["windowSeconds"].as_f64().unwrap();
    assert!((1.0..8.0).contains(&window), "{window}");
    let observed: jiff::Timestamp = ttft["observedAt"].as_str().unwrap().parse().unwrap();
    assert!(observed > before, "--start is ignored");
    let scrape = entry(&answer, "missing", "scrape");
    assert_eq!(
        (&scrape["code"], &scrape["reason"]),
        (&json!("HttpStatus"), &json!("The Pod answered with HTTP status 418."))
    );
    assert!(!answer.to_string().contains("127.0.0.1"), "{answer}");
}

#[test]
fn wrong_input_is_one_sentence_and_exit_status_2() {
    let file = capture(BUSY[0]);
    let reading = |word: &str| format!("--reading={word}={file}");
    let (zero, url) = (reading("server/0"), "--reading=server/0=http://127.0.0.1:1/metrics");
    let invalid = |value: &str, of: &str, why: &str| format!("invalid value '{value}' for '{of}': {why}");
    let word = "--reading <ROLE/ORDINAL[@SECONDS]=SOURCE>";
    let table: Vec<(Vec<&str>, String)> = vec![
        (
            vec![&zero, "--reading=server/0@0.0=error:Timeout"],
            "two readings of server/0 are at one time".into(),
        ),
        (
            vec![url, &zero],
            "server/0 is read at a URL, which is now, so it can have no other reading".into(),
        ),
        (
            vec!["--reading=server/0@1=http://127.0.0.1:1/"],
            invalid(
                "server/0@1=http://127.0.0.1:1/",
                word,
                "a URL is read now, so it takes no @SECONDS",
            ),
        ),
        (
            vec!["--reading=server/0=http://engine:8000/metrics"],
            invalid(
                "server/0=http://engine:8000/metrics",
                word,
                "names are not resolved: write the IP address of \"engine\"",
            ),
        ),
        (
            vec!["--reading=server/0=http://me:secret@10.0.0.1/"],
            invalid(
                "server/0=http://me:secret@10.0.0.1/",
                word,
                "\"http://me:secret@10.0.0.1/\" is not the URL of a metrics page: http or https, without user and password",
            ),
        ),
        (
            vec!["--reading=server=x"],
            invalid("server=x", word, "a reading is ROLE/ORDINAL[@SECONDS]=SOURCE"),
        ),
        (
            vec!["--reading=server/0@-1=x"],
            invalid("server/0@-1=x", word, "\"-1\" is not a number of seconds from 0"),
        ),
        (
            vec!["--reading=server/0=error:Absent"],
            invalid(
                "server/0=error:Absent",
                word,
                "\"Absent\" is not a code that a Pod can fail with: write one of NoAddress, NotRunning, Terminating, Refused, Timeout, TlsUntrusted, TlsClientCertificate, HttpStatus=<201 to 599>, TooLarge, NotExposition, AddressDenied, Unreadable",
            ),
        ),
        (
            vec!["--reading=server/0=error:HttpStatus=200"],
            invalid(
                "server/0=error:HttpStatus=200",
                word,
                "\"HttpStatus=200\" is not a code that a Pod can fail with: write one of NoAddress, NotRunning, Terminating, Refused, Timeout, TlsUntrusted, TlsClientCertificate, HttpStatus=<201 to 599>, TooLarge, NotExposition, AddressDenied, Unreadable",
            ),
        ),
        (
            vec!["--restarts=server/0"],
            invalid(
                "server/0",
                "--restarts <ROLE/ORDINAL@SECONDS>",
                "a restart is ROLE/ORDINAL@SECONDS",
            ),
        ),
        (
            vec![&zero, "--restarts=server/0@0"],
            "server/0 has no readings on both sides of the restart".into(),
        ),
        (
            vec!["--window=4s", url],
            invalid(
                "4s",
                "--window <DURATION>",
                "window must be a duration from 1s to 3s, not \"4s\"",
            ),
        ),
        (
            vec![&zero, "--window=1s"],
            "--window is for URLs, and no reading is one".into(),
        ),
        (
            vec![&zero, "--view=full"],
            "--view full is not answered by this version".into(),
        ),
        (
            vec!["--view=half"],
            "invalid value 'half' for '--view <VIEW>' [possible values: standard, full]".into(),
        ),
        (
            vec!["--reading=proxy/0=error:Timeout"],
            "the manifest has no role proxy".into(),
        ),
        (
            vec!["--reading=router/0=error:Timeout"],
            "the manifest has no router".into(),
        ),
        (
            vec!["--reading=server/2=error:Timeout"],
            "server/2 is not rendered: server has 2 replicas, counted from 0".into(),
        ),
        (
            vec!["--reading=server/0=no-such-file"],
            "cannot read no-such-file: No such file or directory (os error 2)".into(),
        ),
        (
            vec!["--reading=server/0@1e15=error:Timeout"],
            "a reading of server/0 is later than any time that can be written".into(),
        ),
        (vec!["--nonsense"], "unexpected argument '--nonsense' found".into()),
    ];
    for (arguments, sentence) in table {
        let output = run(&example("vllm"), &arguments);
        assert_eq!(text(&output.stderr), format!("error: {sentence}\n"), "{arguments:?}");
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert_eq!(text(&output.stdout), "", "{arguments:?}");
    }
    let output = run(&example("vllm-take-over"), &["--reading=server/0=error:Timeout"]);
    assert_eq!(
        text(&output.stderr),
        "error: role server runs a command of its own, so its Pods are not read\n"
    );
    let output = run("no-such-manifest", &[]);
    assert_eq!(
        (output.status.code(), text(&output.stderr)),
        (
            Some(2),
            "error: cannot read no-such-manifest: No such file or directory (os error 2)\n".to_owned()
        )
    );
}
