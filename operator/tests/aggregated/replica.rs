//! Replicas of the operator that read one played Pod, and played ones beside them.

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use kube::runtime::watcher::Event;
use model_deployment::index::Index;
use model_deployment::pod::labels;
use model_deployment::scrape::{self, Scraper};
use model_deployment::snapshot::Snapshots;
use model_deployment_crds::ModelDeployment;
use model_deployment_operator::certificates::{ReplicaIdentity, ServingCertificate};
use model_deployment_operator::replicas::{Counts, Members, Reader};
use model_deployment_operator::server::objects::{self, Clients, Mode, Objects};
use model_deployment_operator::server::tls;
use model_deployment_operator::server::{Config, Server, listener};
use prometheus_client::registry::Registry;
use rustls::crypto::aws_lc_rs;
use rustls::sign::CertifiedKey;
use rustls_pki_types::CertificateDer;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use crate::api::Api;
use crate::caller::{Answer, Caller};
use crate::issued::{Authority, Identity, params};
use crate::stage::{ALICE, METRICS, publish};

/// The Service's name, and that of replicas' certificates.
pub const SERVICE: &str = "op.sys.svc";
pub const CLIENT: &str = "replica.op.sys.svc";
/// UID of the ModelDeployment.
pub const UID: &str = "md-1";
pub const TTFT: &str = "vllm:time_to_first_token_seconds";

const BODY: &str = "\
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running 3
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting 0.1
# TYPE vllm:time_to_first_token_seconds histogram
vllm:time_to_first_token_seconds_bucket{le=\"1.0\"} 5
vllm:time_to_first_token_seconds_bucket{le=\"+Inf\"} 5
vllm:time_to_first_token_seconds_sum 1.5
vllm:time_to_first_token_seconds_count 5
";

/// A Pod with metrics.
pub struct Pod {
    port: u16,
    asked: Arc<AtomicUsize>,
    /// Takes requests and answers none.
    pub hangs: Arc<AtomicBool>,
    _serving: Task,
}

impl Pod {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (asked, hangs) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let (count, holds) = (asked.clone(), hangs.clone());
        let serving = spawn(async move {
            loop {
                let (mut socket, _) = listener.accept().await.unwrap();
                count.fetch_add(1, Ordering::Relaxed);
                let holds = holds.clone();
                tokio::spawn(async move {
                    let mut head = vec![0; 4096];
                    let _ = socket.read(&mut head).await;
                    if holds.load(Ordering::Relaxed) {
                        // Until the reader gives up.
                        let _ = socket.read(&mut head).await;
                        return;
                    }
                    let head = format!(
                        "HTTP/1.1 200 OK\r\ncontent-type: text/plain; version=0.0.4\r\ncontent-length: {}\r\n\r\n",
                        BODY.len()
                    );
                    let _ = socket.write_all(format!("{head}{BODY}").as_bytes()).await;
                });
            }
        });
        Pod {
            port,
            asked,
            hangs,
            _serving: serving,
        }
    }

    /// How often it was read.
    pub fn reads(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }
}

/// A task that ends with its handle.
struct Task(JoinHandle<()>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn spawn(task: impl Future<Output = ()> + Send + 'static) -> Task {
    Task(tokio::spawn(task))
}

/// What a replica has seen of the ModelDeployment.
#[derive(Clone, Copy)]
pub enum Seen {
    /// It, with this UID, and its Pod.
    Uid(&'static str),
    /// That there is none.
    Nothing,
    /// Not even that yet.
    NotYet,
}

fn index(seen: Seen, pod: &Pod) -> Index {
    let index = Index::default();
    if matches!(seen, Seen::NotYet) {
        return index;
    }
    index.observe_replica_set(&Event::<k8s_openapi::api::apps::v1::ReplicaSet>::InitDone);
    index.observe_deployment(&Event::<k8s_openapi::api::apps::v1::Deployment>::InitDone);
    index.observe_pod(&Event::InitDone);
    index.observe_model_deployment(&Event::InitDone);
    let Seen::Uid(uid) = seen else { return index };
    let object: ModelDeployment = serde_json::from_value(json!({
        "apiVersion": "worker.gpustack.ai/v1alpha1", "kind": "ModelDeployment",
        "metadata": {"namespace": "ns", "name": "chat", "uid": uid},
        "spec": {"model": {"name": "m"}, "engine": {"name": "vLLM", "image": "i"}, "roles": [{"name": "server"}]},
    }))
    .unwrap();
    index.observe_model_deployment(&Event::Apply(object));
    let facts = json!({
        "version": 1, "producer": "vLLM", "role": "server", "kind": "Server", "paired": false, "member": "leader",
        "endpoint": {"scheme": "http", "port": pod.port, "path": "/metrics"}, "pool": false, "connector": null,
        "transferConnector": null, "hostTier": false, "storageTier": false, "nativeOffload": false, "tracksLoad": null, "ranks": 1,
        "statsEnabled": true, "takeOver": false, "revision": "r1",
    });
    let object = json!({
        "metadata": {
            "namespace": "ns", "name": "chat-server-0", "uid": "pod-1",
            "ownerReferences": [{
                "apiVersion": "worker.gpustack.ai/v1alpha1", "kind": "ModelDeployment", "name": "chat", "uid": uid, "controller": true,
            }],
            "labels": {
                labels::NAME: labels::PRODUCT, labels::INSTANCE: "chat", labels::COMPONENT: "server", labels::ORDINAL: "0",
                labels::MEMBER: "0", labels::REVISION: "r1",
            },
            "annotations": {"modeldeployment.gpustack.ai/facts": facts.to_string()},
        },
        "spec": {"containers": [{"name": "main", "ports": [{"containerPort": pod.port}]}]},
        "status": {
            "phase": "Running", "podIP": "127.0.0.1",
            "containerStatuses": [{
                "name": "main", "image": "i", "imageID": "", "ready": true, "restartCount": 0,
                "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
            }],
        },
    });
    index.observe_pod(&Event::Apply(serde_json::from_value(object).unwrap()));
    index
}

/// What a replica is given.
pub struct Given<'a> {
    pub pod: &'a Pod,
    pub seen: Seen,
    /// Who issues what it serves and shows.
    pub issuer: &'a Authority,
    pub trusts: Vec<&'a Authority>,
}

impl<'a> Given<'a> {
    pub fn usual(pod: &'a Pod, authority: &'a Authority) -> Self {
        Given {
            pod,
            seen: Seen::Uid(UID),
            issuer: authority,
            trusts: vec![authority],
        }
    }
}

/// A replica, with an API server of its own, so that a test decides what it sees.
pub struct Replica {
    pub name: &'static str,
    pub api: Api,
    pub address: SocketAddr,
    pub members: Members,
    /// The API server's front proxy, and anyone else.
    pub front: Caller,
    pub anyone: Caller,
    counts: Registry,
    shutdown: CancellationToken,
    _tasks: [Task; 3],
}

impl Replica {
    pub async fn start(name: &'static str, given: Given<'_>) -> Self {
        let api = Api::new();
        let proxy = Authority::new("front proxy");
        publish(&api, &proxy, json!({}));
        let index = Arc::new(index(given.seen, given.pod));
        let config = scrape::Config {
            allow: vec!["127.0.0.0/8".parse().unwrap()],
            ..scrape::Config::default()
        };
        let snapshots = Snapshots::new(Scraper::new(config).unwrap(), {
            let index = index.clone();
            move |namespace, name| index.deployment(namespace, name)
        });
        let identity = ReplicaIdentity::new("op", "sys").unwrap();
        let trusted: Vec<CertificateDer<'static>> = given.trusts.iter().map(|one| one.der.clone()).collect();
        identity.swap(Some(certified(client(given.issuer))), &trusted, &trusted);
        let certificate = ServingCertificate::default();
        certificate.swap(certified(server(given.issuer)));
        let (members, counts) = (Members::new(name), Counts::default());
        let mut registry = Registry::default();
        counts.register(&mut registry);
        let reader = Reader::new(index, snapshots, members.clone(), identity, counts);

        let socket = listener::bind("127.0.0.1".parse().unwrap(), 0).unwrap();
        let address = socket.local_addr().unwrap();
        let shutdown = CancellationToken::new();
        let config = Config {
            shutdown_delay: Duration::ZERO,
        };
        let clients = Clients {
            operator: api.client(),
            nobody: api.client(),
        };
        let served = objects::Config {
            mode: Mode::Off,
            namespace: "sys".into(),
            account: None,
            extra_keys: Default::default(),
        };
        let objects = Objects::new(served, clients);
        let server = Server::new(config, api.client(), Arc::new(reader), objects, certificate);
        let trusting = spawn(server.follow_front_proxy());
        let serving = {
            let shutdown = shutdown.clone();
            spawn(async move { server.serve(socket, shutdown).await.unwrap() })
        };
        let following = spawn(members.clone().follow(api.client(), "sys".into(), "op".into()));
        let anyone = Caller {
            address,
            name: SERVICE.to_owned(),
            authority: given.issuer.der.clone(),
            identity: None,
        };
        let front = Caller {
            identity: Some(proxy.issue(params("front-proxy-client"))),
            ..anyone.clone()
        };
        let replica = Replica {
            name,
            api,
            address,
            members,
            front,
            anyone,
            counts: registry,
            shutdown,
            _tasks: [trusting, serving, following],
        };
        // No object is looked for of that name, and no Pod read.
        let nothing = METRICS.replace("chat", "nothing");
        until("it knows whom to believe", async || {
            replica.front.get(&nothing, ALICE).await.code != 401
        })
        .await;
        replica
    }

    /// Has it see these replicas ready, and nobody else.
    pub async fn sees(&self, replicas: &[(&str, SocketAddr)]) {
        for (name, address) in replicas {
            self.api.put(
                &format!("/apis/discovery.k8s.io/v1/namespaces/sys/endpointslices/op-{name}"),
                json!({
                    "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": {}, "addressType": "IPv4",
                    "ports": [{"name": "https", "port": address.port()}],
                    "endpoints": [{
                        "addresses": [address.ip()], "conditions": {"ready": true}, "targetRef": {"kind": "Pod", "name": name},
                    }],
                }),
            );
        }
        // Every one of them owns something.
        let owned = |name: &str| {
            (0..100).any(|key| match self.members.elsewhere(&key.to_string()) {
                Some(owner) => owner.name == name,
                None => name == self.name,
            })
        };
        until("it sees them", async || replicas.iter().all(|(name, _)| owned(name))).await;
    }

    /// Whether it takes another for the owner of the ModelDeployment.
    pub fn forwards(&self) -> bool {
        self.members.elsewhere("ns/chat").is_some()
    }

    pub async fn read(&self, query: &str) -> Answer {
        self.front.get(&format!("{METRICS}{query}"), ALICE).await
    }

    /// How many forwarded reads came to `outcome`, and how many there were.
    pub fn forwarded(&self, outcome: &str) -> (u64, u64) {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.counts).unwrap();
        let count = |line: &str| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap();
        let lines = || text.lines().filter(|line| line.starts_with("forwarded_reads_total{"));
        let named = format!("{{outcome=\"{outcome}\"}}");
        let of = lines().find(|line| line.contains(&named)).map(count);
        (of.unwrap_or_else(|| panic!("{text}")), lines().map(count).sum())
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        self.shutdown.cancel();
    }
}

/// Waits until something holds.
async fn until(what: &str, holds: impl AsyncFn() -> bool) {
    let waiting = async {
        while !holds().await {
            tokio::task::yield_now().await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(300), waiting).await;
    assert!(waited.is_ok(), "never: {what}");
}

/// What a replica serves with, and what it shows.
pub fn server(authority: &Authority) -> Identity {
    let mut leaf = params(SERVICE);
    leaf.subject_alt_names = vec![rcgen::SanType::DnsName(SERVICE.try_into().unwrap())];
    leaf.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ServerAuth];
    authority.issue(leaf)
}

pub fn client(authority: &Authority) -> Identity {
    let mut leaf = params(CLIENT);
    leaf.subject_alt_names = vec![rcgen::SanType::DnsName(CLIENT.try_into().unwrap())];
    authority.issue(leaf)
}

fn certified(Identity { chain, key }: Identity) -> Arc<CertifiedKey> {
    Arc::new(CertifiedKey::from_der(chain, key, &aws_lc_rs::default_provider()).unwrap())
}

/// What a played replica does with a question.
#[derive(Clone)]
pub enum Plays {
    /// Answers with this status and body.
    Says(u16, Bytes),
    /// Never answers, but is alive.
    Ponders,
    /// Takes the question and stops with the connection open.
    Stops,
}

/// A played replica that serves as a real one would; where it listens.
pub async fn played(authority: &Authority, plays: Plays) -> SocketAddr {
    let certificate = ServingCertificate::default();
    certificate.swap(certified(server(authority)));
    let acceptor = TlsAcceptor::from(Arc::new(tls::config(certificate).unwrap()));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (socket, _) = listener.accept().await.unwrap();
            let (acceptor, plays) = (acceptor.clone(), plays.clone());
            tokio::spawn(async move {
                let Ok(stream) = acceptor.accept(socket).await else {
                    return;
                };
                let stream = TokioIo::new(stream);
                let stopped = CancellationToken::new();
                let service = service_fn(|_: Request<Incoming>| {
                    let (plays, stopped) = (plays.clone(), stopped.clone());
                    async move {
                        match plays {
                            Plays::Says(code, body) => {
                                let mut response = Response::new(Full::new(body));
                                *response.status_mut() = code.try_into().unwrap();
                                return Ok::<_, Infallible>(response);
                            }
                            Plays::Ponders => {}
                            Plays::Stops => stopped.cancel(),
                        }
                        std::future::pending().await
                    }
                });
                let serving = http2::Builder::new(TokioExecutor::new()).serve_connection(stream, service);
                let mut serving = std::pin::pin!(serving);
                tokio::select! {
                    _ = serving.as_mut() => {}
                    // Not polled any more, and not closed either.
                    () = stopped.cancelled() => std::future::pending().await,
                }
            });
        }
    });
    address
}

/// The code of a source in `missing[]`; empty where it is not named.
pub fn code(answer: &Value, source: &str) -> String {
    let mut entries = answer["missing"].as_array().into_iter().flatten();
    let entry = entries.find(|entry| entry["source"] == source);
    entry.map_or_else(String::new, |entry| entry["code"].as_str().unwrap().to_owned())
}
