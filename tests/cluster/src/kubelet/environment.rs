//! A container's environment: values, references, and `$(VAR)`.
//!
//! Owns the rules of the core API for `env`, `envFrom`, `fieldRef`, `resourceFieldRef` and expansion. Asks [`Objects`] for
//! Secrets and ConfigMaps.

use std::net::IpAddr;

use k8s_openapi::api::core::v1::{Container, EnvVarSource, Pod, ResourceFieldSelector};

use super::objects::{ObjectError, Objects};
use crate::network::KUBERNETES;

/// Addresses that the downward API tells.
#[derive(Debug, Clone, Copy)]
pub(super) struct Addresses {
    pub(super) pod: IpAddr,
    pub(super) host: IpAddr,
}

/// Why a container's environment, or a file of the downward API, cannot be made.
#[derive(Debug, thiserror::Error)]
pub(super) enum EnvironmentError {
    #[error(transparent)]
    Object(#[from] ObjectError),
    #[error("the downward API has no field {0}")]
    Field(String),
    #[error("the downward API has no resource {0}")]
    Resource(String),
    #[error("container {0} is not of this Pod")]
    Container(String),
}

/// Variables in order; the last of a name counts, as in a real container.
pub(super) async fn resolve(
    pod: &Pod,
    container: &Container,
    addresses: Addresses,
    objects: &Objects,
) -> Result<Vec<(String, String)>, EnvironmentError> {
    let mut variables: Vec<(String, String)> = vec![
        (
            "PATH".to_owned(),
            "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".to_owned(),
        ),
        ("HOME".to_owned(), "/tmp".to_owned()),
        ("HOSTNAME".to_owned(), hostname(pod)),
        ("KUBERNETES_SERVICE_HOST".to_owned(), KUBERNETES.ip().to_string()),
        ("KUBERNETES_SERVICE_PORT".to_owned(), KUBERNETES.port().to_string()),
        (
            "KUBERNETES_SERVICE_PORT_HTTPS".to_owned(),
            KUBERNETES.port().to_string(),
        ),
    ];
    for from in container.env_from.iter().flatten() {
        let prefix = from.prefix.clone().unwrap_or_default();
        let mut entries = Vec::new();
        if let Some(source) = &from.config_map_ref {
            entries = objects
                .config_map(&source.name, source.optional.unwrap_or(false))
                .await?;
        }
        if let Some(source) = &from.secret_ref {
            entries.extend(objects.secret(&source.name, source.optional.unwrap_or(false)).await?);
        }
        for (key, value) in entries {
            variables.push((format!("{prefix}{key}"), String::from_utf8_lossy(&value).into_owned()));
        }
    }
    for variable in container.env.iter().flatten() {
        let value = match (&variable.value, &variable.value_from) {
            (Some(value), _) => Some(expand(value, &variables)),
            (None, Some(source)) => from_source(pod, container, source, addresses, objects).await?,
            (None, None) => Some(String::new()),
        };
        if let Some(value) = value {
            variables.push((variable.name.clone(), value));
        }
    }
    Ok(variables)
}

/// `spec.hostname`, or the Pod's name.
pub(super) fn hostname(pod: &Pod) -> String {
    let wanted = pod.spec.as_ref().and_then(|spec| spec.hostname.clone());
    wanted.or_else(|| pod.metadata.name.clone()).unwrap_or_default()
}

async fn from_source(
    pod: &Pod,
    container: &Container,
    source: &EnvVarSource,
    addresses: Addresses,
    objects: &Objects,
) -> Result<Option<String>, EnvironmentError> {
    if let Some(field) = &source.field_ref {
        return Ok(Some(self::field(pod, &field.field_path, addresses)?));
    }
    if let Some(selector) = &source.resource_field_ref {
        return Ok(Some(resource(container, selector)?));
    }
    let value = if let Some(key) = &source.secret_key_ref {
        let optional = key.optional.unwrap_or(false);
        let entries = objects.secret(&key.name, optional).await?;
        objects.key("Secret", &key.name, &key.key, entries, optional)?
    } else if let Some(key) = &source.config_map_key_ref {
        let optional = key.optional.unwrap_or(false);
        let entries = objects.config_map(&key.name, optional).await?;
        objects.key("ConfigMap", &key.name, &key.key, entries, optional)?
    } else {
        return Err(EnvironmentError::Field(
            "(a source that is none of the core API's)".to_owned(),
        ));
    };
    Ok(value.map(|value| String::from_utf8_lossy(&value).into_owned()))
}

/// One field of the downward API.
pub(super) fn field(pod: &Pod, path: &str, addresses: Addresses) -> Result<String, EnvironmentError> {
    let spec = pod.spec.as_ref();
    let keyed = |map: Option<&std::collections::BTreeMap<String, String>>, key: &str| {
        map.and_then(|map| map.get(key)).cloned().unwrap_or_default()
    };
    let all = |map: Option<&std::collections::BTreeMap<String, String>>| {
        let lines = map.into_iter().flatten().map(|(key, value)| format!("{key}={value:?}"));
        lines.collect::<Vec<_>>().join("\n")
    };
    let bracket = |of: &str| {
        path.strip_prefix(of)
            .and_then(|p| p.strip_prefix("['"))
            .and_then(|p| p.strip_suffix("']"))
    };
    if let Some(key) = bracket("metadata.labels") {
        return Ok(keyed(pod.metadata.labels.as_ref(), key));
    }
    if let Some(key) = bracket("metadata.annotations") {
        return Ok(keyed(pod.metadata.annotations.as_ref(), key));
    }
    let text = match path {
        "metadata.name" => pod.metadata.name.clone(),
        "metadata.namespace" => pod.metadata.namespace.clone(),
        "metadata.uid" => pod.metadata.uid.clone(),
        "metadata.labels" => Some(all(pod.metadata.labels.as_ref())),
        "metadata.annotations" => Some(all(pod.metadata.annotations.as_ref())),
        "spec.nodeName" => spec.and_then(|spec| spec.node_name.clone()),
        "spec.serviceAccountName" => spec.and_then(|spec| spec.service_account_name.clone()),
        "status.podIP" | "status.podIPs" => Some(addresses.pod.to_string()),
        "status.hostIP" | "status.hostIPs" => Some(addresses.host.to_string()),
        _ => return Err(EnvironmentError::Field(path.to_owned())),
    };
    Ok(text.unwrap_or_default())
}

/// One resource of the downward API: the quantity over the divisor, rounded up.
pub(super) fn resource(container: &Container, selector: &ResourceFieldSelector) -> Result<String, EnvironmentError> {
    let unknown = || EnvironmentError::Resource(selector.resource.clone());
    let (kind, name) = selector.resource.split_once('.').ok_or_else(unknown)?;
    let resources = container.resources.as_ref();
    let of = match kind {
        "limits" => resources.and_then(|r| r.limits.as_ref()),
        "requests" => resources.and_then(|r| r.requests.as_ref()),
        _ => return Err(unknown()),
    };
    let amount = of
        .and_then(|of| of.get(name))
        .map_or(Some(0.0), |q| quantity(&q.0))
        .ok_or_else(unknown)?;
    let divisor = selector
        .divisor
        .as_ref()
        .and_then(|q| quantity(&q.0))
        .filter(|d| *d > 0.0)
        .unwrap_or(1.0);
    Ok(format!("{:.0}", (amount / divisor).ceil()))
}

/// A Kubernetes quantity as a number.
fn quantity(text: &str) -> Option<f64> {
    const UNITS: &[(&str, f64)] = &[
        ("Ki", 1024.0),
        ("Mi", 1_048_576.0),
        ("Gi", 1_073_741_824.0),
        ("Ti", 1_099_511_627_776.0),
        ("m", 1e-3),
        ("k", 1e3),
        ("M", 1e6),
        ("G", 1e9),
        ("T", 1e12),
    ];
    let unit = UNITS
        .iter()
        .find_map(|(unit, factor)| text.strip_suffix(unit).map(|number| (number, factor)));
    let (number, factor) = unit.unwrap_or((text, &1.0));
    number.parse::<f64>().ok().map(|number| number * factor)
}

/// `$(VAR)` becomes the variable's value, `$$` a dollar; what names no variable stays as it is.
pub(super) fn expand(text: &str, variables: &[(String, String)]) -> String {
    let mut expanded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        expanded.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('$') {
            expanded.push('$');
            rest = after;
        } else if let Some((name, after)) = rest.strip_prefix('(').and_then(|r| r.split_once(')')) {
            match variables.iter().rev().find(|(known, _)| known == name) {
                Some((_, value)) => expanded.push_str(value),
                None => expanded.push_str(&format!("$({name})")),
            }
            rest = after;
        } else {
            expanded.push('$');
        }
    }
    expanded + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expansion_follows_the_core_api() {
        let variables = [
            ("A".to_owned(), "1".to_owned()),
            ("A".to_owned(), "2".to_owned()),
            ("B".to_owned(), "$(A)".to_owned()),
        ];
        for (text, expected) in [
            ("x-$(A)-y", "x-2-y"),
            ("$(B)", "$(A)"),
            ("$$(A)", "$(A)"),
            ("$(NONE) $", "$(NONE) $"),
            ("$A $(A", "$A $(A"),
            ("{\"a\":\"$(A)\"}", "{\"a\":\"2\"}"),
        ] {
            assert_eq!(expand(text, &variables), expected, "{text}");
        }
    }

    #[test]
    fn fields_of_the_downward_api() {
        let pod: Pod = serde_json::from_value(serde_json::json!({
            "metadata": {"name": "a", "namespace": "n", "labels": {"k": "v", "l": "w"}},
            "spec": {"containers": [], "nodeName": "n1"},
        }))
        .unwrap();
        let addresses = Addresses {
            pod: [10, 244, 1, 1].into(),
            host: [10, 244, 0, 2].into(),
        };
        for (path, expected) in [
            ("metadata.name", "a"),
            ("metadata.labels['l']", "w"),
            ("metadata.labels", "k=\"v\"\nl=\"w\""),
            ("spec.nodeName", "n1"),
            ("status.podIP", "10.244.1.1"),
            ("status.hostIP", "10.244.0.2"),
        ] {
            assert_eq!(field(&pod, path, addresses).unwrap(), expected, "{path}");
        }
        assert!(field(&pod, "spec.other", addresses).is_err());
    }

    #[test]
    fn quantities() {
        for (text, expected) in [("2", 2.0), ("500m", 0.5), ("1Gi", 1_073_741_824.0), ("3k", 3000.0)] {
            assert_eq!(quantity(text), Some(expected));
        }
        assert_eq!(quantity("much"), None);
    }
}
