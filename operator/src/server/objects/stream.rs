//! Bodies: what a caller sends, read within limits; what the API server sends, held or handed on as it comes.
//!
//! Knows sizes and times; nothing of what is in a body.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::{Stream, StreamExt, TryStreamExt, stream};
use http::StatusCode;
use http_body_util::{BodyExt, LengthLimitError, Limited, StreamBody};
use hyper::body::{Body as HttpBody, Frame};
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::CancellationToken;

use super::super::limits::Limits;
use super::super::response::{Body, Broken};
use super::super::status::Failure;
use super::translate::{BODY_MOST, Frames, Translated};

/// How long a request's body may take to arrive.
const ARRIVAL: Duration = Duration::from_secs(30);
/// An answer that is not a watch, in bytes.
const HELD: usize = 64 << 20;
const MEBIBYTE: usize = 1 << 20;

/// Reads what the caller sends.
pub(super) async fn receive<B>(body: B) -> Result<Bytes, Failure>
where
    B: HttpBody<Data = Bytes>,
    B::Error: Into<Broken>,
{
    let read = tokio::time::timeout(ARRIVAL, Limited::new(body, BODY_MOST).collect()).await;
    match read {
        Ok(Ok(read)) => Ok(read.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(Failure::body(
            StatusCode::PAYLOAD_TOO_LARGE,
            format!("Request entity too large: limit is {BODY_MOST}"),
        )),
        Ok(Err(_)) => Err(Failure::bad_request("the request's body broke off")),
        Err(_) => Err(Failure::timeout()),
    }
}

/// An answer in memory, and the room it takes there.
pub(super) struct Held {
    pub(super) bytes: Bytes,
    pub(super) room: Option<OwnedSemaphorePermit>,
}

/// Holds a whole answer; `written` says that it is a write's, which has been carried out.
pub(super) async fn hold(mut body: kube::client::Body, limits: &Limits, written: bool) -> Result<Held, Failure> {
    let mut bytes = BytesMut::new();
    let mut room: Option<OwnedSemaphorePermit> = None;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| {
            tracing::warn!(%error, "the API server's answer broke off");
            Failure::unavailable_once("the API server's answer broke off")
        })?;
        let Ok(data) = frame.into_data() else { continue };
        if bytes.len() + data.len() > HELD {
            return Err(Failure::internal_error(format!(
                "the list is longer than {HELD} bytes: use limit and continue to read it in parts"
            )));
        }
        bytes.extend_from_slice(&data);
        // A write's answer is one object, and is not refused any more.
        while !written && room.as_ref().map_or(0, OwnedSemaphorePermit::num_permits) * MEBIBYTE < bytes.len() {
            let more = limits.hold()?;
            match &mut room {
                Some(room) => room.merge(more),
                None => room = Some(more),
            }
        }
    }
    Ok(Held {
        bytes: bytes.freeze(),
        room,
    })
}

/// Hands a watch on, each event as soon as it is whole, and reads no faster than the caller does. Ends when the API server ends it or
/// this server leaves; breaks where the API server's does.
pub(super) fn hand_on(body: kube::client::Body, leaving: CancellationToken) -> Body {
    let frames = events(body.into_data_stream().map_err(Broken::from)).take_until(leaving.cancelled_owned());
    StreamBody::new(frames.map_ok(Frame::data)).boxed_unsync()
}

fn events<S>(chunks: S) -> impl Stream<Item = Result<Bytes, Broken>> + Send
where
    S: Stream<Item = Result<Bytes, Broken>> + Send + Unpin,
{
    stream::try_unfold(Some((chunks, Frames::default())), |state| async move {
        let Some((mut chunks, mut frames)) = state else {
            return Ok(None);
        };
        while let Some(chunk) = chunks.try_next().await? {
            let whole = noted(frames.push(&chunk)?);
            if !whole.is_empty() {
                return Ok(Some((whole, Some((chunks, frames)))));
            }
        }
        let last = noted(frames.finish());
        Ok((!last.is_empty()).then_some((last, None)))
    })
}

/// What is sent. Something of an unknown kind is said once it is seen; it passes as it came.
pub(super) fn noted(translated: Translated) -> Bytes {
    if !translated.known {
        tracing::warn!("the API server sent something of an unknown kind, which is passed on as it is");
    }
    translated.body
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends something at once, and then nothing for ever.
    fn slow() -> impl HttpBody<Data = Bytes, Error = Broken> {
        let begun = stream::iter([Ok(Frame::data(Bytes::from_static(b"{")))]);
        StreamBody::new(begun.chain(stream::pending()))
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_does_not_arrive_is_given_up_after_thirty_seconds() {
        let started = tokio::time::Instant::now();
        assert_eq!(receive(slow()).await, Err(Failure::timeout()));
        assert_eq!(started.elapsed(), Duration::from_secs(30));
    }

    /// Bodies in parts of a mebibyte, from the API server.
    fn long(mebibytes: usize) -> kube::client::Body {
        vec![b' '; mebibytes * MEBIBYTE].into()
    }

    #[tokio::test]
    async fn lists_share_192_mebibytes_and_give_them_back() {
        let limits = Limits::default();
        let mut held = Vec::new();
        for _ in 0..3 {
            held.push(hold(long(64), &limits, false).await.ok().unwrap());
        }
        assert_eq!(
            hold(long(1), &limits, false).await.err(),
            Some(Failure::too_many_requests())
        );
        // What has been done is not refused any more.
        assert!(hold(long(1), &limits, true).await.is_ok());
        held.pop();
        assert!(hold(long(64), &limits, false).await.is_ok());
    }
}
