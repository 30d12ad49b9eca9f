//! Finite samples whose sum, mean or quantile is past all numbers: no value, and never `null` in an answer.

use model_deployment::pod::Producer;
use model_deployment_crds::metrics::ModelDeploymentMetrics;
use model_deployment_crds::role::RoleKind;

use crate::scene::{Scene, code, gauge, windowed};

const RUNNING: &str = "vllm:num_requests_running";
const TTFT: &str = "vllm:time_to_first_token_seconds";

/// More than half of what a number holds.
const VAST: f64 = 1e308;

/// Figures are the nearest numbers to what the body says, and an answer that is read again holds the same ones.
#[test]
fn figures_are_exact_and_stay_so_through_json() {
    for (written, value) in [
        ("0.30000000000000004", 0.1 + 0.2),
        ("0.1", 0.1),
        ("1e22", 1e22),
        ("5e-324", f64::from_bits(1)),
        ("2.2250738585072014E-308", f64::MIN_POSITIVE),
        ("1.7976931348623157e+308", f64::MAX),
        // Halfway between two numbers: to the even one.
        ("9007199254740993", 9_007_199_254_740_992.0),
        ("9007199254740995.0", 9_007_199_254_740_996.0),
        ("18446744073709551617", 18_446_744_073_709_551_616.0),
        ("123456789.12345678", 123_456_789.123_456_78),
        ("2.0000000000000004", 2.0 + 2.0 * f64::EPSILON),
        ("-0", 0.0),
    ] {
        let answer = Scene::server(Producer::Vllm)
            .read("server/0", 0.0, format!("{RUNNING} {written}\n"))
            .answer();
        assert_eq!(
            gauge(&answer.processing, "running", Some("server")).value,
            value,
            "{written}"
        );
        let json = serde_json::to_string(&answer).unwrap();
        let again: ModelDeploymentMetrics = serde_json::from_str(&json).unwrap();
        assert_eq!(again, answer, "{written}");
        let untyped: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(untyped["processing"][0]["value"].as_f64(), Some(value), "{written}");
    }
}

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
