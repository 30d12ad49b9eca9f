//! ModelDeployments under `worker.gpustack.ai/v1`: the objects that are stored as `v1alpha1`, under another name.
//!
//! Owns the way of a request to the API server and back: what is read is read as the operator, after the caller's rights were
//! reviewed; what is written is written as the caller. Holds no object and knows no member of one.

mod answer;
mod impersonation;
mod impersonator;
mod mode;
mod request;
mod stream;
pub mod translate;

use std::collections::BTreeSet;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE};
use http::request::Parts;
use http::{Method, Request, Response, StatusCode};
use hyper::body::Body as HttpBody;
use kube::config::AuthInfo;
use kube::{Client, Config as KubeConfig};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::attributes::Attributes;
use super::front_proxy::caller::Caller;
use super::limits::Limits;
use super::query::Query;
use super::response::{self, AUDIT_ID, Body, Broken, Endless};
use super::status::Failure;
use answer::Sender;
use impersonation::Impersonation;
use impersonator::Impersonator;
use request::Upstream;
use translate::Inbound;

pub use mode::Mode;

/// What is served, and as whom writes are made.
#[derive(Debug, Clone)]
pub struct Config {
    /// What may be done at most.
    pub mode: Mode,
    /// Namespace of the operator.
    pub namespace: String,
    /// ServiceAccount there that acts for callers. Without one nothing is written.
    pub account: Option<String>,
    /// Keys of a caller's extra facts that go along when it does.
    pub extra_keys: BTreeSet<String>,
}

/// Ways to the API server.
#[derive(Clone)]
pub struct Clients {
    /// As the operator.
    pub operator: Client,
    /// As nobody: each request brings its own credentials.
    pub nobody: Client,
}

impl Clients {
    /// Clients of the API server that this process belongs to.
    ///
    /// # Errors
    /// If there is none.
    pub async fn infer() -> Result<Self, kube::Error> {
        Self::of(KubeConfig::infer().await.map_err(kube::Error::InferConfig)?)
    }

    /// Clients that neither repeat a request nor compress an answer: both are the caller's to ask for.
    ///
    /// # Errors
    /// If `config` leads nowhere.
    fn of(mut config: KubeConfig) -> Result<Self, kube::Error> {
        config.default_retry = false;
        config.disable_compression = true;
        let operator = Client::try_from(config.clone())?;
        config.auth_info = AuthInfo::default();
        let nobody = Client::try_from(config)?;
        Ok(Clients { operator, nobody })
    }
}

/// The objects.
pub struct Objects {
    most: Mode,
    operator: Client,
    impersonator: Option<Impersonator>,
    extra_keys: BTreeSet<String>,
}

/// One authorised request.
#[derive(Clone, Copy)]
pub(super) struct Call<'a> {
    pub(super) caller: &'a Caller,
    pub(super) request: &'a Parts,
    pub(super) query: &'a Query<'a>,
    pub(super) attributes: &'a Attributes,
    /// When the caller gives up. A watch goes on after it.
    pub(super) deadline: Instant,
}

impl Objects {
    /// Objects at the end of `clients`.
    pub fn new(config: Config, clients: Clients) -> Self {
        let impersonator = config
            .account
            .filter(|_| config.mode == Mode::Full)
            .map(|account| Impersonator::new(clients.nobody, config.namespace, account));
        Objects {
            most: match (config.mode, &impersonator) {
                (Mode::Full, None) => Mode::ReadOnly,
                (mode, _) => mode,
            },
            operator: clients.operator,
            impersonator,
            extra_keys: config.extra_keys,
        }
    }

    /// Keeps what writing needs. Never ends.
    pub(super) async fn keep(&self) {
        match &self.impersonator {
            Some(impersonator) => impersonator.keep(self.operator.clone()).await,
            None => std::future::pending().await,
        }
    }

    /// What may be done now: without the rights to act for callers nothing is written.
    pub(super) fn mode(&self) -> Mode {
        match &self.impersonator {
            Some(impersonator) if impersonator.is_refused() => Mode::ReadOnly,
            _ => self.most,
        }
    }

    /// Passes a request on, and what comes back.
    pub(super) async fn pass<B>(
        &self,
        call: Call<'_>,
        body: B,
        limits: &Limits,
        leaving: &CancellationToken,
    ) -> Result<Response<Body>, Failure>
    where
        B: HttpBody<Data = Bytes>,
        B::Error: Into<Broken>,
    {
        let Attributes {
            verb,
            name,
            subresource,
            ..
        } = call.attributes;
        let mode = self.mode();
        let verbs = match subresource {
            Some(_) => mode.status_verbs(),
            None => mode.verbs(),
        };
        if !verbs.contains(verb) {
            let allow = mode.allow(name.is_some(), subresource.is_some());
            return Err(Failure::method_not_supported(verb, allow));
        }
        match *verb {
            "get" | "list" | "watch" => self.read(call, limits, leaving).await,
            _ => {
                let mut line = Line::of(&call);
                let answer = self.write(call, body, limits).await;
                line.code = Some(match &answer {
                    Ok(response) => response.status(),
                    Err(failure) => failure.code,
                });
                answer
            }
        }
    }

    async fn read(
        &self,
        call: Call<'_>,
        limits: &Limits,
        leaving: &CancellationToken,
    ) -> Result<Response<Body>, Failure> {
        let request = Upstream::of(call.request, call.attributes)?.with(Bytes::new())?;
        let read = async {
            let response = self.operator.send(request).await.map_err(|error| {
                tracing::warn!(%error, "the API server cannot be reached");
                Failure::unavailable("the API server cannot be reached")
            })?;
            if call.attributes.verb == "watch" && response.status() == StatusCode::OK {
                let (parts, body) = response.into_parts();
                let mut response = Response::new(stream::hand_on(body, leaving.clone()));
                *response.headers_mut() = answer::headers(parts.status, &parts.headers, false);
                response.extensions_mut().insert(Endless);
                return Ok(response);
            }
            self.answer(call, response, limits, Sender::Operator).await
        };
        tokio::time::timeout_at(call.deadline, read)
            .await
            .map_err(|_| Failure::timeout())?
    }

    async fn write<B>(&self, call: Call<'_>, body: B, limits: &Limits) -> Result<Response<Body>, Failure>
    where
        B: HttpBody<Data = Bytes>,
        B::Error: Into<Broken>,
    {
        let write = async {
            let upstream = Upstream::of(call.request, call.attributes)?;
            // What it is comes before its length, and that before what it says.
            let kind = kind(call.request)?;
            let sent = stream::receive(body).await?;
            let sent =
                translate::inbound(kind, sent).map_err(|refused| Failure::body(refused.code(), refused.to_string()))?;
            let mut request = upstream.with(sent)?;
            let (client, sender) = self.sender(call.caller, &mut request)?;
            let response = client.send(request).await.map_err(|error| {
                tracing::warn!(%error, "the API server did not answer a write");
                Failure::unavailable_once("the API server did not answer; what was asked for may have been done")
            })?;
            self.answer(call, response, limits, sender).await
        };
        tokio::time::timeout_at(call.deadline, write)
            .await
            .map_err(|_| Failure::timeout())?
    }

    /// Makes the request the caller's. One who may do everything cannot be impersonated, and is let through as the operator.
    fn sender(
        &self,
        caller: &Caller,
        request: &mut Request<kube::client::Body>,
    ) -> Result<(&Client, Sender<'_>), Failure> {
        if caller.is_master() {
            return Ok((&self.operator, Sender::Operator));
        }
        let unready = || Failure::unavailable("the operator is not ready to write for callers yet");
        let impersonator = self.impersonator.as_ref().ok_or_else(unready)?;
        let authorization = impersonator.authorization().ok_or_else(unready)?;
        let impersonation = Impersonation::of(caller, &self.extra_keys)?;
        let headers = request.headers_mut();
        headers.insert(AUTHORIZATION, (*authorization).clone());
        impersonation.write(headers);
        Ok((impersonator.client(), Sender::Caller(impersonator)))
    }

    async fn answer(
        &self,
        call: Call<'_>,
        response: Response<kube::client::Body>,
        limits: &Limits,
        sender: Sender<'_>,
    ) -> Result<Response<Body>, Failure> {
        let writes = !matches!(call.attributes.verb, "get" | "list" | "watch");
        let (parts, body) = response.into_parts();
        let held = stream::hold(body, limits, writes).await?;
        answer::judge(parts.status, &held.bytes, call.attributes, &sender)?;
        let bytes = match answer::is_json(&parts.headers) {
            true => stream::noted(translate::outbound(held.bytes)),
            false => held.bytes,
        };
        let mut headers = answer::headers(parts.status, &parts.headers, writes);
        headers.insert(CONTENT_LENGTH, bytes.len().into());
        let mut response = Response::new(response::whole(bytes));
        *response.status_mut() = parts.status;
        *response.headers_mut() = headers;
        Ok(response::keeping(response, held.room))
    }
}

/// How a request's body is read.
fn kind(request: &Parts) -> Result<Inbound, Failure> {
    let content_type = request.headers.get(CONTENT_TYPE).map_or(Ok(""), |value| value.to_str());
    // What is no text is no media type either.
    let content_type = content_type.unwrap_or("?");
    let kind = match request.method {
        Method::POST | Method::PUT => Inbound::object(content_type),
        Method::PATCH => Inbound::patch(content_type),
        _ => Ok(Inbound::Untouched),
    };
    kind.map_err(|refused| Failure::body(refused.code(), refused.to_string()))
}

/// The log's line about one write, written however it ends.
struct Line {
    user: String,
    verb: &'static str,
    namespace: Option<String>,
    name: Option<String>,
    subresource: Option<String>,
    dry_run: bool,
    as_operator: bool,
    audit_id: Option<String>,
    /// Absent where the caller left before the end.
    code: Option<StatusCode>,
}

impl Line {
    fn of(call: &Call) -> Self {
        let attributes = call.attributes;
        let audit_id = call.request.headers.get(AUDIT_ID).and_then(|id| id.to_str().ok());
        Line {
            user: call.caller.user.clone(),
            verb: attributes.verb,
            namespace: attributes.namespace.clone(),
            name: attributes.name.clone(),
            subresource: attributes.subresource.clone(),
            dry_run: call.query.get("dryRun").is_some_and(|value| !value.is_empty()),
            as_operator: call.caller.is_master(),
            audit_id: audit_id.map(str::to_owned),
            code: None,
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        tracing::info!(
            target: "audit",
            user = self.user,
            verb = self.verb,
            namespace = self.namespace,
            name = self.name,
            subresource = self.subresource,
            dry_run = self.dry_run,
            as_operator = self.as_operator,
            audit_id = self.audit_id,
            code = self.code.map(|code| code.as_u16()),
            "a write under v1"
        );
    }
}
