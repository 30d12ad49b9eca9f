//! A watch: events in JSON, each on a line of its own.
//!
//! Knows how a stream is cut into events, and which member of an event is the object.

use bytes::Bytes;
use serde_json::Error;
use thiserror::Error as ThisError;

use super::json;
use super::outbound::{Translated, read, rename};
use super::versioned::Renaming;

/// Most bytes of one event. An object is at most 1.5 MiB in etcd.
const LINE_MOST: usize = 8 * 1024 * 1024;

/// An event is longer than any object can be: the stream ends here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ThisError)]
#[error("an event of the watch is longer than {LINE_MOST} bytes")]
pub struct TooLong;

/// The events of one watch, `v1alpha1` to `v1`.
#[derive(Debug, Default)]
pub struct Frames {
    /// The beginning of an event whose end has not come.
    line: Vec<u8>,
}

impl Frames {
    /// Takes the next bytes of the stream, and gives the events that are whole with them.
    ///
    /// # Errors
    /// [`TooLong`]; nothing is to be pushed after it.
    pub fn push(&mut self, chunk: &[u8]) -> Result<Translated, TooLong> {
        let mut events = Events::default();
        for piece in chunk.split_inclusive(|byte| *byte == b'\n') {
            if self.line.len() + piece.len() > LINE_MOST {
                return Err(TooLong);
            }
            match (piece.ends_with(b"\n"), self.line.is_empty()) {
                (true, true) => events.add(piece),
                (true, false) => {
                    self.line.extend_from_slice(piece);
                    events.add(&std::mem::take(&mut self.line));
                }
                (false, _) => self.line.extend_from_slice(piece),
            }
        }
        Ok(events.into())
    }

    /// The stream has ended: an event without a line's end is passed on, and one that is cut off is so too, so that the caller
    /// sees what happened.
    pub fn finish(self) -> Translated {
        let mut events = Events::default();
        if !self.line.is_empty() {
            events.add(&self.line);
        }
        events.into()
    }
}

#[derive(Debug, Default)]
struct Events {
    bytes: Vec<u8>,
    unknown: bool,
}

impl Events {
    fn add(&mut self, line: &[u8]) {
        let (renamed, known) = read(line, event);
        self.bytes.extend_from_slice(renamed.as_deref().unwrap_or(line));
        self.unknown |= !known;
    }
}

impl From<Events> for Translated {
    fn from(events: Events) -> Self {
        Translated {
            body: Bytes::from(events.bytes),
            known: !events.unknown,
        }
    }
}

fn event<'a>(renaming: &mut Renaming<'a>, event: &'a str) -> Result<bool, Error> {
    let members = json::members(event, &["type", "object"])?;
    match json::last(&members, "type").as_deref() {
        Some("ERROR") => Ok(true),
        Some("ADDED" | "MODIFIED" | "DELETED" | "BOOKMARK") => {
            let mut known = true;
            for (_, object) in members.iter().filter(|(name, _)| *name == "object") {
                known &= rename(renaming, object)?;
            }
            Ok(known)
        }
        _ => Ok(false),
    }
}

#[cfg(test)]
mod tests;
