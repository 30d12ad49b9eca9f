//! The CustomResourceDefinition's schema held against a manifest, as an API server holds it. CEL rules are not read here.
//!
//! Covers the keywords that a structural schema of ours has; a field that the schema does not know is refused, as kubectl refuses it.

use std::collections::HashSet;

use regex::Regex;
use serde_json::Value;
use thiserror::Error;

/// One value that the schema does not accept.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{path}: {problem}")]
pub struct SchemaError {
    /// Where, such as `spec.roles[0].name`.
    pub path: String,
    /// What is wrong with it.
    pub problem: String,
}

/// Holds `value` against `schema`. A null member is an absent one.
///
/// # Errors
/// The first value that is not accepted, in the order of the schema.
pub fn check(schema: &Value, value: &Value, path: &str) -> Result<(), SchemaError> {
    let refuse = |problem: String| {
        Err(SchemaError {
            path: path.to_owned(),
            problem,
        })
    };
    if schema["x-kubernetes-int-or-string"] == true {
        return match value {
            Value::String(text) => check_text(schema, text).or_else(refuse),
            _ if is_of_type(value, "integer") => Ok(()),
            _ => refuse("must be a whole number or a string".into()),
        };
    }
    if let Some(kind) = schema["type"].as_str()
        && !is_of_type(value, kind)
    {
        return refuse(format!("must be of type {kind}, not {}", type_of(value)));
    }
    if let Some(allowed) = schema["enum"].as_array()
        && !allowed.contains(value)
    {
        let allowed: Vec<_> = allowed
            .iter()
            .filter(|allowed| !allowed.is_null())
            .map(Value::to_string)
            .collect();
        return refuse(format!("{value} is not one of {}", allowed.join(", ")));
    }
    match value {
        Value::Object(members) => check_members(schema, members, path),
        Value::Array(items) => check_items(schema, items, path),
        Value::String(text) => check_text(schema, text).or_else(refuse),
        Value::Number(number) => check_number(schema, number).or_else(refuse),
        Value::Bool(_) | Value::Null => Ok(()),
    }
}

fn check_members(schema: &Value, members: &serde_json::Map<String, Value>, path: &str) -> Result<(), SchemaError> {
    let at = |name: &str| {
        if path.is_empty() {
            name.to_owned()
        } else {
            format!("{path}.{name}")
        }
    };
    let present = |name: &str| members.get(name).is_some_and(|member| !member.is_null());
    for name in schema["required"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
    {
        if !present(name) {
            return Err(SchemaError {
                path: at(name),
                problem: "is required".into(),
            });
        }
    }
    let known = schema["properties"].as_object();
    let others = schema.get("additionalProperties").filter(|others| others.is_object());
    if known.is_none() && others.is_none() {
        return Ok(());
    }
    for (name, member) in members.iter().filter(|(_, member)| !member.is_null()) {
        match known.and_then(|known| known.get(name)).or(others) {
            Some(schema) => check(schema, member, &at(name))?,
            None => {
                return Err(SchemaError {
                    path: at(name),
                    problem: "is no field of the resource".into(),
                });
            }
        }
    }
    Ok(())
}

fn check_items(schema: &Value, items: &[Value], path: &str) -> Result<(), SchemaError> {
    let refuse = |problem: String| {
        Err(SchemaError {
            path: path.to_owned(),
            problem,
        })
    };
    let count = items.len() as u64;
    if let Some(least) = schema["minItems"].as_u64().filter(|least| count < *least) {
        return refuse(format!("must have at least {least} items, has {count}"));
    }
    if let Some(most) = schema["maxItems"].as_u64().filter(|most| count > *most) {
        return refuse(format!("must have at most {most} items, has {count}"));
    }
    for (index, item) in items.iter().enumerate() {
        check(&schema["items"], item, &format!("{path}[{index}]"))?;
    }
    if schema["x-kubernetes-list-type"] == "map" {
        let keys: Vec<_> = schema["x-kubernetes-list-map-keys"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        let mut seen = HashSet::new();
        for item in items {
            let identity: Vec<_> = keys.iter().map(|key| item[key].to_string()).collect();
            if !seen.insert(identity.clone()) {
                return refuse(format!("two items have {} {}", keys.join(", "), identity.join(", ")));
            }
        }
    }
    Ok(())
}

fn check_text(schema: &Value, text: &str) -> Result<(), String> {
    let length = text.chars().count() as u64;
    if let Some(least) = schema["minLength"].as_u64().filter(|least| length < *least) {
        return Err(format!("must have at least {least} characters, has {length}"));
    }
    if let Some(most) = schema["maxLength"].as_u64().filter(|most| length > *most) {
        return Err(format!("must have at most {most} characters, has {length}"));
    }
    if let Some(pattern) = schema["pattern"].as_str()
        && !Regex::new(pattern).is_ok_and(|pattern| pattern.is_match(text))
    {
        return Err(format!("{text:?} does not match {pattern}"));
    }
    Ok(())
}

fn check_number(schema: &Value, number: &serde_json::Number) -> Result<(), String> {
    let number = number.as_f64().unwrap_or(f64::NAN);
    if let Some(least) = schema["minimum"].as_f64().filter(|least| number < *least) {
        return Err(format!("must be at least {least}, is {number}"));
    }
    if let Some(most) = schema["maximum"].as_f64().filter(|most| number > *most) {
        return Err(format!("must be at most {most}, is {number}"));
    }
    Ok(())
}

fn is_of_type(value: &Value, kind: &str) -> bool {
    match kind {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        _ => false,
    }
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_keyword_refuses_what_it_excludes_and_names_where() {
        let schema = json!({
            "type": "object",
            "required": ["name"],
            "properties": {
                "name": {"type": "string", "minLength": 2, "maxLength": 4, "pattern": "^[a-z]+$"},
                "kind": {"type": "string", "enum": ["Server", "Decode"]},
                "count": {"type": "integer", "minimum": 1, "maximum": 3},
                "memory": {"x-kubernetes-int-or-string": true},
                "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                "free": {"type": "object"},
                "list": {
                    "type": "array", "minItems": 1, "maxItems": 2,
                    "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["key"],
                    "items": {"type": "object", "properties": {"key": {"type": "string"}}},
                },
            },
        });
        let table = [
            (
                json!({"name": "abc", "kind": "Server", "count": 3, "memory": "1Gi", "labels": {"a": "b"}, "free": {"any": 1}, "list": [{"key": "a"}, {"key": "b"}]}),
                None,
            ),
            (json!({"name": "abc", "kind": null, "memory": 5}), None),
            (json!({}), Some("x.name: is required")),
            (json!({"name": null}), Some("x.name: is required")),
            (
                json!({"name": "a"}),
                Some("x.name: must have at least 2 characters, has 1"),
            ),
            (
                json!({"name": "abcde"}),
                Some("x.name: must have at most 4 characters, has 5"),
            ),
            (json!({"name": "ABC"}), Some("x.name: \"ABC\" does not match ^[a-z]+$")),
            (json!({"name": 5}), Some("x.name: must be of type string, not integer")),
            (
                json!({"name": "abc", "kind": "server"}),
                Some("x.kind: \"server\" is not one of \"Server\", \"Decode\""),
            ),
            (
                json!({"name": "abc", "count": 0}),
                Some("x.count: must be at least 1, is 0"),
            ),
            (
                json!({"name": "abc", "count": 4}),
                Some("x.count: must be at most 3, is 4"),
            ),
            (
                json!({"name": "abc", "count": 1.5}),
                Some("x.count: must be of type integer, not number"),
            ),
            (
                json!({"name": "abc", "memory": true}),
                Some("x.memory: must be a whole number or a string"),
            ),
            (
                json!({"name": "abc", "memory": 1.5}),
                Some("x.memory: must be a whole number or a string"),
            ),
            (
                json!({"name": "abc", "labels": {"a": 1}}),
                Some("x.labels.a: must be of type string, not integer"),
            ),
            (
                json!({"name": "abc", "colour": "red"}),
                Some("x.colour: is no field of the resource"),
            ),
            (
                json!({"name": "abc", "list": []}),
                Some("x.list: must have at least 1 items, has 0"),
            ),
            (
                json!({"name": "abc", "list": [{}, {}, {}]}),
                Some("x.list: must have at most 2 items, has 3"),
            ),
            (
                json!({"name": "abc", "list": [{"key": "a"}, {"key": "a"}]}),
                Some("x.list: two items have key \"a\""),
            ),
            (
                json!({"name": "abc", "list": [{"key": 1}]}),
                Some("x.list[0].key: must be of type string, not integer"),
            ),
        ];
        for (value, expected) in table {
            let problem = check(&schema, &value, "x").err().map(|error| error.to_string());
            assert_eq!(problem.as_deref(), expected, "{value}");
        }
    }
}
