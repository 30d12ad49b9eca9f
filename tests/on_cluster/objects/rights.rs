//! Who may do what under v1, and whom the API server sees do it.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{V1, collection, refused, typed, v1, with_input, write_back};
use crate::scenario::{
    Failure, NAMESPACE, Outcome, RELEASE, Scenario, Test, ensure, metrics_path, patient, test, vllm,
};

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    vec![
        test!(rights_hold_under_v1),
        test!(writes_under_v1_are_the_callers),
        test!(an_admission_policy_on_v1alpha1_meets_a_write_under_v1),
    ]
}

/// Gives a user a role of these verbs on these resources of the group, in one namespace.
async fn grant(
    scenario: &Scenario,
    namespace: &str,
    subject: &str,
    verbs: &str,
    resources: &[&str],
) -> Result<(), Failure> {
    let name = format!("may-{}", verbs.replace(',', "-"));
    let mut role = vec!["create", "role", &name, "--namespace", namespace];
    let verbs = format!("--verb={verbs}");
    let resources: Vec<String> = resources
        .iter()
        .map(|resource| format!("--resource={resource}"))
        .collect();
    role.push(&verbs);
    role.extend(resources.iter().map(String::as_str));
    scenario.kubectl(&role).await?;
    let of = format!("--role={name}");
    scenario
        .kubectl(&["create", "rolebinding", &name, &of, subject, "--namespace", namespace])
        .await?;
    Ok(())
}

async fn rights_hold_under_v1(scenario: Arc<Scenario>) -> Outcome {
    let namespace = &scenario.cluster.namespace("righta").await?;
    let other = &scenario.cluster.namespace("rightb").await?;
    scenario.apply(namespace, &vllm("chat", 0, "")).await?;
    grant(
        &scenario,
        namespace,
        "--user=meter",
        "get",
        &["modeldeployments.worker.gpustack.ai/metrics"],
    )
    .await?;
    grant(
        &scenario,
        namespace,
        "--user=maker",
        "create,get",
        &["modeldeployments.worker.gpustack.ai"],
    )
    .await?;
    let chat = &format!("{V1}/chat");
    let started = tokio::time::Instant::now();
    // There are no Pods, so the metrics are a 503; who may not ask gets 403.
    loop {
        let said = scenario
            .kubectl_refused(&["get", "--raw", &metrics_path(namespace, "chat"), "--as", "meter"])
            .await?;
        if !said.contains("orbidden") {
            break;
        }
        patient!(started, "the metrics are refused: {said}");
    }
    for arguments in [
        &["get", chat][..],
        &["get", V1],
        &["get", chat, "--subresource=status"],
        &["delete", chat],
    ] {
        let said = scenario
            .kubectl_refused(&[arguments, &["--namespace", namespace, "--as", "meter"]].concat())
            .await?;
        ensure!(said.contains("User \"meter\" cannot"), "{arguments:?}: {said}");
    }
    let manifest = v1(&vllm("made", 0, ""));
    with_input(
        &scenario,
        &["create", "--namespace", namespace, "--as", "maker", "-f", "-"],
        &manifest,
    )
    .await?;
    let said = refused(
        &scenario,
        &["create", "--namespace", other, "--as", "maker", "-f", "-"],
        &manifest,
    )
    .await?;
    ensure!(said.contains("User \"maker\" cannot create resource"), "{said}");
    // Nor by a body that says otherwise than the path.
    let body = serde_json::to_string(&typed(
        &manifest.replace("  name: made", &format!("  name: smuggled\n  namespace: {other}")),
    )?)?;
    let path = collection("v1", namespace);
    let said = refused(
        &scenario,
        &["create", "--raw", &path, "--as", "maker", "-f", "-"],
        &body,
    )
    .await?;
    ensure!(said.contains("does not match the namespace"), "{said}");
    let left = scenario
        .kubectl(&["get", "md", "--namespace", other, "-o", "name"])
        .await?;
    ensure!(left.is_empty(), "{left}");
    Ok(())
}

/// Every event of the audit log about ModelDeployments of a namespace in the stored version, as soon as one of `verb` by the
/// impersonator for `user` is among them.
async fn audited(
    scenario: &Scenario,
    namespace: &str,
    user: &str,
    verb: &str,
    subresource: Option<&str>,
) -> Result<Value, Failure> {
    let started = tokio::time::Instant::now();
    loop {
        let log = std::fs::read_to_string(scenario.cluster.audit_log())?;
        let mut events = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let found = events.rfind(|event| {
            let object = &event["objectRef"];
            object["namespace"] == namespace
                && object["resource"] == "modeldeployments"
                && object["apiVersion"] == "v1alpha1"
                && object["subresource"].as_str() == subresource
                && event["verb"] == verb
                && event["impersonatedUser"]["username"] == user
        });
        if let Some(event) = found {
            return Ok(event);
        }
        patient!(started, "the audit log has no {verb} by {user}");
    }
}

async fn writes_under_v1_are_the_callers(scenario: Arc<Scenario>) -> Outcome {
    let namespace = &scenario.cluster.namespace("callers").await?;
    scenario
        .kubectl(&["create", "serviceaccount", "robot", "--namespace", namespace])
        .await?;
    let all = "create,get,list,update,patch,delete,deletecollection";
    let resources = [
        "modeldeployments.worker.gpustack.ai",
        "modeldeployments.worker.gpustack.ai/status",
    ];
    let robot = &format!("system:serviceaccount:{namespace}:robot");
    grant(&scenario, namespace, "--group=writers", all, &resources).await?;
    let binding = format!("--serviceaccount={namespace}:robot");
    let role = format!("--role=may-{}", all.replace(',', "-"));
    scenario
        .kubectl(&[
            "create",
            "rolebinding",
            "robot",
            &role,
            &binding,
            "--namespace",
            namespace,
        ])
        .await?;
    let alice = [
        "--as",
        "alice",
        "--as-group",
        "writers",
        "--as-group",
        "more",
        "--as-uid",
        "42",
    ];
    for (user, identity, mode) in [
        ("alice", &alice[..], "user-info"),
        (robot, &["--as", robot], "serviceaccount"),
    ] {
        let on = |arguments: &[&'static str]| -> Vec<String> {
            let all = arguments.iter().chain(identity).map(|argument| (*argument).to_owned());
            all.chain(["--namespace".to_owned(), namespace.clone()]).collect()
        };
        let run = async |arguments: Vec<String>, input: &str| {
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            with_input(&scenario, &arguments, input).await
        };
        let manifest = v1(&vllm("chat", 0, ""));
        let started = tokio::time::Instant::now();
        while let Err(failure) = run(on(&["create", "-f", "-"]), &manifest).await {
            patient!(started, "{failure}");
        }
        write_back(&scenario, namespace, identity, &[]).await?;
        run(
            on(&[
                "patch",
                V1,
                "chat",
                "--type=merge",
                "-p",
                r#"{"metadata":{"labels":{"a":"b"}}}"#,
            ]),
            "",
        )
        .await?;
        write_back(&scenario, namespace, identity, &["--subresource=status"]).await?;
        run(
            on(&[
                "patch",
                V1,
                "chat",
                "--subresource=status",
                "--type=merge",
                "-p",
                r#"{"status":{"endpoint":"http://x"}}"#,
            ]),
            "",
        )
        .await?;
        run(on(&["delete", V1, "chat"]), "").await?;
        run(on(&["create", "-f", "-"]), &manifest).await?;
        let path = collection("v1", namespace);
        let arguments = [&["delete", "--raw", &path][..], identity].concat();
        with_input(&scenario, &arguments, "").await?;
        for (verb, subresource) in [
            ("create", None),
            ("update", None),
            ("patch", None),
            ("update", Some("status")),
            ("patch", Some("status")),
            ("delete", None),
            ("deletecollection", None),
        ] {
            let event = audited(&scenario, namespace, user, verb, subresource).await?;
            ensure!(
                event["user"]["username"]
                    == format!("system:serviceaccount:{NAMESPACE}:{RELEASE}-impersonator").as_str()
                    && event["authenticationMetadata"]["impersonationConstraint"]
                        == format!("impersonate:{mode}").as_str(),
                "{event}"
            );
            let groups = &event["impersonatedUser"]["groups"];
            if user == "alice" {
                ensure!(
                    event["impersonatedUser"]["uid"] == "42"
                        && *groups == json!(["writers", "more", "system:authenticated"]),
                    "{event}"
                );
            } else {
                ensure!(
                    groups
                        .to_string()
                        .contains(&format!("system:serviceaccounts:{namespace}")),
                    "{event}"
                );
            }
        }
    }
    // And not one of them by the operator: it writes status here, and nothing else.
    let log = std::fs::read_to_string(scenario.cluster.audit_log())?;
    let operator = format!("system:serviceaccount:{NAMESPACE}:{RELEASE}");
    for event in log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
        let object = &event["objectRef"];
        let writes = !["get", "list", "watch"].iter().any(|verb| event["verb"] == *verb);
        let own_status = event["verb"] == "patch" && object["subresource"] == "status";
        ensure!(
            !(event["user"]["username"] == operator.as_str()
                && object["namespace"] == namespace.as_str()
                && object["resource"] == "modeldeployments"
                && writes
                && !own_status),
            "the operator wrote: {event}"
        );
    }
    Ok(())
}

/// mckinsey/agents-at-scale-ark#2684, kubernetes/website#49369: no policy is asked about a request that is handed to an aggregated
/// server, so it has to be asked behind it.
async fn an_admission_policy_on_v1alpha1_meets_a_write_under_v1(scenario: Arc<Scenario>) -> Outcome {
    let namespace = &scenario.cluster.namespace("policy").await?;
    grant(
        &scenario,
        namespace,
        "--user=carol",
        "create,get",
        &["modeldeployments.worker.gpustack.ai"],
    )
    .await?;
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": {"name": namespace},
        "spec": {
            "matchConstraints": {"resourceRules": [{
                "apiGroups": ["worker.gpustack.ai"], "apiVersions": ["v1alpha1"], "operations": ["CREATE"], "resources": ["modeldeployments"],
            }]},
            "validations": [{"expression": "request.userInfo.username != 'carol'", "message": "carol makes nothing today"}],
        },
    });
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": namespace},
        "spec": {
            "policyName": namespace, "validationActions": ["Deny"],
            "matchResources": {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}},
        },
    });
    for object in [policy, binding] {
        scenario.apply("default", &object.to_string()).await?;
    }
    let manifest = v1(&vllm("chat", 0, ""));
    let arguments = [
        "create",
        "--dry-run=server",
        "--namespace",
        namespace,
        "-f",
        "-",
        "--as",
    ];
    let started = tokio::time::Instant::now();
    loop {
        let output = scenario
            .cluster
            .kubectl_with_input(&[&arguments[..], &["carol"]].concat(), &manifest)
            .await?;
        if output.stderr.contains("carol makes nothing today") {
            break;
        }
        patient!(started, "the policy was not met: {}{}", output.stdout, output.stderr);
    }
    with_input(&scenario, &["create", "--namespace", namespace, "-f", "-"], &manifest).await?;
    Ok(())
}
