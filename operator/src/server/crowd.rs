//! How many connections are open, in all and from one address.
//!
//! Knows numbers only; nothing of what a connection is for.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;

/// Connections at once, and from one address. The API server needs one or two; every one of them may come from one address.
const CONNECTIONS: usize = 2048;
const CONNECTIONS_OF_ONE: usize = 1024;

/// Open connections by the address they come from.
#[derive(Default, Clone)]
pub(super) struct Crowd(Arc<Mutex<HashMap<IpAddr, usize>>>);

/// One connection's place among them, given back when it is dropped.
pub(super) struct Place {
    crowd: Crowd,
    address: IpAddr,
}

impl Crowd {
    /// A place for one more from `address`, unless there are too many.
    pub(super) fn enter(&self, address: IpAddr) -> Option<Place> {
        let mut counts = self.0.lock();
        let all: usize = counts.values().sum();
        let count = counts.entry(address).or_default();
        if all >= CONNECTIONS || *count >= CONNECTIONS_OF_ONE {
            if *count == 0 {
                counts.remove(&address);
            }
            return None;
        }
        *count += 1;
        drop(counts);
        Some(Place {
            crowd: self.clone(),
            address,
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut counts = self.crowd.0.lock();
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
        let crowd = Crowd::default();
        let (one, other): (IpAddr, IpAddr) = ([192, 0, 2, 1].into(), [192, 0, 2, 2].into());
        let mut places: Vec<_> = (0..1024).map(|_| crowd.enter(one).unwrap()).collect();
        assert!(crowd.enter(one).is_none());
        places.extend((0..1024).map(|_| crowd.enter(other).unwrap()));
        assert!(crowd.enter([192, 0, 2, 3].into()).is_none());
        places.pop();
        assert!(crowd.enter(one).is_none());
        assert!(crowd.enter([192, 0, 2, 3].into()).is_some());
        drop(places);
        assert!(crowd.0.lock().is_empty());
    }
}
