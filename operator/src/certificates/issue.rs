//! Makes authorities and leaves.
//!
//! Knows what is in them and how long they hold; not when one is due.

use std::time::SystemTime;

use jiff::{SignedDuration, Timestamp};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PKCS_ECDSA_P256_SHA256,
};

use super::pair::Authority;

/// An authority holds a year.
const AUTHORITY: SignedDuration = SignedDuration::from_hours(365 * 24);
/// A leaf holds ninety days, and never longer than its authority.
const LEAF: SignedDuration = SignedDuration::from_hours(90 * 24);
/// Certificates begin an hour back, for clocks that are behind ours.
const BACK: SignedDuration = SignedDuration::from_hours(1);

/// A certificate and its key, both PEM.
#[derive(Debug)]
pub(super) struct Issued {
    pub(super) certificate: String,
    pub(super) key: String,
}

/// A new authority. Its subject is its own, so that two generations are never taken for one another.
pub(super) fn authority(service: &str, now: Timestamp) -> Result<Issued, rcgen::Error> {
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
    let mut params = params(
        now,
        now - BACK + AUTHORITY,
        &format!("{service} authority {}", now.as_second()),
    );
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let certificate = params.self_signed(&key)?;
    Ok(Issued {
        certificate: certificate.pem(),
        key: key.serialize_pem(),
    })
}

/// A new leaf for `names` from `authority`.
pub(super) fn leaf(authority: &Authority, names: &[String], now: Timestamp) -> Result<Issued, rcgen::Error> {
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
    let until = (now - BACK + LEAF).min(authority.validity.until);
    let mut params = params(now, until, &names[0]);
    params.subject_alt_names = CertificateParams::new(names)?.subject_alt_names;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    let issuer = Issuer::from_ca_cert_der(&authority.certificate, &authority.key)?;
    let certificate = params.signed_by(&key, &issuer)?;
    Ok(Issued {
        certificate: certificate.pem(),
        key: key.serialize_pem(),
    })
}

fn params(now: Timestamp, until: Timestamp, name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.not_before = SystemTime::from(now - BACK).into();
    params.not_after = SystemTime::from(until).into();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params
}
