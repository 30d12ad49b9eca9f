//! Which strings of a JSON object name its version, in both directions.

use serde_json::Error;

use super::splices::Splices;
use super::{SERVED, STORED, json};

/// The places of a text where one version's name gives way to the other's.
#[derive(Debug)]
pub struct Renaming<'a> {
    from: &'static str,
    splices: Splices<'a>,
}

impl<'a> Renaming<'a> {
    /// `v1` to `v1alpha1`, in parts of `text`.
    pub fn to_stored(text: &'a str) -> Self {
        Renaming {
            from: SERVED,
            splices: Splices::new(text, STORED),
        }
    }

    /// `v1alpha1` to `v1`, in parts of `text`.
    pub fn to_served(text: &'a str) -> Self {
        Renaming {
            from: STORED,
            splices: Splices::new(text, SERVED),
        }
    }

    /// The places found.
    pub fn splices(self) -> Splices<'a> {
        self.splices
    }

    /// An `apiVersion`, whatever JSON it is.
    pub fn version(&mut self, value: &'a str) {
        if json::string(value).is_some_and(|version| version == self.from) {
            // The quotes stay, and whatever spelling is between them goes.
            self.splices.replace_part(&value[1..value.len() - 1]);
        }
    }

    /// A whole object.
    ///
    /// # Errors
    /// It is no JSON. So with the following, of which only a whole body has not been read before.
    pub fn object(&mut self, object: &'a str) -> Result<(), Error> {
        for (name, value) in json::members(object, &["apiVersion", "metadata"])? {
            match name {
                "apiVersion" => self.version(value),
                _ => self.metadata(value)?,
            }
        }
        Ok(())
    }

    /// The objects of a list.
    pub fn objects(&mut self, items: &'a str) -> Result<(), Error> {
        json::elements(items)?
            .into_iter()
            .try_for_each(|item| self.object(item))
    }

    /// An object of which only the metadata is of this version: its envelope is of another group.
    pub fn metadata_of(&mut self, object: &'a str) -> Result<(), Error> {
        for (_, metadata) in json::members(object, &["metadata"])? {
            self.metadata(metadata)?;
        }
        Ok(())
    }

    /// An object's `metadata`.
    pub fn metadata(&mut self, metadata: &'a str) -> Result<(), Error> {
        for (_, managed_fields) in json::members(metadata, &["managedFields"])? {
            self.managed_fields(managed_fields)?;
        }
        Ok(())
    }

    /// `metadata.managedFields`.
    pub fn managed_fields(&mut self, managed_fields: &'a str) -> Result<(), Error> {
        json::elements(managed_fields)?
            .into_iter()
            .try_for_each(|entry| self.managed_field(entry))
    }

    /// An entry of `metadata.managedFields`. Those of another group or version have another name, and keep it.
    pub fn managed_field(&mut self, entry: &'a str) -> Result<(), Error> {
        for (_, version) in json::members(entry, &["apiVersion"])? {
            self.version(version);
        }
        Ok(())
    }
}
