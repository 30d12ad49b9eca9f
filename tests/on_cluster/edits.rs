//! Many edits in a row, the operator killed among them: what is left is what `render` says of the last spec, and nothing else.
//!
//! Kills the operator, which every other test stands on, so it runs after them.

use std::collections::BTreeMap;
use std::sync::Arc;

use kube::api::{DeleteParams, Patch, PatchParams};
use kube::runtime::wait::await_condition;
use kube::{Api, ResourceExt};
use model_deployment::render::{Defaults, Object, render};
use model_deployment_crds::ModelDeployment;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};

use crate::scenario::{Failure, NAMESPACE, Outcome, PATIENCE, RELEASE, Scenario, Test, ensure, patient, test};

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    vec![test!(edits_while_the_operator_is_killed_end_in_what_render_says)]
}

/// How many edits, and where their chances begin.
const EDITS: usize = 100;
const SEED: u64 = 0x6d6f_6465_6c73;
/// Who edits.
const EDITOR: &str = "edits";
/// Engine Pods and everything else that the operator keeps.
const KINDS: &str = "pods,services,serviceaccounts,roles,rolebindings,configmaps,deployments";

/// SplitMix64: a fixed seed gives the same edits on every machine.
struct Chances(u64);

impl Chances {
    /// A number below `bound`.
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }
}

/// What the edits change.
struct Wish {
    replicas: u64,
    size: u64,
    tag: u64,
    port: u64,
    router: Option<&'static str>,
    note: Option<u64>,
    /// An argument that is refused.
    refused: bool,
}

impl Wish {
    const FIRST: Self = Self {
        replicas: 2,
        size: 1,
        tag: 0,
        port: 8000,
        router: None,
        note: None,
        refused: false,
    };

    fn edit(&mut self, chances: &mut Chances) {
        match chances.below(8) {
            0 | 1 => self.replicas = chances.below(5),
            2 => self.size = 1 + chances.below(2),
            3 => self.tag = chances.below(3),
            4 => self.port = 8000 + chances.below(2),
            // A router's name is not changed in place.
            5 if self.router.is_some() => self.router = None,
            5 => self.router = Some(["vllm-router", "llm-d-router"][usize::from(chances.below(2) == 1)]),
            6 => self.note = Some(chances.below(3)).filter(|note| *note > 0),
            _ => self.refused = !self.refused,
        }
    }

    fn spec(&self, name: &str) -> Value {
        let mut role = json!({"name": "server", "replicas": self.replicas, "size": self.size, "port": self.port});
        if let Some(note) = self.note {
            role["env"] = json!([{"name": "NOTE", "value": note.to_string()}]);
        }
        if self.refused {
            role["extraArgs"] = json!(["--kv-transfer-config={}"]);
        }
        let mut spec = json!({
            "model": {"name": "tiny"},
            "engine": {"name": "vLLM", "image": format!("vllm/vllm-openai:v{}", self.tag)},
            "roles": [role],
        });
        if let Some(router) = self.router {
            spec["router"] = json!({"name": router});
        }
        json!({
            "apiVersion": "worker.gpustack.ai/v1alpha1", "kind": "ModelDeployment", "metadata": {"name": name}, "spec": spec,
        })
    }
}

async fn edits_while_the_operator_is_killed_end_in_what_render_says(scenario: Arc<Scenario>) -> Outcome {
    let namespace = &scenario.cluster.namespace("edits").await?;
    let deployments = Api::<ModelDeployment>::namespaced(scenario.cluster.client(), namespace);
    let chances = &mut Chances(SEED);
    let mut wishes = [("one", Wish::FIRST), ("two", Wish::FIRST)];
    let mut kills = 0;
    for _ in 0..EDITS {
        let (name, wish) = &mut wishes[usize::from(chances.below(2) == 1)];
        wish.edit(chances);
        let generation = apply(&deployments, name, wish).await?;
        match chances.below(20) {
            // One of its Pods goes, too.
            0 => {
                let pods = Api::<k8s_openapi::api::core::v1::Pod>::namespaced(scenario.cluster.client(), namespace);
                // Whether it is there at all is chance as well.
                let _ = pods.delete(&format!("{name}-server-0"), &DeleteParams::default()).await;
            }
            1 => kills += usize::from(kill(&scenario, chances).await?),
            2 => deployments.delete(name, &DeleteParams::default()).await.map(|_| ())?,
            // Most edits are met by an operator that is still at work on the last one.
            3..8 => caught_up(&deployments, name, generation).await?,
            _ => {}
        }
    }
    ensure!(kills > 0, "the operator was never killed");
    for (name, wish) in &mut wishes {
        wish.refused = false;
        wish.replicas = wish.replicas.max(1);
        apply(&deployments, name, wish).await?;
    }
    ends_as_rendered(&scenario, namespace, &deployments).await?;
    let deployment = format!("deployment/{RELEASE}");
    scenario
        .wait(NAMESPACE, "jsonpath={.status.readyReplicas}=2", &deployment)
        .await?;
    scenario
        .wait(NAMESPACE, "condition=Available", "apiservice/v1.worker.gpustack.ai")
        .await?;
    Ok(())
}

/// Applies a spec and returns its generation. One that is on its way out is waited for.
async fn apply(deployments: &Api<ModelDeployment>, name: &str, wish: &Wish) -> Result<i64, Failure> {
    if deployments
        .get_opt(name)
        .await?
        .is_some_and(|found| found.metadata.deletion_timestamp.is_some())
    {
        let gone = |found: Option<&ModelDeployment>| found.is_none();
        timeout(PATIENCE, await_condition(deployments.clone(), name, gone)).await??;
    }
    let applied = deployments
        .patch(
            name,
            &PatchParams::apply(EDITOR).force(),
            &Patch::Apply(wish.spec(name)),
        )
        .await?;
    Ok(applied.metadata.generation.unwrap_or_default())
}

/// Kills one of the operator's replicas; not, if it has not come back from the last time.
async fn kill(scenario: &Scenario, chances: &mut Chances) -> Result<bool, Failure> {
    let pods = scenario.get(NAMESPACE, "pods").await?;
    let names: Vec<&str> = pods["items"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|pod| pod["metadata"]["name"].as_str())
        .collect();
    let chosen = usize::try_from(chances.below(names.len() as u64))?;
    Ok(scenario
        .cluster
        .kubelet()
        .kill_container(NAMESPACE, names[chosen], "operator")
        .is_ok())
}

/// Waits until the operator has seen a generation.
async fn caught_up(deployments: &Api<ModelDeployment>, name: &str, generation: i64) -> Outcome {
    let seen = move |found: Option<&ModelDeployment>| {
        found
            .and_then(|found| found.status.as_ref()?.observed_generation)
            .is_some_and(|observed| observed >= generation)
    };
    timeout(PATIENCE, await_condition(deployments.clone(), name, seen)).await??;
    Ok(())
}

/// Waits until what lives is what is rendered: each object once and as it should be, and none besides.
async fn ends_as_rendered(scenario: &Scenario, namespace: &str, deployments: &Api<ModelDeployment>) -> Outcome {
    let mut expected = BTreeMap::new();
    for deployment in deployments.list(&Default::default()).await? {
        let plan = render(&deployment, &Defaults::default())?;
        ensure!(
            plan.roles.iter().all(|role| role.replicas > 0),
            "{} wants nothing",
            deployment.name_any()
        );
        for object in plan.objects() {
            expected.insert(place(&object), serde_json::to_value(&object)?);
        }
    }
    let started = Instant::now();
    loop {
        let selector = "app.kubernetes.io/managed-by=model-deployment-operator";
        let list = scenario
            .kubectl(&["get", KINDS, "--namespace", namespace, "-l", selector, "-o", "json"])
            .await?;
        let mut list: Value = serde_json::from_str(&list)?;
        let live: BTreeMap<String, Value> = list["items"]
            .as_array_mut()
            .map(std::mem::take)
            .unwrap_or_default()
            .into_iter()
            // A router's Pods are its Deployment's.
            .filter(|object| {
                object["kind"] != "Pod"
                    || object["metadata"]["labels"]
                        .get("modeldeployment.gpustack.ai/router")
                        .is_none()
            })
            .map(|object| {
                let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                (
                    format!("{} {}", text(&object["kind"]), text(&object["metadata"]["name"])),
                    object,
                )
            })
            .collect();
        let differing: Vec<&String> = expected
            .iter()
            .filter(|(place, rendered)| !live.get(*place).is_some_and(|live| holds(live, rendered)))
            .map(|(place, _)| place)
            .chain(live.keys().filter(|place| !expected.contains_key(*place)))
            .chain(
                live.iter()
                    .filter(|(_, object)| object["metadata"].get("deletionTimestamp").is_some())
                    .map(|(place, _)| place),
            )
            .collect();
        if differing.is_empty() {
            return Ok(());
        }
        patient!(
            started,
            "{differing:?} never became as rendered; there are {:?}",
            live.keys()
        );
    }
}

fn place(object: &Object) -> String {
    format!(
        "{} {}",
        object.kind(),
        object.metadata().name.as_deref().unwrap_or_default()
    )
}

/// Whether a live object has everything that is rendered; the API server adds defaults.
fn holds(live: &Value, rendered: &Value) -> bool {
    match (live, rendered) {
        (Value::Object(live), Value::Object(rendered)) => rendered
            .iter()
            .all(|(name, value)| live.get(name).is_some_and(|live| holds(live, value)) || is_nothing(value)),
        (Value::Array(live), Value::Array(rendered)) => {
            live.len() == rendered.len() && live.iter().zip(rendered).all(|(live, rendered)| holds(live, rendered))
        }
        _ => live == rendered,
    }
}

/// What the API server leaves out.
fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(members) => members.values().all(is_nothing),
        Value::Array(items) => items.is_empty(),
        _ => false,
    }
}
