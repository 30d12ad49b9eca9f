//! The rows of one watched kind, by name and by controller.

use std::collections::{HashMap, HashSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::runtime::watcher::Event;

use super::owner::{Owner, OwnerKind};

/// Namespace and name.
pub type Key = (String, String);

/// What is kept of one object.
#[derive(Clone, Debug)]
pub struct Row<T> {
    /// Its UID.
    pub uid: String,
    owner: Option<Owner>,
    /// What of it was worth keeping.
    pub value: T,
}

/// The rows of one kind. A relist is gathered aside and swapped in whole, so that a reader never sees half of it.
#[derive(Debug)]
pub struct Table<T> {
    rows: HashMap<Key, Row<T>>,
    owned: HashMap<String, HashSet<Key>>,
    relist: HashMap<Key, Row<T>>,
    listed: bool,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self {
            rows: HashMap::new(),
            owned: HashMap::new(),
            relist: HashMap::new(),
            listed: false,
        }
    }
}

impl<T> Table<T> {
    /// Takes one watch event in; `keep` says what of the object is worth keeping.
    pub fn apply<K: Resource>(&mut self, event: &Event<K>, keep: impl Fn(&K) -> T) {
        match event {
            Event::Apply(object) => {
                if let Some((key, row)) = row(object, &keep) {
                    self.remove(&key);
                    self.insert(key, row);
                }
            }
            Event::Delete(object) => {
                if let Some(key) = key(object.meta()) {
                    self.remove(&key);
                }
            }
            Event::Init => self.relist.clear(),
            Event::InitApply(object) => self.relist.extend(row(object, &keep)),
            Event::InitDone => {
                self.rows.clear();
                self.owned.clear();
                for (key, row) in std::mem::take(&mut self.relist) {
                    self.insert(key, row);
                }
                self.listed = true;
            }
        }
    }

    /// Whether the kind was listed whole at least once.
    pub fn is_listed(&self) -> bool {
        self.listed
    }

    /// The row of that name.
    pub fn get(&self, namespace: &str, name: &str) -> Option<&Row<T>> {
        self.rows.get(&(namespace.to_owned(), name.to_owned()))
    }

    /// Every row.
    pub fn rows(&self) -> impl Iterator<Item = &Row<T>> {
        self.rows.values()
    }

    /// Names and rows of `namespace` whose controller is the object `uid` of `kind`.
    pub fn owned_by<'a>(
        &'a self,
        namespace: &'a str,
        kind: OwnerKind,
        uid: &str,
    ) -> impl Iterator<Item = (&'a str, &'a Row<T>)> {
        let keys = self.owned.get(uid).into_iter().flatten();
        keys.filter(move |key| key.0 == namespace)
            .filter_map(|key| Some((key.1.as_str(), self.rows.get(key)?)))
            .filter(move |(_, row)| row.owner.as_ref().is_some_and(|owner| owner.kind == kind))
    }

    fn insert(&mut self, key: Key, row: Row<T>) {
        if let Some(owner) = &row.owner {
            self.owned.entry(owner.uid.clone()).or_default().insert(key.clone());
        }
        self.rows.insert(key, row);
    }

    fn remove(&mut self, key: &Key) {
        let Some(owner) = self.rows.remove(key).and_then(|row| row.owner) else {
            return;
        };
        if let Some(keys) = self.owned.get_mut(&owner.uid) {
            keys.remove(key);
            if keys.is_empty() {
                self.owned.remove(&owner.uid);
            }
        }
    }
}

fn key(metadata: &ObjectMeta) -> Option<Key> {
    Some((metadata.namespace.clone()?, metadata.name.clone()?))
}

fn row<K: Resource, T>(object: &K, keep: impl Fn(&K) -> T) -> Option<(Key, Row<T>)> {
    let metadata = object.meta();
    let row = Row {
        uid: metadata.uid.clone()?,
        owner: Owner::of(metadata),
        value: keep(object),
    };
    Some((key(metadata)?, row))
}
