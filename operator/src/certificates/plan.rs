//! What is to be done about the certificates: a pure decision from what is there and what time it is.
//!
//! The order of a renewed authority is: make it, have it trusted beside the old one, and only then issue the leaf from it. The old
//! one stays trusted until it has ended itself, which no leaf of it outlives.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use rustls_pki_types::CertificateDer;

use super::pair::{self, Authority, Leaf, Validity};

/// The API server must have been seen to trust a new authority for so long before a leaf comes from it: time enough for every
/// instance of it to take the new bundle.
const OVERLAP: Duration = Duration::from_secs(2 * 60);

/// One Secret's content.
#[derive(Debug)]
pub(super) enum Held<T> {
    Absent,
    Damaged,
    Good(T),
}

impl<T> Held<T> {
    pub(super) fn good(&self) -> Option<&T> {
        match self {
            Held::Good(good) => Some(good),
            Held::Absent | Held::Damaged => None,
        }
    }
}

/// What is there.
#[derive(Debug)]
pub(super) struct State<'a> {
    pub(super) authority: &'a Held<Authority>,
    pub(super) leaf: &'a Held<Leaf>,
    /// The authorities that are to be trusted, kept beside the leaf.
    pub(super) trusted: &'a [CertificateDer<'static>],
    /// How long the API server has been seen to trust the present authority.
    pub(super) published: Option<Duration>,
    /// Whether this replica leads.
    pub(super) leading: bool,
    /// What the leaf must be for.
    pub(super) names: &'a [String],
}

/// What to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Make an authority and store it.
    MakeAuthority,
    /// Issue a leaf from the authority and store it, the authority among the trusted ones.
    MakeLeaf,
    /// Store which authorities are trusted, the leaf unchanged.
    Trust,
    /// Nothing, until something changes or it is so late.
    Wait(Option<Timestamp>),
}

impl State<'_> {
    /// The next step at `now`. What is absent may be made by any replica, everything else by the leader.
    pub(super) fn next(&self, now: Timestamp) -> Step {
        let fresh = matches!(self.leaf, Held::Absent);
        let step = match self.authority {
            Held::Absent if fresh => return Step::MakeAuthority,
            Held::Absent | Held::Damaged => Step::MakeAuthority,
            Held::Good(authority) if now < authority.validity.from || renewal(authority.validity) <= now => {
                Step::MakeAuthority
            }
            Held::Good(_) if fresh => return Step::MakeLeaf,
            Held::Good(authority) => self.with(authority, now),
        };
        match step {
            Step::Wait(_) => step,
            _ if self.leading => step,
            _ => Step::Wait(None),
        }
    }

    fn with(&self, authority: &Authority, now: Timestamp) -> Step {
        let Some(leaf) = self.leaf.good() else {
            return Step::MakeLeaf;
        };
        let own = &authority.certificate;
        if !leaf.is_trusted(self.trusted.iter().chain([own]), self.names, now) {
            return Step::MakeLeaf;
        }
        if to_trust(self.trusted, own, now) != self.trusted {
            return Step::Trust;
        }
        if !leaf.is_trusted([own], self.names, now) {
            return match self.published {
                Some(published) if published >= OVERLAP => Step::MakeLeaf,
                Some(published) => Step::Wait(
                    SignedDuration::try_from(OVERLAP - published)
                        .ok()
                        .map(|rest| now + rest),
                ),
                // The leaf in force is from an authority that is trusted still, and is replaced when it ends.
                None => Step::Wait(Some(leaf.validity.until)),
            };
        }
        let due = leaf_renewal(leaf);
        if due <= now {
            return Step::MakeLeaf;
        }
        let ends = self.trusted.iter().filter_map(pair::end);
        Step::Wait(ends.chain([due, renewal(authority.validity)]).min())
    }
}

/// The authorities to trust at `now`: those of `trusted` that have not ended, and `own`.
pub(super) fn to_trust(
    trusted: &[CertificateDer<'static>],
    own: &CertificateDer<'static>,
    now: Timestamp,
) -> Vec<CertificateDer<'static>> {
    let mut trusted: Vec<_> = trusted
        .iter()
        .filter(|one| pair::end(one).is_some_and(|end| now < end))
        .cloned()
        .collect();
    if !trusted.contains(own) {
        trusted.push(own.clone());
    }
    trusted
}

/// Two thirds through its life.
fn renewal(validity: Validity) -> Timestamp {
    validity.from + life(validity) * 2 / 3
}

/// Two thirds through its life, less up to a twentieth of it that the certificate itself draws, so that many installs that began
/// together do not renew together, and all replicas of one agree.
fn leaf_renewal(leaf: &Leaf) -> Timestamp {
    let drawn = leaf.serial.last().copied().map_or(0, i32::from);
    renewal(leaf.validity) - life(leaf.validity) / 20 * drawn / 255
}

fn life(validity: Validity) -> SignedDuration {
    validity.until.duration_since(validity.from)
}
