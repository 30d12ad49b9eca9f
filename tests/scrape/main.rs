//! Reading Pods over real sockets: every code that a fetch can meet, and the deadlines.
//!
//! Where a server is to hang, it first says that it has come there; only then is tokio's clock paused, and runs on to the deadline.

mod body;
mod certificates;
mod deadline;
mod fake;
mod request;
mod tls;

use std::net::{IpAddr, SocketAddr};

use model_deployment::pod::{Listener, Scheme};
use model_deployment::scrape::{Config, Reading, Scraper, Target, limits};
use tokio::time::Instant;

/// A reader that may read the fake Pods on the loopback addresses, and trusts `authority`.
fn scraper(authority: Option<String>) -> Scraper {
    let allow = ["127.0.0.0/8", "::1/128"]
        .map(|range| range.parse().expect("a range"))
        .to_vec();
    let config = Config {
        extra_ca: authority.map(String::into_bytes),
        allow,
        allow_host_network: false,
    };
    Scraper::new(config).expect("a reader")
}

fn target(socket: SocketAddr, scheme: Scheme, path: &str) -> Target {
    Target {
        namespace: "default".to_owned(),
        name: "chat-0".to_owned(),
        uid: "8a2c".to_owned(),
        address: socket.ip(),
        host_network: false,
        listener: Listener {
            scheme,
            port: socket.port(),
            path: path.to_owned(),
        },
    }
}

fn http(socket: SocketAddr) -> Target {
    target(socket, Scheme::Http, "/metrics")
}

fn https(socket: SocketAddr) -> Target {
    target(socket, Scheme::Https, "/metrics")
}

/// Reads without a deadline but the fetch's own.
async fn read(scraper: &Scraper, target: Target) -> Reading {
    scraper.get(target, Instant::now() + limits::REQUEST).await
}

const LOOPBACK: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
