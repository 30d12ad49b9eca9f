//! Owns the addresses of the cluster and makes them local to its network namespace (test-cluster contract, section 2).

use std::{
    fs, io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
};

use rtnetlink::{
    LinkUnspec, RouteMessageBuilder, new_connection,
    packet_route::route::{RouteScope, RouteType},
};

/// Addresses of Pods and Nodes.
pub(crate) const PODS: (Ipv4Addr, u8) = (Ipv4Addr::new(10, 244, 0, 0), 16);
/// Addresses of Services.
pub(crate) const SERVICES: (Ipv4Addr, u8) = (Ipv4Addr::new(10, 96, 0, 0), 16);
/// The address that the API server advertises.
pub(crate) const API_SERVER: Ipv4Addr = Ipv4Addr::new(10, 244, 0, 1);
/// The Node's address, where the kubelet answers `kubectl logs`.
pub(crate) const NODE: Ipv4Addr = Ipv4Addr::new(10, 244, 0, 2);
/// `kubernetes.default`: the first address of the Service range, as in every cluster.
pub(crate) const KUBERNETES: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 96, 0, 1)), 443);

/// Index of the loopback device, the first of every network namespace.
const LOOPBACK: u32 = 1;
/// The routing table of local addresses, `RT_TABLE_LOCAL`.
const LOCAL_TABLE: u32 = 255;
const FORWARDING: &str = "/proc/sys/net/ipv4/ip_forward";

/// The namespace's network could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No netlink socket.
    #[error("open a netlink socket")]
    Socket(#[source] io::Error),
    /// The kernel refused a change.
    #[error("set up the cluster's network")]
    Netlink(#[from] rtnetlink::Error),
    /// Pods could not reach each other.
    #[error("switch packet forwarding on in {FORWARDING}")]
    Forwarding(#[source] io::Error),
}

/// Brings the loopback device up, makes every Pod and Service address local, and lets Pods reach each other.
pub(crate) async fn set_up() -> Result<(), Error> {
    let (connection, handle, _) = new_connection().map_err(Error::Socket)?;
    tokio::spawn(connection);
    handle
        .link()
        .set(LinkUnspec::new_with_index(LOOPBACK).up().build())
        .execute()
        .await?;
    for (address, prefix) in [PODS, SERVICES] {
        let route = RouteMessageBuilder::<Ipv4Addr>::new()
            .destination_prefix(address, prefix)
            .output_interface(LOOPBACK)
            .kind(RouteType::Local)
            .scope(RouteScope::Host)
            .table_id(LOCAL_TABLE)
            .build();
        handle.route().add(route).execute().await?;
    }
    fs::write(FORWARDING, "1").map_err(Error::Forwarding)
}
