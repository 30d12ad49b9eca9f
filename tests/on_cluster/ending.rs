//! The end of namespaces: nothing that the operator is, or is not any more, keeps one from ending for longer than it must.
//!
//! Takes the operator away, which every other test stands on.

use std::sync::Arc;

use crate::scenario::{
    API_SERVICE, Failure, NAMESPACE, Outcome, PATIENCE, RELEASE, Scenario, Test, ensure, test, vllm,
};

/// The tests of this module, in order.
pub fn tests() -> Vec<Test> {
    vec![
        test!(a_namespace_that_hangs_without_the_operator_is_freed_by_one_line),
        test!(the_operators_own_namespace_ends_and_the_operator_comes_back),
    ]
}

/// Whether the APIService is there.
async fn is_there(scenario: &Scenario) -> Result<bool, Failure> {
    let found = scenario.kubectl(&["get", API_SERVICE, "--ignore-not-found", "--output=name"]);
    Ok(!found.await?.is_empty())
}

/// Deletes a namespace and waits until it is gone.
async fn end(scenario: &Scenario, namespace: &str) -> Outcome {
    let timeout = format!("--timeout={}s", PATIENCE.as_secs());
    scenario
        .kubectl(&["delete", "namespace", namespace, &timeout])
        .await
        .map(drop)
}

/// kubernetes/kubernetes#60807, #75788: what is known and by design; docs/install.md names the way out.
async fn a_namespace_that_hangs_without_the_operator_is_freed_by_one_line(scenario: Arc<Scenario>) -> Outcome {
    let hanging = &scenario.cluster.namespace("hanging").await?;
    let scale = |replicas: &'static str| {
        let scenario = scenario.clone();
        async move {
            let arguments = ["scale", "deployment", RELEASE, "--namespace", NAMESPACE, replicas];
            scenario.kubectl(&arguments).await.map(drop)
        }
    };
    scale("--replicas=0").await?;
    scenario
        .wait(NAMESPACE, "condition=Available=False", API_SERVICE)
        .await?;
    scenario
        .kubectl(&["delete", "namespace", hanging, "--wait=false"])
        .await?;
    let object = format!("namespace/{hanging}");
    scenario
        .wait(hanging, "condition=NamespaceDeletionDiscoveryFailure=True", &object)
        .await?;

    scenario.kubectl(&["delete", API_SERVICE]).await?;
    scenario.wait(hanging, "delete", &object).await?;
    // ModelDeployments are not touched, and the chart puts the APIService back.
    scenario.kubectl(&["get", "md", "--all-namespaces"]).await?;
    scale("--replicas=2").await?;
    scenario.upgrade_chart(&[]).await
}

/// agones-dev/agones#4381: the namespace was deleted without uninstalling, and the APIService stayed.
async fn the_operators_own_namespace_ends_and_the_operator_comes_back(scenario: Arc<Scenario>) -> Outcome {
    let namespace = &scenario.cluster.namespace("survivor").await?;
    scenario.apply(namespace, &vllm("chat", 1, "")).await?;
    scenario.wait(namespace, "condition=Available", "md/chat").await?;
    let pod = scenario.get(namespace, "pod/chat-server-0").await?;

    end(&scenario, NAMESPACE).await?;
    ensure!(!is_there(&scenario).await?, "the APIService stayed behind");
    // No namespace waits for it: not one that was there, and not a new one.
    let another = &scenario.cluster.namespace("another").await?;
    end(&scenario, another).await?;
    scenario.lists_without_a_warning(namespace, "chat").await?;

    scenario.install_chart().await?;
    let answer = scenario.metrics_until(namespace, "chat", |_| true).await?;
    ensure!(answer["kind"] == "ModelDeploymentMetrics", "{answer}");
    let after = scenario.get(namespace, "pod/chat-server-0").await?;
    ensure!(
        after["metadata"]["uid"] == pod["metadata"]["uid"],
        "the engine was replaced meanwhile"
    );
    scenario.apply(namespace, &vllm("chat", 2, "")).await?;
    scenario
        .wait(namespace, "jsonpath={.status.roles[0].ready}=2", "md/chat")
        .await?;
    end(&scenario, namespace).await
}
