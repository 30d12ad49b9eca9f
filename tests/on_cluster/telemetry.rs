//! The operator's own metrics: what docs/telemetry.md lists is what the replicas expose, and nothing tells of a Pod.

use std::collections::BTreeSet;
use std::sync::Arc;

use http_body_util::{BodyExt, Empty};
use hyper::Request;
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use crate::scenario::{Failure, Outcome, Scenario, Test, ensure, metrics_path, test, vllm};
use crate::straight;

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    vec![test!(the_replicas_expose_what_the_page_lists_and_no_address)]
}

const PREFIX: &str = "model_deployment_operator_";

async fn page(address: &str) -> Result<String, Failure> {
    let socket = TcpStream::connect((address, 8080)).await?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(socket)).await?;
    let connection = tokio::spawn(connection);
    let request = Request::get("/metrics").header("Host", address);
    let response = sender.send_request(request.body(Empty::<Bytes>::new())?).await?;
    let body = response.into_body().collect().await?.to_bytes();
    connection.abort();
    Ok(String::from_utf8(body.to_vec())?)
}

/// Families of the page's table, by their names there, without the prefix.
fn documented() -> Result<BTreeSet<String>, Failure> {
    let page = std::fs::read_to_string(format!("{}/docs/telemetry.md", env!("CARGO_MANIFEST_DIR")))?;
    let rows = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
    Ok(rows.map(|(name, _)| name.to_owned()).collect())
}

async fn the_replicas_expose_what_the_page_lists_and_no_address(scenario: Arc<Scenario>) -> Outcome {
    let namespace = &scenario.available("telemetry", &vllm("chat", 1, "")).await?;
    let replicas = scenario.replicas().await?;
    let mut exposed = BTreeSet::new();
    for (_, address) in &replicas {
        // Somebody without a certificate; then a read or two, each of one replica.
        let forged = straight::get(&scenario, address, &metrics_path(namespace, "chat"), &[]).await?;
        ensure!(forged == 401, "{forged}");
    }
    for _ in 0..20 {
        scenario.metrics(namespace, "chat").await?;
    }
    for (name, address) in &replicas {
        let page = page(address).await?;
        for line in page.lines() {
            if let Some(family) = line.strip_prefix("# TYPE ") {
                let (family, kind) = family.split_once(' ').ok_or("no type")?;
                let family = family.strip_prefix(PREFIX).ok_or("another prefix")?;
                exposed.insert(match kind {
                    "counter" => format!("{family}_total"),
                    "info" => format!("{family}_info"),
                    _ => family.to_owned(),
                });
            }
        }
        for secret in ["10.244.", namespace, "chat", name] {
            ensure!(!page.contains(secret), "{name} tells {secret}: {page}");
        }
        let identified = format!("{PREFIX}api_callers_unidentified_total{{reason=\"NoCertificate\"}} ");
        ensure!(
            page.contains(&identified),
            "{name} did not count the forged caller: {page}"
        );
    }
    ensure!(exposed == documented()?, "exposed: {exposed:?}");
    Ok(())
}
