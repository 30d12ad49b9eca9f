//! Addresses that are never read (metrics contract, section 8): behind them stands something other than a Pod of the deployment, and an
//! answer of ours must not tell what. Knows no Pod.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

const DENIED_V4: [Ipv4Net; 8] = [
    // This host: 0.0.0.0 reaches the loopback interface.
    Ipv4Net::new_assert(Ipv4Addr::new(0, 0, 0, 0), 8),
    // Loopback.
    Ipv4Net::new_assert(Ipv4Addr::new(127, 0, 0, 0), 8),
    // Link-local, with the metadata services of most clouds at .169.254.
    Ipv4Net::new_assert(Ipv4Addr::new(169, 254, 0, 0), 16),
    // Multicast.
    Ipv4Net::new_assert(Ipv4Addr::new(224, 0, 0, 0), 4),
    // Broadcast.
    Ipv4Net::new_assert(Ipv4Addr::BROADCAST, 32),
    // Metadata of Alibaba Cloud.
    Ipv4Net::new_assert(Ipv4Addr::new(100, 100, 100, 200), 32),
    // Metadata of Azure.
    Ipv4Net::new_assert(Ipv4Addr::new(168, 63, 129, 16), 32),
    // Metadata of Oracle Cloud.
    Ipv4Net::new_assert(Ipv4Addr::new(192, 0, 0, 192), 32),
];

const DENIED_V6: [Ipv6Net; 6] = [
    // Unspecified.
    Ipv6Net::new_assert(Ipv6Addr::UNSPECIFIED, 128),
    // Loopback.
    Ipv6Net::new_assert(Ipv6Addr::LOCALHOST, 128),
    // Link-local.
    Ipv6Net::new_assert(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10),
    // Multicast.
    Ipv6Net::new_assert(Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0), 8),
    // Metadata of AWS.
    Ipv6Net::new_assert(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254), 128),
    // Metadata of Google Cloud.
    Ipv6Net::new_assert(Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254), 128),
];

/// Addresses that reach an IPv4 address through a translator (RFC 6052): the last four bytes are that address.
const TRANSLATED: Ipv6Net = Ipv6Net::new_assert(Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0), 96);

/// Whether the address lies in a denied range, in any of the forms that reach it.
pub(super) fn is_denied(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => DENIED_V4.iter().any(|range| range.contains(&address)),
        IpAddr::V6(address) if TRANSLATED.contains(&address) => {
            let [.., a, b, c, d] = address.octets();
            is_denied(Ipv4Addr::new(a, b, c, d).into())
        }
        IpAddr::V6(address) => DENIED_V6.iter().any(|range| range.contains(&address)),
    }
}

/// Whether one of the ranges holds the address.
pub(super) fn is_in(address: IpAddr, ranges: &[IpNet]) -> bool {
    ranges.iter().any(|range| range.contains(&address.to_canonical()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().expect(text)
    }

    #[test]
    fn loopback_link_local_multicast_and_metadata_addresses_are_denied() {
        for text in [
            "0.0.0.0",
            "127.0.0.1",
            "127.255.0.9",
            "169.254.169.254",
            "169.254.0.1",
            "224.0.0.1",
            "239.255.255.255",
            "255.255.255.255",
            "100.100.100.200",
            "168.63.129.16",
            "192.0.0.192",
            "::",
            "::1",
            "fe80::1",
            "febf::1",
            "ff02::1",
            "fd00:ec2::254",
            "fd20:ce::254",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "64:ff9b::a9fe:a9fe",
        ] {
            assert!(is_denied(address(text)), "{text}");
        }
    }

    #[test]
    fn addresses_of_pods_are_not() {
        for text in [
            "10.244.1.7",
            "100.64.0.1",
            "172.16.0.1",
            "192.168.1.1",
            "8.8.8.8",
            "fd00:10:244::7",
            "fec0::1",
            "2001:db8::1",
            "::ffff:10.0.0.1",
            "64:ff9b::a00:1",
        ] {
            assert!(!is_denied(address(text)), "{text}");
        }
    }

    #[test]
    fn a_range_holds_the_mapped_forms_of_its_addresses() {
        let ranges = ["127.0.0.0/8".parse().expect("a range")];
        assert!(is_in(address("127.0.0.1"), &ranges));
        assert!(is_in(address("::ffff:127.0.0.1"), &ranges));
        assert!(!is_in(address("::1"), &ranges));
    }
}
