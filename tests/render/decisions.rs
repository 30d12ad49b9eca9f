//! The decision table of the resource contract, row by row.

use k8s_openapi::api::core::v1::Pod;
use model_deployment::pod::{Endpoint, NoEndpoint, Producer, Scheme, TracksLoad};
use model_deployment::render::Plan;
use model_deployment_crds::model_deployment::{KvCacheConnector, TransferConnector};
use serde_json::{Value, json};

use super::manifest::{
    annotation, command, main_container, member, plan, pod, ports, router_arguments, service_ports, value, variable,
};

const POOL: &str = "kvCache: {pool: {masterAddress: 'm:1'}}\n";
const OFFLOADING: &str = "kvCache: {connector: Offloading, hostMemory: 64G}\n";
const PAIR: &str = "roles: [{name: p, kind: Prefill}, {name: d, kind: Decode}]";
const LLM_D: &str = "router: {name: llm-d-router}\n";

/// What `--kv-transfer-config` says in the first Pod of a role.
fn connector(plan: &Plan, role: &str) -> Option<Value> {
    let command = command(plan, role);
    value(&command, "--kv-transfer-config").map(|text| serde_json::from_str(text).expect("the option is JSON"))
}

#[test]
fn a_vllm_server_is_served_under_its_name_on_every_address() {
    assert_eq!(
        command(&plan("vLLM", "roles: [{name: a}]"), "a"),
        ["vllm", "serve", "m", "--host", "0.0.0.0", "--port", "8000"]
    );
}

#[test]
fn a_path_is_loaded_and_the_name_served() {
    let with_path = |engine: &str| {
        let mut deployment = super::manifest::deployment(engine, "roles: [{name: a}]");
        deployment.spec.model.path = Some("/w".into());
        command(
            &model_deployment::render::render(&deployment, &Default::default()).unwrap(),
            "a",
        )
    };
    assert_eq!(
        with_path("vLLM")[..5],
        ["vllm", "serve", "/w", "--served-model-name", "m"]
    );
    assert_eq!(
        with_path("SGLang")[..7],
        [
            "python3",
            "-m",
            "sglang.launch_server",
            "--model-path",
            "/w",
            "--served-model-name",
            "m"
        ]
    );
}

#[test]
fn sglang_transfer_backends_and_the_bootstrap_annotation() {
    for (transfer, backend) in [
        ("{}", "mooncake_tcp"),
        ("{protocol: RDMA}", "mooncake"),
        ("{connector: Nixl}", "nixl"),
        ("{connector: Nixl, protocol: RDMA}", "nixl"),
    ] {
        let plan = plan("SGLang", &format!("kvTransfer: {transfer}\n{PAIR}"));
        for (role, mode) in [("p", "prefill"), ("d", "decode")] {
            let command = command(&plan, role);
            assert_eq!(value(&command, "--disaggregation-transfer-backend"), Some(backend));
            assert_eq!(value(&command, "--disaggregation-mode"), Some(mode));
        }
        let (prefill, decode) = (pod(&plan, "p"), pod(&plan, "d"));
        assert_eq!(annotation(&prefill, "sglang.ai/bootstrap-port"), Some("8998"));
        assert_eq!(annotation(&decode, "sglang.ai/bootstrap-port"), None);
        assert_eq!(
            value(&command(&plan, "p"), "--disaggregation-bootstrap-port"),
            Some("8998")
        );
        assert_eq!(value(&command(&plan, "d"), "--disaggregation-bootstrap-port"), None);
        assert_eq!(ports(main_container(&prefill)), ["http:8000", "bootstrap:8998"]);
        assert_eq!(
            value(&command(&plan, "d"), "--disaggregation-decode-retraction-backup"),
            Some("cpu_tensor")
        );
    }
}

#[test]
fn a_default_that_the_user_gives_is_the_user_s() {
    let roles =
        "roles: [{name: p, kind: Prefill}, {name: d, kind: Decode, extraArgs: [--disaggregation-decode-retr=none]}]";
    let command = command(&plan("SGLang", roles), "d");
    assert_eq!(value(&command, "--disaggregation-decode-retraction-backup"), None);
    assert_eq!(
        command.last().map(String::as_str),
        Some("--disaggregation-decode-retr=none")
    );
}

#[test]
fn a_vllm_mooncake_pair_tells_where_it_bootstraps() {
    let plan = plan("vLLM", PAIR);
    let (prefill, decode) = (pod(&plan, "p"), pod(&plan, "d"));
    assert_eq!(
        connector(&plan, "p"),
        Some(
            json!({"kv_connector": "MooncakeConnector", "kv_role": "kv_producer", "kv_connector_extra_config": {"mooncake_protocol": "tcp"}})
        )
    );
    assert_eq!(
        connector(&plan, "d"),
        Some(
            json!({"kv_connector": "MooncakeConnector", "kv_role": "kv_consumer", "kv_connector_extra_config": {"mooncake_protocol": "tcp"}})
        )
    );
    assert_eq!(annotation(&prefill, "vllm.ai/bootstrap-port"), Some("8998"));
    assert_eq!(annotation(&decode, "vllm.ai/bootstrap-port"), None);
    assert_eq!(ports(main_container(&prefill)), ["http:8000", "mc-bootstrap:8998"]);
    assert_eq!(ports(main_container(&decode)), ["http:8000"]);
    assert_eq!(
        variable(main_container(&prefill), "VLLM_MOONCAKE_BOOTSTRAP_PORT").as_deref(),
        Some("8998")
    );
    assert_eq!(variable(main_container(&decode), "VLLM_MOONCAKE_BOOTSTRAP_PORT"), None);
    for pod in [&prefill, &decode] {
        assert_eq!(variable(main_container(pod), "MC_TE_METRIC").as_deref(), Some("1"));
        assert_eq!(variable(main_container(pod), "MC_FORCE_TCP").as_deref(), Some("1"));
    }
}

#[test]
fn rdma_locks_memory_and_forces_no_tcp() {
    let plan = plan("vLLM", &format!("kvTransfer: {{protocol: RDMA}}\n{PAIR}"));
    let pod = pod(&plan, "p");
    let container = main_container(&pod);
    assert_eq!(variable(container, "MC_FORCE_TCP"), None);
    let capabilities = container
        .security_context
        .as_ref()
        .and_then(|context| context.capabilities.as_ref())
        .unwrap();
    assert_eq!(capabilities.add.as_deref(), Some(&["IPC_LOCK".to_owned()][..]));
    assert_eq!(capabilities.drop.as_deref(), Some(&["ALL".to_owned()][..]));
}

#[test]
fn a_vllm_nixl_pair_is_reachable_at_its_pods_address() {
    let plan = plan("vLLM", &format!("router: {{name: vllm-router}}\n{PAIR}"));
    for (role, part) in [("p", "kv_producer"), ("d", "kv_consumer")] {
        assert_eq!(
            connector(&plan, role),
            Some(json!({"kv_connector": "NixlConnector", "kv_role": part}))
        );
        let pod = pod(&plan, role);
        let container = main_container(&pod);
        assert_eq!(
            variable(container, "VLLM_NIXL_SIDE_CHANNEL_HOST").as_deref(),
            Some("(status.podIP)")
        );
        assert_eq!(ports(container), ["http:8000", "nixl:5600"]);
        assert_eq!(annotation(&pod, "vllm.ai/bootstrap-port"), None);
        assert_eq!(plan.roles[0].facts(0).transfer_connector, Some(TransferConnector::Nixl));
    }
    assert!(router_arguments(&plan, "router").contains(&"--kv-connector=nixl".to_owned()));
}

#[test]
fn cache_events_are_switched_on_where_they_are_published() {
    let plan = plan("vLLM", &format!("{LLM_D}{PAIR}"));
    let command_of = |role| command(&plan, role);
    let events: Value = serde_json::from_str(value(&command_of("p"), "--kv-events-config").unwrap()).unwrap();
    assert_eq!(events["enable_kv_cache_events"], true);
    assert_eq!(events["publisher"], "zmq");
    assert_eq!(events["endpoint"], "tcp://*:5557");
    assert_eq!(events["replay_endpoint"], "tcp://*:5558");
    assert!(events["topic"].as_str().unwrap().starts_with("kv@"));
    let prefill = pod(&plan, "p");
    assert_eq!(
        ports(main_container(&prefill)),
        ["http:8000", "kv-events:5557", "kv-replay:5558", "mc-bootstrap:8998"]
    );
    assert_eq!(value(&command_of("d"), "--kv-events-config"), None);
}

#[test]
fn under_a_router_a_prefill_half_combines_transfer_and_store_and_a_decode_half_transfers_alone() {
    let plan = plan("vLLM", &format!("{POOL}{LLM_D}{PAIR}"));
    let prefill = connector(&plan, "p").unwrap();
    assert_eq!(prefill["kv_connector"], "MultiConnector");
    assert_eq!(prefill["kv_role"], "kv_producer");
    let connectors = prefill["kv_connector_extra_config"]["connectors"].as_array().unwrap();
    let parts: Vec<_> = connectors
        .iter()
        .map(|part| (&part["kv_connector"], &part["kv_role"]))
        .collect();
    assert_eq!(
        parts,
        [
            (&json!("MooncakeConnector"), &json!("kv_producer")),
            (&json!("MooncakeStoreConnector"), &json!("kv_both"))
        ]
    );
    assert_eq!(connector(&plan, "d").unwrap()["kv_connector"], "MooncakeConnector");
    assert!(plan.roles[0].facts(0).pool);
    assert!(!plan.roles[1].facts(0).pool);
}

#[test]
fn without_a_router_a_vllm_pair_with_a_pool_meets_in_the_store_alone() {
    let plan = plan("vLLM", &format!("{POOL}{PAIR}"));
    for (index, (role, part)) in [("p", "kv_producer"), ("d", "kv_consumer")].into_iter().enumerate() {
        assert_eq!(
            connector(&plan, role),
            Some(json!({"kv_connector": "MooncakeStoreConnector", "kv_role": part}))
        );
        let facts = plan.roles[index].facts(0);
        assert_eq!(
            (facts.pool, facts.connector, facts.transfer_connector),
            (true, Some(KvCacheConnector::Mooncake), None)
        );
    }
}

#[test]
fn a_pool_client_reads_its_file_from_the_pods_own_annotation() {
    let plan = plan(
        "vLLM",
        "kvCache: {pool: {masterAddress: 'm:1', protocol: RDMA, tenant: t}}\nroles: [{name: a}]",
    );
    assert_eq!(
        connector(&plan, "a"),
        Some(json!({"kv_connector": "MooncakeStoreConnector", "kv_role": "kv_both"}))
    );
    let pod = pod(&plan, "a");
    let client: Value = serde_json::from_str(annotation(&pod, "kvcache.gpustack.ai/client-config").unwrap()).unwrap();
    assert_eq!(
        client,
        json!({
            "metadata_server": "P2PHANDSHAKE", "master_server_address": "m:1", "protocol": "rdma", "device_name": "",
            "mode": "standalone-store", "global_segment_size": 0, "local_buffer_size": 134_217_728, "tenant_id": "t",
        })
    );
    assert_eq!(
        variable(main_container(&pod), "MOONCAKE_CONFIG_PATH").as_deref(),
        Some("/etc/gpustack/kvcache/mooncake.json")
    );
    let mounts = main_container(&pod).volume_mounts.as_ref().unwrap();
    assert!(mounts.iter().any(|mount| mount.mount_path == "/etc/gpustack/kvcache"));
}

#[test]
fn sglang_reaches_the_pool_by_its_environment() {
    let plan = plan("SGLang", &format!("{POOL}{PAIR}"));
    for role in ["p", "d"] {
        let pod = pod(&plan, role);
        let container = main_container(&pod);
        let values = [
            ("MOONCAKE_MASTER", "m:1"),
            ("MOONCAKE_TE_META_DATA_SERVER", "P2PHANDSHAKE"),
            ("MOONCAKE_PROTOCOL", "tcp"),
            ("MOONCAKE_DEVICE", ""),
            ("MOONCAKE_GLOBAL_SEGMENT_SIZE", "0"),
            ("MOONCAKE_LOCAL_HOSTNAME", "(status.podIP)"),
            ("MOONCAKE_TENANT_ID", "default"),
        ];
        for (name, expected) in values {
            assert_eq!(variable(container, name).as_deref(), Some(expected), "{name}");
        }
        assert_eq!(
            value(&command(&plan, role), "--hicache-storage-backend"),
            Some("mooncake")
        );
    }
    let has = |role, word: &str| command(&plan, role).iter().any(|argument| argument == word);
    assert!(has("p", "--enable-hierarchical-cache"));
    assert!(!has("d", "--enable-hierarchical-cache"));
    let tiers = |index: usize| {
        (
            plan.roles[index].facts(0).host_tier,
            plan.roles[index].facts(0).storage_tier,
        )
    };
    assert_eq!((tiers(0), tiers(1)), ((true, true), (false, true)));
}

#[test]
fn our_hierarchical_cache_gives_way_to_the_user_s_own_host_tier() {
    for own in [
        "--enable-hierarchical-cache",
        "--enable-hicache",
        "--enable-flexkv",
        "--radix-cache-backend=flexkv",
    ] {
        let plan = plan("SGLang", &format!("{POOL}roles: [{{name: a, extraArgs: [{own}]}}]"));
        let words = command(&plan, "a")
            .into_iter()
            .filter(|word| word == "--enable-hierarchical-cache")
            .count();
        assert_eq!(words, usize::from(own == "--enable-hierarchical-cache"), "{own}");
        assert!(plan.roles[0].facts(0).host_tier, "{own}");
    }
}

#[test]
fn offloading_is_a_host_tier_and_no_pool() {
    let vllm = plan("vLLM", &format!("{OFFLOADING}roles: [{{name: a}}]"));
    assert_eq!(
        connector(&vllm, "a"),
        Some(
            json!({"kv_connector": "OffloadingConnector", "kv_role": "kv_both", "kv_connector_extra_config": {"cpu_bytes_to_use": 64_000_000_000_u64}})
        )
    );
    let facts = vllm.roles[0].facts(0);
    assert_eq!(
        (facts.pool, facts.connector, facts.host_tier, facts.native_offload),
        (false, Some(KvCacheConnector::Offloading), true, true)
    );

    let sglang = plan(
        "SGLang",
        &format!("{OFFLOADING}roles: [{{name: a, extraArgs: [--tp, '8']}}]"),
    );
    let command = command(&sglang, "a");
    assert_eq!(value(&command, "--hicache-size"), Some("8"));
    assert!(command.contains(&"--enable-hierarchical-cache".to_owned()));
    let facts = sglang.roles[0].facts(0);
    assert_eq!(
        (facts.pool, facts.host_tier, facts.storage_tier, facts.native_offload),
        (false, true, false, false)
    );
}

#[test]
fn in_a_pair_only_the_prefill_half_gets_the_host_tier() {
    for router in ["", LLM_D] {
        let vllm = plan("vLLM", &format!("{OFFLOADING}{router}{PAIR}"));
        let connectors = connector(&vllm, "p").unwrap()["kv_connector_extra_config"]["connectors"].clone();
        assert_eq!(connectors[0]["kv_connector"], "MooncakeConnector");
        assert_eq!(connectors[1]["kv_connector"], "OffloadingConnector");
        assert_eq!(connector(&vllm, "d").unwrap()["kv_connector"], "MooncakeConnector");
        let sglang = plan("SGLang", &format!("{OFFLOADING}{router}{PAIR}"));
        assert_eq!(value(&command(&sglang, "p"), "--hicache-size"), Some("64"));
        assert_eq!(value(&command(&sglang, "d"), "--hicache-size"), None);
        for plan in [vllm, sglang] {
            assert!(plan.roles[0].facts(0).host_tier);
            assert!(!plan.roles[1].facts(0).host_tier);
            assert_eq!(plan.roles[1].facts(0).connector, None);
        }
    }
}

#[test]
fn a_router_s_lists_are_followed_by_a_scalar_flag_of_ours() {
    let ordinary = plan(
        "vLLM",
        "router: {name: vllm-router, requestTimeoutSeconds: 30, extraArgs: [--log-level, debug]}\nroles: [{name: a}]",
    );
    assert_eq!(
        router_arguments(&ordinary, "router"),
        [
            "--host=0.0.0.0",
            "--port=8081",
            "--prometheus-host=0.0.0.0",
            "--prometheus-port=9090",
            "--request-timeout-secs=30",
            "--service-discovery",
            "--service-discovery-namespace=serving",
            "--selector",
            "app.kubernetes.io/instance=chat",
            "modeldeployment.gpustack.ai/member=0",
            "modeldeployment.gpustack.ai/role-kind=server",
            "--service-discovery-port=8000",
            "--log-level",
            "debug",
        ]
    );
    let pair = plan(
        "SGLang",
        &format!("router: {{name: sglang-gateway, policy: manual, prefillPolicy: bucket}}\n{PAIR}"),
    );
    assert_eq!(
        router_arguments(&pair, "router")[4..],
        [
            "--policy=manual",
            "--prefill-policy=bucket",
            "--service-discovery",
            "--service-discovery-namespace=serving",
            "--pd-disaggregation",
            "--prefill-selector",
            "app.kubernetes.io/instance=chat",
            "modeldeployment.gpustack.ai/member=0",
            "modeldeployment.gpustack.ai/role-kind=prefill",
            "--decode-selector",
            "app.kubernetes.io/instance=chat",
            "modeldeployment.gpustack.ai/member=0",
            "modeldeployment.gpustack.ai/role-kind=decode",
            "--service-discovery-port=8000",
        ]
    );
}

/// Port and scheme of each probe of a container: startup, readiness, liveness.
fn probes(container: &k8s_openapi::api::core::v1::Container) -> Vec<String> {
    use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
    [
        &container.startup_probe,
        &container.readiness_probe,
        &container.liveness_probe,
    ]
    .into_iter()
    .flatten()
    .map(|probe| match (&probe.http_get, &probe.tcp_socket) {
        (Some(get), _) => match &get.port {
            IntOrString::Int(port) => format!(
                "{} {port}{}",
                get.scheme.as_deref().unwrap(),
                get.path.as_deref().unwrap()
            ),
            IntOrString::String(_) => panic!("probes name a number"),
        },
        (None, Some(_)) => "tcp".into(),
        (None, None) => panic!("a probe asks something"),
    })
    .collect()
}

#[test]
fn probes_follow_the_listener_and_are_withheld_where_they_could_not_pass() {
    let of = |arguments: &str| {
        let plan = plan("vLLM", &format!("roles: [{{name: a, {arguments}}}]"));
        probes(main_container(&pod(&plan, "a")))
    };
    assert_eq!(of(""), ["HTTP 8000/health"; 3]);
    assert_eq!(of("port: 9000"), ["HTTP 9000/health"; 3]);
    assert_eq!(of("extraArgs: [--port=9001]"), ["HTTP 9001/health"; 3]);
    assert_eq!(of("extraArgs: [--ssl-certfile=c]"), ["HTTPS 8000/health"; 3]);
    assert_eq!(
        of("extraArgs: [--ssl-certfile=c, --ssl-cert-reqs, '1']"),
        ["HTTPS 8000/health"; 3]
    );
    for required in ["2", "02"] {
        let arguments = format!("extraArgs: [--ssl-certfile=c, --ssl-cert-reqs, '{required}']");
        assert_eq!(of(&arguments), [""; 0], "{required}");
    }
    // Without a certificate there is no TLS to show one in.
    assert_eq!(of("extraArgs: [--ssl-cert-reqs, '2']"), ["HTTP 8000/health"; 3]);
    assert_eq!(of("command: [x]"), [""; 0]);
    let several = plan("vLLM", "roles: [{name: a, size: 2}]");
    assert_eq!(probes(main_container(&member(&several, "a", 0))).len(), 3);
    assert_eq!(probes(main_container(&member(&several, "a", 1))).len(), 0);
}

#[test]
fn a_direct_decode_pod_is_asked_and_scraped_at_the_engine_and_served_at_the_proxy() {
    let roles =
        "roles: [{name: p, kind: Prefill}, {name: d, kind: Decode, extraArgs: [--ssl-keyfile, k, --ssl-certfile, c]}]";
    let plan = plan("vLLM", &format!("{LLM_D}{roles}"));
    let pod = pod(&plan, "d");
    assert_eq!(probes(main_container(&pod)), ["HTTPS 8200/health"; 3]);
    assert_eq!(ports(main_container(&pod)), ["model-server:8200"]);
    let proxy = &pod.spec.as_ref().unwrap().init_containers.as_ref().unwrap()[0];
    assert_eq!(probes(proxy), ["tcp"; 2]);
    assert_eq!(ports(proxy), ["http:8000"]);
    assert_eq!(
        proxy.args.as_deref().unwrap(),
        [
            "--port=8000",
            "--model-server-port=8200",
            "--kv-connector=mooncake",
            "--mooncake-bootstrap-port=8998",
            "--secure-proxy=false",
            "--enable-tls=decoder",
            "--tls-insecure-skip-verify=decoder",
        ]
    );
    assert_eq!(scrape(&pod).as_deref(), Some("https 8200/metrics"));
    assert_eq!(service_ports(&plan, "chat-d"), (8000, 8000));
}

#[test]
fn the_proxy_speaks_the_pairs_connector_and_gives_way_on_ports() {
    let arguments = |engine: &str, head: &str, decode: &str| {
        let plan = plan(
            engine,
            &format!(
                "{head}{LLM_D}roles: [{{name: p, kind: Prefill, port: 8200}}, {{name: d, kind: Decode, port: 8200, {decode}}}]"
            ),
        );
        pod(&plan, "d").spec.unwrap().init_containers.unwrap()[0]
            .args
            .clone()
            .unwrap()[1..3]
            .to_vec()
    };
    assert_eq!(
        arguments("vLLM", "kvTransfer: {connector: Nixl}\n", ""),
        ["--model-server-port=8201", "--kv-connector=nixlv2"]
    );
    assert_eq!(
        arguments("SGLang", "", "extraArgs: [--port=9000]"),
        ["--model-server-port=9000", "--kv-connector=sglang"]
    );
}

#[test]
fn direct_decode_is_for_managed_decode_roles_under_llm_d_alone() {
    for (head, decode) in [
        (LLM_D, "directDecode: false"),
        (LLM_D, "command: [x]"),
        ("", ""),
        ("router: {name: vllm-router}\n", ""),
    ] {
        let plan = plan(
            "vLLM",
            &format!("{head}roles: [{{name: p, kind: Prefill}}, {{name: d, kind: Decode, {decode}}}]"),
        );
        assert!(
            pod(&plan, "d").spec.unwrap().init_containers.is_none(),
            "{head}{decode}"
        );
    }
}

/// What the scrape annotations of a Pod say.
fn scrape(pod: &Pod) -> Option<String> {
    let get = |name: &str| annotation(pod, &format!("prometheus.io/{name}"));
    match get("scrape") {
        Some("true") => Some(format!("{} {}{}", get("scheme")?, get("port")?, get("path")?)),
        None => {
            assert_eq!((get("scheme"), get("port"), get("path")), (None, None, None));
            None
        }
        Some(other) => panic!("{other}"),
    }
}

#[test]
fn the_annotations_name_the_actual_listener() {
    let of = |arguments: &str| scrape(&pod(&plan("vLLM", &format!("roles: [{{name: a, {arguments}}}]")), "a"));
    assert_eq!(of("").as_deref(), Some("http 8000/metrics"));
    assert_eq!(
        of("extraArgs: [--port, '9000', --port=9001]").as_deref(),
        Some("http 9001/metrics")
    );
    assert_eq!(
        of("extraArgs: [--ssl_certfile=c]").as_deref(),
        Some("https 8000/metrics")
    );
    // Two options of vLLM begin so: it starts with neither.
    assert_eq!(of("extraArgs: [--ssl-cert=c]").as_deref(), Some("http 8000/metrics"));
    assert_eq!(of("extraArgs: [--ssl-key=k]").as_deref(), Some("https 8000/metrics"));
    assert_eq!(
        of("extraArgs: [--ssl-ca-certs=c]").as_deref(),
        Some("http 8000/metrics")
    );
    assert_eq!(of("command: [x]"), None);
    assert_eq!(
        scrape(&member(&plan("vLLM", "roles: [{name: a, size: 2}]"), "a", 1)),
        None
    );
}

#[test]
fn take_over_comes_before_follower() {
    let plan = plan("vLLM", "roles: [{name: a, size: 2, command: [x]}, {name: b, size: 2}]");
    let why = |role: usize, member| plan.roles[role].facts(member).endpoint.clone();
    assert_eq!(
        why(0, 0),
        Endpoint::None {
            none: NoEndpoint::TakeOver
        }
    );
    assert_eq!(
        why(0, 1),
        Endpoint::None {
            none: NoEndpoint::TakeOver
        }
    );
    assert_eq!(
        why(1, 1),
        Endpoint::None {
            none: NoEndpoint::Follower
        }
    );
}

#[test]
fn the_deployments_service_is_that_of_the_first_role_that_answers() {
    let selects = |plan: &Plan| {
        let front = &plan.services[0];
        assert_eq!(front.metadata.name.as_deref(), Some("chat"));
        front.spec.as_ref().unwrap().selector.as_ref().unwrap()["app.kubernetes.io/component"].clone()
    };
    assert_eq!(selects(&plan("vLLM", PAIR)), "d");
    assert_eq!(
        selects(&plan("vLLM", "roles: [{name: a, command: [x]}, {name: b}]")),
        "a"
    );
}

#[test]
fn a_user_s_port_moves_only_the_target() {
    let plan = plan("vLLM", "roles: [{name: a, port: 80, extraArgs: [--port=9000]}]");
    assert_eq!(service_ports(&plan, "chat"), (80, 9000));
    assert_eq!(service_ports(&plan, "chat-a"), (80, 9000));
}

#[test]
fn the_endpoint_is_the_router_s_where_there_is_one() {
    let endpoint = |spec: &str| plan("vLLM", spec).endpoint;
    assert_eq!(endpoint("roles: [{name: a}]"), "http://chat.serving.svc:8000");
    assert_eq!(
        endpoint("roles: [{name: a, port: 443, extraArgs: [--ssl-certfile=c]}]"),
        "https://chat.serving.svc:443"
    );
    assert_eq!(
        endpoint("router: {name: vllm-router}\nroles: [{name: a}]"),
        "http://chat-router.serving.svc:8081"
    );
}

#[test]
fn ranks_are_those_of_the_arguments() {
    let ranks = |engine: &str, arguments: &str| {
        plan(engine, &format!("roles: [{{name: a, extraArgs: [{arguments}]}}]")).roles[0]
            .facts(0)
            .ranks
    };
    assert_eq!(ranks("vLLM", ""), Some(1));
    assert_eq!(ranks("vLLM", "-tp, '2', -pp=3, -dp, '4'"), Some(24));
    assert_eq!(
        ranks(
            "vLLM",
            "--tensor_parallel_size=2, --pipeline-p, '2', --data-parallel-size, '2'"
        ),
        Some(8)
    );
    assert_eq!(ranks("SGLang", "--tp, '4', --pp-size, '2', --dp, '2'"), Some(16));
    assert_eq!(
        ranks("SGLang", "--tensor-parallel-size=4, --dp-size=4, --enable-dp-attention"),
        Some(4)
    );
    assert_eq!(ranks("vLLM", "--tensor-parallel-size=2, -tp, '8'"), Some(8));
}

#[test]
fn other_arguments_that_become_facts() {
    let facts = |engine: &str, arguments: &str| {
        plan(engine, &format!("roles: [{{name: a, extraArgs: [{arguments}]}}]")).roles[0]
            .facts(0)
            .clone()
    };
    assert!(facts("vLLM", "").stats_enabled);
    assert!(!facts("vLLM", "--disable-log-stats").stats_enabled);
    assert!(!facts("vLLM", "--disable_log_st").stats_enabled);
    let offload = facts("vLLM", "--kv_offloading_size=8");
    assert_eq!(
        (offload.host_tier, offload.native_offload, offload.connector),
        (true, true, None)
    );
    for own in [
        "--enable-hicache",
        "--enable-lmcache",
        "--enable-flexkv",
        "--radix-cache-backend, flexkv",
    ] {
        let facts = facts("SGLang", own);
        assert_eq!((facts.host_tier, facts.native_offload), (true, false), "{own}");
    }
    assert!(!facts("SGLang", "--radix-cache-backend, other").host_tier);
}

#[test]
fn tracks_load_is_the_policy_s() {
    use TracksLoad::{No, Unknown, Yes};
    const ROLES: &str = "roles: [{name: a}]";
    let table = [
        ("vLLM", "vllm-router", "", ROLES, Yes),
        ("vLLM", "vllm-router", ", policy: cache_aware", ROLES, Yes),
        ("vLLM", "vllm-router", ", policy: power_of_two", ROLES, Yes),
        ("vLLM", "vllm-router", ", policy: random", ROLES, No),
        ("vLLM", "vllm-router", ", policy: round_robin", ROLES, No),
        ("vLLM", "vllm-router", ", policy: consistent_hash", ROLES, No),
        ("vLLM", "vllm-router", ", policy: kv_aware", ROLES, Unknown),
        ("vLLM", "vllm-router", ", policy: sticky_least_loaded", ROLES, Unknown),
        ("vLLM", "vllm-router", ", image: own", ROLES, Unknown),
        ("vLLM", "vllm-router", ", image: own, policy: random", ROLES, No),
        ("vLLM", "vllm-router", "", PAIR, No),
        ("vLLM", "vllm-router", ", policy: cache_aware", PAIR, No),
        ("SGLang", "sglang-gateway", "", ROLES, Yes),
        ("SGLang", "sglang-gateway", ", policy: random", ROLES, No),
        ("SGLang", "sglang-gateway", ", policy: round_robin", ROLES, No),
        ("SGLang", "sglang-gateway", ", policy: power_of_two", ROLES, No),
        ("SGLang", "sglang-gateway", ", policy: manual", ROLES, Unknown),
        ("SGLang", "sglang-gateway", ", image: own", ROLES, Unknown),
        ("SGLang", "sglang-gateway", ", policy: random", PAIR, Yes),
        ("SGLang", "llm-d-router", "", ROLES, Unknown),
    ];
    for (engine, router, more, roles, expected) in table {
        let plan = plan(engine, &format!("router: {{name: {router}{more}}}\n{roles}"));
        assert_eq!(
            plan.router.unwrap().facts.tracks_load,
            Some(expected),
            "{router}{more} {roles}"
        );
    }
}

#[test]
fn a_coordinator_serves_metrics_over_https_iff_it_has_a_secret() {
    for (given, arguments, scheme) in [
        (
            "{extraArgs: [--v=4]}",
            vec!["--secure-serving=false", "--v=4"],
            Scheme::Http,
        ),
        (
            "{metricsCertSecret: s}",
            vec!["--secure-serving=false", "--metrics-cert-dir=/etc/coordinator/metrics"],
            Scheme::Https,
        ),
    ] {
        let plan = plan(
            "vLLM",
            &format!("router: {{name: llm-d-router, coordinator: {given}}}\n{PAIR}"),
        );
        let coordinator = plan.coordinator.unwrap();
        let facts = &coordinator.facts;
        assert_eq!(
            (facts.producer, facts.role.as_str(), facts.tracks_load),
            (Producer::Coordinator, "coordinator", None)
        );
        let Endpoint::Listener(listener) = &facts.endpoint else {
            panic!("a coordinator is read")
        };
        assert_eq!((listener.scheme, listener.port), (scheme, 9090));
        assert_eq!(
            coordinator.deployment.metadata.name.as_deref(),
            Some("chat-coordinator")
        );
        let container = &coordinator.deployment.spec.unwrap().template.spec.unwrap().containers[0];
        assert_eq!(
            (container.name.as_str(), container.args.clone().unwrap()),
            ("coordinator", arguments.iter().map(|a| (*a).to_owned()).collect())
        );
    }
}

#[test]
fn a_replica_of_several_pods_finds_itself_by_name() {
    let plan = plan("vLLM", "roles: [{name: a, size: 2, replicas: 2}]");
    let service = plan.roles[0].replica_service(1).unwrap();
    assert_eq!(service.metadata.name.as_deref(), Some("chat-a-1"));
    let spec = service.spec.unwrap();
    assert_eq!(
        (spec.cluster_ip.as_deref(), spec.publish_not_ready_addresses),
        (Some("None"), Some(true))
    );
    let position = model_deployment::pod::labels::Position { ordinal: 1, member: 1 };
    let pod = plan.roles[0].pod(position);
    let labels = pod.metadata.labels.clone().unwrap();
    assert!(
        spec.selector
            .unwrap()
            .iter()
            .all(|(name, value)| labels.get(name) == Some(value))
    );
    assert_eq!(pod.metadata.name.as_deref(), Some("chat-a-1-1"));
    let container = main_container(&pod);
    assert_eq!(
        variable(container, "MODELDEPLOYMENT_LEADER_ADDRESS").as_deref(),
        Some("chat-a-1-0.chat-a-1.serving.svc")
    );
    assert_eq!(variable(container, "MODELDEPLOYMENT_SIZE").as_deref(), Some("2"));
    assert_eq!(
        variable(container, "MODELDEPLOYMENT_MEMBER_INDEX").as_deref(),
        Some("1")
    );
    let spec = pod.spec.clone().unwrap();
    assert_eq!(
        (spec.hostname.as_deref(), spec.subdomain.as_deref()),
        (Some("chat-a-1-1"), Some("chat-a-1"))
    );
    assert!(container.command.as_ref().unwrap().contains(&"--headless".to_owned()));
}

#[test]
fn a_user_s_security_settings_win_member_by_member() {
    let roles = "roles: [{name: a, podSecurityContext: {fsGroup: 5}, securityContext: {runAsUser: 7, capabilities: {add: [SYS_PTRACE]}}}, {name: b, securityContext: {privileged: true}}]";
    let plan = plan("vLLM", roles);
    let json = |role| serde_json::to_value(pod(&plan, role).spec.unwrap()).unwrap();
    assert_eq!(
        json("a")["securityContext"],
        json!({"fsGroup": 5, "seccompProfile": {"type": "RuntimeDefault"}})
    );
    assert_eq!(
        json("a")["containers"][0]["securityContext"],
        json!({"runAsUser": 7, "allowPrivilegeEscalation": false, "capabilities": {"add": ["SYS_PTRACE"]}})
    );
    assert_eq!(
        json("b")["containers"][0]["securityContext"],
        json!({"privileged": true, "capabilities": {"drop": ["ALL"]}})
    );
}
