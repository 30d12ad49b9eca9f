//! Manifests over the whole of a spec: the real API server takes each, and everything that is rendered for it.

use std::sync::Arc;

use model_deployment::render::{Defaults, render};
use model_deployment_crds::ModelDeployment;
use serde_json::{Value, json};

use crate::generator::{self, NAMED};
use crate::scenario::{Outcome, Scenario, Test, ensure, test};

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    vec![test!(the_api_server_takes_whatever_is_rendered)]
}

/// How many manifests are rendered, and how many of them go into one call.
const MANIFESTS: usize = 64;
const AT_ONCE: usize = 8;

async fn the_api_server_takes_whatever_is_rendered(scenario: Arc<Scenario>) -> Outcome {
    let namespace = &scenario.cluster.namespace("generated").await?;
    let named = json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": NAMED}},
        {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": NAMED}, "value": 1},
        {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": NAMED}, "handler": NAMED},
    ]});
    scenario.apply(namespace, &named.to_string()).await?;
    let mut lists: Vec<Vec<Value>> = Vec::new();
    for number in 0.. {
        let manifest = generator::manifest(number);
        let mut deployment: ModelDeployment = serde_json::from_value(manifest.clone())?;
        deployment.metadata.namespace = Some(namespace.clone());
        let Ok(plan) = render(&deployment, &Defaults::default()) else {
            continue;
        };
        let mut objects = vec![manifest];
        for object in plan.objects() {
            objects.push(serde_json::to_value(&object)?);
        }
        lists.push(objects);
        if lists.len() == MANIFESTS {
            break;
        }
    }
    for batch in lists.chunks(AT_ONCE) {
        let list = json!({"apiVersion": "v1", "kind": "List", "items": batch.concat()});
        let arguments = [
            "apply",
            "--server-side",
            "--dry-run=server",
            "--namespace",
            namespace,
            "-f",
            "-",
        ];
        let output = scenario
            .cluster
            .kubectl_with_input(&arguments, &list.to_string())
            .await?;
        ensure!(output.status.success(), "the API server: {}", output.stderr);
    }
    Ok(())
}
