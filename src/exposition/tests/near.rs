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
        near("num_requests_running 1\n", GAUGE).as_deref(),
        Some("num_requests_running")
    );
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
