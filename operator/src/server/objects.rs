//! ModelDeployments themselves, as `v1`: the same objects that are stored as `v1alpha1`.

pub mod translate;
