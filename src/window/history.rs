//! The samples kept of one Pod: a short ring, thinned so that it reaches back five minutes however often the Pod is read.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::sample::Sample;
use super::seen::Seen;
use super::trail::Trail;

/// Nothing older is ever measured from (metrics contract, section 4).
pub(super) const OLDEST: Duration = Duration::from_secs(300);

/// Samples kept of one Pod. Thinned, they stand about one, two, four, … seconds back: enough to reach [`OLDEST`].
const SAMPLES: usize = 9;

/// The samples of one Pod, over all lives of its container.
#[derive(Debug, Default)]
pub struct History {
    samples: VecDeque<Arc<Sample>>,
    seen: Arc<Mutex<Seen>>,
    order: u64,
}

impl History {
    /// Adds a body that was read just now (or, offline, at that moment) and answers what leads up to it.
    pub fn add(&mut self, mut sample: Sample) -> Trail {
        let another = |last: &Arc<Sample>| !last.life.is_same(sample.life) || last.producer != sample.producer;
        if self.samples.back().is_some_and(another) {
            self.seen = Arc::default();
        }
        self.order += 1;
        sample.order = self.order;
        let instant = sample.instant;
        let sample = Arc::new(sample);
        self.seen.lock().add(&sample);
        self.samples.push_back(sample);
        self.thin(instant);
        Trail::new(self.samples.iter().rev().cloned().collect(), self.seen.clone())
    }

    /// Drops what is too old, then the sample that is missed least: the one whose neighbours are closest, measured by its age.
    fn thin(&mut self, now: Instant) {
        let age = |sample: &Sample| now.duration_since(sample.instant);
        while self.samples.front().is_some_and(|oldest| age(oldest) > OLDEST) {
            self.samples.pop_front();
        }
        if self.samples.len() <= SAMPLES {
            return;
        }
        let gap = |place: usize| {
            let [before, it, after] =
                [place - 1, place, place + 1].map(|place| age(&self.samples[place]).as_secs_f64());
            (before - after) / it
        };
        let least = (1..self.samples.len() - 2).min_by(|a, b| gap(*a).total_cmp(&gap(*b)));
        if let Some(least) = least {
            self.samples.remove(least);
        }
    }
}
