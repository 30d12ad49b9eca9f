//! Whole tables, read by eye once and held since.

use model_deployment_crds::metrics::ModelDeploymentMetrics;
use serde_json::json;

use super::table;

/// A pair of two prefill Pods and one decode Pod behind a router; one prefill Pod cannot be read.
fn answer() -> ModelDeploymentMetrics {
    let time = "2026-01-02T03:04:05.000006Z";
    let gauge = |name: &str, role: Option<&str>, value: u32, pods: u32, expected: u32| {
        let scope = role.map_or("router", |_| "engine");
        json!({"name": name, "source": "s", "scope": scope, "role": role, "unit": "requests", "value": value,
            "podCount": pods, "expectedPods": expected, "observedAt": time})
    };
    let windowed =
        |name: &str, pod: &str, role: Option<&str>, unit: &str, value: f64, quantiles: Option<(f64, f64)>| {
            let scope = role.map_or("router", |_| "engine");
            let quantiles = quantiles.map(|(p50, p99)| json!({"p50": p50, "p90": 0, "p95": 0, "p99": p99}));
            json!({"name": name, "pod": pod, "source": "s", "scope": scope, "role": role, "unit": unit, "value": value,
            "samples": 1, "windowSeconds": 2, "observedAt": time, "quantiles": quantiles})
        };
    let missing = |pod: &str, source: &str, code: &str, reason: &str, required: bool| json!({"pod": pod, "source": source, "code": code, "reason": reason, "required": required});
    let (prefill, decode) = (Some("prefill"), Some("decode"));
    serde_json::from_value(json!({
        "apiVersion": "worker.gpustack.ai/v1",
        "kind": "ModelDeploymentMetrics",
        "metadata": {"name": "chat", "namespace": "ns"},
        "timestamp": time,
        "processing": [
            gauge("router-backends", None, 3, 1, 1),
            gauge("router-running", None, 12, 1, 1),
            gauge("running", decode, 11, 1, 1),
            gauge("running", prefill, 0, 1, 2),
        ],
        "queueing": [
            gauge("decode-transfer-waiting", decode, 2, 1, 1),
            gauge("waiting", decode, 0, 1, 1),
            gauge("waiting", prefill, 7, 1, 2),
        ],
        "cacheHits": [{"pod": "chat-prefill-0", "source": "s", "scope": "device-prefix", "role": "prefill", "roleKind": "Prefill",
            "unit": "tokens", "hits": 3, "queries": 4, "rate": 0.75, "windowSeconds": 2, "podCount": 1, "observedAt": time}],
        "latency": [
            windowed("itl", "chat-decode-0", decode, "seconds", 0.02, Some((0.018_25, 0.1))),
            windowed("ttft", "chat-decode-0", decode, "seconds", 0.5, None),
        ],
        "traffic": [
            windowed("error-ratio", "chat-router-7d9-x", None, "fraction", 0.5, None),
            windowed("errors", "chat-router-7d9-x", None, "errors/second", 0.0, None),
            windowed("requests", "chat-router-7d9-x", None, "requests/second", 4.5, None),
        ],
        "missing": [
            missing("", "engine/prefill", "PodsMissing", "Role prefill has 1 of its 2 expected Pods.", true),
            missing("chat-prefill-0", "storage-prefix", "Unsupported", "The Pod builds no storage tier.", false),
            missing("chat-prefill-1", "scrape", "Timeout", "The Pod did not answer\u{1b}[2J in time.", true),
        ],
        "partial": true,
    }))
    .unwrap()
}

#[test]
fn one_line_a_role_and_pod_then_what_is_missing_required_first() {
    insta::assert_snapshot!(table(&answer(), false), @r"
    chat in ns, 2026-01-02T03:04:05.000006Z, partial

    ROLE     POD                PODS  RUNNING  WAITING  TRANSFERRING  DEVICE HITS  TTFT P50/P99   ITL P50/P99  REQUESTS/S  ERRORS/S
    decode   chat-decode-0       1/1       11        0             2                 mean 500ms  18.2ms/100ms
    prefill                      1/2        0        7
    prefill  chat-prefill-0                                                   75%
    router   chat-router-7d9-x   1/1       12                                                                        4.50         0

    MISSING      REQUIRED  POD             SOURCE          REASON
    PodsMissing  yes                       engine/prefill  Role prefill has 1 of its 2 expected Pods.
    Timeout      yes       chat-prefill-1  scrape          The Pod did not answer�[2J in time.
    Unsupported  no        chat-prefill-0  storage-prefix  The Pod builds no storage tier.
    ");
}

#[test]
fn colours_add_nothing_but_colours() {
    let coloured = table(&answer(), true);
    assert!(coloured.contains("\x1b[31mpartial\x1b[0m"), "{coloured}");
    assert!(coloured.contains("\x1b[31mTimeout\x1b[0m"), "{coloured}");
    assert!(coloured.contains("\x1b[33mUnsupported\x1b[0m"), "{coloured}");
    let mut plain = coloured;
    for code in ["\x1b[0m", "\x1b[1m", "\x1b[31m", "\x1b[33m"] {
        plain = plain.replace(code, "");
    }
    assert_eq!(plain, table(&answer(), false));
}

#[test]
fn an_answer_without_figures_has_no_empty_table() {
    let mut answer = answer();
    answer.partial = false;
    for list in [&mut answer.processing, &mut answer.queueing] {
        list.clear();
    }
    for list in [&mut answer.latency, &mut answer.traffic] {
        list.clear();
    }
    answer.cache_hits.clear();
    answer.missing.clear();
    assert_eq!(
        table(&answer, false),
        "chat in ns, 2026-01-02T03:04:05.000006Z\n\nNothing is missing.\n"
    );
}
