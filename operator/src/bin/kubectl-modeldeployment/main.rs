//! `kubectl modeldeployment`: the metrics subresource for people. kubectl finds this program on the `PATH` by its name.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use model_deployment_operator::console::{self, fail};
use model_deployment_operator::format::Format;
use model_deployment_operator::table::table;

mod ask;
mod watch;

use ask::{Answer, AskError, Question};

/// Shows what ModelDeployments do.
#[derive(Debug, Parser)]
#[command(
    name = "kubectl-modeldeployment",
    bin_name = "kubectl modeldeployment",
    version,
    arg_required_else_help = true
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show what the engines and the router of a ModelDeployment measure now, and what is missing and why.
    Metrics(Metrics),
}

/// Exit status 1 where there is no answer, 2 where the arguments, the query or the kubeconfig are wrong.
#[derive(Debug, Args)]
struct Metrics {
    /// Name of the ModelDeployment.
    #[arg(value_parser = object_name)]
    name: String,
    /// Its namespace; the context's when left out.
    #[arg(short, long, value_parser = object_name)]
    namespace: Option<String>,
    /// Measure over two reads this far apart, from 1s to 3s, instead of since an earlier read.
    #[arg(long, value_name = "DURATION")]
    window: Option<String>,
    /// Which lists to ask for: standard, or full, which is not there yet.
    #[arg(long)]
    view: Option<String>,
    /// How the answer is written.
    #[arg(short, long, default_value = "table")]
    output: Format,
    /// Go on asking every two seconds until Ctrl-C.
    #[arg(short, long)]
    watch: bool,
    /// The kubeconfig; `KUBECONFIG` or ~/.kube/config when left out.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig; its current one when left out.
    #[arg(long)]
    context: Option<String>,
}

/// A name that can stand in a path.
fn object_name(text: &str) -> Result<String, &'static str> {
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
    let begins = text.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
    match begins && text.bytes().all(fits) {
        true => Ok(text.to_owned()),
        false => Err("not a name of an object: lower-case letters, digits, '-' and '.'"),
    }
}

fn main() -> ExitCode {
    let Arguments {
        command: Command::Metrics(metrics),
    } = match console::arguments() {
        Ok(arguments) => arguments,
        Err(status) => return status,
    };
    // kube asks for the process's provider.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let outcome = tokio::runtime::Runtime::new()
        .map_err(AskError::Runtime)
        .and_then(|runtime| runtime.block_on(run(metrics)));
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(AskError::Output(error)) => console::finish(Err(error), ExitCode::SUCCESS),
        Err(error) => fail(&error, error.exit_status()),
    }
}

async fn run(metrics: Metrics) -> Result<(), AskError> {
    let (format, watched) = (metrics.output, metrics.watch);
    let question = Question::new(metrics).await?;
    if watched {
        return watch::watch(&question, format).await;
    }
    console::print(&write(&question.ask().await?, format)?).map_err(AskError::Output)
}

fn write(answer: &Answer, format: Format) -> Result<String, AskError> {
    Ok(match format {
        Format::Json => answer.json(),
        Format::Yaml => answer.yaml()?,
        Format::Table => table(&answer.metrics()?, console::has_colours()),
    })
}
