//! What the API server's answer is to the caller: passed on, or, where it speaks of the operator and not of what was asked, replaced.
//!
//! Knows codes, headers and `Status` objects; nothing of a ModelDeployment.

use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER, WARNING, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use serde::Deserialize;

use super::super::RESOURCE;
use super::super::attributes::Attributes;
use super::super::response::{AUDIT_ID, JSON};
use super::super::status::Failure;
use super::impersonator::Impersonator;

const FLOW_SCHEMA: HeaderName = HeaderName::from_static("x-kubernetes-pf-flowschema-uid");
const PRIORITY_LEVEL: HeaderName = HeaderName::from_static("x-kubernetes-pf-prioritylevel-uid");

/// Headers that are passed on, every value of each.
const KEPT: [HeaderName; 5] = [CONTENT_TYPE, WARNING, AUDIT_ID, FLOW_SCHEMA, PRIORITY_LEVEL];

/// As whom the request was made.
pub(super) enum Sender<'a> {
    /// The operator's own ServiceAccount.
    Operator,
    /// A caller, through the second one.
    Caller(&'a Impersonator),
}

/// Whether the answer may be passed on.
///
/// # Errors
/// What the caller is told instead. A 404 that is not about the very object would have the garbage collector delete what
/// belongs to it; a 401, and a 403 about the operator, are not the caller's.
pub(super) fn judge(code: StatusCode, body: &Bytes, attributes: &Attributes, sender: &Sender) -> Result<(), Failure> {
    let replaced = match (code, sender) {
        (StatusCode::NOT_FOUND, _) if !is_theirs(body, attributes) => {
            tracing::warn!(answer = %text(body), "the API server does not serve ModelDeployments");
            Failure::unavailable(
                "the API server does not serve ModelDeployments in the version that they are stored in",
            )
        }
        (StatusCode::UNAUTHORIZED, _) => {
            tracing::warn!("the API server does not know the operator");
            if let Sender::Caller(impersonator) = sender {
                impersonator.is_stale();
            }
            Failure::unavailable("the API server does not accept the operator's credentials")
        }
        (StatusCode::FORBIDDEN, Sender::Caller(impersonator)) if impersonator.is_refusal(body) => {
            tracing::warn!(answer = %text(body), "the operator may not act for a caller");
            Failure::unavailable_once(
                "the operator lacks the impersonation rights to write as this caller: apply the object as \
                 worker.gpustack.ai/v1alpha1, or see docs/api.md",
            )
        }
        // The caller's rights were reviewed before.
        (StatusCode::FORBIDDEN, Sender::Operator) if matches!(attributes.verb, "get" | "list" | "watch") => {
            tracing::warn!(answer = %text(body), "the operator may not read ModelDeployments");
            Failure::unavailable("the operator may not read ModelDeployments: see the rights in docs/install.md")
        }
        // A redirect does not survive the API aggregator, and no client follows one.
        (code, _) if code.is_redirection() || code.is_informational() => {
            tracing::warn!(code = code.as_u16(), "the API server answered with a redirect");
            Failure::unavailable_once("the API server answered with a redirect")
        }
        _ => return Ok(()),
    };
    Err(replaced)
}

/// Whether a 404 speaks of what was asked for: the object by its name, or, where something is to be created, its namespace.
fn is_theirs(body: &[u8], attributes: &Attributes) -> bool {
    let Ok(status) = serde_json::from_slice::<NotFound>(body) else {
        return false;
    };
    if status.kind != "Status" || status.reason != "NotFound" {
        return false;
    }
    let about = |kind: &str, name: &Option<String>| {
        status.details.kind == kind && name.as_ref().is_some_and(|name| *name == status.details.name)
    };
    match attributes.verb {
        "list" | "watch" | "deletecollection" => false,
        "create" => about("namespaces", &attributes.namespace),
        "patch" | "update" => about(RESOURCE, &attributes.name) || about("namespaces", &attributes.namespace),
        _ => about(RESOURCE, &attributes.name),
    }
}

#[derive(Deserialize)]
struct NotFound {
    kind: String,
    reason: String,
    #[serde(default)]
    details: Details,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Details {
    kind: String,
    name: String,
}

/// The headers that go back. Clients repeat what comes with `Retry-After`, so a failed write has none unless it was turned away
/// before it began.
pub(super) fn headers(code: StatusCode, upstream: &HeaderMap, writes: bool) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for name in KEPT {
        for value in upstream.get_all(&name) {
            headers.append(name.clone(), value.clone());
        }
    }
    if let Some(value) = upstream.get(RETRY_AFTER)
        && (!writes || code == StatusCode::TOO_MANY_REQUESTS)
    {
        headers.insert(RETRY_AFTER, value.clone());
    }
    if !code.is_success() {
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    }
    headers
}

/// Whether there is JSON behind these headers.
pub(super) fn is_json(headers: &HeaderMap) -> bool {
    headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.split(';').next())
        .is_some_and(|media| media.trim().eq_ignore_ascii_case(JSON))
}

/// The beginning of a body, for the log.
fn text(body: &[u8]) -> String {
    String::from_utf8_lossy(&body[..body.len().min(500)]).into_owned()
}
