//! Windows: which sample is the baseline, what a delta is, and when there is none (metrics contract, section 4).

use model_deployment::pod::Producer;

use crate::scene::{Scene, capture, code, hits, missing, windowed};

const REQUESTS: &str = "vllm_router_requests_total";

fn router() -> Scene {
    Scene::router_alone(Producer::VllmRouter, |_| {})
}

/// A body with this many successful requests, on one route.
fn requests(count: u32) -> String {
    format!("vllm_router_active_workers 2\n{REQUESTS}{{route=\"/a\"}} {count}\n")
}

#[test]
fn the_newest_sample_at_least_a_second_old_is_the_baseline() {
    let answer = router()
        .read("router/0", 0.0, requests(10))
        .read("router/0", 5.0, requests(20))
        .read("router/0", 9.5, requests(29))
        .read("router/0", 10.0, requests(40))
        .answer();
    let entry = windowed(&answer.traffic, "successful-requests");
    assert_eq!((entry.samples, entry.window_seconds, entry.value), (20.0, 5.0, 4.0));
}

#[test]
fn exactly_one_second_is_old_enough_and_exactly_five_minutes_young_enough() {
    for seconds in [1.0, 300.0] {
        let answer = router()
            .read("router/0", 0.0, requests(10))
            .read("router/0", seconds, requests(40))
            .answer();
        assert_eq!(windowed(&answer.traffic, "successful-requests").window_seconds, seconds);
    }
    for seconds in [0.999, 300.001] {
        let answer = router()
            .read("router/0", 0.0, requests(10))
            .read("router/0", seconds, requests(40))
            .answer();
        assert_eq!(code(&answer, REQUESTS), ("FirstSample", true), "{seconds}");
    }
}

#[test]
fn a_counter_that_did_not_move_is_a_measured_zero() {
    let answer = router()
        .read("router/0", 0.0, requests(10))
        .read("router/0", 10.0, requests(10))
        .answer();
    let entry = windowed(&answer.traffic, "successful-requests");
    assert_eq!((entry.value, entry.samples), (0.0, 0.0));
}

#[test]
fn a_failed_read_between_two_is_no_sample() {
    let answer = router()
        .read("router/0", 0.0, requests(10))
        .fail("router/0", 5.0, "Timeout")
        .read("router/0", 10.0, requests(40))
        .answer();
    assert_eq!(windowed(&answer.traffic, "successful-requests").window_seconds, 10.0);
}

#[test]
fn a_series_that_appears_counts_from_zero() {
    let answer = router()
        .read("router/0", 0.0, requests(10))
        .read("router/0", 10.0, requests(11) + REQUESTS + "{route=\"/b\"} 6\n")
        .answer();
    assert_eq!(windowed(&answer.traffic, "successful-requests").samples, 7.0);
}

#[test]
fn a_family_that_appears_counts_from_zero() {
    let answer = router()
        .read(
            "router/0",
            0.0,
            capture("vllm-router-0.1.17_ordinary_01_before_any_request"),
        )
        .read("router/0", 10.0, requests(35))
        .answer();
    assert_eq!(windowed(&answer.traffic, "successful-requests").samples, 35.0);
}

#[test]
fn a_family_that_appears_after_a_body_without_the_prefix_is_a_reset() {
    let answer = router()
        .read("router/0", 0.0, "process_start_time_seconds 1\n")
        .read("router/0", 10.0, requests(35))
        .answer();
    assert_eq!(code(&answer, REQUESTS), ("Reset", true));
}

#[test]
fn a_series_that_comes_back_is_a_reset() {
    let both = requests(10) + REQUESTS + "{route=\"/b\"} 6\n";
    let answer = router()
        .read("router/0", 0.0, &*both)
        .read("router/0", 10.0, requests(10))
        .read("router/0", 20.0, &*both)
        .answer();
    assert_eq!(code(&answer, REQUESTS), ("Reset", true));
}

#[test]
fn a_family_that_comes_back_is_a_reset() {
    let answer = router()
        .read("router/0", 0.0, requests(3))
        .read("router/0", 10.0, "vllm_router_active_workers 2\n")
        .read("router/0", 20.0, requests(9))
        .answer();
    assert_eq!(code(&answer, REQUESTS), ("Reset", true));
}

#[test]
fn a_counter_that_fell_is_a_reset_even_where_the_sum_rose() {
    let body = |a, b| format!("{REQUESTS}{{route=\"/a\"}} {a}\n{REQUESTS}{{route=\"/b\"}} {b}\n");
    let answer = router()
        .read("router/0", 0.0, body(10, 10))
        .read("router/0", 10.0, body(9, 90))
        .answer();
    assert_eq!(code(&answer, REQUESTS), ("Reset", true));
}

#[test]
fn a_series_that_vanished_is_a_reset() {
    let answer = router()
        .read("router/0", 0.0, requests(10) + REQUESTS + "{route=\"/b\"} 6\n")
        .read("router/0", 10.0, requests(99))
        .answer();
    assert_eq!(code(&answer, REQUESTS), ("Reset", true));
}

/// The whole family is judged, other codes too.
#[test]
fn a_fallen_series_of_another_status_resets_the_5xx_row() {
    let body = |ok, failed| {
        format!(
            "smg_http_responses_total{{status_code=\"200\"}} {ok}\nsmg_http_responses_total{{status_code=\"503\"}} {failed}\n"
        )
    };
    let answer = Scene::router_alone(Producer::SglangGateway, |_| {})
        .read("router/0", 0.0, body(10, 1))
        .read("router/0", 10.0, body(9, 2))
        .answer();
    assert_eq!(code(&answer, "smg_http_responses_total"), ("Reset", true));
}

#[test]
fn a_family_that_is_gone_is_absent_and_never_again_not_exported_yet() {
    let answer = router()
        .read("router/0", 0.0, requests(10))
        .read("router/0", 10.0, "vllm_router_active_workers 2\n")
        .read("router/0", 20.0, "vllm_router_active_workers 2\n")
        .answer();
    assert_eq!(code(&answer, REQUESTS), ("Absent", true));
}

/// As in the operator's memory; a read that failed is a read.
#[test]
fn what_was_seen_is_forgotten_ten_minutes_after_the_last_read() {
    let gone = "vllm_router_active_workers 2\n";
    let after = |seconds| {
        router()
            .read("router/0", 0.0, requests(10))
            .read("router/0", seconds, gone)
    };
    assert_eq!(code(&after(600.0).answer(), REQUESTS), ("Absent", true));
    assert_eq!(code(&after(601.0).answer(), REQUESTS), ("NotExportedYet", true));
    let answer = after(601.0).fail("router/0", 300.0, "Timeout").answer();
    assert_eq!(code(&answer, REQUESTS), ("Absent", true));
    let answer = router()
        .read("router/0", 0.0, requests(10))
        .restarted()
        .read("router/0", 601.0, requests(50))
        .answer();
    assert_eq!(code(&answer, REQUESTS), ("FirstSample", true));
}

/// Both ends of a window are written in microseconds: it is as long as they are apart.
#[test]
fn reads_happen_in_whole_microseconds_and_windows_run_between_them() {
    let answer = router()
        .read("router/0", 0.000_000_9, requests(10))
        .read("router/0", 8.000_001_9, requests(26))
        .answer();
    let entry = windowed(&answer.traffic, "successful-requests");
    assert_eq!(entry.observed_at.0.as_microsecond(), 8_000_002);
    assert_eq!((entry.window_seconds, entry.samples), (8.000_001, 16.0));
    assert_eq!(entry.value, 16.0 / 8.000_001);
}

#[test]
fn a_restarted_container_is_a_reset_while_its_former_samples_could_serve() {
    let scene = |seconds| {
        router()
            .read("router/0", 0.0, requests(10))
            .restarted()
            .read("router/0", seconds, requests(50))
    };
    let answer = scene(10.0).answer();
    assert_eq!(code(&answer, REQUESTS), ("Reset", true));
    assert!(missing(&answer, REQUESTS).reason.contains("restarted"));
    assert_eq!(code(&scene(301.0).answer(), REQUESTS), ("FirstSample", true));
    let answer = scene(10.0).read("router/0", 20.0, requests(70)).answer();
    assert_eq!(windowed(&answer.traffic, "successful-requests").samples, 20.0);
}

#[test]
fn what_a_former_container_exported_was_not_seen_in_this_one() {
    let answer = router()
        .read("router/0", 0.0, requests(10))
        .restarted()
        .read("router/0", 10.0, "vllm_router_active_workers 2\n")
        .answer();
    assert_eq!(code(&answer, REQUESTS), ("NotExportedYet", true));
}

/// Expected: TTFT from the read at 0, since the one at 10 cannot be used; the cache from the one at 10.
#[test]
fn a_sample_in_which_a_source_was_not_usable_is_no_baseline_for_it() {
    let body = |ttft: &str, hits: u32| {
        format!(
            "vllm:time_to_first_token_seconds_sum {ttft}\nvllm:time_to_first_token_seconds_count {hits}\n\
             vllm:prefix_cache_hits_total {hits}\nvllm:prefix_cache_queries_total {}\n",
            2 * hits
        )
    };
    let answer = Scene::server(Producer::Vllm)
        .read("server/0", 0.0, body("1", 10))
        .read("server/0", 10.0, body("NaN", 20))
        .read("server/0", 20.0, body("5", 30))
        .answer();
    let ttft = windowed(&answer.latency, "ttft");
    assert_eq!((ttft.window_seconds, ttft.samples, ttft.value), (20.0, 20.0, 0.2));
    assert_eq!(hits(&answer, "local-prefix").window_seconds, 10.0);
}

/// Nobody knows which series a sample held that was not usable: what comes back after it has not just begun.
#[test]
fn a_series_that_an_unusable_sample_may_have_held_is_a_reset() {
    let unusable = format!("{REQUESTS}{{route=\"/b\"}} 40000\n{REQUESTS}{{route=\"/c\"}}");
    let long = "x".repeat(5000);
    for unusable in [
        unusable.clone() + " NaN\n",
        unusable.clone() + " -1\n",
        unusable.clone() + " 1 2 3\n",
        unusable + " 1\n" + REQUESTS + "{a=\"" + &long + "\"} 1\n",
    ] {
        let gone = |body: String| router().read("router/0", 0.0, &*unusable).read("router/0", 10.0, body);
        let both = requests(7) + REQUESTS + "{route=\"/b\"} 40001\n";
        let series = gone(requests(6)).read("router/0", 20.0, &*both);
        let family = gone("vllm_router_active_workers 2\n".into()).read("router/0", 20.0, &*both);
        for scene in [series, family] {
            assert_eq!(code(&scene.answer(), REQUESTS), ("Reset", true), "{}", &unusable[..99]);
        }
    }
}

/// What was not there in the baseline had not happened, whatever could not be read since.
#[test]
fn what_an_unusable_sample_after_the_baseline_held_counts_from_zero() {
    let answer = router()
        .read("router/0", 0.0, "vllm_router_active_workers 2\n")
        .read("router/0", 10.0, format!("{REQUESTS} NaN\n"))
        .read("router/0", 20.0, requests(35))
        .answer();
    assert_eq!(windowed(&answer.traffic, "successful-requests").samples, 35.0);
}

#[test]
fn buckets_that_vanished_are_a_reset() {
    let ttft = "vllm:time_to_first_token_seconds";
    let plain = |count: u32| format!("{ttft}_sum {count}\n{ttft}_count {count}\n");
    let buckets = |count: u32| {
        plain(count) + &format!("{ttft}_bucket{{le=\"1\"}} {count}\n{ttft}_bucket{{le=\"+Inf\"}} {count}\n")
    };
    let answer = |before: String, after: String| {
        Scene::server(Producer::Vllm)
            .read("server/0", 0.0, before)
            .read("server/0", 10.0, after)
            .answer()
    };
    assert_eq!(code(&answer(buckets(3), plain(5)), ttft), ("Reset", true));
    let one_gone = buckets(5).replace(&format!("{ttft}_bucket{{le=\"1\"}} 5\n"), "");
    assert_eq!(code(&answer(buckets(3), one_gone), ttft), ("Reset", true));
    let damaged = plain(5) + ttft + "_bucket{le=\"1\"} NaN\n";
    let entry = windowed(&answer(buckets(3), damaged).latency, "ttft").clone();
    assert_eq!((entry.samples, entry.quantiles), (2.0, None));
}

/// Every tier is judged over the whole family. Once it is gone from the baseline too, the last body alone decides.
#[test]
fn a_mode_that_vanished_is_a_reset_and_then_absent() {
    let tokens = |modes: &[&str]| -> String {
        let line = |mode: &&str| format!("sglang:prefill_effective_tokens_total{{mode=\"{mode}\"}} 5\n");
        modes.iter().map(line).collect()
    };
    let all = tokens(&["input", "device_hit", "host_hit", "storage_hit"]);
    let fewer = tokens(&["input", "device_hit", "host_hit"]);
    let scene = || {
        Scene::server(Producer::Sglang)
            .read("server/0", 0.0, &*all)
            .read("server/0", 10.0, &*fewer)
    };
    assert_eq!(code(&scene().answer(), "device-prefix"), ("Reset", true));
    let later = scene().read("server/0", 20.0, &*fewer).answer();
    assert_eq!(code(&later, "device-prefix"), ("Absent", true));
    let long_after = scene().read("server/0", 311.0, &*fewer).answer();
    assert_eq!(code(&long_after, "device-prefix"), ("Absent", true), "no baseline");
    let restarted = Scene::server(Producer::Sglang)
        .read("server/0", 0.0, &*all)
        .restarted()
        .read("server/0", 10.0, &*fewer)
        .answer();
    assert_eq!(
        code(&restarted, "device-prefix"),
        ("Absent", true),
        "never in this container"
    );
}

#[test]
fn a_source_of_two_series_has_one_baseline() {
    let body = |requests: &str, errors: &str| {
        format!("smg_router_requests_total {requests}\nsmg_router_request_errors_total {errors}\n")
    };
    let answer = Scene::router_alone(Producer::SglangGateway, |_| {})
        .read("router/0", 0.0, body("10", "1"))
        .read("router/0", 10.0, body("20", "NaN"))
        .read("router/0", 20.0, body("30", "6"))
        .answer();
    assert_eq!(windowed(&answer.traffic, "requests").window_seconds, 10.0);
    assert_eq!(windowed(&answer.traffic, "errors").window_seconds, 20.0);
    let ratio = windowed(&answer.traffic, "error-ratio");
    assert_eq!((ratio.window_seconds, ratio.value), (20.0, 0.25));
}

#[test]
fn a_series_given_twice_with_one_value_counts_once_and_label_order_does_not_matter() {
    let twice = format!("{REQUESTS}{{a=\"1\",b=\"2\"}} 10\n{REQUESTS}{{b=\"2\",a=\"1\"}} 10\n");
    let answer = router()
        .read("router/0", 0.0, twice)
        .read("router/0", 10.0, format!("{REQUESTS}{{b=\"2\",a=\"1\"}} 30\n"))
        .answer();
    assert_eq!(windowed(&answer.traffic, "successful-requests").samples, 20.0);
}

#[test]
fn integers_past_the_exact_ones_give_no_negative_figure() {
    let body = |count: &str| format!("{REQUESTS} {count}\n");
    let answer = router()
        .read("router/0", 0.0, body("9007199254740993"))
        .read("router/0", 10.0, body("9007199254740995"))
        .answer();
    let entry = windowed(&answer.traffic, "successful-requests");
    assert!((0.0..=4.0).contains(&entry.samples), "{entry:?}");
}
