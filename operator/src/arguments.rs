//! The command line: one binary, a few commands. Every option of `run` is a flag and an environment variable.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use ipnet::IpNet;
use jiff::Timestamp;
use model_deployment::render::Defaults;
use model_deployment_operator::certificates::Provider;
use model_deployment_operator::format::Format;
use model_deployment_operator::render_command::Output;
use model_deployment_operator::server::metrics::{View, window};
use model_deployment_operator::snapshot_command::{Given, Question, Restart};

/// Serves LLMs on Kubernetes: renders and owns the Pods of a ModelDeployment, and answers its metrics.
#[derive(Debug, Parser)]
#[command(name = "model-deployment-operator", version, arg_required_else_help = true)]
pub struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What the binary does.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the operator: the controller and the aggregated API.
    Run(Box<Run>),
    /// Print the CustomResourceDefinition as YAML.
    Crd,
    /// Print what the operator would create for a ModelDeployment, without a cluster.
    Render(Render),
    /// Print what the metrics subresource would answer to given readings, without a cluster.
    Snapshot(Snapshot),
    /// Print the table of figures and the codes of `missing[]` as Markdown.
    Fields,
}

/// What to render. Exit status 2 where the manifest is refused.
#[derive(Clone, Debug, Args)]
pub struct Render {
    /// A file with one ModelDeployment in YAML or JSON; `-` is standard input.
    #[arg(short, long, value_name = "FILE")]
    pub file: String,
    /// How the objects are written.
    #[arg(short, long, default_value = "yaml")]
    pub output: Output,
    /// Images that the manifest leaves to the operator.
    #[command(flatten)]
    pub images: Images,
}

/// What to answer. Exit status 1 where the subresource would answer 503, 2 where the manifest or a reading is refused.
#[derive(Clone, Debug, Args)]
pub struct Snapshot {
    /// A file with one ModelDeployment in YAML or JSON; `-` is standard input.
    #[arg(short, long, value_name = "FILE")]
    pub file: String,
    /// A reading of one Pod: its role (or `router` or `coordinator`), its number there from 0, and a file of exposition text, a URL or
    /// `error:CODE`. SECONDS, which may have decimals, say when it was made, counted from --start; earlier readings of a Pod are reads
    /// that happened before, the last is the one that the answer reports. A URL is read now and names an IP address or localhost; CODE is
    /// a code of a Pod that could not be read, such as Timeout or HttpStatus=500. A Pod without a reading does not exist. May be repeated.
    #[arg(long = "reading", value_name = "ROLE/ORDINAL[@SECONDS]=SOURCE")]
    pub readings: Vec<Given>,
    /// From when SECONDS count (RFC 3339). Ignored with URLs.
    #[arg(long, value_name = "TIME", default_value = "2000-01-01T00:00:00Z")]
    pub start: Timestamp,
    /// Read each URL twice, this far apart: a duration from 1s to 3s.
    #[arg(long, value_name = "DURATION", value_parser = window)]
    pub window: Option<Duration>,
    /// The container restarted between the readings around this time. May be repeated.
    #[arg(long, value_name = "ROLE/ORDINAL@SECONDS")]
    pub restarts: Vec<Restart>,
    /// Which lists to answer. This version answers standard only.
    #[arg(long, default_value = "standard")]
    pub view: View,
    /// How the answer is written; a refusal is JSON under `table` too.
    #[arg(short, long, default_value = "json")]
    pub output: Format,
    /// Images that the manifest leaves to the operator.
    #[command(flatten)]
    pub images: Images,
}

/// Images that a ModelDeployment leaves to the operator.
#[derive(Clone, Debug, Args)]
pub struct Images {
    /// Default image of vllm-router.
    #[arg(
        long,
        default_value_t = Defaults::default().vllm_router_image,
        env = "MODEL_DEPLOYMENT_OPERATOR_VLLM_ROUTER_IMAGE"
    )]
    pub vllm_router_image: String,
    /// Default image of sglang-gateway.
    #[arg(
        long,
        default_value_t = Defaults::default().sglang_gateway_image,
        env = "MODEL_DEPLOYMENT_OPERATOR_SGLANG_GATEWAY_IMAGE"
    )]
    pub sglang_gateway_image: String,
    /// Default image of llm-d-router.
    #[arg(
        long,
        default_value_t = Defaults::default().llm_d_router_image,
        env = "MODEL_DEPLOYMENT_OPERATOR_LLM_D_ROUTER_IMAGE"
    )]
    pub llm_d_router_image: String,
}

impl From<Images> for Defaults {
    fn from(images: Images) -> Self {
        Self {
            vllm_router_image: images.vllm_router_image,
            sglang_gateway_image: images.sglang_gateway_image,
            llm_d_router_image: images.llm_d_router_image,
        }
    }
}

impl From<Snapshot> for Question {
    fn from(snapshot: Snapshot) -> Self {
        Self {
            file: snapshot.file,
            readings: snapshot.readings,
            restarts: snapshot.restarts,
            start: snapshot.start,
            window: snapshot.window,
            view: snapshot.view,
            defaults: snapshot.images.into(),
        }
    }
}

/// Options of the operator. The chart sets what an installation needs.
#[derive(Clone, Debug, Args)]
pub struct Run {
    /// Address to listen on. `::` takes IPv4 too; where the host has no IPv6, `0.0.0.0` is used instead.
    #[arg(long, default_value = "::", env = "MODEL_DEPLOYMENT_OPERATOR_BIND_ADDRESS", value_parser = address)]
    pub bind_address: IpAddr,
    /// Port of the aggregated API and of /healthz, /livez and /readyz, over HTTPS.
    #[arg(long, default_value_t = 8443, env = "MODEL_DEPLOYMENT_OPERATOR_SECURE_PORT")]
    pub secure_port: u16,
    /// Port of the operator's own /metrics, over HTTP.
    #[arg(long, default_value_t = 8080, env = "MODEL_DEPLOYMENT_OPERATOR_TELEMETRY_PORT")]
    pub telemetry_port: u16,
    /// Namespace that the operator runs in.
    #[arg(long, env = "MODEL_DEPLOYMENT_OPERATOR_NAMESPACE")]
    pub namespace: String,
    /// Name of this Pod.
    #[arg(long, env = "MODEL_DEPLOYMENT_OPERATOR_POD_NAME")]
    pub pod_name: String,
    /// Service through which the API server reaches the aggregated API.
    #[arg(
        long,
        default_value = "model-deployment-operator",
        env = "MODEL_DEPLOYMENT_OPERATOR_SERVICE_NAME"
    )]
    pub service_name: String,
    /// Who keeps the serving certificate.
    #[arg(
        long,
        default_value = "operator",
        env = "MODEL_DEPLOYMENT_OPERATOR_CERTIFICATE_PROVIDER"
    )]
    pub certificate_provider: Provider,
    /// Secret that holds the serving certificate.
    #[arg(
        long,
        default_value = "model-deployment-operator-certificate",
        env = "MODEL_DEPLOYMENT_OPERATOR_CERTIFICATE_SECRET"
    )]
    pub certificate_secret: String,
    /// Secret that holds the operator's own certificate authority and its key.
    #[arg(
        long,
        default_value = "model-deployment-operator-certificate-ca",
        env = "MODEL_DEPLOYMENT_OPERATOR_AUTHORITY_SECRET"
    )]
    pub authority_secret: String,
    /// Lease by which one replica leads.
    #[arg(
        long,
        default_value = "model-deployment-operator",
        env = "MODEL_DEPLOYMENT_OPERATOR_LEASE_NAME"
    )]
    pub lease_name: String,
    /// PEM file of further authorities that an HTTPS Pod's certificate may chain to, beside the system's.
    #[arg(long, env = "MODEL_DEPLOYMENT_OPERATOR_SCRAPE_CA_FILE")]
    pub scrape_ca_file: Option<PathBuf>,
    /// Address range (CIDR) that Pods may be read at although it is denied by default, such as a loopback range. May be repeated.
    #[arg(long, env = "MODEL_DEPLOYMENT_OPERATOR_SCRAPE_ALLOW_RANGE", value_delimiter = ',')]
    pub scrape_allow_range: Vec<IpNet>,
    /// Read Pods that share their node's network.
    #[arg(long, env = "MODEL_DEPLOYMENT_OPERATOR_SCRAPE_ALLOW_HOST_NETWORK")]
    pub scrape_allow_host_network: bool,
    /// Images that a ModelDeployment leaves to the operator.
    #[command(flatten)]
    pub images: Images,
    /// Replicas of one role that a rollout may take away at a time.
    #[arg(
        long,
        default_value_t = 1,
        env = "MODEL_DEPLOYMENT_OPERATOR_MAX_UNAVAILABLE",
        value_parser = clap::value_parser!(u32).range(1..)
    )]
    pub max_unavailable: u32,
    /// How long to go on answering after a termination signal, so that nobody is sent here any more when the listener closes.
    #[arg(long, default_value = "10s", env = "MODEL_DEPLOYMENT_OPERATOR_SHUTDOWN_DELAY", value_parser = duration)]
    pub shutdown_delay: Duration,
    /// Form of log lines.
    #[arg(long, default_value = "text", env = "MODEL_DEPLOYMENT_OPERATOR_LOG_FORMAT")]
    pub log_format: LogFormat,
    /// Which log lines are written, as tracing-subscriber's filter directives.
    #[arg(long, default_value = "info", env = "MODEL_DEPLOYMENT_OPERATOR_LOG_FILTER")]
    pub log_filter: String,
}

/// Form of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// An IP address, in brackets or not.
fn address(text: &str) -> Result<IpAddr, std::net::AddrParseError> {
    text.trim_start_matches('[').trim_end_matches(']').parse()
}

/// A duration such as `10s`, `1m30s` or `500ms`.
fn duration(text: &str) -> Result<Duration, String> {
    text.parse::<jiff::SignedDuration>()
        .map_err(|error| error.to_string())
        .and_then(|duration| Duration::try_from(duration).map_err(|_| format!("{text} is negative")))
}
