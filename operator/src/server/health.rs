//! Health checks, in Kubernetes' form.
//!
//! Liveness never depends on anyone else. Readiness says that this process has begun, has its certificate and is not leaving: not
//! that it leads, nor that the API server can be reached, because one hiccup of that would take the discovery documents away.

use http::{Response, StatusCode};

use super::query::Query;
use super::response::{self, Body};

/// Which question is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Question {
    /// `/healthz`
    Health,
    /// `/livez`
    Live,
    /// `/readyz`
    Ready,
}

/// What the checks look at.
#[derive(Debug, Clone, Copy)]
pub struct State {
    /// The process has seen what it answers from, or has waited for it long enough.
    pub begun: bool,
    /// The serving certificate is loaded.
    pub certificate: bool,
    /// The process was told to end.
    pub leaving: bool,
}

impl Question {
    fn name(self) -> &'static str {
        match self {
            Question::Health => "healthz",
            Question::Live => "livez",
            Question::Ready => "readyz",
        }
    }

    /// The checks of this question, in order, each with whether it holds.
    fn checks(self, state: State) -> Vec<(&'static str, bool)> {
        let ping = ("ping", true);
        match self {
            Question::Health | Question::Live => vec![ping],
            Question::Ready => {
                vec![
                    ping,
                    ("begun", state.begun),
                    ("serving-certificate", state.certificate),
                    ("shutdown", !state.leaving),
                ]
            }
        }
    }

    /// The answer: all checks but those that `exclude` names, or the one that `check` names. `None` where there is none such.
    pub fn answer(self, state: State, check: Option<&str>, query: &Query) -> Option<Response<Body>> {
        let mut checks = self.checks(state);
        if let Some(check) = check {
            checks.retain(|(name, _)| *name == check);
            if checks.is_empty() {
                return None;
            }
        }
        let excluded: Vec<&str> = query.all("exclude").collect();
        let mut lines = String::new();
        let mut holds = true;
        for (name, passed) in checks {
            let line = if excluded.contains(&name) {
                format!("[+]{name} excluded: ok\n")
            } else if passed {
                format!("[+]{name} ok\n")
            } else {
                holds = false;
                format!("[-]{name} failed: reason withheld\n")
            };
            lines.push_str(&line);
        }
        let name = self.name();
        let verbose = query.get("verbose").is_some() && check.is_none();
        Some(match (holds, verbose) {
            (true, false) => response::text(StatusCode::OK, "ok".to_owned()),
            (true, true) => response::text(StatusCode::OK, format!("{lines}{name} check passed\n")),
            (false, _) => response::text(
                StatusCode::INTERNAL_SERVER_ERROR,
                format!("{lines}{name} check failed\n"),
            ),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;

    const LEAVING: State = State {
        begun: true,
        certificate: true,
        leaving: true,
    };

    async fn ask(question: Question, state: State, check: Option<&str>, query: &str) -> (u16, String) {
        let response = question.answer(state, check, &Query::parse(query)).unwrap();
        let code = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (code, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn readiness_ends_when_the_process_leaves_and_liveness_does_not() {
        let (code, text) = ask(Question::Ready, LEAVING, None, "").await;
        assert_eq!(code, 500);
        assert_eq!(
            text,
            "[+]ping ok\n[+]begun ok\n[+]serving-certificate ok\n[-]shutdown failed: reason withheld\nreadyz check failed\n"
        );
        assert_eq!(ask(Question::Live, LEAVING, None, "").await, (200, "ok".into()));
        assert_eq!(ask(Question::Health, LEAVING, None, "").await, (200, "ok".into()));
    }

    #[tokio::test]
    async fn checks_can_be_left_out_asked_singly_and_listed() {
        assert_eq!(
            ask(Question::Ready, LEAVING, None, "exclude=shutdown").await,
            (200, "ok".into())
        );
        assert_eq!(
            ask(Question::Ready, LEAVING, Some("ping"), "").await,
            (200, "ok".into())
        );
        assert_eq!(ask(Question::Ready, LEAVING, Some("shutdown"), "").await.0, 500);
        assert!(
            Question::Ready
                .answer(LEAVING, Some("etcd"), &Query::parse(""))
                .is_none()
        );
        assert_eq!(
            ask(Question::Live, LEAVING, None, "verbose").await,
            (200, "[+]ping ok\nlivez check passed\n".into())
        );
    }
}
