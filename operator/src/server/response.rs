//! Bodies and headers of answers.
//!
//! Knows how an answer is written; nothing of why.

use bytes::Bytes;
use http::header::{
    ALLOW, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, ETAG, IF_NONE_MATCH, RETRY_AFTER, VARY, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use http_body_util::Full;
use serde::Serialize;

use super::status::Failure;

/// The body of every answer.
pub type Body = Full<Bytes>;

/// The only media type of data that is served.
pub const JSON: &str = "application/json";
/// The `Cache-Control` of what may differ at the next request.
pub const NOT_CACHED: &str = "no-cache, private";

/// The API server's mark of one request, in its log and ours.
const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");
/// The API server's own IDs are 36 bytes; it refuses longer ones than this.
const AUDIT_ID_MOST: usize = 64;

/// `value` as JSON, indented where a person reads it.
pub fn json<T: Serialize>(code: StatusCode, value: &T, pretty: bool) -> Response<Body> {
    let written = match pretty {
        true => serde_json::to_vec_pretty(value),
        false => serde_json::to_vec(value),
    };
    match written {
        Ok(mut bytes) => {
            bytes.push(b'\n');
            bytes_of(code, HeaderValue::from_static(JSON), bytes.into())
        }
        Err(error) => {
            tracing::error!(%error, "an answer cannot be written");
            let status = Failure::internal().status();
            bytes_of(
                StatusCode::INTERNAL_SERVER_ERROR,
                HeaderValue::from_static(JSON),
                serde_json::to_vec(&status).unwrap_or_default().into(),
            )
        }
    }
}

/// A refusal. Always JSON, even where it was asked for something else.
pub fn refuse(failure: &Failure, pretty: bool) -> Response<Body> {
    let mut response = json(failure.code, &failure.status(), pretty);
    let headers = response.headers_mut();
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if let Some(allow) = failure.allow {
        headers.insert(ALLOW, HeaderValue::from_static(allow));
    }
    if let Some(seconds) = failure.retry_after {
        headers.insert(RETRY_AFTER, seconds.into());
    }
    response
}

/// Plain text, for health checks.
pub fn text(code: StatusCode, text: String) -> Response<Body> {
    let mut response = bytes_of(code, HeaderValue::from_static("text/plain; charset=utf-8"), text.into());
    response
        .headers_mut()
        .insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// A document that never changes while the process lives.
#[derive(Debug, Clone)]
pub struct Document {
    bytes: Bytes,
    content_type: HeaderValue,
    /// SHA-512 of the bytes, in hexadecimal.
    pub hash: String,
}

impl Document {
    /// `value` as JSON of `content_type`.
    ///
    /// # Panics
    /// When `value` cannot be written as JSON or `content_type` is no header value: both are ours, at start.
    pub fn new<T: Serialize>(value: &T, content_type: &'static str) -> Self {
        let bytes = serde_json::to_vec(value).expect("a document of ours is JSON");
        Document {
            hash: super::hash(&bytes),
            bytes: bytes.into(),
            content_type: HeaderValue::from_static(content_type),
        }
    }

    /// The document, or 304 where the caller has it already.
    pub fn respond(&self, request: &HeaderMap, cache_control: &'static str) -> Response<Body> {
        let tag = format!("\"{}\"", self.hash);
        let mut response = match is_held(request, &tag) {
            true => {
                let mut response = Response::new(Body::default());
                *response.status_mut() = StatusCode::NOT_MODIFIED;
                response
            }
            false => bytes_of(StatusCode::OK, self.content_type.clone(), self.bytes.clone()),
        };
        let headers = response.headers_mut();
        headers.insert(ETAG, HeaderValue::try_from(tag).expect("hexadecimal is a header value"));
        headers.insert(VARY, HeaderValue::from_static("Accept"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static(cache_control));
        response
    }
}

/// What every answer has: no cache unless it says otherwise, the request's audit ID, and no body where none was asked for.
pub fn finish(mut response: Response<Body>, request: &HeaderMap, head: bool) -> Response<Body> {
    let headers = response.headers_mut();
    if !headers.contains_key(CACHE_CONTROL) {
        headers.insert(CACHE_CONTROL, HeaderValue::from_static(NOT_CACHED));
    }
    if let Some(id) = request.get(AUDIT_ID)
        && id.len() <= AUDIT_ID_MOST
    {
        headers.insert(AUDIT_ID, id.clone());
    }
    if head {
        *response.body_mut() = Body::default();
    }
    response
}

fn bytes_of(code: StatusCode, content_type: HeaderValue, bytes: Bytes) -> Response<Body> {
    let length = bytes.len();
    let mut response = Response::new(Body::new(bytes));
    *response.status_mut() = code;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, content_type);
    headers.insert(CONTENT_LENGTH, length.into());
    response
}

fn is_held(request: &HeaderMap, tag: &str) -> bool {
    request
        .get_all(IF_NONE_MATCH)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .any(|held| held == "*" || held.strip_prefix("W/").unwrap_or(held) == tag)
}
