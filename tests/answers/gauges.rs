//! Processing and queueing: one entry a name and role, summed over readable Pods.

use model_deployment::pod::{Producer, TracksLoad};
use model_deployment_crds::role::RoleKind;

use crate::scene::{Scene, capture, code, find_gauge, find_missing, gauge, missing};

/// Expected: `vllm:num_requests_running` 4 and `vllm:num_requests_waiting` 8 in `single_03`, 0 and 0 in `single_01`.
#[test]
fn vllm_running_and_waiting_are_summed_by_role() {
    let answer = Scene::new()
        .role("server", RoleKind::Server, Producer::Vllm, 3, |_| {})
        .read("server/0", 0.0, capture("vllm-0.32.0_single_03_busy_t0"))
        .read("server/1", 1.0, capture("vllm-0.32.0_single_03_busy_t0"))
        .read("server/2", 2.0, capture("vllm-0.32.0_single_01_idle_after_start"))
        .answer();
    let running = gauge(&answer.processing, "running", Some("server"));
    assert_eq!(running.value, 8.0);
    assert_eq!((running.pod_count, running.expected_pods), (3, 3));
    assert_eq!(
        (running.source.as_str(), running.unit.as_str()),
        ("vllm:num_requests_running", "requests")
    );
    assert_eq!(
        (running.scope.as_str(), running.role_kind),
        ("engine", Some(RoleKind::Server))
    );
    let waiting = gauge(&answer.queueing, "waiting", Some("server"));
    assert_eq!(waiting.value, 16.0);
    assert_eq!(waiting.source, "vllm:num_requests_waiting");
    assert_eq!(waiting.observed_at.0.as_second(), 0, "the earliest of the reads");
}

#[test]
fn a_measured_zero_is_present_as_zero() {
    let answer = Scene::server(Producer::Vllm)
        .read("server/0", 0.0, capture("vllm-0.32.0_single_01_idle_after_start"))
        .answer();
    let json = serde_json::to_value(&answer).unwrap();
    assert_eq!(json["processing"][0]["value"], serde_json::json!(0));
    assert_eq!(json["queueing"][0]["value"], serde_json::json!(0));
}

#[test]
fn a_pod_that_fails_is_named_and_the_others_remain() {
    let answer = Scene::new()
        .role("server", RoleKind::Server, Producer::Vllm, 2, |_| {})
        .read("server/0", 0.0, capture("vllm-0.32.0_single_03_busy_t0"))
        .fail("server/1", 0.0, "Timeout")
        .answer();
    let running = gauge(&answer.processing, "running", Some("server"));
    assert_eq!((running.value, running.pod_count, running.expected_pods), (4.0, 1, 2));
    let scrape = missing(&answer, "scrape");
    assert_eq!(scrape.pod, "chat-server-1");
    assert_eq!((scrape.code.as_str(), scrape.required), ("Timeout", true));
    assert_eq!(
        (scrape.scope.as_deref(), scrape.role.as_deref()),
        (Some("engine"), Some("server"))
    );
    assert!(answer.partial);
}

/// Expected: 4 running and 4 queued in `single_04`.
#[test]
fn sglang_running_and_waiting() {
    let answer = Scene::server(Producer::Sglang)
        .read("server/0", 0.0, capture("sglang-0.5.23_single_04_busy_t20s"))
        .answer();
    let running = gauge(&answer.processing, "running", Some("server"));
    assert_eq!(
        (running.value, running.source.as_str()),
        (4.0, "sglang:num_running_reqs")
    );
    let waiting = gauge(&answer.queueing, "waiting", Some("server"));
    assert_eq!((waiting.value, waiting.source.as_str()), (4.0, "sglang:num_queue_reqs"));
    assert!(find_gauge(&answer.queueing, "decode-transfer-waiting", Some("server")).is_none());
    assert!(find_missing(&answer, "sglang:num_decode_transfer_queue_reqs").is_none());
}

#[test]
fn sglang_decode_transfer_waiting_is_read_from_the_decode_half() {
    let answer = Scene::pair(Producer::Sglang)
        .read(
            "prefill/0",
            0.0,
            capture("sglang-0.5.23_pd_prefill_02_after_14_requests"),
        )
        .read(
            "decode/0",
            0.0,
            "sglang:num_decode_transfer_queue_reqs{engine_type=\"decode\",tp_rank=\"0\"} 3\n",
        )
        .answer();
    let waiting = gauge(&answer.queueing, "decode-transfer-waiting", Some("decode"));
    assert_eq!((waiting.value, waiting.role_kind), (3.0, Some(RoleKind::Decode)));
    assert!(find_gauge(&answer.queueing, "decode-transfer-waiting", Some("prefill")).is_none());
}

#[test]
fn prefill_and_decode_stay_separate_and_roles_are_in_order() {
    let body = "vllm:num_requests_running 1\nvllm:num_requests_waiting 2\n";
    let answer = Scene::pair(Producer::Vllm)
        .read("prefill/0", 0.0, body)
        .read("decode/0", 0.0, body)
        .answer();
    let roles: Vec<_> = answer
        .processing
        .iter()
        .map(|gauge| gauge.role.clone().unwrap())
        .collect();
    assert_eq!(roles, ["decode", "prefill"]);
    assert_eq!(answer.processing[0].value, 1.0);
}

#[test]
fn three_roles_and_a_router_have_entries_of_their_own() {
    let body = |running: u32| format!("vllm:num_requests_running {running}\nvllm:num_requests_waiting 0\n");
    let answer = Scene::new()
        .role("small", RoleKind::Server, Producer::Vllm, 1, |_| {})
        .role("large", RoleKind::Server, Producer::Vllm, 2, |_| {})
        .role("lost", RoleKind::Server, Producer::Vllm, 2, |_| {})
        .router(Producer::VllmRouter, 1, |_| {})
        .read("small/0", 2.0, body(1))
        .read("large/0", 1.0, body(20))
        .read("large/1", 0.0, body(300))
        .fail("lost/0", 0.0, "Timeout")
        .fail("lost/1", 0.0, "Terminating")
        .read(
            "router/0",
            0.0,
            "vllm_router_running_requests 321\nvllm_router_active_workers 3\n",
        )
        .answer();
    let entries: Vec<_> = answer
        .processing
        .iter()
        .map(|gauge| {
            (
                &*gauge.name,
                &*gauge.scope,
                gauge.role.as_deref(),
                gauge.value,
                gauge.pod_count,
            )
        })
        .collect();
    assert_eq!(
        entries,
        [
            ("router-reported-workers", "router", None, 3.0, 1),
            ("router-running", "router", None, 321.0, 1),
            ("running", "engine", Some("large"), 320.0, 2),
            ("running", "engine", Some("small"), 1.0, 1),
        ]
    );
    let observed: Vec<_> = answer
        .queueing
        .iter()
        .map(|gauge| {
            (
                gauge.role.as_deref(),
                gauge.expected_pods,
                gauge.observed_at.0.as_second(),
            )
        })
        .collect();
    assert_eq!(observed, [(Some("large"), 2, 0), (Some("small"), 1, 2)]);
}

/// Expected: 2 registered workers in every capture of the router.
#[test]
fn vllm_router_reported_workers_and_running() {
    let body = capture("vllm-router-0.1.17_ordinary_03_in_flight_8")
        + "vllm_router_running_requests{worker=\"a\"} 3\nvllm_router_running_requests{worker=\"b\"} 5\n";
    let answer = Scene::router_alone(Producer::VllmRouter, |facts| facts.tracks_load = Some(TracksLoad::Yes))
        .read("router/0", 0.0, body)
        .answer();
    let workers = gauge(&answer.processing, "router-reported-workers", None);
    assert_eq!(
        (workers.value, workers.unit.as_str(), workers.scope.as_str()),
        (2.0, "workers", "router")
    );
    assert_eq!(workers.source, "vllm_router_active_workers");
    let running = gauge(&answer.processing, "router-running", None);
    assert_eq!((running.value, running.unit.as_str()), (8.0, "requests"));
    assert_eq!(running.source, "vllm_router_running_requests");
    assert_eq!((running.role.as_deref(), running.role_kind), (None, None));
}

#[test]
fn a_policy_that_keeps_no_gauge_leaves_it_unsupported_until_seen() {
    let scene = || Scene::router_alone(Producer::VllmRouter, |facts| facts.tracks_load = Some(TracksLoad::No));
    let without = capture("vllm-router-0.1.17_ordinary_02_after_35_successes");
    let with = without.clone() + "vllm_router_running_requests{worker=\"a\"} 3\n";
    let source = "vllm_router_running_requests";
    let answer = scene().read("router/0", 0.0, &*without).answer();
    assert_eq!(code(&answer, source), ("Unsupported", false));
    let answer = scene().read("router/0", 0.0, &*with).answer();
    assert_eq!(gauge(&answer.processing, "router-running", None).value, 3.0);
    let answer = scene()
        .read("router/0", 0.0, &*with)
        .read("router/0", 10.0, &*without)
        .answer();
    assert_eq!(code(&answer, source), ("Absent", true));
}

#[test]
fn a_gauge_of_running_requests_that_may_come_is_not_exported_yet() {
    let body = capture("vllm-router-0.1.17_ordinary_01_before_any_request");
    for tracks_load in [TracksLoad::Yes, TracksLoad::Unknown] {
        let answer = Scene::router_alone(Producer::VllmRouter, |facts| facts.tracks_load = Some(tracks_load))
            .read("router/0", 0.0, &*body)
            .answer();
        assert_eq!(code(&answer, "vllm_router_running_requests"), ("NotExportedYet", false));
    }
}

#[test]
fn vllm_router_pd_mode_exports_no_gauge() {
    let answer = Scene::router_alone(Producer::VllmRouter, |facts| {
        facts.paired = true;
        facts.tracks_load = Some(TracksLoad::No);
    })
    .read("router/0", 0.0, capture("vllm-router-0.1.17_pd_02_after_22_requests"))
    .answer();
    assert!(answer.processing.is_empty());
    assert_eq!(code(&answer, "vllm_router_running_requests"), ("Unsupported", false));
    assert_eq!(code(&answer, "vllm_router_active_workers"), ("Unsupported", false));
}

/// Expected: 2 workers in the pool; no request in flight counted under round robin by 0.3.2, 8 by 1.13.0.
#[test]
fn sglang_gateway_backends_and_running() {
    let scene = || {
        Scene::router_alone(Producer::SglangGateway, |facts| {
            facts.tracks_load = Some(TracksLoad::No)
        })
    };
    let old = scene()
        .read("router/0", 0.0, capture("sglang-router-0.3.2_ordinary_03_in_flight_8"))
        .answer();
    let backends = gauge(&old.processing, "router-backends", None);
    assert_eq!(
        (backends.value, backends.unit.as_str(), backends.source.as_str()),
        (2.0, "backends", "smg_worker_pool_size")
    );
    assert_eq!(code(&old, "smg_worker_requests_active"), ("Unsupported", false));
    let new = scene()
        .read("router/0", 0.0, capture("smg-1.13.0_ordinary_03_in_flight_8"))
        .answer();
    let running = gauge(&new.processing, "router-running", None);
    assert_eq!((running.value, running.unit.as_str()), (8.0, "requests"));
}

#[test]
fn llm_d_router_running_and_backends_are_added_over_label_sets() {
    let body = "llm_d_epp_request_running{model_name=\"a\"} 2\nllm_d_epp_request_running{model_name=\"b\"} 5\n\
                llm_d_epp_ready_endpoints{name=\"pool\"} 4\n";
    let answer = Scene::router_alone(Producer::LlmDRouter, |facts| {
        facts.tracks_load = Some(TracksLoad::Unknown)
    })
    .read("router/0", 0.0, body)
    .answer();
    assert_eq!(gauge(&answer.processing, "router-running", None).value, 7.0);
    let backends = gauge(&answer.processing, "router-backends", None);
    assert_eq!(
        (backends.value, backends.source.as_str()),
        (4.0, "llm_d_epp_ready_endpoints")
    );
}
