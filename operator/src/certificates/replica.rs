//! What replicas of the operator show one another, and whom they believe to be one.
//!
//! Each replica issues a client certificate to itself, from the authority of the serving certificate, and keeps its key in memory. Owns
//! when that is due and who is believed; knows nothing of what replicas ask one another.

use std::borrow::Cow;
use std::sync::Arc;

use arc_swap::ArcSwap;
use jiff::Timestamp;
use rustls::RootCertStore;
use rustls::sign::CertifiedKey;
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use webpki::{EndEntityCert, KeyUsage};

use super::pair::{Authority, Leaf};
use super::plan::renewal;

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
    /// Whom it trusts.
    pub roots: Arc<RootCertStore>,
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
                roots: Arc::new(RootCertStore::empty()),
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

    /// Shows `key` and trusts `authorities` from now on.
    pub fn swap(&self, key: Option<Arc<CertifiedKey>>, authorities: &[CertificateDer<'static>]) {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(authorities.iter().cloned());
        self.state.store(Arc::new(Credentials {
            key,
            roots: Arc::new(roots),
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
        let anchors = &credentials.roots.roots;
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

/// Whether a client certificate is to be issued from `authority` at `now`, in the place of `own`.
///
/// Only ever from an authority that every replica trusts: one that is among `trusted`; and in the place of another's only once the
/// serving certificate `leaf` comes from it too, which is when it has been trusted for a while.
pub(super) fn is_due(
    own: Option<&Own>,
    authority: &Authority,
    leaf: Option<&Leaf>,
    trusted: &[CertificateDer<'static>],
    now: Timestamp,
) -> bool {
    if !trusted.contains(&authority.certificate) {
        return false;
    }
    let Some(own) = own else { return true };
    let serves = || leaf.is_some_and(|leaf| leaf.is_trusted([&authority.certificate], &[], now));
    renewal(own.leaf.validity) <= now
        || !trusted.contains(&own.authority)
        || (own.authority != authority.certificate && serves())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use jiff::SignedDuration;

    use super::*;
    use crate::certificates::issue::{self, Issued};

    const BEGIN: Timestamp = Timestamp::constant(1_700_000_000, 0);

    fn authority(now: Timestamp) -> Authority {
        let issued = issue::authority("op", now).unwrap();
        Authority::read(&issued.certificate, &issued.key).unwrap()
    }

    fn read(issued: Issued) -> Leaf {
        Leaf::read(&issued.certificate, &issued.key).unwrap()
    }

    fn own(authority: &Authority, now: Timestamp) -> Own {
        Own {
            leaf: read(issue::replica(authority, "replica.op.sys.svc", now).unwrap()),
            authority: authority.certificate.clone(),
        }
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

        identity.swap(None, std::slice::from_ref(&ours.certificate));
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
        identity.swap(None, &[foreign.certificate.clone(), ours.certificate.clone()]);
        assert!(shown(&right, BEGIN) && shown(&own(&foreign, BEGIN).leaf, BEGIN));
    }

    #[test]
    fn a_client_certificate_comes_only_from_an_authority_that_all_trust() {
        let ours = authority(BEGIN);
        let leaf = read(issue::leaf(&ours, &["op".to_owned()], BEGIN).unwrap());
        let trusted = [ours.certificate.clone()];
        assert!(!is_due(None, &ours, Some(&leaf), &[], BEGIN));
        assert!(is_due(None, &ours, Some(&leaf), &trusted, BEGIN));
        let first = own(&ours, BEGIN);
        assert!(!is_due(Some(&first), &ours, Some(&leaf), &trusted, BEGIN));
        // Two thirds of ninety days.
        let day = SignedDuration::from_hours(24);
        assert!(!is_due(Some(&first), &ours, Some(&leaf), &trusted, BEGIN + 59 * day));
        assert!(is_due(Some(&first), &ours, Some(&leaf), &trusted, BEGIN + 60 * day));
    }

    /// The API server has to trust a new authority for two minutes before a serving certificate comes from it; replicas wait as long.
    #[test]
    fn a_new_authority_is_issued_from_when_the_serving_certificate_comes_from_it() {
        let (old, new) = (authority(BEGIN), authority(BEGIN));
        let first = own(&old, BEGIN);
        let served = |authority: &Authority| read(issue::leaf(authority, &["op".to_owned()], BEGIN).unwrap());
        let both = [old.certificate.clone(), new.certificate.clone()];
        assert!(!is_due(Some(&first), &new, Some(&served(&old)), &both[..1], BEGIN));
        assert!(!is_due(Some(&first), &new, Some(&served(&old)), &both, BEGIN));
        assert!(is_due(Some(&first), &new, Some(&served(&new)), &both, BEGIN));
        // The old one is trusted by nobody any more.
        assert!(is_due(Some(&first), &new, None, &both[1..], BEGIN));
        // A replica that has just started has nothing else to show.
        assert!(is_due(None, &new, Some(&served(&old)), &both, BEGIN));
    }
}
