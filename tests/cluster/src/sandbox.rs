//! Stands in until the sandbox is merged.

use std::process::ExitCode;

pub(crate) const ROLE: &str = "test-cluster-sandbox";

pub(crate) fn init() -> ExitCode {
    ExitCode::FAILURE
}
