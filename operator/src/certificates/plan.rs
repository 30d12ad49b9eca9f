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
pub(super) const OVERLAP: Duration = Duration::from_secs(2 * 60);

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
            Held::Good(authority) if is_due(authority, now) => Step::MakeAuthority,
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

/// The next step at `now` where the leaf is not ours to keep: any replica makes an absent authority, the leader alone repairs and
/// renews.
pub(super) fn authority_alone(authority: &Held<Authority>, leading: bool, now: Timestamp) -> Step {
    match authority {
        Held::Absent => Step::MakeAuthority,
        Held::Damaged if leading => Step::MakeAuthority,
        Held::Good(good) if leading && is_due(good, now) => Step::MakeAuthority,
        Held::Good(good) if leading => Step::Wait(Some(renewal(good.validity))),
        Held::Damaged | Held::Good(_) => Step::Wait(None),
    }
}

/// Whether `authority` is to be replaced: late in its life, or made by a clock far ahead.
fn is_due(authority: &Authority, now: Timestamp) -> bool {
    now < authority.validity.from || renewal(authority.validity) <= now
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
pub(super) fn renewal(validity: Validity) -> Timestamp {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::certificates::issue;

    const BEGIN: Timestamp = Timestamp::constant(1_700_000_000, 0);

    fn days(days: i64) -> SignedDuration {
        SignedDuration::from_hours(24 * days)
    }

    fn names() -> [String; 4] {
        ["op.sys.svc", "op.sys", "op", "op.sys.svc.cluster.local"].map(str::to_owned)
    }

    fn authority(now: Timestamp) -> Authority {
        let issued = issue::authority("op", now).unwrap();
        Authority::read(&issued.certificate, &issued.key).unwrap()
    }

    fn leaf(authority: &Authority, now: Timestamp) -> Leaf {
        let issued = issue::leaf(authority, &names(), now).unwrap();
        Leaf::read(&issued.certificate, &issued.key).unwrap()
    }

    /// What a leader, or another replica, is to do about what is there.
    struct Scene {
        authority: Held<Authority>,
        leaf: Held<Leaf>,
        trusted: Vec<CertificateDer<'static>>,
        published: Option<Duration>,
        leading: bool,
    }

    impl Scene {
        /// As the first replica leaves it at [`BEGIN`].
        fn settled() -> Self {
            let authority = authority(BEGIN);
            Scene {
                leaf: Held::Good(leaf(&authority, BEGIN)),
                trusted: vec![authority.certificate.clone()],
                authority: Held::Good(authority),
                published: Some(Duration::from_secs(3600)),
                leading: true,
            }
        }

        fn next(&self, now: Timestamp) -> Step {
            let names = names();
            State {
                authority: &self.authority,
                leaf: &self.leaf,
                trusted: &self.trusted,
                published: self.published,
                leading: self.leading,
                names: &names,
            }
            .next(now)
        }

        fn waits(&self, now: Timestamp) -> bool {
            matches!(self.next(now), Step::Wait(_))
        }
    }

    #[test]
    fn any_replica_makes_what_is_absent() {
        for leading in [false, true] {
            let mut scene = Scene {
                authority: Held::Absent,
                leaf: Held::Absent,
                trusted: Vec::new(),
                published: None,
                leading,
            };
            assert_eq!(scene.next(BEGIN), Step::MakeAuthority);
            scene.authority = Held::Good(authority(BEGIN));
            assert_eq!(scene.next(BEGIN), Step::MakeLeaf);
        }
    }

    #[test]
    fn only_the_leader_repairs_and_renews() {
        let damages: [fn(&mut Scene); 4] = [
            |scene| scene.authority = Held::Damaged,
            |scene| scene.authority = Held::Absent,
            |scene| scene.leaf = Held::Damaged,
            |scene| scene.trusted.clear(),
        ];
        let steps = [Step::MakeAuthority, Step::MakeAuthority, Step::MakeLeaf, Step::Trust];
        for (damage, step) in damages.into_iter().zip(steps) {
            let mut scene = Scene::settled();
            damage(&mut scene);
            assert_eq!(scene.next(BEGIN), step);
            scene.leading = false;
            assert!(scene.waits(BEGIN));
        }
    }

    /// Two thirds of ninety days are sixty; a twentieth of ninety is four and a half.
    #[test]
    fn a_leaf_is_renewed_at_two_thirds_with_jitter() {
        let scene = Scene::settled();
        let hour = SignedDuration::from_hours(1);
        assert!(scene.waits(BEGIN - hour + days(55)));
        assert_eq!(scene.next(BEGIN - hour + days(60)), Step::MakeLeaf);
        let Step::Wait(Some(due)) = scene.next(BEGIN) else {
            panic!()
        };
        assert!(
            due >= BEGIN - hour + days(60) - days(9) / 2 && due <= BEGIN - hour + days(60),
            "{due}"
        );
        assert_eq!(scene.next(due), Step::MakeLeaf);
        // Other certificates draw other times.
        let Held::Good(authority) = &scene.authority else {
            panic!()
        };
        let drawn: std::collections::BTreeSet<_> = (0..20).map(|_| leaf_renewal(&leaf(authority, BEGIN))).collect();
        assert!(drawn.len() > 10, "{drawn:?}");
    }

    /// Two thirds of 365 days are 243 and a third.
    #[test]
    fn an_authority_is_renewed_at_two_thirds() {
        let mut scene = Scene::settled();
        let due = BEGIN - SignedDuration::from_hours(1) + SignedDuration::from_hours(365 * 16);
        let Held::Good(authority) = &scene.authority else {
            panic!()
        };
        scene.leaf = Held::Good(leaf(authority, due - days(1)));
        let second = SignedDuration::from_secs(1);
        assert_eq!(scene.next(due - second), Step::Wait(Some(due)));
        assert_eq!(scene.next(due), Step::MakeAuthority);
    }

    #[test]
    fn a_new_authority_is_trusted_for_two_minutes_before_it_issues() {
        let mut scene = Scene::settled();
        let now = BEGIN + days(1);
        let old = scene.trusted[0].clone();
        let new = authority(now);
        let fresh = new.certificate.clone();
        scene.authority = Held::Good(new);
        scene.published = None;
        assert_eq!(scene.next(now), Step::Trust);
        scene.trusted = to_trust(&scene.trusted, &fresh, now);
        assert_eq!(scene.trusted, [old, fresh]);
        // The API server does not trust it yet: the old leaf serves on.
        assert!(scene.waits(now));
        scene.published = Some(Duration::ZERO);
        assert_eq!(scene.next(now), Step::Wait(Some(now + SignedDuration::from_secs(120))));
        scene.published = Some(Duration::from_secs(119));
        assert!(scene.waits(now));
        scene.published = Some(Duration::from_secs(120));
        assert_eq!(scene.next(now), Step::MakeLeaf);
    }

    #[test]
    fn the_old_authority_is_trusted_until_every_leaf_of_it_has_ended() {
        let old = authority(BEGIN);
        let last = leaf(&old, BEGIN + days(364));
        assert!(last.validity.until <= old.validity.until);
        let now = old.validity.until - SignedDuration::from_secs(1);
        let new = authority(now - days(100));
        let both = [old.certificate.clone(), new.certificate.clone()];
        assert_eq!(to_trust(&both, &new.certificate, now), both);
        assert_eq!(
            to_trust(&both, &new.certificate, old.validity.until),
            vec![new.certificate.clone()]
        );
        let scene = Scene {
            leaf: Held::Good(leaf(&new, now)),
            trusted: both.to_vec(),
            authority: Held::Good(new),
            published: Some(Duration::from_secs(3600)),
            leading: true,
        };
        assert_eq!(scene.next(now), Step::Wait(Some(old.validity.until)));
        assert_eq!(scene.next(old.validity.until), Step::Trust);
    }

    /// Nothing can be worse than what is served then, so nothing is waited for.
    #[test]
    fn a_leaf_that_nobody_takes_is_replaced_at_once() {
        let foreign = authority(BEGIN);
        let cases: [(&str, Leaf); 3] = [
            ("expired", leaf(&foreign, BEGIN - days(120))),
            ("not yet valid", leaf(&foreign, BEGIN + days(1))),
            ("of an authority that is not trusted", leaf(&foreign, BEGIN)),
        ];
        for (what, leaf) in cases {
            let mut scene = Scene::settled();
            scene.leaf = Held::Good(leaf);
            scene.published = None;
            assert_eq!(scene.next(BEGIN), Step::MakeLeaf, "{what}");
        }
        let mut scene = Scene::settled();
        let Held::Good(authority) = &scene.authority else {
            panic!()
        };
        let other = issue::leaf(authority, &["other.sys.svc".to_owned()], BEGIN).unwrap();
        scene.leaf = Held::Good(Leaf::read(&other.certificate, &other.key).unwrap());
        assert_eq!(scene.next(BEGIN), Step::MakeLeaf, "for another Service");
    }

    /// The Secret with the authority's key is lost: the leaf in force serves until the new authority is trusted.
    #[test]
    fn a_lost_authority_is_replaced_with_overlap() {
        let mut scene = Scene::settled();
        scene.authority = Held::Absent;
        assert_eq!(scene.next(BEGIN), Step::MakeAuthority);
        scene.authority = Held::Good(authority(BEGIN));
        scene.published = None;
        assert_eq!(scene.next(BEGIN), Step::Trust);
    }

    #[test]
    fn an_authority_made_by_a_clock_far_ahead_is_replaced() {
        let mut scene = Scene::settled();
        scene.authority = Held::Good(authority(BEGIN + SignedDuration::from_hours(2)));
        assert_eq!(scene.next(BEGIN), Step::MakeAuthority);
        // An hour is forgiven.
        scene.authority = Held::Good(authority(BEGIN + SignedDuration::from_mins(59)));
        scene.leading = false;
        assert!(scene.waits(BEGIN));
    }

    /// A clock that runs a day behind makes everything anew, once; when it is set right, what it made holds.
    #[test]
    fn a_clock_that_is_set_leads_to_a_certificate_that_holds() {
        let mut scene = Scene::settled();
        let behind = BEGIN - days(1);
        assert_eq!(scene.next(behind), Step::MakeAuthority);
        let new = authority(behind);
        scene.published = None;
        let fresh = new.certificate.clone();
        scene.authority = Held::Good(new);
        // Nobody whose clock is like ours takes the leaf in force.
        assert_eq!(scene.next(behind), Step::MakeLeaf);
        let Held::Good(authority) = &scene.authority else {
            panic!()
        };
        scene.leaf = Held::Good(leaf(authority, behind));
        scene.trusted = to_trust(&scene.trusted, &fresh, behind);
        assert_eq!(scene.trusted.len(), 2);
        for now in [behind, BEGIN, BEGIN + days(1)] {
            assert!(scene.waits(now), "{now}");
        }
        // A clock that jumps over the end of everything.
        assert_eq!(scene.next(BEGIN + days(400)), Step::MakeAuthority);
    }

    #[test]
    fn without_a_leaf_of_ours_the_authority_is_kept_all_the_same() {
        let good = || Held::Good(authority(BEGIN));
        let due = BEGIN - SignedDuration::from_hours(1) + SignedDuration::from_hours(365 * 16);
        for leading in [false, true] {
            let only_leading = |step| if leading { step } else { Step::Wait(None) };
            assert_eq!(authority_alone(&Held::Absent, leading, BEGIN), Step::MakeAuthority);
            assert_eq!(
                authority_alone(&Held::Damaged, leading, BEGIN),
                only_leading(Step::MakeAuthority)
            );
            assert_eq!(
                authority_alone(&good(), leading, BEGIN),
                only_leading(Step::Wait(Some(due)))
            );
            assert_eq!(
                authority_alone(&good(), leading, due),
                only_leading(Step::MakeAuthority)
            );
        }
    }
}
