//! API types of model-deployment-operator.
