//! How much is done at once, by kind of request, so that no kind starves another.
//!
//! Discovery, OpenAPI, version and health have no limit here. Knows nothing of what a request is answered with.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::status::Failure;

/// Answers about metrics, each of which reads many Pods.
const METRICS: usize = 256;
/// Objects and lists that are read.
const READS: usize = 128;
/// Changes. Each may hold a body of three mebibytes, twice.
const WRITES: usize = 64;
/// Open watches. Each holds a connection to the API server.
const WATCHES: usize = 512;
/// What all lists together may hold in memory, in mebibytes. Rewriting one takes as much again.
const HELD: usize = 192;

/// A kind of request with a limit of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    Metrics,
    Read,
    Write,
    Watch,
}

/// Places for requests, and for what they hold.
#[derive(Debug)]
pub(super) struct Limits {
    metrics: Arc<Semaphore>,
    reads: Arc<Semaphore>,
    writes: Arc<Semaphore>,
    watches: Arc<Semaphore>,
    held: Arc<Semaphore>,
}

impl Default for Limits {
    fn default() -> Self {
        let places = |most| Arc::new(Semaphore::new(most));
        Limits {
            metrics: places(METRICS),
            reads: places(READS),
            writes: places(WRITES),
            watches: places(WATCHES),
            held: places(HELD),
        }
    }
}

impl Limits {
    /// A place for one more request, or 429.
    pub(super) fn enter(&self, class: Class) -> Result<OwnedSemaphorePermit, Failure> {
        let places = match class {
            Class::Metrics => &self.metrics,
            Class::Read => &self.reads,
            Class::Write => &self.writes,
            Class::Watch => &self.watches,
        };
        take(places)
    }

    /// Room for one more mebibyte, or 429.
    pub(super) fn hold(&self) -> Result<OwnedSemaphorePermit, Failure> {
        take(&self.held)
    }
}

fn take(places: &Arc<Semaphore>) -> Result<OwnedSemaphorePermit, Failure> {
    places
        .clone()
        .try_acquire_owned()
        .map_err(|_| Failure::too_many_requests())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_places_of_its_own() {
        let limits = Limits::default();
        for (class, most) in [
            (Class::Metrics, 256),
            (Class::Read, 128),
            (Class::Write, 64),
            (Class::Watch, 512),
        ] {
            let places: Vec<_> = (0..most).map(|_| limits.enter(class).unwrap()).collect();
            assert_eq!(
                limits.enter(class).unwrap_err(),
                Failure::too_many_requests(),
                "{class:?}"
            );
            for other in [Class::Metrics, Class::Read, Class::Write, Class::Watch] {
                assert_eq!(limits.enter(other).is_ok(), other != class);
            }
            drop(places);
            assert!(limits.enter(class).is_ok());
        }
    }
}
