//! JSON patches (RFC 6902) of a ModelDeployment.

use serde_json::Error;

use super::json;
use super::splices::Splices;
use super::versioned::Renaming;

/// The places of `patch` that name the version: in the values of its operations.
///
/// # Errors
/// `patch` is no JSON.
pub fn rename(patch: &str) -> Result<Splices<'_>, Error> {
    let mut renaming = Renaming::to_stored(patch);
    for operation in json::elements(patch)? {
        let members = json::members(operation, &["op", "path", "value"])?;
        // `remove` has no value; what `move` and `copy` take is the object's own, and so has the stored name.
        if !matches!(json::last(&members, "op").as_deref(), Some("add" | "replace" | "test")) {
            continue;
        }
        let Some(path) = json::last(&members, "path") else {
            continue;
        };
        // As the API server reads a pointer, nothing counts that stands before the first slash. `~0` and `~1` stand for
        // characters that none of these names has, so an escaped token is never one of them.
        let path: Vec<&str> = path.split('/').skip(1).take(5).collect();
        for (_, value) in members.iter().filter(|(name, _)| *name == "value") {
            match path[..] {
                [] => renaming.object(value)?,
                ["metadata"] => renaming.metadata(value)?,
                ["metadata", "managedFields"] => renaming.managed_fields(value)?,
                ["metadata", "managedFields", _] => renaming.managed_field(value)?,
                ["apiVersion"] | ["metadata", "managedFields", _, "apiVersion"] => renaming.version(value),
                _ => {}
            }
        }
    }
    Ok(renaming.splices())
}
