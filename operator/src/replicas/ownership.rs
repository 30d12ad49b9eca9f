//! Rendezvous hashing: who owns what, agreed on without a word. Pure.

use sha2::{Digest, Sha256};

/// The one of `members` that owns `key`: the one that hashes highest together with it. So a member that comes or goes moves no key but
/// its own, and keys are spread evenly.
pub(super) fn owner<'a>(members: impl IntoIterator<Item = &'a str>, key: &str) -> Option<&'a str> {
    members.into_iter().max_by_key(|member| (score(member, key), *member))
}

/// The same on every machine and in every version: replicas of two versions agree during an upgrade.
fn score(member: &str, key: &str) -> [u8; 32] {
    // A byte that stands in no name keeps pairs apart that read alike when joined.
    Sha256::new()
        .chain_update(member)
        .chain_update([0])
        .chain_update(key)
        .finalize()
        .into()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    const MEMBERS: [&str; 3] = ["op-5c9f-aaaaa", "op-5c9f-bbbbb", "op-5c9f-ccccc"];

    /// As many UIDs, in the form that the API server gives them.
    fn uids(count: u32) -> impl Iterator<Item = String> {
        (0..count).map(|number| format!("{number:08x}-0000-4000-8000-000000000000"))
    }

    #[test]
    fn members_agree_whatever_order_they_list_themselves_in() {
        for uid in uids(100) {
            let [a, b, c] = MEMBERS;
            let found = owner([a, b, c], &uid);
            assert!(found.is_some());
            for order in [[a, c, b], [b, a, c], [b, c, a], [c, a, b], [c, b, a]] {
                assert_eq!(owner(order, &uid), found);
            }
        }
        assert_eq!(owner([], "uid"), None);
        assert_eq!(owner(["only"], "uid"), Some("only"));
    }

    /// 3000 keys over three members: 1000 each, with a standard deviation of √(3000·⅓·⅔) ≈ 26. Five of those are 130.
    #[test]
    fn keys_are_spread_evenly() {
        let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
        for uid in uids(3000) {
            *counts.entry(owner(MEMBERS, &uid).unwrap()).or_default() += 1;
        }
        assert_eq!(counts.len(), 3);
        assert!(counts.values().all(|count| (870..=1130).contains(count)), "{counts:?}");
    }

    #[test]
    fn a_member_that_goes_moves_only_its_own_keys() {
        let mut moved = 0;
        for uid in uids(1000) {
            let (before, after) = (owner(MEMBERS, &uid), owner(MEMBERS[..2].iter().copied(), &uid));
            match before == Some(MEMBERS[2]) {
                true => moved += 1,
                false => assert_eq!(after, before),
            }
        }
        assert!(moved > 0);
    }

    /// By another program: `printf 'a\0k' | sha256sum` begins 9a2a…, `printf 'b\0k' | sha256sum` 265d….
    #[test]
    fn the_hash_is_sha_256_of_member_and_key() {
        let hex = |member| format!("{:02x}{:02x}", score(member, "k")[0], score(member, "k")[1]);
        assert_eq!((hex("a"), hex("b")), ("9a2a".into(), "265d".into()));
        assert_eq!(owner(["a", "b"], "k"), Some("a"));
    }
}
