//! Within one Pod: engines, ranks, priorities, label sets (metrics contract, section 5).

use model_deployment::pod::Producer;

use crate::scene::{Scene, code, gauge, hits, windowed};

fn running(body: &str) -> f64 {
    let answer = Scene::server(Producer::Sglang).read("server/0", 0.0, body).answer();
    let entry = gauge(&answer.processing, "running", Some("server"));
    assert_eq!(entry.pod_count, 1);
    entry.value
}

/// One line a scheduler: labels and value.
fn gauges(lines: &[(&str, u32)]) -> String {
    let line = |(labels, value): &(&str, u32)| format!("sglang:num_running_reqs{{{labels}}} {value}\n");
    lines.iter().map(line).collect()
}

#[test]
fn vllm_adds_its_engines_and_the_pod_counts_once() {
    let body = "vllm:num_requests_running{engine=\"0\"} 3\nvllm:num_requests_running{engine=\"1\"} 4\n";
    let answer = Scene::server(Producer::Vllm).read("server/0", 0.0, body).answer();
    let entry = gauge(&answer.processing, "running", Some("server"));
    assert_eq!((entry.value, entry.pod_count), (7.0, 1));
}

#[test]
fn ranks_of_one_scheduler_are_one_figure() {
    for label in ["tp_rank", "pp_rank", "moe_ep_rank", "attn_cp_rank", "pid"] {
        let body = gauges(&[(&format!("{label}=\"0\""), 5), (&format!("{label}=\"1\""), 4)]);
        assert_eq!(running(&body), 5.0, "{label}");
    }
}

#[test]
fn data_parallel_schedulers_are_added() {
    // Under DP attention tp_rank runs with dp_rank: a filter on tp_rank 0 would lose three of four.
    let body = gauges(&[
        ("dp_rank=\"0\",tp_rank=\"0\"", 1),
        ("dp_rank=\"1\",tp_rank=\"1\"", 2),
        ("dp_rank=\"2\",tp_rank=\"2\"", 4),
        ("dp_rank=\"3\",tp_rank=\"3\"", 8),
    ]);
    assert_eq!(running(&body), 15.0);
}

#[test]
fn the_total_over_priorities_is_taken_where_there_is_one() {
    let body = gauges(&[("priority=\"\"", 5), ("priority=\"0\"", 2), ("priority=\"1\"", 3)]);
    assert_eq!(running(&body), 5.0);
    let body = gauges(&[("priority=\"\"", 3), ("", 3), ("priority=\"1\"", 2)]);
    assert_eq!(running(&body), 3.0, "an empty label is none");
    let body = gauges(&[
        ("dp_rank=\"0\",priority=\"\"", 5),
        ("dp_rank=\"0\",priority=\"1\"", 5),
        ("dp_rank=\"1\",priority=\"\"", 3),
        ("dp_rank=\"1\",priority=\"1\"", 3),
    ]);
    assert_eq!(running(&body), 8.0);
}

#[test]
fn priorities_without_a_total_are_added_inside_their_scheduler() {
    let body = gauges(&[
        ("tp_rank=\"0\",priority=\"1\"", 2),
        ("tp_rank=\"0\",priority=\"2\"", 3),
        ("tp_rank=\"1\",priority=\"1\"", 4),
    ]);
    assert_eq!(running(&body), 5.0);
}

#[test]
fn other_labels_are_separate_figures() {
    let body = gauges(&[
        ("model_name=\"a\",tp_rank=\"0\"", 2),
        ("model_name=\"a\",tp_rank=\"1\"", 1),
        ("model_name=\"b\",tp_rank=\"0\"", 7),
    ]);
    assert_eq!(running(&body), 9.0);
}

/// Rank 1 was seeded at start and never moves; the maximum is of the deltas, not of the totals.
#[test]
fn of_counters_the_deltas_of_the_ranks_are_compared() {
    let body = |rank_0: [u32; 2], rank_1: [u32; 2]| {
        let lines = |rank, [input, hit]: [u32; 2]| {
            ["input", "device_hit", "host_hit", "storage_hit"]
                .into_iter()
                .zip([input, hit, 0, 0])
                .map(|(mode, tokens)| {
                    format!("sglang:prefill_effective_tokens_total{{mode=\"{mode}\",tp_rank=\"{rank}\"}} {tokens}\n")
                })
                .collect::<String>()
        };
        lines(0, rank_0) + &lines(1, rank_1)
    };
    let answer = Scene::server(Producer::Sglang)
        .read("server/0", 0.0, body([100, 50], [900, 900]))
        .read("server/0", 10.0, body([170, 80], [900, 900]))
        .answer();
    let entry = hits(&answer, "device-prefix");
    assert_eq!((entry.hits, entry.queries), (30.0, 100.0));
}

#[test]
fn tokenizer_families_add_their_label_sets_before_the_mean() {
    let body = |plain: (u32, u32), streamed: (u32, u32)| {
        let lines = |is_streaming, (sum, count)| {
            let labels = format!("{{is_streaming=\"{is_streaming}\"}}");
            format!(
                "sglang:time_to_first_token_seconds_sum{labels} {sum}\nsglang:time_to_first_token_seconds_count{labels} {count}\n"
            )
        };
        lines(false, plain) + &lines(true, streamed)
    };
    let answer = Scene::server(Producer::Sglang)
        .read("server/0", 0.0, body((1, 1), (0, 0)))
        .read("server/0", 10.0, body((10, 4), (1, 2)))
        .answer();
    let ttft = windowed(&answer.latency, "ttft");
    assert_eq!((ttft.samples, ttft.value), (5.0, 2.0), "(9 + 1) / (3 + 2)");
}

/// Rank 0: 4 transfers of 8 together; rank 1: 2 of 100 together. Sum and count come from one rank.
#[test]
fn of_histograms_the_rank_with_the_greatest_gain_in_count_is_taken() {
    let body = |rank_0: (u32, u32), rank_1: (u32, u32)| {
        let lines = |rank, (sum, count)| {
            format!(
                "sglang:kv_transfer_latency_ms_sum{{tp_rank=\"{rank}\"}} {sum}\nsglang:kv_transfer_latency_ms_count{{tp_rank=\"{rank}\"}} {count}\n"
            )
        };
        lines(0, rank_0) + &lines(1, rank_1)
    };
    let answer = Scene::pair(Producer::Sglang)
        .read("prefill/0", 0.0, body((0, 0), (1000, 50)))
        .read("prefill/0", 10.0, body((8, 4), (1100, 52)))
        .fail("decode/0", 0.0, "Refused")
        .answer();
    let entry = windowed(&answer.transfer, "transfer-latency");
    assert_eq!((entry.samples, entry.value), (4.0, 2.0));
}

#[test]
fn of_ranks_that_gained_as_many_observations_the_first_is_taken() {
    let body = |count: u32, sums: [u32; 2]| {
        let lines = sums.into_iter().enumerate().map(|(rank, sum)| {
            let labels = format!("{{tp_rank=\"{rank}\"}}");
            format!(
                "sglang:kv_transfer_total_mb_sum{labels} {sum}\nsglang:kv_transfer_total_mb_count{labels} {count}\n"
            )
        });
        lines.collect::<String>()
    };
    let answer = Scene::pair(Producer::Sglang)
        .read("prefill/0", 0.0, body(0, [0, 0]))
        .read("prefill/0", 10.0, body(4, [8, 12]))
        .fail("decode/0", 0.0, "Refused")
        .answer();
    assert_eq!(windowed(&answer.transfer, "transfer-size").value, 2.0);
}

const TTFT: &str = "vllm:time_to_first_token_seconds";

/// One engine's histogram with these buckets.
fn engine(engine: u32, sum: u32, buckets: &[(&str, u32)], count: u32) -> String {
    let labels = format!("engine=\"{engine}\"");
    let lines = buckets
        .iter()
        .map(|(bound, value)| format!("{TTFT}_bucket{{{labels},le=\"{bound}\"}} {value}\n"));
    format!("{TTFT}_sum{{{labels}}} {sum}\n{TTFT}_count{{{labels}}} {count}\n") + &lines.collect::<String>()
}

fn ttft(before: String, after: String) -> model_deployment_crds::metrics::Windowed {
    let answer = Scene::server(Producer::Vllm)
        .read("server/0", 0.0, before)
        .read("server/0", 10.0, after)
        .answer();
    windowed(&answer.latency, "ttft").clone()
}

#[test]
fn buckets_of_the_same_bounds_are_added() {
    let zero = |number| engine(number, 0, &[("1", 0), ("2.0", 0), ("+Inf", 0)], 0);
    let after =
        engine(0, 4, &[("1.0", 4), ("2", 4), ("+Inf", 4)], 4) + &engine(1, 6, &[("1", 0), ("2", 4), ("+Inf", 4)], 4);
    let entry = ttft(zero(0) + &zero(1), after);
    let quantiles = entry.quantiles.unwrap();
    assert_eq!((quantiles.p50, entry.value, entry.samples), (1.0, 1.25, 8.0));
    assert_eq!(quantiles.p90, 1.0 + 3.2 / 4.0);
}

#[test]
fn buckets_whose_bounds_differ_give_no_quantiles() {
    let before = engine(0, 0, &[("1", 0), ("+Inf", 0)], 0) + &engine(1, 0, &[("2", 0), ("+Inf", 0)], 0);
    let after = engine(0, 4, &[("1", 4), ("+Inf", 4)], 4) + &engine(1, 6, &[("2", 4), ("+Inf", 4)], 4);
    let entry = ttft(before, after);
    assert_eq!((entry.quantiles, entry.value), (None, 1.25));
}

#[test]
fn a_damaged_bucket_line_only_drops_the_quantiles() {
    let before = engine(0, 0, &[("1", 0), ("+Inf", 0)], 0);
    let after = engine(0, 4, &[("1", 4), ("+Inf", 4)], 4);
    for damaged in [
        after.replace("le=\"1\"} 4", "le=\"1\"} NaN"),
        after.replace("le=\"1\"} 4", "le=\"1\"} -4"),
        after.replace("le=\"1\"} 4", "le=\"1\" 4"),
        after.clone() + TTFT + "_bucket{engine=\"0\",le=\"1\"} 3\n",
    ] {
        let entry = ttft(before.clone(), damaged.clone());
        assert_eq!((entry.quantiles, entry.value), (None, 1.0), "{damaged}");
    }
}

#[test]
fn a_damaged_or_lacking_sum_or_count_makes_the_source_unusable() {
    let before = engine(0, 0, &[("+Inf", 0)], 0);
    let after = engine(0, 4, &[("+Inf", 4)], 4);
    for damaged in [
        after.replace("_sum{engine=\"0\"} 4", "_sum{engine=\"0\"} NaN"),
        after.replace("_sum{engine=\"0\"} 4", "_sum{engine=\"0\"} -1"),
        after.replace("_count{engine=\"0\"} 4", "_count{engine=\"0\"} +Inf"),
        after.replace(&format!("{TTFT}_count{{engine=\"0\"}} 4\n"), ""),
        after.replace(&format!("{TTFT}_sum{{engine=\"0\"}} 4\n"), ""),
        after.clone() + TTFT + "_count{engine=\"0\"} 5\n",
    ] {
        let answer = Scene::server(Producer::Vllm)
            .read("server/0", 0.0, &*before)
            .read("server/0", 10.0, &*damaged)
            .answer();
        assert_eq!(code(&answer, TTFT), ("NotUsable", true), "{damaged}");
    }
}

#[test]
fn a_histogram_without_buckets_has_a_mean_and_no_quantiles() {
    let entry = ttft(engine(0, 0, &[], 0), engine(0, 4, &[], 2));
    assert_eq!((entry.value, entry.quantiles), (2.0, None));
}

/// Two of four are slower than every finite bound.
#[test]
fn a_rank_behind_the_last_finite_bound_is_that_bound() {
    let before = engine(0, 0, &[("1", 0), ("2", 0), ("+Inf", 0)], 0);
    let entry = ttft(before, engine(0, 40, &[("1", 1), ("2", 2), ("+Inf", 4)], 4));
    let quantiles = entry.quantiles.unwrap();
    assert_eq!((quantiles.p50, quantiles.p90, quantiles.p99), (2.0, 2.0, 2.0));
}

#[test]
fn without_an_infinite_bound_there_are_no_quantiles() {
    let before = engine(0, 0, &[("1", 0), ("2", 0)], 0);
    assert_eq!(ttft(before, engine(0, 4, &[("1", 4), ("2", 4)], 4)).quantiles, None);
}

#[test]
fn routers_add_all_label_sets() {
    let body = |a, b| {
        format!(
            "smg_router_requests_total{{model=\"a\",tp_rank=\"0\"}} {a}\nsmg_router_requests_total{{model=\"a\",tp_rank=\"1\"}} {b}\n"
        )
    };
    let answer = Scene::router_alone(Producer::SglangGateway, |_| {})
        .read("router/0", 0.0, body(0, 0))
        .read("router/0", 10.0, body(3, 4))
        .answer();
    assert_eq!(windowed(&answer.traffic, "requests").samples, 7.0);
}
