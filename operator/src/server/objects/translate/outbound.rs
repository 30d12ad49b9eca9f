//! Bodies of answers, `v1alpha1` to `v1`.

use bytes::Bytes;
use serde_json::Error;

use super::versioned::Renaming;
use super::{STORED, json};

/// An answer, or a part of a watch, as the caller is to see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Translated {
    /// What to send.
    pub body: Bytes,
    /// Whether everything in it was of a kind that is known to come; what is not passes unchanged, and is worth counting.
    pub known: bool,
}

/// The body of an answer that is not a watch: an object, a list, a Table, metadata alone, a Status.
pub fn outbound(body: Bytes) -> Translated {
    let (renamed, known) = read(&body, rename);
    Translated {
        body: renamed.map_or(body, Bytes::from),
        known,
    }
}

/// What `rename` makes of `body`, `None` where it stays as it is; and whether it is known. What is no JSON is not.
pub fn read<'a>(
    body: &'a [u8],
    rename: impl FnOnce(&mut Renaming<'a>, &'a str) -> Result<bool, Error>,
) -> (Option<Vec<u8>>, bool) {
    let Ok(text) = std::str::from_utf8(body) else {
        return (None, false);
    };
    let mut renaming = Renaming::to_served(text);
    match rename(&mut renaming, text) {
        Ok(known) => (renaming.splices().apply(), known),
        Err(_) => (None, false),
    }
}

/// Renames the version in `value` by what it says it is. `false` where that is nothing that is known to come.
pub fn rename<'a>(renaming: &mut Renaming<'a>, value: &'a str) -> Result<bool, Error> {
    let members = json::members(value, &["apiVersion", "kind", "items", "rows"])?;
    let named = |wanted: &'static str| members.iter().filter(move |(name, _)| *name == wanted);
    match Shape::of(&members) {
        Some(Shape::Object) => renaming.object(value)?,
        Some(Shape::Metadata) => renaming.metadata_of(value)?,
        Some(Shape::Objects) => {
            for (name, value) in &members {
                match *name {
                    "apiVersion" => renaming.version(value),
                    "items" => renaming.objects(value)?,
                    _ => {}
                }
            }
        }
        Some(Shape::Metadatas) => {
            for (_, items) in named("items") {
                json::elements(items)?
                    .into_iter()
                    .try_for_each(|item| renaming.metadata_of(item))?;
            }
        }
        Some(Shape::Table) => {
            let mut known = true;
            for (_, rows) in named("rows") {
                for row in json::elements(rows)? {
                    known &= rename_row(renaming, row)?;
                }
            }
            return Ok(known);
        }
        Some(Shape::Other) => {}
        None => return Ok(false),
    }
    Ok(true)
}

/// A Table's row holds an object, its metadata, or null.
fn rename_row<'a>(renaming: &mut Renaming<'a>, row: &'a str) -> Result<bool, Error> {
    for (_, object) in json::members(row, &["object"])? {
        match Shape::of(&json::members(object, &["apiVersion", "kind"])?) {
            Some(Shape::Object) => renaming.object(object)?,
            Some(Shape::Metadata) => renaming.metadata_of(object)?,
            _ if object == "null" => {}
            _ => return Ok(false),
        }
    }
    Ok(true)
}

/// What is known to come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    Object,
    Objects,
    Table,
    Metadata,
    Metadatas,
    /// What names no version of ours.
    Other,
}

impl Shape {
    fn of(members: &[(&str, &str)]) -> Option<Self> {
        let api_version = json::last(members, "apiVersion")?;
        let kind = json::last(members, "kind")?;
        Some(match (&*api_version, &*kind) {
            (STORED, "ModelDeployment") => Shape::Object,
            (STORED, "ModelDeploymentList") => Shape::Objects,
            ("meta.k8s.io/v1" | "meta.k8s.io/v1beta1", "Table") => Shape::Table,
            ("meta.k8s.io/v1" | "meta.k8s.io/v1beta1", "PartialObjectMetadata") => Shape::Metadata,
            ("meta.k8s.io/v1" | "meta.k8s.io/v1beta1", "PartialObjectMetadataList") => Shape::Metadatas,
            ("v1", "Status") | ("autoscaling/v1", "Scale") => Shape::Other,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests;
