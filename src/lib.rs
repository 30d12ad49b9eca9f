//! The logic of model-deployment-operator.

pub mod exposition;
