//! The families to look for in a producer's bodies.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::{FIELDS, Measure, prefix};
use crate::exposition::{Kind, Wanted};
use crate::pod::Producer;

const PRODUCERS: [Producer; 6] = [
    Producer::Vllm,
    Producer::Sglang,
    Producer::LlmDRouter,
    Producer::VllmRouter,
    Producer::SglangGateway,
    Producer::Coordinator,
];

/// The families of the field table for this producer, and its prefix.
pub fn wanted(producer: Producer) -> &'static Wanted {
    static WANTED: LazyLock<HashMap<Producer, Wanted>> = LazyLock::new(|| {
        PRODUCERS
            .into_iter()
            .map(|producer| (producer, build(producer)))
            .collect()
    });
    &WANTED[&producer]
}

fn build(producer: Producer) -> Wanted {
    let mut wanted = Wanted::default();
    wanted.add_prefix(prefix(producer));
    for field in FIELDS.iter().filter(|field| field.producer == producer) {
        match field.measure {
            Measure::Gauge(family) => wanted.add(family, Kind::Gauge),
            Measure::Mean {
                histogram,
                quantiles: true,
            } => wanted.add_with_buckets(histogram),
            Measure::Mean { histogram, .. } => wanted.add(histogram, Kind::Histogram),
            Measure::Rate(pick) => wanted.add(pick.family, Kind::Counter),
            Measure::Ratio { part, whole } => {
                wanted.add(part.family, Kind::Counter);
                wanted.add(whole.family, Kind::Counter);
            }
        }
    }
    wanted
}
