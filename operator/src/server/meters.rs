//! What the server counts of itself.
//!
//! Knows series and labels. A label is always one of a few words of ours, never a caller's: not a name, not a namespace, not an
//! address.

use std::time::Duration;

use http::{Method, Request, StatusCode};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::RESOURCE;
use super::attributes::ResourcePath;
use super::front_proxy::Untrusted;
use super::query::Query;
use crate::telemetry::{Histograms, Label};

/// Upper bounds of answer times, in seconds: discovery takes microseconds, a window three seconds, and no read more than eight.
const SECONDS: [f64; 11] = [0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// Counters of one server. Clones count together.
#[derive(Debug, Clone)]
pub(super) struct Meters {
    requests: Family<Answered, Counter>,
    durations: Histograms<Asked>,
    unidentified: Family<Label, Counter>,
    connections_refused: Counter,
    handshakes_failed: Counter,
}

/// What was asked, in words of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Asked {
    verb: &'static str,
    resource: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Answered {
    verb: &'static str,
    resource: &'static str,
    code: u16,
}

/// Why a request for a resource was made by nobody.
#[derive(Debug, Clone, Copy)]
pub(super) enum Unidentified<'a> {
    /// The front proxy's configuration is not loaded.
    NotLoaded,
    /// The connection may not speak for anyone.
    Untrusted(&'a Untrusted),
    /// The headers name no user, or more than one.
    NoUser,
}

impl Default for Meters {
    fn default() -> Self {
        Meters {
            requests: Family::default(),
            durations: Histograms::new_with_constructor(|| Histogram::new(SECONDS)),
            unidentified: Family::default(),
            connections_refused: Counter::default(),
            handshakes_failed: Counter::default(),
        }
    }
}

impl Meters {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "api_requests",
            "Requests to the aggregated API that were answered",
            self.requests.clone(),
        );
        registry.register(
            "api_request_duration_seconds",
            "How long answers of the aggregated API took",
            self.durations.clone(),
        );
        registry.register(
            "api_callers_unidentified",
            "Requests for a resource that were refused because nobody could be identified",
            self.unidentified.clone(),
        );
        registry.register(
            "api_connections_refused",
            "Connections that were closed because there were too many",
            self.connections_refused.clone(),
        );
        registry.register(
            "api_handshakes_failed",
            "Connections whose TLS handshake failed or did not end in time",
            self.handshakes_failed.clone(),
        );
    }

    pub(super) fn answered(&self, asked: Asked, code: StatusCode, took: Duration) {
        let Asked { verb, resource } = asked;
        let answered = Answered {
            verb,
            resource,
            code: code.as_u16(),
        };
        self.requests.get_or_create(&answered).inc();
        self.durations.get_or_create(&asked).observe(took.as_secs_f64());
    }

    pub(super) fn unidentified(&self, reason: Unidentified<'_>) {
        let reason = match reason {
            Unidentified::NotLoaded => "NotLoaded",
            Unidentified::Untrusted(Untrusted::NoCertificate) => "NoCertificate",
            Unidentified::Untrusted(Untrusted::Chain(_)) => "CertificateUntrusted",
            Unidentified::Untrusted(Untrusted::Unreadable) => "CertificateUnreadable",
            Unidentified::Untrusted(Untrusted::Name) => "CertificateName",
            Unidentified::NoUser => "NoUser",
        };
        self.unidentified.get_or_create(&[("reason", reason)]).inc();
    }

    pub(super) fn connection_refused(&self) {
        self.connections_refused.inc();
    }

    pub(super) fn handshake_failed(&self) {
        self.handshakes_failed.inc();
    }
}

impl Asked {
    pub(super) fn of<B>(request: &Request<B>) -> Self {
        let (method, path) = (request.method(), request.uri().path());
        let query = Query::parse(request.uri().query().unwrap_or_default());
        let of_resource = path
            .strip_prefix("/apis/worker.gpustack.ai/v1/")
            .and_then(ResourcePath::parse);
        if let Some(path) = of_resource {
            return Asked {
                verb: path
                    .attributes(method, &query)
                    .map_or("other", |attributes| attributes.verb),
                resource: resource(&path),
            };
        }
        let first = path.trim_start_matches('/').split('/').next().unwrap_or_default();
        Asked {
            verb: match *method {
                Method::GET | Method::HEAD => "get",
                _ => "other",
            },
            resource: match first {
                "apis" => "discovery",
                "openapi" => "openapi",
                "version" => "version",
                "healthz" | "livez" | "readyz" => "health",
                "replicas" => "replicas",
                _ => "other",
            },
        }
    }
}

fn resource(path: &ResourcePath<'_>) -> &'static str {
    match (path.resource, path.subresource) {
        (RESOURCE, None) => "modeldeployments",
        (RESOURCE, Some("metrics")) => "modeldeployments/metrics",
        (RESOURCE, Some("status")) => "modeldeployments/status",
        (RESOURCE, Some("scale")) => "modeldeployments/scale",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_is_asked_is_told_in_a_few_words() {
        let base = "/apis/worker.gpustack.ai/v1";
        for (method, path, verb, resource) in [
            ("GET", "/apis", "get", "discovery"),
            ("GET", base, "get", "discovery"),
            ("HEAD", "/readyz/ping", "get", "health"),
            ("GET", "/openapi/v3/apis/worker.gpustack.ai/v1?hash=1", "get", "openapi"),
            ("GET", "/version", "get", "version"),
            ("POST", "/version", "other", "version"),
            ("GET", "/replicas/0.1.0/namespaces/a", "get", "replicas"),
            ("GET", "/../../etc/passwd", "get", "other"),
            ("BREW", "/coffee", "other", "other"),
            (
                "GET",
                &format!("{base}/namespaces/a/modeldeployments/b/metrics"),
                "get",
                "modeldeployments/metrics",
            ),
            (
                "GET",
                &format!("{base}/namespaces/a/modeldeployments"),
                "list",
                "modeldeployments",
            ),
            (
                "GET",
                &format!("{base}/modeldeployments?watch=true"),
                "watch",
                "modeldeployments",
            ),
            (
                "PATCH",
                &format!("{base}/namespaces/a/modeldeployments/b/status"),
                "patch",
                "modeldeployments/status",
            ),
            (
                "DELETE",
                &format!("{base}/namespaces/a/modeldeployments"),
                "deletecollection",
                "modeldeployments",
            ),
            (
                "PUT",
                &format!("{base}/namespaces/a/modeldeployments/b/scale"),
                "update",
                "modeldeployments/scale",
            ),
            (
                "GET",
                &format!("{base}/namespaces/a/modeldeployments/b/exec"),
                "get",
                "other",
            ),
            ("GET", &format!("{base}/namespaces/a/secrets/b"), "get", "other"),
            (
                "BREW",
                &format!("{base}/namespaces/a/modeldeployments/b"),
                "other",
                "modeldeployments",
            ),
        ] {
            let request = Request::builder().method(method).uri(path).body(()).unwrap();
            assert_eq!(Asked::of(&request), Asked { verb, resource }, "{method} {path}");
        }
    }
}
