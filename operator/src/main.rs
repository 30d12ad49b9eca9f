//! The operator binary: reads the command line and does what it says.

use std::error::Error;
use std::io::Write;
use std::process::ExitCode;

use clap::Parser;

mod arguments;
mod run;
mod telemetry;

use arguments::{Arguments, Command, Render};
use model_deployment_operator::render_command;

/// Exit status where the work failed.
const FAILED: u8 = 1;
/// Exit status where the arguments or the input are wrong.
const REFUSED: u8 = 2;

fn main() -> ExitCode {
    match Arguments::parse().command {
        Command::Crd => print(&model_deployment_crds::definition::yaml()),
        Command::Run(options) => serve(*options),
        Command::Fields => print(&model_deployment::fields::markdown()),
        Command::Render(Render { file, output, images }) => match render_command::run(&file, output, &images.into()) {
            Ok(text) => print(&text),
            Err(error) => fail(&error, REFUSED),
        },
    }
}

/// Runs the operator on a runtime of its own.
fn serve(options: arguments::Run) -> ExitCode {
    let outcome = tokio::runtime::Runtime::new()
        .map_err(Box::<dyn Error>::from)
        .and_then(|runtime| runtime.block_on(run::run(options)).map_err(Box::from));
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&*error, FAILED),
    }
}

/// Says on standard error what went wrong.
fn fail(error: &dyn Error, status: u8) -> ExitCode {
    eprintln!("error: {}", sentence(error));
    ExitCode::from(status)
}

/// An error and its causes in one sentence.
fn sentence(error: &dyn Error) -> String {
    match error.source() {
        Some(cause) => format!("{error}: {}", sentence(cause)),
        None => error.to_string(),
    }
}

/// Writes to standard output. A reader that has seen enough is not a failure.
fn print(text: &str) -> ExitCode {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            eprintln!("error: cannot write to standard output: {error}");
            ExitCode::from(FAILED)
        }
        _ => ExitCode::SUCCESS,
    }
}
