//! multi and multiRead: several operations in one frame.
//!
//! Request and reply are sequences of a [`MultiHeader`] and a record each. A header with `done` set ends the
//! sequence. An error result and the ending header both have the type -1, so `done` is checked first.
//!
//! A failed multi has no error in its *reply* header. None of its operations was applied, and each result is an
//! error: `Ok` for the operations before the failing one, its code for the failing one, and
//! `RuntimeInconsistency` for those after it.
//!
//! A result names its own type, which is not always that of the operation: servers up to 3.8.1 reply to a
//! create2 with the result of a plain create (ZOOKEEPER-4026).
//!
//! Source: `MultiOperationRecord`, `MultiResponse`.

use alloc::vec::Vec;
use core::{fmt, marker::PhantomData};

use bytes::BufMut;

use crate::{
    DecodeError, DecodeErrorKind, ErrorCode, OpCode,
    fields::{self, Record},
    jute::{Decode, Encode, Reader},
    macros::record,
    reply::{
        Create2Reply, ErrorReply, GetChildrenReply, GetDataReply, PathReply, Reply, StatReply,
    },
    request::{
        CheckVersionRequest, CreateRequest, CreateTtlRequest, DeleteRequest, ReadRequest, Request,
        SetDataRequest,
    },
};

record! {
    /// Precedes each operation and each result. 9 bytes.
    pub struct MultiHeader {
        /// The type of the record that follows; -1 for an error and at the end of the sequence.
        pub op: OpCode = "type",
        /// Whether this header ends the sequence.
        pub done: bool = "done",
        /// The error of a result; -1 in requests.
        pub err: ErrorCode = "err",
    }
}

/// The type of an error result and of the header that ends a sequence.
const ERROR_TYPE: OpCode = OpCode::Unknown(-1);

/// The `err` of requests' headers and of the header that ends a sequence: -1, without a meaning.
const UNSET_ERROR: ErrorCode = ErrorCode::SystemError;

/// The header that ends a sequence.
const DONE: MultiHeader = MultiHeader { op: ERROR_TYPE, done: true, err: UNSET_ERROR };

/// One operation of a multi or multiRead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each variant is the operation of its name, with its record")]
pub enum MultiOp<'a> {
    Create(CreateRequest<'a>),
    Delete(DeleteRequest<'a>),
    SetData(SetDataRequest<'a>),
    Check(CheckVersionRequest<'a>),
    Create2(CreateRequest<'a>),
    CreateContainer(CreateRequest<'a>),
    CreateTtl(CreateTtlRequest<'a>),
    /// Only in a multiRead; the watch flag has no effect.
    GetData(ReadRequest<'a>),
    /// Only in a multiRead; the watch flag has no effect.
    GetChildren(ReadRequest<'a>),
}

impl<'a> MultiOp<'a> {
    /// The operation.
    #[must_use]
    pub const fn op_code(&self) -> OpCode {
        self.request().op_code()
    }

    /// The request with the same operation and record.
    #[must_use]
    pub const fn request(&self) -> Request<'a> {
        match *self {
            Self::Create(record) => Request::Create(record),
            Self::Delete(record) => Request::Delete(record),
            Self::SetData(record) => Request::SetData(record),
            Self::Check(record) => Request::Check(record),
            Self::Create2(record) => Request::Create2(record),
            Self::CreateContainer(record) => Request::CreateContainer(record),
            Self::CreateTtl(record) => Request::CreateTtl(record),
            Self::GetData(record) => Request::GetData(record),
            Self::GetChildren(record) => Request::GetChildren(record),
        }
    }
}

impl Encode for MultiOp<'_> {
    fn encode(&self, out: &mut impl BufMut) {
        MultiHeader { op: self.op_code(), done: false, err: UNSET_ERROR }.encode(out);
        self.request().encode(out);
    }
}

impl<'a> Item<'a> for MultiOp<'a> {
    fn decode_body(header: MultiHeader, reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Ok(match header.op {
            OpCode::Create => Self::Create(Decode::decode(reader)?),
            OpCode::Delete => Self::Delete(Decode::decode(reader)?),
            OpCode::SetData => Self::SetData(Decode::decode(reader)?),
            OpCode::Check => Self::Check(Decode::decode(reader)?),
            OpCode::Create2 => Self::Create2(Decode::decode(reader)?),
            OpCode::CreateContainer => Self::CreateContainer(Decode::decode(reader)?),
            OpCode::CreateTtl => Self::CreateTtl(Decode::decode(reader)?),
            OpCode::GetData => Self::GetData(Decode::decode(reader)?),
            OpCode::GetChildren => Self::GetChildren(Decode::decode(reader)?),
            other => return Err(unknown_type(other, reader)),
        })
    }
}

/// One result of a multi or multiRead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each variant is the result of the operation of its name")]
pub enum MultiResult<'a> {
    Create(PathReply<'a>),
    Delete,
    SetData(StatReply),
    Check,
    /// The result of create2, createContainer and createTTL.
    Create2(Create2Reply<'a>),
    GetData(GetDataReply<'a>),
    GetChildren(GetChildrenReply<'a>),
    /// In a multi: no operation was applied, whatever the code. In a multiRead: this read failed.
    Error(ErrorCode),
}

impl<'a> MultiResult<'a> {
    /// The operation that has this result, and the reply with the same record; the error of one that failed.
    ///
    /// # Errors
    ///
    /// The code of [`Error`](Self::Error), which may be `Ok`: of an operation before the one that failed.
    pub const fn reply(&self) -> Result<(OpCode, Reply<'a>), ErrorCode> {
        Ok(match *self {
            Self::Create(record) => (OpCode::Create, Reply::Path(record)),
            Self::Delete => (OpCode::Delete, Reply::Empty),
            Self::SetData(record) => (OpCode::SetData, Reply::Stat(record)),
            Self::Check => (OpCode::Check, Reply::Empty),
            Self::Create2(record) => (OpCode::Create2, Reply::Create2(record)),
            Self::GetData(record) => (OpCode::GetData, Reply::GetData(record)),
            Self::GetChildren(record) => (OpCode::GetChildren, Reply::GetChildren(record)),
            Self::Error(err) => return Err(err),
        })
    }
}

impl Encode for MultiResult<'_> {
    fn encode(&self, out: &mut impl BufMut) {
        let (op, err, record) = match self.reply() {
            Ok((op, record)) => (op, ErrorCode::Ok, record),
            Err(err) => (ERROR_TYPE, err, Reply::Error(ErrorReply { err })),
        };
        MultiHeader { op, done: false, err }.encode(out);
        record.encode(out);
    }
}

impl<'a> Item<'a> for MultiResult<'a> {
    fn decode_body(header: MultiHeader, reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let offset = reader.offset();
        let result = match header.op {
            // Sent by ClickHouse Keeper, without a record.
            OpCode::GetData | OpCode::GetChildren if header.err != ErrorCode::Ok => {
                return Ok(Self::Error(header.err));
            }
            OpCode::Create => Self::Create(Decode::decode(reader)?),
            OpCode::Delete => Self::Delete,
            OpCode::SetData => Self::SetData(Decode::decode(reader)?),
            OpCode::Check => Self::Check,
            OpCode::Create2 => Self::Create2(Decode::decode(reader)?),
            OpCode::GetData => Self::GetData(Decode::decode(reader)?),
            OpCode::GetChildren => Self::GetChildren(Decode::decode(reader)?),
            ERROR_TYPE => Self::Error(ErrorReply::decode(reader)?.err),
            other => return Err(unknown_type(other, reader)),
        };
        if header.err != ErrorCode::Ok && !matches!(result, Self::Error(_)) {
            let kind = DecodeErrorKind::InvalidValue(header.err.number());
            return Err(DecodeError::new(kind, "err", offset));
        }
        Ok(result)
    }
}

fn unknown_type(op: OpCode, reader: &Reader<'_>) -> DecodeError {
    DecodeError::new(DecodeErrorKind::InvalidValue(op.number()), "type", reader.offset())
}

/// An element of a [`Sequence`]: an operation or a result.
pub trait Item<'a>: Encode + Copy {
    /// Decodes the record after a header that does not end the sequence.
    ///
    /// # Errors
    ///
    /// If the header's type is unknown or the bytes are not its record.
    fn decode_body(header: MultiHeader, reader: &mut Reader<'a>) -> Result<Self, DecodeError>;
}

/// The body of a multi or multiRead request.
pub type MultiRequest<'a> = Sequence<'a, MultiOp<'a>>;

/// The body of the reply to a multi or multiRead.
pub type MultiReply<'a> = Sequence<'a, MultiResult<'a>>;

/// Operations or results: on the wire, decoded on iteration, or a slice to be encoded.
pub struct Sequence<'a, T>(Repr<'a, T>);

enum Repr<'a, T> {
    /// Headers and records without the header that ends the sequence, checked by decoding them once.
    Wire {
        body: &'a [u8],
        item: PhantomData<fn() -> T>,
    },
    Items(&'a [T]),
}

impl<'a, T> Sequence<'a, T> {
    /// A sequence of these items.
    #[must_use]
    pub const fn new(items: &'a [T]) -> Self {
        Self(Repr::Items(items))
    }

    /// The operations or results, in order.
    #[must_use]
    pub fn iter(&self) -> SequenceIter<'a, T> {
        SequenceIter(match self.0 {
            Repr::Wire { body, .. } => IterRepr::Wire(Reader::new(body)),
            Repr::Items(items) => IterRepr::Items(items.iter()),
        })
    }
}

/// Of a list of records, not one.
impl<T> Record for Sequence<'_, T> {
    fn fields(&self) -> Vec<fields::Field<'_>> {
        Vec::new()
    }
}

impl<'a, T: Item<'a>> Decode<'a> for Sequence<'a, T> {
    fn decode(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let start = reader.rest();
        loop {
            let body = start.get(..start.len() - reader.rest().len()).unwrap_or_default();
            let header = MultiHeader::decode(reader)?;
            if header.done {
                return Ok(Self(Repr::Wire { body, item: PhantomData }));
            }
            T::decode_body(header, reader)?;
        }
    }
}

impl<'a, T: Item<'a>> Encode for Sequence<'a, T> {
    fn encode(&self, out: &mut impl BufMut) {
        for item in self.iter() {
            item.encode(out);
        }
        DONE.encode(out);
    }
}

impl<T> Clone for Sequence<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Sequence<'_, T> {}

impl<T> Clone for Repr<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Repr<'_, T> {}

impl<'a, T: Item<'a> + PartialEq> PartialEq for Sequence<'a, T> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl<'a, T: Item<'a> + Eq> Eq for Sequence<'a, T> {}

impl<'a, T: Item<'a> + fmt::Debug> fmt::Debug for Sequence<'a, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<'a, T: Item<'a>> IntoIterator for Sequence<'a, T> {
    type Item = T;
    type IntoIter = SequenceIter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// The elements of a [`Sequence`], in order.
#[derive(Debug, Clone)]
pub struct SequenceIter<'a, T>(IterRepr<'a, T>);

#[derive(Debug, Clone)]
enum IterRepr<'a, T> {
    Wire(Reader<'a>),
    Items(core::slice::Iter<'a, T>),
}

impl<'a, T: Item<'a>> Iterator for SequenceIter<'a, T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        match &mut self.0 {
            IterRepr::Wire(reader) => {
                // `body` excludes the header that ends the sequence, so its end is the end of the items.
                let header = MultiHeader::decode(reader).ok()?;
                T::decode_body(header, reader).ok()
            }
            IterRepr::Items(items) => items.next().copied(),
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::format;

    use super::*;

    fn delete(path: &str) -> MultiOp<'_> {
        MultiOp::Delete(DeleteRequest { path: path.into(), version: -1 })
    }

    /// Both have type -1; only `done` distinguishes them.
    // Case (Pitfalls of the wire, 1): the end of a multi has the type of an error.
    #[test]
    fn an_error_result_does_not_end_the_sequence() {
        let results = [MultiResult::Error(ErrorCode::NoNode), MultiResult::Delete];
        let mut out = Vec::new();
        MultiReply::new(&results).encode(&mut out);
        let mut reader = Reader::new(&out);
        let reply = MultiReply::decode(&mut reader).unwrap();
        assert!(reader.is_empty());
        assert_eq!(reply.iter().collect::<Vec<_>>(), results);
    }

    /// `ZooKeeperMultiResponse::writeImpl` of ClickHouse: the type of the read, the error in the header, and no record.
    #[test]
    fn a_read_that_failed_on_a_keeper_has_its_error_in_the_header() {
        let mut out = Vec::new();
        for op in [OpCode::GetData, OpCode::GetChildren] {
            MultiHeader { op, done: false, err: ErrorCode::NoNode }.encode(&mut out);
        }
        let read = GetChildrenReply { children: [][..].into() };
        MultiResult::GetChildren(read).encode(&mut out);
        DONE.encode(&mut out);
        let reply = MultiReply::decode(&mut Reader::new(&out)).unwrap();
        let error = MultiResult::Error(ErrorCode::NoNode);
        assert_eq!(
            reply.iter().collect::<Vec<_>>(),
            [error, error, MultiResult::GetChildren(read)]
        );
    }

    /// Of a write, servers set it in the header of an error result only.
    // Case (Found in docent itself): a success in the reply to a transaction was taken for one
    // although its header had an error, and the reply to a create was taken with the path of any
    // node.
    #[test]
    fn a_successful_result_with_an_error_in_its_header_is_refused() {
        let mut out = Vec::new();
        for (op, is_valid) in [(OpCode::Delete, false), (OpCode::Check, false), (ERROR_TYPE, true)]
        {
            out.clear();
            MultiHeader { op, done: false, err: ErrorCode::NoNode }.encode(&mut out);
            if is_valid {
                ErrorReply { err: ErrorCode::NoNode }.encode(&mut out);
            }
            DONE.encode(&mut out);
            assert_eq!(MultiReply::decode(&mut Reader::new(&out)).is_ok(), is_valid, "{op:?}");
        }
    }

    #[test]
    fn bytes_after_the_end_stay_in_the_reader() {
        let mut out = Vec::new();
        MultiRequest::new(&[]).encode(&mut out);
        assert_eq!(out, [0xFF, 0xFF, 0xFF, 0xFF, 1, 0xFF, 0xFF, 0xFF, 0xFF]);
        out.push(7);
        let mut reader = Reader::new(&out);
        let request = MultiRequest::decode(&mut reader).unwrap();
        assert_eq!((request.iter().count(), reader.rest()), (0, &[7][..]));
    }

    #[test]
    fn an_operation_not_allowed_in_a_multi_is_an_error_with_its_offset() {
        let mut out = Vec::new();
        delete("/a").encode(&mut out);
        let offset = out.len() + 9;
        MultiHeader { op: OpCode::SetAcl, done: false, err: UNSET_ERROR }.encode(&mut out);
        let error = MultiRequest::decode(&mut Reader::new(&out)).unwrap_err();
        assert_eq!((error.kind(), error.offset()), (DecodeErrorKind::InvalidValue(7), offset));
        let error = MultiReply::decode(&mut Reader::new(&out[offset - 9..])).unwrap_err();
        assert_eq!((error.kind(), error.field()), (DecodeErrorKind::InvalidValue(7), "type"));
    }

    #[test]
    fn a_decoded_sequence_equals_the_encoded_slice() {
        let ops = [delete("/a"), delete("/b")];
        let mut out = Vec::new();
        MultiRequest::new(&ops).encode(&mut out);
        let wire = MultiRequest::decode(&mut Reader::new(&out)).unwrap();
        let slice = MultiRequest::new(&ops);
        assert_eq!(wire, slice);
        assert_eq!(format!("{wire:?}"), format!("{slice:?}"));
        assert!(format!("{wire:?}").starts_with("[Delete(DeleteRequest { path: \"/a\""));
        assert_ne!(wire, MultiRequest::new(&ops[..1]));
        for sequence in [wire, slice] {
            let mut items = sequence.into_iter();
            assert_eq!(items.next(), Some(ops[0]));
            assert_eq!(items.clone().count(), 1);
            assert_eq!((items.next(), items.next()), (Some(ops[1]), None));
        }
    }

    /// A create2 may have the result of a create (ZOOKEEPER-4026).
    // Case (Pitfalls of the wire, 2): a multi's result is not of its request's type.
    #[test]
    fn a_result_has_its_own_type() {
        let results = [
            MultiResult::Create(PathReply { path: "/a".into() }),
            MultiResult::Create2(Create2Reply { path: "/a".into(), stat: crate::Stat::default() }),
            MultiResult::Check,
        ];
        let mut out = Vec::new();
        MultiReply::new(&results).encode(&mut out);
        let reply = MultiReply::decode(&mut Reader::new(&out)).unwrap();
        assert!(reply.iter().eq(results));
    }

    /// Generic code clones `Copy` types.
    #[test]
    fn clones_are_copies() {
        fn cloned<T: Clone>(value: &T) -> T {
            value.clone()
        }
        let ops = [delete("/a")];
        assert_eq!(cloned(&MultiRequest::new(&ops)), MultiRequest::new(&ops));
        assert!(matches!(cloned(&MultiRequest::new(&ops).0), Repr::Items([_])));
    }
}
