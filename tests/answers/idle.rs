//! A Pod that served nothing: what its own first tokens, transfers and requests show, whatever probe traffic moves.

use model_deployment::pod::Producer;
use model_deployment_crds::metrics::ModelDeploymentMetrics;

use crate::scene::{Scene, capture, code, find_missing, hits, windowed};

/// An SGLang server: first tokens, gaps between tokens, computed tokens, tokens found.
fn sglang(first_tokens: u32, gaps: u32, input: u32, found: u32) -> String {
    format!(
        "sglang:num_running_reqs 0\nsglang:num_queue_reqs 0\n\
         sglang:time_to_first_token_seconds_sum {first_tokens}\nsglang:time_to_first_token_seconds_count {first_tokens}\n\
         sglang:inter_token_latency_seconds_sum {gaps}\nsglang:inter_token_latency_seconds_count {gaps}\n"
    ) + &tokens(input, found)
}

fn tokens(input: u32, found: u32) -> String {
    let line = |mode: &str, tokens| format!("sglang:prefill_effective_tokens_total{{mode=\"{mode}\"}} {tokens}\n");
    line("input", input) + &line("device_hit", found) + &line("host_hit", 0) + &line("storage_hit", 0)
}

fn server(before: String, after: String) -> ModelDeploymentMetrics {
    Scene::server(Producer::Sglang)
        .read("server/0", 0.0, before)
        .read("server/0", 30.0, after)
        .answer()
}

/// 22 probe tokens in 30 seconds are no hit rate of zero.
#[test]
fn probe_traffic_is_idle_and_not_a_hit_rate_of_zero() {
    let answer = server(sglang(1, 5, 100, 50), sglang(1, 5, 122, 50));
    assert!(answer.cache_hits.is_empty());
    assert_eq!(code(&answer, "device-prefix"), ("Idle", false));
    assert_eq!(code(&answer, "sglang:time_to_first_token_seconds"), ("Idle", false));
    assert_eq!(code(&answer, "sglang:inter_token_latency_seconds"), ("Idle", false));
    assert!(!answer.partial);
}

#[test]
fn an_idle_server_that_never_streamed_is_not_partial() {
    let body = capture("sglang-0.5.23_single_01_idle_after_start");
    let answer = server(body.clone(), body);
    assert_eq!(
        code(&answer, "sglang:inter_token_latency_seconds"),
        ("NotExportedYet", false)
    );
    assert_eq!(code(&answer, "sglang:time_to_first_token_seconds"), ("Idle", false));
    assert_eq!(code(&answer, "device-prefix"), ("Idle", false));
    assert!(!answer.partial);
}

#[test]
fn a_long_stream_is_reported_although_no_request_began() {
    let answer = server(sglang(1, 5, 100, 50), sglang(1, 25, 100, 50));
    assert_eq!(windowed(&answer.latency, "itl").samples, 20.0);
    assert_eq!(code(&answer, "sglang:time_to_first_token_seconds"), ("Idle", false));
}

#[test]
fn a_served_request_is_not_idle() {
    let answer = server(sglang(1, 5, 100, 50), sglang(2, 5, 110, 60));
    assert_eq!(hits(&answer, "device-prefix").rate, 0.5);
    assert_eq!(
        code(&answer, "sglang:inter_token_latency_seconds"),
        ("NoObservations", true)
    );
}

/// Without TTFT nothing shows that the Pod was idle.
#[test]
fn without_ttft_nothing_is_idle() {
    let answer = server(tokens(100, 50), tokens(100, 50));
    assert_eq!(code(&answer, "device-prefix"), ("NoQueries", true));
    assert_eq!(code(&answer, "sglang:time_to_first_token_seconds"), ("Absent", true));
}

/// An SGLang prefill half: transfers, computed tokens, tokens found.
fn prefill(transfers: u32, input: u32, found: u32) -> String {
    let histogram = |family| format!("sglang:{family}_sum {transfers}\nsglang:{family}_count {transfers}\n");
    tokens(input, found)
        + &[
            "kv_transfer_latency_ms",
            "kv_transfer_speed_gb_s",
            "kv_transfer_total_mb",
        ]
        .map(histogram)
        .concat()
        + "sglang:num_transfer_failed_reqs_total 2\n"
}

fn pair(before: String, after: String, decode: Option<(u32, u32)>) -> ModelDeploymentMetrics {
    let mut scene = Scene::pair(Producer::Sglang)
        .read("prefill/0", 0.0, before)
        .read("prefill/0", 10.0, after);
    scene = match decode {
        Some((first, last)) => {
            scene
                .read("decode/0", 0.0, sglang(first, 5, 0, 0))
                .read("decode/0", 10.0, sglang(last, 5, 0, 0))
        }
        None => scene.fail("decode/0", 10.0, "Timeout"),
    };
    scene.answer()
}

fn of_prefill<'a>(answer: &'a ModelDeploymentMetrics, source: &str) -> Option<(&'a str, bool)> {
    let mut entries = answer.missing.iter().filter(|missing| missing.pod == "chat-prefill-0");
    entries
        .find(|missing| missing.source == source)
        .map(|missing| (&*missing.code, missing.required))
}

#[test]
fn a_prefill_half_is_idle_when_its_transfers_and_its_queries_stood_still() {
    let answer = pair(prefill(3, 10, 10), prefill(3, 10, 10), None);
    for source in [
        "device-prefix",
        "sglang:kv_transfer_latency_ms",
        "sglang:kv_transfer_speed_gb_s",
        "sglang:kv_transfer_total_mb",
    ] {
        assert_eq!(of_prefill(&answer, source), Some(("Idle", false)), "{source}");
    }
    let failures = windowed(&answer.transfer, "transfer-failures");
    assert_eq!(
        (failures.value, failures.samples),
        (0.0, 0.0),
        "a counter that did not move is a rate of 0"
    );
}

/// Probe tokens moved; the decode half shows that no request did.
#[test]
fn a_prefill_half_is_idle_when_every_readable_decode_half_is() {
    let (before, after) = (prefill(3, 10, 10), prefill(3, 32, 10));
    let idle = pair(before.clone(), after.clone(), Some((7, 7)));
    assert_eq!(of_prefill(&idle, "device-prefix"), Some(("Idle", false)));
    let busy = pair(before.clone(), after.clone(), Some((7, 9)));
    assert_eq!(hits(&busy, "device-prefix").queries, 22.0);
    assert_eq!(
        of_prefill(&busy, "sglang:kv_transfer_latency_ms"),
        Some(("NoObservations", true))
    );
    let unread = pair(before, after, None);
    assert_eq!(
        hits(&unread, "device-prefix").queries,
        22.0,
        "at least one has to be readable"
    );
}

#[test]
fn a_prefill_half_with_transfers_of_its_own_is_not_idle() {
    let answer = pair(prefill(3, 10, 10), prefill(4, 10, 10), Some((7, 7)));
    assert_eq!(of_prefill(&answer, "device-prefix"), Some(("NoQueries", true)));
    assert_eq!(windowed(&answer.transfer, "transfer-size").samples, 1.0);
}

/// Before any transfer the histograms do not exist: none has happened.
#[test]
fn a_prefill_half_that_never_sent_anything_is_idle() {
    let body = capture("sglang-0.5.23_pd_prefill_01_idle");
    let answer = pair(body.clone(), body, None);
    assert_eq!(of_prefill(&answer, "device-prefix"), Some(("Idle", false)));
    assert_eq!(
        of_prefill(&answer, "sglang:kv_transfer_latency_ms"),
        Some(("NotExportedYet", true))
    );
}

/// Of another type, without one or under another name, nothing shows that they stood still.
#[test]
fn a_prefill_half_whose_transfers_cannot_be_told_is_not_idle() {
    let names = [
        "kv_transfer_latency_ms",
        "kv_transfer_speed_gb_s",
        "kv_transfer_total_mb",
    ];
    for (before, after) in [
        ("# TYPE sglang:{} gauge\nsglang:{}", ""),
        ("sglang:{}", ""),
        ("sglang_{}", "_count"),
    ] {
        let line = |name| format!("{before}{after} 3\n").replace("{}", name);
        let body = tokens(10, 10) + &names.map(line).concat();
        let answer = pair(body.clone(), body.clone(), Some((7, 7)));
        assert_eq!(
            of_prefill(&answer, "device-prefix"),
            Some(("NoQueries", true)),
            "{body}"
        );
    }
}

fn llm_d(requests: u32, errors: Option<u32>, first_tokens: u32) -> String {
    let errors = errors.map(|errors| format!("llm_d_epp_request_error_total {errors}\n"));
    format!(
        "llm_d_epp_request_total {requests}\nllm_d_epp_request_ttft_seconds_sum {first_tokens}\n\
         llm_d_epp_request_ttft_seconds_count {first_tokens}\n"
    ) + &errors.unwrap_or_default()
}

fn router(producer: Producer, before: String, after: String) -> ModelDeploymentMetrics {
    Scene::router_alone(producer, |_| {})
        .read("router/0", 0.0, before)
        .read("router/0", 10.0, after)
        .answer()
}

/// Requests and errors alone decide about a router's latency.
#[test]
fn router_latency_is_idle_when_requests_and_errors_stood_still() {
    let ttft = "llm_d_epp_request_ttft_seconds";
    for (before, after, expected) in [
        (llm_d(5, None, 3), llm_d(5, None, 3), ("Idle", false)),
        (llm_d(5, Some(1), 3), llm_d(5, Some(1), 3), ("Idle", false)),
        (llm_d(5, Some(1), 3), llm_d(5, Some(2), 3), ("NoObservations", true)),
        (llm_d(5, None, 3), llm_d(6, None, 3), ("NoObservations", true)),
        (llm_d(5, None, 3), llm_d(5, Some(1), 3), ("NoObservations", true)),
    ] {
        let answer = router(Producer::LlmDRouter, before, after);
        assert_eq!(code(&answer, ttft), expected);
        assert_eq!(
            answer.traffic.iter().filter(|entry| entry.name == "requests").count(),
            1,
            "a measured rate"
        );
    }
}

/// The histogram exists with zeros, the counters come with the first request.
#[test]
fn router_latency_is_idle_before_any_request() {
    let ttft = "llm_d_epp_request_ttft_seconds";
    let body = || format!("{ttft}_sum 0\n{ttft}_count 0\n");
    let answer = router(Producer::LlmDRouter, body(), body());
    assert_eq!(code(&answer, ttft), ("Idle", false));
    let served = body() + "llm_d_epp_request_total 1\n";
    let answer = router(Producer::LlmDRouter, body(), served);
    assert_eq!(code(&answer, ttft), ("NoObservations", true));
}

#[test]
fn an_idle_gateway_has_rates_of_zero_and_an_idle_ratio() {
    let body = "smg_router_requests_total 5\nsmg_router_request_errors_total 1\nsmg_http_responses_total{status_code=\"200\"} 5\n";
    let answer = router(Producer::SglangGateway, body.into(), body.into());
    for name in ["requests", "errors", "http-5xx-responses"] {
        assert_eq!(windowed(&answer.traffic, name).value, 0.0, "{name}");
    }
    let ratio = "smg_router_requests_total+smg_router_request_errors_total";
    assert_eq!(code(&answer, ratio), ("Idle", false));
}

/// No fraction is derived from a counter that gives no window; its own entry stands for both.
#[test]
fn a_ratio_without_a_window_of_both_counters_is_not_named() {
    let answer = router(
        Producer::SglangGateway,
        "smg_router_requests_total 5\n".into(),
        "smg_router_requests_total 9\n".into(),
    );
    assert!(find_missing(&answer, "smg_router_requests_total+smg_router_request_errors_total").is_none());
    assert!(answer.traffic.iter().all(|entry| entry.name != "error-ratio"));
}
