//! Status and body.

use model_deployment::scrape::{Unread, Unreadable};

use super::fake::{Fake, metrics};
use super::{http, read, scraper};

/// What is read of this answer.
async fn answer(answer: impl Into<Vec<u8>>) -> Result<usize, Unread> {
    let fake = Fake::answering(answer).await;
    read(&scraper(None), http(fake.socket))
        .await
        .body
        .map(|body| body.len())
}

fn with_length(length: usize) -> Vec<u8> {
    [
        format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n").into_bytes(),
        vec![b'#'; length],
    ]
    .concat()
}

fn without_length(length: usize) -> Vec<u8> {
    [b"HTTP/1.1 200 OK\r\n\r\n".to_vec(), vec![b'#'; length]].concat()
}

fn chunked(length: usize) -> Vec<u8> {
    let mut answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
    for chunk in vec![b'#'; length].chunks(10_000) {
        answer.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
        answer.extend_from_slice(chunk);
        answer.extend_from_slice(b"\r\n");
    }
    answer.extend_from_slice(b"0\r\n\r\n");
    answer
}

#[tokio::test]
async fn a_body_is_given_byte_for_byte() {
    let fake = Fake::answering(metrics()).await;
    let reading = read(&scraper(None), http(fake.socket)).await;
    assert_eq!(reading.body.as_deref(), Ok(&b"a 1.0"[..]));
    assert_eq!(answer("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await, Ok(0));
    assert_eq!(answer("HTTP/1.0 200 OK\r\n\r\na 1.0").await, Ok(5));
}

#[tokio::test]
async fn a_body_of_1_mib_is_read() {
    for body in [with_length(1 << 20), without_length(1 << 20), chunked(1 << 20)] {
        assert_eq!(answer(body).await, Ok(1 << 20));
    }
}

#[tokio::test]
async fn a_body_of_one_byte_more_is_too_large() {
    for body in [
        with_length((1 << 20) + 1),
        without_length((1 << 20) + 1),
        chunked((1 << 20) + 1),
    ] {
        assert_eq!(answer(body).await, Err(Unread::TooLarge));
    }
}

#[tokio::test]
async fn a_length_that_only_claims_to_be_over_the_cap_is_too_large() {
    assert_eq!(
        answer("HTTP/1.1 200 OK\r\nContent-Length: 1048577\r\n\r\na 1").await,
        Err(Unread::TooLarge)
    );
    assert_eq!(
        answer("HTTP/1.1 200 OK\r\nContent-Length: 1099511627776\r\n\r\n").await,
        Err(Unread::TooLarge)
    );
}

#[tokio::test]
async fn another_status_than_200_is_named_and_its_body_ignored() {
    for status in [201, 204, 206, 301, 304, 401, 403, 404, 500, 503] {
        let body = format!("HTTP/1.1 {status} Whatever\r\nContent-Length: 2\r\n\r\nno");
        assert_eq!(answer(body).await, Err(Unread::HttpStatus(status)));
    }
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let mut elsewhere = Fake::answering(metrics()).await;
    let redirect = format!(
        "HTTP/1.1 302 Found\r\nLocation: http://{}/metrics\r\nContent-Length: 0\r\n\r\n",
        elsewhere.socket
    );
    assert_eq!(answer(redirect).await, Err(Unread::HttpStatus(302)));
    assert!(elsewhere.is_untouched());
}

#[tokio::test]
async fn an_encoded_body_is_unreadable() {
    for encoding in ["gzip", "br", "deflate", "identity, gzip"] {
        let body = format!("HTTP/1.1 200 OK\r\nContent-Encoding: {encoding}\r\nContent-Length: 5\r\n\r\na 1.0");
        assert_eq!(
            answer(body).await,
            Err(Unread::Unreadable(Unreadable::Encoding)),
            "{encoding}"
        );
    }
    assert_eq!(
        answer("HTTP/1.1 200 OK\r\nContent-Encoding: Identity\r\nContent-Length: 5\r\n\r\na 1.0").await,
        Ok(5)
    );
}

#[tokio::test]
async fn an_answer_that_stops_short_or_is_no_http_is_unreadable() {
    for body in [
        "HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\na 1.0",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\na 1.0\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        "HTTP/1.1 200 OK\r\nContent-",
        "SSH-2.0-OpenSSH_9.6\r\n",
        "",
    ] {
        assert_eq!(
            answer(body).await,
            Err(Unread::Unreadable(Unreadable::Http)),
            "{body:?}"
        );
    }
}

#[tokio::test]
async fn a_head_without_end_is_unreadable() {
    let head = format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "x".repeat(1 << 20));
    assert_eq!(answer(head).await, Err(Unread::Unreadable(Unreadable::Http)));
}
