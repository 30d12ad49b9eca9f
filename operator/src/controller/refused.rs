//! What the API server refused to do, in the words of a condition.

use kube::core::Status;
use thiserror::Error;

use super::events::names;
use super::memory::Key;

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
    /// A call that was refused.
    pub fn call(doing: &'static str, (kind, name): &Key, call: kube::Error) -> Self {
        Self::Call {
            doing,
            kind: kind.clone(),
            name: name.clone(),
            call: Box::new(call),
        }
    }

    /// A name that is somebody else's.
    pub fn taken((kind, name): &Key) -> Self {
        Self::Taken {
            kind: kind.clone(),
            name: name.clone(),
        }
    }

    /// Whether the name is somebody else's.
    pub fn is_taken(&self) -> bool {
        matches!(self, Self::Taken { .. })
    }

    /// Kind and name of the object.
    pub fn object(&self) -> (&str, &str) {
        match self {
            Self::Call { kind, name, .. } | Self::Taken { kind, name } => (kind, name),
        }
    }

    /// Where it stands among others: numbered names in the order of their numbers.
    pub fn order(&self) -> (String, usize, String) {
        let (kind, name) = self.object();
        (kind.to_owned(), name.len(), name.to_owned())
    }

    /// The reason of the condition.
    pub fn reason(&self) -> &'static str {
        let Self::Call { call, .. } = self else {
            return "NameTaken";
        };
        let kube::Error::Api(status) = call.as_ref() else {
            return "ApiUnavailable";
        };
        match status.code {
            403 if is_terminating(status) => "NamespaceTerminating",
            403 if status.message.contains("exceeded quota") => "QuotaExceeded",
            401 | 403 => "Forbidden",
            // Asked too much, too long, or for what another call was changing.
            408 | 409 | 429 => "ApiUnavailable",
            400..500 => "ObjectRefused",
            _ => "ApiUnavailable",
        }
    }

    /// Whether trying again soon may help: otherwise somebody has to do something first, or the namespace is on its way out.
    pub fn is_transient(&self) -> bool {
        self.reason() == "ApiUnavailable"
    }

    /// Whether any other call would end the same way: nobody answers, or nothing is taken at all.
    pub fn concerns_every_call(&self) -> bool {
        let Self::Call { call, .. } = self else { return false };
        match call.as_ref() {
            kube::Error::Api(status) => is_terminating(status) || matches!(status.code, 401 | 429 | 503 | 504),
            _ => true,
        }
    }
}

/// Reason and message of a condition: the first of those that somebody has to do something about, or else the first, and what more there
/// is.
pub fn told(blocked: &[Blocked]) -> Option<(&'static str, String)> {
    let lasting = blocked.iter().find(|blocked| !blocked.is_transient());
    let first = lasting.or(blocked.first())?;
    let others = blocked.iter().filter(|other| other.object() != first.object());
    let others: Vec<_> = others
        .map(|other| format!("{} {}", other.object().0, other.object().1))
        .collect();
    let sentence = match others.len() {
        0 => first.to_string(),
        more => format!("{first}; {more} more could not be kept up: {}", names(&others)),
    };
    Some((first.reason(), sentence))
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
