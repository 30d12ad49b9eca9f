//! Why a Pod does not become ready, where the kubelet says so in a way that time alone will not mend.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;

/// How long a Pod may take to become ready: the whole of the startup probe that we render, 180 attempts every 10 seconds.
const STARTUP: SignedDuration = SignedDuration::from_secs(180 * 10);

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
pub fn trouble(pod: &Pod, now: Timestamp) -> Option<String> {
    let status = pod.status.as_ref()?;
    let name = pod.name_any();
    let containers = status
        .init_container_statuses
        .iter()
        .flatten()
        .chain(status.container_statuses.iter().flatten());
    let waiting = containers
        .filter_map(|container| container.state.as_ref()?.waiting.as_ref())
        .find_map(|waiting| {
            let reason = waiting.reason.as_deref().filter(|reason| HOPELESS.contains(reason))?;
            Some(sentence(&name, reason, waiting.message.as_deref()))
        });
    let overdue = || deadline(pod).is_some_and(|deadline| deadline <= now);
    waiting.or_else(|| overdue().then(|| sentence(&name, "NotReady", Some("not ready after 30 minutes"))))
}

/// When `pod` will have had long enough to become ready.
pub fn deadline(pod: &Pod) -> Option<Timestamp> {
    pod.metadata.creation_timestamp.as_ref()?.0.checked_add(STARTUP).ok()
}

fn sentence(pod: &str, reason: &str, message: Option<&str>) -> String {
    match message {
        Some(message) if !message.is_empty() => format!("Pod {pod}: {reason}: {message}"),
        _ => format!("Pod {pod}: {reason}"),
    }
}
