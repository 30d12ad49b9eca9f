//! The captured bodies, and which one a command line gets.
//!
//! Owns the choice alone. Origin of the files: `tests/fixtures/exposition/README.md`.

use super::arguments::{Arguments, Half, Kind};
use super::exposition::Exposition;

macro_rules! capture {
    ($name:literal) => {
        include_str!(concat!("../../../fixtures/exposition/", $name, ".prom"))
    };
}

/// The model name of every capture.
const CAPTURED_MODEL: &str = "tiny-model";

type Pair = (&'static str, &'static str);

const VLLM: Pair = (
    capture!("vllm-0.32.0_single_01_idle_after_start"),
    capture!("vllm-0.32.0_single_02_after_20_requests"),
);
const VLLM_PREFILL: Pair = (
    capture!("vllm-0.32.0_nixl_prefill_01_idle"),
    capture!("vllm-0.32.0_nixl_prefill_02_after_15_requests"),
);
const VLLM_DECODE: Pair = (
    capture!("vllm-0.32.0_nixl_decode_01_idle"),
    capture!("vllm-0.32.0_nixl_decode_02_after_15_requests"),
);
const VLLM_NO_STATS: Pair = (
    capture!("vllm-0.32.0_tls_disable-log-stats_01_idle"),
    capture!("vllm-0.32.0_tls_disable-log-stats_01_idle"),
);
const VLLM_OFFLOAD: Pair = (
    capture!("vllm-0.32.0_collectorclass_kvoffload_01_idle"),
    capture!("vllm-0.32.0_collectorclass_kvoffload_02_after_transfers"),
);
const SGLANG: Pair = (
    capture!("sglang-0.5.23_single_01_idle_after_start"),
    capture!("sglang-0.5.23_single_02_after_20_requests"),
);
const SGLANG_PREFILL: Pair = (
    capture!("sglang-0.5.23_pd_prefill_01_idle"),
    capture!("sglang-0.5.23_pd_prefill_02_after_14_requests"),
);
const SGLANG_DECODE: Pair = (
    capture!("sglang-0.5.23_pd_decode_01_idle"),
    capture!("sglang-0.5.23_pd_decode_02_after_14_requests"),
);
const SGLANG_HICACHE: Pair = (
    capture!("sglang-0.5.23_collectorclass_hicache_01_idle"),
    capture!("sglang-0.5.23_collectorclass_hicache_02_after_transfers"),
);

/// Every pair that a body can start from.
#[cfg(test)]
pub(super) const ALL: &[Pair] = &[
    VLLM,
    VLLM_PREFILL,
    VLLM_DECODE,
    VLLM_NO_STATS,
    SGLANG,
    SGLANG_PREFILL,
    SGLANG_DECODE,
];

/// The body of a program that has just started with these arguments; `None` where it would answer 404 (SGLang without
/// `--enable-metrics`).
pub(super) fn body(arguments: &Arguments) -> Option<Exposition> {
    if !arguments.statistics && arguments.kind == Kind::Sglang {
        return None;
    }
    let (idle, after) = match (arguments.kind, arguments.half) {
        (Kind::Stub, _) => ("", ""),
        (Kind::Vllm, _) if !arguments.statistics => VLLM_NO_STATS,
        (Kind::Vllm, None) => VLLM,
        (Kind::Vllm, Some(Half::Prefill)) => VLLM_PREFILL,
        (Kind::Vllm, Some(Half::Decode)) => VLLM_DECODE,
        (Kind::Sglang, None) => SGLANG,
        (Kind::Sglang, Some(Half::Prefill)) => SGLANG_PREFILL,
        (Kind::Sglang, Some(Half::Decode)) => SGLANG_DECODE,
    };
    let mut exposition = Exposition::new(idle, after);
    if arguments.host_tier && arguments.statistics {
        match arguments.kind {
            Kind::Vllm => exposition.append(VLLM_OFFLOAD.0, VLLM_OFFLOAD.1),
            Kind::Sglang => exposition.append(SGLANG_HICACHE.0, SGLANG_HICACHE.1),
            Kind::Stub => {}
        }
    }
    exposition.relabel("model_name", CAPTURED_MODEL, &arguments.model);
    Some(exposition)
}
