//! One sample and the samples before it, newest first, as they stood when it was read: everything that an answer is made of.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::history::OLDEST;
use super::sample::Sample;
use super::seen::Seen;

/// Nothing younger is measured from: a window of milliseconds says nothing (metrics contract, section 4).
const YOUNGEST: Duration = Duration::from_secs(1);

/// A sample and what leads up to it.
#[derive(Clone, Debug)]
pub struct Trail {
    /// Newest first; never empty.
    samples: Vec<Arc<Sample>>,
    seen: Arc<Mutex<Seen>>,
    /// The first read of this request, where it makes two.
    first: Option<u64>,
}

/// Where a window starts.
#[derive(Clone, Copy, Debug)]
pub struct Baseline {
    /// Place among the trail's samples.
    pub(super) place: usize,
    /// Length of the window, in whole microseconds, as the times of its two reads are written.
    pub window: Duration,
}

/// Why no window ends in the last sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoBaseline {
    /// No usable earlier sample within five minutes.
    FirstSample,
    /// The newest usable one is of a former life of the container.
    Restarted,
}

impl Trail {
    pub(super) fn new(samples: Vec<Arc<Sample>>, seen: Arc<Mutex<Seen>>) -> Self {
        Self {
            samples,
            seen,
            first: None,
        }
    }

    /// Measures from the last sample of `first`, the first of the two reads of one request, rather than from one that another request
    /// added between them.
    #[must_use]
    pub fn from_first(mut self, first: &Self) -> Self {
        let pinned = first.last();
        if !self.samples.iter().any(|sample| sample.order == pinned.order) {
            let place = self.samples.partition_point(|sample| sample.order > pinned.order);
            self.samples.insert(place, first.samples[0].clone());
        }
        self.first = Some(pinned.order);
        self
    }

    /// The sample that the answer reports.
    pub fn last(&self) -> &Sample {
        &self.samples[0]
    }

    /// The samples, newest first.
    pub(super) fn samples(&self) -> &[Arc<Sample>] {
        &self.samples
    }

    pub(super) fn seen(&self) -> parking_lot::MutexGuard<'_, Seen> {
        self.seen.lock()
    }

    /// Whether an earlier sample of this container held the family.
    pub fn had(&self, family: &str) -> bool {
        self.seen.lock().family_before(family, self.last().order)
    }

    /// The newest sample, at least one second and at most five minutes before the last, in which all these families are usable.
    ///
    /// # Errors
    ///
    /// Where there is none in this life of the container.
    pub fn baseline(&self, families: impl Iterator<Item = &'static str> + Clone) -> Result<Baseline, NoBaseline> {
        self.baseline_from(self.first.unwrap_or(u64::MAX), families)
    }

    /// As [`Trail::baseline`], of the samples up to another baseline: what was known when that window started.
    pub fn baseline_before(
        &self,
        other: Baseline,
        families: impl Iterator<Item = &'static str> + Clone,
    ) -> Result<Baseline, NoBaseline> {
        self.baseline_from(self.samples[other.place].order, families)
    }

    fn baseline_from(
        &self,
        newest: u64,
        families: impl Iterator<Item = &'static str> + Clone,
    ) -> Result<Baseline, NoBaseline> {
        let last = self.last();
        for (place, sample) in self.samples.iter().enumerate().skip(1) {
            let window = between(sample, last);
            if window < YOUNGEST || sample.order > newest {
                continue;
            }
            if window > OLDEST {
                break;
            }
            if sample.producer == last.producer && families.clone().all(|family| sample.state(family).is_usable()) {
                let same = sample.life.is_same(last.life);
                return same.then_some(Baseline { place, window }).ok_or(NoBaseline::Restarted);
            }
        }
        Err(NoBaseline::FirstSample)
    }
}

/// The time between two reads: what their `observedAt` are apart, unless somebody set the clock. The two clocks are not read at one
/// instant, so what is less than a microsecond is rounded away.
fn between(earlier: &Sample, later: &Sample) -> Duration {
    let nanoseconds = later.instant.duration_since(earlier.instant).as_nanos();
    Duration::from_micros(u64::try_from((nanoseconds + 500) / 1000).unwrap_or(u64::MAX))
}
