//! The fields of records: each type with its form on the wire.

use bytes::BufMut;

use super::{Decode, Encode, List, Reader};
use crate::{DecodeError, Stat, Text};

/// The type of a record's field.
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

    #[inline]
    fn put(&self, out: &mut impl BufMut) {
        match self {
            // A buffer of 2 GiB or more exceeds every frame limit, so its length field is never sent.
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

    #[inline]
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

/// Size of a [`Stat`], in bytes.
const STAT_SIZE: usize = 68;

impl<'a> Field<'a> for Stat {
    /// Checks the length once for all eleven fields. If it is too short, decodes field by field, so that the
    /// error names the field.
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

/// Implements [`Field`] for records and open enums.
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
            #[inline(always)] // 64 more instructions a getData without `unlock`, `prefix`, `Field::take`.
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
    use alloc::vec::Vec;

    use super::*;

    /// Despite the single length check, the error names the field, as for any record.
    #[test]
    fn the_error_of_a_truncated_stat_names_the_field() {
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
}
