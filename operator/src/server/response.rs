//! Bodies and headers of answers.
//!
//! Knows how an answer is written; nothing of why.

use std::convert::Infallible;
use std::io::Write;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::header::{
    ACCEPT_ENCODING, ALLOW, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, ETAG, IF_NONE_MATCH,
    RETRY_AFTER, VARY, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Frame, SizeHint};
use serde::Serialize;

use super::status::Failure;

/// The body of every answer: whole, or a stream that may break.
pub type Body = UnsyncBoxBody<Bytes, Broken>;
/// Why a stream broke.
pub type Broken = Box<dyn std::error::Error + Send + Sync>;

/// The only media type of data that is served.
pub const JSON: &str = "application/json";
/// The `Cache-Control` of what may differ at the next request.
pub const NOT_CACHED: &str = "no-cache, private";

/// Shorter documents are not worth compressing, in bytes.
const COMPRESSED_FROM: usize = 16 << 10;

/// The API server's mark of one request, in its log and ours.
pub const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");
/// The API server's own IDs are 36 bytes; it refuses longer ones than this.
pub const AUDIT_ID_MOST: usize = 64;

/// A body that is there already.
pub fn whole(bytes: Bytes) -> Body {
    Full::new(bytes)
        .map_err(|never: Infallible| match never {})
        .boxed_unsync()
}

/// Marks an answer that goes on until its reader or its source ends it.
#[derive(Debug, Clone, Copy)]
pub struct Endless;

/// Keeps `kept` until the answer's body is sent or given up.
pub fn keeping(response: Response<Body>, kept: impl Send + Unpin + 'static) -> Response<Body> {
    response.map(|body| Keeping { body, _kept: kept }.boxed_unsync())
}

struct Keeping<T> {
    body: Body,
    _kept: T,
}

impl<T: Unpin> hyper::body::Body for Keeping<T> {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

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
    /// The same compressed, of a long one.
    gzip: Option<Bytes>,
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
            gzip: (bytes.len() > COMPRESSED_FROM).then(|| gzip(&bytes)),
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
            false => self.whole(request),
        };
        let headers = response.headers_mut();
        headers.insert(ETAG, HeaderValue::try_from(tag).expect("hexadecimal is a header value"));
        headers.insert(VARY, HeaderValue::from_static("Accept"));
        if self.gzip.is_some() {
            headers.append(VARY, HeaderValue::from_static("Accept-Encoding"));
        }
        headers.insert(CACHE_CONTROL, HeaderValue::from_static(cache_control));
        response
    }

    fn whole(&self, request: &HeaderMap) -> Response<Body> {
        match self.gzip.as_ref().filter(|_| takes_gzip(request)) {
            Some(gzip) => {
                let mut response = bytes_of(StatusCode::OK, self.content_type.clone(), gzip.clone());
                response
                    .headers_mut()
                    .insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
                response
            }
            None => bytes_of(StatusCode::OK, self.content_type.clone(), self.bytes.clone()),
        }
    }
}

fn gzip(bytes: &[u8]) -> Bytes {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    let written = encoder.write_all(bytes).and_then(|()| encoder.finish());
    written.expect("memory takes what is written to it").into()
}

fn takes_gzip(request: &HeaderMap) -> bool {
    request
        .get_all(ACCEPT_ENCODING)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|coding| {
            let (name, quality) = coding.split_once(';').unwrap_or((coding, ""));
            let quality: String = quality.split_whitespace().collect();
            name.trim().eq_ignore_ascii_case("gzip")
                && !matches!(quality.as_str(), "q=0" | "q=0.0" | "q=0.00" | "q=0.000")
        })
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
    let mut response = Response::new(whole(bytes));
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
