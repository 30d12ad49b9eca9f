//! Owns the cluster's keys and certificates: one CA for the control plane, one of its own for the front proxy, and the
//! service-account key pair. Knows who needs which; refuses to know the flags that name the files.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};

use crate::network;

/// Members of this group may do everything.
const MASTERS: &str = "system:masters";

/// A certificate could not be made or written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The library refused.
    #[error("sign a certificate")]
    Sign(#[from] rcgen::Error),
    /// The folder refused.
    #[error("write {file}")]
    Write {
        /// File name.
        file: String,
        /// Why it failed.
        source: io::Error,
    },
}

/// A certificate and its key, both PEM.
pub(crate) struct Pair {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

/// The folder with everything that the control plane reads from files, and the pairs that are used from memory.
pub(crate) struct Certificates {
    folder: PathBuf,
    /// The control plane's CA, PEM.
    pub(crate) authority: String,
    /// A client that may do everything.
    pub(crate) admin: Pair,
    /// kube-controller-manager as a client.
    pub(crate) controller_manager: Pair,
    /// The kubelet's own server.
    pub(crate) kubelet: Pair,
}

impl Certificates {
    /// Makes everything anew in `folder`.
    pub(crate) fn make(folder: PathBuf) -> Result<Self, Error> {
        fs::create_dir(&folder).map_err(|source| Error::Write {
            file: folder.display().to_string(),
            source,
        })?;
        let authority = Authority::new("kubernetes")?;
        let front_proxy = Authority::new("front-proxy")?;
        let service_accounts = KeyPair::generate()?;

        let made = Self {
            authority: authority.0.pem(),
            admin: authority.client("admin", Some(MASTERS))?,
            controller_manager: authority.client("system:kube-controller-manager", None)?,
            kubelet: authority.server("system:node:n1", &[network::NODE.to_string()])?,
            folder,
        };
        made.write("ca.crt", &made.authority)?;
        made.write("ca.key", &authority.0.key().serialize_pem())?;
        made.write("front-proxy-ca.crt", &front_proxy.0.pem())?;
        made.write("service-account.key", &service_accounts.serialize_pem())?;
        made.write("service-account.pub", &service_accounts.public_key_pem())?;
        made.write_pair("front-proxy-client", &front_proxy.client("front-proxy-client", None)?)?;
        made.write_pair(
            "kubelet-client",
            &authority.client("kube-apiserver-kubelet-client", Some(MASTERS))?,
        )?;
        let names = [
            "kubernetes",
            "kubernetes.default",
            "kubernetes.default.svc",
            "kubernetes.default.svc.cluster.local",
            "localhost",
        ];
        let addresses = [
            network::KUBERNETES.ip().to_string(),
            network::API_SERVER.to_string(),
            "127.0.0.1".to_owned(),
        ];
        let names: Vec<String> = names.map(String::from).into_iter().chain(addresses).collect();
        made.write_pair("kube-apiserver", &authority.server("kube-apiserver", &names)?)?;
        Ok(made)
    }

    /// The path of a file in the folder.
    pub(crate) fn path(&self, file: &str) -> PathBuf {
        self.folder.join(file)
    }

    fn write_pair(&self, name: &str, pair: &Pair) -> Result<(), Error> {
        self.write(&format!("{name}.crt"), &pair.certificate)?;
        self.write(&format!("{name}.key"), &pair.key)
    }

    fn write(&self, file: &str, text: &str) -> Result<(), Error> {
        let path: &Path = &self.path(file);
        fs::write(path, text).map_err(|source| Error::Write {
            file: file.to_owned(),
            source,
        })
    }
}

struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new(name: &str) -> Result<Self, Error> {
        let mut params = named(name, None, &[])?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyCertSign];
        Ok(Self(CertifiedIssuer::self_signed(params, KeyPair::generate()?)?))
    }

    fn client(&self, user: &str, group: Option<&str>) -> Result<Pair, Error> {
        self.sign(named(user, group, &[])?, ExtendedKeyUsagePurpose::ClientAuth)
    }

    fn server(&self, name: &str, addresses: &[String]) -> Result<Pair, Error> {
        self.sign(named(name, None, addresses)?, ExtendedKeyUsagePurpose::ServerAuth)
    }

    fn sign(&self, mut params: CertificateParams, usage: ExtendedKeyUsagePurpose) -> Result<Pair, Error> {
        let key = KeyPair::generate()?;
        params.extended_key_usages = vec![usage];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.use_authority_key_identifier_extension = true;
        Ok(Pair {
            certificate: params.signed_by(&key, &self.0)?.pem(),
            key: key.serialize_pem(),
        })
    }
}

fn named(name: &str, organization: Option<&str>, alternatives: &[String]) -> Result<CertificateParams, Error> {
    let mut params = CertificateParams::new(alternatives)?;
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    if let Some(organization) = organization {
        params.distinguished_name.push(DnType::OrganizationName, organization);
    }
    Ok(params)
}
