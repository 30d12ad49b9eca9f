//! The Node object and its Lease.
//!
//! Owns what the machine claims to have (plenty: nothing here is scheduled by resources) and the heartbeat that keeps the node
//! controller calm.

use std::net::IpAddr;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;
use tokio::time::{MissedTickBehavior, interval};

/// Where Leases of Nodes are.
const LEASES: &str = "kube-node-lease";

/// Period of the heartbeat; the node controller waits 40 s.
const HEARTBEAT: Duration = Duration::from_secs(10);

/// Seconds for which a heartbeat counts (the default of a real kubelet).
const LEASE_SECONDS: i32 = 40;

/// The field manager of everything that the kubelet writes.
pub(super) const MANAGER: &str = "kubelet";

/// Registers the Node as ready.
pub(super) async fn register(client: &Client, name: &str, address: IpAddr, port: u16) -> kube::Result<()> {
    let nodes = Api::<Node>::all(client.clone());
    let apply = PatchParams::apply(MANAGER).force();
    let identity = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {
            "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
        }},
    });
    nodes.patch(name, &apply, &Patch::Apply(identity)).await?;
    let plenty = json!({
        "cpu": "4096", "memory": "64Ti", "ephemeral-storage": "64Ti", "pods": "10000",
        "nvidia.com/gpu": "100000", "amd.com/gpu": "100000", "rdma/hca": "100000",
    });
    let now = Timestamp::now();
    let condition = |kind: &str, status: &str, reason: &str| {
        json!({"type": kind, "status": status, "reason": reason, "message": reason,
               "lastHeartbeatTime": now, "lastTransitionTime": now})
    };
    let status = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
        "status": {
            "capacity": plenty, "allocatable": plenty,
            "addresses": [{"type": "InternalIP", "address": address}, {"type": "Hostname", "address": name}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
            "conditions": [
                condition("Ready", "True", "KubeletReady"),
                condition("MemoryPressure", "False", "KubeletHasSufficientMemory"),
                condition("DiskPressure", "False", "KubeletHasNoDiskPressure"),
                condition("PIDPressure", "False", "KubeletHasSufficientPID"),
            ],
            "nodeInfo": {
                "machineID": name, "systemUUID": name, "bootID": name, "kernelVersion": "", "osImage": "test-cluster",
                "containerRuntimeVersion": "test-cluster://1", "kubeletVersion": "v1.37.2", "kubeProxyVersion": "",
                "operatingSystem": "linux", "architecture": "amd64",
            },
        },
    });
    nodes.patch_status(name, &apply, &Patch::Apply(status)).await?;
    beat(client, name).await
}

/// Renews the Lease for ever.
pub(super) async fn heartbeat(client: Client, name: String) {
    let mut ticks = interval(HEARTBEAT);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if let Err(error) = beat(&client, &name).await {
            tracing::warn!(%error, "heartbeat");
        }
    }
}

async fn beat(client: &Client, name: &str) -> kube::Result<()> {
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name, "namespace": LEASES},
        "spec": {
            "holderIdentity": name, "leaseDurationSeconds": LEASE_SECONDS,
            "renewTime": format!("{:.6}", Timestamp::now()),
        },
    });
    let leases = Api::<Lease>::namespaced(client.clone(), LEASES);
    leases
        .patch(name, &PatchParams::apply(MANAGER).force(), &Patch::Apply(lease))
        .await
        .map(drop)
}
