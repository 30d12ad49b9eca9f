//! Authorities renewed under readers: the operator's own, and the front proxy's. A read that fails is tried once more, and must not fail
//! then.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::try_join_all;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::runtime::wait::await_condition;
use kube::{Api, Client};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde_json::{Value, json};
use test_cluster::FrontProxy;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use crate::front_proxy::Shown;
use crate::scenario::{
    API_SERVICE, Failure, NAMESPACE, Outcome, PATIENCE, RELEASE, Scenario, Test, ensure, gauge, metrics_path, missing,
    patient, test, vllm,
};
use crate::{draining, serving, straight};

/// The test that runs beside others, which are readers too: nobody is to notice.
pub fn tests() -> Vec<Test> {
    vec![test!(the_operators_authority_is_renewed_under_readers)]
}

/// The test that changes what the API server shows to everyone.
pub fn alone() -> Vec<Test> {
    vec![test!(the_front_proxys_authority_is_renewed_under_readers)]
}

const READERS: usize = 8;
/// Between two reads of one reader: two busy cores are to be loaded and not drowned.
const PAUSE: Duration = Duration::from_millis(500);
/// A new authority is trusted for two minutes before anything is issued from it.
const OVERLAP: Duration = Duration::from_secs(120);

/// Readers of one deployment: half of them read its metrics, half list it.
struct Readers<'a> {
    client: Client,
    namespace: &'a str,
    /// How often each has read.
    reads: watch::Sender<[usize; READERS]>,
    over: AtomicBool,
}

impl<'a> Readers<'a> {
    async fn of(scenario: &Scenario, namespace: &'a str) -> Result<Self, Failure> {
        Ok(Readers {
            client: draining::client(scenario).await?,
            namespace,
            reads: watch::Sender::new([0; READERS]),
            over: AtomicBool::new(false),
        })
    }

    /// Reads until the steps are taken.
    async fn during(&self, steps: impl Future<Output = Outcome>) -> Outcome {
        let steps = async {
            self.go_on().await?;
            steps.await?;
            self.over.store(true, Ordering::Relaxed);
            Ok(())
        };
        tokio::try_join!(try_join_all((0..READERS).map(|reader| self.read(reader))), steps)?;
        Ok(())
    }

    /// Waits until each of them has begun and ended a read from now on.
    async fn go_on(&self) -> Outcome {
        let before = *self.reads.borrow();
        let have_read = |now: &[usize; READERS]| now.iter().zip(before).all(|(now, before)| *now >= before + 2);
        self.reads.subscribe().wait_for(have_read).await?;
        Ok(())
    }

    async fn read(&self, reader: usize) -> Outcome {
        let lists = reader.is_multiple_of(2);
        let path = match lists {
            true => format!(
                "/apis/worker.gpustack.ai/v1/namespaces/{}/modeldeployments",
                self.namespace
            ),
            false => metrics_path(self.namespace, "chat"),
        };
        while !self.over.load(Ordering::Relaxed) {
            let answer = match self.get(&path).await {
                Ok(answer) => answer,
                Err(first) => {
                    eprintln!("a read failed once: {first}");
                    let again = self.get(&path).await;
                    again.map_err(|second| format!("{path} failed twice: {first}; {second}"))?
                }
            };
            let is_right = match lists {
                true => answer["items"][0]["metadata"]["name"] == "chat" && answer["items"][1].is_null(),
                false => {
                    // A machine that is too busy for a scrape is told as such.
                    let scrape = missing(&answer, "chat-server-0", "scrape").map(|entry| &entry["code"]);
                    let running = gauge(&answer, "processing", "running");
                    running.is_some_and(|gauge| gauge["podCount"] == 1) || scrape.is_some_and(|code| code == "Timeout")
                }
            };
            ensure!(is_right, "{path}: {answer}");
            self.reads.send_modify(|reads| reads[reader] += 1);
            tokio::time::sleep(PAUSE).await;
        }
        Ok(())
    }

    async fn get(&self, path: &str) -> Result<Value, Failure> {
        Ok(self.client.request(http::Request::get(path).body(Vec::new())?).await?)
    }
}

/// kubernetes-sigs/metrics-server#314, kubernetes-sigs/prometheus-adapter#205, kubevirt/kubevirt#2234: the front proxy's authority was
/// renewed, and everybody was refused.
async fn the_front_proxys_authority_is_renewed_under_readers(scenario: Arc<Scenario>) -> Outcome {
    let namespace = &scenario.available("front", &vllm("chat", 1, "")).await?;
    let readers = Readers::of(&scenario, namespace).await?;
    let proxy = scenario.cluster.renew_front_proxy()?;
    let shown = Shown::serve(&scenario, namespace, &[&proxy.old, &proxy.new]).await?;
    let outcome = readers
        .during(async {
            shown.is(&scenario, &proxy.old).await?;
            proxy.trust_both()?;
            told(&scenario, namespace, &proxy.new, 200).await?;
            told(&scenario, namespace, &proxy.old, 200).await?;
            readers.go_on().await?;

            proxy.show_new()?;
            shown.is(&scenario, &proxy.new).await?;
            readers.go_on().await?;

            proxy.trust_new()?;
            forget_all_but(&scenario, &proxy.new).await?;
            told(&scenario, namespace, &proxy.old, 401).await?;
            told(&scenario, namespace, &proxy.new, 200).await?;
            readers.go_on().await
        })
        .await;
    shown.end(&scenario).await?;
    outcome
}

/// Waits until every replica answers those who show this front proxy's certificate with this code.
async fn told(scenario: &Scenario, namespace: &str, proxy: &FrontProxy, code: u16) -> Outcome {
    let path = metrics_path(namespace, "chat");
    let admin = [("x-remote-user", "admin"), ("x-remote-group", "system:masters")];
    let started = Instant::now();
    for (name, address) in scenario.replicas().await? {
        while straight::get_through(scenario, &address, proxy, &path, &admin).await? != code {
            patient!(started, "{name} does not answer {code}");
        }
    }
    Ok(())
}

/// Has every other authority of the front proxy forgotten: the API server adds what it trusts to what it has published, and takes nothing
/// away until it publishes anew.
async fn forget_all_but(scenario: &Scenario, proxy: &FrontProxy) -> Outcome {
    const PUBLISHED: &str = "extension-apiserver-authentication";
    let wanted = certificates(proxy.authority.as_bytes())?;
    let published: Api<ConfigMap> = Api::namespaced(scenario.cluster.client(), "kube-system");
    let started = Instant::now();
    loop {
        published.delete(PUBLISHED, &DeleteParams::default()).await?;
        let again = await_condition(published.clone(), PUBLISHED, |map: Option<&ConfigMap>| map.is_some());
        let again = timeout(PATIENCE, again).await??;
        let data = again.and_then(|map| map.data).unwrap_or_default();
        let bundle = data.get("requestheader-client-ca-file").ok_or("no authority")?;
        if certificates(bundle.as_bytes())? == wanted {
            return Ok(());
        }
        patient!(started, "the API server still trusts {bundle}");
    }
}

/// Both authorities are trusted before anything is issued from the new one, and until the old one is dropped.
async fn the_operators_authority_is_renewed_under_readers(scenario: Arc<Scenario>) -> Outcome {
    let namespace = &scenario.available("authority", &vllm("chat", 1, "")).await?;
    let readers = Readers::of(&scenario, namespace).await?;
    let secrets: Api<Secret> = Api::namespaced(scenario.cluster.client(), NAMESPACE);
    let (authority, leaf) = (format!("{RELEASE}-certificate-ca"), format!("{RELEASE}-certificate"));
    let first = held(&secrets.get(&leaf).await?, "tls.crt");
    let old = certificates(&held(&secrets.get(&authority).await?, "tls.crt"))?;
    trusted(&scenario, &old).await?;
    let steps = async {
        secrets.delete(&authority, &DeleteParams::default()).await?;
        let made = await_condition(secrets.clone(), &authority, |secret: Option<&Secret>| secret.is_some());
        let made = timeout(PATIENCE, made).await??.ok_or("no authority")?;
        let new = certificates(&held(&made, "tls.crt"))?;
        trusted(&scenario, &[&old[..], &new].concat()).await?;
        ensure!(
            held(&secrets.get(&leaf).await?, "tls.crt") == first,
            "a leaf before its authority is trusted"
        );
        readers.go_on().await?;

        let renewed = |secret: Option<&Secret>| secret.is_some_and(|secret| held(secret, "tls.crt") != first);
        let renewed = await_condition(secrets.clone(), &leaf, renewed);
        let renewed = timeout(OVERLAP + PATIENCE, renewed).await??.ok_or("no leaf")?;
        serving::shown(&scenario, &certificates(&held(&renewed, "tls.crt"))?[0]).await?;
        trusted(&scenario, &[&old[..], &new].concat()).await?;
        readers.go_on().await?;

        let data = json!({"data": {"ca.crt": ByteString(held(&made, "tls.crt"))}});
        secrets
            .patch(&leaf, &PatchParams::default(), &Patch::Merge(data))
            .await?;
        trusted(&scenario, &new).await?;
        serving::shown(&scenario, &certificates(&held(&renewed, "tls.crt"))?[0]).await?;
        readers.go_on().await
    };
    readers.during(steps).await
}

/// Waits until the API server is to trust these authorities, in this order, for the operator.
async fn trusted(scenario: &Scenario, authorities: &[CertificateDer<'static>]) -> Outcome {
    let services: Api<APIService> = Api::all(scenario.cluster.client());
    let (_, name) = API_SERVICE.split_once('/').ok_or("no name")?;
    let are_trusted = |service: Option<&APIService>| {
        let bundle = service.and_then(|service| service.spec.as_ref()?.ca_bundle.as_ref());
        bundle.is_some_and(|bundle| certificates(&bundle.0).is_ok_and(|found| found == authorities))
    };
    timeout(PATIENCE, await_condition(services, name, are_trusted)).await??;
    Ok(())
}

fn held(secret: &Secret, key: &str) -> Vec<u8> {
    let data = secret.data.as_ref().and_then(|data| data.get(key));
    data.map(|bytes| bytes.0.clone()).unwrap_or_default()
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, Failure> {
    Ok(CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>()?)
}
