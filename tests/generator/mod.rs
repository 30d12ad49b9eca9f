//! Manifests over the whole of a spec: for a number, always the same one. The resource's own rules hold for each; whether it is
//! rendered or refused is for the renderer to say.

use serde_json::{Map, Value, json};

/// Names of what a Pod may refer to outside of it: a cluster that takes the Pods has these.
pub const NAMED: &str = "generated";

/// SplitMix64.
struct Chances(u64);

impl Chances {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    /// True in one of so many cases.
    fn one_in(&mut self, cases: usize) -> bool {
        self.below(cases) == 0
    }

    fn one_of<T: Clone>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())].clone()
    }
}

/// The manifest of that number: ModelDeployment `<letter><number>`, in no namespace.
pub fn manifest(number: u64) -> Value {
    let chances = &mut Chances(number);
    let vllm = chances.one_in(2);
    let paired = chances.one_in(2);
    let router = match chances.below(4) {
        0 => None,
        1 => Some("llm-d-router"),
        _ if vllm => Some("vllm-router"),
        _ => Some("sglang-gateway"),
    };
    let mut spec = Map::new();
    spec.insert("model".into(), model(chances));
    let engine = if vllm { "vLLM" } else { "SGLang" };
    spec.insert(
        "engine".into(),
        json!({"name": engine, "image": format!("example/{number}:v1")}),
    );
    match chances.below(4) {
        0 => {
            let mut pool =
                json!({"masterAddress": chances.one_of(&["mooncake.kv:50051", "10.0.0.7:1", "[fd00::1]:65535"])});
            if chances.one_in(2) {
                pool["protocol"] = chances.one_of(&["TCP", "RDMA"]).into();
            }
            if chances.one_in(2) {
                pool["tenant"] = chances.one_of(&["team-a", "größe \"2\""]).into();
            }
            spec.insert("kvCache".into(), json!({"pool": pool}));
        }
        1 => {
            let memory = chances.one_of(&[json!("64G"), json!("96Gi"), json!("1.5T"), json!(80_000_000_000_u64)]);
            spec.insert(
                "kvCache".into(),
                json!({"connector": "Offloading", "hostMemory": memory}),
            );
        }
        _ => {}
    }
    let own_image = chances.one_in(3);
    if paired && chances.one_in(2) {
        // Under the public vllm-router Mooncake moves nothing.
        let connectors: &[&str] = if router == Some("vllm-router") && !own_image {
            &["Nixl"]
        } else {
            &["Mooncake", "Nixl"]
        };
        let connector = chances.one_of(connectors);
        spec.insert(
            "kvTransfer".into(),
            json!({"connector": connector, "protocol": chances.one_of(&["TCP", "RDMA"])}),
        );
    }
    if let Some(name) = router {
        spec.insert("router".into(), a_router(chances, name, paired, own_image));
    }
    spec.insert("roles".into(), roles(chances, vllm, paired));
    // The longest name that leaves room for the longest role, ordinal and member.
    let letter = chances.one_of(&["m", "chat-", "a-long-name-"]);
    json!({
        "apiVersion": "worker.gpustack.ai/v1alpha1", "kind": "ModelDeployment",
        "metadata": {"name": format!("{letter}{number}")}, "spec": spec,
    })
}

fn model(chances: &mut Chances) -> Value {
    let names = [
        "m",
        "Qwen/Qwen3-0.6B",
        "a model of mine",
        "模型-🙂",
        "x.y_z:1,2=3",
        "quote\"back\\slash",
    ];
    let longest = "n".repeat(253);
    let name = names.get(chances.below(names.len() + 1)).copied().unwrap_or(&longest);
    if chances.one_in(3) {
        json!({"name": name, "path": chances.one_of(&["/models/m", "./-odd", "s3://bucket/a b"])})
    } else {
        json!({"name": name})
    }
}

fn a_router(chances: &mut Chances, name: &str, paired: bool, own_image: bool) -> Value {
    let mut router = json!({"name": name});
    if own_image {
        router["image"] = "example/router:own".into();
    }
    if chances.one_in(3) {
        router["replicas"] = chances.below(3).into();
    }
    if chances.one_in(4) {
        router["imagePullPolicy"] = "IfNotPresent".into();
        router["imagePullSecrets"] = json!([{"name": NAMED}]);
    }
    if chances.one_in(4) {
        router["resources"] = json!({"requests": {"cpu": 1, "memory": "1Gi"}, "limits": {"memory": "2Gi"}});
    }
    if chances.one_in(3) {
        router["requestTimeoutSeconds"] = (1 + chances.below(3600)).into();
    }
    let policies: &[&str] = match name {
        "vllm-router" => &[
            "random",
            "round_robin",
            "cache_aware",
            "power_of_two",
            "consistent_hash",
            "kv_aware",
            "sticky_least_loaded",
        ],
        "sglang-gateway" => &["random", "round_robin", "cache_aware", "power_of_two", "manual"],
        _ => &[],
    };
    if !policies.is_empty() && chances.one_in(2) {
        router["policy"] = chances.one_of(policies).into();
    }
    if !policies.is_empty() && paired && chances.one_in(2) {
        router["prefillPolicy"] = chances.one_of(policies).into();
        router["decodePolicy"] = chances.one_of(policies).into();
    }
    if chances.one_in(3) {
        router["extraArgs"] = match name {
            "llm-d-router" => json!(["--v=4"]),
            _ => chances.one_of(&[json!(["--log-level", "debug"]), json!(["--max-concurrent-requests=64"])]),
        };
    }
    if name == "llm-d-router" && paired && chances.one_in(2) {
        router["coordinator"] = json!({"replicas": chances.below(2)});
        if chances.one_in(2) {
            router["coordinator"]["metricsCertSecret"] = NAMED.into();
        }
        if chances.one_in(2) {
            router["coordinator"]["extraArgs"] = json!(["--v", "2"]);
        }
    }
    router
}

fn roles(chances: &mut Chances, vllm: bool, paired: bool) -> Value {
    if paired {
        let port = chances.one_of(&[8000, 80, 8200, 9090]);
        let roles = [("prefill", "Prefill"), ("decode", "Decode")];
        return roles.map(|(name, kind)| role(chances, name, kind, port, vllm)).into();
    }
    let names = ["server", "a", "a-0", "b0", "the-name-of-a-role-of-forty-characters-0"];
    let count = 1 + chances.below(3);
    let first = chances.below(names.len());
    let port = chances.one_of(&[8000, 8443, 8200, 65535]);
    (0..count)
        .map(|at| role(chances, names[(first + at) % names.len()], "Server", port, vllm))
        .collect()
}

fn role(chances: &mut Chances, name: &str, kind: &str, port: i32, vllm: bool) -> Value {
    let mut role = json!({
        "name": name, "kind": kind, "replicas": chances.below(3), "size": 1 + chances.below(2) * chances.below(3), "port": port,
    });
    if chances.one_in(6) {
        role["port"] = chances.one_of(&[8998, 5557, 5558, 5600, 8081]).into();
    }
    if chances.one_in(8) {
        role["command"] = json!(["sh", "-c", "exec serve --port $PORT", ""]);
    } else if chances.one_in(2) {
        let both = [
            json!(["--port", "9100"]),
            json!(["--port=9100", "--max-total-tokens", "-1"]),
            json!(["--ssl-certfile=/tls/tls.crt", "--ssl-keyfile", "/tls/tls.key"]),
            json!(["--trust-remote-code"]),
        ];
        let own = if vllm {
            [
                json!(["-tp=2", "--pipeline_parallel_size", "2"]),
                json!(["--disable-log-stats", "--seed", "-1"]),
                json!(["--kv-offloading-size=8"]),
                json!(["--hf-overrides", "{\"a\": {\"b\": [1, \"c d\"]}}", "--ssl-cert-reqs=2"]),
            ]
        } else {
            [
                json!(["--tp", "2", "--dp=2", "--enable-dp-attention"]),
                json!(["--enable-hicache"]),
                json!(["--enable-lmcache"]),
                json!(["--radix-cache-backend", "flexkv"]),
            ]
        };
        role["extraArgs"] = chances.one_of(&[both, own].concat());
    }
    if chances.one_in(2) {
        let secret =
            json!({"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": NAMED, "key": "token", "optional": true}}});
        let field = json!({"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}});
        let plain = json!({"name": chances.one_of(&["A", "MC_FORCE_TCP", "MC_TE_METRIC", "with.dots-and-dashes"]), "value": "$(NODE)"});
        role["env"] = json!([field, secret, plain]);
    }
    if chances.one_in(2) {
        role["volumes"] = json!([
            {"name": "models", "persistentVolumeClaim": {"claimName": NAMED, "readOnly": true}},
            {"name": "tls", "secret": {"secretName": NAMED, "defaultMode": 256}},
            {"name": "scratch", "emptyDir": {"sizeLimit": "1Gi"}},
        ]);
        role["volumeMounts"] = json!([
            {"name": "models", "mountPath": chances.one_of(&["/models", "/dev/shm/models", "/etc/gpustack"]), "readOnly": true},
            {"name": "tls", "mountPath": "/tls"},
            {"name": "scratch", "mountPath": "/scratch", "subPathExpr": "$(NODE)"},
        ]);
        if role.get("env").is_none() {
            role["volumeMounts"][2]
                .as_object_mut()
                .expect("a mount")
                .remove("subPathExpr");
        }
    }
    if chances.one_in(2) {
        role["resources"] = chances.one_of(&[
            json!({"limits": {"nvidia.com/gpu": 2, "memory": "64Gi"}, "requests": {"cpu": "500m", "memory": "32Gi"}}),
            json!({"limits": {"example.com/device": "1"}}),
        ]);
    }
    for (field, value) in placement() {
        if chances.one_in(6) {
            role[field] = value;
        }
    }
    if chances.one_in(4) {
        role["shmSize"] = chances.one_of(&[json!("1Gi"), json!(0), json!("1e9")]);
    }
    if kind == "Decode" && chances.one_in(3) {
        role["directDecode"] = false.into();
    }
    role
}

/// Where and as whom a Pod runs.
fn placement() -> [(&'static str, Value); 13] {
    [
        ("image", json!("example/of-the-role:v2")),
        ("imagePullPolicy", json!("Always")),
        ("imagePullSecrets", json!([{"name": NAMED}])),
        ("nodeSelector", json!({"accelerator": "h100", "example.com/zone": ""})),
        (
            "tolerations",
            json!([{"operator": "Exists"}, {"key": "gpu", "operator": "Equal", "value": "yes", "effect": "NoExecute", "tolerationSeconds": 60}]),
        ),
        (
            "affinity",
            json!({
                "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                    {"matchExpressions": [{"key": "cpu", "operator": "Gt", "values": ["3"]}]}
                ]}},
                "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
                    {"weight": 7, "podAffinityTerm": {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"a": "b"}}}}
                ]},
            }),
        ),
        (
            "topologySpreadConstraints",
            json!([{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"a": "b"}}}]),
        ),
        ("securityContext", json!({"privileged": true, "runAsUser": 0})),
        (
            "podSecurityContext",
            json!({"fsGroup": 1000, "runAsNonRoot": false, "sysctls": [{"name": "net.ipv4.tcp_syncookies", "value": "1"}]}),
        ),
        ("runtimeClassName", json!(NAMED)),
        ("priorityClassName", json!(NAMED)),
        ("serviceAccountName", json!(NAMED)),
        ("terminationGracePeriodSeconds", json!(0)),
    ]
}
