//! The annotations of a Pod in both directions: the four by which Prometheus finds a metrics listener, and the Pod's facts.
//!
//! Facts are believed only where they hold against what nobody can change in a created Pod: its containers' declared ports.

use k8s_openapi::api::core::v1::Pod;
use thiserror::Error;

use super::facts::{Endpoint, Facts, Listener, Member, Scheme, VERSION};
use super::labels::{self, Map};

/// Whether to scrape.
pub const SCRAPE: &str = "prometheus.io/scrape";
/// Path of the metrics.
pub const PATH: &str = "prometheus.io/path";
/// Port of the metrics listener.
pub const PORT: &str = "prometheus.io/port";
/// `http` or `https`.
pub const SCHEME: &str = "prometheus.io/scheme";
/// The Pod's facts, as versioned JSON.
pub const FACTS: &str = "modeldeployment.gpustack.ai/facts";

/// Why a Pod's facts are not believed.
#[derive(Debug, Error)]
pub enum FactsError {
    /// Nothing was written.
    #[error("the Pod carries no {FACTS} annotation")]
    Absent,
    /// Not facts.
    #[error("the {FACTS} annotation is not readable")]
    Malformed(#[source] serde_json::Error),
    /// Written by a newer operator.
    #[error("the {FACTS} annotation has version {0}, not {VERSION}")]
    Version(u32),
    /// The Pod's labels say otherwise.
    #[error("the {FACTS} annotation and the Pod's labels differ in {0}")]
    Labels(&'static str),
    /// The port of the facts is not that of exactly one container.
    #[error("the {FACTS} annotation names port {0}, which not exactly one container declares")]
    Port(u16),
}

/// The annotations that a Pod with these facts is created with.
pub fn write(facts: &Facts) -> Map {
    let mut annotations = Map::new();
    if let Endpoint::Listener(listener) = &facts.endpoint {
        annotations.extend(write_listener(listener));
    }
    annotations.insert(FACTS.into(), serde_json::to_string(facts).expect("facts are JSON"));
    annotations
}

fn write_listener(listener: &Listener) -> [(String, String); 4] {
    let scheme = match listener.scheme {
        Scheme::Http => "http",
        Scheme::Https => "https",
    };
    [
        (SCRAPE.into(), "true".into()),
        (PATH.into(), listener.path.clone()),
        (PORT.into(), listener.port.to_string()),
        (SCHEME.into(), scheme.into()),
    ]
}

/// Reads a Pod's facts and holds them against the Pod: its labels name the same role, member and revision, and exactly one container
/// declares the metrics port.
///
/// # Errors
/// One reason for which the facts are not believed.
pub fn read(pod: &Pod) -> Result<Facts, FactsError> {
    let written = pod
        .metadata
        .annotations
        .as_ref()
        .and_then(|all| all.get(FACTS))
        .ok_or(FactsError::Absent)?;
    #[derive(serde::Deserialize)]
    struct Versioned {
        version: u32,
    }
    let Versioned { version } = serde_json::from_str(written).map_err(FactsError::Malformed)?;
    if version != VERSION {
        return Err(FactsError::Version(version));
    }
    let facts: Facts = serde_json::from_str(written).map_err(FactsError::Malformed)?;
    check_labels(&facts, pod)?;
    if let Endpoint::Listener(listener) = &facts.endpoint
        && declarations(pod, listener.port) != 1
    {
        return Err(FactsError::Port(listener.port));
    }
    Ok(facts)
}

fn check_labels(facts: &Facts, pod: &Pod) -> Result<(), FactsError> {
    let place = labels::read(pod).ok_or(FactsError::Labels("role"))?;
    let member = place.position.map(|position| {
        if position.member == 0 {
            Member::Leader
        } else {
            Member::Follower
        }
    });
    if facts.role != place.role {
        return Err(FactsError::Labels("role"));
    }
    if facts.member != member {
        return Err(FactsError::Labels("member"));
    }
    if facts.revision != place.revision {
        return Err(FactsError::Labels("revision"));
    }
    Ok(())
}

/// How many containers of the Pod, sidecars included, declare `port` over TCP.
fn declarations(pod: &Pod, port: u16) -> usize {
    let Some(spec) = &pod.spec else { return 0 };
    spec.containers
        .iter()
        .chain(spec.init_containers.iter().flatten())
        .filter(|container| {
            container.ports.iter().flatten().any(|declared| {
                declared.container_port == i32::from(port) && declared.protocol.as_deref().unwrap_or("TCP") == "TCP"
            })
        })
        .count()
}
