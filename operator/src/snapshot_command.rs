//! `snapshot`: what the metrics subresource would answer to given readings, without a cluster.
//!
//! Owns the way from the command line to the library's replay of readings. Everything that decides a figure or a code is the code that
//! answers the subresource.

mod fetch;
mod pods;
mod reading;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use model_deployment::pod::Life;
use model_deployment::render::{Defaults, Refusal, render};
use model_deployment::scrape::{self, TrustError};
use model_deployment::snapshot::{Replayed, replay};
use model_deployment_crds::metrics::ModelDeploymentMetrics;
use thiserror::Error;

use crate::manifest::{self, ManifestError};
use crate::server::metrics::View;
use crate::server::status::Failure;
pub use pods::NotRendered;
pub use reading::{Given, Malformed, Place, Restart, Source};

/// What is asked.
#[derive(Clone, Debug)]
pub struct Question {
    /// File of the ModelDeployment; `-` is standard input.
    pub file: String,
    /// The readings, in any order.
    pub readings: Vec<Given>,
    /// Restarts of containers between them.
    pub restarts: Vec<Restart>,
    /// From when the times of files count. With URLs it is the time of the first fetch.
    pub start: Timestamp,
    /// Read URLs twice, this far apart.
    pub window: Option<Duration>,
    /// Which lists to answer.
    pub view: View,
    /// Images that the manifest leaves to the operator.
    pub defaults: Defaults,
}

/// What the subresource would answer: the metrics, or the `Status` of a 503.
pub type Answer = Result<ModelDeploymentMetrics, Box<Status>>;

/// Why there is nothing to answer: the arguments or the input are wrong, which is exit status 2.
#[derive(Debug, Error)]
pub enum SnapshotError {
    /// Not a ModelDeployment.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// The sentence that `SpecAccepted` would carry.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// A reading or restart of a Pod that is not rendered to be read.
    #[error(transparent)]
    NotRendered(#[from] NotRendered),
    /// The lists of `view=full`.
    #[error("--view full is not answered by this version")]
    FullView,
    /// `--window` without a URL.
    #[error("--window is for URLs, and no reading is one")]
    Window,
    /// Two readings of one Pod at one time.
    #[error("two readings of {0} are at one time")]
    SameTime(Place),
    /// A URL beside other readings of the Pod.
    #[error("{0} is read at a URL, which is now, so it can have no other reading")]
    UrlBesideOthers(Place),
    /// A time that no calendar has.
    #[error("a reading of {0} is later than any time that can be written")]
    TooLate(Place),
    /// A restart that is between no two readings.
    #[error("{0} has no readings on both sides of the restart")]
    RestartAside(Place),
    /// A file of exposition text.
    #[error("cannot read {}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The TLS client cannot be set up.
    #[error("cannot read URLs")]
    Trust(#[from] TrustError),
}

/// Answers as the subresource would.
///
/// # Errors
/// The first thing that is wrong with the question.
pub async fn run(question: Question) -> Result<Answer, SnapshotError> {
    let Question {
        file,
        mut readings,
        restarts,
        start,
        window,
        view,
        defaults,
    } = question;
    if view == View::Full {
        return Err(SnapshotError::FullView);
    }
    readings.sort_by(|one, two| (&one.place, one.at).cmp(&(&two.place, two.at)));
    check(&readings, &restarts, start, window)?;
    let manifest = manifest::read(&file)?;
    let plan = render(&manifest, &defaults)?;
    let deployment = pods::deployment(&manifest, &plan, readings.iter().map(|reading| &reading.place))?;
    let names: BTreeMap<_, _> = deployment
        .pods
        .iter()
        .map(|pod| ((pod.role.as_str(), pod.ordinal), pod.name.as_str()))
        .collect();
    let replayed = |place: &Place, at: Duration, body| {
        let passed = |restart: &&Restart| restart.place == *place && restart.at <= at;
        Replayed {
            pod: names[&(place.role.as_str(), place.ordinal)].to_owned(),
            at,
            life: Life {
                restart_count: restarts.iter().filter(passed).count() as i32,
                started_at: None,
            },
            body,
        }
    };

    let mut given = Vec::new();
    let mut urls = Vec::new();
    for reading in &readings {
        let body = match &reading.source {
            Source::File(path) => Ok(read(path)?),
            Source::Failure(failure) => Err(*failure),
            Source::Url(url) => {
                urls.push((&reading.place, url));
                continue;
            }
        };
        given.push(replayed(&reading.place, reading.at, body));
    }
    let fetched = fetch::fetch(&urls, window).await?;
    let first = fetched
        .iter()
        .map(|(_, reading)| reading)
        .min_by_key(|reading| reading.instant);
    let (start, timestamp) = match first {
        Some(first) => (first.observed_at, Timestamp::now()),
        None => (
            start,
            start + readings.iter().map(|reading| reading.at).max().unwrap_or_default(),
        ),
    };
    given.extend(fetched.iter().map(|(place, reading)| {
        let at = first.map_or(Duration::ZERO, |first| reading.instant - first.instant);
        replayed(place, at, reading.body.clone().map_err(Into::into))
    }));
    Ok(replay(&deployment, start, given, timestamp)
        .map_err(|refusal| Box::new(Failure::unavailable(refusal.to_string()).status())))
}

/// Whether readings, sorted by Pod and time, and restarts fit together.
fn check(
    readings: &[Given],
    restarts: &[Restart],
    start: Timestamp,
    window: Option<Duration>,
) -> Result<(), SnapshotError> {
    let is_url = |reading: &Given| matches!(reading.source, Source::Url(_));
    if window.is_some() && !readings.iter().any(is_url) {
        return Err(SnapshotError::Window);
    }
    for pair in readings.windows(2).filter(|pair| pair[0].place == pair[1].place) {
        let place = || pair[0].place.clone();
        if pair.iter().any(is_url) {
            return Err(SnapshotError::UrlBesideOthers(place()));
        }
        if pair[0].at == pair[1].at {
            return Err(SnapshotError::SameTime(place()));
        }
    }
    if let Some(late) = readings.iter().find(|reading| start.checked_add(reading.at).is_err()) {
        return Err(SnapshotError::TooLate(late.place.clone()));
    }
    for restart in restarts {
        let times = || {
            readings
                .iter()
                .filter(|reading| reading.place == restart.place)
                .map(|reading| reading.at)
        };
        if !times().any(|at| at < restart.at) || !times().any(|at| at >= restart.at) {
            return Err(SnapshotError::RestartAside(restart.place.clone()));
        }
    }
    Ok(())
}

/// A file, as far as a fetch would read it: one byte over the cap shows that it is over.
fn read(path: &Path) -> Result<Bytes, SnapshotError> {
    let mut body = Vec::new();
    File::open(path)
        .and_then(|file| file.take(scrape::limits::BODY_BYTES as u64 + 1).read_to_end(&mut body))
        .map_err(|source| SnapshotError::Unreadable {
            path: path.to_owned(),
            source,
        })?;
    Ok(body.into())
}
