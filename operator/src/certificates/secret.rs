//! The two Secrets: what is in them, read and written.
//!
//! Knows their keys and how a write loses a race without harm; nothing of when to write.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::Api;
use kube::api::PostParams;
use model_deployment::pod::labels;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;

use super::issue::Issued;
use super::pair::{Authority, Damage, Leaf};
use super::plan::Held;

pub(super) const MANAGER: &str = "model-deployment-operator-certificates";

const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";
/// The trusted authorities, as cert-manager names them too.
const TRUSTED: &str = "ca.crt";

/// A Secret's content, judged; a damaged one is said in the log.
pub(super) fn held<T>(secret: Option<&Secret>, read: impl Fn(&Secret) -> Result<T, Damage>) -> Held<T> {
    let Some(secret) = secret else { return Held::Absent };
    match read(secret) {
        Ok(good) => Held::Good(good),
        Err(damage) => {
            tracing::error!(secret = secret.metadata.name, %damage, "a Secret of the serving certificate is damaged");
            Held::Damaged
        }
    }
}

pub(super) fn authority(secret: &Secret) -> Result<Authority, Damage> {
    Authority::read(text(secret, CERTIFICATE)?, text(secret, KEY)?)
}

pub(super) fn leaf(secret: &Secret) -> Result<Leaf, Damage> {
    Leaf::read(text(secret, CERTIFICATE)?, text(secret, KEY)?)
}

/// The trusted authorities, without what cannot be read.
pub(super) fn trusted(secret: Option<&Secret>) -> Vec<CertificateDer<'static>> {
    let text = secret.and_then(|secret| text(secret, TRUSTED).ok()).unwrap_or_default();
    CertificateDer::pem_slice_iter(text.as_bytes())
        .filter_map(Result::ok)
        .collect()
}

fn text<'a>(secret: &'a Secret, key: &'static str) -> Result<&'a str, Damage> {
    let bytes = secret
        .data
        .as_ref()
        .and_then(|data| data.get(key))
        .ok_or(Damage::Missing(key))?;
    std::str::from_utf8(&bytes.0).map_err(|_| match key {
        KEY => Damage::Key,
        _ => Damage::Certificate,
    })
}

/// A Secret's new content, in the place of `before`: an issued pair, the trusted authorities, or both.
pub(super) fn content(
    before: Option<&Secret>,
    issued: Option<Issued>,
    trusted: Option<&[CertificateDer<'_>]>,
) -> BTreeMap<String, ByteString> {
    let mut data = before.and_then(|secret| secret.data.clone()).unwrap_or_default();
    if let Some(Issued { certificate, key }) = issued {
        data.insert(CERTIFICATE.to_owned(), ByteString(certificate.into_bytes()));
        data.insert(KEY.to_owned(), ByteString(key.into_bytes()));
    }
    if let Some(trusted) = trusted {
        data.insert(TRUSTED.to_owned(), ByteString(super::bundle::pem(trusted).into_bytes()));
    }
    data
}

/// Stores `data` as `name`, new or in the place of exactly `before`: a change that someone else made meanwhile is a conflict.
pub(super) async fn store(
    api: &Api<Secret>,
    name: &str,
    before: Option<&Secret>,
    data: BTreeMap<String, ByteString>,
    owner: Option<OwnerReference>,
) -> Result<Secret, kube::Error> {
    let params = PostParams {
        field_manager: Some(MANAGER.to_owned()),
        ..PostParams::default()
    };
    match before {
        Some(before) => {
            let mut secret = before.clone();
            secret.data = Some(data);
            secret.metadata.managed_fields = None;
            api.replace(name, &params, &secret).await
        }
        None => {
            let labels = BTreeMap::from([(labels::MANAGED_BY.to_owned(), labels::OPERATOR.to_owned())]);
            let secret = Secret {
                metadata: ObjectMeta {
                    name: Some(name.to_owned()),
                    labels: Some(labels),
                    owner_references: owner.map(|owner| vec![owner]),
                    ..ObjectMeta::default()
                },
                type_: Some("kubernetes.io/tls".to_owned()),
                data: Some(data),
                ..Secret::default()
            };
            api.create(&params, &secret).await
        }
    }
}
