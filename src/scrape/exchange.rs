//! One GET: connection, request, answer. Knows no deadline; who drops it closes the connection.

use std::error::Error;
use std::io;
use std::pin::pin;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures::FutureExt;
use futures::future::{Either, select};
use http::{Request, Response, StatusCode, Uri, header};
use http_body_util::{BodyExt, Empty};
use hyper::body::{Body, Incoming};
use hyper::client::conn::http1;
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::connect::HttpConnector;
use rustls::{AlertDescription, ClientConfig};
use tower::Service;

use super::limits;
use super::reading::{Moment, Target};
use super::trust::ClientCertificate;
use super::unread::{Unread, Unreadable};
use crate::pod::Scheme;

/// OpenMetrics is not asked for: the Python client then writes `_` for the `:` of its names.
const ACCEPT: &str = "text/plain;version=0.0.4";

const USER_AGENT: &str = concat!("model-deployment-operator/", env!("CARGO_PKG_VERSION"));

/// Fetches the body of one target over a connection of its own. `sent` becomes the moment at which the request goes out.
pub(super) async fn get(target: &Target, tls: &ClientConfig, sent: &mut Moment) -> Result<Bytes, Unread> {
    let client_certificate = Arc::new(ClientCertificate::default());
    let mut tls = tls.clone();
    tls.client_auth_cert_resolver = client_certificate.clone();
    // Until the server has answered, a break after it asked for a certificate is its way of insisting on one.
    let insists = || client_certificate.was_asked_for();

    let stream = connect(target, tls)
        .await
        .map_err(|error| classify(&*error, insists()))?;
    let request = request(target)?;
    let (mut sender, connection) = http1::Builder::new()
        .max_buf_size(limits::HEAD_BYTES)
        .handshake(stream)
        .await
        .map_err(|error| classify(&error, insists()))?;
    let mut connection = pin!(connection.fuse());

    *sent = Moment::now();
    let response = match select(pin!(sender.send_request(request)), &mut connection).await {
        Either::Left((response, _)) => response,
        Either::Right((ended, response)) => response.await.map_err(|error| ended.err().unwrap_or(error)),
    };
    let response = response.map_err(|error| classify(&error, insists()))?;
    match select(pin!(read(response)), &mut connection).await {
        Either::Left((body, _)) => body,
        Either::Right((_, body)) => body.await,
    }
}

type Stream = hyper_rustls::MaybeHttpsStream<hyper_util::rt::TokioIo<tokio::net::TcpStream>>;

/// Connects to the address itself: no name is resolved, no proxy is asked, and the certificate has to be valid for the address.
async fn connect(target: &Target, tls: ClientConfig) -> Result<Stream, Box<dyn Error + Send + Sync>> {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    let scheme = match target.listener.scheme {
        Scheme::Http => "http",
        Scheme::Https => "https",
    };
    let uri: Uri = format!("{scheme}://{}/", target.socket()).parse()?;
    HttpsConnector::from((tcp, tls)).call(uri).await
}

fn request(target: &Target) -> Result<Request<Empty<Bytes>>, Unread> {
    Request::get(target.listener.path.as_str())
        .header(header::HOST, target.socket().to_string())
        .header(header::USER_AGENT, USER_AGENT)
        .header(header::ACCEPT, ACCEPT)
        .header(header::ACCEPT_ENCODING, "identity")
        .header(header::CONNECTION, "close")
        .body(Empty::new())
        .map_err(|_| Unread::Unreadable(Unreadable::Http))
}

/// Reads the body of a 200 up to the cap, and no other.
async fn read(response: Response<Incoming>) -> Result<Bytes, Unread> {
    let (head, mut body) = response.into_parts();
    if head.status != StatusCode::OK {
        return Err(Unread::HttpStatus(head.status.as_u16()));
    }
    if head
        .headers
        .get_all(header::CONTENT_ENCODING)
        .iter()
        .any(|encoding| !encoding.as_bytes().eq_ignore_ascii_case(b"identity"))
    {
        return Err(Unread::Unreadable(Unreadable::Encoding));
    }
    if body.size_hint().lower() > limits::BODY_BYTES as u64 {
        return Err(Unread::TooLarge);
    }
    let mut bytes = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| classify(&error, false))?;
        let Ok(data) = frame.into_data() else { continue };
        if bytes.len() + data.len() > limits::BODY_BYTES {
            return Err(Unread::TooLarge);
        }
        bytes.extend_from_slice(&data);
    }
    Ok(bytes.freeze())
}

/// The code of a failure. `insists` says that a break means a missing client certificate.
fn classify(error: &(dyn Error + 'static), insists: bool) -> Unread {
    let mut broke = None;
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(tls) = error.downcast_ref::<rustls::Error>() {
            return match tls {
                rustls::Error::InvalidCertificate(_) => Unread::TlsUntrusted,
                rustls::Error::AlertReceived(AlertDescription::CertificateRequired) => Unread::TlsClientCertificate,
                rustls::Error::AlertReceived(_) if insists => Unread::TlsClientCertificate,
                _ => Unread::Unreadable(Unreadable::Tls),
            };
        }
        if let Some(http) = error.downcast_ref::<hyper::Error>() {
            if http.is_parse() {
                return Unread::Unreadable(Unreadable::Http);
            }
            broke = Some(Unreadable::Http);
            next = http.source();
            continue;
        }
        if let Some(io) = error.downcast_ref::<io::Error>() {
            match io.kind() {
                io::ErrorKind::ConnectionRefused => return Unread::Refused,
                io::ErrorKind::TimedOut => return Unread::Timeout,
                _ => broke = broke.or(Some(Unreadable::Connection)),
            }
            // An I/O error's own source skips the error that it wraps.
            next = io.get_ref().map(|wrapped| wrapped as &(dyn Error + 'static));
            continue;
        }
        next = error.source();
    }
    if insists {
        return Unread::TlsClientCertificate;
    }
    Unread::Unreadable(broke.unwrap_or(Unreadable::Connection))
}
