//! Real bodies. The expected figures were worked out by a Python script with a reader of its own: series, and the sum of their values.

use super::*;

/// Reads a capture.
pub(super) fn capture(name: &str) -> Vec<u8> {
    let path = format!("{}/tests/fixtures/exposition/{name}.prom", env!("CARGO_MANIFEST_DIR"));
    std::fs::read(&path).expect(&path)
}

fn is_close(left: f64, right: f64) -> bool {
    (left - right).abs() <= 1e-12 * right.abs()
}

#[test]
fn values_of_gauges_and_counters() {
    for (file, kind, name, count, sum) in [
        (
            "vllm-0.32.0_single_02_after_20_requests",
            Kind::Gauge,
            "vllm:num_requests_waiting",
            1,
            0.0,
        ),
        (
            "vllm-0.32.0_single_02_after_20_requests",
            Kind::Counter,
            "vllm:prefix_cache_queries_total",
            1,
            2256.0,
        ),
        (
            "sglang-0.5.23_single_02_after_20_requests",
            Kind::Gauge,
            "sglang:num_running_reqs",
            1,
            0.0,
        ),
        (
            "sglang-0.5.23_single_02_after_20_requests",
            Kind::Counter,
            "sglang:prefill_effective_tokens_total",
            4,
            7044.0,
        ),
        (
            "sglang-router-0.3.2_ordinary_06_retries_exhausted_503",
            Kind::Gauge,
            "smg_worker_pool_size",
            1,
            2.0,
        ),
        (
            "sglang-router-0.3.2_ordinary_06_retries_exhausted_503",
            Kind::Counter,
            "smg_router_requests_total",
            4,
            55.0,
        ),
        (
            "sglang-router-0.3.2_ordinary_06_retries_exhausted_503",
            Kind::Counter,
            "smg_http_responses_total",
            2,
            56.0,
        ),
        (
            "smg-1.13.0_ordinary_02_after_38_successes",
            Kind::Counter,
            "smg_router_requests_total",
            4,
            38.0,
        ),
        (
            "smg-1.13.0_ordinary_02_after_38_successes",
            Kind::Counter,
            "smg_http_responses_total",
            5,
            41.0,
        ),
        (
            "vllm-router-0.1.17_ordinary_01_before_any_request",
            Kind::Gauge,
            "vllm_router_active_workers",
            1,
            2.0,
        ),
        (
            "vllm-router-0.1.17_ordinary_06_retries_exhausted_503",
            Kind::Counter,
            "vllm_router_requests_total",
            2,
            49.0,
        ),
        (
            "vllm-router-0.1.17_ordinary_06_retries_exhausted_503",
            Kind::Counter,
            "vllm_router_request_errors_total",
            1,
            2.0,
        ),
        (
            "vllm-router-0.1.17_ordinary_06_retries_exhausted_503",
            Kind::Counter,
            "vllm_router_retries_exhausted_total",
            1,
            3.0,
        ),
        (
            "vllm-router-0.1.17_pd_02_after_22_requests",
            Kind::Counter,
            "vllm_router_pd_requests_total",
            2,
            22.0,
        ),
    ] {
        let mut wanted = Wanted::default();
        wanted.add(name, kind);
        let exposition = read(&capture(file), &wanted).expect(file);
        let series = exposition.family(name).expect("wanted").series().expect(name);
        assert_eq!(series.len(), count, "{name} in {file}");
        assert!(is_close(series.values().sum(), sum), "{name} in {file}");
    }
}

#[test]
fn sums_counts_and_buckets_of_histograms() {
    for (file, name, series, sum, count, buckets, observations) in [
        (
            "vllm-0.32.0_single_02_after_20_requests",
            "vllm:time_to_first_token_seconds",
            1,
            0.1591334342956543,
            20.0,
            23,
            417.0,
        ),
        (
            "vllm-0.32.0_single_02_after_20_requests",
            "vllm:inter_token_latency_seconds",
            1,
            1.030288085999473,
            460.0,
            20,
            9200.0,
        ),
        (
            "sglang-0.5.23_single_02_after_20_requests",
            "sglang:time_to_first_token_seconds",
            2,
            1.2027751156733757,
            21.0,
            38,
            393.0,
        ),
        (
            "sglang-0.5.23_single_02_after_20_requests",
            "sglang:inter_token_latency_seconds",
            1,
            3.6265766749984323,
            230.0,
            24,
            4726.0,
        ),
    ] {
        let mut wanted = Wanted::default();
        wanted.add_with_buckets(name);
        let exposition = read(&capture(file), &wanted).expect(file);
        let histograms = exposition.family(name).expect("wanted").histograms().expect(name);
        assert_eq!(histograms.len(), series, "{name}");
        assert!(
            is_close(histograms.values().map(|histogram| histogram.sum).sum(), sum),
            "{name}"
        );
        assert!(
            is_close(histograms.values().map(|histogram| histogram.count).sum(), count),
            "{name}"
        );
        assert_eq!(
            histograms
                .values()
                .flat_map(|histogram| &histogram.buckets)
                .map(|buckets| buckets.len())
                .sum::<usize>(),
            buckets,
            "{name}"
        );
        assert!(
            is_close(
                histograms
                    .values()
                    .flat_map(|histogram| histogram.buckets.iter().flatten())
                    .map(|(_, count)| count)
                    .sum(),
                observations
            ),
            "{name}"
        );
    }
}

#[test]
fn the_names_that_sglang_writes_for_openmetrics_are_near_matches() {
    let mut wanted = Wanted::default();
    wanted.add("sglang:num_running_reqs", Kind::Gauge);
    wanted.add_prefix("sglang:");
    let exposition = read(&capture("sglang-0.5.23_single_06_openmetrics_accept"), &wanted).expect("metrics text");
    let family = exposition.family("sglang:num_running_reqs").expect("wanted");
    assert_eq!(family.series(), Err(Flaw::Absent { declared: true }));
    assert_eq!(family.near(), Some("sglang_num_running_reqs"));
    assert!(!exposition.holds("sglang:"));
}

#[test]
fn an_engine_with_its_statistics_switched_off_is_read() {
    let exposition = exposition(capture("vllm-0.32.0_tls_disable-log-stats_01_idle"));
    assert_eq!(
        exposition.family(GAUGE).expect("wanted").series(),
        Err(Flaw::Absent { declared: false })
    );
    assert!(!exposition.holds("vllm:"));
}
