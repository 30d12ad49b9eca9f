//! The certificates' keeper against a played API server.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use k8s_openapi::ByteString;
use model_deployment_operator::certificates::{self, Config, Provider, ReplicaIdentity, ServingCertificate};
use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::aws_lc_rs;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::api::Api;
use crate::issued::{Authority, Identity, params};

const LEAF: &str = "/api/v1/namespaces/sys/secrets/op-tls";
const AUTHORITY: &str = "/api/v1/namespaces/sys/secrets/op-tls-ca";
const SERVICE: &str = "/api/v1/namespaces/sys/services/op";
const API_SERVICE: &str = "/apis/apiregistration.k8s.io/v1/apiservices/v1.worker.gpustack.ai";

struct Replica {
    leading: watch::Sender<bool>,
    serving: ServingCertificate,
    identity: ReplicaIdentity,
    running: JoinHandle<()>,
}

impl Replica {
    fn start(api: &Api, leading: bool) -> Self {
        Self::with(api, leading, Provider::Operator)
    }

    fn with(api: &Api, leading: bool, provider: Provider) -> Self {
        let (sender, receiver) = watch::channel(leading);
        let serving = ServingCertificate::default();
        let config = Config {
            provider,
            namespace: "sys".into(),
            service: "op".into(),
            secret: "op-tls".into(),
            authority_secret: "op-tls-ca".into(),
            api_service: "v1.worker.gpustack.ai".into(),
        };
        let identity = ReplicaIdentity::new("op", "sys").unwrap();
        let running = tokio::spawn(certificates::run(
            api.client(),
            config,
            receiver,
            serving.clone(),
            identity.clone(),
        ));
        Replica {
            leading: sender,
            serving,
            identity,
            running,
        }
    }

    /// Waits until what is served is what the Secret says.
    async fn serves(&self, api: &Api, certificate: &Value) {
        let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
        loop {
            let served = self.serving.current().map(|key| pem_of(&key.cert[0]));
            if served.as_deref() == Some(&text(certificate)) {
                return;
            }
            assert!(tokio::time::Instant::now() < deadline, "{:?}", api.asked());
            tokio::task::yield_now().await;
        }
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        self.running.abort();
    }
}

fn pem_of(der: &[u8]) -> String {
    pem::encode_config(
        &pem::Pem::new("CERTIFICATE", der.to_vec()),
        pem::EncodeConfig::new().set_line_ending(pem::LineEnding::LF),
    )
}

fn text(value: &Value) -> String {
    let ByteString(bytes) = serde_json::from_value(value.clone()).unwrap();
    String::from_utf8(bytes).unwrap().replace("\r\n", "\n")
}

/// An API server that has the operator's Service.
fn installed() -> Api {
    let api = Api::new();
    service(&api);
    api
}

fn service(api: &Api) {
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"uid": "service-uid"}});
    api.put(SERVICE, service);
}

fn api_service(api: &Api) {
    api.put(
        API_SERVICE,
        json!({
            "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {},
            "spec": {"group": "worker.gpustack.ai", "version": "v1", "groupPriorityMinimum": 1000, "versionPriority": 10},
        }),
    );
}

fn bundle(api: &Api) -> String {
    api.get(API_SERVICE)
        .map_or_else(String::new, |service| match &service["spec"]["caBundle"] {
            Value::Null => String::new(),
            bundle => text(bundle),
        })
}

fn count(bundle: &str) -> usize {
    bundle.matches("BEGIN CERTIFICATE").count()
}

async fn published(api: &Api) {
    api.until("the bundle is published", |api| {
        let leaf = api.get(LEAF);
        leaf.is_some_and(|leaf| !leaf["data"]["ca.crt"].is_null() && text(&leaf["data"]["ca.crt"]) == bundle(api))
    })
    .await;
}

/// Damages one member of a Secret.
fn damage(api: &Api, path: &str, member: &str, value: &str) {
    let mut secret = api.get(path).unwrap();
    secret["data"][member] = serde_json::to_value(ByteString(value.as_bytes().to_vec())).unwrap();
    api.put(path, secret);
}

#[tokio::test]
async fn the_first_replica_makes_both_before_anyone_leads() {
    let api = installed();
    api_service(&api);
    let replica = Replica::start(&api, false);
    api.until("both Secrets are made", |api| {
        api.get(LEAF).is_some() && api.get(AUTHORITY).is_some()
    })
    .await;
    let leaf = api.get(LEAF).unwrap();
    replica.serves(&api, &leaf["data"]["tls.crt"]).await;
    // Ninety days from an hour ago.
    let left = replica
        .serving
        .expires()
        .unwrap()
        .duration_since(jiff::Timestamp::now());
    assert_eq!(left.as_hours(), 90 * 24 - 2, "{left}");
    assert_eq!(leaf["type"], "kubernetes.io/tls");
    assert_eq!(
        leaf["metadata"]["ownerReferences"],
        json!([{"apiVersion": "v1", "kind": "Service", "name": "op", "uid": "service-uid"}])
    );
    let authority = api.get(AUTHORITY).unwrap();
    assert_eq!(leaf["data"]["ca.crt"], authority["data"]["tls.crt"]);
    assert!(leaf["data"]["ca.key"].is_null());
    // Who does not lead tells the API server nothing; who then leads does.
    assert_eq!(bundle(&api), "");
    replica.leading.send(true).unwrap();
    published(&api).await;
    assert_eq!(bundle(&api), text(&authority["data"]["tls.crt"]));
}

/// While it is uninstalled, the Service goes before the operator: a Secret made then would have no owner and stay.
#[tokio::test]
async fn without_its_service_no_secret_is_made() {
    let api = Api::new();
    let _replica = Replica::start(&api, true);
    api.until("it was looked for", |api| {
        api.asked().iter().any(|asked| asked.path == SERVICE)
    })
    .await;
    assert_eq!((api.get(LEAF), api.get(AUTHORITY)), (None, None));
    service(&api);
    api.until("both Secrets are made", |api| {
        api.get(LEAF).is_some() && api.get(AUTHORITY).is_some()
    })
    .await;
}

#[tokio::test]
async fn replicas_that_start_together_serve_one_leaf() {
    let api = installed();
    let replicas: Vec<_> = (0..3).map(|_| Replica::start(&api, false)).collect();
    api.until("the leaf is made", |api| api.get(LEAF).is_some()).await;
    let leaf = api.get(LEAF).unwrap();
    for replica in &replicas {
        replica.serves(&api, &leaf["data"]["tls.crt"]).await;
    }
    assert_eq!(api.get(LEAF).unwrap()["data"], leaf["data"]);
    assert_eq!(leaf["data"]["ca.crt"], api.get(AUTHORITY).unwrap()["data"]["tls.crt"]);
}

/// kubevirt/kubevirt#18936: a Secret was renewed, and Pods served the old leaf until it expired.
#[tokio::test]
async fn a_damaged_leaf_is_issued_anew_and_every_replica_takes_it() {
    let api = installed();
    api_service(&api);
    let (leader, other) = (Replica::start(&api, true), Replica::start(&api, false));
    published(&api).await;
    let mut before = api.get(LEAF).unwrap();
    for (member, value) in [
        ("tls.key", "garbage"),
        ("tls.crt", "garbage"),
        ("tls.crt", ""),
        ("ca.crt", "garbage"),
    ] {
        damage(&api, LEAF, member, value);
        let damaged = api.get(LEAF).unwrap();
        api.until("the Secret is repaired", |api| {
            api.get(LEAF).unwrap()["data"] != damaged["data"]
        })
        .await;
        let after = api.get(LEAF).unwrap();
        leader.serves(&api, &after["data"]["tls.crt"]).await;
        other.serves(&api, &after["data"]["tls.crt"]).await;
        if member != "ca.crt" {
            assert_ne!(after["data"]["tls.crt"], before["data"]["tls.crt"], "{member}");
        }
        assert_eq!(count(&text(&after["data"]["ca.crt"])), 1, "{member}");
        before = after;
    }
}

#[tokio::test]
async fn the_last_good_leaf_is_served_while_nobody_repairs() {
    let api = installed();
    let replica = Replica::start(&api, false);
    api.until("the leaf is made", |api| api.get(LEAF).is_some()).await;
    let good = api.get(LEAF).unwrap();
    replica.serves(&api, &good["data"]["tls.crt"]).await;
    let key = rcgen::KeyPair::generate().unwrap().serialize_pem();
    damage(&api, LEAF, "tls.key", &key);
    // A second replica, which has seen nothing else, has nothing to serve; when the leader has repaired it, both serve that.
    let second = Replica::start(&api, false);
    api.until("both replicas watch", |api| {
        api.asked()
            .iter()
            .filter(|asked| asked.path == "/api/v1/namespaces/sys/secrets" && asked.method == Method::GET)
            .count()
            >= 8
    })
    .await;
    assert!(!second.serving.is_loaded());
    replica.serves(&api, &good["data"]["tls.crt"]).await;
    replica.leading.send(true).unwrap();
    api.until("the leader repairs", |api| {
        api.get(LEAF).unwrap()["data"]["tls.crt"] != good["data"]["tls.crt"]
    })
    .await;
    let repaired = api.get(LEAF).unwrap();
    replica.serves(&api, &repaired["data"]["tls.crt"]).await;
    second.serves(&api, &repaired["data"]["tls.crt"]).await;
}

#[tokio::test]
async fn a_lost_authority_is_replaced_beside_the_old_one() {
    let api = installed();
    api_service(&api);
    let replica = Replica::start(&api, true);
    published(&api).await;
    let before = api.get(LEAF).unwrap();
    api.delete(AUTHORITY);
    api.until("both authorities are published", |api| count(&bundle(api)) == 2)
        .await;
    let after = api.get(LEAF).unwrap();
    assert_eq!(
        after["data"]["tls.crt"], before["data"]["tls.crt"],
        "the leaf is not changed with the bundle"
    );
    assert!(bundle(&api).starts_with(&text(&before["data"]["ca.crt"])));
    replica.serves(&api, &before["data"]["tls.crt"]).await;
}

#[tokio::test]
async fn drift_of_the_bundle_is_put_right_and_nothing_else_is_touched() {
    let api = installed();
    api_service(&api);
    let _replica = Replica::start(&api, true);
    published(&api).await;
    let right = bundle(&api);
    let mut service = api.get(API_SERVICE).unwrap();
    service["spec"]["caBundle"] = serde_json::to_value(ByteString(Authority::new("other").pem.into_bytes())).unwrap();
    api.put(API_SERVICE, service);
    api.until("the bundle is put right", |api| bundle(api) == right).await;
    let patches: Vec<Value> = api
        .asked()
        .into_iter()
        .filter(|asked| asked.method == Method::PATCH)
        .map(|asked| asked.body)
        .collect();
    assert_eq!(patches.len(), 2);
    for patch in patches {
        assert_eq!(
            patch["spec"].as_object().unwrap().keys().collect::<Vec<_>>(),
            ["caBundle"]
        );
        assert_eq!(
            patch["metadata"].as_object().unwrap().keys().collect::<Vec<_>>(),
            ["name", "uid"]
        );
    }
}

/// A server-side apply creates what is not there; an APIService that was deleted must stay deleted.
#[tokio::test]
async fn an_absent_api_service_is_never_created() {
    let api = installed();
    api_service(&api);
    let replica = Replica::start(&api, false);
    api.until("the leaf is made", |api| api.get(LEAF).is_some()).await;
    // Deleted before a patch succeeds.
    api.refuse(Method::PATCH, API_SERVICE, &[500]);
    replica.leading.send(true).unwrap();
    api.until("a patch was tried", |api| {
        api.asked().iter().any(|asked| asked.method == Method::PATCH)
    })
    .await;
    api.delete(API_SERVICE);
    damage(&api, LEAF, "tls.key", "garbage");
    let damaged = api.get(LEAF).unwrap();
    api.until("the leader goes on", |api| {
        api.get(LEAF).unwrap()["data"] != damaged["data"]
    })
    .await;
    assert_eq!(api.get(API_SERVICE), None);
    // And when it is there again, it is told.
    api_service(&api);
    published(&api).await;
}

/// kedacore/keda#6551, #5542: a conflict on the APIService stopped serving.
#[tokio::test]
async fn conflicts_and_failures_are_tried_again_and_stop_nothing() {
    let api = installed();
    api_service(&api);
    api.refuse(Method::PATCH, API_SERVICE, &[409, 500]);
    let replica = Replica::start(&api, true);
    published(&api).await;
    assert!(!replica.running.is_finished());
    replica.serves(&api, &api.get(LEAF).unwrap()["data"]["tls.crt"]).await;
    let patches = api.asked().iter().filter(|asked| asked.method == Method::PATCH).count();
    assert_eq!(patches, 3);
}

/// The whole renewal of an authority, watched at every write: the leaf in force is always one that the API server trusts, and the
/// new authority's leaf comes two minutes after its authority was published. Time is tokio's, which moves when nothing else does.
#[tokio::test(start_paused = true)]
async fn the_leaf_is_trusted_at_every_moment_of_a_renewal() {
    let api = installed();
    api_service(&api);
    let _replica = Replica::start(&api, true);
    published(&api).await;
    let settled = api.history().len();
    let old = api.get(LEAF).unwrap();
    api.delete(AUTHORITY);
    api.until("both authorities are published", |api| count(&bundle(api)) == 2)
        .await;
    let since = tokio::time::Instant::now();
    api.until("a leaf of the new authority", |api| {
        api.get(LEAF).unwrap()["data"]["tls.crt"] != old["data"]["tls.crt"]
    })
    .await;
    assert!(since.elapsed() >= Duration::from_secs(120), "{:?}", since.elapsed());
    assert!(since.elapsed() < Duration::from_secs(130), "{:?}", since.elapsed());

    let history = api.history();
    let (mut leaf, mut trusted) = (text(&old["data"]["tls.crt"]), String::new());
    for (number, (path, object)) in history.iter().enumerate() {
        match path.as_str() {
            LEAF => leaf = text(&object["data"]["tls.crt"]),
            API_SERVICE if !object["spec"]["caBundle"].is_null() => trusted = text(&object["spec"]["caBundle"]),
            _ => continue,
        }
        if number >= settled {
            assert!(is_trusted(&leaf, &trusted), "{number}: {path}");
        }
    }
    let new = api.get(LEAF).unwrap();
    assert!(is_trusted(
        &text(&new["data"]["tls.crt"]),
        &text(&api.get(AUTHORITY).unwrap()["data"]["tls.crt"])
    ));
    assert!(!is_trusted(
        &text(&old["data"]["tls.crt"]),
        &text(&api.get(AUTHORITY).unwrap()["data"]["tls.crt"])
    ));
    assert_eq!(count(&bundle(&api)), 2, "the old authority is still trusted");
}

/// The renewal of an authority, as two replicas see it that call each other: at no moment does one of them show what the other does not
/// believe, and what both show in the end comes from the new one.
async fn replicas_believe_each_other_while(api: &Api, provider: Provider, renew: impl Fn(&Api)) {
    let replicas = [true, false].map(|leading| Replica::with(api, leading, provider));
    let shown = || {
        let keys = replicas
            .each_ref()
            .map(|replica| replica.identity.credentials().key.clone());
        keys.map(|key| key.map(|key| key.cert[0].clone()))
    };
    let ready = || shown().iter().all(Option::is_some) && replicas.iter().all(|replica| replica.serving.is_loaded());
    while !ready() {
        sleep(Duration::from_millis(10)).await;
    }
    let believe = || {
        let [one, other] = &replicas;
        [(one, other), (other, one)].into_iter().all(|(asking, owner)| {
            let credentials = asking.identity.credentials();
            let key = credentials.key.as_ref().unwrap();
            let serves = owner.serving.current().unwrap();
            owner.identity.trusts(&key.cert, UnixTime::now()).is_ok()
                && is_served(&credentials.servers, &serves.cert[0])
        })
    };
    assert!(believe());
    let first = shown();
    assert_ne!(first[0], first[1], "each has a certificate of its own");

    let old = api.get(AUTHORITY).unwrap();
    renew(api);
    let since = tokio::time::Instant::now();
    while shown().iter().zip(&first).any(|(now, first)| now == first) {
        assert!(believe(), "{:?}", since.elapsed());
        assert!(since.elapsed() < Duration::from_secs(300));
        sleep(Duration::from_millis(500)).await;
    }
    assert!(believe());
    let authority = text(&api.get(AUTHORITY).unwrap()["data"]["tls.crt"]);
    assert_ne!(authority, text(&old["data"]["tls.crt"]));
    let authority = CertificateDer::from_pem_slice(authority.as_bytes()).unwrap();
    let alone = ReplicaIdentity::new("op", "sys").unwrap();
    alone.swap(None, &[authority], &[]);
    for shown in shown() {
        assert!(alone.trusts(&[shown.unwrap()], UnixTime::now()).is_ok());
    }
}

#[tokio::test(start_paused = true)]
async fn replicas_believe_each_other_at_every_moment_of_a_renewal() {
    let api = installed();
    api_service(&api);
    replicas_believe_each_other_while(&api, Provider::Operator, |api| api.delete(AUTHORITY)).await;
}

/// The serving certificate is another's, and so is its authority.
#[tokio::test(start_paused = true)]
async fn replicas_believe_each_other_whoever_keeps_what_they_serve_with() {
    let api = installed();
    let issuer = Authority::new("issuer");
    api.put(LEAF, kept_by_another(&issuer, for_our_service()));
    let renew = |api: &Api| damage(api, AUTHORITY, "tls.key", "garbage");
    replicas_believe_each_other_while(&api, Provider::Secret, renew).await;

    // Who has a certificate of that authority, even for a replica's name, is no replica.
    let replica = Replica::with(&api, false, Provider::Secret);
    while replica.identity.credentials().key.is_none() {
        sleep(Duration::from_millis(10)).await;
    }
    let Identity { chain, .. } = crate::replica::client(&issuer);
    assert!(replica.identity.trusts(&chain, UnixTime::now()).is_err());
}

/// Whether the API server, which trusts `bundle`, takes `leaf` for our Service.
fn is_trusted(leaf: &str, bundle: &str) -> bool {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(CertificateDer::pem_slice_iter(bundle.as_bytes()).map(Result::unwrap));
    is_served(
        &Arc::new(roots),
        &CertificateDer::from_pem_slice(leaf.as_bytes()).unwrap(),
    )
}

/// Whether somebody who trusts `roots` takes `leaf` for our Service.
fn is_served(roots: &Arc<RootCertStore>, leaf: &CertificateDer<'_>) -> bool {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let verifier = WebPkiServerVerifier::builder_with_provider(roots.clone(), provider)
        .build()
        .unwrap();
    let name = "op.sys.svc".try_into().unwrap();
    verifier
        .verify_server_cert(leaf, &[], &name, &[], UnixTime::now())
        .is_ok()
}

/// A Secret as cert-manager keeps one.
fn kept_by_another(authority: &Authority, params: rcgen::CertificateParams) -> Value {
    let Identity { chain, key } = authority.issue(params);
    let PrivateKeyDer::Pkcs8(key) = key else { panic!() };
    let certificate = format!("{}{}", pem_of(&chain[0]), authority.pem);
    let key = pem::encode(&pem::Pem::new("PRIVATE KEY", key.secret_pkcs8_der().to_vec()));
    let data = |text: &str| serde_json::to_value(ByteString(text.as_bytes().to_vec())).unwrap();
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
        "metadata": {"annotations": {"cert-manager.io/certificate-name": "op"}},
        "data": {"tls.crt": data(&certificate), "tls.key": data(&key), "ca.crt": data(&authority.pem)},
    })
}

/// What cert-manager would issue for our Service.
fn for_our_service() -> rcgen::CertificateParams {
    let mut leaf = params("op.sys.svc");
    leaf.subject_alt_names = vec![rcgen::SanType::DnsName("op.sys.svc".try_into().unwrap())];
    leaf.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ServerAuth];
    leaf
}

/// The first certificate of a Secret.
fn leaf_of(secret: &Value) -> Value {
    let chain = text(&secret["data"]["tls.crt"]);
    let end = "-----END CERTIFICATE-----\n";
    let leaf = format!("{}{end}", chain.split_once(end).unwrap().0);
    serde_json::to_value(ByteString(leaf.into_bytes())).unwrap()
}

#[tokio::test]
async fn a_secret_that_another_keeps_is_followed_and_never_written() {
    let api = installed();
    api_service(&api);
    let replicas = [true, false].map(|leading| Replica::with(&api, leading, Provider::Secret));
    // It comes later than the operator, and its authority is renewed with it.
    for authority in ["first", "second"].map(Authority::new) {
        api.put(LEAF, kept_by_another(&authority, for_our_service()));
        for replica in &replicas {
            replica.serves(&api, &leaf_of(&api.get(LEAF).unwrap())).await;
        }
    }
    let good = api.get(LEAF).unwrap();
    // What cannot be served is not: the key of another, then one that has ended.
    damage(
        &api,
        LEAF,
        "tls.key",
        &rcgen::KeyPair::generate().unwrap().serialize_pem(),
    );
    let mut ended = for_our_service();
    ended.not_after = rcgen::date_time_ymd(2021, 1, 1);
    api.put(LEAF, kept_by_another(&Authority::new("third"), ended));
    // The operator's own authority is kept all the same, for what the replicas say to each other.
    api.until("the authority is made", |api| api.get(AUTHORITY).is_some())
        .await;
    api.delete(AUTHORITY);
    api.until("the authority is made again", |api| api.get(AUTHORITY).is_some())
        .await;
    for replica in &replicas {
        replica.serves(&api, &leaf_of(&good)).await;
    }
    let written = api.asked().into_iter().filter(|asked| asked.method != Method::GET);
    for asked in written {
        assert_eq!(
            (asked.method, asked.body["metadata"]["name"].as_str()),
            (Method::POST, Some("op-tls-ca"))
        );
    }
    assert!(api.asked().iter().all(|asked| !asked.path.contains("apiservices")));
}

/// A leaf whose issuer's clock is ahead of ours.
#[tokio::test]
async fn a_leaf_is_taken_up_when_its_time_comes() {
    let api = installed();
    let replica = Replica::with(&api, false, Provider::Secret);
    let mut early = for_our_service();
    early.not_before = (std::time::SystemTime::now() + Duration::from_secs(2)).into();
    api.put(LEAF, kept_by_another(&Authority::new("ahead"), early));
    replica.serves(&api, &leaf_of(&api.get(LEAF).unwrap())).await;
}
