//! The fake engine over real sockets, without a cluster.

use std::error::Error;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{HeaderMap, Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::json;
use test_cluster::engine::{Arguments, Engine, State};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Longer than anything that answers takes, and the time that a test of silence costs.
const SILENCE: Duration = Duration::from_millis(200);

struct Running {
    engine: Engine,
    target: SocketAddr,
    stop: CancellationToken,
    task: tokio::task::JoinHandle<()>,
}

impl Running {
    async fn start(command: &str) -> Self {
        let port = TcpListener::bind((LOOPBACK, 0)).unwrap().local_addr().unwrap().port();
        let line = format!("{command} --port {port}");
        let argv: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let engine = Engine::new(Arguments::read(&argv), LOOPBACK, None);
        let stop = CancellationToken::new();
        let (running, stopped) = (engine.clone(), stop.clone());
        let task = tokio::spawn(async move { running.run(stopped, |_| {}).await.unwrap() });
        let target = SocketAddr::new(LOOPBACK, port);
        while TcpStream::connect(target).await.is_err() {
            tokio::task::yield_now().await;
        }
        Self {
            engine,
            target,
            stop,
            task,
        }
    }

    async fn vllm() -> Self {
        Self::start("vllm serve m").await
    }

    async fn send(&self, request: Request<Full<Bytes>>) -> Result<(StatusCode, HeaderMap, Bytes), Box<dyn Error>> {
        let stream = TcpStream::connect(self.target).await?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        let connection = tokio::spawn(connection);
        let (parts, body) = sender.send_request(request).await?.into_parts();
        let body = body.collect().await?.to_bytes();
        connection.abort();
        Ok((parts.status, parts.headers, body))
    }

    async fn get(&self, path: &str) -> Result<(StatusCode, HeaderMap, Bytes), Box<dyn Error>> {
        self.send(
            Request::get(path)
                .header("host", "engine")
                .body(Full::default())
                .unwrap(),
        )
        .await
    }

    async fn metrics(&self) -> (StatusCode, HeaderMap, Bytes) {
        self.get("/metrics").await.unwrap()
    }

    async fn ask(&self, path: &str, body: serde_json::Value) -> String {
        let request = Request::post(path)
            .header("host", "engine")
            .body(Full::from(body.to_string()))
            .unwrap();
        let (status, _, body) = self.send(request).await.unwrap();
        assert_eq!(status, StatusCode::OK);
        String::from_utf8(body.to_vec()).unwrap()
    }
}

fn sample(body: &str, series: &str) -> f64 {
    let line = body
        .lines()
        .find(|line| line.starts_with(series))
        .unwrap_or_else(|| panic!("no {series}"));
    line.rsplit_once(' ').unwrap().1.parse().unwrap()
}

#[tokio::test]
async fn states_of_the_metrics_page() {
    let running = Running::vllm().await;
    let in_state = async |state: State| {
        running.engine.enter(state);
        running.metrics().await
    };
    let (status, headers, body) = in_state(State::Normal).await;
    assert_eq!(
        (status, &headers["content-type"]),
        (
            StatusCode::OK,
            &"text/plain; version=1.0.0; charset=utf-8".parse().unwrap()
        )
    );
    assert!(body.starts_with(b"# HELP python_gc_objects_collected_total"));
    assert_eq!(in_state(State::Body("a 1\n".into())).await.2, "a 1\n");
    assert_eq!(in_state(State::Status(500)).await.0, StatusCode::INTERNAL_SERVER_ERROR);
    let (status, headers, _) = in_state(State::Redirect("http://10.0.0.1/metrics".into())).await;
    assert_eq!(
        (status, &headers["location"]),
        (StatusCode::FOUND, &"http://10.0.0.1/metrics".parse().unwrap())
    );
    assert_eq!(in_state(State::Empty).await.2.len(), 0);
    assert!(in_state(State::Html).await.2.starts_with(b"<!doctype html>"));
    assert!(std::str::from_utf8(&in_state(State::Garbage).await.2).is_err());
    assert!(!in_state(State::ContentType(None)).await.1.contains_key("content-type"));
    let (_, headers, body) = in_state(State::Gzip).await;
    assert_eq!(
        (&headers["content-encoding"], &body[..2]),
        (&"gzip".parse().unwrap(), &[0x1f, 0x8b][..])
    );
    for chunked in [false, true] {
        let (_, headers, body) = in_state(State::Oversize {
            bytes: (1 << 20) + 1,
            chunked,
        })
        .await;
        assert_eq!(
            (body.len(), headers.contains_key("content-length")),
            ((1 << 20) + 1, !chunked)
        );
    }
    let drip = State::Drip {
        bytes: 20_000,
        pause: Duration::from_millis(1),
    };
    let whole = running.engine.body().unwrap();
    assert_eq!(in_state(drip).await.2, whole);
    // Nothing of this was about anything but the metrics page.
    assert_eq!(running.get("/health").await.unwrap().0, StatusCode::OK);
    assert_eq!(running.engine.scrapes().len(), 12);
}

#[tokio::test]
async fn states_that_never_answer() {
    let running = Running::vllm().await;
    running.engine.enter(State::Stall);
    assert!(timeout(SILENCE, running.get("/metrics")).await.is_err());
    running.engine.enter(State::Hang);
    assert!(timeout(SILENCE, running.get("/health")).await.is_err());
    running.engine.enter(State::Normal);
    assert_eq!(running.get("/health").await.unwrap().0, StatusCode::OK);
}

#[tokio::test]
async fn a_closed_port_opens_again() {
    let running = Running::vllm().await;
    running.engine.enter(State::Refuse);
    while TcpStream::connect(running.target).await.is_ok() {
        tokio::task::yield_now().await;
    }
    running.engine.enter(State::Normal);
    while TcpStream::connect(running.target).await.is_err() {
        tokio::task::yield_now().await;
    }
    assert_eq!(running.metrics().await.0, StatusCode::OK);
}

#[tokio::test]
async fn scrapes_are_remembered_with_their_headers() {
    let running = Running::vllm().await;
    let request = Request::get("/metrics?x=y")
        .header("host", "engine")
        .header("user-agent", "me/1")
        .body(Full::default())
        .unwrap();
    running.send(request).await.unwrap();
    running.engine.scraped(1).await;
    let scrape = running.engine.scrapes().remove(0);
    assert_eq!(
        (scrape.target.as_str(), &scrape.headers["user-agent"]),
        ("/metrics?x=y", &"me/1".parse().unwrap())
    );
}

#[tokio::test]
async fn gauges_follow_requests_in_flight_and_counters_follow_finished_ones() {
    let running = Running::start("vllm serve m --max-num-seqs 1").await;
    running.engine.enter(State::Slow(Duration::from_millis(300)));
    let ask = || running.ask("/v1/completions", json!({"prompt": "a b c", "max_tokens": 3}));
    let look = async {
        while running.engine.in_flight() < 2 {
            tokio::task::yield_now().await;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
        running.engine.body().unwrap()
    };
    let (_, _, busy) = tokio::join!(ask(), ask(), look);
    assert_eq!(sample(&busy, "vllm:num_requests_running{"), 1.0);
    assert_eq!(sample(&busy, "vllm:num_requests_waiting{"), 1.0);
    let idle = running.engine.body().unwrap();
    assert_eq!(sample(&idle, "vllm:num_requests_running{"), 0.0);
    assert_eq!(sample(&idle, "vllm:prompt_tokens_total{"), 6.0);
    assert_eq!(sample(&idle, "vllm:generation_tokens_total{"), 6.0);
    assert_eq!(sample(&idle, "vllm:time_to_first_token_seconds_count{"), 2.0);
    assert!(sample(&idle, "vllm:time_to_first_token_seconds_sum{") >= 0.6);
    running.engine.set("vllm:num_requests_running", 5.0).unwrap();
    ask().await;
    assert_eq!(
        sample(&running.engine.body().unwrap(), "vllm:num_requests_running{"),
        5.0
    );
    running.engine.reset();
    assert_eq!(
        sample(&running.engine.body().unwrap(), "vllm:num_requests_running{"),
        0.0
    );
}

#[tokio::test]
async fn streams_end_as_the_openai_api_ends_them() {
    let running = Running::vllm().await;
    let body = json!({"messages": [{"role": "user", "content": "hi"}], "max_tokens": 2, "stream": true, "stream_options": {"include_usage": true}});
    let text = running.ask("/v1/chat/completions", body).await;
    let events: Vec<&str> = text.split("\n\n").filter(|event| !event.is_empty()).collect();
    assert_eq!(events.len(), 4);
    assert!(events[1].contains("\"finish_reason\":\"length\""));
    assert!(events[2].contains("\"completion_tokens\":2"));
    assert_eq!(events[3], "data: [DONE]");
}

#[tokio::test]
async fn sglang_renames_its_samples_for_a_client_that_accepts_openmetrics() {
    let running = Running::start("python3 -m sglang.launch_server --model-path m --enable-metrics").await;
    let plain = running.metrics().await;
    assert!(!plain.1.contains_key("content-length"));
    assert!(String::from_utf8_lossy(&plain.2).contains("\nsglang:num_running_reqs{"));
    let request = Request::get("/metrics")
        .header("host", "e")
        .header("accept", "application/openmetrics-text")
        .body(Full::default());
    let open = running.send(request.unwrap()).await.unwrap().2;
    let open = String::from_utf8_lossy(&open);
    assert!(open.contains("\nsglang_num_running_reqs{") && open.contains("# TYPE sglang:num_running_reqs gauge"));
    assert!(open.ends_with("# EOF\n"));
    let without = Running::start("python3 -m sglang.launch_server --model-path m").await;
    assert_eq!(without.metrics().await.0, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_stop_lets_requests_finish() {
    let running = Running::vllm().await;
    running.engine.enter(State::Slow(Duration::from_millis(200)));
    let stop = async {
        while running.engine.in_flight() == 0 {
            tokio::task::yield_now().await;
        }
        running.stop.cancel();
    };
    let ask = running.ask("/v1/completions", json!({"prompt": "a", "max_tokens": 1}));
    let (answer, ()) = tokio::join!(ask, stop);
    assert!(answer.contains("text_completion"));
    running.task.await.unwrap();
    assert!(TcpStream::connect(running.target).await.is_err());
}

#[tokio::test]
async fn tls_states_are_tls() {
    let running = Running::vllm().await;
    for state in [State::UntrustedCertificate, State::ClientCertificate] {
        running.engine.enter(state);
        // Plain HTTP is dropped, once the port is the new one.
        while running.get("/health").await.is_ok() {
            tokio::task::yield_now().await;
        }
        running.engine.enter(State::Normal);
        while TcpStream::connect(running.target).await.is_err() || running.get("/health").await.is_err() {
            tokio::task::yield_now().await;
        }
    }
}
