//! Bodies that travel compressed.

use std::io::{self, Read as _, Write as _};

use bytes::Bytes;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use http_body_util::{BodyExt as _, Full};
use hyper::Response;
use hyper::body::Body as _;
use hyper::header::{self, HeaderValue};

use super::door::DoorBody;

/// Answers larger than this are compressed for clients that take it: below, a header costs more than it saves.
pub(super) const GZIP_BYTES_MIN: usize = 8 * 1024;

/// Bodies larger than this are compressed and inflated off the async threads.
const GZIP_INLINE_BYTES_MAX: usize = 64 * 1024;

/// A large document of a door's, compressed for clients that take it. What streams goes as it comes.
pub(super) async fn packed(
    mut response: Response<DoorBody>,
    takes_gzip: bool,
) -> Response<DoorBody> {
    let kind = response.headers().get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
    let is_document = kind.is_some_and(|kind| kind.starts_with(b"application/json"));
    let bytes = response.body().size_hint().exact().unwrap_or_default();
    if is_document {
        response.headers_mut().append(header::VARY, HeaderValue::from_static("accept-encoding"));
    }
    if !is_document || !takes_gzip || bytes <= GZIP_BYTES_MIN as u64 {
        return response;
    }
    let (mut head, body) = response.into_parts();
    let document = body.collect().await.unwrap_or_else(|never| match never {}).to_bytes();
    let packed = off_thread(document.len(), move || deflate(&document)).await;
    head.headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    head.headers.remove(header::CONTENT_LENGTH);
    Response::from_parts(head, Full::new(Bytes::from(packed)).boxed())
}

/// The unpacked bytes; `None` when they are more than `bytes_max`.
pub(super) fn inflate(packed: &[u8], bytes_max: usize) -> io::Result<Option<Vec<u8>>> {
    let mut unpacked = Vec::new();
    GzDecoder::new(packed).take(bytes_max as u64 + 1).read_to_end(&mut unpacked)?;
    Ok((unpacked.len() <= bytes_max).then_some(unpacked))
}

/// Runs `work` where `bytes` of input make it too long for an async thread.
pub(super) async fn off_thread<T: Send + 'static>(
    bytes: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> T {
    if bytes <= GZIP_INLINE_BYTES_MAX {
        return work();
    }
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))
}

pub(super) fn deflate(body: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(body.len() / 4), Compression::fast());
    // Writing to memory does not fail.
    let _ = encoder.write_all(body);
    encoder.finish().unwrap_or_default()
}
