//! The sandbox's network: a veth pair, `169.254.1.1` as gateway, a `/32` route each way (test-cluster contract, section 2).

use std::io;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::TryStreamExt;
use rtnetlink::packet_route::route::RouteScope;
use rtnetlink::{Handle, LinkUnspec, LinkVeth, RouteMessageBuilder, new_connection};

use super::SandboxError;

/// The gateway of every Pod with a network of its own; the address stands on the cluster's end of each pair.
const GATEWAY: Ipv4Addr = Ipv4Addr::new(169, 254, 1, 1);

/// A Pod's address, and the gateway's, are routed alone.
const HOST_PREFIX: u8 = 32;

/// Index of the loopback device, the first of every network namespace.
const LOOPBACK: u32 = 1;

/// The kernel's table of local addresses (`RT_TABLE_LOCAL`).
const LOCAL_TABLE: u32 = 255;

/// The cluster's side of all pairs.
pub(crate) struct Gateway {
    handle: Handle,
    node: Ipv4Addr,
    made: AtomicU64,
}

/// The cluster's end of one pair.
pub(super) struct Link {
    handle: Handle,
    index: u32,
}

impl Gateway {
    /// Opens a netlink socket in the caller's network namespace. `node` is the address that Pods see the cluster at.
    pub(crate) fn open(node: Ipv4Addr) -> io::Result<Self> {
        let (connection, handle, _) = new_connection()?;
        tokio::spawn(connection);
        Ok(Self {
            handle,
            node,
            made: AtomicU64::new(0),
        })
    }

    /// A name that no interface had yet.
    pub(super) fn name(&self) -> String {
        format!("pod{}", self.made.fetch_add(1, Ordering::Relaxed))
    }

    /// Makes a pair, gives one end to the process `pid`, and routes `address` to it.
    pub(super) async fn connect(&self, interface: &str, pid: u32, address: Ipv4Addr) -> Result<Link, rtnetlink::Error> {
        let here = format!("{interface}-veth");
        self.handle
            .link()
            .add(LinkVeth::new(&here, interface).build())
            .execute()
            .await?;
        let index = index(&self.handle, &here).await?;
        let link = Link {
            handle: self.handle.clone(),
            index,
        };
        let finished = async {
            let there = LinkUnspec::new_with_name(interface).setns_by_pid(pid).build();
            self.handle.link().set(there).execute().await?;
            self.handle
                .address()
                .add(index, GATEWAY.into(), HOST_PREFIX)
                .execute()
                .await?;
            self.handle
                .link()
                .set(LinkUnspec::new_with_index(index).up().build())
                .execute()
                .await?;
            // In the local table, where the whole Pod range is: there the longer prefix wins.
            let route = RouteMessageBuilder::<Ipv4Addr>::new()
                .destination_prefix(address, HOST_PREFIX)
                .output_interface(index)
                .pref_source(self.node)
                .scope(RouteScope::Link)
                .table_id(LOCAL_TABLE)
                .build();
            self.handle.route().add(route).replace().execute().await
        };
        match finished.await {
            Ok(()) => Ok(link),
            Err(error) => {
                link.remove().await;
                Err(error)
            }
        }
    }
}

impl Link {
    /// Takes the pair and its route away.
    pub(super) async fn remove(&self) {
        // The kernel may have been quicker: the pair goes with the program's namespace.
        let _ = self.handle.link().del(self.index).execute().await;
    }
}

/// The child's side: loopback, its address, and the way out.
pub(super) fn set_up(interface: &str, address: Ipv4Addr) -> Result<(), SandboxError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let (connection, handle, _) = new_connection()?;
        tokio::spawn(connection);
        let own = index(&handle, interface).await?;
        for up in [LOOPBACK, own] {
            handle
                .link()
                .set(LinkUnspec::new_with_index(up).up().build())
                .execute()
                .await?;
        }
        handle.address().add(own, address.into(), HOST_PREFIX).execute().await?;
        let gateway = RouteMessageBuilder::<Ipv4Addr>::new()
            .destination_prefix(GATEWAY, HOST_PREFIX)
            .output_interface(own)
            .scope(RouteScope::Link)
            .build();
        handle.route().add(gateway).execute().await?;
        let out = RouteMessageBuilder::<Ipv4Addr>::new()
            .gateway(GATEWAY)
            .output_interface(own)
            .build();
        handle.route().add(out).execute().await?;
        Ok(())
    })
}

async fn index(handle: &Handle, name: &str) -> Result<u32, rtnetlink::Error> {
    let mut links = handle.link().get().match_name(name.to_owned()).execute();
    let link = links.try_next().await?.ok_or(rtnetlink::Error::RequestFailed)?;
    Ok(link.header.index)
}
