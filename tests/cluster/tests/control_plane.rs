//! The cluster itself: it answers, and it leaves nothing behind, however it ends.
//!
//! An executable of its own without the ordinary harness, since a cluster needs a process of one thread.

use std::process::ExitCode;

use test_cluster::{Cluster, Setup};

fn main() -> ExitCode {
    test_cluster::run(Setup::default(), inside)
}

async fn inside(cluster: Cluster) -> ExitCode {
    let ready = cluster.kubectl(&["get", "--raw", "/readyz"]).await.unwrap();
    println!("{ready:?}");
    let nodes = cluster.kubectl(&["get", "nodes"]).await.unwrap();
    println!("{nodes:?}");
    println!("{:?}", cluster.namespace("test").await);
    println!("{:?}", cluster.helm(&["version"]).await);
    ExitCode::SUCCESS
}
