//! One question to the API server, and its answer as it came. Knows no figure.

use std::io;
use std::time::Duration;

use http::Request;
use kube::Client;
use kube::config::{Config, KubeConfigOptions, Kubeconfig, KubeconfigError};
use model_deployment_crds::metrics::ModelDeploymentMetrics;
use model_deployment_crds::{AGGREGATED_API_VERSION, PLURAL};
use model_deployment_operator::console::{FAILED, REFUSED};
use model_deployment_operator::format::{self, Format};
use serde_yaml::Value;
use thiserror::Error;

use crate::Metrics;

/// The subresource answers within eight seconds (metrics contract, section 8); what takes longer than this hangs elsewhere.
const PATIENCE: Duration = Duration::from_secs(15);

/// Why there is no answer.
#[derive(Debug, Error)]
pub enum AskError {
    /// No runtime.
    #[error("cannot start")]
    Runtime(#[source] io::Error),
    /// The kubeconfig does not lead anywhere.
    #[error("cannot use the kubeconfig")]
    Kubeconfig(#[source] Box<KubeconfigError>),
    /// Nor do its credentials.
    #[error("cannot set up the Kubernetes client")]
    Client(#[source] Box<kube::Error>),
    /// The API server refuses, in its own words.
    #[error("{message}")]
    Refused {
        /// HTTP status.
        code: u16,
        /// The words.
        message: String,
    },
    /// There is no API server, or no whole answer.
    #[error("cannot reach the API server")]
    Unreachable(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The answer is something else.
    #[error("the answer is not the metrics of a ModelDeployment")]
    NotMetrics(#[source] serde_json::Error),
    /// The answer is not even JSON.
    #[error("the answer is not JSON")]
    NotJson(#[source] serde_yaml::Error),
    /// Standard output is closed.
    #[error("cannot write to standard output")]
    Output(#[source] io::Error),
}

impl AskError {
    /// The exit status of a program that ends by it.
    pub fn exit_status(&self) -> u8 {
        match self {
            Self::Kubeconfig(_) | Self::Refused { code: 400, .. } => REFUSED,
            _ => FAILED,
        }
    }

    /// Whether the same question may be answered a little later.
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Refused { code, .. } => *code == 429 || *code >= 500,
            Self::Unreachable(_) => true,
            _ => false,
        }
    }
}

/// A question that can be asked again.
pub struct Question {
    client: Client,
    target: String,
}

impl Question {
    /// Finds the API server. No word is sent yet.
    pub async fn new(metrics: Metrics) -> Result<Self, AskError> {
        let mut config = config(&metrics)
            .await
            .map_err(|error| AskError::Kubeconfig(Box::new(error)))?;
        config.read_timeout = Some(PATIENCE);
        // A refusal is an answer; whoever watches asks again by itself.
        config.default_retry = false;
        let namespace = metrics.namespace.as_ref().unwrap_or(&config.default_namespace);
        let mut target = format!(
            "/apis/{AGGREGATED_API_VERSION}/namespaces/{namespace}/{PLURAL}/{}/metrics",
            metrics.name
        );
        // Numbers that are parsed and written again may differ in their last digit: JSON is shown as the server writes it.
        let pretty = (metrics.output == Format::Json).then(|| "true".to_owned());
        let query = [
            ("window", &metrics.window),
            ("view", &metrics.view),
            ("pretty", &pretty),
        ];
        let query = query.iter().filter_map(|(name, value)| Some((name, value.as_ref()?)));
        for ((name, value), mark) in query.zip(['?', '&', '&']) {
            target.extend([mark.to_string(), format!("{name}="), encode(value)]);
        }
        let client = Client::try_from(config).map_err(|error| AskError::Client(Box::new(error)))?;
        Ok(Self { client, target })
    }

    /// Asks.
    pub async fn ask(&self) -> Result<Answer, AskError> {
        let request = Request::get(&self.target).body(Vec::new());
        let request = request.map_err(|error| AskError::Client(Box::new(kube::Error::HttpError(error))))?;
        match self.client.request_text(request).await {
            Ok(text) => Ok(Answer(text)),
            Err(kube::Error::Api(status)) => Err(AskError::Refused {
                code: status.code,
                message: status.message.split_whitespace().collect::<Vec<_>>().join(" "),
            }),
            // Its own words add nothing to the cause.
            Err(kube::Error::Service(cause)) => Err(AskError::Unreachable(cause)),
            Err(error) => Err(AskError::Unreachable(Box::new(error))),
        }
    }
}

async fn config(metrics: &Metrics) -> Result<Config, KubeconfigError> {
    let options = KubeConfigOptions {
        context: metrics.context.clone(),
        ..KubeConfigOptions::default()
    };
    match &metrics.kubeconfig {
        Some(path) => Config::from_custom_kubeconfig(Kubeconfig::read_from(path)?, &options).await,
        None => Config::from_kubeconfig(&options).await,
    }
}

/// A value of a query, with everything encoded that is not plain.
fn encode(value: &str) -> String {
    value
        .bytes()
        .map(|byte| match byte {
            b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' | b'-' | b'.' => char::from(byte).to_string(),
            _ => format!("%{byte:02X}"),
        })
        .collect()
}

/// The text of an answer. JSON and YAML show all of it, also what a newer operator says and this program does not know.
pub struct Answer(String);

impl Answer {
    /// JSON as the server indents it.
    pub fn json(&self) -> String {
        self.0.clone()
    }

    /// YAML. This type of value keeps the order of members.
    pub fn yaml(&self) -> Result<String, AskError> {
        // JSON is YAML.
        let whole: Value = serde_yaml::from_str(&self.0).map_err(AskError::NotJson)?;
        Ok(format::yaml(&whole))
    }

    /// What this program knows of it.
    pub fn metrics(&self) -> Result<ModelDeploymentMetrics, AskError> {
        serde_json::from_str(&self.0).map_err(AskError::NotMetrics)
    }
}
