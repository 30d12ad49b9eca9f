//! Plain HTTP to a Pod's own address, as another Pod of the cluster would send it.

use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpStream;

use crate::scenario::{Failure, ensure};

/// Sends a GET and returns the body as JSON; fails unless it ends well.
pub async fn get(address: &str, port: u16, path: &str) -> Result<Value, Failure> {
    send(address, port, Request::get(path), Value::Null).await
}

/// Asks for a completion of a few tokens and returns the answer; fails unless it ends well.
pub async fn complete(address: &str, port: u16, model: &str, prompt: &str) -> Result<Value, Failure> {
    let body = json!({"model": model, "prompt": prompt, "max_tokens": 4});
    let request = Request::post("/v1/completions").header("Content-Type", "application/json");
    send(address, port, request, body).await
}

async fn send(address: &str, port: u16, request: hyper::http::request::Builder, body: Value) -> Result<Value, Failure> {
    let body = if body.is_null() {
        String::new()
    } else {
        body.to_string()
    };
    let socket = TcpStream::connect((address, port)).await?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(socket)).await?;
    let connection = tokio::spawn(connection);
    let request = request.header("Host", format!("{address}:{port}"));
    let response = sender.send_request(request.body(Full::new(Bytes::from(body)))?).await?;
    let status = response.status();
    let body = response.into_body().collect().await?.to_bytes();
    connection.abort();
    ensure!(status.is_success(), "{status}: {}", String::from_utf8_lossy(&body));
    Ok(serde_json::from_slice(&body)?)
}
