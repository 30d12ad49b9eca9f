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
    pub async fn start(_client: kube::Client, _config: Config) -> Result<Self, std::io::Error> {
        Ok(Self)
    }

    pub async fn shutdown(&self) {}
}
