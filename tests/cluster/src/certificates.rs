//! Owns the cluster's keys and certificates: one CA for the control plane, one of its own for the front proxy, and the
//! service-account key pair; and puts a new authority of the front proxy in the place of the old one. Knows who needs which; refuses
//! to know the flags that name the files.

use std::{fs, io, path::PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};

use crate::network;

/// The front proxy's authority.
const FRONT_PROXY_AUTHORITY: &str = "front-proxy-ca.crt";
/// The front proxy's certificate and key, and the user that they are for.
const FRONT_PROXY: &str = "front-proxy-client";
/// Members of this group may do everything.
const MASTERS: &str = "system:masters";

/// A certificate could not be made or written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The library refused.
    #[error("sign a certificate")]
    Sign(#[from] rcgen::Error),
    /// The folder refused to give.
    #[error("read {file}")]
    Read {
        /// File name.
        file: String,
        /// Why it failed.
        source: io::Error,
    },
    /// The folder refused to take.
    #[error("write {file}")]
    Write {
        /// File name.
        file: String,
        /// Why it failed.
        source: io::Error,
    },
}

/// A certificate and its key, both PEM.
pub struct Pair {
    /// The certificate.
    pub certificate: String,
    /// Its key.
    pub key: String,
}

/// The folder with everything that the control plane reads from files, and the pairs that are used from memory.
pub(crate) struct Certificates {
    folder: Folder,
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
            folder: Folder(folder),
        };
        made.folder.write("ca.crt", &made.authority)?;
        made.folder.write("ca.key", &authority.0.key().serialize_pem())?;
        made.folder.write(FRONT_PROXY_AUTHORITY, &front_proxy.0.pem())?;
        made.folder
            .write("service-account.key", &service_accounts.serialize_pem())?;
        made.folder
            .write("service-account.pub", &service_accounts.public_key_pem())?;
        made.folder
            .write_pair(FRONT_PROXY, &front_proxy.client(FRONT_PROXY, None)?)?;
        made.folder.write_pair(
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
        made.folder
            .write_pair("kube-apiserver", &authority.server("kube-apiserver", &names)?)?;
        Ok(made)
    }

    /// The path of a file in the folder.
    pub(crate) fn path(&self, file: &str) -> PathBuf {
        self.folder.0.join(file)
    }
}

/// The front proxy's authority, PEM, and the pair that it shows.
pub struct FrontProxy {
    /// The authority's certificate.
    pub authority: String,
    /// What the API server shows to whom it passes requests on.
    pub client: Pair,
}

/// A front proxy that takes the place of another, step by step. Each step is a change of files, which the API server notices by itself.
pub struct FrontProxyRenewal {
    folder: Folder,
    /// That in force before.
    pub old: FrontProxy,
    /// That in force after all steps.
    pub new: FrontProxy,
}

impl FrontProxyRenewal {
    /// Makes the new one, and changes nothing.
    pub(crate) fn begin(folder: PathBuf) -> Result<Self, Error> {
        let folder = Folder(folder);
        let authority = Authority::new("front-proxy")?;
        let old = FrontProxy {
            authority: folder.read(FRONT_PROXY_AUTHORITY)?,
            client: folder.read_pair(FRONT_PROXY)?,
        };
        let new = FrontProxy {
            authority: authority.0.pem(),
            client: authority.client(FRONT_PROXY, None)?,
        };
        Ok(Self { folder, old, new })
    }

    /// First: both authorities are to be trusted.
    pub fn trust_both(&self) -> Result<(), Error> {
        let both = format!("{}{}", self.old.authority, self.new.authority);
        self.folder.write(FRONT_PROXY_AUTHORITY, &both)
    }

    /// Second: the new certificate is shown.
    pub fn show_new(&self) -> Result<(), Error> {
        self.folder.write_pair(FRONT_PROXY, &self.new.client)
    }

    /// Third: the new authority alone is to be trusted.
    pub fn trust_new(&self) -> Result<(), Error> {
        self.folder.write(FRONT_PROXY_AUTHORITY, &self.new.authority)
    }
}

struct Folder(PathBuf);

impl Folder {
    fn read_pair(&self, name: &str) -> Result<Pair, Error> {
        Ok(Pair {
            certificate: self.read(&format!("{name}.crt"))?,
            key: self.read(&format!("{name}.key"))?,
        })
    }

    fn read(&self, file: &str) -> Result<String, Error> {
        fs::read_to_string(self.0.join(file)).map_err(|source| Error::Read {
            file: file.to_owned(),
            source,
        })
    }

    fn write_pair(&self, name: &str, pair: &Pair) -> Result<(), Error> {
        self.write(&format!("{name}.crt"), &pair.certificate)?;
        self.write(&format!("{name}.key"), &pair.key)
    }

    /// Puts a file there as a whole, so that nobody reads half of it.
    fn write(&self, file: &str, text: &str) -> Result<(), Error> {
        let begun = self.0.join(format!("{file}.new"));
        let put = fs::write(&begun, text).and_then(|()| fs::rename(&begun, self.0.join(file)));
        put.map_err(|source| Error::Write {
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
