//! The kubelet's TLS: probes trust everything, as a real kubelet's do; the log endpoint trusts the cluster's CA alone.

use std::sync::{Arc, LazyLock};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, ServerConfig, SignatureScheme};
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// Why the kubelet's own certificate cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// Certificate, key or CA is no PEM.
    #[error("the kubelet's certificate, key or client CA is not PEM")]
    Pem(#[from] rustls::pki_types::pem::Error),
    /// They do not fit together.
    #[error("the kubelet's certificate cannot be used")]
    Tls(#[from] rustls::Error),
    /// The client CA cannot be used.
    #[error("the kubelet's client CA cannot be used")]
    Verifier(#[from] rustls::server::VerifierBuilderError),
}

fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: LazyLock<Arc<CryptoProvider>> = LazyLock::new(|| Arc::new(aws_lc_rs::default_provider()));
    PROVIDER.clone()
}

/// A client that takes every certificate.
pub(super) fn blind_client() -> TlsConnector {
    static CONFIG: LazyLock<Arc<ClientConfig>> = LazyLock::new(|| {
        let config = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .expect("the provider has the default versions")
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Blind))
            .with_no_client_auth();
        Arc::new(config)
    });
    TlsConnector::from(CONFIG.clone())
}

/// A server that wants a client certificate of `client_ca`.
pub(super) fn server(certificate: &str, key: &str, client_ca: &str) -> Result<TlsAcceptor, TrustError> {
    let chain = CertificateDer::pem_slice_iter(certificate.as_bytes()).collect::<Result<Vec<_>, _>>()?;
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes())?;
    let mut roots = RootCertStore::empty();
    for root in CertificateDer::pem_slice_iter(client_ca.as_bytes()) {
        roots.add(root?)?;
    }
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider()).build()?;
    let config = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()?
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, key)?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

#[derive(Debug)]
struct Blind;

impl ServerCertVerifier for Blind {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(
            message,
            certificate,
            signature,
            &provider().signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(
            message,
            certificate,
            signature,
            &provider().signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        provider().signature_verification_algorithms.supported_schemes()
    }
}
