//! The names of a node's children, stored as the bytes of their reply.

use std::{fmt, iter::FusedIterator};

use bytes::{Bytes, BytesMut};
use docent_protocol::{
    Decode, DecodeError, Encode as _, List, Text, frame::LENGTH_SIZE, jute::Reader,
    reply::GetChildrenReply,
};

/// The names of a node's children, in no order.
///
/// The names stay in the memory of their reply: a list of ten thousand names uses one buffer, and iterating over a
/// reference allocates nothing.
///
/// In a name that is not valid UTF-8, each surrogate pair is replaced by its character, and every other invalid
/// sequence by U+FFFD; see [`Text::to_str`](docent_protocol::Text::to_str). The path of such a name is not the path of
/// the child.
///
/// # Example
///
/// ```
/// # use docent_session::Client;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = docent_testing::TestingServer::start().await?;
/// # let client = Client::connect(&server.connect_string()).await?;
/// let children = client.get_children("/").await?;
/// for name in &children {
///     println!("/{name}");
/// }
/// assert!(children.contains("zookeeper"));
/// assert_eq!(children.sorted(), ["zookeeper"]);
/// let owned: Vec<String> = children.into_iter().collect();
/// # assert_eq!(owned, ["zookeeper"]);
/// # client.close().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
pub struct Children {
    /// A [`GetChildrenReply`] that was decoded once without an error, without the bytes after it. Each name in it is
    /// valid UTF-8.
    body: Bytes,
    len: usize,
    /// The size of each name with its length field, in bytes, when all names have the same size.
    name_size: Option<usize>,
}

impl Children {
    /// Reads the names at the front of `reader`; `keep` takes ownership of their bytes.
    pub(crate) fn read(
        reader: &mut Reader<'_>,
        keep: impl FnOnce(&[u8]) -> Bytes,
    ) -> Result<Self, DecodeError> {
        let start = reader.rest();
        let names = GetChildrenReply::decode(reader)?.children;
        let list = start.get(..start.len() - reader.rest().len()).unwrap_or_default();
        if is_text(list, &names) {
            Ok(Self { body: keep(list), len: names.len(), name_size: names.element_size() })
        } else {
            Ok(Self::replaced(&names))
        }
    }

    /// The names with invalid UTF-8 replaced, in a separate buffer.
    #[cold]
    fn replaced(names: &List<'_, Text<'_>>) -> Self {
        let names: Vec<_> = names.iter().map(Text::to_str).collect();
        let texts: Vec<_> = names.iter().map(|name| Text::new(name)).collect();
        let mut body = BytesMut::new();
        GetChildrenReply { children: List::new(&texts) }.encode(&mut body);
        Self { body: body.freeze(), len: names.len(), name_size: None }
    }

    /// The number of children.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no children.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether a child has this name. Compares with each name.
    #[must_use]
    pub fn contains(&self, name: &str) -> bool {
        self.iter().any(|child| child == name)
    }

    /// The names, borrowed.
    pub fn iter(&self) -> Iter<'_> {
        let names = self.body.get(LENGTH_SIZE..).unwrap_or_default();
        // Validated all at once: the length fields between short names are valid UTF-8 too, and validating each name
        // separately costs five times as much.
        let (text, rest) = match std::str::from_utf8(names) {
            Ok(text) => (text, &[][..]),
            Err(_) => ("", names),
        };
        Iter { text, rest, len: self.len, name_size: self.name_size }
    }

    /// The names, in the order of their bytes.
    #[must_use]
    pub fn sorted(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.iter().collect();
        names.sort_unstable();
        names
    }

    /// The names as owned strings.
    #[must_use]
    pub fn to_vec(&self) -> Vec<String> {
        self.iter().map(str::to_owned).collect()
    }
}

/// Whether each name is valid UTF-8.
#[inline]
fn is_text(list: &[u8], names: &List<'_, Text<'_>>) -> bool {
    // The length fields between short names are ASCII too.
    list.is_ascii() || names.iter().all(|name| std::str::from_utf8(name.as_bytes()).is_ok())
}

impl<'a> IntoIterator for &'a Children {
    type Item = &'a str;
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

/// Copies each name into a `String`. Iterating over `&Children` copies nothing.
impl IntoIterator for Children {
    type Item = String;
    type IntoIter = IntoIter;

    fn into_iter(self) -> IntoIter {
        IntoIter { start: LENGTH_SIZE, children: self }
    }
}

/// The names of [`Children`], borrowed.
#[derive(Clone)]
pub struct Iter<'a> {
    /// The remaining names, each after its length field, if they are valid UTF-8 with their length fields.
    text: &'a str,
    /// Otherwise, the remaining names as bytes, and `text` is empty. The length field of a name of more than 127 bytes
    /// is not UTF-8.
    rest: &'a [u8],
    len: usize,
    name_size: Option<usize>,
}

impl<'a> Iterator for Iter<'a> {
    type Item = &'a str;

    #[inline]
    fn next(&mut self) -> Option<&'a str> {
        self.len = self.len.checked_sub(1)?;
        let split = match self.name_size {
            Some(size) => first_of_size(self.text, size),
            None => self.text.split_at_checked(LENGTH_SIZE).and_then(|(len, tail)| {
                let len = len.as_bytes().first_chunk()?;
                tail.split_at_checked(usize::try_from(u32::from_be_bytes(*len)).ok()?)
            }),
        };
        Some(match split {
            Some((name, tail)) => {
                self.text = tail;
                name
            }
            None => {
                let (name, rest) = first_of_bytes(self.rest);
                self.rest = rest;
                name
            }
        })
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.len, Some(self.len))
    }

    /// Without counting, and with the knowledge that more bytes follow, a name costs two thirds of a `next`. The last
    /// name, and names of different sizes, are left to `next`.
    #[inline]
    fn fold<B, F: FnMut(B, Self::Item) -> B>(mut self, init: B, mut f: F) -> B {
        let mut folded = init;
        if let Some(size) = self.name_size {
            let before = self.text.len();
            while size < self.text.len()
                && let Some((name, tail)) = first_of_size(self.text, size)
            {
                self.text = tail;
                folded = f(folded, name);
            }
            let taken = (before - self.text.len()).checked_div(size).unwrap_or(0);
            self.len = self.len.saturating_sub(taken);
        }
        for name in self {
            folded = f(folded, name);
        }
        folded
    }
}

impl ExactSizeIterator for Iter<'_> {}

impl FusedIterator for Iter<'_> {}

/// The remaining names.
impl fmt::Debug for Iter<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.clone()).finish()
    }
}

/// The name at the front, where `size` is its size with its length field in bytes, and the rest. The start of the rest
/// does not depend on reading a length.
#[inline]
fn first_of_size(text: &str, size: usize) -> Option<(&str, &str)> {
    let (name, tail) = text.split_at_checked(size)?;
    Some((name.get(LENGTH_SIZE..)?, tail))
}

/// The name at the front, and the rest. A null name is empty.
#[cold]
#[inline(never)]
fn first_of_bytes(names: &[u8]) -> (&str, &[u8]) {
    let mut reader = Reader::new(names);
    // The list was decoded once without an error, and each name is valid UTF-8.
    let name = reader.text("child").unwrap_or_default();
    (std::str::from_utf8(name.as_bytes()).unwrap_or_default(), reader.rest())
}

/// The names of [`Children`], owned.
#[derive(Clone)]
pub struct IntoIter {
    /// The children; `len` is the number of remaining ones.
    children: Children,
    /// The start of the remaining names in the body, in bytes.
    start: usize,
}

impl Iterator for IntoIter {
    type Item = String;

    fn next(&mut self) -> Option<String> {
        self.children.len = self.children.len.checked_sub(1)?;
        let names = self.children.body.get(self.start..).unwrap_or_default();
        let (name, rest) = first_of_bytes(names);
        self.start += names.len() - rest.len();
        Some(name.to_owned())
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.children.len, Some(self.children.len))
    }
}

impl ExactSizeIterator for IntoIter {}

impl FusedIterator for IntoIter {}

/// The remaining names.
impl fmt::Debug for IntoIter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.clone()).finish()
    }
}

impl fmt::Debug for Children {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self).finish()
    }
}

#[cfg(test)]
mod tests {
    use docent_protocol::Text;
    use proptest::{collection::vec, option, prelude::*};

    use super::*;

    fn children(names: &[Option<&[u8]>]) -> Children {
        let mut body = u32::try_from(names.len()).unwrap().to_be_bytes().to_vec();
        for name in names {
            let len = name.map_or(-1, |name| i32::try_from(name.len()).unwrap());
            body.extend(len.to_be_bytes());
            body.extend(name.unwrap_or_default());
        }
        // Bytes after the list.
        body.extend(b"stat");
        let body = Bytes::from(body);
        let mut reader = Reader::new(&body);
        let children = Children::read(&mut reader, |list| body.slice_ref(list)).unwrap();
        assert_eq!(reader.rest(), b"stat");
        children
    }

    #[test]
    fn names_come_out_as_they_went_in_whatever_they_are() {
        let long = "x".repeat(300);
        for names in [
            &[][..],
            &[Some("")],
            &[Some("a"), Some(""), Some("straße"), Some("日本"), Some("lock-0000000001")],
            // The length field of a name over 127 bytes is not ASCII; that of a name of ten bytes is a line feed.
            &[Some("a"), Some(&long), Some("b")],
            &[Some("ten bytes."), Some("b")],
            &[Some("a"), None, Some("b")],
        ] {
            let bytes: Vec<_> = names.iter().map(|name| name.map(str::as_bytes)).collect();
            let children = children(&bytes);
            let expected: Vec<_> = names.iter().map(|name| name.unwrap_or_default()).collect();
            assert_eq!(children.to_vec(), expected);
            assert_eq!((children.len(), children.iter().len()), (names.len(), names.len()));
            assert_eq!(children.is_empty(), names.is_empty());
        }
    }

    #[test]
    fn names_are_found_and_sorted() {
        let children = children(&[Some(b"b"), Some(b"a10"), Some(b"a"), None]);
        assert_eq!(children.sorted(), ["", "a", "a10", "b"]);
        assert!(children.contains("a10") && !children.contains("a1"));
        assert!(!Children::default().contains(""));
        let mut seen = Vec::new();
        for name in &children {
            seen.push(name);
        }
        assert_eq!(seen, ["b", "a10", "a", ""]);
    }

    /// Names that are text are not copied: iterating over a reference borrows from the buffer of the reply.
    #[test]
    fn names_are_borrowed_from_the_reply() {
        let long = "x".repeat(300);
        for names in [&["lock-1", "lock-2"][..], &["straße", &long]] {
            let mut body = BytesMut::new();
            let texts: Vec<_> = names.iter().map(|name| Text::new(name)).collect();
            GetChildrenReply { children: List::new(&texts) }.encode(&mut body);
            let body = body.freeze();
            let children =
                Children::read(&mut Reader::new(&body), |list| body.slice_ref(list)).unwrap();
            for name in &children {
                assert!(body.as_ptr_range().contains(&name.as_ptr()), "{name}");
            }
            assert_eq!(children.iter().collect::<Vec<_>>(), names);
        }
    }

    #[test]
    fn a_name_that_is_no_text_is_replaced_and_the_others_are_not() {
        let names =
            children(&[Some(b"a"), Some(b"\xED\xA0\x80"), Some(b"\xFF"), Some("ß".as_bytes())]);
        let names = names.to_vec();
        assert_eq!((&*names[0], &*names[3]), ("a", "ß"));
        assert!(names[1].contains('\u{FFFD}') && names[2].contains('\u{FFFD}'), "{names:?}");
    }

    /// The last byte of a length field and the first of its name may form a character. Then the whole list is valid
    /// UTF-8, and the name is not.
    // Case (Found in docent itself): a name of 195 to 244 bytes that made a character with its
    // length lost all the names behind it.
    #[test]
    fn a_character_that_begins_in_a_length_is_none() {
        let odd = [b"\xA9".to_vec(), vec![b'x'; 0xC2]].concat();
        let mended = format!("\u{FFFD}{}", "x".repeat(0xC2));
        let names = children(&[Some(b"a"), Some(&odd), Some(b"b")]);
        assert_eq!(names.to_vec(), ["a", &mended, "b"]);
        let names = children(&[Some(&odd), Some(&odd)]);
        assert_eq!(names.to_vec(), [&*mended, &mended]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(500))]

        /// Equal sizes or not, valid UTF-8 or not: the names are the same as when each is decoded separately.
        #[test]
        fn names_are_what_each_is_by_itself(
            lengths in prop_oneof![vec(0..20_usize, 0..40), (0..200_usize, 0..40_usize).prop_map(|(len, count)| vec![len; count])],
            bytes in prop_oneof![Just("lock-0000000001"), Just("straße/日本語")],
            odd in option::weighted(0.3, (0..40_usize, option::of(vec(any::<u8>(), 0..20)))),
        ) {
            let mut names: Vec<_> = lengths
                .iter()
                .map(|len| Some(bytes.bytes().cycle().take(*len).collect::<Vec<u8>>()))
                .collect();
            if let Some((at, odd)) = odd
                && let Some(name) = names.get_mut(at)
            {
                *name = odd;
            }
            let names: Vec<_> = names.iter().map(Option::as_deref).collect();
            let children = children(&names);
            let expected: Vec<_> = names.iter().map(|name| Text::from_bytes(*name).to_str()).collect();
            let expected: Vec<&str> = expected.iter().map(AsRef::as_ref).collect();
            prop_assert_eq!(children.iter().collect::<Vec<_>>(), &*expected);
            prop_assert_eq!(children.clone().into_iter().collect::<Vec<_>>(), &*expected);
            prop_assert!(expected.iter().all(|name| children.contains(name)));
            let folded = |from: usize| {
                children.iter().skip(from).fold(Vec::new(), |names, name| [names, Vec::from([name])].concat())
            };
            prop_assert_eq!(folded(0), &*expected);
            prop_assert_eq!(folded(1), expected.iter().skip(1).copied().collect::<Vec<_>>());
            let (mut left, mut owned) = (children.iter(), children.clone().into_iter());
            for (index, name) in expected.iter().enumerate() {
                prop_assert_eq!((left.len(), owned.len()), (expected.len() - index, expected.len() - index));
                prop_assert_eq!((left.next(), owned.next()), (Some(*name), Some((*name).to_owned())));
            }
            prop_assert_eq!((left.next(), left.len()), (None, 0));
            prop_assert_eq!((owned.next(), owned.len()), (None, 0));
        }
    }
}
