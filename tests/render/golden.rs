//! What is rendered for the manifests of `examples/`, whole.

use model_deployment::render::{Defaults, render};
use model_deployment_crds::ModelDeployment;

fn rendered(manifest: &str) -> String {
    let deployment: ModelDeployment = serde_yaml::from_str(manifest).expect("the manifest is a ModelDeployment");
    let plan = render(&deployment, &Defaults::default()).expect("the manifest is rendered");
    plan.objects()
        .map(|object| format!("---\n{}", serde_yaml::to_string(&object).expect("an object is YAML")))
        .collect()
}

#[test]
fn each_example_is_rendered_as_its_golden_file_says() {
    insta::glob!("../../examples", "*.yaml", |path| {
        let manifest = std::fs::read_to_string(path).expect("the manifest is read");
        insta::assert_snapshot!("example", rendered(&manifest));
    });
}
