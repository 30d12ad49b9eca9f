//! Why a Pod does not become ready, where the kubelet says so in a way that time alone will not mend.

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

/// Reasons of a waiting container that somebody has to do something about.
const HOPELESS: [&str; 8] = [
    "CrashLoopBackOff",
    "CreateContainerConfigError",
    "CreateContainerError",
    "ErrImageNeverPull",
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "RunContainerError",
];

/// What keeps `pod` from becoming ready, as `<pod>: <reason>: <message>`.
pub fn trouble(pod: &Pod) -> Option<String> {
    let status = pod.status.as_ref()?;
    let name = pod.name_any();
    if status.phase.as_deref() == Some("Failed") {
        return Some(sentence(&name, status.reason.as_deref().unwrap_or("Failed"), status.message.as_deref()));
    }
    let containers = status.init_container_statuses.iter().flatten().chain(status.container_statuses.iter().flatten());
    containers.filter_map(|container| container.state.as_ref()?.waiting.as_ref()).find_map(|waiting| {
        let reason = waiting.reason.as_deref().filter(|reason| HOPELESS.contains(reason))?;
        Some(sentence(&name, reason, waiting.message.as_deref()))
    })
}

fn sentence(pod: &str, reason: &str, message: Option<&str>) -> String {
    match message {
        Some(message) if !message.is_empty() => format!("Pod {pod}: {reason}: {message}"),
        _ => format!("Pod {pod}: {reason}"),
    }
}
