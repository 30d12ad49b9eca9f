//! The prefix cache: which leading blocks of a prompt were seen before.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Tokens of a block, the default of both engines' paged caches.
const BLOCK: usize = 16;

/// Blocks seen, each known by the hash of itself and all before it.
#[derive(Default)]
pub(super) struct PrefixCache(HashSet<u64>);

impl PrefixCache {
    /// Remembers a prompt and tells how many of its tokens were cached already. The last token is always computed.
    pub(super) fn admit(&mut self, tokens: &[&str]) -> usize {
        let mut hasher = DefaultHasher::new();
        let mut cached = 0;
        let mut unbroken = true;
        for block in tokens.chunks_exact(BLOCK) {
            block.hash(&mut hasher);
            unbroken &= !self.0.insert(hasher.finish());
            if unbroken {
                cached += BLOCK;
            }
        }
        if cached == tokens.len() {
            cached.saturating_sub(BLOCK)
        } else {
            cached
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shared_prefix_is_cached_in_whole_blocks() {
        let mut cache = PrefixCache::default();
        let first: Vec<&str> = std::iter::repeat_n("a", 40).collect();
        let mut second = first.clone();
        second[33] = "b";
        assert_eq!(cache.admit(&first), 0);
        assert_eq!(cache.admit(&second), 32);
        assert_eq!(cache.admit(&first[..32]), 16);
    }
}
