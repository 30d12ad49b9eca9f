//! What an answer needs of the reader of Pods.

use tokio::time::Instant;

use super::reading::{Reading, Target};
use super::scraper::Scraper;

/// Reads one Pod.
pub trait Fetch: Send + Sync {
    /// Reads it, and answers by `deadline` whatever the Pod does. Dropping the future gives the read up.
    fn fetch(&self, target: Target, deadline: Instant) -> impl Future<Output = Reading> + Send;
}

impl Fetch for Scraper {
    fn fetch(&self, target: Target, deadline: Instant) -> impl Future<Output = Reading> + Send {
        self.get(target, deadline)
    }
}
