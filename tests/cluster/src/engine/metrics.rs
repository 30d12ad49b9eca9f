//! The answer to `GET /metrics` in each state.

use bytes::Bytes;
use futures::StreamExt as _;
use futures::stream::{self, Stream};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use hyper::header::{ACCEPT, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderValue, LOCATION};
use hyper::{Request, Response, StatusCode};
use std::convert::Infallible;
use std::future::pending;
use std::net::IpAddr;

use super::Shared;
use super::arguments::Kind;
use super::exposition::Exposition;
use super::gzip;
use super::script::{Scrape, State};
use super::serving::{Body, document, whole};

/// Lines of padding are short, so that only the length of the whole body is out of the ordinary.
const PADDING_LINE: usize = 100;

/// Remembers a scrape for the test.
pub(super) fn note<B>(shared: &Shared, request: &Request<B>, from: IpAddr) {
    let scrape = Scrape {
        at: tokio::time::Instant::now(),
        from,
        headers: request.headers().clone(),
        target: request.uri().to_string(),
    };
    shared.scrapes.send_modify(|scrapes| scrapes.push(scrape));
}

pub(super) async fn answer(shared: &Shared, state: &State, headers: &HeaderMap) -> Response<Body> {
    if let State::Slow(by) = state {
        tokio::time::sleep(*by).await;
    }
    let text = match state {
        State::Body(text) => Some(text.clone()),
        _ => shared.inside.lock().body.as_ref().map(Exposition::text),
    };
    let Some(mut text) = text else {
        return document(StatusCode::NOT_FOUND, &serde_json::json!({"detail": "Not Found"}));
    };
    let open = headers
        .get(ACCEPT)
        .is_some_and(|a| a.as_bytes().windows(11).any(|w| w == b"openmetrics"));
    let content_type = match shared.arguments.kind {
        Kind::Sglang if open => {
            text = open_metrics(&text);
            "application/openmetrics-text; version=1.0.0; charset=utf-8; escaping=underscores"
        }
        Kind::Vllm => "text/plain; version=1.0.0; charset=utf-8",
        _ => "text/plain; version=0.0.4; charset=utf-8",
    };
    match state {
        State::Status(code) => {
            let status = StatusCode::from_u16(*code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            whole(status, "text/plain", "as the test wants it\n")
        }
        State::Redirect(to) => {
            let mut response = whole(StatusCode::FOUND, "text/plain", "");
            if let Ok(to) = HeaderValue::from_str(to) {
                response.headers_mut().insert(LOCATION, to);
            }
            response
        }
        State::Empty => whole(StatusCode::OK, content_type, ""),
        State::Html => whole(
            StatusCode::OK,
            "text/html",
            "<!doctype html>\n<html><body><h1>It works</h1></body></html>\n",
        ),
        State::Garbage => whole(
            StatusCode::OK,
            content_type,
            vec![0xff, 0xfe, 0x00, 0x80, 0x0a, 0xc3, 0x28],
        ),
        State::ContentType(content_type) => {
            let mut response = whole(StatusCode::OK, "text/plain", text);
            let value = content_type.as_deref().and_then(|c| HeaderValue::from_str(c).ok());
            match value {
                Some(value) => response.headers_mut().insert(CONTENT_TYPE, value),
                None => response.headers_mut().remove(CONTENT_TYPE),
            };
            response
        }
        State::Gzip => {
            let mut response = whole(StatusCode::OK, content_type, gzip::store(text.as_bytes()));
            let value = HeaderValue::from_static("gzip");
            response.headers_mut().insert(CONTENT_ENCODING, value);
            response
        }
        State::Oversize { bytes, chunked } => {
            let padded = pad(text, *bytes);
            if *chunked {
                streamed(content_type, stream::iter([Bytes::from(padded)]))
            } else {
                whole(StatusCode::OK, content_type, padded)
            }
        }
        State::Drip { bytes, pause } => {
            let pieces: Vec<Bytes> = text
                .as_bytes()
                .chunks((*bytes).max(1))
                .map(Bytes::copy_from_slice)
                .collect();
            let pause = *pause;
            let drip = stream::iter(pieces).then(move |piece| async move {
                tokio::time::sleep(pause).await;
                piece
            });
            streamed(content_type, drip)
        }
        State::Stall => streamed(content_type, stream::once(pending())),
        _ if shared.arguments.kind == Kind::Sglang => streamed(content_type, stream::iter([Bytes::from(text)])),
        _ => whole(StatusCode::OK, content_type, text),
    }
}

/// An answer without `Content-Length`.
pub(super) fn streamed(
    content_type: &'static str,
    pieces: impl Stream<Item = Bytes> + Send + 'static,
) -> Response<Body> {
    let frames = pieces.map(|piece| Ok::<_, Infallible>(Frame::data(piece)));
    let mut response = Response::new(BodyExt::boxed_unsync(StreamBody::new(frames)));
    let value = HeaderValue::from_static(content_type);
    response.headers_mut().insert(CONTENT_TYPE, value);
    response
}

/// `text` with comment lines after it, so that the whole is `bytes` long; comment lines alone where it does not fit.
fn pad(text: String, bytes: usize) -> String {
    let mut padded = if text.len() + 2 <= bytes { text } else { String::new() };
    while padded.len() < bytes {
        let left = bytes - padded.len();
        // A line takes at least "#\n"; what is left after it must be none or enough for another.
        let line = if left <= PADDING_LINE + 1 { left } else { PADDING_LINE };
        padded.push('#');
        padded.extend(std::iter::repeat_n('x', line.saturating_sub(2)));
        if line > 1 {
            padded.push('\n');
        }
    }
    padded
}

/// What the Python client makes of SGLang's families for a client that accepts OpenMetrics: samples under another name than
/// their `TYPE` line.
fn open_metrics(text: &str) -> String {
    let mut rewritten = String::with_capacity(text.len());
    for line in text.lines() {
        if let Some(counter) = line
            .strip_prefix("# TYPE ")
            .and_then(|l| l.strip_suffix("_total counter"))
        {
            rewritten.push_str("# TYPE ");
            rewritten.push_str(counter);
            rewritten.push_str(" counter");
        } else if line.starts_with('#') {
            rewritten.push_str(line);
        } else {
            rewritten.push_str(&line.replacen("sglang:", "sglang_", 1));
        }
        rewritten.push('\n');
    }
    rewritten.push_str("# EOF\n");
    rewritten
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_is_exact_and_well_formed() {
        for bytes in [0, 2, 3, 50, 101, 102, 201, 1 << 20, (1 << 20) + 1] {
            let padded = pad("a 1.0\n".to_owned(), bytes);
            assert_eq!(padded.len(), bytes);
            assert!(padded.is_empty() || padded.ends_with('\n'), "{bytes}");
            assert!(
                padded
                    .lines()
                    .all(|l| l == "a 1.0" || (l.starts_with('#') && l.len() <= PADDING_LINE))
            );
        }
    }
}
