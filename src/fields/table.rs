//! The rows: every cell of the document's tables "Per-field series" and of its router table. What a new version of an engine or
//! router changes, changes here and nowhere else.

use super::field::{Birth, Field, Layout, List, Measure, Only, Pick, Provision, Readers};
use crate::pod::Producer;

/// The field table, by producer.
pub const FIELDS: &[Field] = &[
    // vLLM, and vLLM-Ascend, which is read as vLLM.
    gauge("running", Producer::Vllm, List::Processing, "vllm:num_requests_running"),
    gauge("waiting", Producer::Vllm, List::Queueing, "vllm:num_requests_waiting"),
    hits(
        "local-prefix",
        "vllm:prefix_cache_hits_total",
        "vllm:prefix_cache_queries_total",
    ),
    Field {
        provision: Provision::Pool,
        ..hits(
            "external-store",
            "vllm:external_prefix_cache_hits_total",
            "vllm:external_prefix_cache_queries_total",
        )
    },
    latency("ttft", Producer::Vllm, "vllm:time_to_first_token_seconds"),
    Field {
        readers: Readers::NotPrefill,
        ..latency("tpot", Producer::Vllm, "vllm:request_time_per_output_token_seconds")
    },
    Field {
        readers: Readers::NotPrefill,
        ..latency("itl", Producer::Vllm, "vllm:inter_token_latency_seconds")
    },
    // SGLang.
    Field {
        layout: Layout::Schedulers,
        ..gauge("running", Producer::Sglang, List::Processing, "sglang:num_running_reqs")
    },
    Field {
        layout: Layout::Schedulers,
        ..gauge("waiting", Producer::Sglang, List::Queueing, "sglang:num_queue_reqs")
    },
    Field {
        layout: Layout::Schedulers,
        readers: Readers::Decode,
        ..gauge(
            "decode-transfer-waiting",
            Producer::Sglang,
            List::Queueing,
            "sglang:num_decode_transfer_queue_reqs",
        )
    },
    tier("device-prefix", &["device_hit"]),
    Field {
        provision: Provision::HostTier,
        ..tier("host-prefix", &["host_hit"])
    },
    Field {
        provision: Provision::StorageTier,
        ..tier("storage-prefix", &["storage_hit"])
    },
    Field {
        readers: Readers::NotPrefill,
        ..latency("ttft", Producer::Sglang, "sglang:time_to_first_token_seconds")
    },
    Field {
        readers: Readers::NotPrefill,
        birth: Birth::FirstStream,
        ..latency("itl", Producer::Sglang, "sglang:inter_token_latency_seconds")
    },
    transfer("transfer-latency", "sglang:kv_transfer_latency_ms", "milliseconds"),
    transfer("transfer-speed", "sglang:kv_transfer_speed_gb_s", "GB/second"),
    transfer("transfer-size", "sglang:kv_transfer_total_mb", "MB"),
    Field {
        list: List::Transfer,
        layout: Layout::Schedulers,
        readers: Readers::Prefill,
        ..rate(
            "transfer-failures",
            Producer::Sglang,
            "sglang:num_transfer_failed_reqs_total",
            "errors/second",
            Some("transfer-size"),
        )
    },
    // llm-d-router.
    gauge(
        "router-running",
        Producer::LlmDRouter,
        List::Processing,
        "llm_d_epp_request_running",
    ),
    Field {
        unit: "backends",
        ..gauge(
            "router-backends",
            Producer::LlmDRouter,
            List::Processing,
            "llm_d_epp_ready_endpoints",
        )
    },
    rate(
        "requests",
        Producer::LlmDRouter,
        "llm_d_epp_request_total",
        "requests/second",
        None,
    ),
    rate(
        "request-errors",
        Producer::LlmDRouter,
        "llm_d_epp_request_error_total",
        "errors/second",
        Some("requests"),
    ),
    Field {
        birth: Birth::Late { pair: None },
        ..latency("ttft", Producer::LlmDRouter, "llm_d_epp_request_ttft_seconds")
    },
    // Absent in released images; part of the router's contract all the same.
    Field {
        birth: Birth::Perhaps,
        ..latency("tpot", Producer::LlmDRouter, "llm_d_epp_request_streaming_tpot_seconds")
    },
    // vllm-router; its PD mode records series of its own.
    Field {
        provision: Provision::TracksLoad,
        birth: Birth::Perhaps,
        ..gauge(
            "router-running",
            Producer::VllmRouter,
            List::Processing,
            "vllm_router_running_requests",
        )
    },
    Field {
        unit: "workers",
        provision: Provision::OrdinaryRouter,
        ..gauge(
            "router-reported-workers",
            Producer::VllmRouter,
            List::Processing,
            "vllm_router_active_workers",
        )
    },
    Field {
        readers: Readers::Ordinary,
        ..rate(
            "successful-requests",
            Producer::VllmRouter,
            "vllm_router_requests_total",
            "requests/second",
            None,
        )
    },
    Field {
        readers: Readers::Ordinary,
        ..rate(
            "errors",
            Producer::VllmRouter,
            "vllm_router_request_errors_total",
            "errors/second",
            Some("successful-requests"),
        )
    },
    Field {
        readers: Readers::Ordinary,
        ..rate(
            "retries-exhausted",
            Producer::VllmRouter,
            "vllm_router_retries_exhausted_total",
            "events/second",
            Some("successful-requests"),
        )
    },
    Field {
        readers: Readers::Pair,
        ..rate(
            "pd-requests",
            Producer::VllmRouter,
            "vllm_router_pd_requests_total",
            "requests/second",
            None,
        )
    },
    Field {
        readers: Readers::Pair,
        ..rate(
            "pd-errors",
            Producer::VllmRouter,
            "vllm_router_pd_errors_total",
            "errors/second",
            Some("pd-requests"),
        )
    },
    // The SGLang gateway. In a pair, newer ones count a request on both of its workers.
    Field {
        provision: Provision::TracksLoad,
        birth: Birth::Perhaps,
        ..gauge(
            "router-running",
            Producer::SglangGateway,
            List::Processing,
            "smg_worker_requests_active",
        )
    },
    Field {
        unit: "backends",
        ..gauge(
            "router-backends",
            Producer::SglangGateway,
            List::Processing,
            "smg_worker_pool_size",
        )
    },
    rate(
        "requests",
        Producer::SglangGateway,
        "smg_router_requests_total",
        "requests/second",
        None,
    ),
    rate(
        "errors",
        Producer::SglangGateway,
        "smg_router_request_errors_total",
        "errors/second",
        Some("requests"),
    ),
    Field {
        measure: Measure::Ratio {
            part: all("smg_router_request_errors_total"),
            whole: all("smg_router_requests_total"),
        },
        ..rate(
            "error-ratio",
            Producer::SglangGateway,
            "smg_router_requests_total",
            "fraction",
            None,
        )
    },
    Field {
        measure: Measure::Rate(Pick {
            family: "smg_http_responses_total",
            only: Only::ServerErrors,
        }),
        ..rate(
            "http-5xx-responses",
            Producer::SglangGateway,
            "smg_http_responses_total",
            "responses/second",
            Some("requests"),
        )
    },
];

const fn all(family: &'static str) -> Pick {
    Pick {
        family,
        only: Only::All,
    }
}

const fn row(name: &'static str, producer: Producer, list: List, measure: Measure, unit: &'static str) -> Field {
    Field {
        name,
        list,
        producer,
        measure,
        layout: Layout::Added,
        unit,
        readers: Readers::Every,
        provision: Provision::None,
        birth: Birth::Start,
    }
}

const fn gauge(name: &'static str, producer: Producer, list: List, family: &'static str) -> Field {
    row(name, producer, list, Measure::Gauge(family), "requests")
}

/// A cache of vLLM.
const fn hits(name: &'static str, hits: &'static str, queries: &'static str) -> Field {
    let measure = Measure::Ratio {
        part: all(hits),
        whole: all(queries),
    };
    row(name, Producer::Vllm, List::CacheHits, measure, "tokens")
}

/// A cache tier of SGLang: its hits, over the tokens that had to be computed and the hits of all tiers.
const fn tier(name: &'static str, mode: &'static [&'static str]) -> Field {
    const FAMILY: &str = "sglang:prefill_effective_tokens_total";
    let measure = Measure::Ratio {
        part: Pick {
            family: FAMILY,
            only: Only::Modes(mode),
        },
        whole: Pick {
            family: FAMILY,
            only: Only::Modes(&["input", "device_hit", "host_hit", "storage_hit"]),
        },
    };
    Field {
        layout: Layout::Schedulers,
        readers: Readers::NotDecode,
        ..row(name, Producer::Sglang, List::CacheHits, measure, "tokens")
    }
}

const fn latency(name: &'static str, producer: Producer, histogram: &'static str) -> Field {
    let measure = Measure::Mean {
        histogram,
        quantiles: true,
    };
    row(name, producer, List::Latency, measure, "seconds")
}

/// A KV transfer histogram of SGLang, which the sending half records with its first finished transfer.
const fn transfer(name: &'static str, histogram: &'static str, unit: &'static str) -> Field {
    let measure = Measure::Mean {
        histogram,
        quantiles: false,
    };
    Field {
        layout: Layout::Schedulers,
        readers: Readers::Prefill,
        birth: Birth::Late { pair: None },
        ..row(name, Producer::Sglang, List::Transfer, measure, unit)
    }
}

/// A labelled counter, which does not exist before its first increment.
const fn rate(
    name: &'static str,
    producer: Producer,
    family: &'static str,
    unit: &'static str,
    pair: Option<&'static str>,
) -> Field {
    Field {
        birth: Birth::Late { pair },
        ..row(name, producer, List::Traffic, Measure::Rate(all(family)), unit)
    }
}
