//! Stands in until the kubelet is merged.
#![allow(missing_docs, dead_code)]

use std::{net::IpAddr, path::PathBuf};

pub struct Config {
    pub node_name: String,
    pub node_address: IpAddr,
    pub state_dir: PathBuf,
    pub operator_binary: PathBuf,
    pub router_venv: PathBuf,
    pub prometheus: Option<PathBuf>,
    pub serving_certificate: String,
    pub serving_key: String,
    pub client_ca: String,
}

#[derive(Clone)]
pub struct Kubelet;

impl Kubelet {
    pub async fn start(client: kube::Client, config: Config) -> Result<Self, kube::Error> {
        let node =
            serde_json::from_value(serde_json::json!({ "metadata": { "name": config.node_name } })).expect("a Node");
        kube::Api::<k8s_openapi::api::core::v1::Node>::all(client)
            .create(&Default::default(), &node)
            .await?;
        Ok(Self)
    }

    pub async fn shutdown(&self) {}
}
