//! The field table and the table of codes: what each figure of an answer is read from, who is asked for it, and the words for what is
//! missing.
//!
//! Owns every series name, unit and prefix, and decides from a Pod's facts what the Pod is asked for. Refuses to know a body's content
//! and how a figure is computed. The one place that a new version of an engine or a router changes.

mod code;
mod field;
mod markdown;
mod table;
mod wanted;

pub use code::{Code, UnknownCode};
pub use field::{Birth, Field, Layout, List, Measure, Only, Pick, Provision, Readers, Support};
pub use markdown::markdown;
pub use table::FIELDS;
pub use wanted::wanted;

use crate::pod::{Facts, Producer};

/// What a Pod with these facts is asked for, in the order of the table. Fields that are not here are silent for it.
pub fn required_sources(facts: &Facts) -> impl Iterator<Item = (&'static Field, Support)> {
    FIELDS.iter().filter_map(|field| Some((field, field.support(facts)?)))
}

/// The row of this name and producer.
pub fn find(producer: Producer, name: &str) -> Option<&'static Field> {
    FIELDS
        .iter()
        .find(|field| field.producer == producer && field.name == name)
}

/// What the names of all series of a producer start with.
pub fn prefix(producer: Producer) -> &'static str {
    match producer {
        Producer::Vllm => "vllm:",
        Producer::Sglang => "sglang:",
        Producer::LlmDRouter => "llm_d_epp_",
        Producer::VllmRouter => "vllm_router_",
        Producer::SglangGateway => "smg_",
        Producer::Coordinator => "llm_d_coordinator_",
    }
}

/// The `scope` of a producer's figures.
pub fn scope(producer: Producer) -> &'static str {
    match producer {
        Producer::Vllm | Producer::Sglang => "engine",
        Producer::LlmDRouter | Producer::VllmRouter | Producer::SglangGateway => "router",
        Producer::Coordinator => "coordinator",
    }
}
