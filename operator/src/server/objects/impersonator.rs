//! The second ServiceAccount, which may do nothing but act for callers: its token, and whether the API server lets it.
//!
//! A request of its that lost the caller's headers could do nothing. Knows no ModelDeployment.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use http::header::AUTHORIZATION;
use http::{HeaderValue, Request, StatusCode};
use jiff::Timestamp;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::PostParams;
use kube::client::Body;
use kube::{Api, Client};
use tokio::sync::Notify;

use super::super::front_proxy::caller::Caller;
use super::super::{RESOURCE, STORED_GROUP_VERSION};
use super::impersonation::Impersonation;
use crate::console::sentence;

/// How long a token is asked for, in seconds: as short as keeps renewing it rare.
const LIFE: i64 = 3600;
/// A token is renewed when so much of its life is left as this part of the whole.
const RENEWED_AT: u32 = 5;
/// Between tries while it cannot be had, or may not be used.
const PAUSE: Duration = Duration::from_secs(30);
/// Who is impersonated to learn whether that is allowed. Nobody is called so, and the request changes nothing.
const NOBODY: &str = "model-deployment-operator:nobody";

/// Sends what callers write, in their name.
pub(super) struct Impersonator {
    /// Sends no identity of its own.
    client: Client,
    namespace: String,
    account: String,
    token: ArcSwapOption<HeaderValue>,
    refused: AtomicBool,
    stale: Notify,
}

/// Why callers cannot be acted for.
#[derive(Debug, thiserror::Error)]
enum Problem {
    #[error("cannot get a token of ServiceAccount {0}")]
    Token(String, #[source] kube::Error),
    #[error("the API server's token is no token")]
    NoToken,
    #[error("cannot ask whether callers may be impersonated")]
    Ask(#[source] kube::Error),
    #[error("ServiceAccount {0} may not impersonate: {1}")]
    Refused(String, String),
}

impl Problem {
    /// Whether rights are missing, rather than an answer.
    fn is_refusal(&self) -> bool {
        match self {
            Problem::Token(_, kube::Error::Api(status)) => matches!(status.code, 403 | 404),
            Problem::Refused(..) => true,
            _ => false,
        }
    }
}

impl Impersonator {
    /// Acts through `client`, which brings no credentials, as ServiceAccount `account` of `namespace`.
    pub(super) fn new(client: Client, namespace: String, account: String) -> Self {
        Impersonator {
            client,
            namespace,
            account,
            token: ArcSwapOption::empty(),
            refused: AtomicBool::new(false),
            stale: Notify::new(),
        }
    }

    /// Where its requests go.
    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    /// Its name as a user.
    pub(super) fn user(&self) -> String {
        format!("system:serviceaccount:{}:{}", self.namespace, self.account)
    }

    /// Its credentials, where it has some.
    pub(super) fn authorization(&self) -> Option<Arc<HeaderValue>> {
        self.token.load_full()
    }

    /// Whether the API server was seen not to let it act for others.
    pub(super) fn is_refused(&self) -> bool {
        self.refused.load(Ordering::Relaxed)
    }

    /// The API server did not take the token.
    pub(super) fn is_stale(&self) {
        self.stale.notify_one();
    }

    /// Keeps the token fresh, through `operator`, and the answer to whether it may be used. Never ends.
    pub(super) async fn keep(&self, operator: Client) {
        let api: Api<ServiceAccount> = Api::namespaced(operator, &self.namespace);
        let mut said = None;
        loop {
            let (pause, problem) = match self.renew(&api).await {
                Ok(pause) => (pause, None),
                Err(problem) => (PAUSE, Some(problem)),
            };
            if problem.as_ref().is_none_or(Problem::is_refusal) {
                self.refused.store(problem.is_some(), Ordering::Relaxed);
            }
            // One line for each change, not one for each attempt.
            let text = problem.as_ref().map(|problem| sentence(problem));
            match &text {
                Some(text) if said.as_ref() != Some(text) => {
                    tracing::warn!(
                        read_only = self.is_refused(),
                        "objects cannot be written under v1: {text}"
                    );
                }
                None if said.is_some() => tracing::info!("objects can be written under v1"),
                _ => {}
            }
            said = text;
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.stale.notified() => {}
            }
        }
    }

    /// A new token, tried; and how long it is good.
    async fn renew(&self, api: &Api<ServiceAccount>) -> Result<Duration, Problem> {
        let request = TokenRequest {
            spec: TokenRequestSpec {
                expiration_seconds: Some(LIFE),
                ..TokenRequestSpec::default()
            },
            ..TokenRequest::default()
        };
        let granted: TokenRequest = api
            .create_subresource("token", &self.account, &PostParams::default(), &request)
            .await
            .map_err(|error| Problem::Token(self.account.clone(), error))?;
        let status = granted.status.ok_or(Problem::NoToken)?;
        let mut token = HeaderValue::try_from(format!("Bearer {}", status.token)).map_err(|_| Problem::NoToken)?;
        token.set_sensitive(true);
        self.token.store(Some(Arc::new(token.clone())));
        self.ask(token).await?;
        let life = status.expiration_timestamp.0.duration_since(Timestamp::now());
        let life = Duration::try_from(life).unwrap_or_default();
        Ok((life - life / RENEWED_AT).max(PAUSE))
    }

    /// Deletes nothing as nobody, which is refused for one of two reasons.
    async fn ask(&self, token: HeaderValue) -> Result<(), Problem> {
        let nobody = Caller {
            user: NOBODY.to_owned(),
            uid: None,
            groups: vec![NOBODY.to_owned()],
            extra: Default::default(),
        };
        let target = format!(
            "/apis/{STORED_GROUP_VERSION}/namespaces/{}/{RESOURCE}/nobody?dryRun=All",
            self.namespace
        );
        let request = Request::delete(target).header(AUTHORIZATION, token).body(Body::empty());
        let refused = |message: &str| Problem::Refused(self.account.clone(), message.to_owned());
        let mut request = request.map_err(|_| refused("its namespace is no namespace's name"))?;
        Impersonation::of(&nobody, &Default::default())
            .map_err(|_| refused("nobody is nobody"))?
            .write(request.headers_mut());
        let response = self.client.send(request).await.map_err(Problem::Ask)?;
        let code = response.status();
        let body = response.into_body().collect_bytes().await.map_err(Problem::Ask)?;
        match code {
            StatusCode::FORBIDDEN if self.is_refusal(&body) => Err(refused(&message(&body))),
            StatusCode::UNAUTHORIZED => Err(refused("its token is not accepted")),
            _ => Ok(()),
        }
    }

    /// Whether a 403 is about the impersonator, not about the caller it acted for.
    pub(super) fn is_refusal(&self, body: &[u8]) -> bool {
        message(body).contains(&format!("User \"{}\" cannot ", self.user()))
    }
}

/// The message of a `Status` object; nothing where it is none.
fn message(body: &[u8]) -> String {
    let status: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
    status["message"].as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use futures::FutureExt;
    use http::Response;
    use serde_json::json;

    use super::*;

    /// An API server that answers with one code after another, the last for ever; a token to whoever asks for one.
    fn server(codes: &'static [u16], seen: Arc<Mutex<Vec<String>>>) -> Client {
        let mut codes = codes.iter().copied().cycle();
        let service = tower::service_fn(move |request: Request<Body>| {
            let token = request.uri().path().ends_with("/token");
            seen.lock()
                .unwrap()
                .push(format!("{} {}", request.method(), request.uri()));
            let (code, body) = match token {
                true => (
                    201,
                    json!({"metadata": {}, "spec": {"audiences": []}, "status": {
                        "token": "t", "expirationTimestamp": Timestamp::now() + jiff::SignedDuration::from_secs(LIFE),
                    }}),
                ),
                false => (
                    codes.next().unwrap_or(200),
                    json!({"message": "is forbidden: User \"system:serviceaccount:system:impersonator\" cannot impersonate"}),
                ),
            };
            let response = Response::builder()
                .status(code)
                .body(Body::from(serde_json::to_vec(&body).unwrap()));
            async move { response }.boxed()
        });
        Client::new(service, "default")
    }

    /// The rights may come later, and go again.
    #[tokio::test(start_paused = true)]
    async fn rights_that_were_refused_are_asked_for_again() {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let client = server(&[403, 403, 404], seen.clone());
        let impersonator = Impersonator::new(client.clone(), "system".into(), "impersonator".into());
        let kept = impersonator.keep(client);
        let watched = async {
            let mut states = Vec::new();
            for seconds in [1, 30, 30, 30] {
                tokio::time::sleep(Duration::from_secs(seconds)).await;
                states.push(impersonator.is_refused());
            }
            states
        };
        tokio::select! {
            () = kept => unreachable!("it never ends"),
            states = watched => assert_eq!(states, [true, true, false, false]),
        }
        let seen = seen.lock().unwrap();
        assert_eq!(
            seen.len(),
            6,
            "three tokens and three tries, then four fifths of an hour of rest: {seen:?}"
        );
        assert_eq!(
            seen[..2],
            [
                "POST /api/v1/namespaces/system/serviceaccounts/impersonator/token?",
                "DELETE /apis/worker.gpustack.ai/v1alpha1/namespaces/system/modeldeployments/nobody?dryRun=All",
            ]
        );
    }
}
