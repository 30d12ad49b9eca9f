//! The metrics text of one Pod: which lines are wanted, and what each of them says.
//!
//! Owns the two text formats (Prometheus 0.0.4 and OpenMetrics 1.0, told apart by nothing: one reader takes both), the caps that
//! keep a hostile body cheap, and the rules that make a family unusable. Refuses to know engines, routers, Pods and fetches: the
//! caller says which families it wants, and how a body came here is not its business.
//!
//! A body is never parsed whole. Lines are selected by name, and each selected line goes to `openmetrics-parser` alone: what stands in
//! a line that nobody asked for, however broken, changes nothing.

mod bound;
mod collect;
mod family;
mod labels;
mod limits;
mod line;
mod near;
mod part;
mod sample;
mod wanted;

#[cfg(test)]
mod tests;

pub use bound::Bound;
pub use family::{Family, Flaw, Histogram, Series};
pub use labels::Labels;
pub use part::Damage;
pub use wanted::{Kind, Wanted};

use std::collections::{HashMap, HashSet};

/// The body holds neither a sample nor a comment and is not blank: a page of HTML or JSON, not metrics (code `NotExposition` of the
/// metrics contract, section 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the body is not metrics text")]
pub struct NotExposition;

/// What one body says about the wanted families.
#[derive(Clone, Debug)]
pub struct Exposition {
    families: HashMap<String, Family>,
    prefixes: HashSet<String>,
}

impl Exposition {
    /// The family of this name; `None` only if it was not among the wanted ones.
    pub fn family(&self, name: &str) -> Option<&Family> {
        self.families.get(name)
    }

    /// Whether the body holds any sample whose name starts with `prefix`, which must be one of the wanted prefixes.
    pub fn holds(&self, prefix: &str) -> bool {
        self.prefixes.contains(prefix)
    }
}

/// Reads the wanted families out of one body.
///
/// Takes CPU time, at most about 200 ms for 1 MiB of hostile text, so it does not belong on a thread that holds the deadlines of
/// fetches. An empty or blank body is read: every family in it is absent.
///
/// # Errors
///
/// [`NotExposition`] where the body is no metrics text at all.
pub fn read(body: &[u8], wanted: &Wanted) -> Result<Exposition, NotExposition> {
    let collected = collect::collect(body, wanted)?;
    let prefixes = collected.prefixes;
    let mut families: Vec<Family> = collected.families.into_iter().map(family::Collected::finish).collect();
    near::name(body, wanted, &mut families);
    let families = wanted.families().map(|want| want.name.clone()).zip(families).collect();
    Ok(Exposition { families, prefixes })
}
