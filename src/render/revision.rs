//! The revision of a Pod: a hash over what was rendered into it.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::pod::annotations::FACTS;
use crate::pod::labels;

/// Hexadecimal digits of a revision: 64 bits tell the few revisions of one role apart, and a label has room.
const DIGITS: usize = 16;

/// The revision of a role whose replicas consist of these Pods, and of whatever else their content hangs on.
///
/// Names, positions, owners and the facts annotation are left out: they are not what runs, and facts may gain members in a later
/// version of the operator without a Pod being replaced for it.
pub(super) fn of(pods: &[&Pod], beside: &[String]) -> String {
    let pods: Vec<Value> = pods.iter().map(|pod| canonical(pod)).collect();
    let text = serde_json::to_string(&(pods, beside)).expect("a Pod is JSON");
    let digest = Sha256::digest(text.as_bytes());
    let mut hash: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    hash.truncate(DIGITS);
    hash
}

fn canonical(pod: &Pod) -> Value {
    let mut pod = pod.clone();
    let without = |map: &mut Option<labels::Map>, keys: &[&str]| {
        if let Some(map) = map {
            map.retain(|key, _| !keys.contains(&key.as_str()));
        }
    };
    without(&mut pod.metadata.annotations, &[FACTS]);
    without(
        &mut pod.metadata.labels,
        &[labels::ORDINAL, labels::MEMBER, labels::REVISION],
    );
    let mut value = serde_json::to_value(&pod).expect("a Pod is JSON");
    if let Some(metadata) = value.pointer_mut("/metadata").and_then(Value::as_object_mut) {
        metadata.retain(|key, _| key == "labels" || key == "annotations");
    }
    sorted(value)
}

/// Members in the order of their names, whatever order `serde_json` was built to keep.
fn sorted(value: Value) -> Value {
    match value {
        Value::Object(members) => {
            let members: BTreeMap<_, _> = members
                .into_iter()
                .map(|(name, member)| (name, sorted(member)))
                .collect();
            members.into_iter().collect()
        }
        Value::Array(items) => items.into_iter().map(sorted).collect(),
        scalar => scalar,
    }
}
