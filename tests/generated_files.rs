//! Files that are generated and committed are what the code generates.

use std::fs;

fn committed(path: &str) -> String {
    fs::read_to_string(format!("{}/{path}", env!("CARGO_MANIFEST_DIR")))
        .unwrap_or_else(|error| panic!("{path}: {error}"))
}

#[test]
fn the_definition_is_what_the_types_say() {
    assert!(
        committed("crds/modeldeployments.yaml") == model_deployment_crds::definition::yaml(),
        "crds/modeldeployments.yaml is not what the types say: \
         cargo run -p model-deployment-operator -- crd > crds/modeldeployments.yaml"
    );
}
