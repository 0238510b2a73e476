//! Vectors: decoded on iteration, or encoded from a slice.

use core::{fmt, marker::PhantomData};

use bytes::BufMut;

use super::{Decode, Encode, Field as _, Reader};
use crate::{DecodeError, Text};

/// Size of a length, in bytes.
const LENGTH_SIZE: usize = size_of::<i32>();

/// Number of texts decoded one by one after two neighbours differed in length, before the next run of equal
/// lengths is tried. A failed try costs as much as decoding a few texts.
const ONE_BY_ONE: usize = 128;

/// A vector: elements on the wire, decoded on iteration, or a slice to be encoded.
///
/// Decoding checks every element and allocates nothing. Null is distinct from empty.
pub struct List<'a, T>(Repr<'a, T>);

enum Repr<'a, T> {
    /// `body` holds `count` elements, each checked by decoding it once; none if `count` is below 1.
    Wire {
        count: i32,
        /// Whether all elements are known to have the same size.
        equal_size: bool,
        body: &'a [u8],
        element: PhantomData<fn() -> T>,
    },
    Items(&'a [T]),
}

impl<'a, T> List<'a, T> {
    /// The null vector: the count -1.
    pub const NULL: Self =
        Self(Repr::Wire { count: -1, equal_size: false, body: &[], element: PhantomData });

    /// A vector of these elements.
    #[must_use]
    pub const fn new(items: &'a [T]) -> Self {
        Self(Repr::Items(items))
    }

    /// A vector on the wire whose elements were all checked.
    #[inline]
    pub(super) const fn decoded(count: i32, equal_size: bool, body: &'a [u8]) -> Self {
        Self(Repr::Wire { count, equal_size, body, element: PhantomData })
    }

    /// Number of elements; 0 for null.
    #[must_use]
    pub fn len(&self) -> usize {
        match self.0 {
            Repr::Wire { count, .. } => usize::try_from(count).unwrap_or(0),
            Repr::Items(items) => items.len(),
        }
    }

    /// Whether the vector has no elements; true for null too.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the vector is null.
    #[must_use]
    pub const fn is_null(&self) -> bool {
        matches!(self.0, Repr::Wire { count: -1, .. })
    }

    /// Size of each element on the wire, in bytes, if the list was decoded and all its elements are known to
    /// have the same size. Only lists of texts are checked for that.
    // Public for docent-session, which keeps the names of children in their reply.
    #[doc(hidden)]
    #[must_use]
    pub fn element_size(&self) -> Option<usize> {
        match self.0 {
            Repr::Wire { equal_size: true, body, .. } => body.len().checked_div(self.len()),
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
            // Decoding found `left` elements of at least one byte each.
            IterRepr::Wire(reader, left) => (*left).min(reader.rest().len()),
            IterRepr::Items(items) => items.len(),
        };
        (left, Some(left))
    }
}

impl<'a, T: Decode<'a> + Copy> ExactSizeIterator for ListIter<'a, T> {}

/// A text as an element of a vector.
impl<'a> Decode<'a> for Text<'a> {
    #[inline]
    fn decode(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        reader.text("element")
    }

    /// Optimized for lists of texts with equal lengths: most long lists have names like `lock-0000000001`.
    #[inline]
    fn skip(reader: &mut Reader<'a>, count: usize) -> Result<bool, DecodeError> {
        let mut left = count - reader.skip_texts_of_equal_length(count);
        let equal_size = left == 0;
        while left > 0 {
            let one_by_one = left.min(ONE_BY_ONE);
            for _ in 0..one_by_one {
                Self::decode(reader)?;
            }
            left -= one_by_one;
            left -= reader.skip_texts_of_equal_length(left);
        }
        Ok(equal_size)
    }
}

impl Encode for Text<'_> {
    #[inline]
    fn encode(&self, out: &mut impl BufMut) {
        self.put(out);
    }
}

impl Reader<'_> {
    /// Skips up to `max` texts that have the same length as the first, and returns their number. Stops before a
    /// text that is null, incomplete or of another length.
    ///
    /// The offset of each text is computed from the first text's length, not from the length of its
    /// predecessor. The processor can therefore check several texts in parallel; a walk from length to length
    /// has to wait for each load. Two texts per step take half the time of one.
    #[inline]
    fn skip_texts_of_equal_length(&mut self, max: usize) -> usize {
        let Some(len) = self.rest.first_chunk::<LENGTH_SIZE>() else { return 0 };
        let Ok(size) = usize::try_from(i32::from_be_bytes(*len)) else { return 0 };
        let size = size.saturating_add(LENGTH_SIZE);
        // All of the rest if it is shorter than `max` texts.
        let texts = self.rest.get(..size.saturating_mul(max)).unwrap_or(self.rest);
        let has_len = |text: &[u8]| text.first_chunk() == Some(len);
        let pairs = texts
            .chunks_exact(size.saturating_mul(2))
            .take_while(|pair| has_len(pair) && pair.get(size..).is_some_and(has_len))
            .count();
        let unpaired = texts.get(2 * pairs * size..).unwrap_or_default();
        let count = 2 * pairs + usize::from(unpaired.get(..size).is_some_and(has_len));
        self.rest = self.rest.get(count * size..).unwrap_or_default();
        count
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    // Case (Failure cases, 4): inner lengths that lie.
    #[test]
    fn a_count_beyond_the_elements_is_an_error() {
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
    fn decoded_lists_and_slices_iterate_alike() {
        let items = [Text::new("a"), Text::new("b")];
        let mut out = Vec::new();
        List::from(&items).encode(&mut out);
        let wire = Reader::new(&out).list::<Text<'_>>("x").unwrap();
        for list in [wire, List::from(&items), List::from(&items[..])] {
            assert_eq!(list, wire);
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

    /// Generic code clones `Copy` types.
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
