//! The codes of `missing[]` (metrics contract, section 6). Knows when a code holds only as a sentence.

use std::fmt;

/// The machine's word for why a source did not contribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "`Code::meaning` says what each is")]
pub enum Code {
    NoPods,
    PodsMissing,
    LimitReached,
    NoAddress,
    NotRunning,
    Terminating,
    Refused,
    Timeout,
    TlsUntrusted,
    TlsClientCertificate,
    HttpStatus,
    TooLarge,
    NotExposition,
    AddressDenied,
    Unreadable,
    Absent,
    NotUsable,
    FirstSample,
    Reset,
    NoObservations,
    NoQueries,
    Inconsistent,
    IncompatibleWindows,
    NotExportedYet,
    Unsupported,
    Idle,
    TakeOver,
}

impl Code {
    /// Every code, in the order of the contract's table.
    pub const ALL: [Self; 27] = [
        Self::NoPods,
        Self::PodsMissing,
        Self::LimitReached,
        Self::NoAddress,
        Self::NotRunning,
        Self::Terminating,
        Self::Refused,
        Self::Timeout,
        Self::TlsUntrusted,
        Self::TlsClientCertificate,
        Self::HttpStatus,
        Self::TooLarge,
        Self::NotExposition,
        Self::AddressDenied,
        Self::Unreadable,
        Self::Absent,
        Self::NotUsable,
        Self::FirstSample,
        Self::Reset,
        Self::NoObservations,
        Self::NoQueries,
        Self::Inconsistent,
        Self::IncompatibleWindows,
        Self::NotExportedYet,
        Self::Unsupported,
        Self::Idle,
        Self::TakeOver,
    ];

    /// Whether an entry of this code makes the answer partial. `NotExportedYet` does so by itself; an entry whose documented pair was
    /// read says otherwise.
    pub fn required(self) -> bool {
        !matches!(
            self,
            Self::Terminating | Self::Unsupported | Self::Idle | Self::TakeOver
        )
    }

    /// When it holds, for the reference page.
    pub fn meaning(self) -> &'static str {
        match self {
            Self::NoPods => "The role or the router has none of its expected Pods.",
            Self::PodsMissing => "The role or the router has some of its expected Pods, not all.",
            Self::LimitReached => {
                "The deployment has more Pods than one request reads; some of this role were left out."
            }
            Self::NoAddress => "The Pod has no IP address yet.",
            Self::NotRunning => "The Pod is not running.",
            Self::Terminating => "The Pod is being deleted.",
            Self::Refused => "Nothing listens on the Pod's metrics port.",
            Self::Timeout => "The Pod did not answer completely in time.",
            Self::TlsUntrusted => "The Pod's certificate is not trusted for its address.",
            Self::TlsClientCertificate => "The Pod asks for a client certificate.",
            Self::HttpStatus => "The Pod answered with a status other than 200; the reason names it.",
            Self::TooLarge => "The body, or what is read of it, is over its cap.",
            Self::NotExposition => "The body is not metrics text.",
            Self::AddressDenied => "The Pod's address is one that this installation does not read.",
            Self::Unreadable => "The Pod could not be read for another reason.",
            Self::Absent => "The series is not in a body that was read.",
            Self::NotUsable => "The series holds a value or a line that cannot be used.",
            Self::FirstSample => "There is no earlier read within five minutes to measure from.",
            Self::Reset => "A counter fell, a series vanished, or the container restarted inside the window.",
            Self::NoObservations => "Nothing was recorded in the window, though the Pod served requests.",
            Self::NoQueries => "The cache was not asked in the window, though the Pod served requests.",
            Self::Inconsistent => "There are more hits than queries, or more errors than requests.",
            Self::IncompatibleWindows => "The counters of the ratio have no common window.",
            Self::NotExportedYet => "The series does not exist before its first use, and was not used yet.",
            Self::Unsupported => "The deployment's configuration does not provide the source.",
            Self::Idle => "The Pod served no request in the window.",
            Self::TakeOver => "The role's own command owns its endpoint.",
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The variants are spelled as the contract spells the codes.
        fmt::Debug::fmt(self, f)
    }
}

/// A word that is no code.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a code of missing[]")]
pub struct UnknownCode(pub String);

impl std::str::FromStr for Code {
    type Err = UnknownCode;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|code| code.to_string() == word)
            .ok_or_else(|| UnknownCode(word.to_owned()))
    }
}
