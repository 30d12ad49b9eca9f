//! What was logged, for tests that read it.

use std::cell::RefCell;
use std::io::{self, Write};
use std::sync::{Arc, Once};

use parking_lot::Mutex;

thread_local! {
    /// Who reads what this thread logs. A test and its server are one thread.
    static READER: RefCell<Option<Log>> = const { RefCell::new(None) };
}

/// What was logged.
#[derive(Clone, Default)]
pub struct Log(Arc<Mutex<Vec<u8>>>);

/// While it lives, the log is read.
pub struct Reading(());

impl Log {
    /// Takes what this thread logs from now on.
    pub fn take(&self) -> Reading {
        // One for the process: whether a place in the code logs at all is asked once, of whoever is there then.
        static SUBSCRIBER: Once = Once::new();
        SUBSCRIBER.call_once(|| tracing_subscriber::fmt().with_writer(|| Line).with_ansi(false).init());
        READER.set(Some(self.clone()));
        Reading(())
    }

    pub fn text(&self) -> String {
        String::from_utf8(self.0.lock().clone()).unwrap()
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        READER.set(None);
    }
}

struct Line;

impl Write for Line {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        READER.with_borrow(|reader| {
            if let Some(log) = reader {
                log.0.lock().extend_from_slice(bytes);
            }
        });
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
