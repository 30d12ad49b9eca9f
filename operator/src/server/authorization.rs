//! Whether a caller may do what they ask, as the API server's own authorisers decide.
//!
//! One `SubjectAccessReview` a question, remembered briefly. Decides before anything is looked up, and refuses when it cannot
//! decide. Knows nothing of the resource itself.

mod memory;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, Shared, WeakShared};
use k8s_openapi::api::authorization::v1::{SubjectAccessReview, SubjectAccessReviewSpec};
use kube::api::PostParams;
use kube::{Api, Client};
use parking_lot::Mutex;

use super::attributes::Attributes;
use super::front_proxy::caller::Caller;
use memory::Memory;

/// How long one review may take, all its tries together.
const DEADLINE: Duration = Duration::from_secs(10);
/// How often a review is tried, and the pause after the first try; each later pause is half as long again.
const TRIES: u32 = 5;
const PAUSE: Duration = Duration::from_millis(500);
/// A question with more of the caller's own text than this is not remembered, in bytes.
const REMEMBERED: usize = 10_000;

/// What was decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// The caller may.
    Allowed,
    /// The caller may not; with the authoriser's reason, often empty.
    Denied(String),
}

/// No decision could be had. The request is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the API server did not review the caller's rights")]
pub struct Undecided;

/// One question: this caller, this request.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Question {
    caller: Caller,
    attributes: Attributes,
}

type Answer = Result<Decision, Undecided>;
type Review = Shared<BoxFuture<'static, Answer>>;

/// Asks the API server, and remembers what it said.
#[derive(Clone)]
pub struct Authorizer {
    client: Client,
    memory: Arc<Mutex<Memory<Question, Decision>>>,
    /// Reviews under way, so that equal questions asked at once are asked once. Weak: a review that nobody waits for stops.
    asked: Arc<Mutex<HashMap<Question, WeakShared<BoxFuture<'static, Answer>>>>>,
}

impl Authorizer {
    /// Reviews through `client`.
    pub fn new(client: Client) -> Self {
        Authorizer {
            client,
            memory: Arc::default(),
            asked: Arc::default(),
        }
    }

    /// Decides whether `caller` may do what `attributes` say.
    pub async fn authorize(&self, caller: &Caller, attributes: &Attributes) -> Answer {
        if caller.is_master() {
            return Ok(Decision::Allowed);
        }
        let question = Question {
            caller: caller.clone(),
            attributes: attributes.clone(),
        };
        if let Some(decision) = self.memory.lock().get(&question) {
            return Ok(decision);
        }
        self.review(question).await
    }

    fn review(&self, question: Question) -> Review {
        let mut asked = self.asked.lock();
        if let Some(review) = asked.get(&question).and_then(WeakShared::upgrade) {
            return review;
        }
        asked.retain(|_, review| review.upgrade().is_some());
        let this = self.clone();
        let own = question.clone();
        let review = async move {
            let answer = tokio::time::timeout(DEADLINE, this.ask(&own))
                .await
                .unwrap_or_else(|_| {
                    tracing::warn!("a review of a caller's rights did not end in time");
                    Err(Undecided)
                });
            if let Ok(decision) = &answer
                && own.caller.size() + own.attributes.size() <= REMEMBERED
            {
                this.memory.lock().put(own.clone(), decision.clone());
            }
            this.asked.lock().remove(&own);
            answer
        }
        .boxed()
        .shared();
        if let Some(weak) = review.downgrade() {
            asked.insert(question, weak);
        }
        review
    }

    async fn ask(&self, question: &Question) -> Answer {
        let Question { caller, attributes } = question;
        let review = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: Some(caller.user.clone()),
                uid: caller.uid.clone(),
                groups: Some(caller.groups.clone()),
                extra: (!caller.extra.is_empty()).then(|| caller.extra.clone()),
                resource_attributes: Some(attributes.to_review()),
                ..Default::default()
            },
            ..Default::default()
        };
        let api: Api<SubjectAccessReview> = Api::all(self.client.clone());
        let mut pause = PAUSE;
        for tries_left in (0..TRIES).rev() {
            match api.create(&PostParams::default(), &review).await {
                Ok(review) => {
                    let status = review.status.unwrap_or_default();
                    return Ok(match status.allowed {
                        true => Decision::Allowed,
                        false => Decision::Denied(status.reason.unwrap_or_default()),
                    });
                }
                Err(error) if tries_left > 0 && is_passing(&error) => {
                    tokio::time::sleep(pause).await;
                    pause = pause * 3 / 2;
                }
                Err(error) => {
                    tracing::warn!(%error, "a caller's rights cannot be reviewed");
                    return Err(Undecided);
                }
            }
        }
        Err(Undecided)
    }
}

/// Whether another try may help.
fn is_passing(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => status.code == 429 || status.code >= 500,
        _ => true,
    }
}
