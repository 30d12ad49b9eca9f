//! The chart against what it is made from: manifest copies, schema, value table and rights table. Needs neither Helm nor a
//! cluster; what Helm makes of the chart is for the cluster tests.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use serde_json::{Map, Value};

const CHART: &str = "charts/model-deployment-operator";

fn read(path: &str) -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    fs::read_to_string(&file).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn yaml(text: &str) -> Value {
    serde_yaml::from_str(text).expect("YAML")
}

fn object(value: &Value) -> &Map<String, Value> {
    value.as_object().expect("a map")
}

/// The cells of every row of every Markdown table.
fn rows(text: &str) -> Vec<Vec<String>> {
    text.lines()
        .filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |"))
        .map(|line| line.split(" | ").map(|cell| cell.trim().to_owned()).collect())
        .collect()
}

/// Every value that the schema names, with its default. Maps whose members the schema leaves open count as one value.
fn leaves(schema: &Value, values: &Value, path: &str, found: &mut BTreeMap<String, Value>) {
    for (name, value) in object(values) {
        let path = if path.is_empty() {
            name.clone()
        } else {
            format!("{path}.{name}")
        };
        let part = schema["properties"]
            .get(name)
            .unwrap_or_else(|| panic!("values.schema.json does not know {path}"));
        if part.get("properties").is_some() {
            leaves(part, value, &path, found);
        } else {
            found.insert(path, value.clone());
        }
    }
}

/// Paths of schema objects that list their members and yet take others.
fn open_objects(schema: &Value, path: &str, found: &mut Vec<String>) {
    let Some(properties) = schema.get("properties") else {
        return;
    };
    if schema.get("additionalProperties") != Some(&Value::Bool(false)) {
        found.push(path.to_owned());
    }
    for (name, part) in object(properties) {
        open_objects(part, &format!("{path}.{name}"), found);
    }
}

/// The rules of a template, as YAML: lines that only steer the template are left out, other insertions become `<release>`.
fn rules(template: &str) -> Vec<Value> {
    let mut text = String::new();
    for line in read(&format!("{CHART}/templates/{template}")).lines() {
        if line.trim_start().starts_with("{{-") {
            continue;
        }
        let mut rest = line;
        while let Some((before, after)) = rest.split_once("{{") {
            text.push_str(before);
            let (insertion, after) = after.split_once("}}").expect("a closed insertion");
            text.push_str(match insertion.trim() {
                r#"include "model-deployment-operator.fullname" ."# => "<release>",
                r#"include "model-deployment-operator.certificateSecret" ."# => "<release>-certificate",
                ".Release.Namespace" => "<namespace>",
                "." => "<key>",
                other => panic!("{template}: {other}"),
            });
            rest = after;
        }
        text.push_str(rest);
        text.push('\n');
    }
    yaml(&text)["rules"].as_array().expect("rules").clone()
}

fn list(rule: &Value, key: &str) -> String {
    let items = rule[key].as_array().into_iter().flatten();
    let items: Vec<_> = items.map(|item| item.as_str().expect("text")).collect();
    items.join(", ")
}

/// A rule as docs/install.md writes it: group, resources, verbs.
fn rule_row(rule: &Value) -> Vec<String> {
    let group = match list(rule, "apiGroups").as_str() {
        "" => "core".to_owned(),
        group => format!("`{group}`"),
    };
    let resources = format!("`{}`", list(rule, "resources"));
    let resources = match list(rule, "resourceNames").as_str() {
        "" => resources,
        names => format!("{resources} named `{}`", names.replace(", ", "`, `")),
    };
    vec![group, resources, format!("`{}`", list(rule, "verbs"))]
}

#[test]
fn the_chart_brings_the_generated_definition_word_for_word() {
    assert!(
        read("crds/modeldeployments.yaml") == read(&format!("{CHART}/files/modeldeployments.yaml")),
        "copy crds/modeldeployments.yaml to {CHART}/files/"
    );
}

#[test]
fn chart_and_operator_have_one_version() {
    let chart = yaml(&read(&format!("{CHART}/Chart.yaml")));
    assert_eq!(chart["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(chart["appVersion"], env!("CARGO_PKG_VERSION"));
}

#[test]
fn the_schema_names_every_value_and_refuses_others() {
    let schema = read(&format!("{CHART}/values.schema.json"));
    let schema: Value = serde_json::from_str(&schema).expect("JSON");
    let values = yaml(&read(&format!("{CHART}/values.yaml")));

    let mut open = Vec::new();
    open_objects(&schema, "values", &mut open);
    assert_eq!(open, Vec::<String>::new(), "these take any member");

    let named: BTreeSet<_> = object(&schema["properties"]).keys().collect();
    let mut given: BTreeSet<_> = object(&values).keys().collect();
    let global = "global".to_owned();
    given.insert(&global);
    assert_eq!(named, given);
}

#[test]
fn the_readme_has_a_row_for_every_value_with_its_default() {
    let schema = read(&format!("{CHART}/values.schema.json"));
    let schema = serde_json::from_str(&schema).expect("JSON");
    let mut values = BTreeMap::new();
    leaves(&schema, &yaml(&read(&format!("{CHART}/values.yaml"))), "", &mut values);

    let written: BTreeMap<_, _> = rows(&read(&format!("{CHART}/README.md")))
        .iter()
        .filter(|row| row[0].starts_with('`'))
        .map(|row| {
            let value = serde_json::from_str(row[1].trim_matches('`')).expect("a default in JSON");
            (row[0].trim_matches('`').to_owned(), value)
        })
        .collect();
    assert_eq!(written, values);
}

#[test]
fn the_rights_table_says_what_the_roles_grant() {
    let granted: Vec<_> = rules("clusterrole.yaml")
        .iter()
        .chain(&rules("role.yaml"))
        .chain(&rules("impersonatorrole.yaml"))
        .map(rule_row)
        .collect();
    let written: Vec<_> = rows(&read("docs/install.md"))
        .into_iter()
        .filter(|row| row.len() == 4 && row[0] != "Group")
        .map(|row| row[..3].to_vec())
        .collect();
    assert_eq!(written, granted);
}

#[test]
fn every_right_stands_below_its_reason() {
    for template in ["clusterrole.yaml", "role.yaml", "impersonatorrole.yaml"] {
        let text = read(&format!("{CHART}/templates/{template}"));
        let lines: Vec<_> = text.lines().map(str::trim).collect();
        for (number, line) in lines.iter().enumerate() {
            if line.starts_with("- apiGroups:") {
                assert!(lines[number - 1].starts_with("# "), "{template}, line {}", number + 1);
            }
        }
    }
}

#[test]
fn no_rule_uses_a_wildcard() {
    for template in [
        "clusterrole.yaml",
        "role.yaml",
        "impersonatorrole.yaml",
        "aggregate.yaml",
    ] {
        assert!(
            !read(&format!("{CHART}/templates/{template}")).contains('*'),
            "{template}"
        );
    }
}
