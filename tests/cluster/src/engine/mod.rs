//! A fake engine: an HTTP(S) server that answers as vLLM or SGLang would and serves a real captured metrics body whose families
//! advance with the requests that it really serves.
//!
//! Owns the engine's life and the handle that tests hold. Refuses to know Kubernetes.

mod accounting;
mod arguments;
mod capture;
mod completions;
mod exposition;
mod gzip;
mod listener;
mod metrics;
mod prefix;
mod script;
mod serving;

use std::collections::HashMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use tokio::sync::{Semaphore, watch};

pub use arguments::{Arguments, Half, Kind};
pub use exposition::{Exposition, ExpositionError};
pub use listener::EngineError;
pub use script::{Scrape, State};

use accounting::Load;
use prefix::PrefixCache;

/// A handle to one fake engine. Clones are the same engine; it outlives restarts of its container, whose counters start again.
#[derive(Clone)]
pub struct Engine {
    shared: Arc<Shared>,
}

struct Shared {
    arguments: Arguments,
    certificate: Option<(PathBuf, PathBuf)>,
    address: watch::Sender<IpAddr>,
    state: watch::Sender<State>,
    scrapes: watch::Sender<Vec<Scrape>>,
    slots: Arc<Semaphore>,
    inside: Mutex<Inside>,
}

struct Inside {
    body: Option<Exposition>,
    load: Load,
    pinned: HashMap<String, f64>,
    prefixes: PrefixCache,
    requests: u64,
}

impl Engine {
    /// An engine that is not running yet. `certificate` and its key are files of this machine, wherever the container sees them.
    #[must_use]
    pub fn new(arguments: Arguments, address: IpAddr, certificate: Option<(PathBuf, PathBuf)>) -> Self {
        let slots = Arc::new(Semaphore::new(arguments.slots.min(Semaphore::MAX_PERMITS)));
        let inside = Inside {
            body: capture::body(&arguments),
            load: Load::default(),
            pinned: HashMap::new(),
            prefixes: PrefixCache::default(),
            requests: 0,
        };
        Self {
            shared: Arc::new(Shared {
                arguments,
                certificate,
                address: watch::Sender::new(address),
                state: watch::Sender::new(State::Normal),
                scrapes: watch::Sender::new(Vec::new()),
                slots,
                inside: Mutex::new(inside),
            }),
        }
    }

    /// What it read from its command line.
    #[must_use]
    pub fn arguments(&self) -> &Arguments {
        &self.shared.arguments
    }

    /// Puts it in another state, for connections and requests from now on.
    pub fn enter(&self, state: State) {
        self.shared.state.send_replace(state);
    }

    /// Adds `amount` to the one series that `series` names (`name` or `name{label="value"}`).
    ///
    /// # Errors
    /// None or several series match, or the engine serves no metrics.
    pub fn advance(&self, series: &str, amount: f64) -> Result<(), ExpositionError> {
        self.shared.change(series, |body| body.advance(series, amount))
    }

    /// Sets the one series that `series` names. Requests in flight no longer move it until the next [`Self::reset`].
    ///
    /// # Errors
    /// None or several series match, or the engine serves no metrics.
    pub fn set(&self, series: &str, value: f64) -> Result<(), ExpositionError> {
        self.shared.change(series, |body| body.set(series, value))?;
        self.shared.inside.lock().pinned.insert(series.to_owned(), value);
        Ok(())
    }

    /// Observes `value` `times` times in the histogram that `family` names, all its lines together.
    ///
    /// # Errors
    /// None or several histograms match, or the engine serves no metrics.
    pub fn observe(&self, family: &str, value: f64, times: u64) -> Result<(), ExpositionError> {
        self.shared.change(family, |body| body.observe(family, value, times))
    }

    /// Starts all counters again, as a restart of the program does.
    pub fn reset(&self) {
        self.shared.reset();
    }

    /// The metrics body as it stands, whatever the state; `None` where the program would serve none.
    #[must_use]
    pub fn body(&self) -> Option<String> {
        self.shared.inside.lock().body.as_ref().map(Exposition::text)
    }

    /// Every `GET /metrics` that arrived so far.
    #[must_use]
    pub fn scrapes(&self) -> Vec<Scrape> {
        self.shared.scrapes.borrow().clone()
    }

    /// Waits until `count` scrapes have arrived.
    pub async fn scraped(&self, count: usize) {
        let mut scrapes = self.shared.scrapes.subscribe();
        // The sender lives in `self`: the wait cannot fail.
        let _ = scrapes.wait_for(|seen| seen.len() >= count).await;
    }

    /// Requests that are being served or wait for a slot.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        let load = self.shared.inside.lock().load;
        load.running + load.waiting
    }

    /// Answers at another address from now on; connections to the old one end.
    pub fn relocate(&self, address: IpAddr) {
        self.shared.address.send_replace(address);
    }
}

impl Shared {
    fn change(
        &self,
        series: &str,
        change: impl FnOnce(&mut Exposition) -> Result<(), ExpositionError>,
    ) -> Result<(), ExpositionError> {
        let mut inside = self.inside.lock();
        let body = inside.body.as_mut();
        change(body.ok_or_else(|| ExpositionError::Absent(series.to_owned()))?)
    }

    fn reset(&self) {
        let mut inside = self.inside.lock();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        inside.body = capture::body(&self.arguments);
        if let Some(body) = &mut inside.body {
            body.born(now.as_secs_f64());
        }
        inside.pinned.clear();
        inside.prefixes = PrefixCache::default();
    }

    /// Changes the load and the gauges that follow it; what a test has set stays.
    fn shift(&self, change: impl FnOnce(&mut Load)) {
        let mut inside = self.inside.lock();
        let inside = &mut *inside;
        change(&mut inside.load);
        if let Some(body) = &mut inside.body {
            accounting::load(body, &self.arguments, inside.load);
            for (series, value) in &inside.pinned {
                // It matched when it was set; the body's series do not go away before a reset.
                let _ = body.set(series, *value);
            }
        }
    }
}
