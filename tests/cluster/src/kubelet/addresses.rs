//! Pod addresses: one each, not given again until the range is used up.

use std::collections::HashSet;
use std::net::Ipv4Addr;

/// The first Pod address; below it are the control plane's own (test-cluster contract, section 2).
const FIRST: u32 = u32::from_be_bytes([10, 244, 1, 0]);
const LAST: u32 = u32::from_be_bytes([10, 244, 255, 254]);

/// Who has which is not known here, only what is taken.
#[derive(Debug)]
pub(super) struct Addresses {
    next: u32,
    taken: HashSet<u32>,
}

impl Default for Addresses {
    fn default() -> Self {
        Self {
            next: FIRST,
            taken: HashSet::new(),
        }
    }
}

impl Addresses {
    /// An address that nobody has; `None` if there is none.
    pub(super) fn take(&mut self) -> Option<Ipv4Addr> {
        for _ in FIRST..=LAST {
            let candidate = self.next;
            self.next = if candidate == LAST { FIRST } else { candidate + 1 };
            // .0 and .255 of a /24 are usual addresses here, but people take them for networks and broadcasts.
            if !matches!(candidate & 0xff, 0 | 0xff) && self.taken.insert(candidate) {
                return Some(Ipv4Addr::from(candidate));
            }
        }
        None
    }

    /// Gives an address back.
    pub(super) fn release(&mut self, address: Ipv4Addr) {
        self.taken.remove(&address.to_bits());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_not_given_again_at_once() {
        let mut addresses = Addresses::default();
        let first = addresses.take().unwrap();
        assert_eq!(first, Ipv4Addr::new(10, 244, 1, 1));
        addresses.release(first);
        assert_eq!(addresses.take().unwrap(), Ipv4Addr::new(10, 244, 1, 2));
        for _ in 0..252 {
            addresses.take().unwrap();
        }
        assert_eq!(addresses.take().unwrap(), Ipv4Addr::new(10, 244, 2, 1));
    }
}
