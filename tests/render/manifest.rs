//! Manifests as the tests write them, and the parts of a plan that they look at.

use std::sync::LazyLock;

use k8s_openapi::api::core::v1::{Container, Pod, Service};
use kube::CustomResourceExt;
use kube::core::cel::{CompiledSchema, Validator, compile_schema};
use model_deployment::pod::labels::Position;
use model_deployment::render::{Defaults, Plan, Refusal, render};
use model_deployment_crds::ModelDeployment;
use serde_json::Value;

/// The deployment `chat` in namespace `serving`, serving the model `m` with `engine` from the image `image`.
/// `spec` is the rest of its spec, as YAML.
pub fn deployment(engine: &str, spec: &str) -> ModelDeployment {
    let manifest = format!(
        "apiVersion: worker.gpustack.ai/v1alpha1
kind: ModelDeployment
metadata: {{name: chat, namespace: serving, uid: 6d2f}}
spec:
  model: {{name: m}}
  engine: {{name: {engine}, image: image}}
  {}",
        spec.trim().replace('\n', "\n  ")
    );
    let deployment: ModelDeployment =
        serde_yaml::from_str(&manifest).unwrap_or_else(|error| panic!("{error}:\n{manifest}"));
    hold_rules(&serde_json::to_value(&deployment).expect("a ModelDeployment is JSON"));
    deployment
}

/// Holds the resource's CEL rules against a manifest with its defaults.
pub fn hold_rules(manifest: &Value) {
    static RULES: LazyLock<CompiledSchema> = LazyLock::new(|| {
        let definition = ModelDeployment::crd();
        let schema = definition.spec.versions[0]
            .schema
            .as_ref()
            .and_then(|schema| schema.open_api_v3_schema.as_ref());
        compile_schema(&serde_json::to_value(schema).expect("a schema is JSON"))
    });
    if let Err(errors) = Validator::new().validate_compiled(&RULES, manifest, None) {
        panic!("{errors:?}:\n{manifest:#}");
    }
}

/// What is rendered for [`deployment`].
pub fn plan(engine: &str, spec: &str) -> Plan {
    try_plan(engine, spec).unwrap_or_else(|refusal| panic!("{refusal}:\n{spec}"))
}

/// What is rendered for [`deployment`], or why nothing is.
pub fn try_plan(engine: &str, spec: &str) -> Result<Plan, Refusal> {
    render(&deployment(engine, spec), &Defaults::default())
}

/// The first Pod of a role.
pub fn pod(plan: &Plan, role: &str) -> Pod {
    member(plan, role, 0)
}

/// A member of the first replica of a role.
pub fn member(plan: &Plan, role: &str, member: u32) -> Pod {
    let role = plan
        .roles
        .iter()
        .find(|plan| plan.name == role)
        .expect("the role is planned");
    role.pod(Position { ordinal: 0, member })
}

/// The engine's container.
pub fn main_container(pod: &Pod) -> &Container {
    let spec = pod.spec.as_ref().expect("a Pod has a spec");
    spec.containers
        .iter()
        .find(|container| container.name == "main")
        .expect("an engine Pod has a container main")
}

/// The argument vector of the engine in the first Pod of a role.
pub fn command(plan: &Plan, role: &str) -> Vec<String> {
    main_container(&pod(plan, role)).command.clone().unwrap_or_default()
}

/// The word after `flag`.
pub fn value<'a>(command: &'a [String], flag: &str) -> Option<&'a str> {
    command
        .iter()
        .position(|word| word == flag)
        .and_then(|at| command.get(at + 1))
        .map(String::as_str)
}

/// The arguments of the router's, or another's, first container called `name`.
pub fn router_arguments(plan: &Plan, name: &str) -> Vec<String> {
    let router = plan.router.as_ref().expect("there is a router");
    let pod = router
        .deployment
        .spec
        .as_ref()
        .and_then(|spec| spec.template.spec.as_ref())
        .expect("a Deployment has Pods");
    let container = pod
        .containers
        .iter()
        .find(|container| container.name == name)
        .expect("the container is there");
    container.args.clone().unwrap_or_default()
}

/// The values of a variable of a container; `(field)` where it is a field of the Pod.
pub fn variable(container: &Container, name: &str) -> Option<String> {
    let found = container.env.iter().flatten().find(|variable| variable.name == name)?;
    match (&found.value, &found.value_from) {
        (Some(value), _) => Some(value.clone()),
        (None, Some(from)) => from.field_ref.as_ref().map(|field| format!("({})", field.field_path)),
        (None, None) => Some(String::new()),
    }
}

/// An annotation of a Pod.
pub fn annotation<'a>(pod: &'a Pod, name: &str) -> Option<&'a str> {
    pod.metadata.annotations.as_ref()?.get(name).map(String::as_str)
}

/// The declared ports of a container, as `name:number`.
pub fn ports(container: &Container) -> Vec<String> {
    let ports = container.ports.iter().flatten();
    ports
        .map(|port| format!("{}:{}", port.name.as_deref().unwrap_or_default(), port.container_port))
        .collect()
}

/// Port and target port of the Service called `name`.
pub fn service_ports(plan: &Plan, name: &str) -> (i32, i32) {
    use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
    let services = plan
        .services
        .iter()
        .chain(plan.router.iter().map(|router| &router.service));
    let service: &Service = services
        .chain(plan.coordinator.iter().map(|plan| &plan.service))
        .find(|service| service.metadata.name.as_deref() == Some(name))
        .expect("the Service is planned");
    let port = &service
        .spec
        .as_ref()
        .and_then(|spec| spec.ports.as_ref())
        .expect("a Service has ports")[0];
    match port.target_port {
        Some(IntOrString::Int(target)) => (port.port, target),
        _ => panic!("target ports are numbers"),
    }
}
