//! `modeldeployments/metrics`: its query, and the seam to whoever knows the answer.
//!
//! Knows the request's form and the refusals' codes (metrics contract, section 1); nothing of Pods, series or windows.

use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use http::{HeaderMap, Response, StatusCode};
use model_deployment_crds::metrics::ModelDeploymentMetrics;
use rustls_pki_types::CertificateDer;

use super::attributes::is_dns_name;
use super::duration;
use super::negotiation::{Offer, choose};
use super::query::Query;
use super::response::{self, Body};
use super::status::Failure;

/// The window that a caller may ask for: long enough to hold a baseline, short enough to end inside one request.
const WINDOW: std::ops::RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(3);

pub(super) const WINDOW_DESCRIPTION: &str =
    "Take two reads this far apart inside this one request: a Go duration from 1s to 3s.";
pub(super) const VIEW_DESCRIPTION: &str = "Which lists are answered; standard when left out.";

/// What is asked of one ModelDeployment's metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MetricsQuery {
    /// Take two reads this far apart, within the request.
    pub window: Option<Duration>,
}

/// Which lists an answer has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum View {
    /// The documented lists.
    #[default]
    Standard,
    /// Further lists besides. Not there yet.
    Full,
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// There is no such ModelDeployment.
    NotFound,
    /// No Pod contributed; the sentence that says why.
    NoAnswer(String),
}

/// Whoever knows the answers.
pub trait Answers: Send + Sync + 'static {
    /// Whether everything that answers come from was listed once. Until then there are none.
    fn is_listed(&self) -> bool;

    /// Answers for one ModelDeployment, within the contract's eight seconds. Dropped when the caller leaves.
    fn answer<'a>(
        &'a self,
        namespace: &'a str,
        name: &'a str,
        query: MetricsQuery,
    ) -> BoxFuture<'a, Result<ModelDeploymentMetrics, Refusal>>;

    /// Answers another replica, which is to be known by the certificate `chain` of its connection, at `path` below
    /// [`REPLICAS`](super::REPLICAS). Nobody is one to whom it does not say so.
    fn forwarded<'a>(
        &'a self,
        _chain: &'a [CertificateDer<'static>],
        _path: &'a str,
        _query: &'a Query<'a>,
    ) -> BoxFuture<'a, Result<Response<Body>, Failure>> {
        std::future::ready(Err(Failure::unauthorized())).boxed()
    }
}

impl MetricsQuery {
    /// Reads the parameters. An empty `view` is the default, as an empty enumerated option of Kubernetes is; an empty `window` is
    /// not a duration.
    pub fn parse(query: &Query) -> Result<Self, Failure> {
        let window = query.get("window").map(window).transpose();
        let window = window.map_err(|wrong| Failure::bad_request(wrong.to_string()))?;
        match query.get("view") {
            None | Some("" | "standard") => Ok(MetricsQuery { window }),
            Some(text) => Err(Failure::bad_request(format!("view must be standard, not {text:?}"))),
        }
    }
}

/// A text that is no window.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("window must be a duration from 1s to 3s, not {0:?}")]
pub struct NoWindow(String);

/// Reads a window, as a query or a command line has it.
///
/// # Errors
/// If it is no duration, or out of range.
pub fn window(text: &str) -> Result<Duration, NoWindow> {
    duration::parse(text)
        .ok()
        .and_then(|nanoseconds| u64::try_from(nanoseconds).ok())
        .map(Duration::from_nanos)
        .filter(|window| WINDOW.contains(window))
        .ok_or_else(|| NoWindow(text.to_owned()))
}

/// Answers an authorised `get`.
pub(super) async fn get(
    answers: &dyn Answers,
    namespace: &str,
    name: &str,
    query: &Query<'_>,
    headers: &HeaderMap,
) -> Result<Response<Body>, Failure> {
    if choose(headers, &[Offer::Json]).is_none() {
        return Err(Failure::not_acceptable(response::JSON));
    }
    let asked = MetricsQuery::parse(query)?;
    // What cannot be a name is no object's name.
    if !is_dns_name(namespace, 63, false) || !is_dns_name(name, 253, true) {
        return Err(Failure::not_found(name));
    }
    match answers.answer(namespace, name, asked).await {
        Ok(metrics) => Ok(response::json(StatusCode::OK, &metrics, query.pretty(headers))),
        Err(Refusal::NotFound) => Err(Failure::not_found(name)),
        Err(Refusal::NoAnswer(sentence)) => Err(Failure::unavailable(sentence)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<MetricsQuery, Failure> {
        MetricsQuery::parse(&Query::parse(text))
    }

    #[test]
    fn window_is_one_to_three_seconds() {
        for (text, milliseconds) in [
            ("1s", 1000),
            ("3s", 3000),
            ("1.5s", 1500),
            ("2500ms", 2500),
            ("0h0m2s", 2000),
            ("%31s", 1000),
        ] {
            assert_eq!(
                parse(&format!("window={text}")).unwrap().window,
                Some(Duration::from_millis(milliseconds)),
                "{text}"
            );
        }
        for text in ["", "0", "999ms", "3.001s", "3000000001ns", "-2s", "2", "two", "2%20s"] {
            let message = parse(&format!("window={text}")).unwrap_err().status().message.unwrap();
            assert!(message.contains("1s to 3s"), "{text}: {message}");
        }
        assert_eq!(parse("").unwrap().window, None);
    }

    #[test]
    fn view_is_standard() {
        for text in [
            "",
            "view=",
            "view=standard",
            "view=standard&view=nonsense",
            "views=nonsense",
        ] {
            assert!(parse(text).is_ok(), "{text}");
        }
        for text in ["view=full", "view=Standard", "view=standard,full"] {
            assert_eq!(parse(text).unwrap_err().code, 400, "{text}");
        }
    }
}
