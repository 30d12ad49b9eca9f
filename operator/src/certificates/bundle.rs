//! The authorities that the API server trusts for our APIService.
//!
//! Knows that one field of it, and never creates the object.

use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::Api;
use kube::api::{Patch, PatchParams};
use pem::{EncodeConfig, LineEnding, Pem, encode_many_config};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use serde_json::json;

use super::secret::MANAGER;

/// `authorities` as PEM.
pub(super) fn pem(authorities: &[CertificateDer<'_>]) -> String {
    let blocks: Vec<Pem> = authorities
        .iter()
        .map(|one| Pem::new("CERTIFICATE", one.to_vec()))
        .collect();
    encode_many_config(&blocks, EncodeConfig::new().set_line_ending(LineEnding::LF))
}

/// The authorities that `service` has the API server trust.
pub(super) fn published(service: &APIService) -> Vec<CertificateDer<'static>> {
    let bundle = service.spec.as_ref().and_then(|spec| spec.ca_bundle.as_ref());
    let bundle = bundle.map_or(&[][..], |bundle| &bundle.0);
    CertificateDer::pem_slice_iter(bundle).filter_map(Result::ok).collect()
}

/// Has the API server trust exactly `authorities`, and touches nothing else of `service`.
///
/// The object's UID goes along: a server-side apply creates what is not there, and an APIService that was deleted meanwhile must
/// stay deleted.
pub(super) async fn publish(
    api: &Api<APIService>,
    service: &APIService,
    authorities: &[CertificateDer<'_>],
) -> Result<APIService, kube::Error> {
    let name = service.metadata.name.as_deref().unwrap_or_default();
    let patch = json!({
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {"name": name, "uid": service.metadata.uid},
        "spec": {"caBundle": k8s_openapi::ByteString(pem(authorities).into_bytes())},
    });
    api.patch(name, &PatchParams::apply(MANAGER).force(), &Patch::Apply(patch))
        .await
}
