//! Options that the operator keeps for itself.

use thiserror::Error;

use super::grammar::Given;

/// An option that a user may not give, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owned {
    /// The option's first name.
    pub flag: &'static str,
    /// Completes "`--flag` …".
    pub why: &'static str,
}

impl Owned {
    /// An option that the operator renders itself.
    pub const fn rendered(flag: &'static str) -> Self {
        Self {
            flag,
            why: "is set by the operator",
        }
    }
}

/// A user gave an option that the operator keeps for itself.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{spelled} is refused: {} {why}", if spelled == flag { "it" } else { flag })]
pub struct OwnedFlag {
    /// As the user spelled it.
    pub spelled: String,
    /// The option's first name.
    pub flag: &'static str,
    /// Completes "`--flag` …".
    pub why: &'static str,
}

impl OwnedFlag {
    /// The first of the options `given` that is `owned`.
    ///
    /// # Errors
    /// That option.
    pub fn refuse(given: &[Given], owned: &[Owned]) -> Result<(), Self> {
        let found = given.iter().find_map(|given| {
            owned
                .iter()
                .find(|owned| owned.flag == given.flag)
                .map(|owned| (given, owned))
        });
        match found {
            Some((given, owned)) => Err(Self {
                spelled: given.spelled.clone(),
                flag: owned.flag,
                why: owned.why,
            }),
            None => Ok(()),
        }
    }
}
