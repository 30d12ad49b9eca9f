//! How our programs speak to whoever started them: arguments in, text on standard output, one sentence on standard error, an exit
//! status. Knows no command.

use std::error::Error;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;

/// Exit status where the work failed.
pub const FAILED: u8 = 1;
/// Exit status where the arguments or the input are wrong.
pub const REFUSED: u8 = 2;

/// The command line of this process. Help and version are printed and end it.
///
/// # Errors
/// The exit status, once the sentence is on standard error.
pub fn arguments<T: Parser>() -> Result<T, ExitCode> {
    T::try_parse().map_err(|error| match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            error.exit()
        }
        // What is wrong is clap's first paragraph; usage and hints follow it.
        _ => {
            let text = error.to_string();
            let wrong = text.split("\n\n").next().unwrap_or_default();
            eprintln!("{}", wrong.split_whitespace().collect::<Vec<_>>().join(" "));
            ExitCode::from(REFUSED)
        }
    })
}

/// Says on standard error what went wrong.
pub fn fail(error: &dyn Error, status: u8) -> ExitCode {
    eprintln!("error: {}", sentence(error));
    ExitCode::from(status)
}

/// An error and its causes in one sentence. A cause that the sentence already tells is not told twice.
pub fn sentence(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let told = cause.to_string();
        if !text.contains(&told) {
            text = format!("{text}: {told}");
        }
        next = cause.source();
    }
    text
}

/// Writes to standard output.
///
/// # Errors
/// Where it cannot be written to.
pub fn print(text: &str) -> io::Result<()> {
    let mut output = io::stdout().lock();
    output.write_all(text.as_bytes())?;
    output.flush()
}

/// The exit status of a program that printed. A reader that has seen enough is not a failure.
pub fn finish(printed: io::Result<()>, status: ExitCode) -> ExitCode {
    match printed {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            eprintln!("error: cannot write to standard output: {error}");
            ExitCode::from(FAILED)
        }
        _ => status,
    }
}

/// Whether standard output is a person's screen.
pub fn is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Whether to colour what is printed: on a terminal, unless `NO_COLOR` is set to anything (<https://no-color.org>).
pub fn has_colours() -> bool {
    is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}
