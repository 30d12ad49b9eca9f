//! Asking again and again: a terminal is redrawn, anything else gets one answer after the other.

use std::time::Duration;

use model_deployment_operator::console::{self, sentence};
use model_deployment_operator::format::Format;
use tokio::signal;

use crate::ask::{AskError, Question};

/// From an answer to the next question: long enough for a window, short enough to watch.
const PAUSE: Duration = Duration::from_secs(2);

/// Clears a terminal and begins at its top.
const CLEAR: &str = "\x1b[2J\x1b[H";

/// Asks until Ctrl-C, until nobody reads any more, or until there can be no answer.
pub async fn watch(question: &Question, format: Format) -> Result<(), AskError> {
    tokio::select! {
        _ = signal::ctrl_c() => Ok(()),
        ended = repeat(question, format) => ended,
    }
}

async fn repeat(question: &Question, format: Format) -> Result<(), AskError> {
    let redraws = console::is_terminal();
    let between = match format {
        _ if redraws => CLEAR,
        Format::Json => "",
        Format::Yaml => "---\n",
        Format::Table => "\n",
    };
    let mut before = if redraws { CLEAR } else { "" };
    loop {
        match question.ask().await {
            Ok(answer) => {
                let text = crate::write(&answer, format)?;
                console::print(&format!("{before}{text}")).map_err(AskError::Output)?;
                before = between;
            }
            Err(error) if error.may_pass() => {
                if redraws {
                    console::print(CLEAR).map_err(AskError::Output)?;
                }
                eprintln!("error: {}", sentence(&error));
            }
            Err(error) => return Err(error),
        }
        tokio::time::sleep(PAUSE).await;
    }
}
