//! A server with a played API server behind it and callers before it.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use http::Method;
use model_deployment_crds::metrics::ModelDeploymentMetrics;
use model_deployment_operator::certificates::ServingCertificate;
use model_deployment_operator::server::metrics::{Answers, MetricsQuery, Refusal};
use model_deployment_operator::server::objects::{self, Clients, Mode, Objects};
use model_deployment_operator::server::{Config, Server, listener};
use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use rustls::crypto::aws_lc_rs;
use rustls::sign::CertifiedKey;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::api::{Api, Asked, PUBLISHED};
use crate::caller::Caller;
use crate::issued::{Authority, Identity, params};

pub const METRICS: &str = "/apis/worker.gpustack.ai/v1/namespaces/ns/modeldeployments/chat/metrics";
pub const ALICE: &[(&str, &str)] = &[("x-remote-user", "alice")];

/// An answer without figures.
pub fn answer() -> ModelDeploymentMetrics {
    serde_json::from_value(json!({
        "apiVersion": "worker.gpustack.ai/v1",
        "kind": "ModelDeploymentMetrics",
        "metadata": {"name": "chat", "namespace": "ns"},
        "timestamp": "2026-01-02T03:04:05.000006Z",
        "partial": false,
    }))
    .unwrap()
}

type Reply = Arc<dyn Fn(MetricsQuery) -> BoxFuture<'static, Result<ModelDeploymentMetrics, Refusal>> + Send + Sync>;

/// Played metrics: who was asked for, and what to say.
#[derive(Clone, Default)]
pub struct Played {
    pub asked: Arc<Mutex<Vec<(String, String, MetricsQuery)>>>,
    replies: Arc<Mutex<HashMap<String, Reply>>>,
    pub listed: Arc<Mutex<bool>>,
}

impl Played {
    pub fn reply(
        &self,
        name: &str,
        reply: impl Fn(MetricsQuery) -> BoxFuture<'static, Result<ModelDeploymentMetrics, Refusal>> + Send + Sync + 'static,
    ) {
        self.replies.lock().insert(name.to_owned(), Arc::new(reply));
    }
}

impl Answers for Played {
    fn is_listed(&self) -> bool {
        *self.listed.lock()
    }

    fn answer<'a>(
        &'a self,
        namespace: &'a str,
        name: &'a str,
        query: MetricsQuery,
    ) -> BoxFuture<'a, Result<ModelDeploymentMetrics, Refusal>> {
        self.asked.lock().push((namespace.to_owned(), name.to_owned(), query));
        match self.replies.lock().get(name) {
            Some(reply) => reply(query),
            None => async { Err(Refusal::NotFound) }.boxed(),
        }
    }
}

/// Publishes the usual trust in `proxy`, with `changes` to it.
pub fn publish(api: &Api, proxy: &Authority, changes: Value) {
    let mut data = json!({
        "client-ca-file": Authority::new("users").pem,
        "requestheader-client-ca-file": proxy.pem,
        "requestheader-allowed-names": "[]",
        "requestheader-username-headers": r#"["X-Remote-User"]"#,
        "requestheader-group-headers": r#"["X-Remote-Group"]"#,
        "requestheader-extra-headers-prefix": r#"["X-Remote-Extra-"]"#,
        "requestheader-uid-headers": r#"["X-Remote-Uid"]"#,
    });
    for (key, value) in changes.as_object().unwrap() {
        data[key] = value.clone();
    }
    data.as_object_mut().unwrap().retain(|_, value| !value.is_null());
    api.put(
        PUBLISHED,
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "kube-system"}, "data": data}),
    );
}

pub struct Stage {
    pub api: Api,
    pub metrics: Played,
    /// The authority of the front proxy.
    pub proxy: Authority,
    pub shutdown: CancellationToken,
    pub serving: tokio::task::JoinHandle<()>,
    caller: Caller,
    counts: Registry,
}

impl Stage {
    /// A server whose trust is not published yet.
    pub async fn bare() -> Self {
        Self::before(Api::new(), Mode::Full).await
    }

    /// A server in another mode.
    pub async fn of_mode(mode: Mode) -> Self {
        Self::trusting(Self::before(Api::new(), mode).await).await
    }

    /// A server with a played API server that was told something before.
    pub async fn after(api: Api) -> Self {
        Self::trusting(Self::before(api, Mode::Full).await).await
    }

    /// A server that may not read the published trust.
    pub async fn forbidden() -> Self {
        let api = Api::new();
        let (collection, _) = PUBLISHED.rsplit_once('/').unwrap();
        for path in [PUBLISHED, collection] {
            api.refuse(Method::GET, path, &[403; 20]);
        }
        Self::before(api, Mode::Full).await
    }

    async fn before(api: Api, mode: Mode) -> Self {
        let metrics = Played::default();
        *metrics.listed.lock() = true;
        metrics.reply("chat", |_| async { Ok(answer()) }.boxed());
        let authority = Authority::new("serving");
        let name = "operator.system.svc";
        let mut leaf = params(name);
        leaf.subject_alt_names = vec![rcgen::SanType::DnsName(name.try_into().unwrap())];
        leaf.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ServerAuth];
        let Identity { chain, key } = authority.issue(leaf);
        let certificate = ServingCertificate::default();
        certificate.swap(Arc::new(
            CertifiedKey::from_der(chain, key, &aws_lc_rs::default_provider()).unwrap(),
        ));
        let socket = listener::bind("127.0.0.1".parse().unwrap(), 0).unwrap();
        let address = socket.local_addr().unwrap();
        let shutdown = CancellationToken::new();
        let config = Config {
            shutdown_delay: Duration::ZERO,
        };
        let objects = Objects::new(
            objects::Config {
                mode,
                namespace: "system".into(),
                account: Some("impersonator".into()),
                extra_keys: ["example.com/scope".to_owned()].into(),
            },
            Clients {
                operator: api.client(),
                nobody: api.client(),
            },
        );
        let server = Server::new(config, api.client(), Arc::new(metrics.clone()), objects, certificate);
        let mut counts = Registry::default();
        server.register(&mut counts);
        let background = [
            tokio::spawn(server.follow_front_proxy()),
            tokio::spawn(server.keep_impersonator()),
        ];
        let serving = tokio::spawn({
            let shutdown = shutdown.clone();
            async move {
                server.serve(socket, shutdown).await.unwrap();
                background.iter().for_each(|part| part.abort());
            }
        });
        let caller = Caller {
            address,
            name: name.to_owned(),
            authority: authority.der,
            identity: None,
        };
        Stage {
            api,
            metrics,
            proxy: Authority::new("front proxy"),
            shutdown,
            serving,
            caller,
            counts,
        }
    }

    /// A server that trusts `proxy`, and has taken it up.
    pub async fn new() -> Self {
        Self::trusting(Stage::bare().await).await
    }

    async fn trusting(stage: Self) -> Self {
        stage.publish(json!({"requestheader-allowed-names": r#"["front-proxy-client"]"#}));
        stage.until_code(&stage.front(), 200).await;
        stage
    }

    /// How many requests were answered, by what they were for and with which code, as the server counts.
    pub fn answered(&self) -> BTreeMap<(String, u16), u64> {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.counts).unwrap();
        let label = |line: &str, name: &str| {
            let (_, rest) = line.split_once(&format!("{name}=\"")).unwrap();
            rest.split('"').next().unwrap().to_owned()
        };
        let mut answered = BTreeMap::new();
        for line in text.lines().filter(|line| line.starts_with("api_requests_total{")) {
            let (_, count) = line.rsplit_once(' ').unwrap();
            let of = (label(line, "resource"), label(line, "code").parse().unwrap());
            *answered.entry(of).or_default() += count.parse::<u64>().unwrap();
        }
        answered
    }

    /// Waits until the server has found out whether it may write for callers.
    pub async fn until_writing(&self) {
        let probed = |api: &Api| api.asked().iter().any(Asked::is_probe);
        self.api.until("the impersonator was tried", probed).await;
    }

    /// Publishes the usual trust, with `changes` to it.
    pub fn publish(&self, changes: Value) {
        publish(&self.api, &self.proxy, changes);
    }

    /// The API server's front proxy.
    pub fn front(&self) -> Caller {
        self.with(self.proxy.issue(params("front-proxy-client")))
    }

    /// Someone with a certificate.
    pub fn with(&self, identity: Identity) -> Caller {
        Caller {
            identity: Some(identity),
            ..self.anyone()
        }
    }

    /// Someone without one.
    pub fn anyone(&self) -> Caller {
        self.caller.clone()
    }

    /// Waits until `caller`, as alice, gets `code` for the metrics.
    pub async fn until_code(&self, caller: &Caller, code: u16) {
        let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
        loop {
            let answer = caller.get(METRICS, ALICE).await;
            if answer.code == code {
                return;
            }
            assert!(tokio::time::Instant::now() < deadline, "{answer:?}");
            tokio::task::yield_now().await;
        }
    }
}
