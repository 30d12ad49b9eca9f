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

#[test]
fn the_reference_of_fields_and_codes_is_what_the_tables_say() {
    let page = committed("docs/metrics.md");
    let (_, rest) = page
        .split_once("<!-- begin: fields -->\n")
        .expect("the mark where it begins");
    let (reference, _) = rest.split_once("<!-- end: fields -->").expect("the mark where it ends");
    // One level below the page's own headings.
    let printed = model_deployment::fields::markdown().replace("## ", "### ");
    assert!(
        reference == printed,
        "docs/metrics.md is not what the tables say: put this between its marks:\n{printed}"
    );
}

#[test]
fn each_code_has_something_to_do() {
    let page = committed("docs/metrics.md");
    let (_, rest) = page.split_once("## What to do").expect("the section");
    let (section, _) = rest.split_once("\n## ").expect("the next section");
    let words: Vec<_> = section
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split(" |").next())
        .flat_map(|cell| cell.split(", "))
        .map(|word| word.trim_matches('`').to_owned())
        .collect();
    for code in model_deployment::fields::Code::ALL {
        assert_eq!(
            words.iter().filter(|word| **word == code.to_string()).count(),
            1,
            "{code} in {words:?}"
        );
    }
}
