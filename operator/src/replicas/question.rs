//! What one replica asks of another, and what that one says.
//!
//! Knows the words between them and nothing of how they travel. The path names the version: replicas of two versions, during an
//! upgrade, do not know what the other's answer leaves out, and so do not ask each other.

use std::time::Duration;

use model_deployment::scrape::limits;
use model_deployment_crds::PLURAL;
use model_deployment_crds::metrics::ModelDeploymentMetrics;
use serde::{Deserialize, Serialize};

use crate::server::REPLICAS;
use crate::server::attributes::ResourcePath;
use crate::server::metrics::MetricsQuery;
use crate::server::query::Query;
use crate::server::status::Failure;

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// One read, as the replica that was asked for it asks the owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Question {
    pub(super) namespace: String,
    pub(super) name: String,
    /// Of the ModelDeployment that the asking replica means; none where it has not seen any yet.
    pub(super) uid: Option<String>,
    pub(super) query: MetricsQuery,
    /// How long the answer may take.
    pub(super) within: Duration,
}

/// What the owner says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Reply {
    /// The answer.
    Metrics(Box<ModelDeploymentMetrics>),
    /// No Pod contributed; the sentence that says why.
    NoAnswer(String),
    /// It has not seen that ModelDeployment, which does not say that there is none.
    Unknown,
}

impl Question {
    /// Path and query.
    pub(super) fn target(&self) -> String {
        let Question {
            namespace,
            name,
            uid,
            query: MetricsQuery { window },
            within,
        } = self;
        let uid = uid.as_ref().map_or_else(String::new, |uid| format!("&uid={uid}"));
        let window = window.map_or_else(String::new, |window| format!("&window={}ns", window.as_nanos()));
        format!(
            "{REPLICAS}{VERSION}/namespaces/{namespace}/{PLURAL}/{name}/metrics?timeout={}ns{uid}{window}",
            within.as_nanos()
        )
    }

    /// Reads what [`Question::target`] writes; `path` is what stands behind [`REPLICAS`].
    pub(super) fn parse(path: &str, query: &Query) -> Result<Self, Failure> {
        let path = path.strip_prefix(VERSION).and_then(|path| path.strip_prefix('/'));
        match path.and_then(ResourcePath::parse) {
            Some(ResourcePath {
                namespace: Some(namespace),
                resource: PLURAL,
                name: Some(name),
                subresource: Some("metrics"),
            }) => Ok(Question {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
                uid: query.get("uid").map(str::to_owned),
                query: MetricsQuery::parse(query)?,
                within: query
                    .timeout()?
                    .map_or(limits::REQUEST, |within| within.min(limits::REQUEST)),
            }),
            _ => Err(Failure::not_served()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(target: &str) -> Result<Question, Failure> {
        let (path, query) = target.strip_prefix(REPLICAS).unwrap().split_once('?').unwrap();
        Question::parse(path, &Query::parse(query))
    }

    proptest::proptest! {
        #[test]
        fn a_question_arrives_as_it_was_asked(
            namespace in "[a-z0-9][a-z0-9-]{0,20}",
            name in "[a-z0-9][a-z0-9.-]{0,20}",
            uid in proptest::option::of("[0-9a-f]{8}-[0-9a-f]{4}"),
            window in proptest::option::of(1_000_000_000..=3_000_000_000u64),
            within in 1..=8_000_000_000u64,
        ) {
            let question = Question {
                namespace,
                name,
                uid,
                query: MetricsQuery { window: window.map(Duration::from_nanos) },
                within: Duration::from_nanos(within),
            };
            proptest::prop_assert_eq!(read(&question.target()), Ok(question));
        }
    }

    #[test]
    fn other_paths_and_versions_are_not_served_and_no_answer_may_take_longer_than_a_read() {
        let good = format!("{REPLICAS}{VERSION}/namespaces/ns/modeldeployments/chat/metrics?uid=1&timeout=20s");
        assert_eq!(read(&good).unwrap().within, Duration::from_secs(8));
        for bad in [
            good.replace(VERSION, "0.0.1"),
            good.replace(VERSION, &format!("{VERSION}0")),
            good.replace("/metrics", ""),
            good.replace("/metrics", "/status"),
            good.replace("modeldeployments", "pods"),
            good.replace("/namespaces/ns", ""),
            format!("{REPLICAS}?"),
        ] {
            assert_eq!(read(&bad).unwrap_err().code, 404, "{bad}");
        }
        assert_eq!(read(&format!("{good}&window=4s")).unwrap_err().code, 400);
    }
}
