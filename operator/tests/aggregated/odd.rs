//! Odd requests by the thousand, straight at the port: whatever is sent by whomever, nothing breaks and nobody is let in.
//!
//! They are the same at every run.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::Once;

use http::Method;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::api::reply;
use crate::caller::{Caller, Connection};
use crate::issued::{Authority, params};
use crate::stage::{ALICE, METRICS, Stage};

/// Requests of one caller by each protocol.
const REQUESTS: usize = 300;
/// Requests on one connection: what breaks it takes those behind it along.
const TOGETHER: usize = 2;
/// Longest body that is sent by HTTP/2: one frame.
const FRAME: usize = 16 << 10;

const DOCUMENTS: [&str; 7] = [
    "/apis",
    "/apis/worker.gpustack.ai",
    "/apis/worker.gpustack.ai/v1",
    "/openapi/v3",
    "/openapi/v3/apis/worker.gpustack.ai/v1",
    "/version",
    "/readyz",
];
const RESOURCES: [&str; 7] = [
    METRICS,
    "/apis/worker.gpustack.ai/v1/modeldeployments",
    "/apis/worker.gpustack.ai/v1/namespaces/ns/modeldeployments",
    "/apis/worker.gpustack.ai/v1/namespaces/ns/modeldeployments/chat",
    "/apis/worker.gpustack.ai/v1/namespaces/ns/modeldeployments/chat/status",
    "/apis/worker.gpustack.ai/v1/namespaces/ns/modeldeployments/chat/scale",
    "/replicas/0.1.0/namespaces/ns/modeldeployments/chat",
];
const PIECES: [&str; 34] = [
    "/",
    "//",
    "/.",
    "/..",
    "/../..",
    "%2e%2e",
    "%2F",
    "%2f..%2f",
    "%00",
    "%",
    "%zz",
    ";",
    ";v=1",
    "\\",
    " ",
    "\t",
    "\r\n",
    "#",
    "*",
    "?",
    "é",
    "\u{202e}",
    "http://op",
    "https://alice@op:8443",
    "/apis",
    "/worker.gpustack.ai",
    "/v1",
    "/v1alpha1",
    "/namespaces",
    "/ns",
    "/modeldeployments",
    "/chat",
    "/metrics",
    "/replicas",
];
const QUERIES: [&str; 22] = [
    "",
    "?",
    "?&&==",
    "?x=%ff",
    "?pretty=true",
    "?watch=true&timeoutSeconds=1",
    "?watch=maybe",
    "?window=1s",
    "?window=1e9s",
    "?view=full",
    "?timeout=-1s",
    "?timeout=99999999999999999999h",
    "?limit=-1&continue=%00",
    "?fieldSelector=metadata.name%3Dchat",
    "?fieldSelector=%",
    "?labelSelector=a+in+(b",
    "?dryRun=All&dryRun=None",
    "?fieldManager=&force=maybe",
    "?propagationPolicy=Foreground",
    "?resourceVersion=0&resourceVersionMatch=Exact",
    "?allowWatchBookmarks=1&sendInitialEvents=1",
    "?hash=0",
];
const METHODS: [&str; 6] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"];
const OTHER_METHODS: [&str; 6] = ["OPTIONS", "TRACE", "CONNECT", "PRI", "get", ""];
const IDENTITIES: [&str; 12] = [
    "x-remote-user",
    "X-Remote-User",
    "x-remote-user",
    "x_remote_user",
    "x-remote-group",
    "x-remote-uid",
    "x-remote-extra-",
    "x-remote-extra-example.com%2fscope",
    "x-remote-extra-%zz",
    "impersonate-user",
    "impersonate-group",
    "authorization",
];
const NAMES: [&str; 8] = [
    "alice",
    "admin",
    "system:masters",
    "system:anonymous",
    "",
    " ",
    "alice,admin",
    "\u{feff}größe",
];
/// Headers that are about the connection, or none at all.
const FRAMING: [(&str, &str); 29] = [
    ("x-remote-user ", "admin"),
    ("x-remote-user", "ad\0min"),
    ("x-remote-user:", "admin"),
    ("content-length", "0"),
    ("content-length", "5"),
    ("content-length", "-1"),
    ("content-length", "+5"),
    ("content-length", "5, 5"),
    ("content-length", "99999999999999999999"),
    ("transfer-encoding", "chunked"),
    ("transfer-encoding", "identity"),
    ("transfer-encoding", "gzip, chunked"),
    ("transfer-encoding", "chunked, identity"),
    ("transfer-encoding", "\x0bchunked"),
    ("expect", "100-continue"),
    ("expect", "the worst"),
    ("connection", "close"),
    ("connection", "keep-alive, x-remote-user"),
    ("connection", "upgrade"),
    ("upgrade", "h2c"),
    ("upgrade", "websocket"),
    ("http2-settings", "AAMAAABk"),
    ("te", "trailers"),
    ("trailer", "x-remote-user"),
    ("host", ""),
    ("host", "another"),
    (":path", "/apis"),
    ("", "of no name"),
    (" folded", "line"),
];
const HEADERS: [(&str, &str); 22] = [
    ("accept", "text/html"),
    ("accept", "application/json;q=0"),
    ("accept", "application/json;as=Table;g=meta.k8s.io;v=v1"),
    ("accept", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"),
    ("accept", ";;,,q="),
    ("accept-encoding", "gzip"),
    ("accept-encoding", "gzip;q=much"),
    ("content-encoding", "gzip"),
    ("content-type", ""),
    ("content-type", "application/json; charset=utf-7"),
    ("content-type", "application/json"),
    ("content-type", "application/json-patch+json"),
    ("content-type", "application/merge-patch+json"),
    ("content-type", "application/apply-patch+yaml"),
    ("content-type", "application/vnd.kubernetes.protobuf"),
    ("if-none-match", "*"),
    ("if-none-match", "\""),
    ("range", "bytes=0-0"),
    ("audit-id", "../../log"),
    ("x-http-method-override", "GET"),
    ("x-original-url", METRICS),
    ("x-forwarded-for", "127.0.0.1"),
];
const BODIES: [&str; 12] = [
    "{",
    "{}",
    "[]",
    "null",
    "5\r\nhello\r\n0\r\n\r\n",
    "fffffffffffffffff\r\n",
    "GET /apis/worker.gpustack.ai/v1/namespaces/ns/modeldeployments/chat/metrics HTTP/1.1\r\nhost: op\r\nx-remote-user: hidden\r\n\r\n",
    r#"{"apiVersion":"worker.gpustack.ai/v1","kind":"ModelDeployment","metadata":{"name":"chat","namespace":"ns"},"spec":{}}"#,
    r#"{"apiVersion":"worker.gpustack.ai/v1","kind":"ModelDeployment","metadata":[],"spec":1e999,"spec":{"\ud800":0}}"#,
    r#"{"apiVersion":"worker.gpustack.ai/v1","kind":"DeleteOptions","preconditions":null}"#,
    r#"[{"op":"replace","path":"/apiVersion","value":"worker.gpustack.ai/v1"},{"op":"move","from":"","path":"/~2"}]"#,
    "apiVersion: worker.gpustack.ai/v1\nkind: &a ModelDeployment\nmetadata: {name: chat, labels: {? [*a] : !!binary x}}\n",
];

/// Name and value.
type Header = (Vec<u8>, Vec<u8>);

/// One request, as its parts go over the wire.
#[derive(Debug)]
struct Odd {
    method: Vec<u8>,
    target: Vec<u8>,
    headers: Vec<Header>,
    body: Vec<u8>,
}

impl Odd {
    fn http1(&self) -> Vec<u8> {
        let mut bytes = [&self.method, &b" "[..], &self.target, b" HTTP/1.1\r\nhost: op\r\n"].concat();
        for (name, value) in &self.headers {
            bytes.extend([name, &b": "[..], value, b"\r\n"].concat());
        }
        [&bytes[..], b"\r\n", &self.body].concat()
    }

    /// Frames of HTTP/2; each header is spelled out.
    fn http2(&self, stream: u32) -> Vec<u8> {
        const DATA: u8 = 0;
        const HEADERS: u8 = 1;
        const CONTINUATION: u8 = 9;
        const END_STREAM: u8 = 1;
        const END_HEADERS: u8 = 4;
        let frame = |kind: u8, flags: u8, payload: &[u8]| {
            let length = &(payload.len() as u32).to_be_bytes()[1..];
            [length, &[kind, flags], &stream.to_be_bytes(), payload].concat()
        };
        let mut block = Vec::new();
        let own = [
            (&b":method"[..], &self.method[..]),
            (b":scheme", b"https"),
            (b":authority", b"op"),
            (b":path", &self.target),
        ];
        let given = self.headers.iter().map(|(name, value)| (&name[..], &value[..]));
        for (name, value) in own.into_iter().chain(given) {
            // A literal that is not remembered, by a new name.
            block.push(0);
            for text in [&name.to_ascii_lowercase()[..], value] {
                spell(&mut block, text);
            }
        }
        let body = &self.body[..self.body.len().min(FRAME)];
        let mut frames = Vec::new();
        let mut parts = block.chunks(FRAME).peekable();
        let mut kind = HEADERS;
        while let Some(part) = parts.next() {
            let mut flags = if parts.peek().is_none() { END_HEADERS } else { 0 };
            if kind == HEADERS && body.is_empty() {
                flags |= END_STREAM;
            }
            frames.extend(frame(kind, flags, part));
            kind = CONTINUATION;
        }
        if !body.is_empty() {
            frames.extend(frame(DATA, END_STREAM, body));
        }
        frames
    }

    /// Whom the headers may be taken to name.
    fn users(&self) -> impl Iterator<Item = String> {
        let named = |(name, value): &Header| {
            let value = std::str::from_utf8(value).ok()?.trim();
            name.eq_ignore_ascii_case(b"x-remote-user").then(|| value.to_owned())
        };
        self.headers.iter().filter_map(named)
    }
}

/// A text in HPACK: its length in seven bits or more, and the plain bytes.
fn spell(block: &mut Vec<u8>, text: &[u8]) {
    match text.len() {
        short @ ..127 => block.push(short as u8),
        long => {
            block.push(127);
            let mut rest = long - 127;
            while rest >= 128 {
                block.push((rest % 128) as u8 | 128);
                rest /= 128;
            }
            block.push(rest as u8);
        }
    }
    block.extend(text);
}

fn one_of(texts: &'static [&'static str]) -> impl Strategy<Value = Vec<u8>> {
    select(texts).prop_map(|text| text.as_bytes().to_vec())
}

fn garbage() -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(any::<u8>(), 0..40)
}

fn known() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![1 => one_of(&DOCUMENTS), 2 => one_of(&RESOURCES)]
}

fn target() -> impl Strategy<Value = Vec<u8>> {
    let bent = (known(), any::<Index>(), one_of(&PIECES)).prop_map(|(mut path, at, piece)| {
        let at = at.index(path.len() + 1);
        path.splice(at..at, piece);
        path
    });
    let path = prop_oneof![
        8 => known(),
        8 => bent,
        6 => proptest::collection::vec(one_of(&PIECES), 0..9).prop_map(|pieces| pieces.concat()),
        1 => (known(), 1_000..100_000_usize).prop_map(|(path, more)| [path, vec![b'a'; more]].concat()),
        1 => garbage(),
    ];
    (path, one_of(&QUERIES)).prop_map(|(path, query)| [path, query].concat())
}

fn identity() -> impl Strategy<Value = Header> {
    let value = prop_oneof![
        12 => one_of(&NAMES),
        1 => garbage(),
        1 => (1_000..100_000_usize).prop_map(|length| vec![b'a'; length]),
    ];
    (one_of(&IDENTITIES), value)
}

fn header() -> impl Strategy<Value = Header> {
    prop_oneof![
        8 => select(&HEADERS[..]).prop_map(|(name, value)| (name.into(), value.into())),
        3 => select(&FRAMING[..]).prop_map(|(name, value)| (name.into(), value.into())),
        1 => (garbage(), garbage()),
    ]
}

fn body() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        16 => one_of(&BODIES),
        3 => garbage(),
        1 => Just(b"[".repeat(100_000)),
        1 => Just(vec![b' '; (3 << 20) + 1]),
    ]
}

/// Requests that are odd in one way or in every way, with these headers about who asks.
fn odd(identities: impl Strategy<Value = Vec<Header>>) -> impl Strategy<Value = Odd> {
    let method = prop_oneof![8 => one_of(&OTHER_METHODS), 1 => garbage()];
    let headers = proptest::collection::vec(header(), 1..4);
    let plain = (one_of(&METHODS), known(), identities);
    let parts = (method, target(), headers, body());
    let are_odd = [0.1, 0.3, 0.3, 0.3, 0.1].map(proptest::bool::weighted);
    (plain, parts, are_odd).prop_map(|((method, target, headers), parts, are_odd)| {
        let [by_method, by_target, by_headers, by_body, by_length] = are_odd;
        let mut odd = Odd {
            method,
            target,
            headers,
            body: Vec::new(),
        };
        if by_method {
            odd.method = parts.0;
        }
        if by_target {
            odd.target = parts.1;
        }
        if by_headers {
            odd.headers.extend(parts.2);
        }
        if by_body {
            odd.body = parts.3;
            if !by_length {
                odd.headers
                    .push((b"content-length".to_vec(), odd.body.len().to_string().into()));
            }
        }
        odd
    })
}

/// So many of a strategy's values, always the same ones.
fn many<T: std::fmt::Debug>(strategy: impl Strategy<Value = T>) -> Vec<T> {
    let mut runner = TestRunner::deterministic();
    let values = (0..REQUESTS).map(|_| strategy.new_tree(&mut runner).expect("a value").current());
    values.collect()
}

/// Sends all of them by both protocols, and reads whatever is answered.
async fn send(stage: &Stage, caller: &Caller, requests: &[Odd]) {
    let mut witness = stage.anyone().open().await.unwrap();
    for together in requests.chunks(TOGETHER) {
        let plain = together.iter().map(Odd::http1).collect::<Vec<_>>().concat();
        pour(caller, b"http/1.1", &plain, &mut witness).await;
        let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0".to_vec();
        let frames = together
            .iter()
            .zip((1..).step_by(2))
            .map(|(odd, stream)| odd.http2(stream));
        let frames = [preface].into_iter().chain(frames).collect::<Vec<_>>().concat();
        pour(caller, b"h2", &frames, &mut witness).await;
    }
}

/// One connection, until the server ends it or waits for more: somebody else has been answered three times since it said anything.
async fn pour(caller: &Caller, protocol: &[u8], bytes: &[u8], witness: &mut Connection) {
    let stream = caller.connect(protocol).await.unwrap().into_inner();
    let (mut reader, mut writer) = tokio::io::split(stream);
    let mut answers = [0; FRAME];
    let write = async {
        // The server may hang up before it has read all.
        let _ = writer.write_all(bytes).await;
        let _ = writer.flush().await;
        std::future::pending().await
    };
    let read = async {
        let mut silence = 0;
        while silence < 3 {
            tokio::select! {
                biased;
                read = reader.read(&mut answers) => match read {
                    Ok(1..) => silence = 0,
                    Ok(0) | Err(_) => return,
                },
                answer = witness.send(Method::GET, "/version", &[]) => {
                    assert_eq!(answer.unwrap().code, 200);
                    silence += 1;
                }
            }
        }
    };
    tokio::select! {
        () = write => {}
        () = read => {}
    }
}

thread_local! {
    /// Panics of this thread. A test and its server are one thread.
    static PANICS: Cell<usize> = const { Cell::new(0) };
}

/// Has the panics of every thread counted, and told as ever.
fn count_panics() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let tell = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            PANICS.set(PANICS.get() + 1);
            tell(panic);
        }));
    });
}

/// What anyone may read.
async fn documents(stage: &Stage) -> Vec<bytes::Bytes> {
    let mut bodies = Vec::new();
    for path in DOCUMENTS {
        let answer = stage.anyone().get(path, &[]).await;
        assert_eq!(answer.code, 200, "{path}");
        bodies.push(answer.body);
    }
    bodies
}

/// Expects a server in its best health: the documents are as before, and who may read reads.
async fn lives(stage: &Stage, before: &[bytes::Bytes]) {
    assert_eq!(PANICS.get(), 0);
    assert_eq!(documents(stage).await, before);
    assert_eq!(stage.anyone().get(METRICS, ALICE).await.code, 401);
    assert_eq!(stage.front().get(METRICS, ALICE).await.code, 200);
}

#[tokio::test]
async fn whatever_is_sent_without_the_front_proxys_certificate_lets_nobody_in() {
    count_panics();
    let stage = Stage::bare().await;
    let users = Authority::new("users");
    stage.publish(json!({
        "client-ca-file": users.pem,
        "requestheader-allowed-names": r#"["front-proxy-client"]"#,
    }));
    stage.until_code(&stage.front(), 200).await;
    let (before, reviews) = (documents(&stage).await, stage.api.reviews().len());
    let asked = stage.metrics.asked.lock().len();
    let requests = many(odd(proptest::collection::vec(identity(), 0..4)));
    for caller in [
        stage.anyone(),
        stage.with(Authority::new("front proxy").issue(params("front-proxy-client"))),
        stage.with(users.issue(params("admin"))),
        stage.with(stage.proxy.issue(params("another-client"))),
    ] {
        send(&stage, &caller, &requests).await;
    }
    assert_eq!(stage.api.reviews().len(), reviews);
    assert_eq!(stage.metrics.asked.lock().len(), asked);
    assert!(stage.api.passed().is_empty(), "{:?}", stage.api.passed());
    let answered = stage.answered();
    // What the witness asked for is not theirs.
    let theirs = answered.iter().filter(|((resource, _), _)| resource != "version");
    let count: u64 = theirs.map(|(_, count)| count).sum();
    assert!(count > 4 * REQUESTS as u64, "{count}");
    for (resource, code) in answered.into_keys() {
        let is_document = ["discovery", "openapi", "version", "health"].contains(&resource.as_str());
        // The front proxy has read before.
        let is_fine = match code {
            200 | 304 => is_document || resource == "modeldeployments/metrics",
            _ => [400, 401, 404, 405, 406].contains(&code),
        };
        assert!(is_fine, "{resource}: {code}");
    }
    lives(&stage, &before).await;
}

#[tokio::test]
async fn whoever_the_front_proxys_odd_headers_name_is_reviewed_by_that_name_or_nobody() {
    count_panics();
    let stage = Stage::new().await;
    let before = documents(&stage).await;
    let (reviews, asked) = (stage.api.reviews().len(), stage.metrics.asked.lock().len());
    stage.api.review(|_| json!({"allowed": false}));
    let mut requests = many(odd(proptest::collection::vec(identity(), 1..4)));
    // Of a master nothing is reviewed.
    requests.retain(|odd| odd.headers.iter().all(|(_, value)| value != b"system:masters"));
    send(&stage, &stage.front(), &requests).await;
    let mut named: BTreeSet<_> = requests.iter().flat_map(Odd::users).collect();
    // Where a body's length is not said, it is a request of its own.
    named.insert("hidden".to_owned());
    let reviews = stage.api.reviews().split_off(reviews);
    assert!(reviews.len() > REQUESTS / 20, "{}", reviews.len());
    for review in reviews {
        let user = review["user"].as_str().unwrap();
        assert!(!user.is_empty() && named.contains(user.trim()), "{review}");
        for part in ["namespace", "resource", "subresource", "name"] {
            let part = review["resourceAttributes"][part].as_str().unwrap_or("none");
            let is_plain = !["", ".", ".."].contains(&part) && !part.contains(['/', '%']);
            assert!(is_plain, "{review}");
        }
    }
    assert_eq!(stage.metrics.asked.lock().len(), asked);
    assert!(stage.api.passed().is_empty(), "{:?}", stage.api.passed());
    for (resource, code) in stage.answered().into_keys() {
        assert!(code < 500, "{resource}: {code}");
    }
    stage.api.review(|_| json!({"allowed": true}));
    lives(&stage, &before).await;
}

#[tokio::test]
async fn whatever_a_caller_who_may_do_all_sends_is_passed_on_plainly_and_breaks_nothing() {
    count_panics();
    let stage = Stage::new().await;
    stage.until_writing().await;
    let before = documents(&stage).await;
    stage.api.script(|asked| {
        let passed = asked.path.starts_with("/apis/worker.gpustack.ai/v1alpha1/") && !asked.is_probe();
        passed.then(|| {
            reply(
                200,
                &json!({"apiVersion": "worker.gpustack.ai/v1alpha1", "kind": "ModelDeployment", "metadata": {"name": "chat", "namespace": "ns"}}),
            )
        })
    });
    let requests = many(odd(Just(vec![(b"x-remote-user".to_vec(), b"alice".to_vec())])));
    send(&stage, &stage.front(), &requests).await;
    let passed = stage.api.passed();
    assert!(passed.len() > REQUESTS / 20, "{}", passed.len());
    for asked in passed {
        let segments: Vec<_> = asked.path.split('/').skip(4).collect();
        let is_plain = match segments[..] {
            ["modeldeployments"] => true,
            ["namespaces", _, "modeldeployments", ..] => segments.len() < 6 || segments[5..] == ["status"],
            _ => false,
        };
        assert!(is_plain && !asked.path.contains(['%', '\\']), "{asked:?}");
        let is_theirs = asked.header("impersonate-user") == Some("alice");
        assert!(is_theirs || asked.method == Method::GET, "{asked:?}");
    }
    for (resource, code) in stage.answered().into_keys() {
        assert!(code < 500, "{resource}: {code}");
    }
    lives(&stage, &before).await;
}
