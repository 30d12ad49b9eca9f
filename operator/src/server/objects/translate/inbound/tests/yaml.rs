//! YAML, which stays what it is.

use super::*;

#[test]
fn yaml_is_renamed_where_it_stands_in_every_style() {
    for template in [
        "apiVersion: @\nkind: ModelDeployment\n",
        "---\n# apiVersion: worker.gpustack.ai/v1\napiVersion: @ # worker.gpustack.ai/v1\r\nkind: ModelDeployment\r\n...\n",
        "%YAML 1.1\n---\napiVersion: @\n",
        "\u{feff}apiVersion: @\n",
        "é: 🙂\napiVersion: @",
        "apiVersion: '@'\n",
        "\"apiVersion\": \"@\"\n",
        "'apiVersion': !!str @\n",
        "apiVersion: !!str \"@\"\n",
        "apiVersion:\n  @\n",
        "apiVersion: |-\n  @\nkind: ModelDeployment\n",
        "apiVersion: >-\n  @\n\nkind: ModelDeployment\n",
        "apiVersion: |- # worker.gpustack.ai/v1\n  @\n# worker.gpustack.ai/v1\nkind: ModelDeployment\n",
        "apiVersion: >-  # worker.gpustack.ai/v1\r\n    @\r\n\r\n # worker.gpustack.ai/v1\r\nkind: ModelDeployment\r\n",
        "? apiVersion\n: @\n",
        "\"<<\": worker.gpustack.ai/v1\napiVersion: @\n",
        "{kind: ModelDeployment, apiVersion: @}",
        "{\"apiVersion\":\"@\", kind: 'ModelDeployment',}",
        "&root\napiVersion: @\n",
        "metadata:\n  managedFields:\n  - apiVersion: @\n    fieldsV1: {apiVersion: worker.gpustack.ai/v1}\n  - {manager: hpa, apiVersion: autoscaling/v1}\n  - apiVersion: '@'\n  - 7\napiVersion: @\n",
        // Of other places.
        "spec: {apiVersion: worker.gpustack.ai/v1}\nmetadata:\n  apiVersion: worker.gpustack.ai/v1\n  annotations:\n    a: |\n      apiVersion: worker.gpustack.ai/v1\napiVersion: @\n",
        "? {apiVersion: worker.gpustack.ai/v1}\n: apiVersion: worker.gpustack.ai/v1\n? [apiVersion]\n: worker.gpustack.ai/v1\napiVersion: @\n",
        // Anchors and aliases of what is no name of a version; merged there too.
        "x: &x {apiVersion: worker.gpustack.ai/v1}\nmetadata:\n  labels: &l {a: b}\nspec:\n  a: *x\n  b: *l\n  <<: *x\n  *l : c\napiVersion: @\n",
        // What the API server reads in its own way.
        "apiVersion: @\nspec:\n  a: yes\n  mode: 0644\n  b: 1_000\n  c: 1e400\n  d: 2026-11-30\n  e: .5\n  e: 1.0\n",
    ] {
        check(YamlObject, template);
    }
}

#[test]
fn yaml_spelled_with_escapes_is_read() {
    for (body, renamed) in [
        (
            "\"\\x61piVersion\": \"worker.gpustack.ai\\/v1\"\nkind: a\n",
            "\"\\x61piVersion\": \"worker.gpustack.ai/v1alpha1\"\nkind: a\n",
        ),
        (
            "apiVersion: \"worker.\\\n  gpustack.ai/v1\"\n",
            "apiVersion: \"worker.gpustack.ai/v1alpha1\"\n",
        ),
    ] {
        assert_eq!(passed(YamlObject, body), renamed);
        assert_eq!(passed(ApplyPatch, body), renamed);
    }
}

#[test]
fn the_managed_fields_of_an_apply_patch_in_yaml_are_left() {
    let body =
        "metadata: &m {managedFields: [{apiVersion: worker.gpustack.ai/v1}]}\napiVersion: worker.gpustack.ai/v1\n";
    assert_eq!(
        passed(ApplyPatch, body),
        "metadata: &m {managedFields: [{apiVersion: worker.gpustack.ai/v1}]}\napiVersion: worker.gpustack.ai/v1alpha1\n"
    );
}

#[test]
fn yaml_of_another_version_is_refused() {
    for (version, shown) in [
        ("v1", "v1"),
        ("1.0", "1.0"),
        ("true", "true"),
        ("|\n  worker.gpustack.ai/v1\n", "worker.gpustack.ai/v1\n"),
    ] {
        let (code, sentence) = refused(YamlObject, format!("apiVersion: {version}\n"));
        assert_eq!(code, 400);
        assert!(
            sentence.starts_with(&format!("the API version in the data ({shown}) ")),
            "{sentence}"
        );
    }
}

#[test]
fn a_name_that_yaml_shares_with_another_place_is_refused() {
    let expected = (
        400,
        "apiVersion and metadata.managedFields are anchors, aliases or merged in this YAML: write them out, or send JSON".to_owned(),
    );
    for body in [
        "apiVersion: &v worker.gpustack.ai/v1\nspec: {a: *v}\n",
        "spec: {a: &v worker.gpustack.ai/v1}\napiVersion: *v\n",
        "x: &x {apiVersion: worker.gpustack.ai/v1}\n<<: *x\n",
        "x: &k apiVersion\n*k : worker.gpustack.ai/v1\n",
        "x: &m {managedFields: []}\nmetadata: *m\n",
        "x: &m {managedFields: []}\nmetadata: {<<: *m}\n",
        "x: &m []\nmetadata: {managedFields: *m}\n",
        "metadata: &m {managedFields: []}\n",
        "metadata: {managedFields: &m []}\n",
        "metadata: {managedFields: [&m {apiVersion: worker.gpustack.ai/v1}, *m]}\n",
        "metadata: {managedFields: [{apiVersion: &v worker.gpustack.ai/v1}]}\n",
    ] {
        assert_eq!(refused(YamlObject, body), expected, "{body}");
    }
}

#[test]
fn a_body_of_two_yaml_documents_is_refused() {
    let expected = (400, "the body holds more than one YAML document".to_owned());
    for body in [
        "apiVersion: worker.gpustack.ai/v1\n---\na: 1\n",
        "--- {}\n--- {}\n",
        "a: 1\n...\nb: 1\n",
    ] {
        assert_eq!(refused(YamlObject, body), expected, "{body}");
        assert_eq!(refused(ApplyPatch, body), expected, "{body}");
    }
}

#[test]
fn aliases_are_not_multiplied() {
    let mut body = "apiVersion: @\nspec:\n  a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..30 {
        let below = vec![format!("*a{}", level - 1); 9].join(", ");
        body += &format!("  a{level}: &a{level} [{below}]\n");
    }
    check(YamlObject, &body);
}
