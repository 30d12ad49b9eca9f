//! Whether a live object is as it was rendered, by what the API server says we own in it.
//!
//! A field that somebody else changes or removes leaves our entry of `metadata.managedFields`; a field of theirs, a defaulted one, or
//! a status never enters it. So an entry that is as it was after our last apply of the same object means that nothing of ours was
//! touched, whatever else was. Nothing has to be written into the object for this, and no rule of defaulting is known here.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Map, Value};

/// The fields that `manager` owns by server-side apply.
pub fn claims<'a>(metadata: &'a ObjectMeta, manager: &str) -> Option<&'a Value> {
    let entries = metadata.managed_fields.iter().flatten();
    entries
        .filter(|entry| entry.manager.as_deref() == Some(manager) && entry.operation.as_deref() == Some("Apply"))
        .find(|entry| entry.subresource.as_deref().unwrap_or_default().is_empty())
        .and_then(|entry| entry.fields_v1.as_ref())
        .map(|fields| &fields.0)
}

/// Drops the entries of other managers, which are of no use here and the larger part of a Pod.
pub fn keep_claims(metadata: &mut ObjectMeta, manager: &str) {
    if let Some(entries) = &mut metadata.managed_fields {
        entries.retain(|entry| entry.manager.as_deref() == Some(manager));
    }
}

/// Whether `live` holds what `rendered` says and `claims` is exactly that: for an object that this process has not applied itself.
/// A value that the API server spells differently (a quantity) makes this false; applying it once more is then harmless.
pub fn holds(rendered: &Value, live: &Value, claims: &Value) -> bool {
    let Value::Object(rendered) = rendered else {
        return false;
    };
    // Nothing is claimed: all of it was taken over.
    if claims.as_object().is_none_or(Map::is_empty) {
        return false;
    }
    let owned: Map<_, _> = rendered
        .iter()
        .filter(|(name, _)| !matches!(name.as_str(), "apiVersion" | "kind"))
        .map(|(name, value)| {
            let mut value = value.clone();
            if name == "metadata"
                && let Value::Object(metadata) = &mut value
            {
                for identity in ["name", "namespace"] {
                    metadata.remove(identity);
                }
            }
            (name.clone(), value)
        })
        .collect();
    member_holds(&Value::Object(owned), live, claims)
}

fn member_holds(rendered: &Value, live: &Value, claims: &Value) -> bool {
    let Some(claims) = claims.as_object().filter(|claims| claims.keys().any(|key| key != ".")) else {
        return alike(rendered, live);
    };
    match rendered {
        Value::Object(members) => {
            let claimed = claims.keys().filter_map(|key| key.strip_prefix("f:"));
            let stale = claimed.into_iter().any(|name| !members.contains_key(name));
            !stale
                && members.iter().all(
                    |(name, value)| match (claims.get(&format!("f:{name}")), live.get(name)) {
                        (Some(claims), Some(live)) => member_holds(value, live, claims),
                        _ => false,
                    },
                )
        }
        Value::Array(items) => {
            let Some(live) = live.as_array() else { return false };
            let claimed = claims.iter().filter(|(key, _)| *key != ".");
            claimed.clone().count() == items.len()
                && claimed
                    .into_iter()
                    .all(|(key, claims)| item_holds(items, live, key, claims))
        }
        _ => false,
    }
}

/// One claimed item of a list: `k:{"name":"main"}` by its keys, `v:"x"` by its value.
fn item_holds(items: &[Value], live: &[Value], key: &str, claims: &Value) -> bool {
    let (kind, json) = key.split_at(2.min(key.len()));
    let Ok(key) = serde_json::from_str::<Value>(json) else {
        return false;
    };
    match (kind, &key) {
        ("v:", value) => items.contains(value) && live.contains(value),
        ("k:", Value::Object(keys)) => {
            // A key that was not rendered is one that the API server defaulted, such as a port's protocol.
            let rendered = items
                .iter()
                .find(|item| keys.iter().all(|(k, v)| item.get(k).is_none_or(|have| have == v)));
            let live = live
                .iter()
                .find(|item| keys.iter().all(|(k, v)| item.get(k) == Some(v)));
            match (rendered, live) {
                (Some(rendered), Some(live)) => keyed_holds(rendered, live, claims, keys),
                _ => false,
            }
        }
        _ => false,
    }
}

/// A keyed item; its keys are claimed as fields even where they were not rendered.
fn keyed_holds(rendered: &Value, live: &Value, claims: &Value, keys: &Map<String, Value>) -> bool {
    let mut rendered = rendered.clone();
    if let Value::Object(members) = &mut rendered {
        for (name, value) in keys {
            if claims.get(format!("f:{name}")).is_some() {
                members.entry(name.clone()).or_insert_with(|| value.clone());
            }
        }
    }
    member_holds(&rendered, live, claims)
}

/// Whether all that `rendered` says is in `live`.
fn alike(rendered: &Value, live: &Value) -> bool {
    match (rendered, live) {
        (Value::Object(rendered), Value::Object(live)) => rendered
            .iter()
            .all(|(name, value)| live.get(name).is_some_and(|live| alike(value, live))),
        (Value::Array(rendered), Value::Array(live)) => {
            rendered.len() == live.len() && rendered.iter().zip(live).all(|(rendered, live)| alike(rendered, live))
        }
        _ => rendered == live,
    }
}

#[cfg(test)]
mod tests;
