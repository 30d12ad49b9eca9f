//! Decisions kept for a short while, at most so many.
//!
//! Knows nothing of what is decided.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

/// How long a decision holds, for and against alike: as long as a right that was taken away may still be used.
const KEPT: Duration = Duration::from_secs(10);
/// At most this many are held; the oldest makes room.
const MOST: usize = 8192;

/// Decisions by question. All are kept equally long, so the order they came in is the order they go in.
pub(super) struct Memory<K, V> {
    held: HashMap<Arc<K>, (V, Instant)>,
    order: VecDeque<(Arc<K>, Instant)>,
}

impl<K, V> Default for Memory<K, V> {
    fn default() -> Self {
        Memory {
            held: HashMap::new(),
            order: VecDeque::new(),
        }
    }
}

impl<K: Hash + Eq, V: Clone> Memory<K, V> {
    pub(super) fn get(&self, key: &K) -> Option<V> {
        let (value, since) = self.held.get(key)?;
        (since.elapsed() < KEPT).then(|| value.clone())
    }

    pub(super) fn put(&mut self, key: K, value: V) {
        let now = Instant::now();
        while let Some((oldest, since)) = self.order.front()
            && (self.order.len() >= MOST || now.duration_since(*since) >= KEPT)
        {
            // A question that was decided again since has a newer time and stays.
            if self.held.get(oldest).is_some_and(|(_, held)| held == since) {
                self.held.remove(oldest);
            }
            self.order.pop_front();
        }
        let key = Arc::new(key);
        self.held.insert(key.clone(), (value, now));
        self.order.push_back((key, now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_decision_holds_ten_seconds() {
        let mut memory = Memory::default();
        memory.put("a", true);
        tokio::time::advance(Duration::from_millis(9_999)).await;
        assert_eq!(memory.get(&"a"), Some(true));
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(memory.get(&"a"), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_later_decision_outlives_the_earlier_one() {
        let mut memory = Memory::default();
        memory.put("a", true);
        tokio::time::advance(Duration::from_secs(10)).await;
        memory.put("a", false);
        tokio::time::advance(Duration::from_secs(5)).await;
        memory.put("b", true);
        assert_eq!(memory.get(&"a"), Some(false));
    }

    #[tokio::test(start_paused = true)]
    async fn at_most_8192_are_held_and_the_oldest_goes() {
        let mut memory = Memory::default();
        for number in 0..8193 {
            memory.put(number, ());
        }
        assert_eq!(memory.held.len(), 8192);
        assert_eq!(memory.get(&0), None);
        assert_eq!(memory.get(&1), Some(()));
        assert_eq!(memory.get(&8192), Some(()));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_past_is_let_go() {
        let mut memory = Memory::default();
        for number in 0..100 {
            memory.put(number, ());
        }
        tokio::time::advance(Duration::from_secs(11)).await;
        memory.put(100, ());
        assert_eq!(memory.held.len(), 1);
        assert_eq!(memory.order.len(), 1);
    }
}
