//! Bodies of requests, `v1` to `v1alpha1`.
//!
//! Owns which body is read in which way, and the few that are refused here because upstream's answer would speak of `v1alpha1`.
//! Everything else that is wrong with a body is left for the API server to say.

use bytes::Bytes;
use http::StatusCode;
use thiserror::Error;

use super::splices::Splices;
use super::versioned::Renaming;
use super::{BODY_MOST, SERVED, json, patch, yaml};

/// No ModelDeployment comes near it: the values of an affinity of Pods in one of its roles stand 13 deep.
pub(super) const DEEPEST: usize = 128;

/// What a request's body is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Inbound {
    /// A ModelDeployment in JSON.
    Object,
    /// A ModelDeployment in YAML, or in JSON, which is YAML too.
    YamlObject,
    /// Members that replace those of the object.
    MergePatch,
    /// Operations on the object.
    JsonPatch,
    /// What its field manager wants of the object, in YAML or JSON.
    ApplyPatch,
    /// What names no version that upstream looks at: `DeleteOptions`, a `Scale`; or what upstream refuses whatever it holds.
    Untouched,
}

/// Why a body is not passed on.
#[derive(Debug, Error)]
pub enum Refused {
    /// More than [`BODY_MOST`].
    #[error("Request entity too large: limit is {BODY_MOST}")]
    TooLarge,
    /// A `Content-Type` of something else.
    #[error("the body of the request was in an unknown format - accepted media types include: {0}")]
    MediaType(
        /// What could have been sent.
        &'static str,
    ),
    /// An object of another group or version.
    #[error("the API version in the data ({0}) does not match the expected API version ({SERVED})")]
    Version(
        /// Its `apiVersion`.
        String,
    ),
    /// An apply patch of another group or version.
    #[error("Incorrect version specified in apply patch. Specified patch version: {0}, expected: {SERVED}")]
    ApplyVersion(
        /// Its `apiVersion`.
        String,
    ),
    /// Not Unicode.
    #[error("the body is not UTF-8")]
    Utf8(#[from] std::str::Utf8Error),
    /// Not what its `Content-Type` says.
    #[error("the body is not JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// Not what its `Content-Type` says.
    #[error("the body is not YAML: {0}")]
    Yaml(#[from] granit_parser::ScanError),
    /// Several objects in one body.
    #[error("the body holds more than one YAML document")]
    Documents,
    /// Names of versions that cannot be replaced where they stand without changing something else.
    #[error(
        "apiVersion and metadata.managedFields are anchors, aliases or merged in this YAML: write them out, or send JSON"
    )]
    Indirect,
    /// Deeper than anything that has a meaning.
    #[error("the body is nested more than {DEEPEST} deep")]
    TooDeep,
}

impl Refused {
    /// The answer's status code.
    pub fn code(&self) -> StatusCode {
        match self {
            Refused::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Refused::MediaType(_) => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            _ => StatusCode::BAD_REQUEST,
        }
    }
}

impl Inbound {
    /// The body of a POST or PUT. No `Content-Type`, or an empty one, means JSON.
    ///
    /// # Errors
    /// [`Refused::MediaType`].
    pub fn object(content_type: &str) -> Result<Self, Refused> {
        match &*media_type(content_type) {
            "" | "application/json" => Ok(Inbound::Object),
            "application/yaml" => Ok(Inbound::YamlObject),
            _ => Err(Refused::MediaType("application/json, application/yaml")),
        }
    }

    /// The body of a PATCH.
    ///
    /// # Errors
    /// [`Refused::MediaType`].
    pub fn patch(content_type: &str) -> Result<Self, Refused> {
        match &*media_type(content_type) {
            "application/json-patch+json" => Ok(Inbound::JsonPatch),
            "application/merge-patch+json" => Ok(Inbound::MergePatch),
            "application/apply-patch+yaml" => Ok(Inbound::ApplyPatch),
            // Upstream's own 415 is what makes clients fall back to a merge patch.
            "application/strategic-merge-patch+json" => Ok(Inbound::Untouched),
            _ => Err(Refused::MediaType(
                "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
            )),
        }
    }

    /// Whether upstream takes `metadata.managedFields` of such a body.
    pub(super) fn has_managed_fields(self) -> bool {
        self != Inbound::ApplyPatch
    }

    /// Whether a body may be of this `apiVersion`. An empty one is none; a patch says what is to become of the object, and
    /// whether it may is upstream's to say.
    pub(super) fn check(self, version: &str) -> Result<(), Refused> {
        match self {
            _ if version.is_empty() || version == SERVED => Ok(()),
            Inbound::Object | Inbound::YamlObject => Err(Refused::Version(version.to_owned())),
            Inbound::ApplyPatch => Err(Refused::ApplyVersion(version.to_owned())),
            Inbound::MergePatch | Inbound::JsonPatch | Inbound::Untouched => Ok(()),
        }
    }
}

/// The body to send upstream, under the `Content-Type` that it came with.
///
/// # Errors
/// See [`Refused`].
pub fn inbound(kind: Inbound, body: Bytes) -> Result<Bytes, Refused> {
    if body.len() > BODY_MOST {
        return Err(Refused::TooLarge);
    }
    if kind == Inbound::Untouched {
        return Ok(body);
    }
    let text = std::str::from_utf8(&body)?;
    let splices = match kind {
        Inbound::YamlObject | Inbound::ApplyPatch => either(kind, text)?,
        Inbound::JsonPatch => {
            shallow(text)?;
            patch::rename(text)?
        }
        _ => object(kind, text)?,
    };
    Ok(splices.apply().map_or(body, Bytes::from))
}

/// YAML. JSON is that too, but only a reader of JSON takes all of it.
fn either(kind: Inbound, text: &str) -> Result<Splices<'_>, Refused> {
    if text.trim_start().starts_with('{') {
        match object(kind, text) {
            Err(Refused::Json(_)) => {}
            read => return read,
        }
    }
    yaml::rename(kind, text)
}

fn object(kind: Inbound, text: &str) -> Result<Splices<'_>, Refused> {
    let mut renaming = Renaming::to_stored(text);
    let members = json::members(text, &["apiVersion", "metadata"])?;
    shallow(text)?;
    for (name, value) in members {
        match name {
            "apiVersion" => {
                kind.check(&json::string(value).unwrap_or_default())?;
                renaming.version(value);
            }
            _ if kind.has_managed_fields() => renaming.metadata(value)?,
            _ => {}
        }
    }
    Ok(renaming.splices())
}

fn shallow(json: &str) -> Result<(), Refused> {
    match json::is_deeper(json, DEEPEST) {
        true => Err(Refused::TooDeep),
        false => Ok(()),
    }
}

fn media_type(content_type: &str) -> String {
    let media_type = content_type.split(';').next().unwrap_or_default();
    media_type.trim().to_ascii_lowercase()
}

#[cfg(test)]
mod tests;
