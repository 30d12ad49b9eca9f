//! What replicas of the operator show one another, and whom they believe to be one.
//!
//! Each replica issues a client certificate to itself, from the operator's own authority, and keeps its key in memory. What a replica
//! serves with is another certificate, which may be another's affair. Owns when a client certificate is due and who is believed; knows
//! nothing of what replicas ask one another.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use jiff::Timestamp;
use rustls::RootCertStore;
use rustls::sign::CertifiedKey;
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use webpki::{EndEntityCert, KeyUsage};

use super::issue;
use super::pair::{Authority, Damage, Leaf};
use super::plan::{OVERLAP, renewal};

/// Why a connection is not believed to be another replica's.
#[derive(Debug, thiserror::Error)]
pub enum NoReplica {
    /// No client certificate was shown.
    #[error("no client certificate")]
    NoCertificate,
    /// Its chain does not end at an authority of ours, it is out of its time, or it is not for clients or not for a replica.
    #[error("the client certificate is not a replica's")]
    Certificate(#[source] webpki::Error),
}

/// A handle to what is shown and believed now; nothing and nobody until it was first swapped. Clones share it.
#[derive(Debug, Clone)]
pub struct ReplicaIdentity {
    /// The name that every replica serves under.
    server: ServerName<'static>,
    /// The name in every replica's client certificate, which no serving certificate has.
    client: ServerName<'static>,
    state: Arc<ArcSwap<Credentials>>,
}

/// What one replica needs to call another.
#[derive(Debug, Clone)]
pub struct Credentials {
    /// What it shows; none before the authority was first seen.
    pub key: Option<Arc<CertifiedKey>>,
    /// Whom it trusts to say what a replica serves with.
    pub servers: Arc<RootCertStore>,
    /// Whom it trusts to say who is a replica.
    replicas: RootCertStore,
}

impl ReplicaIdentity {
    /// That of the replicas behind `service` in `namespace`.
    ///
    /// # Errors
    /// If these make no name.
    pub fn new(service: &str, namespace: &str) -> Result<Self, rustls_pki_types::InvalidDnsNameError> {
        let server = format!("{service}.{namespace}.svc");
        Ok(ReplicaIdentity {
            client: ServerName::try_from(format!("replica.{server}"))?,
            server: ServerName::try_from(server)?,
            state: Arc::new(ArcSwap::from_pointee(Credentials {
                key: None,
                servers: Arc::new(RootCertStore::empty()),
                replicas: RootCertStore::empty(),
            })),
        })
    }

    /// The name that every replica serves under.
    pub fn server(&self) -> &ServerName<'static> {
        &self.server
    }

    /// The name in every replica's client certificate.
    pub fn client(&self) -> Cow<'_, str> {
        self.client.to_str()
    }

    /// What is shown and trusted now.
    pub fn credentials(&self) -> Arc<Credentials> {
        self.state.load_full()
    }

    /// From now on shows `key`, believes to be a replica who shows a certificate of `replicas`, and calls who serves with one of
    /// `servers`.
    pub fn swap(
        &self,
        key: Option<Arc<CertifiedKey>>,
        replicas: &[CertificateDer<'static>],
        servers: &[CertificateDer<'static>],
    ) {
        let store = |authorities: &[CertificateDer<'static>]| {
            let mut store = RootCertStore::empty();
            store.add_parsable_certificates(authorities.iter().cloned());
            store
        };
        self.state.store(Arc::new(Credentials {
            key,
            servers: Arc::new(store(servers)),
            replicas: store(replicas),
        }));
    }

    /// Whether a connection that showed `chain`, the leaf first, is another replica's at `now`.
    ///
    /// # Errors
    /// Why it is not.
    pub fn trusts(&self, chain: &[CertificateDer<'_>], now: UnixTime) -> Result<(), NoReplica> {
        let (leaf, intermediates) = chain.split_first().ok_or(NoReplica::NoCertificate)?;
        let leaf = EndEntityCert::try_from(leaf).map_err(NoReplica::Certificate)?;
        let (algorithms, usage) = (webpki::ALL_VERIFICATION_ALGS, KeyUsage::client_auth());
        let credentials = self.credentials();
        let anchors = &credentials.replicas.roots;
        leaf.verify_for_usage(algorithms, anchors, intermediates, now, usage, None, None)
            .map_err(NoReplica::Certificate)?;
        leaf.verify_is_valid_for_subject_name(&self.client)
            .map_err(NoReplica::Certificate)
    }
}

/// This replica's own client certificate.
#[derive(Debug)]
pub(super) struct Own {
    pub(super) leaf: Leaf,
    /// That it comes from.
    pub(super) authority: CertificateDer<'static>,
}

/// Why there is none.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotIssued {
    #[error("the certificate could not be made")]
    Issue(#[from] rcgen::Error),
    #[error("the certificate that was made cannot be used")]
    Made(#[from] Damage),
}

impl Own {
    /// A new one for `name`.
    pub(super) fn issue(authority: &Authority, name: &str, now: Timestamp) -> Result<Self, NotIssued> {
        let issued = issue::replica(authority, name, now)?;
        Ok(Own {
            leaf: Leaf::read(&issued.certificate, &issued.key)?,
            authority: authority.certificate.clone(),
        })
    }
}

/// How soon a client certificate is to be issued from `authority`, in the place of `own`; `None`: not until something changes.
///
/// What `own` comes from stays good as long as it is `believed`: every other replica has so long to see a new authority, which this
/// one has seen for `age`.
pub(super) fn due(
    own: Option<&Own>,
    authority: &CertificateDer<'_>,
    age: Duration,
    believed: &[CertificateDer<'static>],
    now: Timestamp,
) -> Option<Duration> {
    match own {
        Some(own) if renewal(own.leaf.validity) <= now || !believed.contains(&own.authority) => Some(Duration::ZERO),
        Some(own) if own.authority != *authority => Some(OVERLAP.saturating_sub(age)),
        Some(_) => None,
        None => Some(Duration::ZERO),
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::*;
    use crate::certificates::issue::Issued;

    const BEGIN: Timestamp = Timestamp::constant(1_700_000_000, 0);

    fn authority(now: Timestamp) -> Authority {
        let issued = issue::authority("op", now).unwrap();
        Authority::read(&issued.certificate, &issued.key).unwrap()
    }

    fn read(issued: Issued) -> Leaf {
        Leaf::read(&issued.certificate, &issued.key).unwrap()
    }

    fn own(authority: &Authority, now: Timestamp) -> Own {
        Own::issue(authority, "replica.op.sys.svc", now).unwrap()
    }

    fn at(now: Timestamp) -> UnixTime {
        UnixTime::since_unix_epoch(Duration::from_secs(now.as_second().unsigned_abs()))
    }

    #[test]
    fn a_replica_is_who_holds_a_client_certificate_of_that_name_from_a_trusted_authority() {
        let (ours, foreign) = (authority(BEGIN), authority(BEGIN));
        let identity = ReplicaIdentity::new("op", "sys").unwrap();
        let shown = |leaf: &Leaf, now| identity.trusts(&leaf.key.cert, at(now)).is_ok();
        let right = own(&ours, BEGIN).leaf;
        assert!(!shown(&right, BEGIN), "nobody is trusted before the authority is known");

        // Whoever says what is served with says nothing of who is a replica.
        identity.swap(None, &[], std::slice::from_ref(&ours.certificate));
        assert!(!shown(&right, BEGIN));
        identity.swap(None, std::slice::from_ref(&ours.certificate), &[]);
        assert!(shown(&right, BEGIN));
        assert!(matches!(identity.trusts(&[], at(BEGIN)), Err(NoReplica::NoCertificate)));
        let day = SignedDuration::from_hours(24);
        let names = ["op.sys.svc".to_owned(), "replica.op.sys.svc".to_owned()];
        for (what, leaf, now) in [
            ("of another authority", own(&foreign, BEGIN).leaf, BEGIN),
            ("ended", right.clone(), BEGIN + 91 * day),
            ("not begun", right.clone(), BEGIN - day),
            (
                "the serving certificate",
                read(issue::leaf(&ours, &names[..1], BEGIN).unwrap()),
                BEGIN,
            ),
            (
                "a server's of that name",
                read(issue::leaf(&ours, &names, BEGIN).unwrap()),
                BEGIN,
            ),
            (
                "of another installation",
                read(issue::replica(&ours, "replica.op2.sys.svc", BEGIN).unwrap()),
                BEGIN,
            ),
            (
                "a client's, of the Service's name",
                read(issue::replica(&ours, "op.sys.svc", BEGIN).unwrap()),
                BEGIN,
            ),
        ] {
            assert!(!shown(&leaf, now), "{what}");
        }
        identity.swap(None, &[foreign.certificate.clone(), ours.certificate.clone()], &[]);
        assert!(shown(&right, BEGIN) && shown(&own(&foreign, BEGIN).leaf, BEGIN));
    }

    #[test]
    fn a_client_certificate_is_renewed_at_two_thirds_of_its_life() {
        let ours = authority(BEGIN);
        let believed = [ours.certificate.clone()];
        let due = |own, now| due(own, &ours.certificate, Duration::ZERO, &believed, now);
        assert_eq!(due(None, BEGIN), Some(Duration::ZERO));
        let first = own(&ours, BEGIN);
        let day = SignedDuration::from_hours(24);
        assert_eq!(due(Some(&first), BEGIN), None);
        assert_eq!(due(Some(&first), BEGIN + 59 * day), None);
        assert_eq!(due(Some(&first), BEGIN + 60 * day), Some(Duration::ZERO));
    }

    #[test]
    fn a_new_authority_is_issued_from_when_every_replica_has_had_two_minutes_to_see_it() {
        let (old, new) = (authority(BEGIN), authority(BEGIN));
        let first = own(&old, BEGIN);
        let both = [old.certificate.clone(), new.certificate.clone()];
        let seconds = Duration::from_secs;
        let due = |own, age, believed| due(own, &new.certificate, seconds(age), believed, BEGIN);
        assert_eq!(due(Some(&first), 0, &both), Some(seconds(120)));
        assert_eq!(due(Some(&first), 119, &both), Some(seconds(1)));
        assert_eq!(due(Some(&first), 120, &both), Some(seconds(0)));
        assert_eq!(due(Some(&first), 500, &both), Some(seconds(0)));
        // Nobody believes the old one any more, or there is none.
        assert_eq!(due(Some(&first), 0, &both[1..]), Some(seconds(0)));
        assert_eq!(due(None, 0, &both), Some(seconds(0)));
    }
}
