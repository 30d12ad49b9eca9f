//! Why a Pod could not be read: the codes of the metrics contract, section 6, that a fetch can meet.

use std::fmt;

use crate::fields::Code;

/// A failed fetch. `Display` is one sentence for the user: no address, no URL, no header, no transport text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unread {
    /// Nothing listens on the port.
    Refused,
    /// A limit in time was reached.
    Timeout,
    /// The server's certificate does not hold.
    TlsUntrusted,
    /// The server insists on a certificate of ours.
    TlsClientCertificate,
    /// The server answered with this status, which is not 200.
    HttpStatus(u16),
    /// The body is over the cap.
    TooLarge,
    /// The address is not one that is read.
    AddressDenied,
    /// Anything else.
    Unreadable(Unreadable),
}

/// What made an answer unreadable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unreadable {
    /// The connection failed or broke.
    Connection,
    /// No TLS was agreed on.
    Tls,
    /// The answer is no HTTP, or stops short.
    Http,
    /// The body is encoded, though only `identity` was asked for.
    Encoding,
}

impl Unread {
    /// The code of the contract. The number of an [`Unread::HttpStatus`] is in its sentence.
    pub fn code(self) -> Code {
        match self {
            Self::Refused => Code::Refused,
            Self::Timeout => Code::Timeout,
            Self::TlsUntrusted => Code::TlsUntrusted,
            Self::TlsClientCertificate => Code::TlsClientCertificate,
            Self::HttpStatus(_) => Code::HttpStatus,
            Self::TooLarge => Code::TooLarge,
            Self::AddressDenied => Code::AddressDenied,
            Self::Unreadable(_) => Code::Unreadable,
        }
    }
}

impl fmt::Display for Unread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Refused => "The Pod refused the connection: nothing listens on its metrics port.",
            Self::Timeout => "The Pod did not answer completely in time: its server hangs, or a network policy drops the connection.",
            Self::TlsUntrusted => "The Pod's certificate is not trusted, has expired, or is not valid for the Pod's address.",
            Self::TlsClientCertificate => "The Pod asks for a client certificate.",
            Self::HttpStatus(status) => return write!(f, "The Pod answered with HTTP status {status}."),
            Self::TooLarge => "The Pod's metrics are larger than 1 MiB.",
            Self::AddressDenied => "The Pod's address is one that this installation does not read: host network, loopback, link-local, multicast or metadata.",
            Self::Unreadable(Unreadable::Connection) => "The connection to the Pod failed or broke.",
            Self::Unreadable(Unreadable::Tls) => "No TLS connection to the Pod could be agreed on.",
            Self::Unreadable(Unreadable::Http) => "The Pod's answer is not complete, valid HTTP.",
            Self::Unreadable(Unreadable::Encoding) => "The Pod encoded its metrics, though only plain text was asked for.",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_is_one_sentence_and_a_status_stands_in_it() {
        let all = [
            Unread::Refused,
            Unread::Timeout,
            Unread::TlsUntrusted,
            Unread::TlsClientCertificate,
            Unread::HttpStatus(503),
            Unread::TooLarge,
            Unread::AddressDenied,
            Unread::Unreadable(Unreadable::Connection),
            Unread::Unreadable(Unreadable::Tls),
            Unread::Unreadable(Unreadable::Http),
            Unread::Unreadable(Unreadable::Encoding),
        ];
        for unread in all {
            let sentence = unread.to_string();
            assert!(
                sentence.starts_with("The ") || sentence.starts_with("No "),
                "{sentence}"
            );
            assert!(
                sentence.ends_with('.') && !sentence.trim_end_matches('.').contains(". "),
                "{sentence}"
            );
        }
        assert_eq!(
            Unread::HttpStatus(503).to_string(),
            "The Pod answered with HTTP status 503."
        );
        assert_eq!(Unread::HttpStatus(503).code(), Code::HttpStatus);
    }
}
