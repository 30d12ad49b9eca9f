//! Certificates for fake Pods.

use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, SupportedProtocolVersion};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

/// An authority of a test.
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    pub fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        Self(CertifiedIssuer::self_signed(params, key).expect("an authority"))
    }

    pub fn pem(&self) -> String {
        self.0.pem()
    }

    /// A certificate for one name or address.
    pub fn issue(&self, name: &str) -> Leaf {
        self.sign(CertificateParams::new([name.to_owned()]).expect("a name"))
    }

    /// A certificate that ended in 2001.
    pub fn issue_expired(&self, name: &str) -> Leaf {
        let mut params = CertificateParams::new([name.to_owned()]).expect("a name");
        params.not_before = rcgen::date_time_ymd(2000, 1, 1);
        params.not_after = rcgen::date_time_ymd(2001, 1, 1);
        self.sign(params)
    }

    fn sign(&self, params: CertificateParams) -> Leaf {
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.0).expect("a certificate");
        Leaf {
            certificate: certificate.der().clone(),
            key: PrivateKeyDer::Pkcs8(key.serialize_der().into()),
        }
    }
}

/// A certificate and its key.
pub struct Leaf {
    certificate: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
}

impl Leaf {
    /// A server that asks for no certificate.
    pub fn server(self) -> ServerConfig {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions");
        builder
            .with_no_client_auth()
            .with_single_cert(vec![self.certificate], self.key)
            .expect("a certificate")
    }

    /// A server of one protocol version that insists on a certificate of `authority`.
    pub fn server_that_insists(
        self,
        authority: &Authority,
        version: &'static SupportedProtocolVersion,
    ) -> ServerConfig {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut roots = RootCertStore::empty();
        roots.add(authority.0.der().clone()).expect("a root");
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
            .build()
            .expect("a verifier");
        let builder = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[version])
            .expect("a version");
        builder
            .with_client_cert_verifier(verifier)
            .with_single_cert(vec![self.certificate], self.key)
            .expect("a certificate")
    }
}
