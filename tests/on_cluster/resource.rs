//! The resource itself: the real API server refuses each bad value with our message, and takes the good one.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::scenario::{Failure, Outcome, Scenario, Test, ensure, test};

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    vec![
        test!(bad_values_are_refused_and_good_ones_taken),
        test!(identity_is_immutable),
        test!(defaults_are_filled_in),
    ]
}

/// A spec that is taken as it is.
fn good() -> Value {
    json!({
        "model": {"name": "tiny"},
        "engine": {"name": "vLLM", "image": "vllm/vllm-openai:v0.32.0"},
        "roles": [{"name": "server"}],
    })
}

fn pair() -> Value {
    json!([{"name": "prefill", "kind": "Prefill"}, {"name": "decode", "kind": "Decode"}])
}

fn with(path: &str, value: Value) -> Value {
    set(good(), path, value)
}

fn set(mut spec: Value, path: &str, value: Value) -> Value {
    let mut target = &mut spec;
    for key in path.split('.') {
        target = match key.parse::<usize>() {
            Ok(index) => &mut target[index],
            Err(_) => &mut target[key],
        };
    }
    *target = value;
    spec
}

fn paired(path: &str, value: Value) -> Value {
    set(with("roles", pair()), path, value)
}

fn sglang(spec: Value) -> Value {
    set(spec, "engine.name", json!("SGLang"))
}

/// Each rule of the schema: what it is about, a value that breaks it, what the API server says, and a neighbour that it takes.
fn rules() -> Vec<(&'static str, Value, &'static str, Value)> {
    let pool = json!({"pool": {"masterAddress": "mooncake:50051"}});
    let host = json!({"connector": "Offloading", "hostMemory": "64Gi"});
    let router = |name: &str| json!({"name": name});
    vec![
        (
            "a model has a name",
            with("model", json!({})),
            "spec.model.name: Required value",
            good(),
        ),
        (
            "a model's name has at most 253 characters",
            with("model.name", json!("m".repeat(254))),
            "may not be more than 253",
            with("model.name", json!("m".repeat(253))),
        ),
        (
            "an engine has an image",
            with("engine", json!({"name": "vLLM"})),
            "spec.engine.image: Required value",
            good(),
        ),
        (
            "an image has at most 512 characters",
            with("engine.image", json!("i".repeat(513))),
            "may not be more than 512",
            with("engine.image", json!("i".repeat(512))),
        ),
        (
            "engines are vLLM and SGLang",
            with("engine.name", json!("vllm")),
            "supported values: \"vLLM\", \"SGLang\"",
            sglang(good()),
        ),
        (
            "one role at least",
            with("roles", json!([])),
            "should have at least 1 items",
            good(),
        ),
        (
            "ten roles at most",
            with("roles", (0..11).map(|i| json!({"name": format!("r{i}")})).collect()),
            "must have at most 10 items",
            with("roles", (0..10).map(|i| json!({"name": format!("r{i}")})).collect()),
        ),
        (
            "roles have different names",
            with("roles", json!([{"name": "a"}, {"name": "a"}])),
            "Duplicate value",
            with("roles", json!([{"name": "a"}, {"name": "b"}])),
        ),
        (
            "a role is not named router",
            with("roles.0.name", json!("router")),
            "a role cannot be named router or coordinator",
            with("roles.0.name", json!("routers")),
        ),
        (
            "a role is not named coordinator",
            with("roles.0.name", json!("coordinator")),
            "a role cannot be named router or coordinator",
            good(),
        ),
        (
            "a role's name is a DNS-1035 label",
            with("roles.0.name", json!("1a")),
            "should match",
            with("roles.0.name", json!("a1")),
        ),
        (
            "a role's name has at most 40 characters",
            with("roles.0.name", json!("r".repeat(41))),
            "may not be more than 40",
            with("roles.0.name", json!("r".repeat(40))),
        ),
        (
            "replicas are not negative",
            with("roles.0.replicas", json!(-1)),
            "greater than or equal to 0",
            with("roles.0.replicas", json!(0)),
        ),
        (
            "replicas are at most 1024",
            with("roles.0.replicas", json!(1025)),
            "less than or equal to 1024",
            with("roles.0.replicas", json!(1024)),
        ),
        (
            "size is at least 1",
            with("roles.0.size", json!(0)),
            "greater than or equal to 1",
            with("roles.0.size", json!(1)),
        ),
        (
            "size is at most 64",
            with("roles.0.size", json!(65)),
            "less than or equal to 64",
            with("roles.0.size", json!(64)),
        ),
        (
            "a port is a port",
            with("roles.0.port", json!(65536)),
            "less than or equal to 65535",
            with("roles.0.port", json!(65535)),
        ),
        (
            "resources may be whole numbers",
            with("roles.0.resources", json!({"limits": {"nvidia.com/gpu": []}})),
            "Invalid value",
            with(
                "roles.0.resources",
                json!({"limits": {"nvidia.com/gpu": 2, "memory": "64Gi"}}),
            ),
        ),
        (
            "a kind is one of three",
            with("roles.0.kind", json!("Encode")),
            "supported values: \"Server\", \"Prefill\", \"Decode\"",
            good(),
        ),
        (
            "Server is not mixed with others",
            with(
                "roles",
                json!([{"name": "a"}, {"name": "p", "kind": "Prefill"}, {"name": "d", "kind": "Decode"}]),
            ),
            "kind Server cannot be mixed",
            with("roles", pair()),
        ),
        (
            "at most one Prefill",
            with(
                "roles",
                json!([{"name": "p", "kind": "Prefill"}, {"name": "q", "kind": "Prefill"}, {"name": "d", "kind": "Decode"}]),
            ),
            "at most one role of kind Prefill",
            with("roles", pair()),
        ),
        (
            "Prefill comes with Decode",
            with("roles", json!([{"name": "p", "kind": "Prefill"}])),
            "Prefill and Decode only come together",
            with("roles", pair()),
        ),
        (
            "Decode comes with Prefill",
            with("roles", json!([{"name": "d", "kind": "Decode"}])),
            "Prefill and Decode only come together",
            with("roles", pair()),
        ),
        (
            "extraArgs are refused beside a command",
            with("roles.0", json!({"name": "a", "command": ["x"], "extraArgs": ["--y"]})),
            "extraArgs is refused beside command",
            with("roles.0", json!({"name": "a", "command": ["x"]})),
        ),
        (
            "environment names are different",
            with(
                "roles.0.env",
                json!([{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]),
            ),
            "Duplicate value",
            with("roles.0.env", json!([{"name": "A", "value": "1"}])),
        ),
        (
            "Mooncake needs a pool",
            with("kvCache", json!({})),
            "spec.kvCache.pool is required for connector Mooncake",
            with("kvCache", pool.clone()),
        ),
        (
            "Offloading refuses a pool",
            with(
                "kvCache",
                json!({"connector": "Offloading", "hostMemory": "1Gi", "pool": {"masterAddress": "m:1"}}),
            ),
            "refused for Offloading",
            with("kvCache", host.clone()),
        ),
        (
            "Offloading needs hostMemory",
            with("kvCache", json!({"connector": "Offloading"})),
            "spec.kvCache.hostMemory is required for connector Offloading",
            with("kvCache", host),
        ),
        (
            "Mooncake refuses hostMemory",
            with(
                "kvCache",
                json!({"pool": {"masterAddress": "m:1"}, "hostMemory": "1Gi"}),
            ),
            "refused for Mooncake",
            with("kvCache", pool),
        ),
        (
            "a pool's address is host:port",
            with("kvCache", json!({"pool": {"masterAddress": "mooncake"}})),
            "should match",
            with("kvCache", json!({"pool": {"masterAddress": "[fd00::1]:50051"}})),
        ),
        (
            "protocols are TCP and RDMA",
            with("kvCache", json!({"pool": {"masterAddress": "m:1", "protocol": "tcp"}})),
            "supported values: \"TCP\", \"RDMA\"",
            with("kvCache", json!({"pool": {"masterAddress": "m:1", "protocol": "RDMA"}})),
        ),
        (
            "kvTransfer needs a pair",
            with("kvTransfer", json!({"connector": "Nixl"})),
            "spec.kvTransfer needs a Prefill/Decode pair",
            paired("kvTransfer", json!({"connector": "Nixl"})),
        ),
        (
            "Mooncake moves nothing under the public vllm-router",
            set(
                paired("kvTransfer", json!({"connector": "Mooncake"})),
                "router",
                router("vllm-router"),
            ),
            "moves no KV blocks",
            set(
                paired("kvTransfer", json!({"connector": "Mooncake"})),
                "router",
                json!({"name": "vllm-router", "image": "own"}),
            ),
        ),
        (
            "vllm-router serves vLLM",
            sglang(with("router", router("vllm-router"))),
            "vllm-router serves engine vLLM only",
            with("router", router("vllm-router")),
        ),
        (
            "sglang-gateway serves SGLang",
            with("router", router("sglang-gateway")),
            "sglang-gateway serves engine SGLang only",
            sglang(with("router", router("sglang-gateway"))),
        ),
        (
            "policies of vllm-router",
            with("router", json!({"name": "vllm-router", "policy": "manual"})),
            "spec.router policies of vllm-router",
            with("router", json!({"name": "vllm-router", "policy": "kv_aware"})),
        ),
        (
            "policies of sglang-gateway",
            sglang(with("router", json!({"name": "sglang-gateway", "policy": "bucket"}))),
            "spec.router.policy of sglang-gateway",
            sglang(with("router", json!({"name": "sglang-gateway", "policy": "manual"}))),
        ),
        (
            "half policies of sglang-gateway",
            sglang(paired(
                "router",
                json!({"name": "sglang-gateway", "prefillPolicy": "kv_aware"}),
            )),
            "prefillPolicy and decodePolicy of sglang-gateway",
            sglang(paired(
                "router",
                json!({"name": "sglang-gateway", "prefillPolicy": "bucket"}),
            )),
        ),
        (
            "bucket is for the prefill half",
            sglang(paired(
                "router",
                json!({"name": "sglang-gateway", "decodePolicy": "bucket"}),
            )),
            "spec.router.decodePolicy cannot be bucket",
            sglang(paired(
                "router",
                json!({"name": "sglang-gateway", "decodePolicy": "manual"}),
            )),
        ),
        (
            "llm-d-router takes no policy",
            with("router", json!({"name": "llm-d-router", "policy": "random"})),
            "refused on llm-d-router",
            with("router", router("llm-d-router")),
        ),
        (
            "half policies need a pair",
            with("router", json!({"name": "vllm-router", "decodePolicy": "random"})),
            "need a Prefill/Decode pair",
            paired("router", json!({"name": "vllm-router", "decodePolicy": "random"})),
        ),
        (
            "a coordinator needs llm-d-router and a pair",
            with("router", json!({"name": "llm-d-router", "coordinator": {"image": "c"}})),
            "needs llm-d-router and a Prefill/Decode pair",
            paired("router", json!({"name": "llm-d-router", "coordinator": {"image": "c"}})),
        ),
        (
            "router arguments begin with --",
            with("router", json!({"name": "vllm-router", "extraArgs": ["x"]})),
            "must begin with '--'",
            with("router", json!({"name": "vllm-router", "extraArgs": ["--x", "y"]})),
        ),
        (
            "coordinator arguments begin with --",
            paired(
                "router",
                json!({"name": "llm-d-router", "coordinator": {"image": "c", "extraArgs": ["x"]}}),
            ),
            "must begin with '--'",
            paired(
                "router",
                json!({"name": "llm-d-router", "coordinator": {"image": "c", "extraArgs": ["--x"]}}),
            ),
        ),
        (
            "a request timeout is at least a second",
            with("router", json!({"name": "vllm-router", "requestTimeoutSeconds": 0})),
            "greater than or equal to 1",
            with("router", json!({"name": "vllm-router", "requestTimeoutSeconds": 1})),
        ),
    ]
}

fn manifest(name: &str, spec: &Value) -> String {
    json!({
        "apiVersion": "worker.gpustack.ai/v1alpha1",
        "kind": "ModelDeployment",
        "metadata": {"name": name},
        "spec": spec,
    })
    .to_string()
}

/// Asks the API server without storing anything.
async fn ask(scenario: &Scenario, namespace: &str, manifest: &str) -> Result<(bool, String), Failure> {
    let arguments = ["create", "--namespace", namespace, "--dry-run=server", "-f", "-"];
    let output = scenario.cluster.kubectl_with_input(&arguments, manifest).await?;
    Ok((output.status.success(), output.stderr))
}

async fn bad_values_are_refused_and_good_ones_taken(scenario: Arc<Scenario>) -> Outcome {
    let namespace = scenario.cluster.namespace("rules").await?;
    for (rule, bad, message, good) in rules() {
        let (taken, said) = ask(&scenario, &namespace, &manifest("chat", &bad)).await?;
        ensure!(!taken, "{rule}: {bad} was taken");
        ensure!(
            said.contains(message),
            "{rule}: the message does not say {message:?}: {said}"
        );
        let (taken, said) = ask(&scenario, &namespace, &manifest("chat", &good)).await?;
        ensure!(taken, "{rule}: {good} was refused: {said}");
    }
    let names = [
        ("1chat".to_owned(), good(), "must be a DNS-1035 label"),
        ("chat.v1".to_owned(), good(), "must be a DNS-1035 label"),
        // 55 + "-server-0" is 64.
        ("c".repeat(55), good(), "would exceed 63 characters"),
        // 54 + "-server-10" is 64.
        (
            "c".repeat(54),
            with("roles.0.replicas", json!(11)),
            "would exceed 63 characters",
        ),
        // 57 + "-router" is 64, though no Pod of the role "s" is too long.
        (
            "c".repeat(57),
            set(
                with("roles.0.name", json!("s")),
                "router",
                json!({"name": "vllm-router"}),
            ),
            "a Service name",
        ),
    ];
    for (name, spec, message) in names {
        let (taken, said) = ask(&scenario, &namespace, &manifest(&name, &spec)).await?;
        ensure!(!taken && said.contains(message), "the name {name}: {said}");
    }
    for name in ["c".repeat(54), "chat".to_owned()] {
        let (taken, said) = ask(&scenario, &namespace, &manifest(&name, &good())).await?;
        ensure!(taken, "the name {name}: {said}");
    }
    Ok(())
}

async fn identity_is_immutable(scenario: Arc<Scenario>) -> Outcome {
    let namespace = scenario.cluster.namespace("identity").await?;
    let zero = |spec: Value| {
        let mut spec = spec;
        for role in spec["roles"].as_array_mut().into_iter().flatten() {
            role["replicas"] = json!(0);
        }
        spec
    };
    let routed = zero(with("router", json!({"name": "vllm-router", "replicas": 0})));
    scenario.apply(&namespace, &manifest("chat", &routed)).await?;
    let edits = [
        (
            set(routed.clone(), "engine.name", json!("SGLang")),
            "spec.engine.name is immutable",
        ),
        (
            set(routed.clone(), "kvCache", json!({"pool": {"masterAddress": "m:1"}})),
            "spec.kvCache is immutable",
        ),
        (
            set(routed.clone(), "router.name", json!("llm-d-router")),
            "spec.router.name cannot be changed in place",
        ),
        (
            set(routed.clone(), "roles.0.name", json!("other")),
            "names and kinds of spec.roles are immutable",
        ),
        (
            set(routed.clone(), "roles", json!([{"name": "server"}, {"name": "more"}])),
            "names and kinds of spec.roles are immutable",
        ),
    ];
    for (edit, message) in edits {
        let said = scenario.apply_refused(&namespace, &manifest("chat", &edit)).await?;
        ensure!(said.contains(message), "{message:?} is not in {said}");
    }
    // The router may go and another one may come.
    scenario.apply(&namespace, &manifest("chat", &zero(good()))).await?;
    scenario
        .apply(
            &namespace,
            &manifest(
                "chat",
                &zero(with("router", json!({"name": "llm-d-router", "replicas": 0}))),
            ),
        )
        .await?;
    Ok(())
}

async fn defaults_are_filled_in(scenario: Arc<Scenario>) -> Outcome {
    let namespace = scenario.cluster.namespace("defaults").await?;
    let spec = set(good(), "router", json!({"name": "vllm-router"}));
    let arguments = [
        "create",
        "--namespace",
        &namespace,
        "--dry-run=server",
        "-o",
        "json",
        "-f",
        "-",
    ];
    let output = scenario
        .cluster
        .kubectl_with_input(&arguments, &manifest("chat", &spec))
        .await?;
    let stored: Value = serde_json::from_str(&output.stdout)?;
    let role = &stored["spec"]["roles"][0];
    let expected = json!({"name": "server", "kind": "Server", "replicas": 1, "size": 1, "port": 8000, "shmSize": "16Gi", "directDecode": true});
    ensure!(*role == expected, "the role was stored as {role}");
    ensure!(
        stored["spec"]["router"] == json!({"name": "vllm-router", "replicas": 1}),
        "the router was stored as {}",
        stored["spec"]["router"]
    );
    Ok(())
}
