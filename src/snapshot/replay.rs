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
use crate::pod::Life;
use crate::scrape::{Unread, Unreadable, limits, whole_microseconds};
use crate::window::{self, History, Sample, Trail};

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

/// A given failure of one Pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// It has no address, so that it is not asked.
    NoAddress,
    /// It does not run, so that it is not asked.
    NotRunning,
    /// It is being deleted, so that it is not asked.
    Terminating,
    /// The fetch failed.
    Unread(Unread),
    /// The server answered with a status other than 200, and which is not said.
    HttpStatus,
    /// The body is no metrics text.
    NotExposition,
}

impl From<Unread> for Failure {
    fn from(unread: Unread) -> Self {
        Self::Unread(unread)
    }
}

/// A word that is no failure of a Pod.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a code that a Pod can fail with: write one of NoAddress, NotRunning, Terminating, Refused, Timeout, TlsUntrusted, TlsClientCertificate, HttpStatus=<201 to 599>, TooLarge, NotExposition, AddressDenied, Unreadable"
)]
pub struct UnknownFailure(pub String);

impl FromStr for Failure {
    type Err = UnknownFailure;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let unknown = || UnknownFailure(text.to_owned());
        if let Some((word, status)) = text.split_once('=') {
            return match (word.parse(), status.parse()) {
                (Ok(Code::HttpStatus), Ok(status @ 201..=599)) => Ok(Self::Unread(Unread::HttpStatus(status))),
                _ => Err(unknown()),
            };
        }
        Ok(match text.parse().map_err(|_| unknown())? {
            Code::NoAddress => Self::NoAddress,
            Code::NotRunning => Self::NotRunning,
            Code::Terminating => Self::Terminating,
            Code::Refused => Self::Unread(Unread::Refused),
            Code::Timeout => Self::Unread(Unread::Timeout),
            Code::TlsUntrusted => Self::Unread(Unread::TlsUntrusted),
            Code::TlsClientCertificate => Self::Unread(Unread::TlsClientCertificate),
            Code::HttpStatus => Self::HttpStatus,
            Code::TooLarge => Self::Unread(Unread::TooLarge),
            Code::NotExposition => Self::NotExposition,
            Code::AddressDenied => Self::Unread(Unread::AddressDenied),
            Code::Unreadable => Self::Unread(Unread::Unreadable(Unreadable::Connection)),
            _ => return Err(unknown()),
        })
    }
}

impl Failure {
    /// Puts the Pod into the state in which it is not asked, if this is one.
    fn apply(self, pod: &mut IndexedPod) {
        match self {
            Self::NoAddress => pod.address = None,
            Self::NotRunning => pod.phase = Phase::Pending,
            Self::Terminating => pod.terminating = true,
            Self::Unread(_) | Self::HttpStatus | Self::NotExposition => {}
        }
    }

    /// What the read of the Pod came to. The plan names a Pod that is not asked anyway.
    fn fault(self) -> Fault {
        match self {
            Self::NoAddress | Self::NotRunning | Self::Terminating => unreadable(),
            Self::Unread(unread) => Fault::unread(unread),
            Self::HttpStatus => Fault::new(Code::HttpStatus, "The Pod answered with an HTTP status other than 200."),
            Self::NotExposition => Fault::not_exposition(),
        }
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
    let (start, origin) = (whole_microseconds(start), Instant::now());
    let mut deployment = deployment.clone();
    let mut reads = HashMap::new();
    deployment.pods.retain_mut(|pod| {
        let (mut history, mut asked) = (History::default(), Duration::ZERO);
        let of_pod = readings.iter().filter(|reading| reading.pod == pod.name);
        let results = of_pod.map(|reading| {
            if moment(reading) - std::mem::replace(&mut asked, moment(reading)) > window::KEPT {
                history = History::default();
            }
            (reading, read(pod, reading, start, origin, &mut history))
        });
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
        Err(failure) => return Err(failure.fault()),
    };
    let facts = pod.facts.as_ref().ok_or_else(unreadable)?;
    let exposition = exposition::read(body, fields::wanted(facts.producer)).map_err(|_| Fault::not_exposition())?;
    let at = moment(reading);
    let observed_at = start.checked_add(at).unwrap_or(Timestamp::MAX);
    let sample = Sample::new(reading.life, facts.producer, observed_at, origin + at, exposition);
    Ok(history.add(sample))
}

/// When a reading was made, in whole microseconds.
fn moment(reading: &Replayed) -> Duration {
    Duration::from_micros(((reading.at.min(LONGEST).as_nanos() + 500) / 1000) as u64)
}

/// Stands for a Pod that the plan names anyway.
fn unreadable() -> Fault {
    Fault::unread(Unread::Unreadable(Unreadable::Connection))
}
