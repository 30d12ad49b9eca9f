//! What people met in the field: bodies that made other readers fail, or show a number that was none. One test a report.

use model_deployment::pod::{Producer, TracksLoad};
use model_deployment_crds::metrics::ModelDeploymentMetrics;
use model_deployment_crds::model_deployment::{KvCacheConnector, TransferConnector};
use model_deployment_crds::role::RoleKind;

use crate::scene::{Scene, code, find_gauge, find_missing, gauge, hits, missing, windowed};

const RUNNING: &str = "vllm:num_requests_running";
const TTFT: &str = "vllm:time_to_first_token_seconds";

fn vllm(body: &str) -> ModelDeploymentMetrics {
    Scene::server(Producer::Vllm).read("server/0", 0.0, body).answer()
}

fn sglang(body: &str) -> ModelDeploymentMetrics {
    Scene::server(Producer::Sglang).read("server/0", 0.0, body).answer()
}

fn between(producer: Producer, before: &str, after: &str) -> ModelDeploymentMetrics {
    Scene::server(producer)
        .read("server/0", 0.0, before)
        .read("server/0", 20.0, after)
        .answer()
}

fn router(producer: Producer, before: &str, after: &str) -> ModelDeploymentMetrics {
    Scene::router_alone(producer, |facts| facts.tracks_load = Some(TracksLoad::Unknown))
        .read("router/0", 0.0, before)
        .read("router/0", 20.0, after)
        .answer()
}

/// The `running` of a vLLM server.
fn running(body: &str) -> f64 {
    gauge(&vllm(body).processing, "running", Some("server")).value
}

/// `_sum` and `_count` of a histogram.
fn histogram(family: &str, labels: &str, sum: f64, count: u32) -> String {
    format!("{family}_sum{labels} {sum}\n{family}_count{labels} {count}\n")
}

// Names that change.

#[test]
fn hits_of_the_new_name_are_not_divided_by_queries_of_the_old_one() {
    let answer = vllm("vllm:prefix_cache_hits_total 5\nvllm:gpu_prefix_cache_queries_total 10\n");
    assert_eq!(code(&answer, "local-prefix"), ("Absent", true));
    assert!(answer.cache_hits.is_empty());
}

#[test]
fn time_per_output_token_is_neither_the_gap_between_tokens_nor_the_requests_mean() {
    let body =
        |count| histogram("vllm:time_per_output_token_seconds", "", 1.0, count) + &histogram(TTFT, "", 1.0, count);
    let answer = between(Producer::Vllm, &body(1), &body(9));
    for source in [
        "vllm:inter_token_latency_seconds",
        "vllm:request_time_per_output_token_seconds",
    ] {
        assert_eq!(code(&answer, source), ("Absent", true));
    }
    assert_eq!(answer.latency.len(), 1, "ttft alone");
}

#[test]
fn old_and_new_names_side_by_side_are_not_added() {
    let body = |count| {
        format!(
            "inference_objective_request_total {count}\ninference_model_request_total {count}\nllm_d_epp_request_total {count}\n\
             inference_pool_ready_pods 4\nllm_d_epp_ready_endpoints 4\n"
        )
    };
    let answer = router(Producer::LlmDRouter, &body(10), &body(30));
    assert_eq!(windowed(&answer.traffic, "requests").samples, 20.0);
    assert_eq!(gauge(&answer.processing, "router-backends", None).value, 4.0);
}

#[test]
fn a_renamed_label_is_of_no_interest() {
    let body = |label: &str, count| format!("llm_d_epp_request_total{{{label}=\"a\"}} {count}\n");
    let answer = router(
        Producer::LlmDRouter,
        &body("pod_name", 10),
        &(body("pod_name", 15) + &body("endpoint_name", 7)),
    );
    assert_eq!(windowed(&answer.traffic, "requests").samples, 12.0);
}

#[test]
fn a_counter_with_one_suffix_too_few_is_named_and_not_read() {
    let answer = vllm("vllm:prefix_cache_hits 5\nvllm:prefix_cache_queries 10\n");
    assert_eq!(code(&answer, "local-prefix"), ("Absent", true));
    assert!(
        missing(&answer, "local-prefix")
            .reason
            .contains("vllm:prefix_cache_hits ")
    );
}

#[test]
fn a_gauge_with_the_suffix_of_a_counter_is_named_and_not_read() {
    let answer = vllm("vllm:num_requests_running_total 5\n");
    assert_eq!(code(&answer, RUNNING), ("Absent", true));
    assert!(
        missing(&answer, RUNNING)
            .reason
            .contains("vllm:num_requests_running_total")
    );
}

#[test]
fn an_aggregators_underscores_are_named_and_not_read() {
    let answer = sglang("sglang_num_running_reqs{worker_addr=\"a\"} 3\nsglang_num_queue_reqs{worker_addr=\"a\"} 1\n");
    assert_eq!(code(&answer, "sglang:num_running_reqs"), ("Absent", true));
    assert!(
        missing(&answer, "sglang:num_running_reqs")
            .reason
            .contains("sglang_num_running_reqs")
    );
}

#[test]
fn the_prefix_of_ray_is_named_and_not_read() {
    let answer = vllm("ray_vllm_num_requests_running{ReplicaId=\"r\"} 3\n");
    assert_eq!(code(&answer, RUNNING), ("Absent", true));
    assert!(
        missing(&answer, RUNNING)
            .reason
            .contains("ray_vllm_num_requests_running")
    );
}

#[test]
fn a_gateways_copy_of_an_engines_figures_is_not_added() {
    let answer = router(
        Producer::SglangGateway,
        "smg_worker_requests_active{worker=\"a\"} 2\n",
        "smg_worker_requests_active{worker=\"a\"} 2\nsmg_engine_num_running_reqs{worker=\"a\"} 2\nsmg_http_connections_active 2\n",
    );
    assert_eq!(gauge(&answer.processing, "router-running", None).value, 2.0);
}

// Format.

#[test]
fn openmetrics_that_nobody_asked_for() {
    let body = |count: u32| {
        format!(
            "# TYPE vllm:num_requests_running gauge\n# UNIT vllm:num_requests_running requests\n{RUNNING}{{engine=\"0\"}} 3 1790000000.125\n\
             # TYPE vllm:prefix_cache_hits counter\nvllm:prefix_cache_hits_total{{engine=\"0\"}} {count} # {{trace_id=\"x\"}} 1.0 1790000000.125\n\
             vllm:prefix_cache_hits_created{{engine=\"0\"}} 1790000000.125\n\
             # TYPE vllm:prefix_cache_queries counter\nvllm:prefix_cache_queries_total{{engine=\"0\"}} {}\n\
             # TYPE {TTFT} histogram\n{TTFT}_bucket{{engine=\"0\",le=\"+Inf\"}} {count} # {{}} 0.5\n{}# EOF\n",
            4 * count,
            histogram(TTFT, "{engine=\"0\"}", 1.0, count)
        )
    };
    let answer = between(Producer::Vllm, &body(1), &body(9));
    assert_eq!(gauge(&answer.processing, "running", Some("server")).value, 3.0);
    assert_eq!(hits(&answer, "local-prefix").rate, 0.25);
    assert_eq!(windowed(&answer.latency, "ttft").samples, 8.0);
}

#[test]
fn a_type_that_nobody_knows_on_a_family_that_nobody_wants() {
    let body =
        format!("# TYPE lora_requests_info fancy\nlora_requests_info{{a=\"b\"}} x y z\n# TYPE\n# HELP\n{RUNNING} 3\n");
    assert_eq!(running(&body), 3.0);
}

#[test]
fn odd_spellings_of_numbers_and_labels() {
    for line in [
        "{engine=\"0\",} 3",
        "{ engine = \"0\" } 3.0E+0",
        "{engine=\"0\"}3",
        "\t3e0\t1790000000000",
        "{engine=\"a\\\\b\\\"c\\nd\"} 3",
        "{} 3.",
        "{engine=\"}\"} 0.3e1 -1790000000000",
    ] {
        assert_eq!(running(&format!(":leading_colon 1\n{RUNNING}{line}\n")), 3.0, "{line}");
    }
}

// Ranks, engines and priorities.

#[test]
fn the_engines_of_a_data_parallel_server_are_added_and_not_the_last_one_taken() {
    let body = (0..4).map(|engine| format!("{RUNNING}{{engine=\"{engine}\",model_name=\"m\"}} {}\n", 1 << engine));
    assert_eq!(running(&body.collect::<String>()), 15.0);
}

#[test]
fn a_series_that_two_processes_repeat_counts_once_and_two_values_are_none() {
    let line = |value: u32| format!("{RUNNING}{{engine=\"0\"}} {value}\n");
    assert_eq!(running(&line(3).repeat(2)), 3.0);
    let answer = vllm(&(line(3) + &line(0)));
    assert_eq!(code(&answer, RUNNING), ("NotUsable", true));
}

#[test]
fn dp_attention_runs_tp_rank_with_dp_rank() {
    let lines = (0..8).map(|rank| {
        format!("sglang:num_running_reqs{{dp_rank=\"{rank}\",moe_ep_rank=\"{rank}\",pid=\"9{rank}\",tp_rank=\"{rank}\"}} 2\n")
    });
    let answer = sglang(&lines.collect::<String>());
    assert_eq!(gauge(&answer.processing, "running", Some("server")).value, 16.0);
}

#[test]
fn context_parallel_ranks_and_pipeline_stages_repeat_one_scheduler() {
    for label in ["attn_cp_rank", "pp_rank"] {
        let lines = (0..8).map(|rank| format!("sglang:num_running_reqs{{{label}=\"{rank}\",tp_rank=\"0\"}} 5\n"));
        let answer = sglang(&lines.collect::<String>());
        assert_eq!(
            gauge(&answer.processing, "running", Some("server")).value,
            5.0,
            "{label}"
        );
    }
}

#[test]
fn a_total_over_priorities_is_not_added_to_its_parts() {
    let line = |priority: &str, value: u32| {
        format!("sglang:num_queue_reqs{{priority=\"{priority}\",tp_rank=\"0\"}} {value}\n")
    };
    let answer = sglang(&(line("", 9) + &line("1", 4) + &line("10", 5)));
    assert_eq!(gauge(&answer.queueing, "waiting", Some("server")).value, 9.0);
}

#[test]
fn a_priority_label_of_vllm_is_a_label_set_like_any_other() {
    let body =
        |count| histogram(TTFT, "{priority=\"0\"}", 1.0, count) + &histogram(TTFT, "{priority=\"1\"}", 1.0, 2 * count);
    let answer = between(Producer::Vllm, &body(1), &body(3));
    assert_eq!(windowed(&answer.latency, "ttft").samples, 6.0);
}

#[test]
fn first_tokens_of_streams_and_of_whole_answers_have_one_mean() {
    let family = "sglang:time_to_first_token_seconds";
    let body = |stream: (f64, u32), whole: (f64, u32)| {
        histogram(family, "{is_streaming=\"true\"}", stream.0, stream.1)
            + &histogram(family, "{is_streaming=\"false\"}", whole.0, whole.1)
    };
    let answer = between(Producer::Sglang, &body((1.0, 1), (1.0, 1)), &body((2.0, 2), (8.0, 2)));
    let ttft = windowed(&answer.latency, "ttft");
    assert_eq!((ttft.value, ttft.samples), (4.0, 2.0), "(1 + 7) / (1 + 1)");
}

#[test]
fn failures_that_every_rank_counts_are_counted_once() {
    let body = |failed: u32| {
        let lines =
            (0..4).map(|rank| format!("sglang:num_transfer_failed_reqs_total{{tp_rank=\"{rank}\"}} {failed}\n"));
        histogram("sglang:kv_transfer_total_mb", "{tp_rank=\"0\"}", 1.0, failed) + &lines.collect::<String>()
    };
    let answer = Scene::pair(Producer::Sglang)
        .read("prefill/0", 0.0, body(1))
        .read("prefill/0", 20.0, body(5))
        .fail("decode/0", 0.0, "Refused")
        .answer();
    let failures = windowed(&answer.transfer, "transfer-failures");
    assert_eq!((failures.samples, failures.value), (4.0, 0.2));
}

#[test]
fn more_first_tokens_than_finished_requests_are_no_contradiction() {
    let body = |first, finished| {
        histogram(TTFT, "", 1.0, first) + &histogram("vllm:request_time_per_output_token_seconds", "", 1.0, finished)
    };
    let answer = between(Producer::Vllm, &body(0, 0), &body(8, 4));
    assert_eq!(windowed(&answer.latency, "ttft").samples, 8.0);
    assert_eq!(windowed(&answer.latency, "tpot").samples, 4.0);
}

// Values that are old, or none.

#[test]
fn counters_that_fell_are_no_negative_rate() {
    let body = |count| format!("vllm_router_active_workers 1\nvllm_router_requests_total {count}\n");
    let answer = router(Producer::VllmRouter, &body(50), &body(20));
    assert_eq!(code(&answer, "vllm_router_requests_total"), ("Reset", true));
    assert!(find_missing(&answer, "vllm_router_request_errors_total").is_some());
    assert!(answer.traffic.is_empty());
}

#[test]
fn a_sentinel_below_zero_is_no_value() {
    let body = "smg_worker_pool_size{worker_type=\"a\"} 2\nsmg_worker_pool_size{worker_type=\"b\"} -1\n";
    let answer = router(Producer::SglangGateway, body, body);
    assert_eq!(code(&answer, "smg_worker_pool_size"), ("NotUsable", true));
    assert!(find_gauge(&answer.processing, "router-backends", None).is_none());
}

#[test]
fn an_occupancy_that_is_no_number_spoils_nothing_else() {
    let answer =
        sglang("sglang:fwd_occupancy NaN\nsglang:utilization -1\nsglang:num_running_reqs 0\nsglang:num_queue_reqs 0\n");
    assert_eq!(gauge(&answer.processing, "running", Some("server")).value, 0.0);
    assert!(answer.missing.iter().all(|entry| entry.code != "NotUsable"));
}

#[test]
fn a_window_in_which_nothing_finished_is_idle_while_the_gauge_says_that_something_runs() {
    let body = format!("{RUNNING} 4\n{}", histogram(TTFT, "", 1.0, 7));
    let answer = between(Producer::Vllm, &body, &body);
    assert_eq!(code(&answer, TTFT), ("Idle", false));
    assert_eq!(gauge(&answer.processing, "running", Some("server")).value, 4.0);
}

// Absent is not zero.

#[test]
fn a_body_of_help_alone_is_no_zero() {
    let answer = vllm(&format!("# HELP {RUNNING} Requests.\n# TYPE {RUNNING} gauge\n"));
    assert_eq!(code(&answer, RUNNING), ("Absent", true));
    assert!(missing(&answer, RUNNING).reason.contains("declared"));
    assert!(answer.processing.is_empty());
}

#[test]
fn a_gauge_of_one_pod_is_no_figure_of_a_role_of_two() {
    let answer = Scene::new()
        .role("server", RoleKind::Server, Producer::Vllm, 2, |_| {})
        .read("server/0", 0.0, format!("{RUNNING} 6\n"))
        .read("server/1", 0.0, "vllm:num_requests_waiting 1\n")
        .answer();
    let running = gauge(&answer.processing, "running", Some("server"));
    assert_eq!((running.value, running.pod_count, running.expected_pods), (6.0, 1, 2));
    assert!(answer.partial);
}

// Cache hits.

#[test]
fn a_hit_rate_over_a_hundred_percent_is_none() {
    let body = |hits, queries, count| {
        format!("vllm:prefix_cache_hits_total {hits}\nvllm:prefix_cache_queries_total {queries}\n")
            + &histogram(TTFT, "", 1.0, count)
    };
    let answer = between(Producer::Vllm, &body(0, 0, 0), &body(30, 20, 1));
    assert_eq!(code(&answer, "local-prefix"), ("Inconsistent", true));
    let answer = between(Producer::Vllm, &body(0, 0, 0), &body(0, 20, 1));
    let entry = hits(&answer, "local-prefix");
    assert_eq!(
        (entry.rate, entry.hits, entry.queries),
        (0.0, 0.0, 20.0),
        "blocks too large to share are a measured zero"
    );
}

#[test]
fn a_pair_connector_is_no_store_that_always_hits() {
    let body = |tokens| {
        format!("vllm:external_prefix_cache_hits_total {tokens}\nvllm:external_prefix_cache_queries_total {tokens}\n")
            + &histogram(TTFT, "", 1.0, tokens)
    };
    let answer = Scene::pair(Producer::Vllm)
        .with("decode", |facts| {
            facts.pool = true;
            facts.connector = Some(KvCacheConnector::Mooncake);
            facts.transfer_connector = Some(TransferConnector::Nixl);
        })
        .read("decode/0", 0.0, body(10))
        .read("decode/0", 20.0, body(90))
        .fail("prefill/0", 0.0, "Refused")
        .answer();
    assert_eq!(code(&answer, "external-store"), ("Unsupported", false));
    assert!(answer.cache_hits.is_empty());
}

#[test]
fn a_gauge_of_the_hit_rate_is_not_read() {
    let answer = sglang("sglang:cache_hit_rate 0.9\n");
    assert!(answer.cache_hits.is_empty());
    assert_eq!(code(&answer, "device-prefix"), ("Absent", true));
}

// Transfers and legs.

#[test]
fn a_gauge_where_a_histogram_is_expected_is_no_transfer() {
    let body = "# TYPE sglang:kv_transfer_latency_ms gauge\nsglang:kv_transfer_latency_ms 12\nsglang:kv_transfer_speed_gbps 9\n";
    let answer = Scene::pair(Producer::Sglang)
        .read("prefill/0", 0.0, body)
        .read("prefill/0", 20.0, body)
        .fail("decode/0", 0.0, "Refused")
        .answer();
    let entry = missing(&answer, "sglang:kv_transfer_latency_ms");
    assert_eq!((&*entry.code, entry.required), ("Absent", true));
    assert!(
        entry.reason.contains("gauge") && entry.reason.contains("histogram"),
        "{}",
        entry.reason
    );
    assert!(answer.transfer.is_empty());
}

#[test]
fn transfers_of_a_vllm_pair_are_not_promised() {
    let body = |count| histogram("vllm:nixl_xfer_time_seconds", "", 1.0, count) + &histogram(TTFT, "", 1.0, count);
    let answer = Scene::pair(Producer::Vllm)
        .read("decode/0", 0.0, body(1))
        .read("decode/0", 20.0, body(9))
        .read("prefill/0", 0.0, body(1))
        .read("prefill/0", 20.0, body(9))
        .answer();
    assert!(answer.transfer.is_empty());
    assert!(answer.missing.iter().all(|entry| !entry.source.contains("nixl")));
}

#[test]
fn first_tokens_of_the_two_halves_stay_apart() {
    let body = |sum, count| histogram(TTFT, "", sum, count);
    let answer = Scene::pair(Producer::Vllm)
        .read("prefill/0", 0.0, body(0.0, 0))
        .read("prefill/0", 20.0, body(1.0, 4))
        .read("decode/0", 0.0, body(0.0, 0))
        .read("decode/0", 20.0, body(6.0, 4))
        .answer();
    let means: Vec<_> = answer.latency.iter().map(|entry| (&*entry.pod, entry.value)).collect();
    assert_eq!(means, [("chat-decode-0", 1.5), ("chat-prefill-0", 0.25)]);
}

// Routers.

#[test]
fn workers_that_a_router_lists_are_what_it_reports_even_where_all_are_dead() {
    let body = "vllm_router_active_workers 2\nvllm_router_worker_health{worker=\"a\"} 0\nvllm_router_worker_health{worker=\"b\"} 0\n";
    let answer = router(Producer::VllmRouter, body, body);
    let workers = gauge(&answer.processing, "router-reported-workers", None);
    assert_eq!((workers.value, &*workers.unit), (2.0, "workers"));
}

#[test]
fn a_worker_whose_series_goes_is_a_reset_and_not_a_smaller_rate() {
    let line = |worker: &str, count| format!("smg_router_requests_total{{model=\"{worker}\"}} {count}\n");
    let answer = router(
        Producer::SglangGateway,
        &(line("a", 10) + &line("b", 10)),
        &line("a", 30),
    );
    assert_eq!(code(&answer, "smg_router_requests_total"), ("Reset", true));
}

#[test]
fn a_503_with_an_empty_error_code_is_a_5xx_response() {
    let body = |unavailable| {
        format!(
            "smg_router_requests_total 1\nsmg_http_responses_total{{error_code=\"\",status_code=\"503\"}} {unavailable}\n\
             smg_http_responses_total{{error_code=\"PD disaggregation request failed\",status_code=\"502\"}} 1\n\
             smg_http_responses_total{{error_code=\"\",status_code=\"200\"}} {unavailable}\n"
        )
    };
    let answer = router(Producer::SglangGateway, &body(4), &body(10));
    let entry = windowed(&answer.traffic, "http-5xx-responses");
    assert_eq!((entry.samples, entry.value), (6.0, 0.3));
}

#[test]
fn a_page_of_a_proxy_is_no_body_of_zeros() {
    let answer = Scene::new()
        .role("server", RoleKind::Server, Producer::Vllm, 2, |_| {})
        .read("server/0", 0.0, format!("{RUNNING} 6\n"))
        .read("server/1", 0.0, "{\"detail\":\"Not Found\"}")
        .answer();
    assert_eq!(code(&answer, "scrape"), ("NotExposition", true));
    assert_eq!(gauge(&answer.processing, "running", Some("server")).value, 6.0);
}
