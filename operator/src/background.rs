//! The parts that run as long as the process does.
//!
//! A part that is gone is not seen from outside: the process would go on being ready with an index, a certificate or a trust that
//! nothing keeps current. So whoever runs the parts waits for the end of any of them. Knows nothing of what they do.

use std::any::Any;
use std::collections::HashMap;

use thiserror::Error;
use tokio::task::{Id, JoinSet};

/// What became of a part.
#[derive(Debug, Error)]
pub enum Gone {
    /// It returned, which none does.
    #[error("{0} came to an end")]
    Ended(&'static str),
    /// It panicked.
    #[error("{part} panicked: {message}")]
    Panicked {
        /// Which.
        part: &'static str,
        /// What it said.
        message: String,
    },
}

/// Parts under way. They end when this is dropped.
#[derive(Default)]
pub struct Background {
    running: JoinSet<()>,
    names: HashMap<Id, &'static str>,
}

impl Background {
    /// Runs a part, under a name for people.
    pub fn spawn(&mut self, name: &'static str, part: impl Future<Output = ()> + Send + 'static) {
        let id = self.running.spawn(part).id();
        self.names.insert(id, name);
    }

    /// Waits until a part is gone, which is an error whatever the reason. Never ends while all of them run.
    pub async fn gone(&mut self) -> Gone {
        let (id, panic) = match self.running.join_next_with_id().await {
            Some(Ok((id, ()))) => (id, None),
            Some(Err(error)) => (error.id(), error.try_into_panic().ok()),
            None => return std::future::pending().await,
        };
        let part = self.names.get(&id).copied().unwrap_or_default();
        match panic {
            None => Gone::Ended(part),
            Some(panic) => Gone::Panicked {
                part,
                message: said(&*panic).to_owned(),
            },
        }
    }
}

/// What a panic said.
fn said(panic: &(dyn Any + Send)) -> &str {
    let formatted = panic.downcast_ref::<String>().map(String::as_str);
    formatted
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("it said nothing")
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;
    use std::future::pending;

    #[tokio::test]
    async fn a_part_that_ends_or_panics_is_told_with_its_name() {
        let mut background = Background::default();
        background.spawn("the first", pending());
        assert!(background.gone().now_or_never().is_none());
        background.spawn("the second", async {});
        assert_eq!(background.gone().await.to_string(), "the second came to an end");
        background.spawn("the third", async { panic!("at {}", "last") });
        assert_eq!(background.gone().await.to_string(), "the third panicked: at last");
        assert!(background.gone().now_or_never().is_none());
    }

    #[tokio::test]
    async fn nothing_is_gone_where_nothing_runs() {
        assert!(Background::default().gone().now_or_never().is_none());
    }
}
