//! Whom an HTTPS fetch trusts: the system's roots and the bundle that the install names. Knows no request.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustls::client::{ResolvesClientCert, Resumption};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, RootCertStore, SignatureScheme};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::{self, PemObject};

/// The bundle of the install is of no use.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// It is no PEM.
    #[error("the bundle of certificate authorities is not valid PEM")]
    Pem(#[source] pem::Error),
    /// It holds no certificate.
    #[error("the bundle of certificate authorities holds no certificate")]
    Empty,
    /// One of its certificates cannot be a root.
    #[error("a certificate of the bundle of certificate authorities cannot be used")]
    Certificate(#[source] rustls::Error),
    /// The TLS library does not support its own default versions.
    #[error("no TLS version can be used")]
    Versions(#[source] rustls::Error),
}

/// The client side of TLS, without a certificate of our own and without resumption: an address may belong to another Pod the next
/// time.
pub(super) fn client(bundle: Option<&[u8]>) -> Result<ClientConfig, TrustError> {
    let mut roots = system_roots();
    if let Some(bundle) = bundle {
        let certificates: Vec<_> = CertificateDer::pem_slice_iter(bundle)
            .collect::<Result<_, _>>()
            .map_err(TrustError::Pem)?;
        if certificates.is_empty() {
            return Err(TrustError::Empty);
        }
        for certificate in certificates {
            roots.add(certificate).map_err(TrustError::Certificate)?;
        }
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(TrustError::Versions)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.resumption = Resumption::disabled();
    Ok(config)
}

/// A minimal image has none, which is no fault: then the bundle alone is trusted.
fn system_roots() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    let system = rustls_native_certs::load_native_certs();
    for error in &system.errors {
        tracing::debug!(%error, "some of the system's certificate authorities could not be read");
    }
    roots.add_parsable_certificates(system.certs);
    roots
}

/// Has no client certificate, and remembers that the server asked for one. TLS 1.2 has no alert of its own for a missing certificate,
/// and with TLS 1.3 the connection may be gone before the alert is read.
#[derive(Debug, Default)]
pub(super) struct ClientCertificate {
    asked: AtomicBool,
}

impl ClientCertificate {
    pub(super) fn was_asked_for(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
    }
}

impl ResolvesClientCert for ClientCertificate {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        self.asked.store(true, Ordering::Relaxed);
        None
    }

    fn has_certs(&self) -> bool {
        false
    }
}
