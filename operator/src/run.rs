//! `run`: the operator's parts put together. Every replica watches, keeps the index and answers the API; the leader alone reconciles.

use std::io;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;

use kube::Client;
use model_deployment::index::Index;
use model_deployment::scrape::{self, Scraper, TrustError};
use model_deployment::snapshot::Snapshots;
use model_deployment_operator::certificates::{self, ReplicaIdentity, ServingCertificate};
use model_deployment_operator::controller;
use model_deployment_operator::leader::Election;
use model_deployment_operator::replicas::{Counts, Members, Reader};
use model_deployment_operator::server::{self, Server, listener};
use model_deployment_operator::{namespace, scrapes, telemetry};
use thiserror::Error;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::arguments::Run;
use crate::background::{Background, Gone};
use crate::log;

/// The APIService of the aggregated API.
const API_SERVICE: &str = "v1.worker.gpustack.ai";

/// Why the operator cannot run.
#[derive(Debug, Error)]
pub enum RunError {
    /// The log filter does not parse.
    #[error("--log-filter is not a filter")]
    LogFilter(#[source] tracing_subscriber::filter::ParseError),
    /// The bundle of further authorities cannot be read.
    #[error("cannot read {}", path.display())]
    ReadBundle {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The bundle of further authorities is no such thing.
    #[error("cannot trust --scrape-ca-file")]
    Trust(#[source] TrustError),
    /// There is no way to the API server.
    #[error("cannot set up the Kubernetes client")]
    Client(#[source] kube::Error),
    /// A port cannot be listened on.
    #[error("cannot listen on port {port}")]
    Listen {
        /// The port.
        port: u16,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The TLS listener cannot be set up.
    #[error("cannot serve TLS")]
    Tls(#[source] rustls::Error),
    /// Service and namespace make no name that a certificate could be for.
    #[error("--service-name and --namespace make no DNS name")]
    Name(#[source] rustls_pki_types::InvalidDnsNameError),
    /// Signals cannot be received.
    #[error("cannot receive signals")]
    Signals(#[source] io::Error),
    /// A part that runs as long as the process did not.
    #[error("a part of the operator is gone, and the rest is of no use without it")]
    Gone(#[source] Gone),
}

/// Runs until a termination signal, or until a part is gone.
pub async fn run(options: Run) -> Result<(), RunError> {
    log::start(options.log_format, &options.log_filter).map_err(RunError::LogFilter)?;
    // kube asks for the process's provider; everything of ours is given it explicitly.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let shutdown = termination().map_err(RunError::Signals)?;
    let client = Client::try_default().await.map_err(RunError::Client)?;
    let listen = |port| listener::bind(options.bind_address, port).map_err(|source| RunError::Listen { port, source });
    let (secure, plain) = (listen(options.secure_port)?, listen(options.telemetry_port)?);

    let index = Arc::new(Index::default());
    let (controller, watches) = controller::watch(client.clone(), index.clone(), controller_options(&options));
    let mut registry = telemetry::registry();
    controller.register(&mut registry);
    let scraper = Scraper::new(scrape_config(&options)?)
        .map_err(RunError::Trust)?
        .observed(scrapes::observer(&mut registry));
    let snapshots = Snapshots::new(scraper, {
        let index = index.clone();
        move |namespace, name| index.deployment(namespace, name)
    });
    let certificate = ServingCertificate::default();
    let identity = ReplicaIdentity::new(&options.service_name, &options.namespace).map_err(RunError::Name)?;
    let (members, counts) = (Members::new(&options.pod_name), Counts::default());
    let reader = Reader::new(index, snapshots, members.clone(), identity.clone(), counts.clone());
    let (leads, leading) = watch::channel(false);
    let certificates = certificates::Config {
        provider: options.certificate_provider,
        namespace: options.namespace.clone(),
        service: options.service_name.clone(),
        secret: options.certificate_secret.clone(),
        authority_secret: options.authority_secret.clone(),
        api_service: API_SERVICE.into(),
    };
    let guarded = namespace::Config {
        namespace: options.namespace.clone(),
        service: options.service_name.clone(),
        api_service: API_SERVICE.into(),
    };
    let server = Server::new(
        server::Config {
            shutdown_delay: options.shutdown_delay,
        },
        client.clone(),
        Arc::new(reader),
        certificate.clone(),
    );
    let election = Election::new(
        client.clone(),
        &options.namespace,
        &options.lease_name,
        &options.pod_name,
    );

    telemetry::gauge(&mut registry, "leading", "1 while this replica reconciles", {
        let leading = leading.clone();
        move || Some(i64::from(*leading.borrow()))
    });

    server.register(&mut registry);
    counts.register(&mut registry);
    telemetry::gauge(
        &mut registry,
        "serving_certificate_expiry_timestamp_seconds",
        "When the serving certificate in force ends, in seconds since 1970",
        {
            let certificate = certificate.clone();
            move || certificate.expires().map(|end| end.as_second())
        },
    );

    let mut background = Background::default();
    background.spawn("the watches", watches);
    background.spawn(
        "the serving certificate",
        certificates::run(client.clone(), certificates, leading, certificate, identity),
    );
    background.spawn(
        "the list of ready replicas",
        members.follow(client.clone(), options.namespace, options.service_name),
    );
    background.spawn("the front proxy's trust", server.follow_front_proxy());
    background.spawn("the guard of the namespace", namespace::guard(client, guarded));
    background.spawn("the metrics page", telemetry::serve(plain, registry));
    let elected = election.run(leads, || controller.clone().run(), shutdown.cancelled());
    let serving = async { tokio::join!(server.serve(secure, shutdown.clone()), elected).0 };
    together(serving, background, &shutdown).await
}

/// Serves to its end, or until a part of the background is gone. Then it leaves as it does at a signal: requests under way are
/// finished, and the next leader need not wait.
async fn together(
    serving: impl Future<Output = Result<(), rustls::Error>>,
    mut background: Background,
    shutdown: &CancellationToken,
) -> Result<(), RunError> {
    let mut serving = pin!(serving);
    tokio::select! {
        served = serving.as_mut() => served.map_err(RunError::Tls),
        gone = background.gone() => {
            tracing::error!(error = &gone as &dyn std::error::Error, "leaving, since a part of the operator is gone");
            shutdown.cancel();
            let _ = serving.await;
            Err(RunError::Gone(gone))
        }
    }
}

/// A token that is cancelled at SIGTERM or SIGINT.
fn termination() -> io::Result<CancellationToken> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let token = CancellationToken::new();
    let cancelled = token.clone();
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::info!("leaving");
        cancelled.cancel();
    });
    Ok(token)
}

fn controller_options(options: &Run) -> controller::Options {
    controller::Options {
        defaults: options.images.clone().into(),
        max_unavailable: options.max_unavailable,
        pod_name: options.pod_name.clone(),
    }
}

fn scrape_config(options: &Run) -> Result<scrape::Config, RunError> {
    let read = |path: &PathBuf| {
        std::fs::read(path).map_err(|source| RunError::ReadBundle {
            path: path.clone(),
            source,
        })
    };
    Ok(scrape::Config {
        extra_ca: options.scrape_ca_file.as_ref().map(read).transpose()?,
        allow: options.scrape_allow_range.clone(),
        allow_host_network: options.scrape_allow_host_network,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use model_deployment_operator::console::sentence;

    /// A process that lost a part would be ready, and answer from what nothing keeps current.
    #[tokio::test]
    async fn the_process_leaves_and_fails_when_a_part_is_gone() {
        let shutdown = CancellationToken::new();
        let mut background = Background::default();
        background.spawn("the watches", async { panic!("no such Pod") });
        let mut left = false;
        let serving = async {
            shutdown.cancelled().await;
            left = true;
            Ok(())
        };
        let error = together(serving, background, &shutdown).await.unwrap_err();
        assert_eq!(
            sentence(&error),
            "a part of the operator is gone, and the rest is of no use without it: the watches panicked: no such Pod"
        );
        assert!(left);
    }

    #[tokio::test]
    async fn the_process_ends_well_when_it_is_told_to() {
        let shutdown = CancellationToken::new();
        let mut background = Background::default();
        background.spawn("the watches", std::future::pending());
        let serving = async {
            shutdown.cancelled().await;
            Ok(())
        };
        shutdown.cancel();
        assert!(together(serving, background, &shutdown).await.is_ok());
    }
}
