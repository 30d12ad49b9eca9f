//! What holds of every body: made-up ones, with blanks, repeated keys and escapes, and with versions' names where they mean
//! something and where they do not.

use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::Value;

use super::{Frames, Inbound, SERVED, STORED, inbound, outbound};

#[test]
fn the_names_are_those_of_the_definition() {
    use model_deployment_crds::{AGGREGATED_VERSION, GROUP, STORED_VERSION};

    assert_eq!(SERVED, format!("{GROUP}/{AGGREGATED_VERSION}"));
    assert_eq!(STORED, format!("{GROUP}/{STORED_VERSION}"));
}

/// Both names where a version is named, `@`; nothing else is to change.
struct Body {
    served: String,
    stored: String,
}

impl Body {
    fn new(template: &str) -> Self {
        Body {
            served: template.replace('@', SERVED),
            stored: template.replace('@', STORED),
        }
    }
}

/// An object's text: members in any order, each perhaps repeated, with blanks between.
fn object(member: impl Strategy<Value = (&'static str, String)>) -> impl Strategy<Value = String> {
    vec((member, blank(), blank()), 0..6).prop_map(|members| {
        let members: Vec<_> = members
            .iter()
            .map(|((name, value), before, after)| format!("{before}\"{name}\"{after}:{before}{value}{after}"))
            .collect();
        format!("{{{}}}", members.join(","))
    })
}

fn array(element: impl Strategy<Value = String>) -> impl Strategy<Value = String> {
    (vec(element, 0..4), blank()).prop_map(|(elements, blank)| format!("[{blank}{}]", elements.join(",")))
}

fn blank() -> impl Strategy<Value = &'static str> {
    prop_oneof![4 => Just(""), 1 => Just(" "), 1 => Just("\r\n\t ")]
}

/// Values in which no name of a version means one.
fn noise() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("null".to_owned()),
        Just("1.0".to_owned()),
        Just("-0.0".to_owned()),
        Just("9223372036854775808".to_owned()),
        Just("\"worker.gpustack.ai/v1\"".to_owned()),
        Just("\"worker.gpustack.ai/v1alpha1\"".to_owned()),
        Just(r#""\"}]\\\u0000é🙂""#.to_owned()),
        Just("{}".to_owned()),
        "\"[a-zA-Z0-9 :{}\\[\\],/]{0,8}\"",
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        let name = prop_oneof![
            Just("apiVersion"),
            Just("metadata"),
            Just("managedFields"),
            Just("kind"),
            Just("é\\n")
        ];
        prop_oneof![object((name, inner.clone())), array(inner)]
    })
}

/// `apiVersion`, spelled in one way or another, with the version's name.
fn version() -> impl Strategy<Value = (&'static str, String)> {
    prop_oneof![Just("apiVersion"), Just("\\u0061piVersion"), Just("apiVersio\\u006E")]
        .prop_map(|name| (name, "\"@\"".to_owned()))
}

fn managed_field() -> impl Strategy<Value = String> {
    object(prop_oneof![
        2 => version(),
        1 => Just(("apiVersion", "\"autoscaling/v1\"".to_owned())),
        2 => (prop_oneof![Just("fieldsV1"), Just("manager")], noise()),
    ])
}

fn metadata() -> impl Strategy<Value = String> {
    let managed_fields = prop_oneof![
        4 => array(prop_oneof![4 => managed_field(), 1 => Just("7".to_owned())]),
        1 => Just("null".to_owned()),
    ];
    object(prop_oneof![
        2 => managed_fields.prop_map(|fields| ("managedFields", fields)),
        1 => (prop_oneof![Just("annotations"), Just("apiVersion")], noise()),
    ])
}

/// A ModelDeployment; that it is one is said last.
fn deployment() -> impl Strategy<Value = String> {
    let member = prop_oneof![
        2 => version(),
        2 => metadata().prop_map(|metadata| ("metadata", metadata)),
        2 => (prop_oneof![Just("spec"), Just("status"), Just("managedFields")], noise()),
    ];
    object(member).prop_map(|object| {
        let comma = if object == "{}" { "" } else { "," };
        let members = &object[..object.len() - 1];
        format!("{members}{comma}\"kind\":\"ModelDeployment\",\"apiVersion\":\"@\"}}")
    })
}

/// The same on parsed values, for one object.
fn expected(mut object: Value, from: &str, to: &str) -> Value {
    let rename = |owner: &mut Value| {
        if let Some(version) = owner.get_mut("apiVersion").filter(|version| **version == *from) {
            *version = to.into();
        }
    };
    rename(&mut object);
    let fields = object
        .pointer_mut("/metadata/managedFields")
        .and_then(Value::as_array_mut);
    fields.into_iter().flatten().for_each(rename);
    object
}

fn json(text: &[u8]) -> Value {
    serde_json::from_slice(text).unwrap()
}

/// Nothing is asserted but that there is an end.
fn read_in_every_way(body: &[u8]) {
    use Inbound::*;
    for kind in [Object, YamlObject, MergePatch, JsonPatch, ApplyPatch, Untouched] {
        let _ = inbound(kind, Bytes::copy_from_slice(body));
    }
    outbound(Bytes::copy_from_slice(body));
    let mut frames = Frames::default();
    frames.push(body).unwrap();
    frames.finish();
}

proptest! {
    #[test]
    fn a_body_changes_in_the_names_of_its_version_only(template in deployment()) {
        let body = Body::new(&template);
        for kind in [Inbound::Object, Inbound::YamlObject, Inbound::MergePatch] {
            let passed = inbound(kind, body.served.clone().into()).unwrap();
            prop_assert_eq!(&passed, &body.stored);
            prop_assert_eq!(json(&passed), expected(json(body.served.as_bytes()), SERVED, STORED));
        }
        let answered = outbound(body.stored.clone().into());
        prop_assert!(answered.known);
        prop_assert_eq!(&answered.body, &body.served);
        prop_assert_eq!(json(&answered.body), expected(json(body.stored.as_bytes()), STORED, SERVED));
    }

    #[test]
    fn there_and_back_is_the_same_body(template in deployment()) {
        let body = Body::new(&template);
        let passed = inbound(Inbound::Object, body.served.clone().into()).unwrap();
        prop_assert_eq!(outbound(passed).body, body.served);
    }

    #[test]
    fn lists_and_events_change_as_their_objects_do(templates in vec(deployment(), 0..4), size in 1_usize..200) {
        let items = templates.join(",");
        let list = Body::new(&format!("{{\"items\":[{items}],\"kind\":\"ModelDeploymentList\",\"apiVersion\":\"@\"}}"));
        prop_assert_eq!(outbound(list.stored.into()).body, list.served);

        let line = |template: &String| format!("{{\"type\":\"ADDED\",\"object\":{}}}\n", template.replace(['\r', '\n'], ""));
        let stream = Body::new(&templates.iter().map(line).collect::<String>());
        let mut frames = Frames::default();
        let mut passed = Vec::new();
        for chunk in stream.stored.as_bytes().chunks(size) {
            passed.extend_from_slice(&frames.push(chunk).unwrap().body);
        }
        passed.extend_from_slice(&frames.finish().body);
        prop_assert_eq!(String::from_utf8(passed).unwrap(), stream.served);
    }

    /// Written and read by another program's YAML.
    #[test]
    fn yaml_means_the_same_but_for_its_version(template in deployment()) {
        let object = json(template.replace('@', SERVED).as_bytes());
        let yaml = serde_yaml::to_string(&object).unwrap();
        let passed = inbound(Inbound::YamlObject, yaml.clone().into()).unwrap();
        let read: Value = serde_yaml::from_slice(&passed).unwrap();
        prop_assert_eq!(read, expected(object, SERVED, STORED), "{}", yaml);
    }

    #[test]
    fn whatever_a_body_is_it_is_read(body in vec(any::<u8>(), 0..60)) {
        read_in_every_way(&body);
    }

    #[test]
    fn whatever_looks_like_json_or_yaml_is_read(body in "([\\[\\]{}:,\"a@/~ \\n\\\\&*!<>|?#%'0-9-]|apiVersion: |\"metadata\":|worker.gpustack.ai/v1|managedFields){0,30}") {
        read_in_every_way(body.as_bytes());
    }
}
