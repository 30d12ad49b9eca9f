//! The operator binary: reads the command line and does what it says.

use std::error::Error;
use std::future::Future;
use std::process::ExitCode;

mod arguments;
mod background;
mod log;
mod run;

use arguments::{Arguments, Command, Render, Snapshot};
use model_deployment_operator::console::{self, FAILED, REFUSED, fail};
use model_deployment_operator::format::{self, Format};
use model_deployment_operator::{render_command, snapshot_command, table};

fn main() -> ExitCode {
    let arguments: Arguments = match console::arguments() {
        Ok(arguments) => arguments,
        Err(status) => return status,
    };
    match arguments.command {
        Command::Crd => print(&model_deployment_crds::definition::yaml()),
        Command::Run(options) => match wait(run::run(*options)) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => fail(&*error, FAILED),
        },
        Command::Fields => print(&model_deployment::fields::markdown()),
        Command::Render(Render { file, output, images }) => match render_command::run(&file, output, &images.into()) {
            Ok(text) => print(&text),
            Err(error) => fail(&error, REFUSED),
        },
        Command::Snapshot(options) => answer(options),
    }
}

/// Prints what the subresource would answer; a refusal is a failure.
fn answer(options: Snapshot) -> ExitCode {
    let output = options.output;
    match wait(snapshot_command::run(options.into())) {
        Ok(Ok(metrics)) => print(&match output {
            Format::Json => format::json(&metrics),
            Format::Yaml => format::yaml(&metrics),
            Format::Table => table::table(&metrics, console::has_colours()),
        }),
        Ok(Err(status)) => {
            let text = match output {
                Format::Json | Format::Table => format::json(&status),
                Format::Yaml => format::yaml(&status),
            };
            console::finish(console::print(&text), ExitCode::from(FAILED))
        }
        Err(error) => fail(&*error, REFUSED),
    }
}

/// Waits for work on a runtime of its own.
fn wait<T, E: Error + 'static>(work: impl Future<Output = Result<T, E>>) -> Result<T, Box<dyn Error>> {
    Ok(tokio::runtime::Runtime::new()?.block_on(work)?)
}

fn print(text: &str) -> ExitCode {
    console::finish(console::print(text), ExitCode::SUCCESS)
}
