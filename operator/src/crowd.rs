//! Open connections, counted by the address they come from.
//!
//! Knows two limits: one address never takes every place.

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
    /// At most `most` at once, and `most_of_one` of them from one address.
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
        if all >= self.most || of_one >= self.most_of_one {
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
        places.extend((0..2).map(|_| crowd.enter(other).unwrap()));
        assert!(crowd.enter(third).is_none());
        places.pop();
        assert!(crowd.enter(one).is_none());
        assert!(crowd.enter(third).is_some());
        drop(places);
        assert!(crowd.counts.lock().is_empty());
    }
}
