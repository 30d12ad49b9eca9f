//! Near matches and prefixes.

use super::*;

fn near(body: &str, family: &str) -> Option<String> {
    exposition(body)
        .family(family)
        .expect("wanted")
        .near()
        .map(str::to_owned)
}

#[test]
fn a_counter_without_its_total() {
    assert_eq!(
        near("vllm:prefix_cache_hits{engine=\"0\"} 1\n", COUNTER).as_deref(),
        Some("vllm:prefix_cache_hits")
    );
}

#[test]
fn another_prefix() {
    assert_eq!(
        near("ray_vllm_prefix_cache_hits_total 1\n", COUNTER).as_deref(),
        Some("ray_vllm_prefix_cache_hits_total")
    );
    assert_eq!(
        near("ray_vllm:num_requests_running 1\n", GAUGE).as_deref(),
        Some("ray_vllm:num_requests_running")
    );
    assert_eq!(
        near("omni:num_requests_running 1\n", GAUGE).as_deref(),
        Some("omni:num_requests_running")
    );
    assert_eq!(
        near("foo_num_requests_running 1\n", GAUGE).as_deref(),
        Some("foo_num_requests_running")
    );
    assert_eq!(
        near("num_requests_running 1\n", GAUGE).as_deref(),
        Some("num_requests_running")
    );
}

/// As the routers write them.
#[test]
fn another_prefix_that_ends_in_an_underscore() {
    let near = |name: &str, prefix: &str, family: &str| {
        let mut wanted = Wanted::default();
        wanted.add(family, Kind::Counter);
        wanted.add_prefix(prefix);
        let exposition = read(format!("{name} 1\n").as_bytes(), &wanted).expect("metrics text");
        exposition.family(family).expect("wanted").near().is_some()
    };
    let (smg, requests) = ("smg_", "smg_router_requests_total");
    for name in [
        "sgl_router_requests_total",
        "router_requests",
        "new:router_requests",
        "a_smg_router_requests",
    ] {
        assert!(near(name, smg, requests), "{name}");
    }
    for name in [
        "smg_old_router_requests_total",
        "a_smg_old_router_requests",
        "subrouter_requests_total",
    ] {
        assert!(!near(name, smg, requests), "{name}");
    }
    let (vllm_router, requests) = ("vllm_router_", "vllm_router_requests_total");
    for name in ["vllm_router_pd_requests_total", "vllm_router_processed_requests_total"] {
        assert!(!near(name, vllm_router, requests), "{name}");
    }
    let legacy = "inference_objective_request_error_total";
    assert!(near(legacy, "llm_d_epp_", "llm_d_epp_request_error_total"));
    assert!(!near(legacy, "llm_d_epp_", "llm_d_epp_request_total"));
}

#[test]
fn an_underscore_for_the_colon() {
    assert_eq!(
        near("vllm_num_requests_running 1\n", GAUGE).as_deref(),
        Some("vllm_num_requests_running")
    );
    let body = "vllm_time_to_first_token_seconds_count 1\nvllm_time_to_first_token_seconds_sum 1\n";
    assert_eq!(
        near(body, HISTOGRAM).as_deref(),
        Some("vllm_time_to_first_token_seconds_count")
    );
}

#[test]
fn a_single_value_under_a_histograms_name() {
    assert_eq!(
        near("vllm:time_to_first_token_seconds 1\n", HISTOGRAM).as_deref(),
        Some(HISTOGRAM)
    );
}

#[test]
fn names_that_mean_something_else_are_not_near() {
    let body = "vllm:num_requests_running_by_reason 1\nvllm:external_prefix_cache_hits_total 1\nvllm:prefix_cache_hits_created 1\n";
    assert_eq!(near(body, GAUGE), None);
    assert_eq!(near(body, COUNTER), None);
    let body = "vllm:gpu_prefix_cache_hits 1\nray_vllm_external_prefix_cache_hits_total 1\nvllm_created 1\n";
    assert_eq!(near(body, COUNTER), None);
}

#[test]
fn the_first_in_the_body_is_named_and_only_for_what_is_absent() {
    assert_eq!(
        near("a:num_requests_running 1\nb:num_requests_running 1\n", GAUGE).as_deref(),
        Some("a:num_requests_running")
    );
    assert_eq!(
        near("a:num_requests_running 1\nvllm:num_requests_running 1\n", GAUGE),
        None
    );
}

#[test]
fn a_name_of_the_body_never_makes_a_sentence_long_or_tells_an_address() {
    let long = "x".repeat(200);
    assert_eq!(near(&format!("{long}_vllm:num_requests_running 1\n"), GAUGE), None);
    assert_eq!(near("{\"http://10.0.0.1:num_requests_running\"} 1\n", GAUGE), None);
}

#[test]
fn any_sample_of_a_prefix_is_seen() {
    let body = exposition("# TYPE sglang:x gauge\nvllm:something_else{a=\"b\"} 1\n");
    assert!(body.holds("vllm:"));
    assert!(!body.holds("sglang:"));
    assert!(!exposition("vllm:broken{ 1\nray_vllm:x 1\n").holds("vllm:"));
}
