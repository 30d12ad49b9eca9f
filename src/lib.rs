//! The logic of model-deployment-operator.
