//! Open connections, counted by the address they come from.
//!
//! Knows two limits, and that a crowded listener has room for a newcomer: one address never holds more places than are still free.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;

/// Open connections of one listener. Clones count the same ones.
#[derive(Debug, Clone)]
pub struct Crowd {
    most: usize,
    most_of_one: usize,
    counts: Arc<Mutex<HashMap<IpAddr, usize>>>,
}

/// One connection's place among them, given back when it is dropped.
#[derive(Debug)]
pub struct Place {
    crowd: Crowd,
    address: IpAddr,
}

impl Crowd {
    /// At most `most` at once, and `most_of_one` of them from one address; fewer where `most` is near.
    pub fn new(most: usize, most_of_one: usize) -> Self {
        Crowd {
            most,
            most_of_one,
            counts: Arc::default(),
        }
    }

    /// A place for one more from `address`, unless there are too many.
    pub fn enter(&self, address: IpAddr) -> Option<Place> {
        let mut counts = self.counts.lock();
        let all: usize = counts.values().sum();
        let of_one = counts.get(&address).copied().unwrap_or_default();
        let free = self.most.saturating_sub(all);
        if of_one >= self.most_of_one.min(free) {
            return None;
        }
        counts.insert(address, of_one + 1);
        Some(Place {
            crowd: self.clone(),
            address,
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut counts = self.crowd.counts.lock();
        if let Some(count) = counts.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_takes_not_every_place_and_gives_its_own_back() {
        let crowd = Crowd::new(5, 3);
        let [one, other, third]: [IpAddr; 3] = [1, 2, 3].map(|last| [192, 0, 2, last].into());
        let mut places: Vec<_> = (0..3).map(|_| crowd.enter(one).unwrap()).collect();
        assert!(crowd.enter(one).is_none());
        places.extend(crowd.enter(other));
        assert!(crowd.enter(other).is_none(), "the last place is for somebody new");
        places.extend(crowd.enter(third));
        assert_eq!(places.len(), 5);
        assert!(crowd.enter([192, 0, 2, 4].into()).is_none());
        places.pop();
        assert!(crowd.enter(one).is_none());
        assert!(crowd.enter(third).is_some());
        drop(places);
        assert!(crowd.counts.lock().is_empty());
    }
}
