//! Straight to the operator's port, past the API server: what anyone inside the cluster can send and see.

use std::sync::Arc;

use http_body_util::Empty;
use hyper::Request;
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use k8s_openapi::ByteString;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use test_cluster::{FrontProxy, Pair};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::scenario::{Failure, NAMESPACE, RELEASE, Scenario};

/// Port of the aggregated API on the operator's Pods.
const PORT: u16 = 8443;

/// The name that the API server verifies.
fn host() -> String {
    format!("{RELEASE}.{NAMESPACE}.svc")
}

/// A connection to the replica at `address`, verified as the API server does, on which the front proxy's certificate is shown or none.
async fn connect(
    scenario: &Scenario,
    address: &str,
    proxy: Option<&FrontProxy>,
) -> Result<TlsStream<TcpStream>, Failure> {
    let service = scenario.get("default", "apiservice/v1.worker.gpustack.ai").await?;
    let bundle: ByteString = serde_json::from_value(service["spec"]["caBundle"].clone())?;
    let mut roots = rustls::RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&bundle.0) {
        roots.add(certificate?)?;
    }
    let config = rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots);
    let config = match proxy.map(|proxy| &proxy.client) {
        Some(Pair { certificate, key }) => config.with_client_auth_cert(
            vec![CertificateDer::from_pem_slice(certificate.as_bytes())?],
            PrivateKeyDer::from_pem_slice(key.as_bytes())?,
        )?,
        None => config.with_no_client_auth(),
    };
    let socket = TcpStream::connect((address, PORT)).await?;
    let connector = TlsConnector::from(Arc::new(config));
    Ok(connector.connect(ServerName::try_from(host())?, socket).await?)
}

/// The certificate that the replica at `address` shows.
pub async fn certificate(scenario: &Scenario, address: &str) -> Result<CertificateDer<'static>, Failure> {
    let stream = connect(scenario, address, None).await?;
    let shown = stream.get_ref().1.peer_certificates().unwrap_or_default();
    Ok(shown.first().ok_or("no certificate was shown")?.clone().into_owned())
}

/// Sends one GET with these headers and returns the status.
pub async fn get(scenario: &Scenario, address: &str, path: &str, headers: &[(&str, &str)]) -> Result<u16, Failure> {
    ask(connect(scenario, address, None).await?, path, headers).await
}

/// The same, as one who shows this front proxy's certificate.
pub async fn get_through(
    scenario: &Scenario,
    address: &str,
    proxy: &FrontProxy,
    path: &str,
    headers: &[(&str, &str)],
) -> Result<u16, Failure> {
    ask(connect(scenario, address, Some(proxy)).await?, path, headers).await
}

async fn ask(stream: TlsStream<TcpStream>, path: &str, headers: &[(&str, &str)]) -> Result<u16, Failure> {
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let connection = tokio::spawn(connection);
    let mut request = Request::get(path).header("Host", host());
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let response = sender.send_request(request.body(Empty::<Bytes>::new())?).await?;
    connection.abort();
    Ok(response.status().as_u16())
}
