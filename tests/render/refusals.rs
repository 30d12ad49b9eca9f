//! Every refusal of what neither schema nor CEL holds: the whole sentence.

use super::manifest::try_plan;

const SERVER: &str = "roles: [{name: a, ";
const PAIR: &str = "roles: [{name: p, kind: Prefill}, {name: d, kind: Decode, ";

fn sentence(engine: &str, spec: &str) -> String {
    match try_plan(engine, spec) {
        Ok(_) => panic!("rendered:\n{spec}"),
        Err(refusal) => refusal.to_string(),
    }
}

/// A table of engine, spec and sentence.
fn each(table: &[(&str, String, &str)]) {
    for (engine, spec, expected) in table {
        assert_eq!(sentence(engine, spec), *expected, "{spec}");
    }
}

#[test]
fn a_sentence_names_field_value_and_way_out() {
    let out = "leave it out, or take the role over with command";
    each(&[
        (
            "vLLM",
            format!("{SERVER} extraArgs: [--kv_transfer_config.kv_role, kv_both]}}]"),
            &format!(
                "spec.roles[a].extraArgs: --kv_transfer_config.kv_role is refused: --kv-transfer-config is set by the operator; {out}"
            ),
        ),
        (
            "vLLM",
            format!("{SERVER} extraArgs: [--hos=::1]}}]"),
            &format!("spec.roles[a].extraArgs: --hos is refused: --host is set by the operator; {out}"),
        ),
        (
            "vLLM",
            format!("{SERVER} extraArgs: [--config, a.yaml]}}]"),
            &format!("spec.roles[a].extraArgs: --config is refused: it may hold any other option; {out}"),
        ),
        (
            "vLLM",
            format!("{SERVER} extraArgs: [--uds, /s]}}]"),
            &format!("spec.roles[a].extraArgs: --uds is refused: it moves or removes the metrics listener; {out}"),
        ),
        (
            "vLLM",
            format!("{SERVER} extraArgs: [--port, http]}}]"),
            "spec.roles[a].extraArgs: --port \"http\" is not a port from 1 to 65535; correct it, or take the role over with command",
        ),
        (
            "vLLM",
            format!("{SERVER} extraArgs: [-tp]}}]"),
            "spec.roles[a].extraArgs: -tp \"\" is not a whole number of ranks from 1 to 65535; correct it, or take the role over with command",
        ),
        (
            "vLLM",
            format!("{SERVER} env: [{{name: MOONCAKE_CONFIG_PATH, value: x}}]}}]"),
            &format!("spec.roles[a].env: MOONCAKE_CONFIG_PATH is set by the operator; {out}"),
        ),
        (
            "vLLM",
            format!("{SERVER} command: [x], env: [{{name: MODELDEPLOYMENT_SIZE, value: '2'}}]}}]"),
            "spec.roles[a].env: MODELDEPLOYMENT_SIZE is set by the operator; leave it out",
        ),
        (
            "SGLang",
            format!("{SERVER} extraArgs: [--ssl-keyfile, k]}}]"),
            "spec.roles[a].extraArgs: --ssl-keyfile is given without --ssl-certfile, and SGLang serves TLS only with both; give both, or take the role over with command",
        ),
        (
            "vLLM",
            format!("router: {{name: vllm-router}}\n{SERVER} extraArgs: [--ssl-certfile=c]}}]"),
            "spec.roles[a].extraArgs: a certificate or key file makes the engine serve TLS, and vllm-router speaks plain HTTP to its workers; remove the file options, or remove spec.router",
        ),
        (
            "vLLM",
            "router: {name: vllm-router}\nroles: [{name: a}, {name: b, extraArgs: [--port=9000]}]".into(),
            "spec.roles: vllm-router finds its workers at one port, but role a listens on 8000 and role b on 9000; give them the same port",
        ),
        (
            "vLLM",
            "roles: [{name: a, size: 2}, {name: a-0}]".into(),
            "spec.roles: the Pod name chat-a-0-0 is that of roles a and a-0 both; a role's name is immutable, so create the ModelDeployment with another one",
        ),
        (
            "vLLM",
            "roles: [{name: a, size: 2, replicas: 3}, {name: a-2, size: 2}]".into(),
            "spec.roles: the Service name chat-a-2 is that of roles a and a-2 both; a role's name is immutable, so create the ModelDeployment with another one",
        ),
        (
            "vLLM",
            format!("{SERVER} volumes: [{{name: model-deployment-shm, emptyDir: {{}}}}]}}]"),
            "spec.roles[a].volumes: the name model-deployment-shm is taken by the operator; rename the volume",
        ),
        (
            "vLLM",
            format!(
                "{SERVER} volumes: [{{name: v, emptyDir: {{}}}}], volumeMounts: [{{name: v, mountPath: /dev/shm/}}]}}]"
            ),
            "spec.roles[a].volumeMounts: /dev/shm/ is mounted by the operator; set shmSize instead",
        ),
        (
            "vLLM",
            format!(
                "{SERVER} volumes: [{{name: v, emptyDir: {{}}}}], volumeMounts: [{{name: v, mountPath: /dev//./x/../shm}}]}}]"
            ),
            "spec.roles[a].volumeMounts: /dev//./x/../shm is mounted by the operator; set shmSize instead",
        ),
        (
            "vLLM",
            format!(
                "kvCache: {{pool: {{masterAddress: 'm:1'}}}}\n{SERVER} volumes: [{{name: v, emptyDir: {{}}}}], volumeMounts: [{{name: v, mountPath: /etc/gpustack/kvcache/mooncake.json}}]}}]"
            ),
            "spec.roles[a].volumeMounts: /etc/gpustack/kvcache/mooncake.json is mounted by the operator; mount elsewhere",
        ),
        (
            "vLLM",
            format!("{SERVER} shmSize: -1Gi}}]"),
            "spec.roles[a].shmSize: \"-1Gi\" is not a quantity of bytes; write one such as 16Gi",
        ),
        (
            "vLLM",
            format!("{SERVER} volumeMounts: [{{name: v, mountPath: /m}}]}}]"),
            "spec.roles[a].volumeMounts: /m names volume v, which spec.roles[a].volumes lacks; add the volume",
        ),
        (
            "vLLM",
            format!("kvCache: {{connector: Offloading, hostMemory: 100m}}\n{SERVER}}}]"),
            "spec.kvCache.hostMemory: \"100m\" is not a quantity of at least one byte; write one such as 64Gi, in a new ModelDeployment",
        ),
        (
            "SGLang",
            format!("kvCache: {{connector: Offloading, hostMemory: 7G}}\n{SERVER} extraArgs: [--tp=8]}}]"),
            "spec.kvCache.hostMemory: 7G over 8 tensor parallel ranks of role a is less than 1G a rank, the least that SGLang can set aside; give at least 8G, in a new ModelDeployment, or fewer ranks",
        ),
    ]);
}

#[test]
fn a_router_s_own_flags_are_refused_in_every_prefix_that_it_takes() {
    let table = [
        (
            "vLLM",
            "vllm-router",
            "[--sel, x=y]",
            "--sel is refused: --selector is set by the operator",
        ),
        (
            "vLLM",
            "vllm-router",
            "[--prometheus-por=1]",
            "--prometheus-por is refused: --prometheus-port is set by the operator",
        ),
        (
            "vLLM",
            "vllm-router",
            "[--policy=random]",
            "--policy is refused: it is the field spec.router.policy",
        ),
        (
            "vLLM",
            "vllm-router",
            "[--prefill-p=random]",
            "--prefill-p is refused: --prefill-policy is the field spec.router.prefillPolicy",
        ),
        (
            "vLLM",
            "vllm-router",
            "[--request-t, '5']",
            "--request-t is refused: --request-timeout-secs is the field spec.router.requestTimeoutSeconds",
        ),
        (
            "SGLang",
            "sglang-gateway",
            "[--pd-disagg]",
            "--pd-disagg is refused: --pd-disaggregation is set by the operator",
        ),
        (
            "SGLang",
            "sglang-gateway",
            "[--decode-policy=random]",
            "--decode-policy is refused: it is the field spec.router.decodePolicy",
        ),
        (
            "vLLM",
            "llm-d-router",
            "[--metrics-port=1]",
            "--metrics-port is refused: it would move the metrics listener away from where it is looked for",
        ),
        (
            "vLLM",
            "llm-d-router",
            "[--metrics-cert-dir=/c]",
            "--metrics-cert-dir is refused: it would change the scheme of the metrics listener",
        ),
        (
            "SGLang",
            "llm-d-router",
            "[--v=4, -endpoint-selector, a=b]",
            "-endpoint-selector is refused: --endpoint-selector is set by the operator",
        ),
    ];
    for (engine, router, arguments, expected) in table {
        let spec = format!("router: {{name: {router}, extraArgs: {arguments}}}\nroles: [{{name: a}}]");
        assert_eq!(
            sentence(engine, &spec),
            format!("spec.router.extraArgs: {expected}; leave it out"),
            "{router} {arguments}"
        );
    }
    let coordinator = "router: {name: llm-d-router, coordinator: {extraArgs: [--secure-serving=true]}}\n";
    assert_eq!(
        sentence("vLLM", &format!("{coordinator}{PAIR}}}]")),
        "spec.router.coordinator.extraArgs: --secure-serving is refused: it is set by the operator; leave it out"
    );
}

#[test]
fn reserved_ports_are_those_of_something_else_in_the_pod() {
    let sentence_of = |engine: &str, spec: &str| sentence(engine, spec);
    let choose = "choose another port";
    let table = [
        (
            "vLLM",
            "kvTransfer: {connector: Mooncake}\nroles: [{name: p, kind: Prefill, port: 8998}, {name: d, kind: Decode}]",
            "spec.roles[p]: port 8998 (port) is that at which the decode half finds this one",
        ),
        (
            "SGLang",
            "roles: [{name: p, kind: Prefill, extraArgs: [--port=8998]}, {name: d, kind: Decode}]",
            "spec.roles[p]: port 8998 (--port in extraArgs) is that at which the decode half finds this one",
        ),
        (
            "vLLM",
            "kvTransfer: {connector: Nixl}\nroles: [{name: p, kind: Prefill}, {name: d, kind: Decode, extraArgs: [--port, '5600']}]",
            "spec.roles[d]: port 5600 (--port in extraArgs) is that of the NIXL side channel",
        ),
        (
            "vLLM",
            "router: {name: llm-d-router}\nroles: [{name: a, port: 5557}]",
            "spec.roles[a]: port 5557 (port) is that of the engine's cache events",
        ),
        (
            "vLLM",
            "router: {name: llm-d-router}\nroles: [{name: a, extraArgs: [--port=5558]}]",
            "spec.roles[a]: port 5558 (--port in extraArgs) is that at which the engine's cache events are asked for again",
        ),
        (
            "vLLM",
            "router: {name: llm-d-router}\nroles: [{name: p, kind: Prefill}, {name: d, kind: Decode, extraArgs: [--port=8000]}]",
            "spec.roles[d]: port 8000 (--port in extraArgs) is that of the routing proxy in front of the engine",
        ),
    ];
    for (engine, spec, expected) in table {
        assert_eq!(sentence_of(engine, spec), format!("{expected}; {choose}"), "{spec}");
    }
}

#[test]
fn what_is_reserved_in_one_place_is_free_in_another() {
    let accepted = [
        ("vLLM", "roles: [{name: a, port: 8998}]"),
        (
            "vLLM",
            "kvTransfer: {connector: Nixl}\nroles: [{name: p, kind: Prefill, port: 8998}, {name: d, kind: Decode}]",
        ),
        (
            "vLLM",
            "kvTransfer: {connector: Mooncake}\nroles: [{name: p, kind: Prefill}, {name: d, kind: Decode, port: 8998}]",
        ),
        ("SGLang", "router: {name: llm-d-router}\nroles: [{name: a, port: 5557}]"),
        ("vLLM", "roles: [{name: a, size: 2}, {name: a-b}]"),
        ("vLLM", "roles: [{name: a}, {name: a-0}]"),
        ("vLLM", "roles: [{name: a, size: 2}, {name: a-1}]"),
        (
            "vLLM",
            "roles: [{name: a, command: [x], env: [{name: MOONCAKE_CONFIG_PATH, value: x}]}]",
        ),
        ("vLLM", "roles: [{name: a, extraArgs: [--kv-offloading-size=8]}]"),
        (
            "vLLM",
            "router: {name: vllm-router}\nroles: [{name: a}, {name: b, port: 9000, extraArgs: [--port=8000]}]",
        ),
        (
            "vLLM",
            "router: {name: vllm-router, extraArgs: [--prometheus]}\nroles: [{name: a}]",
        ),
        (
            "SGLang",
            "router: {name: llm-d-router}\nroles: [{name: p, kind: Prefill}, {name: d, kind: Decode, extraArgs: [--ssl-certfile=c, --ssl-keyfile=k]}]",
        ),
    ];
    for (engine, spec) in accepted {
        if let Err(refusal) = try_plan(engine, spec) {
            panic!("{refusal}:\n{spec}");
        }
    }
}

#[test]
fn options_that_are_refused_in_some_modes_only() {
    let pool = "kvCache: {pool: {masterAddress: 'm:1'}}\n";
    let offloading = "kvCache: {connector: Offloading, hostMemory: 8G}\n";
    let table = [
        (
            "vLLM",
            pool,
            SERVER,
            "--kv-offloading-size=8",
            "it replaces the connector that the operator sets",
        ),
        (
            "vLLM",
            offloading,
            SERVER,
            "--kv-offloading-back=native",
            "--kv-offloading-backend replaces the connector that the operator sets",
        ),
        (
            "vLLM",
            "",
            SERVER,
            "--api-server-count=0",
            "it moves or removes the metrics listener",
        ),
        (
            "vLLM",
            "",
            SERVER,
            "-asc=-1",
            "--api-server-count moves or removes the metrics listener",
        ),
        (
            "vLLM",
            "",
            SERVER,
            "-dpm",
            "--data-parallel-multi-port-external-lb moves or removes the metrics listener",
        ),
        (
            "SGLang",
            pool,
            SERVER,
            "--enable-lmcache",
            "it excludes the hierarchical cache that the pool of spec.kvCache needs",
        ),
        (
            "SGLang",
            offloading,
            SERVER,
            "--enable-lmcache",
            "it is another host tier than that of spec.kvCache.hostMemory",
        ),
        (
            "SGLang",
            offloading,
            SERVER,
            "--hicache-size=8",
            "it is the field spec.kvCache.hostMemory",
        ),
        (
            "SGLang",
            offloading,
            SERVER,
            "--enable-flexkv",
            "it is another host tier than that of spec.kvCache.hostMemory",
        ),
        (
            "SGLang",
            offloading,
            SERVER,
            "--radix-cache-backend=flexkv",
            "it is another host tier than that of spec.kvCache.hostMemory",
        ),
        (
            "SGLang",
            "",
            PAIR,
            "--enable-hicache",
            "--enable-hierarchical-cache gives a host tier to a decode half, which SGLang does not start with",
        ),
        (
            "SGLang",
            "",
            PAIR,
            "--enable-lmcache",
            "it gives a host tier to a decode half, which SGLang does not start with",
        ),
        (
            "SGLang",
            "",
            SERVER,
            "--hicache-storage-backend=file",
            "it is set by the operator",
        ),
        ("SGLang", "", SERVER, "--grpc-mode", "it moves the metrics listener"),
        ("SGLang", "", SERVER, "--smg-grpc-mode", "it moves the metrics listener"),
        (
            "SGLang",
            "",
            SERVER,
            "--disaggregation-bootstrap-port=1",
            "it is set by the operator",
        ),
    ];
    for (engine, cache, roles, argument, expected) in table {
        let role = if roles == PAIR { "d" } else { "a" };
        let spelled = argument.split('=').next().unwrap();
        assert_eq!(
            sentence(engine, &format!("{cache}{roles} extraArgs: [{argument}]}}]")),
            format!(
                "spec.roles[{role}].extraArgs: {spelled} is refused: {expected}; leave it out, or take the role over with command"
            ),
        );
    }
    // Any other number of servers leaves the listener where it is.
    let servers = format!("{SERVER} extraArgs: [--api-server-count=2]}}]");
    assert!(try_plan("vLLM", &servers).is_ok());
}
