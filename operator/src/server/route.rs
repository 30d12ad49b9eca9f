//! The way of one request to its answer.
//!
//! Knows which path leads where and in which order a request is judged; each answer is made elsewhere.

use std::panic::AssertUnwindSafe;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::FutureExt;
use http::header::UPGRADE;
use http::request::Parts;
use http::{Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use rustls_pki_types::UnixTime;
use tokio::time::Instant;

use super::attributes::{Attributes, ResourcePath};
use super::authorization::Decision;
use super::connection::Peer;
use super::front_proxy::caller::Caller;
use super::health::{self, Question};
use super::limits::Class;
use super::meters::Unidentified;
use super::objects::Call;
use super::query::Query;
use super::response::{self, Body};
use super::status::Failure;
use super::{GROUP, GROUP_VERSION, REPLICAS, RESOURCE, State, metrics, version};

/// No request is answered for longer, whatever it asks for: the API server gives up then.
const DEADLINE: Duration = Duration::from_secs(60);
/// Longest that a replica waits for what it answers from before it is ready without. A second is usual.
const BEGINNING: Duration = Duration::from_secs(30);
const READ: &str = "GET, HEAD";

/// Where a path leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Route<'a> {
    Groups,
    Group,
    Resources,
    OpenApiIndex,
    OpenApiDocument,
    Version,
    Health(Question, Option<&'a str>),
    /// For other replicas alone.
    Replica(&'a str),
    Resource(ResourcePath<'a>),
    Nowhere,
}

impl<'a> Route<'a> {
    fn of(path: &'a str) -> Self {
        match path {
            "/apis" => Route::Groups,
            "/openapi/v3" => Route::OpenApiIndex,
            "/version" => Route::Version,
            _ => Self::deeper(path).unwrap_or(Route::Nowhere),
        }
    }

    fn deeper(path: &'a str) -> Option<Self> {
        if let Some(path) = path.strip_prefix("/apis/") {
            return Self::of_group(path);
        }
        if let Some(path) = path.strip_prefix("/openapi/v3/apis/") {
            return (path == GROUP_VERSION).then_some(Route::OpenApiDocument);
        }
        if let Some(path) = path.strip_prefix(REPLICAS) {
            return Some(Route::Replica(path));
        }
        let (first, check) = match path.strip_prefix('/')?.split_once('/') {
            Some((first, check)) => (first, Some(check)),
            None => (&path[1..], None),
        };
        let question = match first {
            "healthz" => Question::Health,
            "livez" => Question::Live,
            "readyz" => Question::Ready,
            _ => return None,
        };
        Some(Route::Health(question, check))
    }

    fn of_group(path: &'a str) -> Option<Self> {
        if path == GROUP {
            return Some(Route::Group);
        }
        let rest = path.strip_prefix(GROUP_VERSION)?;
        if rest.is_empty() {
            return Some(Route::Resources);
        }
        ResourcePath::parse(rest.strip_prefix('/')?).map(Route::Resource)
    }
}

impl State {
    /// Answers one request, whatever happens.
    pub(super) async fn handle(&self, peer: Peer, request: Request<Incoming>) -> Response<Body> {
        let (request, body) = request.into_parts();
        let query = Query::parse(request.uri.query().unwrap_or_default());
        let answered = AssertUnwindSafe(self.answer(&peer, &request, &query, body))
            .catch_unwind()
            .await;
        let answer = answered.unwrap_or_else(|_| {
            tracing::error!(method = %request.method, path = request.uri.path(), "answering a request panicked");
            Err(Failure::internal())
        });
        let response = answer.unwrap_or_else(|failure| response::refuse(&failure, query.pretty(&request.headers)));
        tracing::debug!(method = %request.method, path = request.uri.path(), code = response.status().as_u16(), "answered");
        response::finish(response, &request.headers, request.method == Method::HEAD)
    }

    async fn answer(
        &self,
        peer: &Peer,
        request: &Parts,
        query: &Query<'_>,
        body: Incoming,
    ) -> Result<Response<Body>, Failure> {
        // Nothing here needs an upgrade, and half-finished ones have let callers past the front proxy (CVE-2018-1002105).
        if request.headers.contains_key(UPGRADE) || request.method == Method::CONNECT {
            return Err(Failure::bad_request("connections are not upgraded here"));
        }
        let route = Route::of(request.uri.path());
        match route {
            Route::Nowhere => return Err(Failure::not_served()),
            Route::Resource(path) => return self.resource(peer, request, query, path, body).await,
            _ => {}
        }
        if !matches!(request.method, Method::GET | Method::HEAD) {
            return Err(Failure::method_not_allowed(READ));
        }
        let headers = &request.headers;
        match route {
            Route::Groups => self.discovery.groups(self.objects.mode(), headers),
            Route::Group => self.discovery.group(headers),
            Route::Resources => self.discovery.resources(self.objects.mode(), headers),
            Route::OpenApiIndex => self.openapi.index(self.objects.mode(), headers),
            Route::OpenApiDocument => self.openapi.document(self.objects.mode(), headers, query),
            Route::Version => Ok(response::json(StatusCode::OK, &version::info(), query.pretty(headers))),
            Route::Health(question, check) => {
                let state = health::State {
                    begun: self.has_begun(),
                    certificate: self.certificate.is_loaded(),
                    leaving: self.leaving.load(Ordering::Relaxed),
                };
                question.answer(state, check, query).ok_or_else(Failure::not_served)
            }
            Route::Replica(path) => self.answers.forwarded(&peer.chain, path, query).await,
            Route::Resource(_) | Route::Nowhere => Err(Failure::not_served()),
        }
    }

    /// Whether what is asked here can be answered: a replica that has just started would refuse what another one answers. What keeps it
    /// from beginning for long is no reason to take the discovery documents away.
    fn has_begun(&self) -> bool {
        let seen = self.published.load().is_some() && self.answers.is_listed();
        seen || self.started.elapsed() > BEGINNING
    }

    /// Who, then may they, then what: in this order, so that nobody learns what exists who may not ask.
    async fn resource(
        &self,
        peer: &Peer,
        request: &Parts,
        query: &Query<'_>,
        path: ResourcePath<'_>,
        body: Incoming,
    ) -> Result<Response<Body>, Failure> {
        let caller = self.identify(peer, request).ok_or_else(Failure::unauthorized)?;
        let attributes = path
            .attributes(&request.method, query)
            .ok_or_else(|| Failure::method_not_supported(request.method.as_str(), READ))?;
        // A watch has a time of its own, which the API server keeps.
        let timeout = match attributes.verb {
            "watch" => None,
            _ => query.timeout()?,
        };
        let deadline = Instant::now() + timeout.map_or(DEADLINE, |timeout| timeout.min(DEADLINE));
        let place = self.limits.enter(class(&attributes))?;
        tokio::time::timeout_at(deadline, self.authorize(&caller, &attributes))
            .await
            .map_err(|_| Failure::timeout())??;
        let response = match (path.resource, path.name, path.subresource) {
            (RESOURCE, Some(name), Some("metrics")) => {
                self.metrics(request, query, path, name, &attributes, deadline).await
            }
            (RESOURCE, _, None) | (RESOURCE, Some(_), Some("status")) => {
                let call = Call {
                    caller: &caller,
                    request,
                    query,
                    attributes: &attributes,
                    deadline,
                };
                self.objects.pass(call, body, &self.limits, &self.finishing).await
            }
            _ => Err(Failure::not_served()),
        }?;
        Ok(response::keeping(response, place))
    }

    async fn metrics(
        &self,
        request: &Parts,
        query: &Query<'_>,
        path: ResourcePath<'_>,
        name: &str,
        attributes: &Attributes,
        deadline: Instant,
    ) -> Result<Response<Body>, Failure> {
        let namespace = path.namespace.ok_or_else(Failure::not_served)?;
        if attributes.verb != "get" {
            return Err(Failure::method_not_supported(attributes.verb, READ));
        }
        tokio::time::timeout_at(
            deadline,
            metrics::get(&*self.answers, namespace, name, query, &request.headers),
        )
        .await
        .map_err(|_| Failure::timeout())?
    }

    fn identify(&self, peer: &Peer, request: &Parts) -> Option<Caller> {
        let Some(proxy) = self.published.load() else {
            self.meters.unidentified(Unidentified::NotLoaded);
            tracing::debug!("nobody can be identified before the front proxy's configuration is loaded");
            return None;
        };
        if let Err(reason) = proxy.trusts(&peer.chain, UnixTime::now()) {
            self.meters.unidentified(Unidentified::Untrusted(&reason));
            tracing::debug!(%reason, "a caller is not identified");
            return None;
        }
        let caller = proxy.caller(&request.headers);
        if caller.is_none() {
            self.meters.unidentified(Unidentified::NoUser);
        }
        caller
    }

    async fn authorize(&self, caller: &Caller, attributes: &Attributes) -> Result<(), Failure> {
        match self.authorizer.authorize(caller, attributes).await {
            Ok(Decision::Allowed) => Ok(()),
            Ok(Decision::Denied(reason)) => Err(Failure::forbidden(&caller.user, attributes, &reason)),
            Err(undecided) => Err(Failure::unavailable(undecided.to_string())),
        }
    }
}

/// Which limit a request counts towards.
fn class(attributes: &Attributes) -> Class {
    match (attributes.verb, attributes.subresource.as_deref()) {
        (_, Some("metrics")) => Class::Metrics,
        ("watch", _) => Class::Watch,
        ("get" | "list", _) => Class::Read,
        _ => Class::Write,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_spellings_of_a_path_lead_nowhere() {
        for path in [
            "/",
            "",
            "*",
            "//apis",
            "/apis/",
            "/apis/worker.gpustack.ai/",
            "/apis/worker.gpustack.ai/v1/",
            "/apis/worker.gpustack.ai/v1alpha1",
            "/apis/worker.gpustack.ai/v1alpha1/namespaces/ns/modeldeployments",
            "/apis/worker.gpustack.ai/v1/namespaces/ns/modeldeployments/chat/metrics/",
            "/apis/worker.gpustack.ai/v1/namespaces/ns%2Fmodeldeployments/chat/metrics",
            "/apis/worker.gpustack.ai/v1/namespaces/ns/../modeldeployments/chat/metrics",
            "/openapi/v2",
            "/openapi/v3/",
            "/openapi/v3/apis/worker.gpustack.ai/v1alpha1",
            "/metrics",
            "/api",
            "/healthz2",
        ] {
            assert_eq!(Route::of(path), Route::Nowhere, "{path}");
        }
    }

    proptest::proptest! {
        /// Whatever a path is, it leads nowhere or to segments that cannot be read in two ways.
        #[test]
        fn a_resource_path_has_plain_segments(path in "/apis/worker.gpustack.ai/v1(/[a-z%.;A-Z0-9\\x00\\\\ ]{0,6}){0,7}") {
            if let Route::Resource(ResourcePath { namespace, resource, name, subresource }) = Route::of(&path) {
                for segment in [namespace, Some(resource), name, subresource].into_iter().flatten() {
                    proptest::prop_assert!(!segment.is_empty() && segment != "." && segment != ".." && !segment.contains(['%', '/']));
                }
            }
        }

        #[test]
        fn any_path_is_read(path in "\\PC{0,60}") {
            Route::of(&path);
        }
    }

    #[test]
    fn health_checks_may_be_named() {
        assert_eq!(Route::of("/readyz/ping"), Route::Health(Question::Ready, Some("ping")));
        assert_eq!(Route::of("/livez"), Route::Health(Question::Live, None));
    }
}
