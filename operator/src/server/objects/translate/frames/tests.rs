//! Watches as the API server sends them. `@` marks where the version's name gives way.

use super::*;

/// Every kind of event: objects, a Table, metadata, bookmarks, and the end of a watch whose start is forgotten.
const STREAM: &str = r#"{"type":"ADDED","object":{"apiVersion":"@","kind":"ModelDeployment","metadata":{"managedFields":[{"apiVersion":"@","manager":"kubectl"},{"apiVersion":"autoscaling/v1"}],"name":"chat"},"spec":{"model":{"name":"worker.gpustack.ai/v1alpha1\n"}}}}
{"type":"BOOKMARK","object":{"apiVersion":"@","kind":"ModelDeployment","metadata":{"annotations":{"k8s.io/initial-events-end":"true"},"creationTimestamp":null,"resourceVersion":"1234"},"spec":{}}}
{"type":"MODIFIED","object":{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"1235"},"columnDefinitions":null,"rows":[{"cells":["é🙂"],"object":{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"chat","managedFields":[{"apiVersion":"@"}]}}}]}}
{"object":{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"managedFields":[{"apiVersion":"@"}]}},"type":"DELETED"}
{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"too old resource version: 1 (2) worker.gpustack.ai/v1alpha1","reason":"Expired","code":410}}
"#;

fn stored(template: &str) -> String {
    template.replace('@', "worker.gpustack.ai/v1alpha1")
}

fn served(template: &str) -> String {
    template.replace('@', "worker.gpustack.ai/v1")
}

/// What comes of `chunks`, and whether all of it is known.
fn translate<'a>(chunks: impl IntoIterator<Item = &'a [u8]>) -> (String, bool) {
    let mut frames = Frames::default();
    let mut parts: Vec<_> = chunks.into_iter().map(|chunk| frames.push(chunk).unwrap()).collect();
    parts.push(frames.finish());
    let bytes = parts.iter().flat_map(|part| part.body.to_vec()).collect();
    (String::from_utf8(bytes).unwrap(), parts.iter().all(|part| part.known))
}

#[test]
fn each_event_is_renamed_by_its_own_object() {
    assert_eq!(translate([stored(STREAM).as_bytes()]), (served(STREAM), true));
}

#[test]
fn a_stream_may_be_split_anywhere() {
    let stream = stored(STREAM);
    let bytes = stream.as_bytes();
    for at in 0..=bytes.len() {
        assert_eq!(translate([&bytes[..at], &bytes[at..]]), (served(STREAM), true), "{at}");
    }
    for size in 1..100 {
        assert_eq!(translate(bytes.chunks(size)), (served(STREAM), true), "{size}");
    }
}

#[test]
fn an_event_is_passed_on_as_soon_as_it_is_whole() {
    let stream = stored(STREAM);
    let mut lines = stream.split_inclusive('\n');
    let (first, second) = (lines.next().unwrap(), lines.next().unwrap());
    let mut frames = Frames::default();
    assert_eq!(frames.push(&first.as_bytes()[..first.len() - 1]).unwrap().body, "");
    let both = [b"\n", &second.as_bytes()[..10]].concat();
    assert_eq!(
        frames.push(&both).unwrap().body,
        served(STREAM).split_inclusive('\n').next().unwrap()
    );
}

#[test]
fn what_is_cut_off_is_passed_on_as_it_is() {
    let whole = stored(r#"{"type":"ADDED","object":{"apiVersion":"@","kind":"ModelDeployment"}}"#);
    let (cut, known) = translate([&whole.as_bytes()[..whole.len() - 1]]);
    assert_eq!((cut.as_str(), known), (&whole[..whole.len() - 1], false));
    // Only the line's end is missing.
    let expected = served(r#"{"type":"ADDED","object":{"apiVersion":"@","kind":"ModelDeployment"}}"#);
    assert_eq!(translate([whole.as_bytes()]), (expected, true));
    assert_eq!(translate([]), (String::new(), true));
}

#[test]
fn what_is_not_known_to_come_is_told_and_not_touched() {
    for line in [
        "service unavailable\n",
        "{}\n",
        "{\"type\":\"ADDED\",\"object\":{\"apiVersion\":\"v1\",\"kind\":\"Pod\"}}\n",
        "{\"type\":\"OTHER\",\"object\":{\"apiVersion\":\"worker.gpustack.ai/v1alpha1\",\"kind\":\"ModelDeployment\"}}\n",
        "{\"type\":\"ADDED\",\"object\":{\"apiVersion\":\"worker.gpustack.ai/v1alpha1\",\"kind\":\"ModelDeployment\"}} {}\n",
    ] {
        assert_eq!(translate([line.as_bytes()]), (line.to_owned(), false));
        let around = format!("{}{line}{}", stored(STREAM), stored(STREAM));
        let expected = format!("{}{line}{}", served(STREAM), served(STREAM));
        assert_eq!(translate([around.as_bytes()]), (expected, false));
    }
}

#[test]
fn an_event_of_more_than_8_mib_ends_the_stream() {
    let head = stored(r#"{"type":"ADDED","object":{"apiVersion":"@","kind":"ModelDeployment","a":""#);
    let event = |length: usize| {
        let tail = "\"}}\n";
        format!("{head}{}{tail}", "x".repeat(length - head.len() - tail.len()))
    };
    let most = event(8 * 1024 * 1024);
    let (translated, known) = translate(most.as_bytes().chunks(1 << 16));
    assert_eq!((translated.len(), known), (most.len() - "alpha1".len(), true));

    let more = event(8 * 1024 * 1024 + 1);
    assert_eq!(Frames::default().push(more.as_bytes()), Err(TooLong));
    let mut frames = Frames::default();
    let results: Vec<_> = more
        .as_bytes()
        .chunks(1 << 16)
        .map(|chunk| frames.push(chunk))
        .collect();
    assert_eq!(results.last(), Some(&Err(TooLong)));
}
