//! URLs, read as the subresource reads Pods: the limits of the metrics contract, section 8, but for the ranges of addresses. Those keep
//! an answer from telling what a Pod's address must not reach; here the person who asks has named the URL.

use std::time::Duration;

use futures::future::join_all;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use model_deployment::scrape::{Config, Reading, Scraper, Target, TrustError, limits};
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep_until};

use super::reading::{Place, Url};

/// Reads every URL, and again after `window` where one is given and the first read went well.
///
/// # Errors
/// Where no TLS client can be set up.
pub(super) async fn fetch<'a>(
    urls: &[(&'a Place, &Url)],
    window: Option<Duration>,
) -> Result<Vec<(&'a Place, Reading)>, TrustError> {
    let scraper = Scraper::new(Config {
        extra_ca: None,
        allow: vec![IpNet::V4(Ipv4Net::default()), IpNet::V6(Ipv6Net::default())],
        allow_host_network: false,
    })?;
    let deadline = Instant::now() + limits::REQUEST - limits::ASSEMBLY;
    let permits = Semaphore::new(limits::FETCHES);
    let (scraper, permits) = (&scraper, &permits);
    let reads = urls.iter().map(|(place, url)| async move {
        let get = || async {
            // The semaphore is never closed.
            let _permit = permits.acquire().await;
            (*place, scraper.get(target(place, url), deadline).await)
        };
        let mut readings = vec![get().await];
        let (_, first) = &readings[0];
        if let Some(window) = window.filter(|_| first.body.is_ok()) {
            sleep_until(first.instant + window).await;
            readings.push(get().await);
        }
        readings
    });
    Ok(join_all(reads).await.into_iter().flatten().collect())
}

fn target(place: &Place, url: &Url) -> Target {
    Target {
        namespace: String::new(),
        name: place.to_string(),
        uid: place.to_string(),
        address: url.address,
        host_network: false,
        listener: url.listener.clone(),
    }
}
