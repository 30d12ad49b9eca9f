//! The operator binary: reads the command line and does what it says.

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;

mod arguments;

use arguments::{Arguments, Command};

fn main() -> ExitCode {
    match Arguments::parse().command {
        Command::Crd => print(&model_deployment_crds::definition::yaml()),
        Command::Run(_) => ExitCode::FAILURE,
    }
}

/// Writes to standard output. A reader that has seen enough is not a failure.
fn print(text: &str) -> ExitCode {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            eprintln!("cannot write to standard output: {error}");
            ExitCode::FAILURE
        }
        _ => ExitCode::SUCCESS,
    }
}
