//! Why a source did not contribute: a code, a sentence, and whether that makes the answer partial.

use crate::fields::Code;
use crate::scrape::Unread;

/// One reason of `missing[]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The machine's word.
    pub code: Code,
    /// One plain sentence: no address, no URL, no header, no transport text.
    pub reason: String,
    /// Whether it makes the answer partial.
    pub required: bool,
}

impl Fault {
    /// A fault that counts as its code says.
    pub fn new(code: Code, reason: impl Into<String>) -> Self {
        Self {
            code,
            reason: reason.into(),
            required: code.required(),
        }
    }

    /// A series that is born late and was not used yet.
    pub(super) fn not_exported_yet(reason: impl Into<String>, required: bool) -> Self {
        Self {
            required,
            ..Self::new(Code::NotExportedYet, reason)
        }
    }

    /// A failed fetch.
    pub(super) fn unread(unread: Unread) -> Self {
        Self::new(unread.code(), unread.to_string())
    }

    /// A body that is no metrics text.
    pub(super) fn not_exposition() -> Self {
        Self::new(Code::NotExposition, "The Pod's answer is not metrics text.")
    }
}
