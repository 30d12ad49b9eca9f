//! Owns the cache folder outside `target/`: entries keyed by what they are made from, each made once, however many builders ask
//! at the same time. Refuses to know how an entry is made.

use std::{
    env,
    fs::{self, File, TryLockError},
    path::{Path, PathBuf},
    time::Duration,
};

use sha2::{Digest, Sha256};
use tokio::time::sleep;

use super::Error;

const FOLDER: &str = "model-deployment-operator";
/// Hexadecimal digits of a key in a folder's name: enough to tell versions of one module apart.
const KEY_DIGITS: usize = 16;
/// A lock cannot be watched; this is how often it is tried.
const TRY_AGAIN: Duration = Duration::from_millis(500);

/// `$XDG_CACHE_HOME/model-deployment-operator`.
pub(super) struct Cache(PathBuf);

impl Cache {
    pub(super) fn open() -> Result<Self, Error> {
        // The XDG base directory specification: a relative path is to be ignored.
        let absolute = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let root = absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".cache")));
        Ok(Self(root.ok_or(Error::NoCache)?.join(FOLDER)))
    }

    /// The folder for what `name` is when made from `sources`, created if need be.
    pub(super) fn entry(&self, name: &str, sources: &[&[u8]]) -> Result<Entry, Error> {
        let mut hash = Sha256::new();
        for source in sources {
            hash.update(source.len().to_le_bytes());
            hash.update(source);
        }
        let key: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        let path = self.0.join(format!("{name}-{}", &key[..KEY_DIGITS]));
        fs::create_dir_all(&path).map_err(|source| Error::File {
            what: "create",
            path: path.clone(),
            source,
        })?;
        Ok(Entry(path))
    }
}

/// One folder of the cache.
pub(super) struct Entry(PathBuf);

impl Entry {
    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// Waits until no other process makes something in this folder. The lock ends with the returned file, or the process.
    pub(super) async fn lock(&self, what: &str) -> Result<File, Error> {
        let path = self.0.join("lock");
        let failed = |source| Error::File {
            what: "lock",
            path: path.clone(),
            source,
        };
        let file = File::create(&path).map_err(failed)?;
        let mut told = false;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(TryLockError::WouldBlock) if !told => {
                    eprintln!("{what}: waiting for another process that does the same");
                    told = true;
                }
                Err(TryLockError::WouldBlock) => sleep(TRY_AGAIN).await,
                Err(TryLockError::Error(source)) => return Err(failed(source)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn an_entry_is_keyed_by_all_of_its_sources() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache(folder.path().to_owned());
        let path = |sources: &[&[u8]]| cache.entry("etcd", sources).unwrap().path().to_owned();
        assert_eq!(path(&[b"a", b"b"]), path(&[b"a", b"b"]));
        assert_ne!(path(&[b"a", b"b"]), path(&[b"a", b"c"]));
        assert_ne!(path(&[b"ab", b"c"]), path(&[b"a", b"bc"]));
    }

    #[tokio::test(start_paused = true)]
    async fn the_second_builder_waits_for_the_first() {
        let folder = tempfile::tempdir().unwrap();
        let entry = Cache(folder.path().to_owned()).entry("etcd", &[]).unwrap();
        let first = entry.lock("building etcd").await.unwrap();
        let mut second = Box::pin(entry.lock("building etcd"));
        assert!((&mut second).now_or_never().is_none());
        drop(first);
        second.await.unwrap();
    }
}
