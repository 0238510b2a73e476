//! Frames: a length of four bytes, then the payload.
//!
//! The length does not include itself. There is no other delimiter, no checksum and no compression, on plain
//! and on TLS connections. Only four-letter words have no frame.
//!
//! Source: `ClientCnxnSocketNIO`, `NIOServerCnxn.readLength`.

use alloc::vec::Vec;

use bytes::{BufMut, BytesMut};

use crate::{DecodeError, DecodeErrorKind, Encode, FrameTooLarge, OpCode, operation::Operation};

/// A server's default limit of a payload (`jute.maxbuffer`), in bytes. It closes the connection on a longer
/// one.
pub const DEFAULT_LIMIT: usize = 0xF_FFFF;

/// Size of the length field, in bytes.
pub const LENGTH_SIZE: usize = 4;

/// Size of the length field and the [`RequestHeader`](crate::request::RequestHeader), in bytes.
const HEADER_SIZE: usize = LENGTH_SIZE + 8;

/// Decodes a frame's length field; `None` while its four bytes are incomplete.
///
/// # Errors
///
/// `InvalidLength` for a negative length. This function checks no limit; [`split`] does.
#[inline]
pub fn length(input: &[u8]) -> Result<Option<usize>, DecodeError> {
    let Some(&bytes) = input.first_chunk::<LENGTH_SIZE>() else { return Ok(None) };
    let len = i32::from_be_bytes(bytes);
    usize::try_from(len)
        .map(Some)
        .map_err(|_| DecodeError::new(DecodeErrorKind::InvalidLength(len), "frame", 0))
}

/// A payload and the bytes after its frame; `None` while the frame is incomplete.
pub type Split<'a> = Option<(&'a [u8], &'a [u8])>;

/// Splits the first frame off `input`. Returns its payload and the bytes after it; `None` while the frame is
/// incomplete.
///
/// # Errors
///
/// `InvalidLength` for a negative length, `FrameTooLarge` for one over `limit` bytes. The start of the next
/// frame is then unknown; close the connection.
#[inline]
pub fn split(input: &[u8], limit: usize) -> Result<Split<'_>, DecodeError> {
    let Some(len) = length(input)? else { return Ok(None) };
    if len > limit {
        return Err(DecodeError::new(DecodeErrorKind::FrameTooLarge { len, limit }, "frame", 0));
    }
    Ok(input.get(LENGTH_SIZE..).and_then(|payload| payload.split_at_checked(len)))
}

/// A growing buffer that frames are appended to and a frame over the limit is removed from.
pub trait FrameBuf: BufMut + AsMut<[u8]> {
    /// Truncates the buffer to its first `len` bytes.
    fn truncate(&mut self, len: usize);
}

impl FrameBuf for Vec<u8> {
    #[inline]
    fn truncate(&mut self, len: usize) {
        self.truncate(len);
    }
}

impl FrameBuf for BytesMut {
    #[inline]
    fn truncate(&mut self, len: usize) {
        self.truncate(len);
    }
}

/// Appends one frame, whose payload `fill` appends.
///
/// # Errors
///
/// [`FrameTooLarge`] if the payload exceeds `limit` bytes; the buffer is then unchanged.
#[inline]
pub fn put<B: FrameBuf>(
    out: &mut B,
    limit: usize,
    fill: impl FnOnce(&mut B),
) -> Result<(), FrameTooLarge> {
    let start = out.as_mut().len();
    out.put_i32(0);
    fill(out);
    close(out, start, limit)
}

/// Sets the length field of the frame that begins at `start`.
#[inline]
fn close(out: &mut impl FrameBuf, start: usize, limit: usize) -> Result<(), FrameTooLarge> {
    let frame = out.as_mut().get_mut(start..).unwrap_or_default();
    let Some((length, payload)) = frame.split_first_chunk_mut() else { return Ok(()) };
    let len = payload.len();
    match i32::try_from(len) {
        Ok(number) if len <= limit => {
            *length = number.to_be_bytes();
            Ok(())
        }
        _ => {
            out.truncate(start);
            Err(FrameTooLarge { len, limit })
        }
    }
}

/// Appends a frame of one record without a header, such as a handshake.
///
/// # Errors
///
/// As [`put`].
#[inline]
pub fn put_record(
    out: &mut impl FrameBuf,
    limit: usize,
    record: &impl Encode,
) -> Result<(), FrameTooLarge> {
    put(out, limit, |out| record.encode(out))
}

/// Appends the frame of a request.
///
/// # Errors
///
/// As [`put`].
#[inline]
pub fn put_operation(
    out: &mut impl FrameBuf,
    limit: usize,
    xid: i32,
    operation: &impl Operation,
) -> Result<(), FrameTooLarge> {
    put_with_header(out, limit, xid, operation.op_code(), operation)
}

#[inline(always)] // 22 more instructions a getData without the four of encoding.
pub(crate) fn put_with_header(
    out: &mut impl FrameBuf,
    limit: usize,
    xid: i32,
    op: OpCode,
    body: &impl Encode,
) -> Result<(), FrameTooLarge> {
    let start = out.as_mut().len();
    // The length (0 for now) and the `RequestHeader` in one call, because each call checks the buffer's
    // capacity.
    let header = u64::from(xid.cast_unsigned()) << 32 | u64::from(i32::from(op).cast_unsigned());
    if let Some(header) = u128::from(header).to_be_bytes().last_chunk::<HEADER_SIZE>() {
        out.put_slice(header);
    }
    body.encode(out);
    close(out, start, limit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::RequestHeader;

    #[test]
    fn a_frame_over_the_limit_leaves_the_buffer_unchanged() {
        let mut out = alloc::vec![1, 2, 3];
        let error = put(&mut out, 4, |out| out.put_slice(b"12345")).unwrap_err();
        assert_eq!((error, out), (FrameTooLarge { len: 5, limit: 4 }, alloc::vec![1, 2, 3]));
    }

    // Case (Failure cases, 2): many frames in one read.
    #[test]
    fn split_returns_complete_frames_one_by_one() {
        let mut out = BytesMut::new();
        put(&mut out, 4, |out| out.put_slice(b"abcd")).unwrap();
        put(&mut out, 4, |_| ()).unwrap();
        let (first, rest) = split(&out, 4).unwrap().unwrap();
        assert_eq!((first, split(rest, 4)), (&b"abcd"[..], Ok(Some((&b""[..], &b""[..])))));
        for cut in 0..8 {
            assert_eq!(split(&out[..cut], 4), Ok(None), "cut at {cut}");
        }
    }

    #[test]
    fn invalid_lengths_are_reported_before_the_payload_arrives() {
        let kind = |bytes: &[u8]| split(bytes, 10).unwrap_err().kind();
        assert_eq!(kind(&[0xFF; 4]), DecodeErrorKind::InvalidLength(-1));
        assert_eq!(kind(&[0, 0, 0, 11]), DecodeErrorKind::FrameTooLarge { len: 11, limit: 10 });
        assert_eq!(kind(b"HTTP"), DecodeErrorKind::FrameTooLarge { len: 0x4854_5450, limit: 10 });
    }

    #[test]
    fn both_buffers_are_truncated_after_a_frame_over_the_limit() {
        let mut out = BytesMut::from(&b"abc"[..]);
        assert!(put(&mut out, 1, |out| out.put_slice(b"12")).is_err());
        assert_eq!(out, b"abc"[..]);
        put(&mut out, 2, |out| out.put_slice(b"12")).unwrap();
        assert_eq!(out, b"abc\0\0\0\x0212"[..]);
    }

    #[test]
    fn a_record_without_a_header_is_a_frame() {
        let mut out = Vec::new();
        put_record(&mut out, 8, &RequestHeader { xid: 1, op: OpCode::Ping }).unwrap();
        assert_eq!(out, [0, 0, 0, 8, 0, 0, 0, 1, 0, 0, 0, 11]);
        assert!(put_record(&mut out, 7, &RequestHeader { xid: 1, op: OpCode::Ping }).is_err());
    }

    #[test]
    fn a_length_needs_its_four_bytes() {
        assert_eq!(length(&[0, 0, 1]), Ok(None));
        assert_eq!(length(&[0, 0, 1, 0]), Ok(Some(256)));
        assert_eq!(length(&[0x7F, 0xFF, 0xFF, 0xFF, 9]), Ok(Some(i32::MAX as usize)));
        assert!(length(&[0x80, 0, 0, 0]).is_err());
    }
}
