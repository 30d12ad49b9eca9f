//! Each row of the field table, on the smallest body that holds it: series, list, unit and arithmetic. Figures are worked out by hand.

use model_deployment::fields::FIELDS;
use model_deployment::pod::{Facts, Producer, TracksLoad};
use model_deployment_crds::metrics::{ModelDeploymentMetrics, Quantiles, Windowed};
use model_deployment_crds::model_deployment::KvCacheConnector;
use model_deployment_crds::role::RoleKind;

use crate::scene::{Scene, find_missing, gauge, hits, windowed};

/// Two reads, ten seconds apart.
fn two_reads(scene: Scene, pod: &str, before: &str, after: &str) -> ModelDeploymentMetrics {
    scene.read(pod, 0.0, before).read(pod, 10.0, after).answer()
}

/// One histogram: 4 observations of 8 units together before; 4 more of 2 together since: 2 up to 0.25, 2 up to 1.
fn histogram(family: &str) -> (String, String) {
    let body = |sum, low, high, count| {
        format!(
            "{family}_sum {sum}\n{family}_bucket{{le=\"0.25\"}} {low}\n{family}_bucket{{le=\"1\"}} {high}\n\
             {family}_bucket{{le=\"+Inf\"}} {count}\n{family}_count {count}\n"
        )
    };
    (body(8, 1, 2, 4), body(10, 3, 6, 8))
}

/// Of the four new observations, rank 2 ends the first bucket; 3.6, 3.8 and 3.96 lie 0.8, 0.9 and 0.98 through the second.
const QUANTILES: Quantiles = Quantiles {
    p50: 0.25,
    p90: 0.85,
    p95: 0.925,
    p99: 0.985,
};

fn mean(scene: Scene, pod: &str, name: &str, family: &str) -> (Windowed, ModelDeploymentMetrics) {
    let (before, after) = histogram(family);
    let answer = two_reads(scene, pod, &before, &after);
    let lists = [&answer.latency, &answer.transfer].into_iter().flatten();
    let entry = windowed(&lists.cloned().collect::<Vec<_>>(), name).clone();
    assert_eq!((entry.value, entry.samples, entry.window_seconds), (0.5, 4.0, 10.0));
    assert_eq!(entry.source, family);
    (entry, answer)
}

fn latency(scene: Scene, pod: &str, name: &str, family: &str) {
    let (entry, answer) = mean(scene, pod, name, family);
    assert_eq!(entry.unit, "seconds");
    let quantiles = entry.quantiles.expect("quantiles");
    for (ours, expected) in [
        (quantiles.p50, QUANTILES.p50),
        (quantiles.p90, QUANTILES.p90),
        (quantiles.p95, QUANTILES.p95),
        (quantiles.p99, QUANTILES.p99),
    ] {
        assert!((ours - expected).abs() < 1e-12, "{quantiles:?}");
    }
    assert_eq!(answer.latency.len(), 1);
}

fn transfer(name: &str, family: &str, unit: &str) {
    let scene = Scene::pair(Producer::Sglang).fail("decode/0", 0.0, "Refused");
    let (entry, answer) = mean(scene, "prefill/0", name, family);
    assert_eq!((entry.unit.as_str(), entry.quantiles), (unit, None));
    assert_eq!(
        (entry.role.as_deref(), entry.role_kind),
        (Some("prefill"), Some(RoleKind::Prefill))
    );
    assert_eq!(answer.transfer.len(), 1);
}

/// A counter that goes from 5 to 12 in ten seconds, added over two label sets.
fn rate(scene: Scene, pod: &str, name: &str, family: &str, unit: &str) {
    let body = |one, two| {
        format!("{family}{{a=\"1\",status_code=\"503\"}} {one}\n{family}{{a=\"2\",status_code=\"500\"}} {two}\n")
    };
    let answer = two_reads(scene, pod, &body(2, 3), &body(4, 8));
    let lists: Vec<_> = [&answer.traffic, &answer.transfer]
        .into_iter()
        .flatten()
        .cloned()
        .collect();
    let entry = windowed(&lists, name);
    assert_eq!((entry.value, entry.samples, entry.window_seconds), (0.7, 7.0, 10.0));
    assert_eq!(
        (entry.source.as_str(), entry.unit.as_str(), entry.quantiles),
        (family, unit, None)
    );
}

fn router_rate(producer: Producer, name: &str, family: &str, unit: &str) {
    rate(Scene::router_alone(producer, |_| {}), "router/0", name, family, unit);
}

fn pd_rate(name: &str, family: &str, unit: &str) {
    let paired = |facts: &mut Facts| facts.paired = true;
    rate(
        Scene::router_alone(Producer::VllmRouter, paired),
        "router/0",
        name,
        family,
        unit,
    );
}

/// A gauge of two label sets, 2 and 3.
fn present(scene: Scene, pod: &str, role: Option<&str>, name: &str, family: &str, unit: &str) {
    let body = format!("{family}{{a=\"1\"}} 2\n{family}{{a=\"2\"}} 3\n");
    let answer = scene.read(pod, 0.0, body).answer();
    let gauges: Vec<_> = [&answer.processing, &answer.queueing]
        .into_iter()
        .flatten()
        .cloned()
        .collect();
    let entry = gauge(&gauges, name, role);
    assert_eq!(
        (entry.value, entry.source.as_str(), entry.unit.as_str()),
        (5.0, family, unit)
    );
}

#[test]
fn vllm_running() {
    present(
        Scene::server(Producer::Vllm),
        "server/0",
        Some("server"),
        "running",
        "vllm:num_requests_running",
        "requests",
    );
}

#[test]
fn vllm_waiting() {
    present(
        Scene::server(Producer::Vllm),
        "server/0",
        Some("server"),
        "waiting",
        "vllm:num_requests_waiting",
        "requests",
    );
}

#[test]
fn sglang_running() {
    present(
        Scene::server(Producer::Sglang),
        "server/0",
        Some("server"),
        "running",
        "sglang:num_running_reqs",
        "requests",
    );
}

#[test]
fn sglang_waiting() {
    present(
        Scene::server(Producer::Sglang),
        "server/0",
        Some("server"),
        "waiting",
        "sglang:num_queue_reqs",
        "requests",
    );
}

#[test]
fn sglang_decode_transfer_waiting() {
    let scene = Scene::pair(Producer::Sglang).fail("prefill/0", 0.0, "Refused");
    let family = "sglang:num_decode_transfer_queue_reqs";
    present(
        scene,
        "decode/0",
        Some("decode"),
        "decode-transfer-waiting",
        family,
        "requests",
    );
}

/// Hits 10 → 40, queries 100 → 200.
fn vllm_hits(scene: Scene, scope: &str, prefix: &str) {
    let body = |hits, queries| {
        format!("{prefix}_hits_total{{engine=\"0\"}} {hits}\n{prefix}_queries_total{{engine=\"0\"}} {queries}\n")
    };
    let answer = two_reads(scene, "server/0", &body(10, 100), &body(40, 200));
    let entry = hits(&answer, scope);
    assert_eq!((entry.hits, entry.queries, entry.rate), (30.0, 100.0, 0.3));
    assert_eq!(entry.source, format!("{prefix}_hits_total+{prefix}_queries_total"));
    assert_eq!(
        (entry.pod.as_str(), entry.role.as_str(), entry.role_kind),
        ("chat-server-0", "server", RoleKind::Server)
    );
    assert_eq!(
        (entry.unit.as_str(), entry.pod_count, entry.window_seconds),
        ("tokens", 1, 10.0)
    );
}

#[test]
fn vllm_local_prefix() {
    vllm_hits(Scene::server(Producer::Vllm), "local-prefix", "vllm:prefix_cache");
}

#[test]
fn vllm_external_store() {
    let scene = Scene::server(Producer::Vllm).with("server", |facts| {
        facts.pool = true;
        facts.connector = Some(KvCacheConnector::Mooncake);
    });
    vllm_hits(scene, "external-store", "vllm:external_prefix_cache");
}

/// Input +50, device +30, host +15, storage +5: each tier over all 100.
fn tier(scope: &str, expected: f64) {
    let body = |input, device, host, storage| {
        let line = |mode: &str, tokens: u32| {
            format!("sglang:prefill_effective_tokens_total{{mode=\"{mode}\",tp_rank=\"0\"}} {tokens}\n")
        };
        line("input", input) + &line("device_hit", device) + &line("host_hit", host) + &line("storage_hit", storage)
    };
    let scene = Scene::server(Producer::Sglang).with("server", |facts| {
        facts.host_tier = true;
        facts.storage_tier = true;
    });
    let answer = two_reads(scene, "server/0", &body(7, 8, 9, 10), &body(57, 38, 24, 15));
    let entry = hits(&answer, scope);
    assert_eq!(
        (entry.hits, entry.queries, entry.rate),
        (expected, 100.0, expected / 100.0)
    );
    assert_eq!(entry.source, "sglang:prefill_effective_tokens_total");
    let scopes: Vec<_> = answer.cache_hits.iter().map(|entry| entry.scope.as_str()).collect();
    assert_eq!(scopes, ["device-prefix", "host-prefix", "storage-prefix"]);
}

#[test]
fn sglang_device_prefix() {
    tier("device-prefix", 30.0);
}

#[test]
fn sglang_host_prefix() {
    tier("host-prefix", 15.0);
}

#[test]
fn sglang_storage_prefix() {
    tier("storage-prefix", 5.0);
}

#[test]
fn vllm_ttft() {
    latency(
        Scene::server(Producer::Vllm),
        "server/0",
        "ttft",
        "vllm:time_to_first_token_seconds",
    );
    let prefill = Scene::pair(Producer::Vllm).fail("decode/0", 0.0, "Refused");
    latency(prefill, "prefill/0", "ttft", "vllm:time_to_first_token_seconds");
}

#[test]
fn vllm_tpot() {
    latency(
        Scene::server(Producer::Vllm),
        "server/0",
        "tpot",
        "vllm:request_time_per_output_token_seconds",
    );
}

#[test]
fn vllm_itl() {
    latency(
        Scene::server(Producer::Vllm),
        "server/0",
        "itl",
        "vllm:inter_token_latency_seconds",
    );
}

#[test]
fn sglang_ttft() {
    latency(
        Scene::server(Producer::Sglang),
        "server/0",
        "ttft",
        "sglang:time_to_first_token_seconds",
    );
    let decode = Scene::pair(Producer::Sglang).fail("prefill/0", 0.0, "Refused");
    latency(decode, "decode/0", "ttft", "sglang:time_to_first_token_seconds");
}

#[test]
fn sglang_itl() {
    latency(
        Scene::server(Producer::Sglang),
        "server/0",
        "itl",
        "sglang:inter_token_latency_seconds",
    );
}

#[test]
fn sglang_transfer_latency() {
    transfer("transfer-latency", "sglang:kv_transfer_latency_ms", "milliseconds");
}

#[test]
fn sglang_transfer_speed() {
    transfer("transfer-speed", "sglang:kv_transfer_speed_gb_s", "GB/second");
}

#[test]
fn sglang_transfer_size() {
    transfer("transfer-size", "sglang:kv_transfer_total_mb", "MB");
}

#[test]
fn sglang_transfer_failures() {
    let scene = Scene::pair(Producer::Sglang).fail("decode/0", 0.0, "Refused");
    let family = "sglang:num_transfer_failed_reqs_total";
    rate(scene, "prefill/0", "transfer-failures", family, "errors/second");
}

#[test]
fn llm_d_router_router_running() {
    let scene = Scene::router_alone(Producer::LlmDRouter, |_| {});
    present(
        scene,
        "router/0",
        None,
        "router-running",
        "llm_d_epp_request_running",
        "requests",
    );
}

#[test]
fn llm_d_router_router_backends() {
    let scene = Scene::router_alone(Producer::LlmDRouter, |_| {});
    present(
        scene,
        "router/0",
        None,
        "router-backends",
        "llm_d_epp_ready_endpoints",
        "backends",
    );
}

#[test]
fn llm_d_router_requests() {
    router_rate(
        Producer::LlmDRouter,
        "requests",
        "llm_d_epp_request_total",
        "requests/second",
    );
}

#[test]
fn llm_d_router_request_errors() {
    router_rate(
        Producer::LlmDRouter,
        "request-errors",
        "llm_d_epp_request_error_total",
        "errors/second",
    );
}

#[test]
fn llm_d_router_ttft() {
    let scene = Scene::router_alone(Producer::LlmDRouter, |_| {});
    latency(scene, "router/0", "ttft", "llm_d_epp_request_ttft_seconds");
}

#[test]
fn llm_d_router_tpot() {
    let scene = Scene::router_alone(Producer::LlmDRouter, |_| {});
    latency(scene, "router/0", "tpot", "llm_d_epp_request_streaming_tpot_seconds");
}

#[test]
fn vllm_router_router_running() {
    let scene = Scene::router_alone(Producer::VllmRouter, |facts| facts.tracks_load = Some(TracksLoad::Yes));
    present(
        scene,
        "router/0",
        None,
        "router-running",
        "vllm_router_running_requests",
        "requests",
    );
}

#[test]
fn vllm_router_router_reported_workers() {
    let scene = Scene::router_alone(Producer::VllmRouter, |_| {});
    present(
        scene,
        "router/0",
        None,
        "router-reported-workers",
        "vllm_router_active_workers",
        "workers",
    );
}

#[test]
fn vllm_router_successful_requests() {
    router_rate(
        Producer::VllmRouter,
        "successful-requests",
        "vllm_router_requests_total",
        "requests/second",
    );
}

#[test]
fn vllm_router_errors() {
    router_rate(
        Producer::VllmRouter,
        "errors",
        "vllm_router_request_errors_total",
        "errors/second",
    );
}

#[test]
fn vllm_router_retries_exhausted() {
    let family = "vllm_router_retries_exhausted_total";
    router_rate(Producer::VllmRouter, "retries-exhausted", family, "events/second");
}

#[test]
fn vllm_router_pd_requests() {
    pd_rate("pd-requests", "vllm_router_pd_requests_total", "requests/second");
}

#[test]
fn vllm_router_pd_errors() {
    pd_rate("pd-errors", "vllm_router_pd_errors_total", "errors/second");
}

#[test]
fn sglang_gateway_router_running() {
    let scene = Scene::router_alone(Producer::SglangGateway, |facts| {
        facts.tracks_load = Some(TracksLoad::Yes)
    });
    present(
        scene,
        "router/0",
        None,
        "router-running",
        "smg_worker_requests_active",
        "requests",
    );
}

#[test]
fn sglang_gateway_router_backends() {
    let scene = Scene::router_alone(Producer::SglangGateway, |_| {});
    present(
        scene,
        "router/0",
        None,
        "router-backends",
        "smg_worker_pool_size",
        "backends",
    );
}

#[test]
fn sglang_gateway_requests() {
    router_rate(
        Producer::SglangGateway,
        "requests",
        "smg_router_requests_total",
        "requests/second",
    );
}

#[test]
fn sglang_gateway_errors() {
    router_rate(
        Producer::SglangGateway,
        "errors",
        "smg_router_request_errors_total",
        "errors/second",
    );
}

/// Requests 10 → 50, errors 2 → 12. No other router has the ratio: theirs have no common denominator.
#[test]
fn sglang_gateway_error_ratio() {
    let body = |requests, errors| {
        format!("smg_router_requests_total {requests}\nsmg_router_request_errors_total{{error_type=\"x\"}} {errors}\n")
    };
    let scene = Scene::router_alone(Producer::SglangGateway, |_| {});
    let answer = two_reads(scene, "router/0", &body(10, 2), &body(50, 12));
    let ratio = windowed(&answer.traffic, "error-ratio");
    assert_eq!(
        (ratio.value, ratio.samples, ratio.unit.as_str()),
        (0.25, 40.0, "fraction")
    );
    assert_eq!(
        ratio.source,
        "smg_router_requests_total+smg_router_request_errors_total"
    );
    let with_ratio: Vec<_> = FIELDS
        .iter()
        .filter(|field| field.name == "error-ratio")
        .map(|field| field.producer)
        .collect();
    assert_eq!(with_ratio, [Producer::SglangGateway]);
}

/// 404 → 4xx; 500 and 503 count, `500x`, 600 and a missing code do not.
#[test]
fn sglang_gateway_http_5xx_responses() {
    router_rate(
        Producer::SglangGateway,
        "http-5xx-responses",
        "smg_http_responses_total",
        "responses/second",
    );
    let body = |count| {
        ["200", "404", "499", "500x", "600", "", "abc"]
            .map(|code| format!("smg_http_responses_total{{status_code=\"{code}\",error_code=\"x y\"}} {count}\n"))
            .concat()
    };
    let scene = Scene::router_alone(Producer::SglangGateway, |_| {});
    let answer = two_reads(scene, "router/0", &body(1), &body(5));
    let entry = windowed(&answer.traffic, "http-5xx-responses");
    assert_eq!(
        (entry.value, entry.samples),
        (0.0, 0.0),
        "other codes alone are a measured zero"
    );
}

#[test]
fn every_row_has_a_test_of_its_name() {
    let tests = include_str!("rows.rs");
    for field in FIELDS {
        let producer = serde_json::to_value(field.producer).unwrap();
        let name = format!("{}_{}", producer.as_str().unwrap().to_lowercase(), field.name).replace('-', "_");
        assert!(tests.contains(&format!("#[test]\nfn {name}()")), "no test {name}");
    }
}

/// The fields of the document's two tables, by producer, as they are written there.
#[test]
fn the_rows_are_those_of_the_document() {
    let names = |producer| -> Vec<_> {
        let mut names: Vec<_> = FIELDS
            .iter()
            .filter(|field| field.producer == producer)
            .map(|field| field.name)
            .collect();
        names.sort_unstable();
        names
    };
    assert_eq!(
        names(Producer::Vllm),
        [
            "external-store",
            "itl",
            "local-prefix",
            "running",
            "tpot",
            "ttft",
            "waiting"
        ]
    );
    assert_eq!(
        names(Producer::Sglang),
        [
            "decode-transfer-waiting",
            "device-prefix",
            "host-prefix",
            "itl",
            "running",
            "storage-prefix",
            "transfer-failures",
            "transfer-latency",
            "transfer-size",
            "transfer-speed",
            "ttft",
            "waiting"
        ]
    );
    assert_eq!(
        names(Producer::LlmDRouter),
        [
            "request-errors",
            "requests",
            "router-backends",
            "router-running",
            "tpot",
            "ttft"
        ]
    );
    assert_eq!(
        names(Producer::VllmRouter),
        [
            "errors",
            "pd-errors",
            "pd-requests",
            "retries-exhausted",
            "router-reported-workers",
            "router-running",
            "successful-requests"
        ]
    );
    assert_eq!(
        names(Producer::SglangGateway),
        [
            "error-ratio",
            "errors",
            "http-5xx-responses",
            "requests",
            "router-backends",
            "router-running"
        ]
    );
}

/// "Silent by design": no entry and no `missing[]`.
#[test]
fn what_a_half_is_not_asked_for_is_silent() {
    let vllm = Scene::pair(Producer::Vllm)
        .read("prefill/0", 0.0, "vllm:num_requests_running 0\n")
        .fail("decode/0", 0.0, "Refused")
        .answer();
    for family in [
        "vllm:request_time_per_output_token_seconds",
        "vllm:inter_token_latency_seconds",
    ] {
        assert!(find_missing(&vllm, family).is_none(), "{family}");
    }
    let sglang = Scene::pair(Producer::Sglang)
        .read("prefill/0", 0.0, "sglang:num_running_reqs 0\n")
        .fail("decode/0", 0.0, "Refused")
        .answer();
    for family in [
        "sglang:time_to_first_token_seconds",
        "sglang:inter_token_latency_seconds",
        "sglang:num_decode_transfer_queue_reqs",
    ] {
        assert!(find_missing(&sglang, family).is_none(), "{family}");
    }
    let sglang = Scene::pair(Producer::Sglang)
        .read("decode/0", 0.0, "sglang:num_running_reqs 0\n")
        .fail("prefill/0", 0.0, "Refused")
        .answer();
    for source in [
        "device-prefix",
        "host-prefix",
        "storage-prefix",
        "sglang:kv_transfer_latency_ms",
        "sglang:num_transfer_failed_reqs_total",
    ] {
        assert!(find_missing(&sglang, source).is_none(), "{source}");
    }
}
