//! The chart against what it is made from (manifest copies, schema, value table and rights table), and what real helm makes of its
//! options. Needs no cluster; that the chart works is for the cluster tests.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde::Deserialize;
use serde_json::{Map, Value};

const CHART: &str = "charts/model-deployment-operator";

fn read(path: &str) -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    fs::read_to_string(&file).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn yaml(text: &str) -> Value {
    serde_yaml::from_str(text).expect("YAML")
}

fn object(value: &Value) -> &Map<String, Value> {
    value.as_object().expect("a map")
}

/// The cells of every row of every Markdown table.
fn rows(text: &str) -> Vec<Vec<String>> {
    text.lines()
        .filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |"))
        .map(|line| line.split(" | ").map(|cell| cell.trim().to_owned()).collect())
        .collect()
}

/// Every value that the schema names, with its default. Maps whose members the schema leaves open count as one value.
fn leaves(schema: &Value, values: &Value, path: &str, found: &mut BTreeMap<String, Value>) {
    for (name, value) in object(values) {
        let path = if path.is_empty() {
            name.clone()
        } else {
            format!("{path}.{name}")
        };
        let part = schema["properties"]
            .get(name)
            .unwrap_or_else(|| panic!("values.schema.json does not know {path}"));
        if part.get("properties").is_some() {
            leaves(part, value, &path, found);
        } else {
            found.insert(path, value.clone());
        }
    }
}

/// Paths of schema objects that list their members and yet take others.
fn open_objects(schema: &Value, path: &str, found: &mut Vec<String>) {
    let Some(properties) = schema.get("properties") else {
        return;
    };
    if schema.get("additionalProperties") != Some(&Value::Bool(false)) {
        found.push(path.to_owned());
    }
    for (name, part) in object(properties) {
        open_objects(part, &format!("{path}.{name}"), found);
    }
}

/// The rules of a template, as YAML: lines that only steer the template are left out, other insertions become `<release>`.
fn rules(template: &str) -> Vec<Value> {
    let mut text = String::new();
    for line in read(&format!("{CHART}/templates/{template}")).lines() {
        if line.trim_start().starts_with("{{-") {
            continue;
        }
        let mut rest = line;
        while let Some((before, after)) = rest.split_once("{{") {
            text.push_str(before);
            let (insertion, after) = after.split_once("}}").expect("a closed insertion");
            text.push_str(match insertion.trim() {
                r#"include "model-deployment-operator.fullname" ."# => "<release>",
                r#"include "model-deployment-operator.certificateSecret" ."# => "<release>-certificate",
                r#"include "model-deployment-operator.authoritySecret" ."# => "<release>-certificate-ca",
                ".Release.Namespace" => "<namespace>",
                "." => "<key>",
                other => panic!("{template}: {other}"),
            });
            rest = after;
        }
        text.push_str(rest);
        text.push('\n');
    }
    yaml(&text)["rules"].as_array().expect("rules").clone()
}

fn list(rule: &Value, key: &str) -> String {
    let items = rule[key].as_array().into_iter().flatten();
    let items: Vec<_> = items.map(|item| item.as_str().expect("text")).collect();
    items.join(", ")
}

/// A rule as docs/install.md writes it: group, resources, verbs.
fn rule_row(rule: &Value) -> Vec<String> {
    let group = match list(rule, "apiGroups").as_str() {
        "" => "core".to_owned(),
        group => format!("`{group}`"),
    };
    let resources = format!("`{}`", list(rule, "resources"));
    let resources = match list(rule, "resourceNames").as_str() {
        "" => resources,
        names => format!("{resources} named `{}`", names.replace(", ", "`, `")),
    };
    vec![group, resources, format!("`{}`", list(rule, "verbs"))]
}

#[test]
fn the_chart_brings_the_generated_definition_word_for_word() {
    assert!(
        read("crds/modeldeployments.yaml") == read(&format!("{CHART}/files/modeldeployments.yaml")),
        "copy crds/modeldeployments.yaml to {CHART}/files/"
    );
}

#[test]
fn chart_and_operator_have_one_version() {
    let chart = yaml(&read(&format!("{CHART}/Chart.yaml")));
    assert_eq!(chart["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(chart["appVersion"], env!("CARGO_PKG_VERSION"));
}

#[test]
fn the_schema_names_every_value_and_refuses_others() {
    let schema = read(&format!("{CHART}/values.schema.json"));
    let schema: Value = serde_json::from_str(&schema).expect("JSON");
    let values = yaml(&read(&format!("{CHART}/values.yaml")));

    let mut open = Vec::new();
    open_objects(&schema, "values", &mut open);
    assert_eq!(open, Vec::<String>::new(), "these take any member");

    let named: BTreeSet<_> = object(&schema["properties"]).keys().collect();
    let mut given: BTreeSet<_> = object(&values).keys().collect();
    let global = "global".to_owned();
    given.insert(&global);
    assert_eq!(named, given);
}

#[test]
fn the_readme_has_a_row_for_every_value_with_its_default() {
    let schema = read(&format!("{CHART}/values.schema.json"));
    let schema = serde_json::from_str(&schema).expect("JSON");
    let mut values = BTreeMap::new();
    leaves(&schema, &yaml(&read(&format!("{CHART}/values.yaml"))), "", &mut values);

    let written: BTreeMap<_, _> = rows(&read(&format!("{CHART}/README.md")))
        .iter()
        .filter(|row| row[0].starts_with('`'))
        .map(|row| {
            let value = serde_json::from_str(row[1].trim_matches('`')).expect("a default in JSON");
            (row[0].trim_matches('`').to_owned(), value)
        })
        .collect();
    assert_eq!(written, values);
}

#[test]
fn the_rights_table_says_what_the_roles_grant() {
    let granted: Vec<_> = rules("clusterrole.yaml")
        .iter()
        .chain(&rules("role.yaml"))
        .chain(&rules("impersonatorrole.yaml"))
        .map(rule_row)
        .collect();
    let written: Vec<_> = rows(&read("docs/install.md"))
        .into_iter()
        .filter(|row| row.len() == 4 && row[0] != "Group")
        .map(|row| row[..3].to_vec())
        .collect();
    assert_eq!(written, granted);
}

#[test]
fn every_right_stands_below_its_reason() {
    for template in ["clusterrole.yaml", "role.yaml", "impersonatorrole.yaml"] {
        let text = read(&format!("{CHART}/templates/{template}"));
        let lines: Vec<_> = text.lines().map(str::trim).collect();
        for (number, line) in lines.iter().enumerate() {
            if line.starts_with("- apiGroups:") {
                assert!(lines[number - 1].starts_with("# "), "{template}, line {}", number + 1);
            }
        }
    }
}

#[test]
fn no_rule_uses_a_wildcard() {
    for template in [
        "clusterrole.yaml",
        "role.yaml",
        "impersonatorrole.yaml",
        "aggregate.yaml",
    ] {
        assert!(
            !read(&format!("{CHART}/templates/{template}")).contains('*'),
            "{template}"
        );
    }
}

/// What helm makes of the chart, as release `op` in namespace `sys`, with these values.
fn rendered(values: &[&str]) -> Vec<Value> {
    let output = template(values);
    assert!(
        output.status.success(),
        "{values:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let text = String::from_utf8(output.stdout).expect("text");
    let documents = serde_yaml::Deserializer::from_str(&text);
    documents
        .map(|document| Value::deserialize(document).expect("YAML"))
        .filter(|object| !object.is_null())
        .collect()
}

fn template(values: &[&str]) -> Output {
    let values = values.iter().flat_map(|value| ["--set", value]);
    helm().args(values).output().expect("helm runs")
}

/// `helm template` of the chart, whose objects are called `op`.
fn helm() -> Command {
    let mut helm = helm_of("op");
    helm.args(["--set", "fullnameOverride=op"]);
    helm
}

/// `helm template` of the chart as this release.
fn helm_of(release: &str) -> Command {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let mut helm = Command::new(runtime.block_on(test_cluster::helm()).expect("helm"));
    helm.args(["template", release, "--namespace", "sys"]);
    helm.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join(CHART));
    helm
}

fn of_kind<'a>(objects: &'a [Value], kind: &str) -> Vec<&'a Value> {
    objects.iter().filter(|object| object["kind"] == kind).collect()
}

fn one<'a>(objects: &'a [Value], kind: &str) -> &'a Value {
    match of_kind(objects, kind)[..] {
        [object] => object,
        ref others => panic!("{} of {kind}", others.len()),
    }
}

/// Whether the operator's roles grant a verb on an object by its name, or on every object where the name is empty.
fn grants(objects: &[Value], resource: &str, name: &str, verb: &str) -> bool {
    let roles = objects
        .iter()
        .filter(|object| ["Role", "ClusterRole"].contains(&object["kind"].as_str().unwrap_or_default()));
    let rules = roles
        .filter(|role| role["metadata"]["name"] == "op")
        .flat_map(|role| role["rules"].as_array().expect("rules"));
    let has = |list: &Value, wanted: &str| {
        let mut items = list.as_array().into_iter().flatten();
        items.any(|item| item == wanted)
    };
    rules
        .filter(|rule| has(&rule["resources"], resource) && has(&rule["verbs"], verb))
        .any(|rule| rule["resourceNames"].is_null() || has(&rule["resourceNames"], name))
}

fn arguments(objects: &[Value]) -> Vec<&str> {
    let arguments = &one(objects, "Deployment")["spec"]["template"]["spec"]["containers"][0]["args"];
    let arguments = arguments.as_array().expect("args").iter();
    arguments.map(|argument| argument.as_str().expect("text")).collect()
}

/// kubernetes/kubernetes#116770: old API servers mixed up the two sources of a group's versions. Here, whatever upstream supports no
/// more is refused.
#[test]
fn clusters_that_are_too_old_are_refused() {
    let version = |version: &str| {
        let mut command = helm();
        let output = command.args(["--kube-version", version]).output().expect("helm runs");
        (
            output.status.success(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )
    };
    assert!(version("1.33.0").0, "{}", version("1.33.0").1);
    let (taken, sentence) = version("1.32.9");
    assert!(!taken && sentence.contains("1.33"), "{sentence}");
}

/// Helm takes more for a release's name than Kubernetes for a Service's.
#[test]
fn a_release_after_which_no_service_can_be_named_is_refused() {
    for (release, name) in [
        ("1st", "1st-model-deployment-operator"),
        ("my.op", "my.op-model-deployment-operator"),
    ] {
        let output = helm_of(release).output().expect("helm runs");
        let sentence = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{release} is taken");
        assert!(
            sentence.contains(name) && sentence.contains("fullnameOverride"),
            "{sentence}"
        );
        let named = helm_of(release).args(["--set", "fullnameOverride=op"]).status();
        assert!(named.expect("helm runs").success(), "{release} with another name");
    }
    assert!(helm_of("mine").status().expect("helm runs").success());
}

/// kubernetes-sigs/metrics-server#406, #832: the API server looks for an endpoint port of the very name of the Service's port.
#[test]
fn the_service_and_the_container_call_the_port_alike() {
    let objects = rendered(&[]);
    let port = &one(&objects, "Service")["spec"]["ports"];
    assert_eq!(
        *port,
        serde_json::json!([{"name": "https", "port": 443, "targetPort": "https"}])
    );
    let container = &one(&objects, "Deployment")["spec"]["template"]["spec"]["containers"][0];
    let named: Vec<_> = container["ports"].as_array().expect("ports").iter().collect();
    assert!(
        named
            .iter()
            .any(|port| port["name"] == "https" && port["containerPort"] == 8443)
    );
    let service = &one(&objects, "APIService")["spec"]["service"];
    assert_eq!(
        *service,
        serde_json::json!({"name": "op", "namespace": "sys", "port": 443})
    );
}

/// kubernetes-sigs/metrics-server#1010, #1116, #918: control planes that reach nodes and no Pods.
#[test]
fn the_ports_can_be_chosen_and_the_nodes_network_taken() {
    let objects = rendered(&["hostNetwork=true", "ports.https=10443", "ports.metrics=10080"]);
    let deployment = &one(&objects, "Deployment")["spec"];
    let pod = &deployment["template"]["spec"];
    assert_eq!(pod["hostNetwork"], true);
    assert_eq!(pod["dnsPolicy"], "ClusterFirstWithHostNet");
    // On the node's network a declared port is the node's, so the scheduler puts no two replicas on one node; a replica makes room
    // before its successor comes.
    assert_eq!(pod["containers"][0]["ports"][0]["containerPort"], 10443);
    assert_eq!(deployment["strategy"]["rollingUpdate"]["maxSurge"], 0);
    let arguments = arguments(&objects);
    for argument in ["--secure-port=10443", "--telemetry-port=10080"] {
        assert!(arguments.contains(&argument), "{arguments:?}");
    }
    assert_eq!(
        one(&rendered(&[]), "Deployment")["spec"]["template"]["spec"]["dnsPolicy"],
        Value::Null
    );
}

#[test]
fn the_operator_keeps_its_certificate_by_itself() {
    let objects = rendered(&[]);
    assert!(arguments(&objects).contains(&"--certificate-provider=operator"));
    let service = one(&objects, "APIService");
    assert_eq!(service["spec"]["caBundle"], Value::Null);
    assert_eq!(service["spec"]["insecureSkipTLSVerify"], Value::Null);
    assert_eq!(service["metadata"]["annotations"], Value::Null);
    assert!(
        objects
            .iter()
            .all(|object| object["apiVersion"] != "cert-manager.io/v1")
    );
    for (resource, name, verb) in [
        ("secrets", "op-certificate", "update"),
        ("secrets", "op-certificate-ca", "update"),
        ("apiservices", "v1.worker.gpustack.ai", "patch"),
    ] {
        assert!(grants(&objects, resource, name, verb), "{verb} {resource} {name}");
    }
}

/// The certificate comes from an authority that outlives it: a certificate that is its own authority would replace what the API server
/// trusts at each renewal.
#[test]
fn cert_manager_issues_from_an_authority_of_the_release() {
    let objects = rendered(&["certificates.provider=cert-manager"]);
    let service = &one(&objects, "APIService");
    assert_eq!(
        service["metadata"]["annotations"]["cert-manager.io/inject-ca-from"],
        "sys/op"
    );
    assert_eq!(service["spec"]["caBundle"], Value::Null);

    let mine: Vec<_> = objects
        .iter()
        .filter(|object| object["apiVersion"] == "cert-manager.io/v1")
        .collect();
    assert!(mine.iter().all(|object| object["metadata"]["namespace"] == "sys"));
    let named = |kind: &str, name: &str| {
        let mut found = mine
            .iter()
            .filter(|object| object["kind"] == kind && object["metadata"]["name"] == name);
        found.next().unwrap_or_else(|| panic!("{kind} {name}"))["spec"].clone()
    };
    assert_eq!(mine.len(), 4);
    let leaf = named("Certificate", "op");
    assert_eq!(leaf["secretName"], "op-certificate");
    assert_eq!(leaf["dnsNames"], serde_json::json!(["op.sys.svc", "op.sys", "op"]));
    assert_eq!(leaf["usages"], serde_json::json!(["digital signature", "server auth"]));
    assert_eq!(leaf["privateKey"]["rotationPolicy"], "Always");
    // From the leaf up to what signs itself.
    let reference = |spec: &Value| {
        assert_eq!(spec["issuerRef"]["group"], "cert-manager.io");
        let text = |key: &str| spec["issuerRef"][key].as_str().expect("text").to_owned();
        named(&text("kind"), &text("name"))
    };
    let issuer = reference(&leaf);
    let authority = named("Certificate", "op-authority");
    assert_eq!(authority["secretName"], issuer["ca"]["secretName"]);
    assert_ne!(authority["secretName"], leaf["secretName"]);
    assert_ne!(
        authority["secretName"], "op-certificate-ca",
        "that is the operator's own"
    );
    assert_eq!(authority["isCA"], true);
    assert_eq!(authority["privateKey"]["rotationPolicy"], "Never");
    assert_eq!(reference(&authority), serde_json::json!({"selfSigned": {}}));

    reads_only(&objects, "op-certificate");
}

#[test]
fn cert_manager_issues_from_an_issuer_of_yours() {
    let objects = rendered(&[
        "certificates.provider=cert-manager",
        "certificates.issuerRef.name=internal",
        "certificates.issuerRef.kind=ClusterIssuer",
    ]);
    assert_eq!(of_kind(&objects, "Issuer"), Vec::<&Value>::new());
    assert_eq!(
        one(&objects, "Certificate")["spec"]["issuerRef"],
        serde_json::json!({"name": "internal", "kind": "ClusterIssuer", "group": "cert-manager.io"})
    );
}

#[test]
fn a_secret_of_yours_is_read_and_its_authority_published() {
    let objects = rendered(&[
        "certificates.provider=secret",
        "certificates.secret=mine",
        "certificates.caBundle=PEM",
    ]);
    // base64 of PEM.
    assert_eq!(one(&objects, "APIService")["spec"]["caBundle"], "UEVN");
    reads_only(&objects, "mine");
    let without = rendered(&["certificates.provider=secret", "certificates.secret=mine"]);
    assert_eq!(one(&without, "APIService")["spec"]["caBundle"], Value::Null);

    let refused = template(&["certificates.provider=secret"]);
    assert!(!refused.status.success());
    let sentence = String::from_utf8_lossy(&refused.stderr);
    assert!(sentence.contains("certificates.secret"), "{sentence}");
}

/// The operator reads the certificate's Secret, and has no right to write it or the APIService; its own authority it keeps.
fn reads_only(objects: &[Value], secret: &str) {
    let arguments = arguments(objects);
    for argument in [
        "--certificate-provider=secret",
        &format!("--certificate-secret={secret}"),
        "--authority-secret=op-certificate-ca",
    ] {
        assert!(arguments.contains(&argument), "{argument}: {arguments:?}");
    }
    for (resource, name, verb, granted) in [
        ("secrets", secret, "watch", true),
        ("secrets", secret, "update", false),
        ("secrets", "op-certificate-ca", "update", true),
        ("apiservices", "v1.worker.gpustack.ai", "patch", false),
        ("apiservices", "v1.worker.gpustack.ai", "delete", true),
    ] {
        assert_eq!(
            grants(objects, resource, name, verb),
            granted,
            "{verb} {resource} {name}"
        );
    }
}
