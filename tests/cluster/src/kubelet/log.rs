//! What a container wrote, one file a run, each line with its time.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::io::{AsyncBufRead, AsyncBufReadExt};
use tokio::sync::watch;

/// The log of one run of a container. Clones write to the same file.
#[derive(Debug, Clone)]
pub(super) struct Log {
    path: PathBuf,
    file: Arc<Mutex<File>>,
    /// Lines written so far, and whether more may come.
    progress: watch::Sender<Progress>,
}

/// How far a log has come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Progress {
    pub(super) bytes: u64,
    pub(super) closed: bool,
}

impl Log {
    /// A new, empty log.
    pub(super) fn create(path: &Path) -> io::Result<Self> {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        Ok(Self {
            path: path.to_owned(),
            file: Arc::new(Mutex::new(File::create(path)?)),
            progress: watch::Sender::new(Progress::default()),
        })
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Follows how far it has come.
    pub(super) fn progress(&self) -> watch::Receiver<Progress> {
        self.progress.subscribe()
    }

    /// Writes one line. A full disk is told on standard error, once a line: there is no better place left.
    pub(super) fn line(&self, text: &str) {
        let line = format!("{:.9} {text}\n", Timestamp::now());
        let written = self.file.lock().write_all(line.as_bytes());
        match written {
            Ok(()) => self
                .progress
                .send_modify(|progress| progress.bytes += line.len() as u64),
            Err(error) => eprintln!("cannot write {}: {error}", self.path.display()),
        }
    }

    /// Copies lines until the stream ends.
    pub(super) async fn copy(self, mut from: impl AsyncBufRead + Unpin) {
        let mut line = Vec::new();
        loop {
            line.clear();
            match from.read_until(b'\n', &mut line).await {
                Ok(0) | Err(_) => return,
                Ok(_) => self.line(String::from_utf8_lossy(&line).trim_end_matches('\n')),
            }
        }
    }

    /// Says that nothing more will come.
    pub(super) fn close(&self) {
        self.progress.send_modify(|progress| progress.closed = true);
    }
}
