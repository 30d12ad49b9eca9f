//! Odd bodies through the aggregator: one Pod each, all in one answer of two reads.

use std::fmt::Write as _;
use std::sync::Arc;

use serde_json::Value;

use crate::scenario::{Failure, Outcome, Scenario, Test, ensure, missing, test, vllm, windowed};

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    vec![test!(every_odd_body_has_its_figure_or_its_code)]
}

const RUNNING: &str = "vllm:num_requests_running";
const TTFT: &str = "vllm:time_to_first_token_seconds";

/// A small body of a server that answered so many requests: each waited a quarter of a second, and a quarter of its tokens was cached.
fn body(requests: u32) -> String {
    let mut text =
        String::from("# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{engine=\"0\"} 3.0\n");
    text.push_str("vllm:num_requests_waiting{engine=\"0\"} 1.0\n");
    let n = f64::from(requests);
    for (name, value) in [("hits", 10.0 * n), ("queries", 40.0 * n)] {
        let _ = writeln!(text, "vllm:prefix_cache_{name}_total{{engine=\"0\"}} {value}");
    }
    for family in [
        TTFT,
        "vllm:inter_token_latency_seconds",
        "vllm:request_time_per_output_token_seconds",
    ] {
        let _ = writeln!(
            text,
            "# TYPE {family} histogram\n{family}_bucket{{engine=\"0\",le=\"0.5\"}} {n}\n{family}_bucket{{engine=\"0\",le=\"+Inf\"}} {n}\n{family}_sum{{engine=\"0\"}} {}\n{family}_count{{engine=\"0\"}} {n}",
            n / 4.0
        );
    }
    text
}

/// What is to be found of a Pod.
enum Expected {
    /// All figures of [`body`].
    Figures,
    /// As well, but no quantiles of the time to the first token.
    NoQuantiles,
    /// This code for this source, with these words in its reason; all other sources have their figures.
    Code(&'static str, &'static str, &'static [&'static str]),
    /// A cap was reached: this source is cut, and others may be.
    Cut(&'static str),
    /// The Pod as a whole has this code.
    Unread(&'static str),
}

use Expected::{Code, Cut, Figures, NoQuantiles, Unread};

struct Case {
    name: &'static str,
    edit: Box<dyn Fn(&str) -> String + Send + Sync>,
    /// Whether the first body is odd as well.
    both: bool,
    expected: Expected,
}

fn case(name: &'static str, edit: impl Fn(&str) -> String + Send + Sync + 'static, expected: Expected) -> Case {
    Case {
        name,
        edit: Box::new(edit),
        both: true,
        expected,
    }
}

/// A line behind the body.
fn with(line: &'static str) -> impl Fn(&str) -> String {
    move |body| format!("{body}{line}\n")
}

/// One text for another, which has to be there.
fn swap(from: &'static str, to: &'static str) -> impl Fn(&str) -> String {
    move |body| {
        assert!(body.contains(from), "{from} is not in the body");
        body.replace(from, to)
    }
}

fn without(name: &'static str) -> impl Fn(&str) -> String {
    move |body| {
        let lines = body.lines().filter(|line| !line.starts_with(name));
        lines.map(|line| format!("{line}\n")).collect()
    }
}

const RUNNING_LINE: &str = "vllm:num_requests_running{engine=\"0\"} 3.0";

fn cases() -> Vec<Case> {
    vec![
        case("an ordinary body", str::to_owned, Figures),
        case("CRLF", |body| body.replace('\n', "\r\n"), Figures),
        case("no last newline", |body| body.trim_end().to_owned(), Figures),
        case(
            "OpenMetrics",
            |body| {
                let lines = body.lines().map(|line| match line.contains("_bucket") {
                    true => format!("{line} # {{trace_id=\"a, b}} #\"}} 0.2 1796000000.5\n"),
                    false => format!("{line}\n"),
                });
                let created =
                    "vllm:prefix_cache_hits_created{engine=\"0\"} 1.7e9\n# UNIT vllm:prefix_cache_hits tokens\n# EOF\n";
                format!(
                    "# TYPE vllm:prefix_cache_hits counter\n{}{created}",
                    lines.collect::<String>()
                )
            },
            Figures,
        ),
        case(
            "timestamps, blanks, tabs, a comma too much",
            |body| {
                body.replace("{engine=\"0\"} ", "{ engine=\"0\" , }\t ")
                    .replace("\nvllm:num_requests_waiting", "\n\n  \nvllm:num_requests_waiting")
                    .replace(" 3.0\n", " 3.0 1796000000000\n")
            },
            Figures,
        ),
        case(
            "a series twice with one value",
            with("vllm:num_requests_running{engine=\"0\"} 3"),
            Figures,
        ),
        case(
            "a series twice with two values",
            with("vllm:num_requests_running{engine=\"0\"} 4"),
            Code(RUNNING, "NotUsable", &[]),
        ),
        case(
            "a gauge declared as a counter",
            swap("vllm:num_requests_running gauge", "vllm:num_requests_running counter"),
            Code(RUNNING, "Absent", &["counter", "gauge"]),
        ),
        case(
            "a gauge declared as unknown",
            swap("vllm:num_requests_running gauge", "vllm:num_requests_running unknown"),
            Figures,
        ),
        case(
            "NaN",
            swap(RUNNING_LINE, "vllm:num_requests_running{engine=\"0\"} NaN"),
            Code(RUNNING, "NotUsable", &[]),
        ),
        case(
            "infinity",
            swap(RUNNING_LINE, "vllm:num_requests_running{engine=\"0\"} +Inf"),
            Code(RUNNING, "NotUsable", &[]),
        ),
        case(
            "below zero",
            swap(RUNNING_LINE, "vllm:num_requests_running{engine=\"0\"} -1"),
            Code(RUNNING, "NotUsable", &[]),
        ),
        case(
            "a number past all numbers",
            swap(RUNNING_LINE, "vllm:num_requests_running{engine=\"0\"} 1e999"),
            Code(RUNNING, "NotUsable", &[]),
        ),
        case(
            "two numbers whose sum is past all numbers",
            |body| {
                body.replace(
                    RUNNING_LINE,
                    "vllm:num_requests_running{engine=\"0\"} 1.7e308\nvllm:num_requests_running{engine=\"1\"} 1.7e308",
                )
            },
            Code(RUNNING, "NotUsable", &[]),
        ),
        case(
            "no number",
            swap(RUNNING_LINE, "vllm:num_requests_running{engine=\"0\"} three"),
            Code(RUNNING, "NotUsable", &[]),
        ),
        case(
            "a line of more than 4 KiB",
            |body| {
                body.replace(
                    RUNNING_LINE,
                    &format!("vllm:num_requests_running{{engine=\"{}\"}} 3", "0".repeat(4096)),
                )
            },
            Code(RUNNING, "TooLarge", &[]),
        ),
        case(
            "more than 4,096 series",
            |body| {
                let many = (0..4200).map(|engine| format!("vllm:num_requests_running{{engine=\"{engine}\"}} 3\n"));
                let rest = body.replace(&format!("{RUNNING_LINE}\n"), "");
                rest + &many.collect::<String>()
            },
            Cut(RUNNING),
        ),
        case(
            "a thousand label sets and broken lines of another family",
            |body| {
                let many = (0..1000).map(|n| format!("python_gc{{generation=\"{n}\"}} 1\npython_gc{{ 1\n\u{1}\n"));
                many.collect::<String>() + body
            },
            Figures,
        ),
        case(
            "a name with an underscore for the colon",
            swap("vllm:num_requests_running", "vllm_num_requests_running"),
            Code(RUNNING, "Absent", &["vllm_num_requests_running"]),
        ),
        case(
            "another prefix, and an address in a quoted name",
            |body| {
                body.replace("vllm:num_requests_running", "ray_vllm_num_requests_running")
                    + "{\"http://10.1.2.3/vllm:num_requests_running\"} 1\n"
            },
            Code(RUNNING, "Absent", &["ray_vllm_num_requests_running"]),
        ),
        case(
            "declared without a sample",
            swap(RUNNING_LINE, ""),
            Code(RUNNING, "Absent", &["declared"]),
        ),
        case(
            "a counter without its suffix",
            swap("vllm:prefix_cache_hits_total", "vllm:prefix_cache_hits"),
            Code("local-prefix", "Absent", &["vllm:prefix_cache_hits"]),
        ),
        case(
            "a name in quotes",
            swap("vllm:num_requests_running{", "{\"vllm:num_requests_running\","),
            Figures,
        ),
        case(
            "a damaged bucket",
            swap(
                "vllm:time_to_first_token_seconds_bucket{engine=\"0\",le=\"0.5\"} ",
                "vllm:time_to_first_token_seconds_bucket{engine=\"0\",le=\"half\"} ",
            ),
            NoQuantiles,
        ),
        case(
            "no buckets",
            without("vllm:time_to_first_token_seconds_bucket"),
            NoQuantiles,
        ),
        case(
            "no sum",
            without("vllm:time_to_first_token_seconds_sum"),
            Code(TTFT, "NotUsable", &[]),
        ),
        case(
            "more hits than queries",
            |body| body.replace("hits_total{engine=\"0\"} 40", "hits_total{engine=\"0\"} 400"),
            Code("local-prefix", "Inconsistent", &[]),
        ),
        Case {
            both: false,
            ..case(
                "a family that vanished",
                without(RUNNING),
                Code(RUNNING, "Absent", &["any more"]),
            )
        },
        case(
            "HTML",
            |_| "<html>\n<body>It works</body>\n</html>\n".to_owned(),
            Unread("NotExposition"),
        ),
        case(
            "JSON",
            |_| "{\"vllm:num_requests_running\": 3}\n".to_owned(),
            Unread("NotExposition"),
        ),
    ]
}

/// The figures of the Pod's windows, but those of one source.
fn ensure_figures(answer: &Value, pod: &str, but: &str) -> Outcome {
    for (name, source) in [
        ("ttft", TTFT),
        ("itl", "vllm:inter_token_latency_seconds"),
        ("tpot", "vllm:request_time_per_output_token_seconds"),
    ] {
        let entry = windowed(answer, "latency", pod, name);
        if source == but {
            ensure!(entry.is_none(), "{name} of {pod} is named and has a figure: {answer}");
            continue;
        }
        let entry = entry.ok_or_else(|| format!("no {name}: {:?}", missing(answer, pod, source)))?;
        ensure!(entry["value"] == 0.25 && entry["samples"] == 4.0, "{entry}");
    }
    let mut hits = answer["cacheHits"].as_array().into_iter().flatten();
    let hits = hits.find(|entry| entry["pod"] == pod);
    match (hits, but) {
        (None, "local-prefix") => Ok(()),
        (Some(hits), but) if but != "local-prefix" => {
            ensure!(
                hits["hits"] == 40.0 && hits["queries"] == 160.0 && hits["rate"] == 0.25,
                "{hits}"
            );
            Ok(())
        }
        (hits, _) => Err(format!("hits are {hits:?}").into()),
    }
}

fn judge(answer: &Value, pod: &str, expected: &Expected) -> Outcome {
    match expected {
        Figures | NoQuantiles => {
            ensure!(
                missing(answer, pod, RUNNING).is_none(),
                "{:?}",
                missing(answer, pod, RUNNING)
            );
            ensure_figures(answer, pod, "")?;
            let ttft = windowed(answer, "latency", pod, "ttft").ok_or("no ttft")?;
            let has = ttft.get("quantiles").is_some();
            ensure!(has == matches!(expected, Figures), "the quantiles of {ttft}");
            Ok(())
        }
        Code(source, code, words) => {
            let entry = missing(answer, pod, source).ok_or_else(|| format!("{source} is not named"))?;
            let reason = entry["reason"].as_str().unwrap_or_default();
            ensure!(
                entry["code"] == *code && words.iter().all(|word| reason.contains(word)),
                "{entry}"
            );
            ensure_figures(answer, pod, source)
        }
        Cut(source) => {
            let entry = missing(answer, pod, source).ok_or_else(|| format!("{source} is not named"))?;
            ensure!(entry["code"] == "TooLarge", "{entry}");
            Ok(())
        }
        Unread(code) => {
            let entry = missing(answer, pod, "scrape").ok_or("the Pod is not named")?;
            ensure!(entry["code"] == *code, "{entry}");
            Ok(())
        }
    }
}

async fn every_odd_body_has_its_figure_or_its_code(scenario: Arc<Scenario>) -> Outcome {
    let cases = cases();
    let replicas = u32::try_from(cases.len())?;
    let namespace = &scenario.available("odd", &vllm("chat", replicas, "")).await?;
    let mut bodies = vec![];
    for (ordinal, case) in cases.iter().enumerate() {
        // Where the edit hangs on the figures: hits are 10 a request, of 4 more requests 40.
        let (first, second) = (body(0), body(4));
        let first = if case.both { (case.edit)(&first) } else { first };
        let engine = scenario.engine(namespace, &format!("chat-server-{ordinal}"))?;
        bodies.push((engine, [first, (case.edit)(&second)]));
    }
    let answer = scenario.between(namespace, "3s", &bodies).await?;
    let failures: Vec<String> = cases
        .iter()
        .enumerate()
        .filter_map(|(ordinal, case)| {
            let failure: Failure = judge(&answer, &format!("chat-server-{ordinal}"), &case.expected).err()?;
            Some(format!("{}: {failure}", case.name))
        })
        .collect();
    ensure!(failures.is_empty(), "{}", failures.join("\n"));
    let running = answer["processing"][0].clone();
    let read = cases
        .iter()
        .filter(|case| !matches!(case.expected, Unread(_) | Cut(_) | Code(RUNNING, ..)))
        .count();
    ensure!(
        running["value"] == 3 * read && running["podCount"] == read,
        "{read} Pods: {running}"
    );
    Ok(())
}
