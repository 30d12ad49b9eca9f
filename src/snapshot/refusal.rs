//! When there is no answer at all (metrics contract, section 1).

use crate::fields::Code;

/// No Pod contributed anything. The status is 503; `Display` is its message, and a retry may help.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It has no Pod that is to be read.
    #[error("ModelDeployment {name} has no Pods with metrics yet")]
    NoPods {
        /// Name of the ModelDeployment.
        name: String,
    },
    /// It has some, and none could be read.
    #[error("none of the {pods} Pods of ModelDeployment {name} could be read, first cause {first}")]
    AllUnreadable {
        /// Name of the ModelDeployment.
        name: String,
        /// How many.
        pods: usize,
        /// The cause at the first of them, in order of names.
        first: Code,
    },
}
