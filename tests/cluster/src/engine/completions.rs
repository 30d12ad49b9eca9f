//! Completions: the OpenAI paths of both engines and SGLang's `/generate`, whole or as server-sent events.
//!
//! Owns pace and words of the answers, and the life of a request inside the engine (waiting, running, finished, aborted).

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use futures::stream;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::{Request, Response, StatusCode};
use serde_json::{Value, json};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use super::Shared;
use super::accounting::{self, Served};
use super::metrics::streamed;
use super::script::State;
use super::serving::{Body, document};

/// Time for one token: quick enough for tests, and seen in every latency histogram.
const TOKEN_TIME: Duration = Duration::from_millis(2);

/// Tokens where the request sets no limit (the default of the completions API).
const DEFAULT_TOKENS: u64 = 16;

/// A request's place in the engine. Dropped unfinished, it counts as aborted if it ran.
struct Ticket {
    shared: Arc<Shared>,
    permit: Option<OwnedSemaphorePermit>,
    arrived: Instant,
    started: Instant,
    finished: bool,
}

impl Ticket {
    fn queue(shared: Arc<Shared>) -> Self {
        shared.shift(|load| load.waiting += 1);
        let now = Instant::now();
        Self {
            shared,
            permit: None,
            arrived: now,
            started: now,
            finished: false,
        }
    }

    async fn start(&mut self) {
        // The semaphore is never closed.
        self.permit = self.shared.slots.clone().acquire_owned().await.ok();
        self.started = Instant::now();
        self.shared.shift(|load| {
            load.waiting -= 1;
            load.running += 1;
        });
    }

    fn finish(&mut self, prompt: &Prompt, first: Instant, tokens: u64) {
        self.finished = true;
        let served = Served {
            prompt: prompt.tokens,
            cached: prompt.cached,
            completion: tokens,
            max_tokens: prompt.max_tokens,
            streaming: prompt.stream,
            finish: "length",
            queued: self.started - self.arrived,
            first: first - self.arrived,
            total: self.arrived.elapsed(),
        };
        if let Some(body) = &mut self.shared.inside.lock().body {
            accounting::finished(body, &self.shared.arguments, &served);
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let ran = self.permit.take().is_some();
        self.shared
            .shift(|load| if ran { load.running -= 1 } else { load.waiting -= 1 });
        if ran
            && !self.finished
            && let Some(body) = &mut self.shared.inside.lock().body
        {
            body.add("vllm:request_success_total", &[("finished_reason", "abort")], 1.0);
        }
    }
}

/// What was asked.
struct Prompt {
    path: String,
    model: String,
    id: String,
    tokens: u64,
    cached: u64,
    max_tokens: u64,
    stream: bool,
    usage: bool,
    transfer: Option<Value>,
}

pub(super) async fn answer(
    shared: &Arc<Shared>,
    path: &str,
    state: &State,
    request: Request<Incoming>,
) -> Response<Body> {
    let mut ticket = Ticket::queue(shared.clone());
    let Ok(collected) = request.into_body().collect().await else {
        return refusal(StatusCode::BAD_REQUEST, "the request's body did not arrive");
    };
    let Ok(body) = serde_json::from_slice::<Value>(&collected.to_bytes()) else {
        return refusal(StatusCode::BAD_REQUEST, "the request's body is not JSON");
    };
    if let Some(model) = body["model"].as_str() {
        let served = &shared.arguments.model;
        if model != served && path != "/generate" && model != "default" {
            return refusal(StatusCode::NOT_FOUND, &format!("The model `{model}` does not exist."));
        }
    }
    let prompt = read(shared, path, &body);
    ticket.start().await;
    if let State::Slow(by) = state {
        tokio::time::sleep(*by).await;
    }
    if prompt.stream {
        return stream_tokens(ticket, prompt);
    }
    tokio::time::sleep(TOKEN_TIME).await;
    let first = Instant::now();
    let rest = u32::try_from(prompt.max_tokens.saturating_sub(1)).unwrap_or(u32::MAX);
    tokio::time::sleep(TOKEN_TIME * rest).await;
    ticket.finish(&prompt, first, prompt.max_tokens);
    document(StatusCode::OK, &prompt.whole())
}

fn refusal(status: StatusCode, message: &str) -> Response<Body> {
    let kind = if status == StatusCode::NOT_FOUND {
        "NotFoundError"
    } else {
        "BadRequestError"
    };
    let error = json!({"message": message, "type": kind, "param": null, "code": status.as_u16()});
    document(status, &json!({"error": error}))
}

fn read(shared: &Shared, path: &str, body: &Value) -> Prompt {
    let text = match path {
        "/v1/chat/completions" => body["messages"].to_string(),
        "/generate" => body
            .get("text")
            .or(body.get("input_ids"))
            .unwrap_or(&Value::Null)
            .to_string(),
        _ => body["prompt"].to_string(),
    };
    let words: Vec<&str> = text.split([' ', ',']).collect();
    let mut inside = shared.inside.lock();
    let cached = inside.prefixes.admit(&words);
    inside.requests += 1;
    let limits = [
        &body["max_tokens"],
        &body["max_completion_tokens"],
        &body["sampling_params"]["max_new_tokens"],
    ];
    let max_tokens = limits.iter().find_map(|l| l.as_u64()).unwrap_or(DEFAULT_TOKENS).max(1);
    let address = *shared.address.borrow();
    let transfer = body["kv_transfer_params"]["do_remote_decode"]
        .as_bool()
        .unwrap_or(false)
        .then(|| {
            json!({
                "do_remote_prefill": true, "do_remote_decode": false, "remote_engine_id": format!("engine-{address}"),
                "remote_block_ids": [1, 2, 3], "remote_host": address.to_string(), "remote_port": 5600, "tp_size": 1,
            })
        });
    Prompt {
        path: path.to_owned(),
        model: shared.arguments.model.clone(),
        id: format!("cmpl-{address}-{}", inside.requests),
        tokens: words.len() as u64,
        cached: cached as u64,
        max_tokens,
        stream: body["stream"].as_bool().unwrap_or(false),
        usage: body["stream_options"]["include_usage"].as_bool().unwrap_or(false),
        transfer,
    }
}

impl Prompt {
    fn text(tokens: u64) -> String {
        (0..tokens).map(|n| format!("word{n} ")).collect()
    }

    fn usage(&self) -> Value {
        json!({
            "prompt_tokens": self.tokens, "completion_tokens": self.max_tokens, "total_tokens": self.tokens + self.max_tokens,
            "prompt_tokens_details": {"cached_tokens": self.cached},
        })
    }

    fn meta(&self, tokens: u64, finish: &Value) -> Value {
        json!({
            "id": self.id, "finish_reason": finish, "prompt_tokens": self.tokens, "completion_tokens": tokens,
            "cached_tokens": self.cached, "weight_version": "default", "e2e_latency": 0.0,
        })
    }

    fn envelope(&self, object: &str, choice: &Value) -> Value {
        let created = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default()
            .as_secs();
        json!({"id": self.id, "object": object, "created": created, "model": self.model, "choices": [choice]})
    }

    fn whole(&self) -> Value {
        let text = Self::text(self.max_tokens);
        let mut answer = match self.path.as_str() {
            "/generate" => {
                let finish = json!({"type": "length", "length": self.max_tokens});
                return json!({"text": text, "meta_info": self.meta(self.max_tokens, &finish)});
            }
            "/v1/chat/completions" => self.envelope(
                "chat.completion",
                &json!({
                    "index": 0, "message": {"role": "assistant", "content": text}, "logprobs": null, "finish_reason": "length",
                }),
            ),
            _ => self.envelope(
                "text_completion",
                &json!({"index": 0, "text": text, "logprobs": null, "finish_reason": "length"}),
            ),
        };
        answer["usage"] = self.usage();
        if let Some(transfer) = &self.transfer {
            answer["kv_transfer_params"] = transfer.clone();
        }
        answer
    }

    /// The event after `tokens` tokens have been made.
    fn event(&self, tokens: u64) -> Value {
        let last = tokens == self.max_tokens;
        let finish = if last { json!("length") } else { Value::Null };
        let word = format!("word{} ", tokens - 1);
        match self.path.as_str() {
            "/generate" => {
                let finish = if last {
                    json!({"type": "length", "length": tokens})
                } else {
                    Value::Null
                };
                json!({"text": Self::text(tokens), "meta_info": self.meta(tokens, &finish)})
            }
            "/v1/chat/completions" => {
                let delta = if tokens == 1 {
                    json!({"role": "assistant", "content": word})
                } else {
                    json!({"content": word})
                };
                let choice = json!({"index": 0, "delta": delta, "logprobs": null, "finish_reason": finish});
                self.envelope("chat.completion.chunk", &choice)
            }
            _ => {
                let choice = json!({"index": 0, "text": word, "logprobs": null, "finish_reason": finish});
                self.envelope("text_completion", &choice)
            }
        }
    }

    /// Everything after the last token.
    fn end(&self) -> String {
        let mut end = String::new();
        if self.usage {
            let mut usage = self.envelope("chat.completion.chunk", &Value::Null);
            usage["choices"] = json!([]);
            usage["usage"] = self.usage();
            end = format!("data: {usage}\n\n");
        }
        end + "data: [DONE]\n\n"
    }
}

fn stream_tokens(ticket: Ticket, prompt: Prompt) -> Response<Body> {
    let begin = (ticket, prompt, None::<Instant>, 0_u64);
    let events = stream::unfold(begin, |(mut ticket, prompt, first, made)| async move {
        if made > prompt.max_tokens {
            return None;
        }
        if made == prompt.max_tokens {
            ticket.finish(&prompt, first.unwrap_or_else(Instant::now), made);
            let end = Bytes::from(prompt.end());
            return Some((end, (ticket, prompt, first, made + 1)));
        }
        tokio::time::sleep(TOKEN_TIME).await;
        let first = first.or_else(|| Some(Instant::now()));
        let event = Bytes::from(format!("data: {}\n\n", prompt.event(made + 1)));
        Some((event, (ticket, prompt, first, made + 1)))
    });
    streamed("text/event-stream; charset=utf-8", events)
}
