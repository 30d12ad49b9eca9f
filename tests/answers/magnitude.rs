//! Finite samples whose sum, mean or quantile is past all numbers: no value, and never `null` in an answer.

use model_deployment::pod::Producer;
use model_deployment_crds::role::RoleKind;

use crate::scene::{Scene, code, gauge, windowed};

const RUNNING: &str = "vllm:num_requests_running";
const TTFT: &str = "vllm:time_to_first_token_seconds";

/// More than half of what a number holds.
const VAST: f64 = 1e308;

#[test]
fn series_that_add_up_past_all_numbers_are_not_usable() {
    let body = format!("{RUNNING}{{engine=\"0\"}} {VAST:e}\n{RUNNING}{{engine=\"1\"}} {VAST:e}\n");
    let answer = Scene::server(Producer::Vllm).read("server/0", 0.0, body).answer();
    assert_eq!(code(&answer, RUNNING), ("NotUsable", true));
    assert!(answer.processing.is_empty());
}

#[test]
fn a_pod_that_takes_a_sum_past_all_numbers_is_named() {
    let body = format!("{RUNNING} {VAST:e}\n");
    let answer = Scene::new()
        .role("server", RoleKind::Server, Producer::Vllm, 2, |_| {})
        .read("server/0", 0.0, body.clone())
        .read("server/1", 0.0, body)
        .answer();
    let running = gauge(&answer.processing, "running", Some("server"));
    assert_eq!((running.value, running.pod_count, running.expected_pods), (VAST, 1, 2));
    let named = answer.missing.iter().find(|entry| entry.source == RUNNING).unwrap();
    assert_eq!(
        (named.pod.as_str(), named.code.as_str()),
        ("chat-server-1", "NotUsable")
    );
}

#[test]
fn cache_hits_past_all_numbers_are_not_usable() {
    let body = |value: f64| {
        let series = |name: &str| {
            (0..2)
                .map(|engine| format!("vllm:prefix_cache_{name}_total{{engine=\"{engine}\"}} {value:e}\n"))
                .collect::<String>()
        };
        series("hits") + &series("queries") + &format!("{TTFT}_sum {value:e}\n{TTFT}_count {value:e}\n")
    };
    let answer = Scene::server(Producer::Vllm)
        .read("server/0", 0.0, body(0.0))
        .read("server/0", 2.0, body(VAST))
        .answer();
    assert_eq!(code(&answer, "local-prefix"), ("NotUsable", true));
    assert_eq!(windowed(&answer.latency, "ttft").value, 1.0);
}

#[test]
fn a_mean_or_a_quantile_past_all_numbers_is_left_out() {
    let body = |sum: f64, count: f64| {
        format!(
            "{TTFT}_bucket{{le=\"-1e308\"}} 0\n{TTFT}_bucket{{le=\"1e308\"}} {count:e}\n{TTFT}_bucket{{le=\"+Inf\"}} {count:e}\n\
             {TTFT}_sum {sum:e}\n{TTFT}_count {count:e}\n"
        )
    };
    let scene = |sum, count| {
        Scene::server(Producer::Vllm)
            .read("server/0", 0.0, body(0.0, 0.0))
            .read("server/0", 2.0, body(sum, count))
            .answer()
    };
    assert_eq!(code(&scene(VAST, 1e-300), TTFT), ("NotUsable", true));
    let answer = scene(3.0, 4.0);
    let ttft = windowed(&answer.latency, "ttft");
    assert_eq!((ttft.value, ttft.quantiles), (0.75, None));
}
