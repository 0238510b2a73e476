//! Jute's primitives, and the traits [`Encode`] and [`Decode`].
//!
//! All numbers are big-endian two's complement; records are their fields in order, without tags, lengths or
//! padding. This is the only file that uses nom.
//!
//! | jute | Rust | on the wire |
//! |---|---|---|
//! | boolean | `bool` | one byte; every value except 0 is true |
//! | int, long | `i32`, `i64` | 4, 8 bytes |
//! | buffer | `Option<&[u8]>` | int length and bytes; -1 is null, which is not empty |
//! | ustring | [`Text`] | as buffer |
//! | vector | [`List`] | int count and elements; -1 is null, Java reads any count below 1 as empty |
//!
//! No memory is ever allocated according to a length or count; one that exceeds the bytes is an error.
//!
//! Source: `BinaryInputArchive`, `BinaryOutputArchive`.

use bytes::BufMut;
use nom::{IResult, Parser as _};

use crate::{DecodeError, DecodeErrorKind, Text};

mod field;
mod list;

pub(crate) use field::Field;
pub use list::{List, ListIter};

/// A value that can be appended to a buffer.
pub trait Encode {
    /// Appends the value. Encoding cannot fail; the limit is checked when the [frame](crate::frame) is
    /// complete.
    ///
    /// As with every use of `BufMut`, a fixed buffer (`&mut [u8]`) panics when it is full; `Vec<u8>` and
    /// `BytesMut` grow.
    fn encode(&self, out: &mut impl BufMut);
}

/// A value that can be decoded from bytes and borrows from them.
pub trait Decode<'a>: Sized {
    /// Decodes a value and advances the reader past it.
    ///
    /// # Errors
    ///
    /// If the bytes end too early or a length is invalid. The reader's position is then somewhere inside the
    /// value.
    fn decode(reader: &mut Reader<'a>) -> Result<Self, DecodeError>;

    /// Skips `count` values, with the same checks as [`decode`](Self::decode). Returns whether all of them are
    /// known to have the same size.
    ///
    /// # Errors
    ///
    /// As `decode`.
    #[inline]
    fn skip(reader: &mut Reader<'a>, count: usize) -> Result<bool, DecodeError> {
        for _ in 0..count {
            Self::decode(reader)?;
        }
        Ok(false)
    }
}

/// A cursor over a payload.
#[derive(Debug, Clone, Copy)]
pub struct Reader<'a> {
    rest: &'a [u8],
    len: usize,
}

impl<'a> Reader<'a> {
    /// A reader at the start of `payload`.
    #[inline]
    #[must_use]
    pub const fn new(payload: &'a [u8]) -> Self {
        Self { rest: payload, len: payload.len() }
    }

    /// The bytes not yet read.
    #[inline]
    #[must_use]
    pub const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Number of bytes read.
    #[inline]
    #[must_use]
    pub const fn offset(&self) -> usize {
        self.len - self.rest.len()
    }

    /// Whether all bytes have been read.
    #[inline]
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Reads a boolean: one byte.
    ///
    /// # Errors
    ///
    /// `UnexpectedEnd`.
    #[inline]
    pub fn boolean(&mut self, field: &'static str) -> Result<bool, DecodeError> {
        self.parse(field, chunk.map(|[byte]| byte != 0))
    }

    /// Reads an int: four bytes.
    ///
    /// # Errors
    ///
    /// `UnexpectedEnd`.
    #[inline]
    pub fn int(&mut self, field: &'static str) -> Result<i32, DecodeError> {
        self.parse(field, chunk.map(i32::from_be_bytes))
    }

    /// Reads a long: eight bytes.
    ///
    /// # Errors
    ///
    /// `UnexpectedEnd`.
    #[inline]
    pub fn long(&mut self, field: &'static str) -> Result<i64, DecodeError> {
        self.parse(field, chunk.map(i64::from_be_bytes))
    }

    /// Reads a buffer: a length and its bytes; `None` for the length -1.
    ///
    /// # Errors
    ///
    /// `InvalidLength` below -1, `UnexpectedEnd`.
    #[inline]
    pub fn buffer(&mut self, field: &'static str) -> Result<Option<&'a [u8]>, DecodeError> {
        let start = *self;
        let len = self.int(field)?;
        if len < 0 {
            return if len == -1 { Ok(None) } else { Err(start.invalid_length(len, field)) };
        }
        // A non-negative i32 fits into a usize of 32 bits or more.
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        let Some((bytes, rest)) = self.rest.split_at_checked(len) else {
            return Err(start.unexpected_end(field));
        };
        self.rest = rest;
        Ok(Some(bytes))
    }

    /// Reads a ustring, as [`buffer`](Self::buffer).
    ///
    /// # Errors
    ///
    /// As `buffer`. Bytes that are not UTF-8 are no error.
    #[inline]
    pub fn text(&mut self, field: &'static str) -> Result<Text<'a>, DecodeError> {
        self.buffer(field).map(Text::from_bytes)
    }

    /// Reads a vector: a count and its elements. All elements are checked now and decoded on iteration.
    ///
    /// # Errors
    ///
    /// `UnexpectedEnd` if there are fewer elements than the count, and the errors of decoding an element.
    #[inline]
    pub fn list<T: Decode<'a>>(&mut self, field: &'static str) -> Result<List<'a, T>, DecodeError> {
        let count = self.int(field)?;
        let body = self.rest;
        let equal_size = T::skip(self, usize::try_from(count).unwrap_or(0))?;
        let body = body.get(..body.len() - self.rest.len()).unwrap_or_default();
        Ok(List::decoded(count, equal_size, body))
    }

    #[inline]
    fn parse<T>(
        &mut self,
        field: &'static str,
        mut parser: impl nom::Parser<&'a [u8], Output = T, Error = ()>,
    ) -> Result<T, DecodeError> {
        match parser.parse(self.rest) {
            Ok((rest, value)) => {
                self.rest = rest;
                Ok(value)
            }
            Err(_) => Err(self.unexpected_end(field)),
        }
    }

    #[cold]
    const fn unexpected_end(&self, field: &'static str) -> DecodeError {
        DecodeError::new(DecodeErrorKind::UnexpectedEnd, field, self.offset())
    }

    #[cold]
    const fn invalid_length(&self, len: i32, field: &'static str) -> DecodeError {
        DecodeError::new(DecodeErrorKind::InvalidLength(len), field, self.offset())
    }
}

/// Parses an array of `N` bytes.
///
/// nom's number parsers collect bytes one by one, and its `take` is a function call. This parser compiles to a
/// comparison and a load, which is most of what decoding costs.
#[inline]
fn chunk<const N: usize>(input: &[u8]) -> IResult<&[u8], [u8; N], ()> {
    match input.split_first_chunk() {
        Some((bytes, rest)) => Ok((rest, *bytes)),
        None => Err(nom::Err::Error(())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_the_field_and_its_offset() {
        let mut reader = Reader::new(&[0, 0, 0, 7, 0, 0, 0, 9, b'x']);
        assert_eq!(reader.int("first"), Ok(7));
        let error = reader.buffer("second").unwrap_err();
        assert_eq!((error.field(), error.offset()), ("second", 4));
        assert_eq!(error.kind(), DecodeErrorKind::UnexpectedEnd);
    }

    #[test]
    fn a_length_below_minus_one_is_an_error() {
        let error = Reader::new(&[0xFF, 0xFF, 0xFF, 0xFE]).buffer("data").unwrap_err();
        assert_eq!(error.kind(), DecodeErrorKind::InvalidLength(-2));
    }

    #[test]
    fn primitives_are_big_endian() {
        let mut reader =
            Reader::new(&[2, 0, 0, 1, 2, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFE]);
        assert_eq!(reader.boolean("a"), Ok(true));
        assert_eq!(reader.int("b"), Ok(258));
        assert_eq!(reader.offset(), 5);
        assert_eq!(reader.long("c"), Ok(-2));
        assert!(reader.is_empty());
        assert_eq!(reader.boolean("d").unwrap_err().offset(), 13);
    }

    #[test]
    fn a_buffer_reads_exactly_its_length() {
        let mut reader = Reader::new(&[0, 0, 0, 2, 7, 8, 9]);
        assert_eq!(reader.buffer("a"), Ok(Some(&[7, 8][..])));
        assert_eq!(reader.rest(), [9]);
        assert_eq!(Reader::new(&[0; 4]).buffer("a"), Ok(Some(&[][..])));
        assert_eq!(Reader::new(&[0xFF; 4]).buffer("a"), Ok(None));
        assert!(Reader::new(&[0, 0, 0, 2, 7]).buffer("a").is_err());
    }
}
