//! One request to a fake engine: which answer it gets.
//!
//! Owns the paths. The bodies of completions and metrics are made next door.

use std::convert::Infallible;
use std::future::pending;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::{Method, Request, Response, StatusCode};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::accounting::{self, Answered};
use super::arguments::{Half, Kind};
use super::script::State;
use super::{Shared, completions, metrics};

/// Where log lines go.
pub(super) type Log = Arc<dyn Fn(&str) + Send + Sync>;

/// Body of every answer.
pub(super) type Body = UnsyncBoxBody<Bytes, Infallible>;

pub(super) async fn answer(
    shared: Arc<Shared>,
    request: Request<Incoming>,
    peer: SocketAddr,
    log: Log,
) -> Response<Body> {
    let begun = Instant::now();
    let state = shared.state.borrow().clone();
    let method = request.method().clone();
    let path = request.uri().path().to_owned();
    if method == Method::GET && path == "/metrics" {
        metrics::note(&shared, &request, peer.ip());
    }
    if state == State::Hang {
        pending::<()>().await;
    }
    let response = match (method.as_str(), path.as_str()) {
        ("GET", "/metrics") => metrics::answer(&shared, &state, request.headers()).await,
        ("GET", "/health" | "/healthz" | "/readyz" | "/ping" | "/health_generate" | "/liveness" | "/readiness") => {
            whole(StatusCode::OK, "text/plain", "")
        }
        ("GET", "/v1/models") => document(StatusCode::OK, &models(&shared)),
        ("GET", "/version") => document(StatusCode::OK, &json!({"version": version(&shared)})),
        ("GET", "/get_model_info" | "/model_info") => document(StatusCode::OK, &model_info(&shared)),
        ("GET", "/get_server_info" | "/server_info") => document(StatusCode::OK, &server_info(&shared)),
        ("POST", "/v1/completions" | "/v1/chat/completions" | "/generate") => {
            completions::answer(&shared, &path, &state, request).await
        }
        ("GET", _) if shared.arguments.kind == Kind::Stub => whole(StatusCode::OK, "text/plain", ""),
        _ => document(StatusCode::NOT_FOUND, &json!({"detail": "Not Found"})),
    };
    let answered = Answered {
        method: method.as_str(),
        path: &path,
        status: response.status().as_u16(),
        taken: begun.elapsed(),
    };
    if let Some(body) = &mut shared.inside.lock().body {
        accounting::answered(body, shared.arguments.kind, answered);
    }
    log(&format!("{peer} - \"{method} {path} HTTP/1.1\" {}", response.status()));
    response
}

/// A whole answer.
pub(super) fn whole(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(Full::new(body.into()).boxed_unsync());
    *response.status_mut() = status;
    let value = hyper::header::HeaderValue::from_static(content_type);
    response.headers_mut().insert(hyper::header::CONTENT_TYPE, value);
    response
}

/// A whole answer in JSON.
pub(super) fn document(status: StatusCode, body: &Value) -> Response<Body> {
    whole(status, "application/json", body.to_string())
}

fn version(shared: &Shared) -> &'static str {
    match shared.arguments.kind {
        Kind::Vllm => "0.32.0",
        Kind::Sglang => "0.5.23",
        Kind::Stub => "0",
    }
}

fn models(shared: &Shared) -> Value {
    let owner = match shared.arguments.kind {
        Kind::Sglang => "sglang",
        _ => "vllm",
    };
    let model = &shared.arguments.model;
    json!({"object": "list", "data": [{
        "id": model, "object": "model", "created": 1_796_000_000, "owned_by": owner, "root": model, "max_model_len": 32768,
    }]})
}

fn model_info(shared: &Shared) -> Value {
    let model = &shared.arguments.model;
    json!({
        "model_path": model, "tokenizer_path": model, "is_generation": true, "preferred_sampling_params": null,
        "weight_version": "default", "model_type": "llama", "architectures": ["LlamaForCausalLM"],
        "has_image_understanding": false, "has_audio_understanding": false,
    })
}

fn server_info(shared: &Shared) -> Value {
    let model = &shared.arguments.model;
    let mode = match shared.arguments.half {
        None => "null",
        Some(Half::Prefill) => "prefill",
        Some(Half::Decode) => "decode",
    };
    json!({
        "model_path": model, "served_model_name": model, "tokenizer_path": model, "tp_size": 1, "dp_size": 1, "pp_size": 1,
        "disaggregation_mode": mode, "version": version(shared), "max_total_num_tokens": 8192, "status": "ready",
        "max_running_requests": shared.arguments.slots, "internal_states": [{}],
    })
}
