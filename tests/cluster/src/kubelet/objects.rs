//! Secrets, ConfigMaps and tokens of a Pod's namespace, read when a Pod starts.

use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret, ServiceAccount};
use kube::api::PostParams;
use kube::{Api, Client};

/// Lifetime of a token where the volume does not say (the API's own default), in seconds.
const TOKEN_SECONDS: i64 = 3600;

/// Why an object cannot be had.
#[derive(Debug, thiserror::Error)]
pub(super) enum ObjectError {
    #[error("{kind} {name:?} not found")]
    Absent { kind: &'static str, name: String },
    #[error("{kind} {name:?} has no key {key:?}")]
    Key {
        kind: &'static str,
        name: String,
        key: String,
    },
    #[error("the API server did not answer")]
    Api(#[from] kube::Error),
}

/// Entries of a Secret or ConfigMap.
pub(super) type Entries = Vec<(String, Vec<u8>)>;

/// The objects of one namespace.
pub(super) struct Objects {
    client: Client,
    namespace: String,
}

impl Objects {
    pub(super) fn new(client: Client, namespace: &str) -> Self {
        Self {
            client,
            namespace: namespace.to_owned(),
        }
    }

    /// All entries of a Secret; none if it is absent and `optional`.
    pub(super) async fn secret(&self, name: &str, optional: bool) -> Result<Entries, ObjectError> {
        let secret = Api::<Secret>::namespaced(self.client.clone(), &self.namespace)
            .get_opt(name)
            .await?;
        let data = present("Secret", name, secret, optional)?.and_then(|secret| secret.data);
        Ok(data.into_iter().flatten().map(|(key, value)| (key, value.0)).collect())
    }

    /// All entries of a ConfigMap; none if it is absent and `optional`.
    pub(super) async fn config_map(&self, name: &str, optional: bool) -> Result<Entries, ObjectError> {
        let map = Api::<ConfigMap>::namespaced(self.client.clone(), &self.namespace)
            .get_opt(name)
            .await?;
        let Some(map) = present("ConfigMap", name, map, optional)? else {
            return Ok(Vec::new());
        };
        let text = map
            .data
            .into_iter()
            .flatten()
            .map(|(key, value)| (key, value.into_bytes()));
        let binary = map.binary_data.into_iter().flatten().map(|(key, value)| (key, value.0));
        Ok(text.chain(binary).collect())
    }

    /// One entry out of `entries`.
    pub(super) fn key(
        &self,
        kind: &'static str,
        name: &str,
        key: &str,
        entries: Entries,
        optional: bool,
    ) -> Result<Option<Vec<u8>>, ObjectError> {
        let found = entries.into_iter().find(|(k, _)| k == key).map(|(_, value)| value);
        if found.is_none() && !optional {
            return Err(ObjectError::Key {
                kind,
                name: name.to_owned(),
                key: key.to_owned(),
            });
        }
        Ok(found)
    }

    /// A token of the Pod's service account, bound to the Pod.
    pub(super) async fn token(
        &self,
        pod: &Pod,
        audience: Option<&str>,
        seconds: Option<i64>,
    ) -> Result<String, ObjectError> {
        let account = pod.spec.as_ref().and_then(|spec| spec.service_account_name.clone());
        let account = account.unwrap_or_else(|| "default".to_owned());
        let request = TokenRequest {
            spec: TokenRequestSpec {
                audiences: audience.map(str::to_owned).into_iter().collect(),
                expiration_seconds: Some(seconds.unwrap_or(TOKEN_SECONDS)),
                bound_object_ref: Some(BoundObjectReference {
                    api_version: Some("v1".to_owned()),
                    kind: Some("Pod".to_owned()),
                    name: pod.metadata.name.clone(),
                    uid: pod.metadata.uid.clone(),
                }),
            },
            ..TokenRequest::default()
        };
        let accounts = Api::<ServiceAccount>::namespaced(self.client.clone(), &self.namespace);
        let answer = accounts
            .create_token_request(&account, &PostParams::default(), &request)
            .await?;
        Ok(answer.status.map(|status| status.token).unwrap_or_default())
    }
}

fn present<T>(kind: &'static str, name: &str, object: Option<T>, optional: bool) -> Result<Option<T>, ObjectError> {
    if object.is_none() && !optional {
        return Err(ObjectError::Absent {
            kind,
            name: name.to_owned(),
        });
    }
    Ok(object)
}
