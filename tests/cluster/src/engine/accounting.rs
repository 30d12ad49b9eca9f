//! Which families a served request moves, and by how much.
//!
//! Owns the names of series. A family that a mode lacks is passed over, since the captured body decides what exists.

use std::time::Duration;

use super::arguments::{Arguments, Half, Kind};
use super::exposition::Exposition;

/// Requests inside the engine now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Load {
    pub(super) running: usize,
    pub(super) waiting: usize,
}

/// One finished request.
#[derive(Debug, Clone)]
pub(super) struct Served {
    pub(super) prompt: u64,
    pub(super) cached: u64,
    pub(super) completion: u64,
    pub(super) max_tokens: u64,
    pub(super) streaming: bool,
    pub(super) finish: &'static str,
    /// From arrival to a slot.
    pub(super) queued: Duration,
    /// From arrival to the first token.
    pub(super) first: Duration,
    /// From arrival to the last token.
    pub(super) total: Duration,
}

/// One HTTP answer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Answered<'a> {
    pub(super) method: &'a str,
    pub(super) path: &'a str,
    pub(super) status: u16,
    pub(super) taken: Duration,
}

/// Bytes of KV that a token of the captured model takes: 2 layers × 2 (key, value) × 128 × 2 bytes.
const BYTES_PER_TOKEN: f64 = 1024.0;

#[allow(clippy::cast_precision_loss, reason = "counts of a test, far below 2^53")]
pub(super) fn load(body: &mut Exposition, arguments: &Arguments, load: Load) {
    let (running, waiting) = (load.running as f64, load.waiting as f64);
    let used = (running / arguments.slots as f64).min(1.0);
    match arguments.kind {
        Kind::Vllm => {
            body.put("vllm:num_requests_running", &[], running);
            body.put("vllm:num_requests_waiting", &[], waiting);
            body.put(
                "vllm:num_requests_waiting_by_reason",
                &[("reason", "capacity")],
                waiting,
            );
            body.put("vllm:kv_cache_usage_perc", &[], used);
        }
        Kind::Sglang => {
            body.put("sglang:num_running_reqs", &[], running);
            body.put("sglang:num_queue_reqs", &[], waiting);
            body.put("sglang:token_usage", &[], used);
        }
        Kind::Stub => {}
    }
}

#[allow(clippy::cast_precision_loss, reason = "counts of a test, far below 2^53")]
pub(super) fn finished(body: &mut Exposition, arguments: &Arguments, served: &Served) {
    let (prompt, cached, completion) = (served.prompt as f64, served.cached as f64, served.completion as f64);
    let gaps = served.completion.saturating_sub(1);
    let total = served.total.as_secs_f64();
    let first = served.first.as_secs_f64();
    let per_token = if gaps == 0 { 0.0 } else { (total - first) / gaps as f64 };
    let queued = served.queued.as_secs_f64();
    match arguments.kind {
        Kind::Vllm => {
            for (name, amount) in [
                ("vllm:prefix_cache_queries_total", prompt),
                ("vllm:prefix_cache_hits_total", cached),
                ("vllm:prompt_tokens_total", prompt),
                ("vllm:prompt_tokens_cached_total", cached),
                ("vllm:generation_tokens_total", completion),
            ] {
                body.add(name, &[], amount);
            }
            for (source, amount) in [("local_compute", prompt - cached), ("local_cache_hit", cached)] {
                body.add("vllm:prompt_tokens_by_source_total", &[("source", source)], amount);
            }
            body.add(
                "vllm:prompt_tokens_cached_by_source_total",
                &[("source", "device")],
                cached,
            );
            body.add("vllm:request_success_total", &[("finished_reason", served.finish)], 1.0);
            for (family, value, times) in [
                ("vllm:request_prompt_tokens", prompt, 1),
                ("vllm:request_generation_tokens", completion, 1),
                ("vllm:request_max_num_generation_tokens", completion, 1),
                ("vllm:request_params_n", 1.0, 1),
                ("vllm:request_params_max_tokens", served.max_tokens as f64, 1),
                ("vllm:iteration_tokens_total", prompt - cached + 1.0, 1),
                ("vllm:iteration_tokens_total", 1.0, gaps),
                ("vllm:time_to_first_token_seconds", first, 1),
                ("vllm:inter_token_latency_seconds", per_token, gaps),
                ("vllm:request_time_per_output_token_seconds", per_token, 1),
                ("vllm:e2e_request_latency_seconds", total, 1),
                ("vllm:request_queue_time_seconds", queued, 1),
                ("vllm:request_inference_time_seconds", total - queued, 1),
                ("vllm:request_prefill_time_seconds", first - queued, 1),
                ("vllm:request_decode_time_seconds", total - first, 1),
                ("vllm:request_num_preemptions", 0.0, 1),
                ("vllm:request_prefill_kv_computed_tokens", prompt - cached, 1),
            ] {
                body.record(family, &[], value, times);
            }
            match arguments.half {
                Some(Half::Prefill) => body.add("vllm:external_prefix_cache_queries_total", &[], prompt),
                Some(Half::Decode) => {
                    body.add("vllm:external_prefix_cache_queries_total", &[], prompt);
                    body.add("vllm:external_prefix_cache_hits_total", &[], prompt);
                    body.record("vllm:nixl_xfer_time_seconds", &[], first - queued, 1);
                    body.record("vllm:nixl_post_time_seconds", &[], (first - queued) / 10.0, 1);
                    body.record("vllm:nixl_bytes_transferred", &[], prompt * BYTES_PER_TOKEN, 1);
                    body.record("vllm:nixl_num_descriptors", &[], prompt, 1);
                }
                None => {}
            }
        }
        Kind::Sglang => {
            let streaming = [("is_streaming", if served.streaming { "true" } else { "false" })];
            body.add("sglang:prompt_tokens_total", &streaming, prompt);
            body.add("sglang:generation_tokens_total", &streaming, completion);
            body.add("sglang:num_requests_total", &streaming, 1.0);
            body.record("sglang:time_to_first_token_seconds", &streaming, first, 1);
            body.record("sglang:e2e_request_latency_seconds", &streaming, total, 1);
            body.record("sglang:request_time_per_output_token_seconds", &streaming, per_token, 1);
            body.record("sglang:prompt_tokens_histogram", &[], prompt, 1);
            body.record("sglang:uncached_prompt_tokens_histogram", &[], prompt - cached, 1);
            body.record("sglang:generation_tokens_histogram", &[], completion, 1);
            body.record("sglang:queue_time_seconds", &[], queued, 1);
            if served.streaming && gaps > 0 {
                body.record("sglang:inter_token_latency_seconds", &[], per_token, gaps);
            }
            if cached > 0.0 {
                body.add("sglang:cached_tokens_total", &[("cache_source", "device")], cached);
            }
            if arguments.half != Some(Half::Decode) {
                body.add(
                    "sglang:prefill_effective_tokens_total",
                    &[("mode", "input")],
                    prompt - cached,
                );
                body.add(
                    "sglang:prefill_effective_tokens_total",
                    &[("mode", "device_hit")],
                    cached,
                );
            }
            if arguments.half == Some(Half::Prefill) {
                let megabytes = prompt * BYTES_PER_TOKEN / 1e6;
                let seconds = (total - queued).max(1e-6);
                body.record("sglang:kv_transfer_latency_ms", &[], seconds * 1e3, 1);
                body.record("sglang:kv_transfer_total_mb", &[], megabytes, 1);
                body.record("sglang:kv_transfer_speed_gb_s", &[], megabytes / 1e3 / seconds, 1);
            }
        }
        Kind::Stub => {}
    }
}

/// Counts an answer in the families of the HTTP layer.
pub(super) fn answered(body: &mut Exposition, kind: Kind, answer: Answered<'_>) {
    let taken = answer.taken.as_secs_f64();
    match kind {
        Kind::Vllm => {
            let class = format!("{}xx", answer.status / 100);
            let handler = [("handler", answer.path), ("method", answer.method)];
            body.add(
                "http_requests_total",
                &[handler[0], handler[1], ("status", &class)],
                1.0,
            );
            body.record("http_request_duration_seconds", &handler, taken, 1);
            body.record("http_request_duration_highr_seconds", &[], taken, 1);
        }
        Kind::Sglang => {
            let status = answer.status.to_string();
            let endpoint = [("endpoint", answer.path), ("method", answer.method)];
            body.add("sglang:http_requests_total", &endpoint, 1.0);
            body.add(
                "sglang:http_responses_total",
                &[endpoint[0], endpoint[1], ("status_code", &status)],
                1.0,
            );
        }
        Kind::Stub => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::capture;

    fn served() -> Served {
        Served {
            prompt: 48,
            cached: 32,
            completion: 5,
            max_tokens: 5,
            streaming: true,
            finish: "length",
            queued: Duration::ZERO,
            first: Duration::from_millis(125),
            total: Duration::from_millis(625),
        }
    }

    fn value(body: &str, series: &str) -> f64 {
        let line = body
            .lines()
            .find(|l| l.rsplit_once(' ').is_some_and(|(s, _)| s == series));
        line.and_then(|l| l.rsplit_once(' '))
            .unwrap_or_else(|| panic!("no {series}"))
            .1
            .parse()
            .unwrap()
    }

    #[test]
    fn a_vllm_request_moves_its_families() {
        let argv = ["vllm", "serve", "m"].map(str::to_owned);
        let arguments = Arguments::read(&argv);
        let mut body = capture::body(&arguments).unwrap();
        finished(&mut body, &arguments, &served());
        let text = body.text();
        let labels = "engine=\"0\",model_name=\"m\"";
        for (series, expected) in [
            ("vllm:prefix_cache_queries_total", 48.0),
            ("vllm:prefix_cache_hits_total", 32.0),
            ("vllm:prompt_tokens_total", 48.0),
            ("vllm:generation_tokens_total", 5.0),
            ("vllm:time_to_first_token_seconds_sum", 0.125),
            ("vllm:time_to_first_token_seconds_count", 1.0),
            ("vllm:inter_token_latency_seconds_sum", 0.5),
            ("vllm:inter_token_latency_seconds_count", 4.0),
            ("vllm:request_time_per_output_token_seconds_sum", 0.125),
            ("vllm:e2e_request_latency_seconds_sum", 0.625),
        ] {
            assert_eq!(value(&text, &format!("{series}{{{labels}}}")), expected, "{series}");
        }
        let bucket =
            |le: &str| format!("vllm:time_to_first_token_seconds_bucket{{engine=\"0\",le=\"{le}\",model_name=\"m\"}}");
        assert_eq!(value(&text, &bucket("0.1")), 0.0);
        assert_eq!(value(&text, &bucket("0.25")), 1.0);
        assert_eq!(value(&text, &bucket("+Inf")), 1.0);
        let reason = "vllm:request_success_total{engine=\"0\",finished_reason=\"length\",model_name=\"m\"}";
        assert_eq!(value(&text, reason), 1.0);
    }

    #[test]
    fn an_sglang_pair_counts_transfer_on_the_prefill_half_and_first_token_on_the_decode_half() {
        let half = |mode: &str| {
            let line =
                format!("python3 -m sglang.launch_server --model-path m --enable-metrics --disaggregation-mode {mode}");
            let argv: Vec<String> = line.split(' ').map(str::to_owned).collect();
            let arguments = Arguments::read(&argv);
            let mut body = capture::body(&arguments).unwrap();
            finished(&mut body, &arguments, &served());
            body.text()
        };
        let (prefill, decode) = (half("prefill"), half("decode"));
        assert!(prefill.contains("sglang:kv_transfer_latency_ms_count{"));
        assert!(!prefill.contains("sglang:time_to_first_token_seconds"));
        assert!(decode.contains("sglang:time_to_first_token_seconds_count{"));
        assert!(!decode.contains("sglang:kv_transfer_latency_ms"));
    }
}
