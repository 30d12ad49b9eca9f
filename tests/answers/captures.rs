//! Consecutive captures of one program as two reads. The expected figures come from `tests/fixtures/expected.py`, which has a parser and
//! an arithmetic of its own; what is expected to be missing was written down by hand.

use model_deployment::pod::{Producer, TracksLoad};
use model_deployment_crds::metrics::{ModelDeploymentMetrics, Windowed};
use model_deployment_crds::model_deployment::TransferConnector;
use serde_json::Value;

use crate::scene::{Scene, capture};

/// Seconds between the two reads.
const WINDOW: f64 = 20.0;

/// What is expected besides the figures' values.
struct Expected {
    /// Names of the entries of `processing[]` and `queueing[]`.
    gauges: &'static [&'static str],
    /// Names of the entries of `latency[]`, `traffic[]` and `transfer[]`.
    windows: &'static [&'static str],
    /// Scopes of the entries of `cacheHits[]`.
    hits: &'static [&'static str],
    /// Source, code, `required` of the entries of `missing[]`.
    missing: &'static [(&'static str, &'static str, bool)],
}

/// Feeds each pair of consecutive captures as two reads of one Pod.
fn replay(program: &str, pod: &str, scene: impl Fn() -> Scene, expected: impl Fn(&str) -> Expected) {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/expected.json");
    let steps: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let steps = steps[program].as_array().expect("the program has captures");
    for step in steps {
        let [first, last] = ["first", "last"].map(|end| step[end].as_str().unwrap());
        let answer = scene()
            .read(pod, 0.0, capture(&format!("{program}_{first}")))
            .read(pod, WINDOW, capture(&format!("{program}_{last}")))
            .answer();
        let expected = expected(last);
        let about = format!("{program} {first} -> {last}");
        compare(&answer, &step["figures"], &expected, pod, &about);
    }
}

fn compare(answer: &ModelDeploymentMetrics, figures: &Value, expected: &Expected, pod: &str, about: &str) {
    let pod = format!("chat-{}", pod.replace('/', "-"));
    let gauges: Vec<_> = [&answer.processing, &answer.queueing].into_iter().flatten().collect();
    assert_eq!(
        sorted(gauges.iter().map(|gauge| &*gauge.name)),
        expected.gauges,
        "{about}"
    );
    for gauge in gauges {
        assert_eq!(
            gauge.value,
            number(&figures[&gauge.source]["value"]),
            "{about} {}",
            gauge.name
        );
    }

    let windows: Vec<_> = [&answer.latency, &answer.traffic, &answer.transfer]
        .into_iter()
        .flatten()
        .collect();
    assert_eq!(
        sorted(windows.iter().map(|entry| &*entry.name)),
        expected.windows,
        "{about}"
    );
    for entry in windows {
        assert_eq!(
            (&*entry.pod, entry.window_seconds),
            (&*pod, WINDOW),
            "{about} {}",
            entry.name
        );
        compare_window(entry, figures, about);
    }

    assert_eq!(
        sorted(answer.cache_hits.iter().map(|entry| &*entry.scope)),
        expected.hits,
        "{about}"
    );
    for entry in &answer.cache_hits {
        let gained = |series: &str| number(&figures[series]["gained"]);
        let (hits, queries) = match entry.scope.as_str() {
            "local-prefix" => (
                gained("vllm:prefix_cache_hits_total"),
                gained("vllm:prefix_cache_queries_total"),
            ),
            "device-prefix" => {
                let mode = |mode: &str| gained(&format!("sglang:prefill_effective_tokens_total/{mode}"));
                let modes = ["input", "device_hit", "host_hit", "storage_hit"];
                (mode("device_hit"), modes.into_iter().map(mode).sum())
            }
            scope => panic!("{scope}"),
        };
        assert_eq!(
            (entry.hits, entry.queries, entry.rate),
            (hits, queries, hits / queries),
            "{about} {}",
            entry.scope
        );
        assert_eq!(
            (entry.window_seconds, entry.pod_count, entry.unit.as_str()),
            (WINDOW, 1, "tokens"),
            "{about}"
        );
    }

    let missing: Vec<_> = answer
        .missing
        .iter()
        .filter(|missing| missing.pod == pod)
        .map(|missing| (&*missing.source, &*missing.code, missing.required))
        .collect();
    assert_eq!(missing, expected.missing, "{about}");
}

fn compare_window(entry: &Windowed, figures: &Value, about: &str) {
    let about = format!("{about} {}", entry.name);
    let gained = |series: &str| number(&figures[series]["gained"]);
    if let Some((requests, errors)) = entry.source.split_once('+') {
        assert_eq!(entry.samples, gained(requests), "{about}");
        close(entry.value, gained(errors) / gained(requests), &about);
        return;
    }
    let figure = &figures[&entry.source];
    assert_eq!(entry.samples, number(&figure["gained"]), "{about}");
    if figure.get("mean").is_none() {
        close(entry.value, entry.samples / WINDOW, &about);
        assert_eq!(entry.quantiles, None, "{about}");
        return;
    }
    close(entry.value, number(&figure["mean"]), &about);
    if entry.name.starts_with("transfer-") {
        assert_eq!(entry.quantiles, None, "{about}");
        return;
    }
    let quantiles = entry.quantiles.expect("quantiles");
    for (name, value) in [
        ("p50", quantiles.p50),
        ("p90", quantiles.p90),
        ("p95", quantiles.p95),
        ("p99", quantiles.p99),
    ] {
        close(value, number(&figure["quantiles"][name]), &format!("{about} {name}"));
    }
}

fn sorted<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut names: Vec<_> = names.collect();
    names.sort_unstable();
    names
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is a figure"))
}

/// Both programs add the same doubles, in another order.
fn close(ours: f64, theirs: f64, about: &str) {
    assert!(
        (ours - theirs).abs() <= 1e-9 * theirs.abs(),
        "{about}: {ours} is not {theirs}"
    );
}

#[test]
fn vllm_server() {
    replay(
        "vllm-0.32.0_single",
        "server/0",
        || Scene::server(Producer::Vllm),
        |_| Expected {
            gauges: &["running", "waiting"],
            windows: &["itl", "tpot", "ttft"],
            hits: &["local-prefix"],
            missing: &[("external-store", "Unsupported", false)],
        },
    );
}

/// TPOT and ITL of a prefill half are silent: its one token has no second.
#[test]
fn vllm_prefill_half() {
    let scene = || {
        Scene::pair(Producer::Vllm)
            .with("prefill", |facts| {
                facts.transfer_connector = Some(TransferConnector::Nixl)
            })
            .fail("decode/0", 0.0, "Refused")
    };
    replay("vllm-0.32.0_nixl_prefill", "prefill/0", scene, |_| Expected {
        gauges: &["running", "waiting"],
        windows: &["ttft"],
        hits: &["local-prefix"],
        missing: &[("external-store", "Unsupported", false)],
    });
}

#[test]
fn vllm_decode_half() {
    let scene = || {
        Scene::pair(Producer::Vllm)
            .with("decode", |facts| {
                facts.transfer_connector = Some(TransferConnector::Nixl)
            })
            .fail("prefill/0", 0.0, "Refused")
    };
    replay("vllm-0.32.0_nixl_decode", "decode/0", scene, |_| Expected {
        gauges: &["running", "waiting"],
        windows: &["itl", "tpot", "ttft"],
        hits: &["local-prefix"],
        missing: &[("external-store", "Unsupported", false)],
    });
}

#[test]
fn sglang_server() {
    replay(
        "sglang-0.5.23_single",
        "server/0",
        || Scene::server(Producer::Sglang),
        |_| Expected {
            gauges: &["running", "waiting"],
            windows: &["itl", "ttft"],
            hits: &["device-prefix"],
            missing: &[
                ("host-prefix", "Unsupported", false),
                ("storage-prefix", "Unsupported", false),
            ],
        },
    );
}

/// No request failed, so the failure counter does not exist yet; its pair, the transfer size, was read.
#[test]
fn sglang_prefill_half() {
    let scene = || Scene::pair(Producer::Sglang).fail("decode/0", 0.0, "Refused");
    replay("sglang-0.5.23_pd_prefill", "prefill/0", scene, |_| Expected {
        gauges: &["running", "waiting"],
        windows: &["transfer-latency", "transfer-size", "transfer-speed"],
        hits: &["device-prefix"],
        missing: &[
            ("host-prefix", "Unsupported", false),
            ("sglang:num_transfer_failed_reqs_total", "NotExportedYet", false),
            ("storage-prefix", "Unsupported", false),
        ],
    });
}

/// Cache hits and transfers of a decode half are silent.
#[test]
fn sglang_decode_half() {
    let scene = || Scene::pair(Producer::Sglang).fail("prefill/0", 0.0, "Refused");
    replay("sglang-0.5.23_pd_decode", "decode/0", scene, |_| Expected {
        gauges: &["decode-transfer-waiting", "running", "waiting"],
        windows: &["itl", "ttft"],
        hits: &[],
        missing: &[],
    });
}

/// Round robin keeps no gauge of running requests. Retries are first exhausted in capture 06.
#[test]
fn vllm_router() {
    let scene = || Scene::router_alone(Producer::VllmRouter, |facts| facts.tracks_load = Some(TracksLoad::No));
    replay("vllm-router-0.1.17_ordinary", "router/0", scene, |last| match last {
        "06_retries_exhausted_503" | "07_worker2_killed" | "08_all_workers_down" => Expected {
            gauges: &["router-reported-workers"],
            windows: &["errors", "retries-exhausted", "successful-requests"],
            hits: &[],
            missing: &[("vllm_router_running_requests", "Unsupported", false)],
        },
        _ => Expected {
            gauges: &["router-reported-workers"],
            windows: &["errors", "successful-requests"],
            hits: &[],
            missing: &[
                ("vllm_router_retries_exhausted_total", "NotExportedYet", false),
                ("vllm_router_running_requests", "Unsupported", false),
            ],
        },
    });
}

#[test]
fn vllm_router_of_a_pair() {
    let scene = || {
        Scene::router_alone(Producer::VllmRouter, |facts| {
            facts.paired = true;
            facts.tracks_load = Some(TracksLoad::No);
        })
    };
    replay("vllm-router-0.1.17_pd", "router/0", scene, |_| Expected {
        gauges: &[],
        windows: &["pd-requests"],
        hits: &[],
        missing: &[
            ("vllm_router_active_workers", "Unsupported", false),
            ("vllm_router_pd_errors_total", "NotExportedYet", false),
            ("vllm_router_running_requests", "Unsupported", false),
        ],
    });
}

/// Before any request the counters do not exist, and no pair says that this is all right. Errors are first counted in capture 07 of
/// 0.3.2. Without their counter there is no ratio.
#[test]
fn sglang_gateway() {
    let scene = || {
        Scene::router_alone(Producer::SglangGateway, |facts| {
            facts.tracks_load = Some(TracksLoad::No)
        })
    };
    let expected = |last: &str| match last {
        "01_before_any_request" => Expected {
            gauges: &["router-backends"],
            windows: &[],
            hits: &[],
            missing: &[
                ("smg_http_responses_total", "NotExportedYet", true),
                ("smg_router_request_errors_total", "NotExportedYet", true),
                ("smg_router_requests_total", "NotExportedYet", true),
                ("smg_worker_requests_active", "Unsupported", false),
            ],
        },
        "07_worker2_killed" | "08_all_workers_down" | "09_recovered" => Expected {
            gauges: &["router-backends"],
            windows: &["error-ratio", "errors", "http-5xx-responses", "requests"],
            hits: &[],
            missing: &[("smg_worker_requests_active", "Unsupported", false)],
        },
        _ => Expected {
            gauges: &["router-backends"],
            windows: &["http-5xx-responses", "requests"],
            hits: &[],
            missing: &[
                ("smg_router_request_errors_total", "NotExportedYet", false),
                ("smg_worker_requests_active", "Unsupported", false),
            ],
        },
    };
    replay("sglang-router-0.3.2_ordinary", "router/0", scene, expected);
    // 1.13.0 keeps the gauge under every policy, from the first request on.
    replay("smg-1.13.0_ordinary", "router/0", scene, |last| match last {
        "01_before_any_request" => expected(last),
        _ => Expected {
            gauges: &["router-backends", "router-running"],
            windows: &["http-5xx-responses", "requests"],
            hits: &[],
            missing: &[("smg_router_request_errors_total", "NotExportedYet", false)],
        },
    });
}
