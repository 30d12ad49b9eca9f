//! The logic of model-deployment-operator: no process start, no signal, no global state.
//!
//! ```text
//! ModelDeployment --validate--> plan --render--> objects, facts among them --apply--> API server
//!                                                                                         |
//!                                                    Pod-role index <---------------------+ (watch: Pods, owners)
//!                                                          |
//! GET .../metrics --authenticate--authorize--> gather -----+
//!    scrape: Reading per Pod (body | reason, observedAt)
//!    exposition: kept samples of the wanted families
//!    window: baseline | delta
//!    merge: gauges by (name, source, scope, role); windows and hits per Pod
//!    missing: every source that did not contribute, one table of codes -> partial
//! <-- ModelDeploymentMetrics
//! ```
//!
//! Each room may use only those below it: snapshot; window, scrape, index, render; fields, arguments; exposition, pod.

pub mod arguments;
pub mod exposition;
pub mod fields;
pub mod index;
pub mod pod;
pub mod render;
pub mod scrape;
pub mod snapshot;
pub mod window;
