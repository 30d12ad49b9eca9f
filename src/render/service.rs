//! Services: one named after the deployment, one a role, and a headless one for each replica of several Pods.

use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use model_deployment_crds::role::Role;

use super::ports;
use super::setting::Setting;
use crate::pod::labels::{self, Map};

/// The Service named after the deployment: its first role that answers whole requests. `target` is that role's serving port in the Pod.
pub(super) fn front(setting: &Setting<'_>, role: &Role, target: u16) -> Service {
    let metadata = setting.metadata(setting.name.clone(), labels::of_object(&setting.name));
    virtual_address(
        metadata,
        labels::select_role(&setting.name, &role.name),
        "http",
        ports::serving(role),
        target,
    )
}

/// The Service of one role: its leaders.
pub(super) fn of_role(setting: &Setting<'_>, role: &Role, target: u16) -> Service {
    let metadata = setting.metadata(
        format!("{}-{}", setting.name, role.name),
        labels::of_role(&setting.name, &role.name),
    );
    virtual_address(
        metadata,
        labels::select_role(&setting.name, &role.name),
        "http",
        ports::serving(role),
        target,
    )
}

/// A Service with an address of its own.
pub(super) fn virtual_address(metadata: ObjectMeta, selector: Map, name: &str, port: u16, target: u16) -> Service {
    Service {
        metadata,
        spec: Some(ServiceSpec {
            selector: Some(selector),
            ports: Some(vec![ServicePort {
                name: Some(name.into()),
                port: port.into(),
                target_port: Some(IntOrString::Int(target.into())),
                protocol: Some("TCP".into()),
                ..Default::default()
            }]),
            type_: Some("ClusterIP".into()),
            ..Default::default()
        }),
        status: None,
    }
}

/// The headless Service of one replica of several Pods: their names, ready or not, so that the members find each other while they start.
pub(super) fn of_replica(setting_metadata: &ObjectMeta, instance: &str, role: &str, ordinal: u32) -> Service {
    let labels = labels::with(labels::of_role(instance, role), labels::ORDINAL, ordinal.to_string());
    let selector = [labels::INSTANCE, labels::COMPONENT, labels::ORDINAL];
    let selector = labels
        .iter()
        .filter(|(key, _)| selector.contains(&key.as_str()))
        .map(|(k, v)| (k.clone(), v.clone()))
        .collect();
    Service {
        metadata: ObjectMeta {
            name: Some(format!("{instance}-{role}-{ordinal}")),
            labels: Some(labels),
            ..setting_metadata.clone()
        },
        spec: Some(ServiceSpec {
            selector: Some(selector),
            cluster_ip: Some("None".into()),
            publish_not_ready_addresses: Some(true),
            ..Default::default()
        }),
        status: None,
    }
}
