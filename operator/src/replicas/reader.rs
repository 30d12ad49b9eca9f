//! A read of metrics, from the question to whoever answers it.
//!
//! This replica's index says whether there is such a ModelDeployment: another's ignorance is never a 404.

use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use http::{Response, StatusCode};
use model_deployment::index::{Deployment, Index};
use model_deployment::scrape::limits;
use model_deployment::snapshot::{self, Snapshots};
use model_deployment_crds::metrics::ModelDeploymentMetrics;
use rustls_pki_types::{CertificateDer, UnixTime};
use tokio::sync::Semaphore;
use tokio::time::{Duration, Instant};

use super::counts::Counts;
use super::forward::{self, Answer, Unanswered};
use super::members::{Member, Members};
use super::question::{Question, Reply};
use crate::certificates::ReplicaIdentity;
use crate::console::sentence;
use crate::server::metrics::{Answers, MetricsQuery, Refusal};
use crate::server::query::Query;
use crate::server::response::{self, Body};
use crate::server::status::Failure;

/// What of one request's time the owner is not given: enough to read Pods that answer, and to put that together.
const KEPT_BACK: Duration = Duration::from_millis(1500);
/// The least for reading Pods beside the window that was asked for. With less, an answer would blame the Pods for our delay.
const LEAST: Duration = Duration::from_millis(500);
/// Reads of other replicas that are answered at once: as many as one of them may have under way.
const AT_ONCE: usize = 256;

/// Answers reads of metrics. One for the process.
pub struct Reader {
    index: Arc<Index>,
    snapshots: Snapshots,
    members: Members,
    identity: ReplicaIdentity,
    counts: Counts,
    at_once: Semaphore,
}

impl Reader {
    /// Finds deployments in `index` and answers from `snapshots`, or has the owner among `members` answer, as `identity`.
    pub fn new(
        index: Arc<Index>,
        snapshots: Snapshots,
        members: Members,
        identity: ReplicaIdentity,
        counts: Counts,
    ) -> Self {
        Reader {
            index,
            snapshots,
            members,
            identity,
            counts,
            at_once: Semaphore::new(AT_ONCE),
        }
    }

    /// Has `owner` answer.
    async fn there(&self, owner: &Member, question: Question, until: Instant) -> Result<Answer, Unanswered> {
        let (namespace, name) = (question.namespace.clone(), question.name.clone());
        let asked = forward::ask(&self.identity, owner, question, until).await;
        match &asked {
            Ok(_) => self.counts.answered(),
            Err(unanswered) => {
                self.counts.unanswered(unanswered);
                let (owner, reason) = (&owner.name, sentence(unanswered));
                tracing::info!(%owner, %namespace, %name, "the replica that keeps the windows did not answer: {reason}");
            }
        }
        asked
    }

    /// Answers from this replica's own windows, by `end`.
    async fn here(
        &self,
        deployment: &Deployment,
        MetricsQuery { window }: MetricsQuery,
        end: Instant,
    ) -> Result<ModelDeploymentMetrics, Refusal> {
        self.snapshots
            .answer_by(deployment, snapshot::Query { window }, end)
            .await
            .map_err(|refusal| Refusal::NoAnswer(refusal.to_string()))
    }

    /// Answers another replica, from this one's own windows, whoever this one thinks the owner: a read is handed on once.
    async fn reply(&self, question: &Question) -> Reply {
        let end = Instant::now() + question.within;
        let Question {
            namespace, name, query, ..
        } = question;
        let deployment = self.index.is_listed().then(|| self.index.deployment(namespace, name));
        match deployment.flatten() {
            Some(deployment) if question.uid.as_ref().is_none_or(|uid| *uid == deployment.uid) => {
                match self.here(&deployment, *query, end).await {
                    Ok(metrics) => Reply::Metrics(Box::new(metrics)),
                    Err(Refusal::NoAnswer(sentence)) => Reply::NoAnswer(sentence),
                    Err(Refusal::NotFound) => Reply::Unknown,
                }
            }
            _ => Reply::Unknown,
        }
    }
}

impl Answers for Reader {
    fn is_listed(&self) -> bool {
        self.index.is_listed()
    }

    fn answer<'a>(
        &'a self,
        namespace: &'a str,
        name: &'a str,
        query: MetricsQuery,
    ) -> BoxFuture<'a, Result<ModelDeploymentMetrics, Refusal>> {
        async move {
            let end = Instant::now() + limits::REQUEST;
            // An index that has not listed everything does not know what is absent; another replica's may.
            let deployment = match self.index.is_listed() {
                true => Some(self.index.deployment(namespace, name).ok_or(Refusal::NotFound)?),
                false => None,
            };
            let key = format!("{namespace}/{name}");
            let owner = match deployment {
                Some(_) => self.members.elsewhere(&key),
                None => self.members.without_this(&key),
            };
            if let Some(owner) = owner {
                let question = Question {
                    namespace: namespace.to_owned(),
                    name: name.to_owned(),
                    uid: deployment.as_ref().map(|deployment| deployment.uid.clone()),
                    query,
                    within: limits::REQUEST,
                };
                if let Ok(answer) = self.there(&owner, question, end - KEPT_BACK).await {
                    return answer;
                }
                let needed = query.window.unwrap_or_default() + LEAST + limits::ASSEMBLY;
                if Instant::now() + needed > end {
                    return Err(Refusal::NoAnswer(format!(
                        "the operator's replica that keeps the windows of ModelDeployment {name} did not answer in time"
                    )));
                }
            }
            match deployment {
                Some(deployment) => self.here(&deployment, query, end).await,
                None => Err(Refusal::NoAnswer(
                    "the operator has just started and has not listed the Pods yet".into(),
                )),
            }
        }
        .boxed()
    }

    fn forwarded<'a>(
        &'a self,
        chain: &'a [CertificateDer<'static>],
        path: &'a str,
        query: &'a Query<'a>,
    ) -> BoxFuture<'a, Result<Response<Body>, Failure>> {
        async move {
            if let Err(reason) = self.identity.trusts(chain, UnixTime::now()) {
                tracing::debug!("somebody who is no replica asks as one: {}", sentence(&reason));
                return Err(Failure::unauthorized());
            }
            let question = Question::parse(path, query)?;
            let _permit = self.at_once.try_acquire().map_err(|_| Failure::too_many_requests())?;
            Ok(response::json(StatusCode::OK, &self.reply(&question).await, false))
        }
        .boxed()
    }
}
