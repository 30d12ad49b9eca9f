//! Certificates for tests, made on the spot.

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    date_time_ymd,
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

pub struct Authority {
    pub pem: String,
    pub der: CertificateDer<'static>,
    key: KeyPair,
}

#[derive(Debug)]
pub struct Identity {
    pub chain: Vec<CertificateDer<'static>>,
    pub key: PrivateKeyDer<'static>,
}

impl Clone for Identity {
    fn clone(&self) -> Self {
        Identity {
            chain: self.chain.clone(),
            key: self.key.clone_key(),
        }
    }
}

/// A certificate's parameters, to be bent by a test.
pub fn params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.not_before = date_time_ymd(2020, 1, 1);
    params.not_after = date_time_ymd(2120, 1, 1);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params
}

impl Authority {
    pub fn new(name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let certificate = authority_params(name).self_signed(&key).unwrap();
        Authority {
            pem: certificate.pem(),
            der: certificate.der().clone(),
            key,
        }
    }

    /// An authority that this one vouches for.
    pub fn intermediate(&self, name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let issuer = Issuer::from_ca_cert_der(&self.der, &self.key).unwrap();
        let certificate = authority_params(name).signed_by(&key, &issuer).unwrap();
        Authority {
            pem: certificate.pem(),
            der: certificate.der().clone(),
            key,
        }
    }

    pub fn issue(&self, params: CertificateParams) -> Identity {
        let key = KeyPair::generate().unwrap();
        let issuer = Issuer::from_ca_cert_der(&self.der, &self.key).unwrap();
        let certificate = params.signed_by(&key, &issuer).unwrap();
        identity(vec![certificate.der().clone()], &key)
    }
}

pub fn self_signed(params: CertificateParams) -> Identity {
    let key = KeyPair::generate().unwrap();
    identity(vec![params.self_signed(&key).unwrap().der().clone()], &key)
}

fn identity(chain: Vec<CertificateDer<'static>>, key: &KeyPair) -> Identity {
    Identity {
        chain,
        key: PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der())),
    }
}

fn authority_params(name: &str) -> CertificateParams {
    let mut params = params(name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.extended_key_usages.clear();
    params
}
