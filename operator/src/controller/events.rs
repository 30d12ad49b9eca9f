//! Events on a ModelDeployment: one for each thing that happened, many Pods of one kind in one Event.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};

use super::FIELD_MANAGER;
use super::rollout::Why;

/// Names that one sentence lists before it only counts.
const NAMED: usize = 4;
/// The longest note that the API server takes, in bytes.
const LONGEST_NOTE: usize = 1024;

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Happening {
    /// Whether somebody should look at it.
    pub warning: bool,
    /// What happened, as one word.
    pub reason: &'static str,
    /// What the operator was doing.
    pub action: &'static str,
    /// What happened, as a sentence.
    pub note: String,
}

impl Happening {
    /// Something in the ordinary course.
    pub fn normal(reason: &'static str, action: &'static str, note: impl Into<String>) -> Self {
        Self {
            warning: false,
            reason,
            action,
            note: note.into(),
        }
    }

    /// Something that somebody should look at.
    pub fn warning(reason: &'static str, action: &'static str, note: impl Into<String>) -> Self {
        Self {
            warning: true,
            reason,
            action,
            note: note.into(),
        }
    }
}

/// What one pass did to Pods, as few Events: one a role for those created, one a role and cause for those deleted.
pub fn of_pods(
    created: &BTreeMap<String, Vec<String>>,
    deleted: &BTreeMap<(String, Why), Vec<String>>,
) -> Vec<Happening> {
    let created = created.iter().map(|(role, pods)| {
        Happening::normal("PodCreated", "Create", format!("created {} of role {role}", list(pods)))
    });
    let deleted = deleted.iter().map(|((role, why), pods)| {
        let pods = list(pods);
        match why {
            Why::ScaledDown => Happening::normal(
                "PodDeleted",
                "ScaleDown",
                format!("deleted {pods} of role {role}: scaled down"),
            ),
            Why::Outdated => Happening::normal(
                "PodReplaced",
                "Rollout",
                format!("replacing {pods} of role {role}: the spec changed"),
            ),
            Why::Finished => Happening::warning(
                "PodReplaced",
                "Replace",
                format!("replacing {pods} of role {role}: it failed, was evicted or ended"),
            ),
            Why::Unknown => Happening::warning(
                "PodDeleted",
                "Prune",
                format!("deleted {pods}: no Pod of this ModelDeployment has that name"),
            ),
        }
    });
    created.chain(deleted).collect()
}

/// `Pod a`, `3 Pods a, b, c`, `64 Pods a, b, c, …, z`.
fn list(pods: &[String]) -> String {
    match pods {
        [one] => format!("Pod {one}"),
        pods => format!("{} Pods {}", pods.len(), names(pods)),
    }
}

/// `a, b, c`, or where there are many `a, b, c, …, z`.
pub fn names(names: &[String]) -> String {
    match names {
        [first @ .., last] if names.len() > NAMED => format!("{}, …, {last}", first[..NAMED - 1].join(", ")),
        names => names.join(", "),
    }
}

/// Publishes what happened. An Event that cannot be written is logged: it must not stop the work that it speaks of.
pub async fn publish(client: &Client, instance: &str, reference: &ObjectReference, happenings: Vec<Happening>) {
    for happening in happenings {
        let reporter = Reporter {
            controller: FIELD_MANAGER.into(),
            instance: Some(instance.into()),
        };
        // One recorder an Event: its memory would fold the Pods of a second role into the Event of the first, and lose their note.
        let recorder = Recorder::new(client.clone(), reporter);
        let event = Event {
            type_: if happening.warning {
                EventType::Warning
            } else {
                EventType::Normal
            },
            reason: happening.reason.into(),
            note: Some(cut(happening.note)),
            action: happening.action.into(),
            secondary: None,
        };
        if let Err(error) = recorder.publish(&event, reference).await {
            tracing::warn!(%error, reason = happening.reason, "cannot write an Event");
        }
    }
}

fn cut(mut note: String) -> String {
    const ELLIPSIS: char = '…';
    if note.len() > LONGEST_NOTE {
        note.truncate(note.floor_char_boundary(LONGEST_NOTE - ELLIPSIS.len_utf8()));
        note.push(ELLIPSIS);
    }
    note
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(count: usize) -> Vec<String> {
        (0..count).map(|ordinal| format!("chat-server-{ordinal}")).collect()
    }

    #[test]
    fn a_scale_up_of_64_replicas_is_one_event() {
        let created = BTreeMap::from([("server".to_owned(), names(64))]);
        let happenings = of_pods(&created, &BTreeMap::new());
        assert_eq!(
            happenings,
            [Happening::normal(
                "PodCreated",
                "Create",
                "created 64 Pods chat-server-0, chat-server-1, chat-server-2, …, chat-server-63 of role server"
            )]
        );
    }

    #[test]
    fn few_pods_are_all_named() {
        assert_eq!(list(&names(1)), "Pod chat-server-0");
        assert_eq!(list(&names(3)), "3 Pods chat-server-0, chat-server-1, chat-server-2");
        assert_eq!(
            list(&names(4)),
            "4 Pods chat-server-0, chat-server-1, chat-server-2, chat-server-3"
        );
    }

    #[test]
    fn a_note_is_cut_at_what_the_api_server_takes() {
        let cut = cut("é".repeat(600));
        assert!(cut.len() <= LONGEST_NOTE && cut.ends_with("é…"), "{} bytes", cut.len());
    }
}
