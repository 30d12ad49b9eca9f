//! Each code of `missing[]`: when it holds, and whether it makes the answer partial (metrics contract, section 6).

use model_deployment::fields::Code;
use model_deployment::index::Phase;
use model_deployment::pod::{Endpoint, Member, NoEndpoint, Producer, TracksLoad};
use model_deployment::snapshot::Refusal;
use model_deployment_crds::metrics::ModelDeploymentMetrics;
use model_deployment_crds::model_deployment::{KvCacheConnector, TransferConnector};
use model_deployment_crds::role::RoleKind;

use crate::scene::{Scene, capture, code, find_missing, gauge, missing, windowed};

const RUNNING: &str = "vllm:num_requests_running";
const TTFT: &str = "vllm:time_to_first_token_seconds";

/// Everything that a vLLM server exports, with these counts: requests, first tokens' seconds, hits and queries.
fn vllm(requests: u32, seconds: u32, hits: u32, queries: u32) -> String {
    let histogram = |family: &str| format!("{family}_sum {seconds}\n{family}_count {requests}\n");
    format!(
        "{RUNNING} 1\nvllm:num_requests_waiting 0\nvllm:prefix_cache_hits_total {hits}\nvllm:prefix_cache_queries_total {queries}\n"
    ) + &histogram(TTFT)
        + &histogram("vllm:request_time_per_output_token_seconds")
        + &histogram("vllm:inter_token_latency_seconds")
}

fn server() -> Scene {
    Scene::server(Producer::Vllm)
}

/// Two servers, of which the first is read and the second fails.
fn one_of_two_fails(failure: &str) -> ModelDeploymentMetrics {
    Scene::new()
        .role("server", RoleKind::Server, Producer::Vllm, 2, |_| {})
        .read("server/0", 0.0, vllm(1, 1, 1, 1))
        .fail("server/1", 0.0, failure)
        .answer()
}

/// The one entry of a Pod that was not read.
fn unread(failure: &str) -> (String, bool) {
    let answer = one_of_two_fails(failure);
    let of_pod: Vec<_> = answer
        .missing
        .iter()
        .filter(|missing| missing.pod == "chat-server-1")
        .collect();
    assert_eq!(of_pod.len(), 1, "a Pod that could not be read is one entry");
    assert_eq!(
        (of_pod[0].source.as_str(), of_pod[0].scope.as_deref()),
        ("scrape", Some("engine"))
    );
    (of_pod[0].code.clone(), of_pod[0].required)
}

#[test]
fn no_pods() {
    let answer = server()
        .router(Producer::VllmRouter, 2, |_| {})
        .read("server/0", 0.0, vllm(1, 1, 1, 1))
        .answer();
    let entry = missing(&answer, "router");
    assert_eq!(
        (entry.code.as_str(), entry.required, entry.pod.as_str()),
        ("NoPods", true, "")
    );
    assert_eq!(
        (entry.scope.as_deref(), entry.role.as_deref(), entry.role_kind),
        (Some("router"), None, None)
    );
    let answer = Scene::pair(Producer::Vllm)
        .read("prefill/0", 0.0, vllm(1, 1, 1, 1))
        .answer();
    let entry = missing(&answer, "engine/decode");
    assert_eq!(
        (entry.code.as_str(), entry.pod.as_str(), entry.scope.as_deref()),
        ("NoPods", "", Some("engine"))
    );
    assert_eq!(
        (entry.role.as_deref(), entry.role_kind),
        (Some("decode"), Some(RoleKind::Decode))
    );
}

#[test]
fn pods_missing() {
    let answer = Scene::new()
        .role("server", RoleKind::Server, Producer::Vllm, 3, |_| {})
        .read("server/0", 0.0, vllm(1, 1, 1, 1))
        .answer();
    assert_eq!(code(&answer, "engine/server"), ("PodsMissing", true));
    let running = gauge(&answer.processing, "running", Some("server"));
    assert_eq!((running.pod_count, running.expected_pods), (1, 3));
}

#[test]
fn zero_replicas_expect_no_pod() {
    let answer = server()
        .role("spare", RoleKind::Server, Producer::Vllm, 0, |_| {})
        .read("server/0", 0.0, vllm(1, 1, 1, 1))
        .answer();
    assert!(find_missing(&answer, "engine/spare").is_none());
}

/// 40 and 40 Pods and a router: the router and 32 + 31 stay, and the highest ordinals go.
#[test]
fn limit_reached() {
    let body = vllm(1, 1, 1, 1);
    let mut scene = Scene::new()
        .role("a", RoleKind::Server, Producer::Vllm, 40, |_| {})
        .role("b", RoleKind::Server, Producer::Vllm, 40, |_| {})
        .router(Producer::VllmRouter, 1, |_| {})
        .read(
            "router/0",
            0.0,
            capture("vllm-router-0.1.17_ordinary_01_before_any_request"),
        );
    for ordinal in 0..40 {
        scene = scene
            .read(&format!("a/{ordinal}"), 0.0, &*body)
            .read(&format!("b/{ordinal}"), 0.0, &*body);
    }
    let answer = scene.answer();
    assert_eq!(gauge(&answer.processing, "router-reported-workers", None).pod_count, 1);
    let entries: Vec<_> = answer
        .missing
        .iter()
        .filter(|missing| missing.code == "LimitReached")
        .collect();
    let lost: Vec<_> = entries
        .iter()
        .map(|entry| (entry.role.as_deref().unwrap(), entry.required))
        .collect();
    assert_eq!(lost, [("a", true), ("b", true)]);
    for (entry, lost) in entries.iter().zip(["8 of the 40", "9 of the 40"]) {
        assert_eq!(
            (entry.pod.as_str(), entry.source.as_str(), entry.scope.as_deref()),
            ("", "pod-discovery", None)
        );
        assert!(entry.reason.contains(lost), "{}", entry.reason);
    }
    for (role, count) in [("a", 32), ("b", 31)] {
        let running = gauge(&answer.processing, "running", Some(role));
        assert_eq!((running.pod_count, running.expected_pods), (count, 40));
        let read = answer
            .missing
            .iter()
            .filter(|missing| missing.code == "FirstSample" && missing.source == TTFT);
        let highest = read.filter_map(|missing| missing.pod.strip_prefix(&format!("chat-{role}-")));
        assert_eq!(
            highest.map(|ordinal| ordinal.parse::<u32>().unwrap()).max(),
            Some(count - 1)
        );
    }
}

/// A small role loses nothing to a large one.
#[test]
fn the_cut_is_fair_and_64_pods_are_not_cut() {
    let answer = |large: u32| {
        let mut scene = Scene::new()
            .role("large", RoleKind::Server, Producer::Vllm, large, |_| {})
            .role("small", RoleKind::Server, Producer::Vllm, 4, |_| {});
        for ordinal in 0..large {
            scene = scene.read(&format!("large/{ordinal}"), 0.0, "vllm:num_requests_running 1\n");
        }
        for ordinal in 0..4 {
            scene = scene.read(&format!("small/{ordinal}"), 0.0, "vllm:num_requests_running 1\n");
        }
        scene.answer()
    };
    assert!(find_missing(&answer(60), "pod-discovery").is_none());
    let answer = answer(61);
    let entry = missing(&answer, "pod-discovery");
    assert_eq!(entry.role.as_deref(), Some("large"));
    assert!(entry.reason.contains("1 of the 61"), "{}", entry.reason);
    assert_eq!(gauge(&answer.processing, "running", Some("small")).pod_count, 4);
}

#[test]
fn no_address() {
    assert_eq!(unread("NoAddress"), ("NoAddress".into(), true));
}

#[test]
fn not_running() {
    assert_eq!(unread("NotRunning"), ("NotRunning".into(), true));
    let mut scene = Scene::new()
        .role("server", RoleKind::Server, Producer::Vllm, 2, |_| {})
        .read("server/0", 0.0, vllm(1, 1, 1, 1))
        .read("server/1", 0.0, vllm(1, 1, 1, 1));
    scene.deployment.pods[1].phase = Phase::Failed;
    scene.deployment.pods[1].address = None;
    assert_eq!(code(&scene.answer(), "scrape"), ("NotRunning", true));
}

#[test]
fn terminating() {
    assert_eq!(unread("Terminating"), ("Terminating".into(), false));
}

#[test]
fn refused() {
    assert_eq!(unread("Refused"), ("Refused".into(), true));
}

#[test]
fn timeout() {
    assert_eq!(unread("Timeout"), ("Timeout".into(), true));
}

#[test]
fn tls_untrusted() {
    assert_eq!(unread("TlsUntrusted"), ("TlsUntrusted".into(), true));
}

#[test]
fn tls_client_certificate() {
    assert_eq!(unread("TlsClientCertificate"), ("TlsClientCertificate".into(), true));
}

#[test]
fn http_status() {
    assert_eq!(unread("HttpStatus=404"), ("HttpStatus".into(), true));
    assert!(
        missing(&one_of_two_fails("HttpStatus=404"), "scrape")
            .reason
            .contains("404")
    );
}

#[test]
fn too_large() {
    assert_eq!(unread("TooLarge"), ("TooLarge".into(), true));
    let body = vllm(1, 1, 1, 1) + &"#".repeat(1024 * 1024);
    let refused = server().read("server/0", 0.0, body).try_answer();
    assert!(matches!(
        refused,
        Err(Refusal::AllUnreadable {
            first: Code::TooLarge,
            ..
        })
    ));
    let line = format!("{RUNNING}{{a=\"{}\"}} 1\n", "x".repeat(5000));
    let answer = server()
        .read("server/0", 0.0, line + "vllm:num_requests_waiting 2\n")
        .answer();
    assert_eq!(code(&answer, RUNNING), ("TooLarge", true));
    assert_eq!(gauge(&answer.queueing, "waiting", Some("server")).value, 2.0);
}

#[test]
fn not_exposition() {
    assert_eq!(unread("NotExposition"), ("NotExposition".into(), true));
    let html = "<html><body>404</body></html>";
    let refused = server().read("server/0", 0.0, html).try_answer();
    assert!(matches!(
        refused,
        Err(Refusal::AllUnreadable {
            first: Code::NotExposition,
            ..
        })
    ));
}

#[test]
fn address_denied() {
    assert_eq!(unread("AddressDenied"), ("AddressDenied".into(), true));
}

/// Also a Pod whose facts are absent: named, not guessed.
#[test]
fn unreadable() {
    assert_eq!(unread("Unreadable"), ("Unreadable".into(), true));
    let mut scene = Scene::new()
        .role("server", RoleKind::Server, Producer::Vllm, 2, |_| {})
        .read("server/0", 0.0, vllm(1, 1, 1, 1))
        .read("server/1", 0.0, vllm(1, 1, 1, 1));
    scene.deployment.pods[1].facts = None;
    let answer = scene.answer();
    let entry = missing(&answer, "scrape");
    assert_eq!(
        (entry.code.as_str(), entry.required, entry.scope.as_deref()),
        ("Unreadable", true, Some("engine"))
    );
    assert_eq!(
        (entry.role.as_deref(), entry.role_kind),
        (Some("server"), Some(RoleKind::Server))
    );
}

#[test]
fn absent() {
    let reason = |body: &str| {
        let answer = server().read("server/0", 0.0, body).answer();
        assert_eq!(code(&answer, RUNNING), ("Absent", true), "{body}");
        missing(&answer, RUNNING).reason.clone()
    };
    assert!(reason("vllm:num_requests_waiting 1\n").contains("is not in"));
    assert!(reason(&format!("# TYPE {RUNNING} gauge\n")).contains("declared"));
    assert!(reason("sglang:num_requests_running 1\n").contains("sglang:num_requests_running"));
    let other_type = reason(&format!("# TYPE {RUNNING} counter\n{RUNNING} 1\n"));
    assert!(
        other_type.contains("counter") && other_type.contains("gauge"),
        "{other_type}"
    );
    let both = reason(&format!("# TYPE {RUNNING} gauge\nfoo_num_requests_running 1\n"));
    assert!(
        both.contains("declared") && both.contains("foo_num_requests_running is there"),
        "{both}"
    );
    // A read Pod, all of whose sources are absent.
    let empty = server().read("server/0", 0.0, "").answer();
    let codes: Vec<_> = empty.missing.iter().map(|missing| missing.code.as_str()).collect();
    assert_eq!(
        codes,
        [
            "Unsupported",
            "Absent",
            "Absent",
            "Absent",
            "Absent",
            "Absent",
            "Absent"
        ]
    );
}

#[test]
fn a_counter_without_total_is_absent_and_the_near_match_is_named() {
    let body = vllm(1, 1, 1, 1).replace("prefix_cache_hits_total", "prefix_cache_hits");
    let answer = server().read("server/0", 0.0, body).answer();
    let entry = missing(&answer, "local-prefix");
    assert_eq!(
        (entry.code.as_str(), entry.required, entry.scope.as_deref()),
        ("Absent", true, Some("local-prefix"))
    );
    assert!(entry.reason.contains("vllm:prefix_cache_hits "), "{}", entry.reason);
}

/// Without a `# TYPE`, and where a histogram is written in the native way.
#[test]
fn a_single_value_under_a_histograms_name_is_absent_and_said_to_be_one() {
    let sentence = "vllm:time_to_first_token_seconds is in the Pod's metrics as a single value, not as a histogram";
    for value in ["3", "{count:5,sum:3,schema:0}"] {
        let reason = |scene: Scene| {
            let answer = scene
                .read("server/0", 10.0, format!("{RUNNING} 1\n{TTFT} {value}\n"))
                .answer();
            assert_eq!(code(&answer, TTFT), ("Absent", true));
            missing(&answer, TTFT).reason.clone()
        };
        assert_eq!(reason(server()), format!("{sentence}."));
        let was_one = server().read("server/0", 0.0, vllm(1, 1, 1, 1));
        assert_eq!(reason(was_one), format!("{sentence} any more."));
    }
}

/// The gateway's predecessor, and what llm-d's router was before.
#[test]
fn a_routers_series_under_another_prefix_is_absent_and_named() {
    for (producer, prefix, family, other) in [
        (
            Producer::SglangGateway,
            "smg_",
            "smg_router_requests_total",
            "sgl_router_requests_total",
        ),
        (
            Producer::LlmDRouter,
            "llm_d_epp_",
            "llm_d_epp_request_total",
            "inference_objective_request_total",
        ),
    ] {
        let answer = Scene::router_alone(producer, |_| {})
            .read("router/0", 0.0, format!("{prefix}other 1\n{other} 5\n"))
            .answer();
        assert_eq!(
            code(&answer, family),
            ("Absent", true),
            "not one that waits for its first use"
        );
        assert!(missing(&answer, family).reason.contains(other));
    }
}

#[test]
fn what_vanished_is_said_with_its_near_match_or_its_declaration() {
    let reason = |body: &str| {
        let answer = server()
            .read("server/0", 0.0, format!("{RUNNING} 1\n"))
            .read("server/0", 2.0, body)
            .answer();
        assert_eq!(code(&answer, RUNNING), ("Absent", true), "{body}");
        missing(&answer, RUNNING).reason.clone()
    };
    let renamed = reason("vllm_num_requests_running 1\n");
    let declared = reason(&format!("# TYPE {RUNNING} gauge\n"));
    let gone = reason("vllm:num_requests_waiting 1\n");
    for reason in [&renamed, &declared, &gone] {
        assert!(reason.contains("any more"), "{reason}");
    }
    assert!(renamed.contains("vllm_num_requests_running"), "{renamed}");
    assert!(declared.contains("declared"), "{declared}");
    assert!(!gone.contains("declared"), "{gone}");
}

/// Asked with an OpenMetrics `Accept`, SGLang writes `_` for its `:`.
#[test]
fn renamed_samples_are_absent_and_named() {
    let answer = Scene::server(Producer::Sglang)
        .read("server/0", 0.0, capture("sglang-0.5.23_single_06_openmetrics_accept"))
        .answer();
    let entry = missing(&answer, "sglang:num_running_reqs");
    assert_eq!(entry.code, "Absent");
    assert!(entry.reason.contains("sglang_num_running_reqs"), "{}", entry.reason);
}

/// A tier's own mode, and each that its denominator adds.
#[test]
fn a_mode_that_is_not_there_is_absent() {
    for lacking in ["input", "device_hit", "host_hit", "storage_hit"] {
        let modes = ["input", "device_hit", "host_hit", "storage_hit"]
            .into_iter()
            .filter(|mode| *mode != lacking);
        let body: String = modes
            .map(|mode| format!("sglang:prefill_effective_tokens_total{{mode=\"{mode}\"}} 1\n"))
            .collect();
        let answer = Scene::server(Producer::Sglang).read("server/0", 0.0, body).answer();
        assert_eq!(code(&answer, "device-prefix"), ("Absent", true));
        assert!(missing(&answer, "device-prefix").reason.contains(lacking));
    }
}

#[test]
fn not_usable() {
    for value in ["NaN", "+Inf", "-Inf", "-1", "abc", "1 2 3"] {
        let body =
            format!("{RUNNING}{{engine=\"0\"}} 1\n{RUNNING}{{engine=\"1\"}} {value}\nvllm:num_requests_waiting 1\n");
        let answer = server().read("server/0", 0.0, body).answer();
        assert_eq!(code(&answer, RUNNING), ("NotUsable", true), "{value}");
        assert!(answer.processing.is_empty(), "a partial sum would understate");
    }
    let twice = format!("{RUNNING} 1\n{RUNNING} 2\n");
    assert_eq!(
        code(&server().read("server/0", 0.0, twice).answer(), RUNNING),
        ("NotUsable", true)
    );
}

#[test]
fn first_sample() {
    let answer = server().read("server/0", 0.0, vllm(1, 1, 1, 1)).answer();
    assert_eq!(code(&answer, TTFT), ("FirstSample", true));
    assert_eq!(code(&answer, "local-prefix"), ("FirstSample", true));
    assert!(answer.partial);
}

#[test]
fn reset() {
    let answer = server()
        .read("server/0", 0.0, vllm(9, 9, 9, 9))
        .read("server/0", 10.0, vllm(3, 3, 3, 3))
        .answer();
    for source in [TTFT, "vllm:inter_token_latency_seconds", "local-prefix"] {
        assert_eq!(code(&answer, source), ("Reset", true), "{source}");
    }
}

#[test]
fn no_observations() {
    let after = vllm(3, 3, 3, 3).replace(
        "inter_token_latency_seconds_count 3",
        "inter_token_latency_seconds_count 1",
    );
    let after = after.replace("inter_token_latency_seconds_sum 3", "inter_token_latency_seconds_sum 1");
    let answer = server()
        .read("server/0", 0.0, vllm(1, 1, 1, 1))
        .read("server/0", 10.0, after)
        .answer();
    assert_eq!(
        code(&answer, "vllm:inter_token_latency_seconds"),
        ("NoObservations", true)
    );
    assert_eq!(windowed(&answer.latency, "ttft").samples, 2.0);
}

#[test]
fn no_queries() {
    let answer = server()
        .read("server/0", 0.0, vllm(1, 1, 1, 1))
        .read("server/0", 10.0, vllm(3, 3, 1, 1))
        .answer();
    assert_eq!(code(&answer, "local-prefix"), ("NoQueries", true));
}

#[test]
fn inconsistent() {
    let answer = server()
        .read("server/0", 0.0, vllm(1, 1, 0, 0))
        .read("server/0", 10.0, vllm(3, 3, 8, 5))
        .answer();
    assert_eq!(code(&answer, "local-prefix"), ("Inconsistent", true));
    let body =
        |requests, errors| format!("smg_router_requests_total {requests}\nsmg_router_request_errors_total {errors}\n");
    let answer = Scene::router_alone(Producer::SglangGateway, |_| {})
        .read("router/0", 0.0, body(1, 1))
        .read("router/0", 10.0, body(1, 3))
        .answer();
    let source = "smg_router_requests_total+smg_router_request_errors_total";
    assert_eq!(code(&answer, source), ("Inconsistent", true));
    assert_eq!(windowed(&answer.traffic, "errors").value, 0.2);
}

#[test]
fn incompatible_windows() {
    let body = |requests: &str, errors: &str| {
        format!("smg_router_requests_total {requests}\nsmg_router_request_errors_total {errors}\n")
    };
    let answer = Scene::router_alone(Producer::SglangGateway, |_| {})
        .read("router/0", 0.0, body("1", "NaN"))
        .read("router/0", 10.0, body("NaN", "1"))
        .read("router/0", 20.0, body("9", "2"))
        .answer();
    let source = "smg_router_requests_total+smg_router_request_errors_total";
    assert_eq!(code(&answer, source), ("IncompatibleWindows", true));
    assert_eq!(windowed(&answer.traffic, "requests").window_seconds, 20.0);
    assert_eq!(windowed(&answer.traffic, "errors").window_seconds, 10.0);
}

/// Beside its pair it is not required; without one it is.
#[test]
fn not_exported_yet() {
    for (producer, paired, requests, late) in [
        (
            Producer::VllmRouter,
            false,
            "vllm_router_requests_total",
            "vllm_router_request_errors_total",
        ),
        (
            Producer::VllmRouter,
            false,
            "vllm_router_requests_total",
            "vllm_router_retries_exhausted_total",
        ),
        (
            Producer::VllmRouter,
            true,
            "vllm_router_pd_requests_total",
            "vllm_router_pd_errors_total",
        ),
        (
            Producer::LlmDRouter,
            false,
            "llm_d_epp_request_total",
            "llm_d_epp_request_error_total",
        ),
        (
            Producer::SglangGateway,
            false,
            "smg_router_requests_total",
            "smg_router_request_errors_total",
        ),
        (
            Producer::SglangGateway,
            false,
            "smg_router_requests_total",
            "smg_http_responses_total",
        ),
    ] {
        let prefix = model_deployment::fields::prefix(producer);
        let scene = || Scene::router_alone(producer, move |facts| facts.paired = paired);
        let beside = scene().read("router/0", 0.0, format!("{requests} 1\n")).answer();
        assert_eq!(code(&beside, late), ("NotExportedYet", false));
        let before = scene().read("router/0", 0.0, format!("{prefix}other 1\n")).answer();
        assert_eq!(code(&before, requests), ("NotExportedYet", true));
        assert_eq!(code(&before, late), ("NotExportedYet", true));
        let foreign = scene().read("router/0", 0.0, "process_cpu_seconds_total 1\n").answer();
        assert_eq!(code(&foreign, requests), ("Absent", true));
        assert_eq!(code(&foreign, late), ("Absent", true));
        let unusable = scene().read("router/0", 0.0, format!("{requests} NaN\n")).answer();
        assert_eq!(code(&unusable, late), ("NotExportedYet", true), "its pair was not read");
    }
}

#[test]
fn transfers_that_never_were_are_not_exported_yet() {
    let scene = || Scene::pair(Producer::Sglang).fail("decode/0", 0.0, "Refused");
    let before = scene()
        .read("prefill/0", 0.0, capture("sglang-0.5.23_pd_prefill_01_idle"))
        .answer();
    for source in [
        "sglang:kv_transfer_latency_ms",
        "sglang:kv_transfer_speed_gb_s",
        "sglang:kv_transfer_total_mb",
        "sglang:num_transfer_failed_reqs_total",
    ] {
        assert_eq!(code(&before, source), ("NotExportedYet", true), "{source}");
    }
    let after = scene()
        .read(
            "prefill/0",
            0.0,
            capture("sglang-0.5.23_pd_prefill_02_after_14_requests"),
        )
        .answer();
    assert_eq!(
        code(&after, "sglang:num_transfer_failed_reqs_total"),
        ("NotExportedYet", false)
    );
}

#[test]
fn llm_d_latencies_are_born_late_and_tpot_perhaps_never() {
    let scene = || Scene::router_alone(Producer::LlmDRouter, |_| {});
    let tpot = "llm_d_epp_request_streaming_tpot_seconds";
    let answer = scene().read("router/0", 0.0, "llm_d_epp_request_total 1\n").answer();
    assert_eq!(
        code(&answer, "llm_d_epp_request_ttft_seconds"),
        ("NotExportedYet", true)
    );
    assert_eq!(code(&answer, tpot), ("NotExportedYet", false));
    let seen = format!("{tpot}_sum 1\n{tpot}_count 1\n");
    let answer = scene()
        .read("router/0", 0.0, seen)
        .read("router/0", 10.0, "llm_d_epp_request_total 1\n")
        .answer();
    assert_eq!(code(&answer, tpot), ("Absent", true));
}

/// SGLang's inter-token histogram comes with the first stream. The warm-up request is none.
#[test]
fn itl_awaits_the_first_stream_only_while_ttft_stands_still() {
    let itl = "sglang:inter_token_latency_seconds";
    let ttft = |count| {
        format!("sglang:time_to_first_token_seconds_sum {count}\nsglang:time_to_first_token_seconds_count {count}\n")
    };
    let scene = || Scene::server(Producer::Sglang);
    let first = scene()
        .read("server/0", 0.0, capture("sglang-0.5.23_single_01_idle_after_start"))
        .answer();
    assert_eq!(code(&first, itl), ("NotExportedYet", false));
    let still = scene()
        .read("server/0", 0.0, ttft(1))
        .read("server/0", 10.0, ttft(1))
        .answer();
    assert_eq!(code(&still, itl), ("NotExportedYet", false));
    let moved = scene()
        .read("server/0", 0.0, ttft(1))
        .read("server/0", 10.0, ttft(2))
        .answer();
    assert_eq!(code(&moved, itl), ("Absent", true));
    let reset = scene()
        .read("server/0", 0.0, ttft(2))
        .read("server/0", 10.0, ttft(1))
        .answer();
    assert_eq!(code(&reset, itl), ("Absent", true));
    let without = scene().read("server/0", 0.0, "sglang:num_running_reqs 1\n").answer();
    assert_eq!(code(&without, itl), ("Absent", true));
}

#[test]
fn unsupported() {
    let external = |edit: fn(&mut model_deployment::pod::Facts)| {
        let answer = server()
            .with("server", edit)
            .read("server/0", 0.0, vllm(1, 1, 1, 1))
            .answer();
        assert_eq!(code(&answer, "external-store"), ("Unsupported", false));
        missing(&answer, "external-store").reason.clone()
    };
    let none = external(|_| {});
    let offloading = external(|facts| facts.connector = Some(KvCacheConnector::Offloading));
    assert_ne!(none, offloading, "each has its own reason");
    let answer = Scene::pair(Producer::Vllm)
        .with("decode", |facts| {
            facts.pool = true;
            facts.connector = Some(KvCacheConnector::Mooncake);
            facts.transfer_connector = Some(TransferConnector::Mooncake);
        })
        .read("decode/0", 0.0, vllm(1, 1, 1, 1))
        .fail("prefill/0", 0.0, "Refused")
        .answer();
    assert_eq!(code(&answer, "external-store"), ("Unsupported", false));
    let answer = Scene::server(Producer::Sglang)
        .read("server/0", 0.0, capture("sglang-0.5.23_single_02_after_20_requests"))
        .answer();
    assert_eq!(code(&answer, "host-prefix"), ("Unsupported", false));
    assert_eq!(code(&answer, "storage-prefix"), ("Unsupported", false));
}

/// One entry for every source that the Pod would be asked for; what is exported all the same is read.
#[test]
fn statistics_switched_off_are_unsupported() {
    let scene = || server().with("server", |facts| facts.stats_enabled = false);
    let answer = scene()
        .read("server/0", 0.0, capture("vllm-0.32.0_tls_disable-log-stats_01_idle"))
        .answer();
    let entries: Vec<_> = answer
        .missing
        .iter()
        .map(|entry| (&*entry.source, &*entry.code, entry.required))
        .collect();
    assert_eq!(
        entries,
        [
            ("external-store", "Unsupported", false),
            ("local-prefix", "Unsupported", false),
            ("vllm:inter_token_latency_seconds", "Unsupported", false),
            (RUNNING, "Unsupported", false),
            ("vllm:num_requests_waiting", "Unsupported", false),
            ("vllm:request_time_per_output_token_seconds", "Unsupported", false),
            (TTFT, "Unsupported", false),
        ]
    );
    assert!(!answer.partial);
    let answer = scene().read("server/0", 0.0, format!("{RUNNING} 7\n")).answer();
    assert_eq!(gauge(&answer.processing, "running", Some("server")).value, 7.0);
}

#[test]
fn idle() {
    let answer = server()
        .read("server/0", 0.0, vllm(1, 1, 1, 1))
        .read("server/0", 10.0, vllm(1, 1, 1, 1))
        .answer();
    for source in [
        TTFT,
        "vllm:inter_token_latency_seconds",
        "vllm:request_time_per_output_token_seconds",
        "local-prefix",
    ] {
        assert_eq!(code(&answer, source), ("Idle", false), "{source}");
    }
    assert!(!answer.partial);
}

#[test]
fn take_over() {
    let take_over = |scene: &mut Scene| {
        scene.deployment.expected[0].take_over = true;
        for facts in scene.deployment.pods.iter_mut().filter_map(|pod| pod.facts.as_mut()) {
            facts.take_over = true;
            facts.endpoint = Endpoint::None {
                none: NoEndpoint::TakeOver,
            };
        }
    };
    let mut scene = server();
    take_over(&mut scene);
    let answer = scene.answer();
    let entry = missing(&answer, "engine/server");
    assert_eq!(
        (entry.code.as_str(), entry.required, entry.pod.as_str()),
        ("TakeOver", false, "")
    );
    assert_eq!(
        (answer.missing.len(), answer.partial),
        (1, false),
        "200, and one entry a role"
    );

    let mut scene = server();
    take_over(&mut scene);
    let refused = scene.router(Producer::VllmRouter, 1, |_| {}).try_answer();
    assert!(matches!(refused, Err(Refusal::NoPods { .. })), "a router is expected");
}

#[test]
fn followers_are_not_read_not_expected_and_not_missing() {
    let mut scene = server().read("server/0", 0.0, vllm(1, 1, 1, 1));
    let mut follower = scene.deployment.pods[0].clone();
    follower.name = "chat-server-0-1".into();
    follower.uid = "uid-follower".into();
    let facts = follower.facts.as_mut().unwrap();
    facts.member = Some(Member::Follower);
    facts.endpoint = Endpoint::None {
        none: NoEndpoint::Follower,
    };
    scene.deployment.pods.push(follower);
    let answer = scene.answer();
    assert!(answer.missing.iter().all(|missing| missing.pod == "chat-server-0"));
    assert_eq!(gauge(&answer.processing, "running", Some("server")).expected_pods, 1);
}

#[test]
fn every_code_has_a_test_of_its_name() {
    let tests = include_str!("codes.rs");
    for code in Code::ALL {
        let mut name = String::new();
        for letter in code.to_string().chars() {
            if letter.is_uppercase() && !name.is_empty() {
                name.push('_');
            }
            name.extend(letter.to_lowercase());
        }
        assert!(tests.contains(&format!("#[test]\nfn {name}()")), "no test {name}");
    }
}

/// `required: false` exactly for the rows that the contract marks.
#[test]
fn codes_that_do_not_make_an_answer_partial() {
    let not_required: Vec<_> = Code::ALL
        .into_iter()
        .filter(|code| !code.required())
        .map(|code| code.to_string())
        .collect();
    assert_eq!(not_required, ["Terminating", "Unsupported", "Idle", "TakeOver"]);
}

/// The order in which several codes that fit one source are taken.
#[test]
fn the_first_code_that_fits_is_taken() {
    let running = "vllm_router_running_requests";
    let scene = || Scene::router_alone(Producer::VllmRouter, |facts| facts.tracks_load = Some(TracksLoad::No));
    // Unsupported before absent.
    let answer = scene().read("router/0", 0.0, "vllm_router_active_workers 1\n").answer();
    assert_eq!(code(&answer, running), ("Unsupported", false));
    let other_type = format!("# TYPE {running} counter\n{running} 1\n");
    let answer = scene().read("router/0", 0.0, other_type).answer();
    assert_eq!(code(&answer, running), ("Unsupported", false));
    // NotUsable before absent: hits are damaged, queries are not there.
    let answer = server()
        .read("server/0", 0.0, "vllm:prefix_cache_hits_total NaN\n")
        .answer();
    assert_eq!(code(&answer, "local-prefix"), ("NotUsable", true));
    // Absent before a reset by a restart, and that before a first sample.
    let answer = server()
        .read("server/0", 0.0, vllm(1, 1, 1, 1))
        .restarted()
        .read("server/0", 10.0, format!("{TTFT}_sum 1\n{TTFT}_count 1\n"))
        .answer();
    assert_eq!(code(&answer, "local-prefix"), ("Absent", true));
    assert_eq!(code(&answer, TTFT), ("Reset", true));
    // Idle before inconsistent.
    let answer = server()
        .read("server/0", 0.0, vllm(1, 1, 1, 1))
        .read("server/0", 10.0, vllm(1, 1, 9, 5))
        .answer();
    assert_eq!(code(&answer, "local-prefix"), ("Idle", false));
}
