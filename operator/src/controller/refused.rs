//! What the API server refused to do, in the words of a condition.

use kube::core::Status;
use thiserror::Error;

/// Why the plan is not carried out whole.
#[derive(Debug, Error)]
pub enum Blocked {
    /// The API server said no, or could not be reached.
    #[error("cannot {doing} {kind} {name}: {}", sentence(call))]
    Call {
        /// `apply`, `delete` or `read`.
        doing: &'static str,
        /// Kind of the object.
        kind: String,
        /// Its name.
        name: String,
        /// What was answered. Not a source: its sentence is part of this one.
        call: Box<kube::Error>,
    },
    /// Somebody else's object has the name.
    #[error(
        "{kind} {name} exists and does not belong to this ModelDeployment: rename or delete it, or create the ModelDeployment under another name"
    )]
    Taken {
        /// Kind of the object.
        kind: String,
        /// Its name.
        name: String,
    },
}

impl Blocked {
    /// The reason of the condition.
    pub fn reason(&self) -> &'static str {
        let Self::Call { call, .. } = self else {
            return "NameTaken";
        };
        match call.as_ref() {
            kube::Error::Api(status) if is_terminating(status) => "NamespaceTerminating",
            kube::Error::Api(status) if status.code == 403 && status.message.contains("exceeded quota") => {
                "QuotaExceeded"
            }
            kube::Error::Api(status) if status.code == 403 => "Forbidden",
            kube::Error::Api(status) if status.code == 422 || status.code == 400 => "ObjectRefused",
            _ => "ApiUnavailable",
        }
    }

    /// Whether trying again soon may help: otherwise somebody has to do something first, or the namespace is on its way out.
    pub fn is_transient(&self) -> bool {
        self.reason() == "ApiUnavailable"
    }
}

fn is_terminating(status: &Status) -> bool {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    status.code == 403 && causes.into_iter().any(|cause| cause.reason == "NamespaceTerminating")
}

/// The API server's own sentence, or what happened to the call.
pub fn sentence(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        other => other.to_string(),
    }
}
