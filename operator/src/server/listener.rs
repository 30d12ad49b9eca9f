//! Where the server listens.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use tokio::net::{TcpListener, TcpSocket};

/// Connections that the kernel holds until they are accepted.
const BACKLOG: u32 = 1024;

/// Listens on `address`. `[::]` takes IPv4 too, and falls back to `0.0.0.0` on a host without IPv6.
pub fn bind(address: IpAddr, port: u16) -> io::Result<TcpListener> {
    match listen(SocketAddr::new(address, port)) {
        Err(error) if address == Ipv6Addr::UNSPECIFIED && lacks_ipv6(&error) => {
            tracing::info!("this host has no IPv6, listening on IPv4 alone");
            listen(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port))
        }
        result => result,
    }
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = match address {
        // Linux takes IPv4 on it too, unless net.ipv6.bindv6only says otherwise.
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
    };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// `EAFNOSUPPORT` or `EADDRNOTAVAIL`: IPv6 is not built in, or is switched off.
fn lacks_ipv6(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(97)) || error.kind() == io::ErrorKind::AddrNotAvailable
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpStream;

    /// kubernetes-sigs/metrics-server#582: a server on 0.0.0.0 is not reached over IPv6, and the reverse.
    #[tokio::test]
    async fn the_unspecified_address_takes_both_families() {
        let listener = bind(Ipv6Addr::UNSPECIFIED.into(), 0).unwrap();
        let address = listener.local_addr().unwrap();
        if address.is_ipv6() {
            TcpStream::connect((Ipv6Addr::LOCALHOST, address.port())).await.unwrap();
        }
        TcpStream::connect((Ipv4Addr::LOCALHOST, address.port())).await.unwrap();
    }

    #[tokio::test]
    async fn an_address_that_is_taken_is_an_error() {
        let listener = bind(Ipv4Addr::LOCALHOST.into(), 0).unwrap();
        let port = listener.local_addr().unwrap().port();
        assert_eq!(
            bind(Ipv4Addr::LOCALHOST.into(), port).unwrap_err().kind(),
            io::ErrorKind::AddrInUse
        );
    }
}
