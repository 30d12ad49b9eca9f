//! The front proxy's trust: which client certificates may speak for a user, and in which headers.
//!
//! The API server publishes it in one ConfigMap. This module reads that ConfigMap's content and judges certificate chains by
//! it; how the content is kept current is `source`, what the headers say is `caller`.

pub mod caller;
pub mod source;

use std::collections::BTreeMap;

use http::HeaderName;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, TrustAnchor, UnixTime};
use webpki::{EndEntityCert, KeyUsage};

/// Why the published content cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Unusable {
    /// No front proxy is set up, so nobody can be identified.
    #[error("{0} is absent or empty")]
    Absent(&'static str),
    /// The bundle is not PEM, or a certificate in it cannot be a trust anchor.
    #[error("{key} holds a certificate that cannot be used: {reason}")]
    Certificate {
        /// The ConfigMap's key.
        key: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// A list is not a JSON array of strings.
    #[error("{key} is not a JSON array of strings")]
    List {
        /// The ConfigMap's key.
        key: &'static str,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// A header's name cannot be one.
    #[error("{key} holds {name:?}, which is not a header name")]
    Header {
        /// The ConfigMap's key.
        key: &'static str,
        /// The name.
        name: String,
    },
    /// Every user with a client certificate could speak for every other.
    #[error(
        "an authority in client-ca-file is also in requestheader-client-ca-file and requestheader-allowed-names is empty: \
         every user could speak for any other"
    )]
    SharedAuthority,
}

/// Why a connection may not speak for anyone.
#[derive(Debug, thiserror::Error)]
pub enum Untrusted {
    /// No client certificate was shown.
    #[error("no client certificate")]
    NoCertificate,
    /// Its chain does not end at the front proxy's authority, or is out of its time or purpose.
    #[error("the client certificate is not the front proxy's: {0}")]
    Chain(webpki::Error),
    /// It cannot be read.
    #[error("the client certificate cannot be read")]
    Unreadable,
    /// Its common name is not among the allowed ones.
    #[error("the client certificate's common name is not among the front proxy's names")]
    Name,
}

/// What the API server publishes about its front proxy.
#[derive(Debug)]
pub struct FrontProxy {
    roots: Vec<TrustAnchor<'static>>,
    /// Common names that may speak for a user. Empty: every one.
    allowed_names: Vec<String>,
    username_headers: Vec<HeaderName>,
    group_headers: Vec<HeaderName>,
    /// Lower case.
    extra_prefixes: Vec<String>,
    uid_headers: Vec<HeaderName>,
}

impl FrontProxy {
    /// Reads the ConfigMap's data.
    pub fn parse(data: &BTreeMap<String, String>) -> Result<Self, Unusable> {
        const ROOTS: &str = "requestheader-client-ca-file";
        const USERS: &str = "requestheader-username-headers";
        let bundle = certificates(data, ROOTS)?;
        if bundle.is_empty() {
            return Err(Unusable::Absent(ROOTS));
        }
        let allowed_names = list(data, "requestheader-allowed-names")?;
        if allowed_names.is_empty() {
            // A cluster without client-ca-file has no users with certificates, so nothing to share.
            let users = certificates(data, "client-ca-file").unwrap_or_default();
            if users.iter().any(|authority| bundle.contains(authority)) {
                return Err(Unusable::SharedAuthority);
            }
        }
        let username_headers = headers(data, USERS)?;
        if username_headers.is_empty() {
            return Err(Unusable::Absent(USERS));
        }
        let (mut roots, mut refused) = (Vec::new(), None);
        for authority in &bundle {
            match webpki::anchor_from_trusted_cert(authority) {
                Ok(anchor) => roots.push(anchor.to_owned()),
                Err(error) => refused = Some(error.to_string()),
            }
        }
        if let Some(reason) = refused {
            let unusable = Unusable::Certificate { key: ROOTS, reason };
            // One of several, as of an old kind, does not cost the others.
            if roots.is_empty() {
                return Err(unusable);
            }
            tracing::warn!(error = %unusable, "an authority of the front proxy is left out");
        }
        Ok(FrontProxy {
            roots,
            allowed_names,
            username_headers,
            group_headers: headers(data, "requestheader-group-headers")?,
            extra_prefixes: list(data, "requestheader-extra-headers-prefix")?
                .into_iter()
                .map(|prefix| prefix.to_ascii_lowercase())
                .collect(),
            // Never a default: an older API server does not strip a UID header that it does not know.
            uid_headers: headers(data, "requestheader-uid-headers")?,
        })
    }

    /// Whether a connection that showed `chain`, the leaf first, may speak for a user at `now`.
    pub fn trusts(&self, chain: &[CertificateDer<'_>], now: UnixTime) -> Result<(), Untrusted> {
        let (leaf, intermediates) = chain.split_first().ok_or(Untrusted::NoCertificate)?;
        EndEntityCert::try_from(leaf)
            .and_then(|leaf| {
                leaf.verify_for_usage(
                    webpki::ALL_VERIFICATION_ALGS,
                    &self.roots,
                    intermediates,
                    now,
                    KeyUsage::client_auth(),
                    None,
                    None,
                )
                .map(|_| ())
            })
            .map_err(Untrusted::Chain)?;
        if self.allowed_names.is_empty() {
            return Ok(());
        }
        let (_, leaf) = x509_parser::parse_x509_certificate(leaf).map_err(|_| Untrusted::Unreadable)?;
        let name = leaf
            .subject()
            .iter_common_name()
            .next()
            .and_then(|name| name.as_str().ok());
        match name {
            Some(name) if self.allowed_names.iter().any(|allowed| allowed == name) => Ok(()),
            _ => Err(Untrusted::Name),
        }
    }
}

fn certificates(data: &BTreeMap<String, String>, key: &'static str) -> Result<Vec<CertificateDer<'static>>, Unusable> {
    let Some(text) = data.get(key) else {
        return Ok(Vec::new());
    };
    CertificateDer::pem_slice_iter(text.as_bytes())
        .collect::<Result<_, _>>()
        .map_err(|error| Unusable::Certificate {
            key,
            reason: error.to_string(),
        })
}

fn list(data: &BTreeMap<String, String>, key: &'static str) -> Result<Vec<String>, Unusable> {
    match data.get(key).map(|text| text.trim()) {
        None | Some("" | "null") => Ok(Vec::new()),
        Some(text) => serde_json::from_str(text).map_err(|source| Unusable::List { key, source }),
    }
}

fn headers(data: &BTreeMap<String, String>, key: &'static str) -> Result<Vec<HeaderName>, Unusable> {
    list(data, key)?
        .into_iter()
        .map(|name| HeaderName::try_from(&name).map_err(|_| Unusable::Header { key, name }))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};

    fn authority() -> String {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().pem()
    }

    fn published(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs
            .iter()
            .map(|(key, value)| (key.to_string(), value.to_string()))
            .collect()
    }

    #[test]
    fn client_ca_file_may_be_absent() {
        let data = published(&[
            ("requestheader-client-ca-file", &authority()),
            ("requestheader-username-headers", r#"["X-Remote-User"]"#),
        ]);
        assert!(FrontProxy::parse(&data).is_ok());
    }

    #[test]
    fn broken_content_is_refused_with_its_key() {
        let authority = authority();
        for (key, value) in [
            ("requestheader-client-ca-file", ""),
            (
                "requestheader-client-ca-file",
                "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
            ),
            ("requestheader-username-headers", "[]"),
            ("requestheader-username-headers", "X-Remote-User"),
            ("requestheader-username-headers", r#"["X Remote User"]"#),
            ("requestheader-allowed-names", "{}"),
        ] {
            let mut data = published(&[
                ("requestheader-client-ca-file", &authority),
                ("requestheader-username-headers", r#"["X-Remote-User"]"#),
            ]);
            data.insert(key.to_owned(), value.to_owned());
            let error = FrontProxy::parse(&data).unwrap_err().to_string();
            assert!(error.contains(key), "{value}: {error}");
        }
    }

    #[test]
    fn an_authority_that_cannot_be_used_costs_no_other() {
        let (one, other) = (authority(), authority());
        let odd = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        let data = published(&[
            ("requestheader-client-ca-file", &format!("{one}{odd}{other}")),
            ("requestheader-username-headers", r#"["X-Remote-User"]"#),
        ]);
        assert_eq!(FrontProxy::parse(&data).unwrap().roots.len(), 2);
    }

    #[test]
    fn one_authority_for_users_and_proxy_without_names_is_refused() {
        let shared = authority();
        let mut data = published(&[
            ("client-ca-file", &shared),
            ("requestheader-client-ca-file", &format!("{}{shared}", authority())),
            ("requestheader-username-headers", r#"["X-Remote-User"]"#),
            ("requestheader-allowed-names", "[]"),
        ]);
        assert!(matches!(FrontProxy::parse(&data), Err(Unusable::SharedAuthority)));
        data.insert("requestheader-allowed-names".into(), r#"["front-proxy-client"]"#.into());
        assert!(FrontProxy::parse(&data).is_ok());
    }
}
