//! Jute's primitives, and the traits of everything that is made of them.
//!
//! All numbers are big-endian two's complement; records are their fields in order, without tags,
//! lengths or padding. This is the only file that knows nom.
//!
//! | jute | here | on the wire |
//! |---|---|---|
//! | boolean | `bool` | one byte; any value but 0 is true |
//! | int, long | `i32`, `i64` | 4, 8 bytes |
//! | buffer | `Option<&[u8]>` | int length and bytes; -1 is null, which is not empty |
//! | ustring | [`Text`] | as buffer |
//! | vector | [`List`] | int count and elements; -1 is null, Java reads any count below 1 as empty |
//!
//! A length or count is only believed as far as there are bytes: nothing is ever allocated for one.
//!
//! Source: `BinaryInputArchive`, `BinaryOutputArchive`.

use core::{fmt, marker::PhantomData};

use bytes::BufMut;
use nom::{IResult, Parser as _};

use crate::{DecodeError, DecodeErrorKind, Stat, Text};

/// How many bytes a length has.
const LENGTH_SIZE: usize = size_of::<i32>();

/// How many texts are looked at one by one, once two in a row had different lengths, before the next is taken
/// for the first of many with one length. A wrong guess costs as much as a few of them.
const MIXED_LENGTHS: usize = 128;

/// A value that can be appended to a buffer.
pub trait Encode {
    /// Appends the value. Cannot fail; limits are checked where the [frame](crate::frame) is closed.
    ///
    /// As all of `BufMut`, a buffer that cannot grow (`&mut [u8]`) panics when it is full; `Vec<u8>` and
    /// `BytesMut` grow.
    fn encode(&self, out: &mut impl BufMut);
}

/// A value that can be read from the front of some bytes, and borrows from them.
pub trait Decode<'a>: Sized {
    /// Takes the value off the front.
    ///
    /// # Errors
    ///
    /// When the bytes end too early or a length is not valid. The reader is then somewhere inside the
    /// value.
    fn decode(reader: &mut Reader<'a>) -> Result<Self, DecodeError>;

    /// Takes `count` values off the front, as [`decode`](Self::decode) so many times over would. Tells
    /// whether all of them are known to be of one size.
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

/// Bytes that are being read, and how far.
#[derive(Debug, Clone, Copy)]
pub struct Reader<'a> {
    rest: &'a [u8],
    len: usize,
}

impl<'a> Reader<'a> {
    /// Starts at the front of `payload`.
    #[inline]
    #[must_use]
    pub const fn new(payload: &'a [u8]) -> Self {
        Self { rest: payload, len: payload.len() }
    }

    /// What has not been read.
    #[inline]
    #[must_use]
    pub const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// How many bytes have been read.
    #[inline]
    #[must_use]
    pub const fn offset(&self) -> usize {
        self.len - self.rest.len()
    }

    /// Whether all has been read.
    #[inline]
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// One byte, 0 or not.
    ///
    /// # Errors
    ///
    /// `UnexpectedEnd`.
    #[inline]
    pub fn boolean(&mut self, field: &'static str) -> Result<bool, DecodeError> {
        self.parse(field, chunk.map(|[byte]| byte != 0))
    }

    /// Four bytes.
    ///
    /// # Errors
    ///
    /// `UnexpectedEnd`.
    #[inline]
    pub fn int(&mut self, field: &'static str) -> Result<i32, DecodeError> {
        self.parse(field, chunk.map(i32::from_be_bytes))
    }

    /// Eight bytes.
    ///
    /// # Errors
    ///
    /// `UnexpectedEnd`.
    #[inline]
    pub fn long(&mut self, field: &'static str) -> Result<i64, DecodeError> {
        self.parse(field, chunk.map(i64::from_be_bytes))
    }

    /// A length and that many bytes; `None` for the length -1.
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
        // Never cut off: an i32 that is not negative is a usize wherever there are pointers of 32 bits.
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        let Some((bytes, rest)) = self.rest.split_at_checked(len) else {
            return Err(start.cut_off(field));
        };
        self.rest = rest;
        Ok(Some(bytes))
    }

    /// As [`buffer`](Self::buffer), for text.
    ///
    /// # Errors
    ///
    /// As `buffer`; never because of the text's bytes.
    #[inline]
    pub fn text(&mut self, field: &'static str) -> Result<Text<'a>, DecodeError> {
        self.buffer(field).map(Text::from_bytes)
    }

    /// A count and that many elements, all looked at now and handed out later.
    ///
    /// # Errors
    ///
    /// `UnexpectedEnd` when there are fewer elements than the count says, and what the elements say.
    #[inline]
    pub fn list<T: Decode<'a>>(&mut self, field: &'static str) -> Result<List<'a, T>, DecodeError> {
        let count = self.int(field)?;
        let body = self.rest;
        let one_size = T::skip(self, usize::try_from(count).unwrap_or(0))?;
        let body = body.get(..body.len() - self.rest.len()).unwrap_or_default();
        Ok(List(Repr::Wire { count, one_size, body, element: PhantomData }))
    }

    /// Takes texts of one length off the front, at most so many, and says how many. Stops in front of all
    /// that is not wholly there or is null.
    ///
    /// The place of each follows from the first one's length, not from the length before it: the processor
    /// looks at several at once, where a walk from length to length waits for every one of them. Two in a
    /// step take half the time of one at a time.
    #[inline]
    fn skip_texts_of_one_length(&mut self, at_most: usize) -> usize {
        let Some(len) = self.rest.first_chunk::<LENGTH_SIZE>() else { return 0 };
        let Ok(size) = usize::try_from(i32::from_be_bytes(*len)) else { return 0 };
        let size = size.saturating_add(LENGTH_SIZE);
        // Where not so many fit there are fewer.
        let texts = self.rest.get(..size.saturating_mul(at_most)).unwrap_or(self.rest);
        let alike = |text: &[u8]| text.first_chunk() == Some(len);
        let pairs = texts
            .chunks_exact(size.saturating_mul(2))
            .take_while(|pair| alike(pair) && pair.get(size..).is_some_and(alike))
            .count();
        let unpaired = texts.get(2 * pairs * size..).unwrap_or_default();
        let count = 2 * pairs + usize::from(unpaired.get(..size).is_some_and(alike));
        self.rest = self.rest.get(count * size..).unwrap_or_default();
        count
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
            Err(_) => Err(self.cut_off(field)),
        }
    }

    #[cold]
    const fn cut_off(&self, field: &'static str) -> DecodeError {
        DecodeError::new(DecodeErrorKind::UnexpectedEnd, field, self.offset())
    }

    #[cold]
    const fn invalid_length(&self, len: i32, field: &'static str) -> DecodeError {
        DecodeError::new(DecodeErrorKind::InvalidLength(len), field, self.offset())
    }
}

/// As many bytes as the type says.
///
/// nom's own parsers of numbers gather them byte by byte, and its `take` is a call; this is a comparison
/// and a load, and decoding is little else.
#[inline]
fn chunk<const N: usize>(input: &[u8]) -> IResult<&[u8], [u8; N], ()> {
    match input.split_first_chunk() {
        Some((bytes, rest)) => Ok((rest, *bytes)),
        None => Err(nom::Err::Error(())),
    }
}

/// A vector: elements that are decoded when they are looked at, or a slice to be encoded.
///
/// Reading one from the wire checks every element and allocates nothing. Null is kept apart from
/// empty.
pub struct List<'a, T>(Repr<'a, T>);

enum Repr<'a, T> {
    /// `body` holds `count` elements that were decoded once without an error; `count` below 1: none.
    Wire {
        count: i32,
        /// Whether all elements are known to have as many bytes.
        one_size: bool,
        body: &'a [u8],
        element: PhantomData<fn() -> T>,
    },
    Items(&'a [T]),
}

impl<'a, T> List<'a, T> {
    /// No vector at all: the count -1.
    pub const NULL: Self =
        Self(Repr::Wire { count: -1, one_size: false, body: &[], element: PhantomData });

    /// These elements.
    #[must_use]
    pub const fn new(items: &'a [T]) -> Self {
        Self(Repr::Items(items))
    }

    /// How many elements.
    #[must_use]
    pub fn len(&self) -> usize {
        match self.0 {
            Repr::Wire { count, .. } => usize::try_from(count).unwrap_or(0),
            Repr::Items(items) => items.len(),
        }
    }

    /// Whether there are none; true for null as well.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether there is no vector.
    #[must_use]
    pub const fn is_null(&self) -> bool {
        matches!(self.0, Repr::Wire { count: -1, .. })
    }

    /// How many bytes each element has, when the list was read from the wire and its elements were seen to have
    /// as many as each other. Only looked for in texts.
    #[must_use]
    pub fn element_size(&self) -> Option<usize> {
        match self.0 {
            Repr::Wire { one_size: true, body, .. } => body.len().checked_div(self.len()),
            _ => None,
        }
    }

    /// The elements, in order.
    #[must_use]
    pub fn iter(&self) -> ListIter<'a, T> {
        ListIter(match self.0 {
            Repr::Wire { body, .. } => IterRepr::Wire(Reader::new(body), self.len()),
            Repr::Items(items) => IterRepr::Items(items.iter()),
        })
    }
}

impl<T> Clone for List<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for List<'_, T> {}

impl<T> Clone for Repr<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Repr<'_, T> {}

impl<T> Default for List<'_, T> {
    fn default() -> Self {
        Self::new(&[])
    }
}

impl<'a, T> From<&'a [T]> for List<'a, T> {
    fn from(items: &'a [T]) -> Self {
        Self::new(items)
    }
}

impl<'a, T, const N: usize> From<&'a [T; N]> for List<'a, T> {
    fn from(items: &'a [T; N]) -> Self {
        Self::new(items)
    }
}

impl<'a, T: Decode<'a> + Copy + PartialEq> PartialEq for List<'a, T> {
    fn eq(&self, other: &Self) -> bool {
        self.is_null() == other.is_null() && self.iter().eq(other.iter())
    }
}

impl<'a, T: Decode<'a> + Copy + Eq> Eq for List<'a, T> {}

impl<'a, T: Decode<'a> + Copy + fmt::Debug> fmt::Debug for List<'a, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_null() {
            f.write_str("null")
        } else {
            f.debug_list().entries(self.iter()).finish()
        }
    }
}

impl<'a, T: Encode + Decode<'a> + Copy> Encode for List<'a, T> {
    #[inline]
    fn encode(&self, out: &mut impl BufMut) {
        out.put_i32(match self.0 {
            Repr::Wire { count, .. } => count,
            Repr::Items(items) => i32::try_from(items.len()).unwrap_or(i32::MAX),
        });
        for element in self.iter() {
            element.encode(out);
        }
    }
}

impl<'a, T: Decode<'a> + Copy> IntoIterator for List<'a, T> {
    type Item = T;
    type IntoIter = ListIter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// The elements of a [`List`], in order.
#[derive(Debug, Clone)]
pub struct ListIter<'a, T>(IterRepr<'a, T>);

#[derive(Debug, Clone)]
enum IterRepr<'a, T> {
    Wire(Reader<'a>, usize),
    Items(core::slice::Iter<'a, T>),
}

impl<'a, T: Decode<'a> + Copy> Iterator for ListIter<'a, T> {
    type Item = T;

    #[inline]
    fn next(&mut self) -> Option<T> {
        match &mut self.0 {
            IterRepr::Wire(reader, left) => {
                *left = left.checked_sub(1)?;
                T::decode(reader).ok()
            }
            IterRepr::Items(items) => items.next().copied(),
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = match &self.0 {
            // As many as the count says were found, each of at least one byte.
            IterRepr::Wire(reader, left) => (*left).min(reader.rest().len()),
            IterRepr::Items(items) => items.len(),
        };
        (left, Some(left))
    }
}

impl<'a, T: Decode<'a> + Copy> ExactSizeIterator for ListIter<'a, T> {}

/// A type that a record has fields of.
pub(crate) trait Field<'a>: Sized {
    fn take(reader: &mut Reader<'a>, field: &'static str) -> Result<Self, DecodeError>;
    fn put(&self, out: &mut impl BufMut);
}

impl<'a> Field<'a> for bool {
    #[inline]
    fn take(reader: &mut Reader<'a>, field: &'static str) -> Result<Self, DecodeError> {
        reader.boolean(field)
    }

    #[inline]
    fn put(&self, out: &mut impl BufMut) {
        out.put_u8(u8::from(*self));
    }
}

impl<'a> Field<'a> for i32 {
    #[inline]
    fn take(reader: &mut Reader<'a>, field: &'static str) -> Result<Self, DecodeError> {
        reader.int(field)
    }

    #[inline]
    fn put(&self, out: &mut impl BufMut) {
        out.put_i32(*self);
    }
}

impl<'a> Field<'a> for i64 {
    #[inline]
    fn take(reader: &mut Reader<'a>, field: &'static str) -> Result<Self, DecodeError> {
        reader.long(field)
    }

    #[inline]
    fn put(&self, out: &mut impl BufMut) {
        out.put_i64(*self);
    }
}

impl<'a> Field<'a> for Option<&'a [u8]> {
    #[inline]
    fn take(reader: &mut Reader<'a>, field: &'static str) -> Result<Self, DecodeError> {
        reader.buffer(field)
    }

    #[inline(always)]
    fn put(&self, out: &mut impl BufMut) {
        match self {
            // A buffer over 2 GiB makes a frame over every limit, so the length does not matter.
            Some(bytes) => {
                out.put_i32(i32::try_from(bytes.len()).unwrap_or(i32::MAX));
                out.put_slice(bytes);
            }
            None => out.put_i32(-1),
        }
    }
}

impl<'a> Field<'a> for Text<'a> {
    #[inline]
    fn take(reader: &mut Reader<'a>, field: &'static str) -> Result<Self, DecodeError> {
        reader.text(field)
    }

    #[inline(always)]
    fn put(&self, out: &mut impl BufMut) {
        self.bytes().put(out);
    }
}

impl<'a, T: Encode + Decode<'a> + Copy> Field<'a> for List<'a, T> {
    #[inline]
    fn take(reader: &mut Reader<'a>, field: &'static str) -> Result<Self, DecodeError> {
        reader.list(field)
    }

    #[inline]
    fn put(&self, out: &mut impl BufMut) {
        self.encode(out);
    }
}

/// How many bytes a [`Stat`] has.
const STAT_SIZE: usize = 68;

impl<'a> Field<'a> for Stat {
    /// One comparison for all eleven fields when they are there; one by one, to name the field that is
    /// cut off, when they are not.
    #[inline]
    fn take(reader: &mut Reader<'a>, _field: &'static str) -> Result<Self, DecodeError> {
        let Some((whole, rest)) = reader.rest.split_first_chunk::<STAT_SIZE>() else {
            return Self::decode(reader);
        };
        let stat = Self::decode(&mut Reader::new(whole))?;
        reader.rest = rest;
        Ok(stat)
    }

    #[inline]
    fn put(&self, out: &mut impl BufMut) {
        self.encode(out);
    }
}

/// Text in a vector.
impl<'a> Decode<'a> for Text<'a> {
    #[inline]
    fn decode(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        reader.text("element")
    }

    /// Nearly all long lists are of names like `lock-0000000001`, all of one length.
    #[inline]
    fn skip(reader: &mut Reader<'a>, count: usize) -> Result<bool, DecodeError> {
        let mut left = count - reader.skip_texts_of_one_length(count);
        let one_size = left == 0;
        while left > 0 {
            let one_by_one = left.min(MIXED_LENGTHS);
            for _ in 0..one_by_one {
                Self::decode(reader)?;
            }
            left -= one_by_one;
            left -= reader.skip_texts_of_one_length(left);
        }
        Ok(one_size)
    }
}

impl Encode for Text<'_> {
    #[inline]
    fn encode(&self, out: &mut impl BufMut) {
        self.put(out);
    }
}

/// Declares that fields of a record may be these records or open enums.
macro_rules! record_fields {
    (records: $($record:ty),+; numbers: $($number:ty),+) => {
        $(impl<'a> Field<'a> for $record {
            #[inline]
            fn take(reader: &mut Reader<'a>, _field: &'static str) -> Result<Self, DecodeError> {
                <$record as Decode<'a>>::decode(reader)
            }

            #[inline]
            fn put(&self, out: &mut impl BufMut) {
                self.encode(out);
            }
        })+
        $(impl<'a> Field<'a> for $number {
            #[inline(always)]
            fn take(reader: &mut Reader<'a>, field: &'static str) -> Result<Self, DecodeError> {
                reader.int(field).map(Into::into)
            }

            #[inline]
            fn put(&self, out: &mut impl BufMut) {
                out.put_i32(self.number());
            }
        })+
    };
}

record_fields! {
    records: crate::Id<'a>;
    numbers: crate::ErrorCode, crate::EventType, crate::KeeperState, crate::OpCode, crate::AddWatchMode,
        crate::WatcherType, crate::Perms
}

#[cfg(test)]
mod tests {
    use alloc::{vec, vec::Vec};

    use super::*;

    #[test]
    fn an_error_names_the_field_and_where_it_begins() {
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
    fn a_lying_count_is_an_error_and_costs_nothing() {
        let bytes = [0x7F, 0xFF, 0xFF, 0xFF, 0, 0, 0, 1, b'a'];
        assert!(Reader::new(&bytes).list::<Text<'_>>("children").is_err());
    }

    #[test]
    fn counts_below_one_are_empty_and_only_minus_one_is_null() {
        for (count, null) in [(-1, true), (-7, false), (0, false)] {
            let bytes = i32::to_be_bytes(count);
            let list = Reader::new(&bytes).list::<Text<'_>>("children").unwrap();
            assert_eq!((list.len(), list.is_null(), list.iter().count()), (0, null, 0));
            let mut out = Vec::new();
            list.encode(&mut out);
            assert_eq!(out, bytes);
        }
    }

    #[test]
    fn a_list_from_the_wire_equals_the_slice_it_was_made_of() {
        let items = [Text::new("a"), Text::NULL, Text::new("")];
        let mut out = Vec::new();
        List::new(&items).encode(&mut out);
        let decoded = Reader::new(&out).list("x").unwrap();
        assert_eq!(decoded, List::new(&items));
        assert_eq!(decoded.iter().collect::<Vec<_>>(), vec![items[0], items[1], items[2]]);
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
    fn a_buffer_takes_what_its_length_says_and_no_more() {
        let mut reader = Reader::new(&[0, 0, 0, 2, 7, 8, 9]);
        assert_eq!(reader.buffer("a"), Ok(Some(&[7, 8][..])));
        assert_eq!(reader.rest(), [9]);
        assert_eq!(Reader::new(&[0; 4]).buffer("a"), Ok(Some(&[][..])));
        assert_eq!(Reader::new(&[0xFF; 4]).buffer("a"), Ok(None));
        assert!(Reader::new(&[0, 0, 0, 2, 7]).buffer("a").is_err());
    }

    #[test]
    fn lists_count_from_both_sides() {
        let items = [Text::new("a"), Text::new("b")];
        let mut out = Vec::new();
        List::from(&items).encode(&mut out);
        let wire = Reader::new(&out).list::<Text<'_>>("x").unwrap();
        for list in [wire, List::from(&items), List::from(&items[..])] {
            assert_eq!((list.len(), list.is_empty(), list.is_null()), (2, false, false));
            let mut elements = list.into_iter();
            assert_eq!((elements.len(), elements.size_hint()), (2, (2, Some(2))));
            assert_eq!(elements.next(), Some(items[0]));
            assert_eq!(elements.clone().count(), 1);
            assert_eq!((elements.next(), elements.next()), (Some(items[1]), None));
            assert_eq!(elements.len(), 0);
            assert_eq!(alloc::format!("{list:?}"), "[\"a\", \"b\"]");
        }
        assert_ne!(wire, List::NULL);
        assert_ne!(wire, List::new(&items[..1]));
        assert_ne!(List::<Text<'_>>::default(), List::NULL);
        assert!(List::<Text<'_>>::default().is_empty());
        assert_eq!(alloc::format!("{:?}", List::<Text<'_>>::NULL), "null");
    }

    /// A Stat that is cut off names its field, as any record does.
    #[test]
    fn a_stat_is_all_there_or_names_what_is_missing() {
        let mut out = Vec::new();
        out.put_i32(7);
        Stat { czxid: 1, pzxid: 2, ..Stat::default() }.encode(&mut out);
        assert_eq!(out.len(), 4 + STAT_SIZE);
        for (cut, field, offset) in [(4, "czxid", 4), (71, "pzxid", 64), (50, "ephemeralOwner", 48)]
        {
            let mut reader = Reader::new(&out[..cut]);
            assert_eq!(reader.int("x"), Ok(7));
            let error = <Stat as Field<'_>>::take(&mut reader, "stat").unwrap_err();
            assert_eq!((error.field(), error.offset()), (field, offset));
        }
        out.push(9);
        let mut reader = Reader::new(&out);
        assert_eq!(reader.int("x"), Ok(7));
        let stat = <Stat as Field<'_>>::take(&mut reader, "stat").unwrap();
        assert_eq!((stat.czxid, stat.pzxid, reader.rest()), (1, 2, &[9][..]));
    }

    /// `Copy` types are seldom cloned, but generic code does.
    #[test]
    fn clones_are_copies() {
        fn cloned<T: Clone>(value: &T) -> T {
            value.clone()
        }
        let items = [Text::new("a")];
        assert_eq!(cloned(&List::new(&items)), List::new(&items));
        assert!(matches!(cloned(&List::new(&items).0), Repr::Items([_])));
    }
}
