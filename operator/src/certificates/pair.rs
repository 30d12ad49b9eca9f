//! Certificates with their keys, as they are read back: usable, or damaged with a reason.
//!
//! Knows X.509; nothing of Secrets, and nothing of when a certificate is to be renewed.

use std::sync::Arc;

use jiff::Timestamp;
use rcgen::KeyPair;
use rustls::crypto::aws_lc_rs;
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use webpki::{EndEntityCert, KeyUsage};
use x509_parser::certificate::X509Certificate;

/// Why a pair cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum Damage {
    #[error("{0} is missing")]
    Missing(&'static str),
    #[error("the certificate cannot be read")]
    Certificate,
    #[error("the key cannot be read")]
    Key,
    #[error("the key is not the certificate's")]
    Mismatch,
    #[error("the certificate is not an authority's")]
    NoAuthority,
}

/// When a certificate holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Validity {
    pub(super) from: Timestamp,
    pub(super) until: Timestamp,
}

impl Validity {
    fn of(certificate: &X509Certificate<'_>) -> Result<Self, Damage> {
        let time = |seconds| Timestamp::from_second(seconds).map_err(|_| Damage::Certificate);
        let validity = certificate.validity();
        Ok(Validity {
            from: time(validity.not_before.timestamp())?,
            until: time(validity.not_after.timestamp())?,
        })
    }

    pub(super) fn holds(&self, now: Timestamp) -> bool {
        self.from <= now && now < self.until
    }
}

/// Our authority, with its key.
#[derive(Debug)]
pub(super) struct Authority {
    pub(super) certificate: CertificateDer<'static>,
    pub(super) key: KeyPair,
    pub(super) validity: Validity,
}

impl Authority {
    pub(super) fn read(certificate: &str, key: &str) -> Result<Self, Damage> {
        let certificate = CertificateDer::from_pem_slice(certificate.as_bytes()).map_err(|_| Damage::Certificate)?;
        let key = KeyPair::from_pem(key).map_err(|_| Damage::Key)?;
        let (_, parsed) = x509_parser::parse_x509_certificate(&certificate).map_err(|_| Damage::Certificate)?;
        if !parsed.is_ca() {
            return Err(Damage::NoAuthority);
        }
        if *parsed.public_key().subject_public_key.data != *key.public_key_raw() {
            return Err(Damage::Mismatch);
        }
        let validity = Validity::of(&parsed)?;
        Ok(Authority {
            certificate,
            key,
            validity,
        })
    }
}

/// What we serve with.
#[derive(Debug, Clone)]
pub(super) struct Leaf {
    pub(super) key: Arc<CertifiedKey>,
    pub(super) validity: Validity,
    /// Differs from certificate to certificate, by chance.
    pub(super) serial: Vec<u8>,
}

impl Leaf {
    pub(super) fn read(certificate: &str, key: &str) -> Result<Self, Damage> {
        let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(certificate.as_bytes())
            .collect::<Result<_, _>>()
            .map_err(|_| Damage::Certificate)?;
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(|_| Damage::Key)?;
        let (validity, serial) = {
            let leaf = chain.first().ok_or(Damage::Certificate)?;
            let (_, leaf) = x509_parser::parse_x509_certificate(leaf).map_err(|_| Damage::Certificate)?;
            (Validity::of(&leaf)?, leaf.raw_serial().to_vec())
        };
        let key = CertifiedKey::from_der(chain, key, &aws_lc_rs::default_provider()).map_err(|error| match error {
            rustls::Error::InconsistentKeys(_) => Damage::Mismatch,
            rustls::Error::InvalidCertificate(_) => Damage::Certificate,
            _ => Damage::Key,
        })?;
        Ok(Leaf {
            key: Arc::new(key),
            validity,
            serial,
        })
    }

    /// Whether someone who trusts `authorities` takes this for each of `names` at `now`.
    pub(super) fn is_trusted<'a>(
        &self,
        authorities: impl IntoIterator<Item = &'a CertificateDer<'static>>,
        names: &[String],
        now: Timestamp,
    ) -> bool {
        let anchors: Vec<_> = authorities
            .into_iter()
            .filter_map(|authority| webpki::anchor_from_trusted_cert(authority).ok())
            .collect();
        let Some((leaf, intermediates)) = self.key.cert.split_first() else {
            return false;
        };
        let Ok(leaf) = EndEntityCert::try_from(leaf) else {
            return false;
        };
        let Ok(seconds) = u64::try_from(now.as_second()) else {
            return false;
        };
        let now = UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds));
        let usage = KeyUsage::server_auth();
        leaf.verify_for_usage(
            webpki::ALL_VERIFICATION_ALGS,
            &anchors,
            intermediates,
            now,
            usage,
            None,
            None,
        )
        .is_ok()
            && names.iter().all(|name| is_for(&leaf, name))
    }

    /// Whether this is a server's certificate of `name`.
    pub(super) fn is_for(&self, name: &str) -> bool {
        let leaf = self
            .key
            .cert
            .first()
            .and_then(|leaf| EndEntityCert::try_from(leaf).ok());
        leaf.is_some_and(|leaf| is_for(&leaf, name))
    }
}

fn is_for(leaf: &EndEntityCert<'_>, name: &str) -> bool {
    ServerName::try_from(name).is_ok_and(|name| leaf.verify_is_valid_for_subject_name(&name).is_ok())
}

/// When `certificate` stops to hold; `None` where it cannot be read.
pub(super) fn end(certificate: &CertificateDer<'_>) -> Option<Timestamp> {
    let (_, certificate) = x509_parser::parse_x509_certificate(certificate).ok()?;
    Validity::of(&certificate).ok().map(|validity| validity.until)
}
