//! The format of compressed data in Curator: gzip (RFC 1952), one member.

use std::io::{Read as _, Write as _};

use flate2::{Compression, bufread::GzDecoder, write::GzEncoder};

pub(crate) fn compress(data: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(data).and_then(|()| encoder.finish()).expect("a write into memory")
}

/// Decompresses a single member. Returns `None` for any other bytes.
pub(crate) fn decompress(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut decoder = GzDecoder::new(bytes);
    let mut data = Vec::new();
    decoder.read_to_end(&mut data).ok()?;
    decoder.into_inner().is_empty().then_some(data)
}
