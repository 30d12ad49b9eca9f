//! Pods that serve HTTPS.

use model_deployment::scrape::{Config, Scraper, TrustError, Unread, Unreadable};
use rustls::version::{TLS12, TLS13};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::certificates::Authority;
use super::fake::Fake;
use super::{http, https, read, scraper};

#[tokio::test]
async fn a_certificate_of_the_bundle_for_the_pods_address_is_trusted() {
    let authority = Authority::new();
    let fake = Fake::secured(authority.issue("127.0.0.1").server()).await;
    let bundle = authority.pem() + &Authority::new().pem();
    assert_eq!(
        read(&scraper(Some(bundle)), https(fake.socket)).await.body.as_deref(),
        Ok(&b"a 1.0"[..])
    );
}

#[tokio::test]
async fn a_certificate_of_someone_else_is_untrusted() {
    let fake = Fake::secured(Authority::new().issue("127.0.0.1").server()).await;
    assert_eq!(
        read(&scraper(None), https(fake.socket)).await.body,
        Err(Unread::TlsUntrusted)
    );
    assert_eq!(
        read(&scraper(Some(Authority::new().pem())), https(fake.socket))
            .await
            .body,
        Err(Unread::TlsUntrusted)
    );
}

#[tokio::test]
async fn a_certificate_for_another_address_or_a_name_is_untrusted() {
    let authority = Authority::new();
    for name in ["127.0.0.2", "localhost"] {
        let fake = Fake::secured(authority.issue(name).server()).await;
        assert_eq!(
            read(&scraper(Some(authority.pem())), https(fake.socket)).await.body,
            Err(Unread::TlsUntrusted),
            "{name}"
        );
    }
}

#[tokio::test]
async fn an_expired_certificate_is_untrusted() {
    let authority = Authority::new();
    let fake = Fake::secured(authority.issue_expired("127.0.0.1").server()).await;
    assert_eq!(
        read(&scraper(Some(authority.pem())), https(fake.socket)).await.body,
        Err(Unread::TlsUntrusted)
    );
}

#[tokio::test]
async fn a_server_that_insists_on_a_client_certificate_is_named_in_both_versions() {
    let authority = Authority::new();
    for version in [&TLS12, &TLS13] {
        let fake = Fake::secured(authority.issue("127.0.0.1").server_that_insists(&authority, version)).await;
        let reading = read(&scraper(Some(authority.pem())), https(fake.socket)).await;
        assert_eq!(reading.body, Err(Unread::TlsClientCertificate), "{version:?}");
    }
}

#[tokio::test]
async fn plain_http_behind_an_https_port_is_unreadable_and_the_reverse() {
    let plain = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let socket = plain.local_addr().expect("an address");
    tokio::spawn(async move {
        let (mut stream, _) = plain.accept().await.expect("a connection");
        // As HTTP servers do when they meet a TLS greeting.
        stream
            .write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
            .await
            .expect("an answer");
        while stream.read_u8().await.is_ok() {}
    });
    assert_eq!(
        read(&scraper(None), https(socket)).await.body,
        Err(Unread::Unreadable(Unreadable::Tls))
    );
    let secured = Fake::secured(Authority::new().issue("127.0.0.1").server()).await;
    assert_eq!(
        read(&scraper(None), http(secured.socket)).await.body,
        Err(Unread::Unreadable(Unreadable::Http))
    );
}

#[test]
fn a_bundle_that_is_none_is_refused() {
    let bundle = |pem: &str| {
        Scraper::new(Config {
            extra_ca: Some(pem.into()),
            ..Config::default()
        })
        .err()
    };
    assert!(matches!(bundle(""), Some(TrustError::Empty)));
    assert!(matches!(
        bundle("-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n"),
        Some(TrustError::Pem(_))
    ));
    assert!(matches!(
        bundle("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"),
        Some(TrustError::Certificate(_))
    ));
}
