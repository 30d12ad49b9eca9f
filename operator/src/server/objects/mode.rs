//! How much of `modeldeployments` is served under `worker.gpustack.ai/v1`.
//!
//! Knows verbs and methods; nothing of how one is carried out.

use clap::ValueEnum;

/// What may be done with the objects. Their metrics are served in every mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Mode {
    /// Everything.
    #[default]
    Full,
    /// get, list and watch.
    ReadOnly,
    /// Nothing.
    Off,
}

impl Mode {
    /// Every mode.
    pub(in crate::server) const ALL: [Mode; 3] = [Mode::Full, Mode::ReadOnly, Mode::Off];

    /// Verbs of the objects, in Kubernetes' order.
    pub(in crate::server) fn verbs(self) -> &'static [&'static str] {
        match self {
            Mode::Full => &[
                "delete",
                "deletecollection",
                "get",
                "list",
                "patch",
                "create",
                "update",
                "watch",
            ],
            Mode::ReadOnly => &["get", "list", "watch"],
            Mode::Off => &[],
        }
    }

    /// Verbs of their `status`.
    pub(in crate::server) fn status_verbs(self) -> &'static [&'static str] {
        match self {
            Mode::Full => &["get", "patch", "update"],
            Mode::ReadOnly => &["get"],
            Mode::Off => &[],
        }
    }

    /// Methods of a collection, of an object and of its `status`, as an `Allow` header lists them.
    pub(super) fn allow(self, named: bool, status: bool) -> &'static str {
        match (self, named, status) {
            (Mode::Off, _, _) => "",
            (Mode::ReadOnly, _, _) => "GET, HEAD",
            (Mode::Full, true, true) => "GET, HEAD, PATCH, PUT",
            (Mode::Full, true, false) => "DELETE, GET, HEAD, PATCH, PUT",
            (Mode::Full, false, _) => "DELETE, GET, HEAD, POST",
        }
    }
}
