//! The operator's two replicas, each asked at its own address as the API server would ask it: whose windows an answer is made of does not
//! depend on which of them is asked.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, HeaderValue, Request};
use k8s_openapi::ByteString;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use serde_json::Value;
use test_cluster::engine::Engine;
use tokio::time::{Instant, interval, sleep};

use crate::scenario::{
    Failure, NAMESPACE, Outcome, PATIENCE, RELEASE, Scenario, Test, ensure, metrics_path, missing, test, vllm, windowed,
};

/// The tests of this module that may run beside others.
pub fn tests() -> Vec<Test> {
    vec![test!(two_replicas_answer_from_one_set_of_windows)]
}

/// The test that takes a replica away, and so runs alone.
pub fn alone() -> Vec<Test> {
    vec![test!(a_killed_owner_costs_one_first_sample)]
}

const POD: &str = "chat-server-0";
const TTFT: &str = "vllm:time_to_first_token_seconds";
/// A little more than the youngest baseline, so that every read after the first has one.
const PAUSE: Duration = Duration::from_millis(1100);
const READS: usize = 6;

/// A replica of the operator, asked as the API server's front proxy asks.
struct Replica {
    pod: String,
    address: IpAddr,
    client: kube::Client,
}

impl Replica {
    /// All of them.
    async fn all(scenario: &Scenario) -> Result<Vec<Self>, Failure> {
        let secret = scenario
            .get(NAMESPACE, &format!("secret/{RELEASE}-certificate"))
            .await?;
        let ByteString(bundle) = serde_json::from_value(secret["data"]["ca.crt"].clone())?;
        let authorities = CertificateDer::pem_slice_iter(&bundle).collect::<Result<Vec<_>, _>>()?;
        let replicas = scenario.replicas().await?.into_iter();
        let replicas = replicas.map(|(pod, address)| {
            let file = |name: &str| {
                scenario
                    .cluster
                    .state_dir()
                    .join("pki")
                    .join(name)
                    .display()
                    .to_string()
            };
            let mut config = kube::Config::new(format!("https://{address}:8443").parse()?);
            config.tls_server_name = Some(format!("{RELEASE}.{NAMESPACE}.svc"));
            config.root_cert = Some(authorities.iter().map(|authority| authority.to_vec()).collect());
            config.auth_info.client_certificate = Some(file("front-proxy-client.crt"));
            config.auth_info.client_key = Some(file("front-proxy-client.key"));
            config.default_retry = false;
            config.headers = [("x-remote-user", "admin"), ("x-remote-group", "system:masters")]
                .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
                .to_vec();
            Ok(Self {
                pod,
                address: address.parse()?,
                client: config.try_into()?,
            })
        });
        replicas.collect()
    }

    async fn metrics(&self, namespace: &str) -> Result<Value, Failure> {
        let started = Instant::now();
        let request = Request::get(metrics_path(namespace, "chat")).body(Vec::new())?;
        let answer = self.client.request(request).await?;
        let took = started.elapsed();
        ensure!(took < Duration::from_secs(8), "{} took {took:?}", self.pod);
        Ok(answer)
    }
}

/// The two replicas, the one that reads the engine first.
async fn owner_and_other(scenario: &Scenario, namespace: &str, engine: &Engine) -> Result<[Replica; 2], Failure> {
    let replicas = Replica::all(scenario).await?;
    let [one, other] = <[Replica; 2]>::try_from(replicas).map_err(|all| format!("{} replicas", all.len()))?;
    other.metrics(namespace).await?;
    match engine.scrapes().last().map(|scrape| scrape.from) {
        Some(from) if from == one.address => Ok([one, other]),
        Some(from) if from == other.address => Ok([other, one]),
        from => Err(format!("read by {from:?}").into()),
    }
}

fn is_first_sample(answer: &Value) -> Result<bool, Failure> {
    if windowed(answer, "latency", POD, "ttft").is_some() {
        return Ok(false);
    }
    let code = missing(answer, POD, TTFT).map(|entry| &entry["code"]);
    match code.and_then(Value::as_str) {
        Some("FirstSample") => Ok(true),
        // Between two of its first tokens.
        Some("Idle") => Ok(false),
        _ => Err(format!("neither a window nor a first sample: {answer}").into()),
    }
}

/// First tokens, ten a second, for as long as `reads` takes.
async fn under_traffic<T>(engine: &Engine, reads: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let traffic = async {
        let mut ticks = interval(Duration::from_millis(100));
        loop {
            ticks.tick().await;
            if let Err(error) = engine.observe(TTFT, 0.5, 1) {
                return Failure::from(error);
            }
        }
    };
    tokio::select! {
        failure = traffic => Err(failure),
        outcome = reads => outcome,
    }
}

async fn two_replicas_answer_from_one_set_of_windows(scenario: Arc<Scenario>) -> Outcome {
    let namespace = &scenario.available("owned", &vllm("chat", 1, "")).await?;
    let engine = &scenario.engine(namespace, POD)?;
    let [owner, other] = owner_and_other(&scenario, namespace, engine).await?;
    let reads = async {
        for turn in 0..READS {
            sleep(PAUSE).await;
            // One, the other, both at once, and whichever the API server takes.
            let answers = match turn % 4 {
                0 => vec![other.metrics(namespace).await?],
                1 => vec![owner.metrics(namespace).await?],
                2 => {
                    let (one, two) = tokio::try_join!(owner.metrics(namespace), other.metrics(namespace))?;
                    vec![one, two]
                }
                _ => vec![scenario.metrics(namespace, "chat").await?],
            };
            for answer in answers {
                ensure!(!is_first_sample(&answer)?, "turn {turn} has no window: {answer}");
            }
        }
        Ok(())
    };
    under_traffic(engine, reads).await?;
    let scrapes = engine.scrapes();
    let readers: BTreeSet<IpAddr> = scrapes.iter().map(|scrape| scrape.from).collect();
    ensure!(readers == BTreeSet::from([owner.address]), "read by {readers:?}");
    let span = scrapes[scrapes.len() - 1].at.duration_since(scrapes[0].at);
    ensure!(
        scrapes.len() as f64 <= span.as_secs_f64() + 1.0,
        "read {} times in {span:?}",
        scrapes.len()
    );
    Ok(())
}

async fn a_killed_owner_costs_one_first_sample(scenario: Arc<Scenario>) -> Outcome {
    let namespace = &scenario.available("orphaned", &vllm("chat", 1, "")).await?;
    let engine = &scenario.engine(namespace, POD)?;
    let [owner, survivor] = owner_and_other(&scenario, namespace, engine).await?;
    let kubelet = scenario.cluster.kubelet();
    // How many reads in a row, a second apart, had no window.
    let first_samples = async || {
        let mut count = 0;
        for _ in 0..READS {
            sleep(PAUSE).await;
            count += usize::from(is_first_sample(&survivor.metrics(namespace).await?)?);
        }
        Ok::<_, Failure>(count)
    };
    under_traffic(engine, async {
        ensure!(first_samples().await? == 0, "the owner lives and has windows");
        kubelet.crash_container(NAMESPACE, &owner.pod, "operator")?;
        let lost = first_samples().await?;
        ensure!(lost <= 1, "the owner was lost, which cost {lost} reads their windows");
        let reader = engine.scrapes().last().map(|scrape| scrape.from);
        ensure!(reader == Some(survivor.address), "read by {reader:?}");

        // It comes back without memory, and owns the windows again.
        kubelet.mend_container(NAMESPACE, &owner.pod, "operator")?;
        let pod = format!("pod/{}", owner.pod);
        scenario.wait(NAMESPACE, "condition=Ready", &pod).await?;
        let returned = first_samples().await?;
        ensure!(returned <= 1, "the owner's return cost {returned} reads their windows");
        let started = Instant::now();
        while engine.scrapes().last().map(|scrape| scrape.from) != Some(owner.address) {
            ensure!(started.elapsed() < PATIENCE, "the owner is not asked again");
            sleep(PAUSE).await;
            survivor.metrics(namespace).await?;
        }
        Ok(())
    })
    .await
}
