//! An aggregated API of the tests' own, which tells whoever asks it what certificate the API server has shown.

use std::sync::Arc;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use k8s_openapi::ByteString;
use rcgen::{CertificateParams, KeyPair};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use serde_json::{Value, json};
use test_cluster::FrontProxy;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use crate::scenario::{Failure, Outcome, Scenario, patient};

const API_SERVICE: &str = "apiservice/v1.front-proxy.test";
const PATH: &str = "/apis/front-proxy.test/v1";

/// The API, served.
pub struct Shown(JoinHandle<Failure>);

impl Shown {
    /// Serves it from `namespace`, to those whose certificate is of one of these front proxies.
    pub async fn serve(scenario: &Scenario, namespace: &str, proxies: &[&FrontProxy]) -> Result<Self, Failure> {
        // A Pod's address is local here, the API server's own among them.
        let kubernetes = scenario.get("default", "endpointslice/kubernetes").await?;
        let address = kubernetes["endpoints"][0]["addresses"][0].clone();
        let listener = TcpListener::bind((address.as_str().ok_or("no address")?, 0)).await?;
        let port = listener.local_addr()?.port();
        let acceptor = TlsAcceptor::from(Arc::new(config(proxies)?));
        let serving = tokio::spawn(async move {
            loop {
                match listener.accept().await {
                    Ok((socket, _)) => drop(tokio::spawn(answer(acceptor.clone(), socket))),
                    Err(error) => return Failure::from(error),
                }
            }
        });
        let name = json!({"name": "shown"});
        let objects = json!({"apiVersion": "v1", "kind": "List", "items": [
            {"apiVersion": "v1", "kind": "Service", "metadata": name, "spec": {"ports": [{"port": 443}]}},
            {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
                "metadata": {"name": "shown", "labels": {"kubernetes.io/service-name": "shown"}},
                "addressType": "IPv4", "ports": [{"name": "", "port": port}], "endpoints": [{"addresses": [address]}]},
            {"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": "v1.front-proxy.test"},
                "spec": {"group": "front-proxy.test", "version": "v1", "groupPriorityMinimum": 1, "versionPriority": 1,
                    "insecureSkipTLSVerify": true, "service": {"name": "shown", "namespace": namespace}}},
        ]});
        scenario.apply(namespace, &objects.to_string()).await?;
        scenario.wait(namespace, "condition=Available", API_SERVICE).await?;
        Ok(Self(serving))
    }

    /// Waits until the API server shows this front proxy's certificate.
    pub async fn is(&self, scenario: &Scenario, proxy: &FrontProxy) -> Outcome {
        let wanted = CertificateDer::from_pem_slice(proxy.client.certificate.as_bytes())?;
        let wanted = json!(ByteString(wanted.to_vec()));
        let started = tokio::time::Instant::now();
        loop {
            let answer: Value = serde_json::from_str(&scenario.kubectl(&["get", "--raw", PATH]).await?)?;
            if answer["shown"] == wanted {
                return Ok(());
            }
            patient!(started, "the API server shows {}", answer["shown"]);
        }
    }

    /// Takes it away.
    pub async fn end(self, scenario: &Scenario) -> Outcome {
        scenario.kubectl(&["delete", API_SERVICE]).await?;
        self.0.abort();
        Ok(())
    }
}

fn config(proxies: &[&FrontProxy]) -> Result<rustls::ServerConfig, Failure> {
    let mut roots = rustls::RootCertStore::empty();
    for proxy in proxies {
        roots.add(CertificateDer::from_pem_slice(proxy.authority.as_bytes())?)?;
    }
    let provider = Arc::new(aws_lc_rs::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider.clone()).build()?;
    let key = KeyPair::generate()?;
    let own = CertificateParams::new(["shown".to_owned()])?.self_signed(&key)?;
    let key = PrivatePkcs8KeyDer::from(key.serialize_der());
    Ok(rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_client_cert_verifier(verifier)
        .with_single_cert(vec![own.der().clone()], key.into())?)
}

/// Answers every request of one connection with a document that discovery takes, and the certificate beside it.
async fn answer(acceptor: TlsAcceptor, socket: TcpStream) -> Outcome {
    let stream = acceptor.accept(socket).await?;
    let shown = stream.get_ref().1.peer_certificates().unwrap_or_default();
    let body = json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "front-proxy.test/v1", "resources": [],
        "shown": shown.first().map(|leaf| ByteString(leaf.to_vec())),
    });
    let service = service_fn(async |_: Request<Incoming>| {
        let response = Response::builder().header("Content-Type", "application/json");
        response.body(Full::new(Bytes::from(body.to_string())))
    });
    let connection = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    Ok(connection.await?)
}
