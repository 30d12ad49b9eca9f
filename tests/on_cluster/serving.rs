//! The serving certificate where somebody else keeps it: a Secret in cert-manager's shape, followed without a restart.
//!
//! Changes the release's values, and puts them back.

use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use rustls::pki_types::CertificateDer;
use serde_json::json;

use crate::scenario::{API_SERVICE, Failure, NAMESPACE, Outcome, RELEASE, Scenario, Test, ensure, patient, test, vllm};
use crate::straight;

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    vec![test!(a_certificate_that_another_keeps_is_followed_without_a_restart)]
}

/// Who keeps the certificate.
struct Keeper {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Keeper {
    fn new() -> Result<Self, rcgen::Error> {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "somebody else");
        let key = KeyPair::generate()?;
        let pem = params.self_signed(&key)?.pem();
        Ok(Self {
            pem,
            issuer: Issuer::new(params, key),
        })
    }

    /// Writes a fresh certificate into the Secret, and gives it.
    async fn issue(&self, scenario: &Scenario) -> Result<CertificateDer<'static>, Failure> {
        let mut params = CertificateParams::new([format!("{RELEASE}.{NAMESPACE}.svc")])?;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
            "metadata": {"name": "theirs", "annotations": {"cert-manager.io/certificate-name": "theirs"}},
            "stringData": {"tls.crt": certificate.pem(), "tls.key": key.serialize_pem(), "ca.crt": self.pem},
        });
        scenario.apply(NAMESPACE, &secret.to_string()).await?;
        Ok(certificate.der().clone())
    }
}

/// Waits until every replica shows `certificate`.
pub async fn shown(scenario: &Scenario, certificate: &CertificateDer<'static>) -> Outcome {
    let started = tokio::time::Instant::now();
    for (name, address) in scenario.replicas().await? {
        while straight::certificate(scenario, &address).await? != *certificate {
            patient!(started, "{name} shows another certificate");
        }
    }
    Ok(())
}

/// kubevirt/kubevirt#18936: a Secret was renewed, and Pods served the old leaf until it expired.
async fn a_certificate_that_another_keeps_is_followed_without_a_restart(scenario: Arc<Scenario>) -> Outcome {
    let namespace = &scenario.available("serving", &vllm("chat", 1, "")).await?;
    let keeper = Keeper::new()?;
    let first = keeper.issue(&scenario).await?;
    let bundle = format!("certificates.caBundle={}", keeper.pem);
    scenario
        .upgrade_chart(&["certificates.provider=secret", "certificates.secret=theirs", &bundle])
        .await?;
    shown(&scenario, &first).await?;
    scenario.metrics_until(namespace, "chat", |_| true).await?;

    let replicas = scenario.replicas().await?;
    let second = keeper.issue(&scenario).await?;
    shown(&scenario, &second).await?;
    let answer = scenario.metrics(namespace, "chat").await?;
    ensure!(answer["kind"] == "ModelDeploymentMetrics", "{answer}");
    ensure!(
        scenario.replicas().await? == replicas,
        "the replicas were replaced meanwhile"
    );
    let service = scenario.get(NAMESPACE, API_SERVICE).await?;
    let owners = service["metadata"]["managedFields"].as_array().into_iter().flatten();
    let own = "model-deployment-operator-certificates";
    let told = owners.filter(|owner| owner["manager"] == own && owner["fieldsV1"].to_string().contains("caBundle"));
    ensure!(told.count() == 0, "the operator told the API server whom to trust");

    // And back: the operator tells the API server its own authority again.
    scenario
        .upgrade_chart(&[
            "certificates.provider=operator",
            "certificates.secret=",
            "certificates.caBundle=",
        ])
        .await?;
    let answer = scenario.metrics_until(namespace, "chat", |_| true).await?;
    ensure!(answer["kind"] == "ModelDeploymentMetrics", "{answer}");
    scenario
        .kubectl(&["delete", "secret/theirs", "--namespace", NAMESPACE])
        .await
        .map(drop)
}
