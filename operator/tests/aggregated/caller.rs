//! A client that shows what certificate it is told to, and sends what headers it is told to.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::crypto::aws_lc_rs;
use rustls_pki_types::CertificateDer;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::issued::Identity;

#[derive(Debug)]
pub struct Answer {
    pub code: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    /// The message of a `Status` object, whose code must be the answer's.
    pub fn message(&self) -> String {
        let status = self.json();
        assert_eq!(status["kind"], "Status", "{status}");
        assert_eq!(status["code"], self.code.as_u16(), "{status}");
        assert_eq!(self.header("content-type"), Some("application/json"));
        assert_eq!(self.header("x-content-type-options"), Some("nosniff"));
        status["message"].as_str().unwrap().to_owned()
    }
}

/// How to reach the server.
#[derive(Clone)]
pub struct Caller {
    pub address: SocketAddr,
    pub name: String,
    pub authority: CertificateDer<'static>,
    pub identity: Option<Identity>,
}

/// An open HTTP/2 connection. Clones are the same one.
#[derive(Clone)]
pub struct Connection {
    sender: http2::SendRequest<Full<Bytes>>,
}

impl Caller {
    /// A TLS connection on which nothing was said yet.
    pub async fn connect(
        &self,
        protocol: &[u8],
    ) -> std::io::Result<TokioIo<tokio_rustls::client::TlsStream<TcpStream>>> {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(self.authority.clone()).unwrap();
        let builder = rustls::ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let mut config = match self.identity.clone() {
            Some(Identity { chain, key }) => builder.with_client_auth_cert(chain, key).unwrap(),
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = vec![protocol.to_vec()];
        let socket = TcpStream::connect(self.address).await?;
        // What follows the handshake would wait for its acknowledgement.
        socket.set_nodelay(true)?;
        let name = self.name.clone().try_into().unwrap();
        Ok(TokioIo::new(
            TlsConnector::from(Arc::new(config)).connect(name, socket).await?,
        ))
    }

    pub async fn open(&self) -> std::io::Result<Connection> {
        let stream = self.connect(b"h2").await?;
        let (sender, connection) = http2::handshake(TokioExecutor::new(), stream).await.unwrap();
        tokio::spawn(connection);
        Ok(Connection { sender })
    }

    /// One request on a connection of its own.
    pub async fn send(&self, method: Method, path: &str, headers: &[(&str, &str)]) -> Answer {
        self.open().await.unwrap().send(method, path, headers).await.unwrap()
    }

    /// One request with a body.
    pub async fn write(&self, method: Method, path: &str, headers: &[(&str, &str)], body: impl Into<Bytes>) -> Answer {
        let mut connection = self.open().await.unwrap();
        connection.sender.ready().await.unwrap();
        let request = request(method, &format!("https://server{path}"), headers).map(|_| Full::new(body.into()));
        read(connection.sender.send_request(request).await.unwrap())
            .await
            .unwrap()
    }

    /// The beginning of an answer whose body is read as it comes.
    pub async fn begin(&self, path: &str, headers: &[(&str, &str)]) -> http::Response<Incoming> {
        let mut connection = self.open().await.unwrap();
        connection.sender.ready().await.unwrap();
        let request = request(Method::GET, &format!("https://server{path}"), headers);
        connection.sender.send_request(request).await.unwrap()
    }

    pub async fn get(&self, path: &str, headers: &[(&str, &str)]) -> Answer {
        self.send(Method::GET, path, headers).await
    }

    /// One request over HTTP/1.1.
    pub async fn send_http1(&self, method: Method, path: &str, headers: &[(&str, &str)]) -> Answer {
        let (mut sender, connection) = http1::handshake(self.connect(b"http/1.1").await.unwrap())
            .await
            .unwrap();
        tokio::spawn(connection);
        let mut headers = headers.to_vec();
        headers.push(("host", &self.name));
        read(sender.send_request(request(method, path, &headers)).await.unwrap())
            .await
            .unwrap()
    }
}

impl Connection {
    /// Waits until nothing can be sent on it any more.
    pub async fn closed(&mut self) {
        while !self.sender.is_closed() {
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    }

    pub async fn send(&mut self, method: Method, path: &str, headers: &[(&str, &str)]) -> Result<Answer, hyper::Error> {
        self.sender.ready().await?;
        let path = format!("https://server{path}");
        read(self.sender.send_request(request(method, &path, headers)).await?).await
    }
}

fn request(method: Method, path: &str, headers: &[(&str, &str)]) -> Request<Full<Bytes>> {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(Full::default()).unwrap()
}

async fn read(response: http::Response<Incoming>) -> Result<Answer, hyper::Error> {
    let (parts, body) = response.into_parts();
    let body = body.collect().await?.to_bytes();
    Ok(Answer {
        code: parts.status,
        headers: parts.headers,
        body,
    })
}
