//! Owns showing what takes long and for how long: one changing line on a terminal, a plain line now and then elsewhere.

use std::{
    io::{self, IsTerminal},
    process::{Output, Stdio},
    time::Duration,
};

use tokio::{
    process::Command,
    time::{Instant, interval_at},
};

const ON_TERMINAL: Duration = Duration::from_secs(1);
const IN_LOG: Duration = Duration::from_secs(15);

/// Runs a command to its end and keeps what it prints. What takes less than a second shows nothing.
pub(crate) async fn run(what: &str, mut command: Command) -> io::Result<Output> {
    let terminal = io::stderr().is_terminal();
    let period = if terminal { ON_TERMINAL } else { IN_LOG };
    let start = Instant::now();
    let mut output = Box::pin(command.stdin(Stdio::null()).kill_on_drop(true).output());
    let mut ticks = interval_at(start + ON_TERMINAL, period);
    let mut shown = false;
    let output = loop {
        tokio::select! {
            output = &mut output => break output,
            _ = ticks.tick() => {
                let line = format!("{what} … {}", elapsed(start.elapsed()));
                if terminal { eprint!("\r\x1b[K{line}") } else { eprintln!("{line}") }
                shown = true;
            }
        }
    };
    if shown {
        let clear = if terminal { "\r\x1b[K" } else { "" };
        eprintln!("{clear}{what}: {} after {}", ending(&output), elapsed(start.elapsed()));
    }
    output
}

fn ending(output: &io::Result<Output>) -> &'static str {
    match output {
        Ok(output) if output.status.success() => "done",
        _ => "failed",
    }
}

fn elapsed(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..60 => format!("{seconds} s"),
        seconds => format!("{} min {:02} s", seconds / 60, seconds % 60),
    }
}
