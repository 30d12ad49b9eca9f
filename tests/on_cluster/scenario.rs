//! What every cluster test stands on: the installed operator, and a few sentences to speak to it with.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use serde_json::Value;
use test_cluster::engine::{Engine, State};
use test_cluster::{Cluster, Output};

use crate::answer;

/// How a test fails.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;
/// What a test comes to.
pub type Outcome = Result<(), Failure>;

/// A test under way.
type Running = Pin<Box<dyn Future<Output = Outcome> + Send>>;

/// A named test.
#[derive(Clone, Copy)]
pub struct Test {
    /// Its name, as a sentence.
    pub name: &'static str,
    /// What it does.
    pub body: fn(Arc<Scenario>) -> Running,
}

/// A test of an async function that takes the scenario.
macro_rules! test {
    ($body:path) => {
        $crate::scenario::Test {
            name: stringify!($body),
            body: |scenario| Box::pin($body(scenario)),
        }
    };
}
pub(crate) use test;

/// Fails the test with a sentence unless a condition holds.
macro_rules! ensure {
    ($condition:expr, $($sentence:tt)+) => {
        match $condition {
            true => {}
            false => return Err(format!($($sentence)+).into()),
        }
    };
}
pub(crate) use ensure;

/// Before another look at what is to become so: fails the test with a sentence once patience is at an end, and else lets a moment
/// pass, since every look by kubectl is a process.
macro_rules! patient {
    ($since:expr, $($sentence:tt)+) => {{
        $crate::scenario::ensure!($since.elapsed() < $crate::scenario::PATIENCE, $($sentence)+);
        tokio::time::sleep($crate::scenario::MOMENT).await;
    }};
}
pub(crate) use patient;

/// Release name and namespace of the installed chart.
pub const RELEASE: &str = "model-deployment-operator";
/// Namespace of the installed chart.
pub const NAMESPACE: &str = "model-deployment-operator-system";
/// The APIService, as kubectl names it.
pub const API_SERVICE: &str = "apiservice/v1.worker.gpustack.ai";
/// Longest that anything on the cluster is waited for. Two busy cores are slow; nothing is asserted of it.
pub const PATIENCE: Duration = Duration::from_secs(120);
/// Between two looks at what is to become so.
pub const MOMENT: Duration = Duration::from_millis(200);

/// A cluster with the operator installed.
pub struct Scenario {
    /// The cluster.
    pub cluster: Cluster,
}

impl Scenario {
    /// Installs the chart and waits until the APIService is available.
    pub async fn install(cluster: Cluster) -> Result<Self, Failure> {
        let scenario = Self { cluster };
        scenario.install_chart().await?;
        Ok(scenario)
    }

    /// Installs the chart, where it is not or not any more, and waits until the APIService is available. All is default but one: this
    /// cluster hears of a replica that leaves within a second, and the tests replace many.
    pub async fn install_chart(&self) -> Outcome {
        let chart = chart();
        let arguments = [
            "install",
            RELEASE,
            &chart,
            "--namespace",
            NAMESPACE,
            "--create-namespace",
            "--set",
            "shutdownDelaySeconds=3",
        ];
        self.helm(&arguments).await?;
        self.wait(NAMESPACE, "condition=Available", API_SERVICE).await?;
        Ok(())
    }

    /// Upgrades the release with these values beside those it has, and waits until every replica is of the new revision.
    pub async fn upgrade_chart(&self, values: &[&str]) -> Outcome {
        let chart = chart();
        let mut arguments = vec!["upgrade", RELEASE, &chart, "--namespace", NAMESPACE];
        // The definition's description and the number of replicas were changed by hand before.
        arguments.extend(["--reset-then-reuse-values", "--force-conflicts"]);
        arguments.extend(values.iter().flat_map(|value| ["--set-string", value]));
        self.helm(&arguments).await?;
        self.rolled_out().await
    }

    /// Waits until every replica of the operator is of its latest revision, and the API available.
    pub async fn rolled_out(&self) -> Outcome {
        let timeout = format!("--timeout={}s", PATIENCE.as_secs());
        let deployment = format!("deployment/{RELEASE}");
        self.kubectl(&["rollout", "status", &deployment, "--namespace", NAMESPACE, &timeout])
            .await?;
        self.wait(NAMESPACE, "condition=Available", API_SERVICE).await?;
        Ok(())
    }

    /// Names and addresses of the operator's replicas that are not ending.
    pub async fn replicas(&self) -> Result<Vec<(String, String)>, Failure> {
        let pods = self.get(NAMESPACE, "pods").await?;
        let pods = pods["items"].as_array().into_iter().flatten();
        let live = pods.filter(|pod| pod["metadata"]["deletionTimestamp"].is_null());
        let named = live.map(|pod| {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            (text(&pod["metadata"]["name"]), text(&pod["status"]["podIP"]))
        });
        Ok(named.collect())
    }

    /// Checks that `kubectl get md` lists `name` and warns of nothing, as it does where a version of the group is not served.
    pub async fn lists_without_a_warning(&self, namespace: &str, name: &str) -> Outcome {
        let output = self.run_kubectl(&["get", "md", "--namespace", namespace]).await?;
        ensure!(
            output.stdout.contains(name) && output.stderr.is_empty(),
            "get md: {}{}",
            output.stdout,
            output.stderr
        );
        Ok(())
    }

    /// Runs kubectl and returns its standard output; fails unless it ends well.
    pub async fn kubectl(&self, arguments: &[&str]) -> Result<String, Failure> {
        succeed("kubectl", arguments, self.run_kubectl(arguments).await?)
    }

    /// Runs kubectl, however it ends. What the subresource answers is checked on its way, in every test.
    pub async fn run_kubectl(&self, arguments: &[&str]) -> Result<Output, Failure> {
        let output = self.cluster.kubectl(arguments).await?;
        if arguments.contains(&"--raw") && arguments.iter().any(|argument| argument.contains(SUBRESOURCE)) {
            answer::check(&output)?;
        }
        Ok(output)
    }

    /// Runs kubectl, which is expected to fail, and returns its standard error.
    pub async fn kubectl_refused(&self, arguments: &[&str]) -> Result<String, Failure> {
        let output = self.run_kubectl(arguments).await?;
        ensure!(
            !output.status.success(),
            "kubectl {} was expected to fail: {}",
            arguments.join(" "),
            output.stdout
        );
        Ok(output.stderr)
    }

    /// Runs helm and returns its standard output; fails unless it ends well.
    pub async fn helm(&self, arguments: &[&str]) -> Result<String, Failure> {
        succeed("helm", arguments, self.cluster.helm(arguments).await?)
    }

    /// Applies a manifest into a namespace.
    pub async fn apply(&self, namespace: &str, manifest: &str) -> Result<String, Failure> {
        let arguments = ["apply", "--namespace", namespace, "-f", "-"];
        succeed(
            "kubectl",
            &arguments,
            self.cluster.kubectl_with_input(&arguments, manifest).await?,
        )
    }

    /// Applies a manifest that the API server is to refuse, and returns what it said.
    pub async fn apply_refused(&self, namespace: &str, manifest: &str) -> Result<String, Failure> {
        let arguments = ["apply", "--namespace", namespace, "-f", "-"];
        let output = self.cluster.kubectl_with_input(&arguments, manifest).await?;
        ensure!(!output.status.success(), "the API server took {manifest}");
        Ok(output.stderr)
    }

    /// Waits until kubectl's condition holds.
    pub async fn wait(&self, namespace: &str, condition: &str, object: &str) -> Result<String, Failure> {
        let timeout = format!("--timeout={}s", PATIENCE.as_secs());
        self.kubectl(&[
            "wait",
            "--namespace",
            namespace,
            &format!("--for={condition}"),
            &timeout,
            object,
        ])
        .await
    }

    /// One object as JSON.
    pub async fn get(&self, namespace: &str, object: &str) -> Result<Value, Failure> {
        Ok(serde_json::from_str(
            &self
                .kubectl(&["get", "--namespace", namespace, object, "-o", "json"])
                .await?,
        )?)
    }

    /// The subresource's answer.
    pub async fn metrics(&self, namespace: &str, name: &str) -> Result<Value, Failure> {
        Ok(serde_json::from_str(
            &self.kubectl(&["get", "--raw", &metrics_path(namespace, name)]).await?,
        )?)
    }

    /// The subresource's answer of two reads that are this far apart.
    pub async fn window(&self, namespace: &str, name: &str, window: &str) -> Result<Value, Failure> {
        let path = format!("{}?window={window}", metrics_path(namespace, name));
        Ok(serde_json::from_str(&self.kubectl(&["get", "--raw", &path]).await?)?)
    }

    /// The subresource's answer of two reads, of which the first finds each engine's first body and the second its second. Asks again
    /// where this machine was too busy to serve all bodies in one request's time, which the answer then says.
    pub async fn between(
        &self,
        namespace: &str,
        window: &str,
        bodies: &[(Engine, [String; 2])],
    ) -> Result<Value, Failure> {
        let started = tokio::time::Instant::now();
        loop {
            let answer = self.between_once(namespace, window, bodies).await?;
            let mut entries = answer["missing"].as_array().into_iter().flatten();
            if entries.all(|entry| entry["code"] != "Timeout") || started.elapsed() > PATIENCE {
                return Ok(answer);
            }
        }
    }

    async fn between_once(
        &self,
        namespace: &str,
        window: &str,
        bodies: &[(Engine, [String; 2])],
    ) -> Result<Value, Failure> {
        for (engine, [first, _]) in bodies {
            engine.enter(State::Body(first.clone()));
        }
        // A sample younger than a second would be taken for the first read.
        let scrapes = bodies.iter().filter_map(|(engine, _)| engine.scrapes().pop());
        if let Some(last) = scrapes.map(|scrape| scrape.at).max() {
            tokio::time::sleep_until(last + Duration::from_secs(1)).await;
        }
        let changes = bodies.iter().map(async |(engine, [_, second])| {
            engine.scraped(engine.scrapes().len() + 1).await;
            engine.enter(State::Body(second.clone()));
        });
        let mut answer = pin!(self.window(namespace, "chat", window));
        tokio::select! {
            answer = &mut answer => answer,
            _ = join_all(changes) => answer.await,
        }
    }

    /// The engine that a Pod plays.
    pub fn engine(&self, namespace: &str, pod: &str) -> Result<Engine, Failure> {
        let engine = self.cluster.kubelet().engine(namespace, pod);
        engine.ok_or_else(|| format!("{pod} plays no engine").into())
    }

    /// A namespace in which every replica of ModelDeployment `chat` is ready.
    pub async fn available(&self, prefix: &str, manifest: &str) -> Result<String, Failure> {
        let namespace = self.cluster.namespace(prefix).await?;
        self.apply(&namespace, manifest).await?;
        self.wait(&namespace, "condition=RolesReady", "md/chat").await?;
        Ok(namespace)
    }

    /// Asks again until an answer is as wanted; the last one is in the failure.
    pub async fn metrics_until(
        &self,
        namespace: &str,
        name: &str,
        wanted: impl Fn(&Value) -> bool,
    ) -> Result<Value, Failure> {
        let started = tokio::time::Instant::now();
        loop {
            let last = match self.metrics(namespace, name).await {
                Ok(answer) if wanted(&answer) => return Ok(answer),
                Ok(answer) => answer.to_string(),
                Err(failure) => failure.to_string(),
            };
            patient!(started, "the answer never became as wanted; the last: {last}");
        }
    }
}

/// What only paths of the subresource hold.
const SUBRESOURCE: &str = "/modeldeployments/";

/// Path of the subresource.
pub fn metrics_path(namespace: &str, name: &str) -> String {
    format!("/apis/worker.gpustack.ai/v1/namespaces/{namespace}/modeldeployments/{name}/metrics")
}

/// The chart's folder.
pub fn chart() -> String {
    format!("{}/charts/model-deployment-operator", env!("CARGO_MANIFEST_DIR"))
}

fn succeed(program: &str, arguments: &[&str], output: Output) -> Result<String, Failure> {
    ensure!(
        output.status.success(),
        "{program} {} failed ({}): {}{}",
        arguments.join(" "),
        output.status,
        output.stdout,
        output.stderr
    );
    Ok(output.stdout)
}

/// The entry of `missing[]` about a source of a Pod; of the Pod as a whole, where the source is `scrape`.
pub fn missing<'a>(answer: &'a Value, pod: &str, source: &str) -> Option<&'a Value> {
    let mut entries = answer["missing"].as_array()?.iter();
    entries.find(|entry| entry["pod"] == pod && entry["source"] == source)
}

/// The gauge of this name.
pub fn gauge<'a>(answer: &'a Value, list: &str, name: &str) -> Option<&'a Value> {
    answer[list].as_array()?.iter().find(|entry| entry["name"] == name)
}

/// A Pod's entry of `latency[]`, `traffic[]` or `transfer[]`.
pub fn windowed<'a>(answer: &'a Value, list: &str, pod: &str, name: &str) -> Option<&'a Value> {
    let mut entries = answer[list].as_array()?.iter();
    entries.find(|entry| entry["pod"] == pod && entry["name"] == name)
}

/// A body as one of the real programs served it.
pub fn capture(name: &str) -> Result<String, Failure> {
    let path = format!("{}/tests/fixtures/exposition/{name}.prom", env!("CARGO_MANIFEST_DIR"));
    Ok(std::fs::read_to_string(path)?)
}

/// A vLLM deployment with `replicas` of one Server role and further members of the spec.
pub fn vllm(name: &str, replicas: u32, spec: &str) -> String {
    let roles = format!("roles:\n- name: server\n  replicas: {replicas}\n{spec}");
    deployment(name, "vLLM", "vllm/vllm-openai:v0.32.0", &roles)
}

/// An SGLang deployment of these members of the spec.
pub fn sglang(name: &str, spec: &str) -> String {
    deployment(name, "SGLang", "lmsysorg/sglang:v0.5.23", spec)
}

/// A deployment with these members of the spec beside model and engine.
pub fn deployment(name: &str, engine: &str, image: &str, spec: &str) -> String {
    let mut manifest = format!(
        "apiVersion: worker.gpustack.ai/v1alpha1\nkind: ModelDeployment\nmetadata:\n  name: {name}\nspec:\n  model:\n    name: tiny\n  engine:\n    name: {engine}\n    image: {image}\n"
    );
    for line in spec.lines() {
        manifest.push_str("  ");
        manifest.push_str(line);
        manifest.push('\n');
    }
    manifest
}
