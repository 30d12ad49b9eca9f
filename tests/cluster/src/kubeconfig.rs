//! Owns the text of a kubeconfig with everything in it, and a client from it. JSON is YAML, so every reader takes it.

use std::net::SocketAddr;

use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::{Value, json};

use crate::{
    Error,
    certificates::{Certificates, Pair},
};

const NAME: &str = "test-cluster";

/// A kubeconfig for the API server at `address`, as the client `user`.
pub(crate) fn text(address: SocketAddr, certificates: &Certificates, user: &Pair) -> String {
    let named = |key: &str, value: Value| json!([{ "name": NAME, key: value }]);
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": named("cluster", json!({
            "server": format!("https://{address}"),
            "certificate-authority-data": base64(&certificates.authority),
        })),
        "users": named("user", json!({
            "client-certificate-data": base64(&user.certificate),
            "client-key-data": base64(&user.key),
        })),
        "contexts": named("context", json!({ "cluster": NAME, "user": NAME })),
        "current-context": NAME,
    })
    .to_string()
}

/// What a client reads from a kubeconfig.
pub(crate) async fn config(text: &str) -> Result<Config, Error> {
    Ok(Config::from_custom_kubeconfig(Kubeconfig::from_yaml(text)?, &KubeConfigOptions::default()).await?)
}

/// A client that acts as somebody else.
pub(crate) fn impersonate(mut config: Config, user: &str, groups: &[&str]) -> Result<Client, Error> {
    config.auth_info.impersonate = Some(user.to_owned());
    config.auth_info.impersonate_groups = Some(groups.iter().map(ToString::to_string).collect());
    Ok(Client::try_from(config)?)
}

fn base64(text: &str) -> Value {
    serde_json::to_value(k8s_openapi::ByteString(text.as_bytes().to_vec())).unwrap_or_default()
}
