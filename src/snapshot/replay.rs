//! The answer without a cluster: given bodies and times go the way of the live ones.

use std::collections::HashMap;
use std::str::FromStr;
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use model_deployment_crds::metrics::ModelDeploymentMetrics;
use tokio::time::Instant;

use super::assemble::assemble;
use super::fault::Fault;
use super::plan::Plan;
use super::refusal::Refusal;
use crate::exposition;
use crate::fields::{self, Code};
use crate::index::{Deployment, IndexedPod, Phase};
use crate::scrape::{Unread, Unreadable, limits};
use crate::window::{History, Life, Sample, Trail};

/// Later readings count as made then: no window is longer than five minutes, and clocks end somewhere.
const LONGEST: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// One given reading.
#[derive(Clone, Debug)]
pub struct Replayed {
    /// Name of the Pod.
    pub pod: String,
    /// When it was read, counted from the start. Reads happen in whole microseconds.
    pub at: Duration,
    /// The container that was read.
    pub life: Life,
    /// The body, or how the read failed.
    pub body: Result<Bytes, Failure>,
}

/// A given failure: a code of a Pod, and the number of an `HttpStatus`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    code: Code,
    status: Option<u16>,
    unreadable: Option<Unreadable>,
}

impl From<Unread> for Failure {
    fn from(unread: Unread) -> Self {
        let (status, unreadable) = match unread {
            Unread::HttpStatus(status) => (Some(status), None),
            Unread::Unreadable(unreadable) => (None, Some(unreadable)),
            _ => (None, None),
        };
        Self {
            code: unread.code().parse().unwrap_or(Code::Unreadable),
            status,
            unreadable,
        }
    }
}

/// A word that is no failure of a Pod.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a code that a Pod can fail with: write one of NoAddress, NotRunning, Terminating, Refused, Timeout, TlsUntrusted, TlsClientCertificate, HttpStatus=<number>, TooLarge, NotExposition, AddressDenied, Unreadable"
)]
pub struct UnknownFailure(pub String);

impl FromStr for Failure {
    type Err = UnknownFailure;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let unknown = || UnknownFailure(text.to_owned());
        let (word, status) = match text.split_once('=') {
            Some((word, status)) => (word, Some(status.parse().map_err(|_| unknown())?)),
            None => (text, None),
        };
        let code = word.parse().map_err(|_| unknown())?;
        let failure = Self {
            code,
            status,
            unreadable: None,
        };
        let is_pods = failure.is_of_state() || failure.fault().is_some();
        let is_status = code == Code::HttpStatus;
        (is_pods && (status.is_none() || is_status))
            .then_some(failure)
            .ok_or_else(unknown)
    }
}

impl Failure {
    /// Whether it is a state of the Pod, in which it is not asked.
    fn is_of_state(self) -> bool {
        matches!(self.code, Code::NoAddress | Code::NotRunning | Code::Terminating)
    }

    /// Puts the Pod into that state.
    fn apply(self, pod: &mut IndexedPod) {
        match self.code {
            Code::NoAddress => pod.address = None,
            Code::NotRunning => pod.phase = Phase::Pending,
            Code::Terminating => pod.terminating = true,
            _ => {}
        }
    }

    /// The fault of a fetch.
    fn fault(self) -> Option<Fault> {
        Some(Fault::unread(match self.code {
            Code::Refused => Unread::Refused,
            Code::Timeout => Unread::Timeout,
            Code::TlsUntrusted => Unread::TlsUntrusted,
            Code::TlsClientCertificate => Unread::TlsClientCertificate,
            Code::HttpStatus => match self.status {
                Some(status) => Unread::HttpStatus(status),
                None => {
                    return Some(Fault::new(
                        Code::HttpStatus,
                        "The Pod answered with an HTTP status other than 200.",
                    ));
                }
            },
            Code::TooLarge => Unread::TooLarge,
            Code::AddressDenied => Unread::AddressDenied,
            Code::Unreadable => Unread::Unreadable(self.unreadable.unwrap_or(Unreadable::Connection)),
            Code::NotExposition => return Some(Fault::not_exposition()),
            _ => return None,
        }))
    }
}

/// Answers as the subresource would, had the Pods been read so. Readings of one Pod are taken in the order of their times; the last of
/// each is the one that the answer reports. A Pod without a reading is left out.
///
/// # Errors
///
/// Where no Pod contributed: see [`Refusal`].
pub fn replay(
    deployment: &Deployment,
    start: Timestamp,
    mut readings: Vec<Replayed>,
    timestamp: Timestamp,
) -> Result<ModelDeploymentMetrics, Refusal> {
    readings.sort_by_key(|reading| reading.at);
    let origin = Instant::now();
    let mut deployment = deployment.clone();
    let mut reads = HashMap::new();
    deployment.pods.retain_mut(|pod| {
        let mut history = History::default();
        let of_pod = readings.iter().filter(|reading| reading.pod == pod.name);
        let results = of_pod.map(|reading| (reading, read(pod, reading, start, origin, &mut history)));
        let Some((last, result)) = results.last() else {
            return false;
        };
        reads.insert(pod.uid.clone(), result);
        if let Err(failure) = last.body {
            failure.apply(pod);
        }
        true
    });
    let plan = Plan::new(&deployment);
    assemble(&deployment, &plan, &reads, timestamp)
}

fn read(
    pod: &IndexedPod,
    reading: &Replayed,
    start: Timestamp,
    origin: Instant,
    history: &mut History,
) -> Result<Trail, Fault> {
    let body = match &reading.body {
        Ok(body) if body.len() > limits::BODY_BYTES => return Err(Fault::unread(Unread::TooLarge)),
        Ok(body) => body,
        Err(failure) => return Err(failure.fault().unwrap_or_else(unreadable)),
    };
    let facts = pod.facts.as_ref().ok_or_else(unreadable)?;
    let exposition = exposition::read(body, fields::wanted(facts.producer)).map_err(|_| Fault::not_exposition())?;
    let at = Duration::from_micros((reading.at.min(LONGEST).as_secs_f64() * 1e6).round() as u64);
    let observed_at = start.checked_add(at).unwrap_or(Timestamp::MAX);
    let sample = Sample::new(reading.life, facts.producer, observed_at, origin + at, exposition);
    Ok(history.add(sample))
}

/// Stands for a Pod that the plan names anyway.
fn unreadable() -> Fault {
    Fault::unread(Unread::Unreadable(Unreadable::Connection))
}
