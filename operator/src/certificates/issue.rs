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

/// A new leaf for the server of `names` from `authority`.
pub(super) fn leaf(authority: &Authority, names: &[String], now: Timestamp) -> Result<Issued, rcgen::Error> {
    signed(authority, names, ExtendedKeyUsagePurpose::ServerAuth, now)
}

/// A new leaf by which a replica shows itself to another, from `authority`. It is no server's, and a server's is not it.
pub(super) fn replica(authority: &Authority, name: &str, now: Timestamp) -> Result<Issued, rcgen::Error> {
    signed(authority, &[name.to_owned()], ExtendedKeyUsagePurpose::ClientAuth, now)
}

fn signed(
    authority: &Authority,
    names: &[String],
    usage: ExtendedKeyUsagePurpose,
    now: Timestamp,
) -> Result<Issued, rcgen::Error> {
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
    let until = (now - BACK + LEAF).min(authority.validity.until);
    let mut params = params(now, until, &names[0]);
    params.subject_alt_names = CertificateParams::new(names)?.subject_alt_names;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![usage];
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::certificates::pair::{Damage, Leaf};
    use x509_parser::extensions::GeneralName;

    const NOW: Timestamp = Timestamp::constant(1_700_000_000, 0);

    fn made() -> Authority {
        let issued = authority("op", NOW).unwrap();
        Authority::read(&issued.certificate, &issued.key).unwrap()
    }

    #[test]
    fn a_leaf_is_for_servers_of_its_names_for_ninety_days() {
        let names = ["op.sys.svc", "op.sys", "op", "op.sys.svc.cluster.local"].map(str::to_owned);
        let issued = leaf(&made(), &names, NOW).unwrap();
        let leaf = Leaf::read(&issued.certificate, &issued.key).unwrap();
        assert_eq!(leaf.validity.from, NOW - SignedDuration::from_hours(1));
        assert_eq!(
            leaf.validity.until,
            leaf.validity.from + SignedDuration::from_hours(24 * 90)
        );
        let (_, parsed) = x509_parser::parse_x509_certificate(&leaf.key.cert[0]).unwrap();
        let subject = parsed.subject_alternative_name().unwrap().unwrap();
        let expected: Vec<_> = names.iter().map(|name| GeneralName::DNSName(name)).collect();
        assert_eq!(subject.value.general_names, expected);
        let usage = parsed.extended_key_usage().unwrap().unwrap().value;
        assert!(usage.server_auth && !usage.client_auth && !usage.any && usage.other.is_empty());
        assert!(!parsed.is_ca());
        assert_eq!(parsed.public_key().parsed().unwrap().key_size(), 256);
    }

    #[test]
    fn a_replicas_leaf_is_for_clients_of_its_name_alone() {
        let issued = replica(&made(), "replica.op.sys.svc", NOW).unwrap();
        let leaf = Leaf::read(&issued.certificate, &issued.key).unwrap();
        let (_, parsed) = x509_parser::parse_x509_certificate(&leaf.key.cert[0]).unwrap();
        let subject = parsed.subject_alternative_name().unwrap().unwrap();
        assert_eq!(
            subject.value.general_names,
            [GeneralName::DNSName("replica.op.sys.svc")]
        );
        let usage = parsed.extended_key_usage().unwrap().unwrap().value;
        assert!(usage.client_auth && !usage.server_auth && !usage.any && usage.other.is_empty());
        assert!(!parsed.is_ca());
    }

    #[test]
    fn an_authority_holds_a_year_and_no_generation_has_anothers_name() {
        let first = made();
        assert_eq!(
            first.validity.until,
            first.validity.from + SignedDuration::from_hours(24 * 365)
        );
        let issued = authority("op", NOW + SignedDuration::from_secs(1)).unwrap();
        let second = Authority::read(&issued.certificate, &issued.key).unwrap();
        let subject = |one: &Authority| {
            x509_parser::parse_x509_certificate(&one.certificate)
                .unwrap()
                .1
                .subject()
                .to_string()
        };
        assert_ne!(subject(&first), subject(&second));
    }

    #[test]
    fn a_leaf_never_outlives_its_authority() {
        let authority = made();
        let issued = leaf(
            &authority,
            &["op".to_owned()],
            NOW + SignedDuration::from_hours(24 * 360),
        )
        .unwrap();
        let leaf = Leaf::read(&issued.certificate, &issued.key).unwrap();
        assert_eq!(leaf.validity.until, authority.validity.until);
    }

    #[test]
    fn damage_is_named() {
        let authority_pair = authority("op", NOW).unwrap();
        let other = authority("op", NOW).unwrap();
        let made = Authority::read(&authority_pair.certificate, &authority_pair.key).unwrap();
        let issued = leaf(&made, &["op".to_owned()], NOW).unwrap();
        assert!(matches!(
            Authority::read(&authority_pair.certificate, &other.key),
            Err(Damage::Mismatch)
        ));
        assert!(matches!(
            Authority::read(&issued.certificate, &issued.key),
            Err(Damage::NoAuthority)
        ));
        assert!(matches!(
            Authority::read("garbage", &other.key),
            Err(Damage::Certificate)
        ));
        assert!(matches!(
            Leaf::read(&issued.certificate, &other.key),
            Err(Damage::Mismatch)
        ));
        assert!(matches!(Leaf::read("", &issued.key), Err(Damage::Certificate)));
        assert!(matches!(Leaf::read(&issued.certificate, "garbage"), Err(Damage::Key)));
    }
}
