//! Many fetches at once, under one deadline.

use futures::{StreamExt, stream};
use tokio::time::Instant;

use super::limits;
use super::reading::{Reading, Target};
use super::scraper::Scraper;

impl Scraper {
    /// Reads the Pods, [`limits::FETCHES`] at once, and answers by `deadline`: what was not read by then is a timeout. The readings stand
    /// in the order of the targets.
    ///
    /// For a request that began at `start`, the deadline is `start +` [`limits::REQUEST`] `-` [`limits::ASSEMBLY`].
    pub async fn fan_out(&self, targets: Vec<Target>, deadline: Instant) -> Vec<Reading> {
        let fetches = targets
            .into_iter()
            .enumerate()
            .map(|(place, target)| async move { (place, self.get(target, deadline).await) });
        // Not in their order: a hanging Pod at the head would keep the places of those that are done.
        let mut readings: Vec<_> = stream::iter(fetches).buffer_unordered(limits::FETCHES).collect().await;
        readings.sort_unstable_by_key(|(place, _)| *place);
        readings.into_iter().map(|(_, reading)| reading).collect()
    }
}
