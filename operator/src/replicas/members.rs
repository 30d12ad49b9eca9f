//! Which replicas are ready, and where: from the EndpointSlices of the operator's Service.
//!
//! Knows Kubernetes' word for it and nothing of what a replica is asked. When the API server cannot be reached, the replicas last seen
//! stay.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;

use arc_swap::ArcSwap;
use futures::StreamExt;
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};
use kube::runtime::{WatchStreamExt, reflector, watcher};
use kube::{Api, Client};

use super::ownership;
use crate::console::sentence;

/// The Service port that replicas call one another at: the API server's own way to them.
const PORT: &str = "https";
/// The label by which a slice belongs to a Service.
const SERVICE: &str = "kubernetes.io/service-name";

/// A replica that is ready.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Name of its Pod.
    pub name: String,
    /// Where it listens, in each family that it has; IPv4 first.
    pub addresses: Vec<SocketAddr>,
}

/// The replicas that are ready, shared with those who read it. Empty until first seen.
#[derive(Debug, Clone)]
pub struct Members {
    /// Name of this replica's Pod.
    own: String,
    ready: Arc<ArcSwap<Ready>>,
}

/// Addresses by name of the Pod.
type Ready = BTreeMap<String, Vec<SocketAddr>>;

impl Members {
    /// As the replica whose Pod is called `own` sees them.
    pub fn new(own: &str) -> Self {
        Members {
            own: own.to_owned(),
            ready: Arc::default(),
        }
    }

    /// The other replica that owns `key`; `None` where this one does, or nobody is known to be ready.
    pub fn elsewhere(&self, key: &str) -> Option<Member> {
        self.owner(key, |_| true).filter(|owner| owner.name != self.own)
    }

    /// The replica that would own `key` without this one; `None` where no other is known to be ready.
    pub fn without_this(&self, key: &str) -> Option<Member> {
        self.owner(key, |name| name != self.own)
    }

    fn owner(&self, key: &str, counts: impl Fn(&str) -> bool) -> Option<Member> {
        let ready = self.ready.load();
        let names = ready.keys().map(String::as_str).filter(|name| counts(name));
        let owner = ownership::owner(names, key)?;
        Some(Member {
            name: owner.to_owned(),
            addresses: ready[owner].clone(),
        })
    }

    /// Follows the EndpointSlices of `service`. Never ends.
    pub async fn follow(self, client: Client, namespace: String, service: String) {
        let api: Api<EndpointSlice> = Api::namespaced(client, &namespace);
        let config = watcher::Config::default().labels(&format!("{SERVICE}={service}"));
        let (slices, writer) = reflector::store();
        let mut events = pin!(watcher(api, config).default_backoff().reflect(writer));
        let mut said = None;
        while let Some(event) = events.next().await {
            let trouble = event.as_ref().err().map(|error| sentence(error));
            if trouble.is_some() && trouble != said {
                let trouble = trouble.as_deref().unwrap_or_default();
                tracing::warn!("the operator's other replicas cannot be watched: {trouble}");
            }
            said = trouble;
            // Half of a new list is no news: the store shows it whole.
            if event.is_ok() {
                let ready = ready(slices.state().iter().map(|slice| &**slice));
                if **self.ready.load() != ready {
                    tracing::info!(replicas = ?ready.keys().collect::<Vec<_>>(), "the replicas that are ready");
                    self.ready.store(Arc::new(ready));
                }
            }
        }
    }
}

/// Who is ready, by all slices of one Service. One that is on its way out is not, whatever else its slice says.
fn ready<'a>(slices: impl IntoIterator<Item = &'a EndpointSlice>) -> Ready {
    let mut ready = Ready::new();
    for slice in slices {
        let mut ports = slice.ports.iter().flatten();
        let port = ports.find(|port| port.name.as_deref() == Some(PORT));
        let Some(port) = port.and_then(|port| u16::try_from(port.port?).ok()) else {
            continue;
        };
        for endpoint in slice.endpoints.iter().filter(|endpoint| is_ready(endpoint)) {
            let pod = endpoint
                .target_ref
                .as_ref()
                .filter(|target| target.kind.as_deref() == Some("Pod"));
            let Some(name) = pod.and_then(|pod| pod.name.clone()) else {
                continue;
            };
            let addresses: &mut Vec<SocketAddr> = ready.entry(name).or_default();
            let found = endpoint
                .addresses
                .iter()
                .filter_map(|address| address.parse::<IpAddr>().ok());
            addresses.extend(found.map(|address| SocketAddr::new(address, port)));
            addresses.sort();
            addresses.dedup();
        }
    }
    ready.retain(|_, addresses| !addresses.is_empty());
    ready
}

/// Unknown readiness counts as ready, as Kubernetes has it.
fn is_ready(endpoint: &Endpoint) -> bool {
    let conditions = endpoint.conditions.as_ref();
    conditions.is_none_or(|conditions| conditions.ready != Some(false) && conditions.terminating != Some(true))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn slice(family: &str, port: Value, endpoints: Value) -> EndpointSlice {
        let slice = json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": {"name": family},
            "addressType": family, "ports": [{"name": "other", "port": 1}, port], "endpoints": endpoints,
        });
        serde_json::from_value(slice).unwrap()
    }

    fn endpoint(pod: &str, address: &str, conditions: Value) -> Value {
        json!({"addresses": [address], "conditions": conditions, "targetRef": {"kind": "Pod", "name": pod}})
    }

    fn https() -> Value {
        json!({"name": "https", "port": 8443})
    }

    fn found(slices: &[EndpointSlice]) -> Vec<(String, Vec<String>)> {
        let text = |addresses: Vec<SocketAddr>| addresses.iter().map(SocketAddr::to_string).collect();
        ready(slices)
            .into_iter()
            .map(|(name, addresses)| (name, text(addresses)))
            .collect()
    }

    #[test]
    fn a_replica_that_is_not_ready_or_terminating_is_none() {
        let slice = slice(
            "IPv4",
            https(),
            json!([
                endpoint("a", "10.0.0.1", json!({"ready": true, "serving": true, "terminating": false})),
                endpoint("b", "10.0.0.2", json!({"ready": false, "serving": false, "terminating": false})),
                endpoint("c", "10.0.0.3", json!({"ready": false, "serving": true, "terminating": true})),
                // publishNotReadyAddresses has it so.
                endpoint("d", "10.0.0.4", json!({"ready": true, "serving": true, "terminating": true})),
                endpoint("e", "10.0.0.5", json!({})),
                {"addresses": ["10.0.0.6"], "conditions": {"ready": true}},
                {"addresses": ["10.0.0.7"], "conditions": {"ready": true}, "targetRef": {"kind": "Node", "name": "n"}},
            ]),
        );
        let expected = [
            ("a".to_owned(), vec!["10.0.0.1:8443".to_owned()]),
            ("e".to_owned(), vec!["10.0.0.5:8443".to_owned()]),
        ];
        assert_eq!(found(&[slice]), expected);
    }

    #[test]
    fn both_families_of_a_replica_are_one_member() {
        let ready = json!({"ready": true});
        let slices = [
            slice("IPv6", https(), json!([endpoint("a", "fd00::1", ready.clone())])),
            slice("IPv4", https(), json!([endpoint("a", "10.0.0.1", ready.clone())])),
            slice("FQDN", https(), json!([endpoint("a", "a.example.com", ready.clone())])),
            slice(
                "IPv4",
                json!({"name": "metrics", "port": 8080}),
                json!([endpoint("b", "10.0.0.2", ready)]),
            ),
        ];
        let addresses = vec!["10.0.0.1:8443".to_owned(), "[fd00::1]:8443".to_owned()];
        assert_eq!(found(&slices), [("a".to_owned(), addresses)]);
    }

    fn seen(own: &str, names: &[&str]) -> Members {
        let members = Members::new(own);
        let address = |name: &&str| (name.to_string(), vec!["10.0.0.1:8443".parse().unwrap()]);
        members.ready.store(Arc::new(names.iter().map(address).collect()));
        members
    }

    #[test]
    fn what_nobody_else_owns_is_answered_here() {
        for number in 0..50 {
            let uid = format!("uid-{number}");
            assert_eq!(seen("a", &[]).elsewhere(&uid), None);
            assert_eq!(seen("a", &["a"]).elsewhere(&uid), None);
            // Not ready itself: somebody else owns it all.
            assert_eq!(
                seen("a", &["b"]).elsewhere(&uid).map(|member| member.name),
                Some("b".into())
            );
            let others = [seen("a", &[]), seen("a", &["a"]), seen("a", &["a", "b"])];
            let others = others.map(|members| members.without_this(&uid).map(|member| member.name));
            assert_eq!(others, [None, None, Some("b".into())]);
            // Of two exactly one keeps it, and the other knows which.
            let (a, b) = (
                seen("a", &["a", "b"]).elsewhere(&uid),
                seen("b", &["a", "b"]).elsewhere(&uid),
            );
            assert!(a.is_none() != b.is_none(), "{uid}: {a:?} and {b:?}");
        }
    }
}
