//! Macros that declare open enums and wire records.

/// Declares an open enum over `i32`: its last variant, `Unknown`, keeps every number without a name.
macro_rules! open_enum {
    (
        $(#[$meta:meta])*
        pub enum $name:ident {
            $($(#[$variant_meta:meta])* $variant:ident = $number:literal => $text:literal,)+
        }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum $name {
            $($(#[$variant_meta])* $variant,)+
            /// A number without a name, as on the wire.
            Unknown(i32),
        }

        impl $name {
            /// All values with a name, in declaration order.
            pub const NAMED: &'static [Self] = &[$(Self::$variant),+];

            /// ZooKeeper's name of the value; `None` for a number without one.
            #[must_use]
            pub const fn name(self) -> Option<&'static str> {
                match self {
                    $(Self::$variant => Some($text),)+
                    Self::Unknown(_) => None,
                }
            }

            /// The number on the wire.
            #[must_use]
            #[inline]
            pub const fn number(self) -> i32 {
                match self {
                    $(Self::$variant => $number,)+
                    Self::Unknown(number) => number,
                }
            }

            /// The value of a number on the wire.
            #[must_use]
            #[inline]
            pub const fn from_number(number: i32) -> Self {
                // Nearly all error codes are the first value, `Ok`; it costs no function call.
                if number == Self::FIRST.number() { Self::FIRST } else { Self::look_up(number) }
            }

            const FIRST: Self = match Self::NAMED {
                [first, ..] => *first,
                [] => Self::Unknown(0),
            };

            const fn look_up(number: i32) -> Self {
                match number {
                    $($number => Self::$variant,)+
                    other => Self::Unknown(other),
                }
            }
        }

        impl From<i32> for $name {
            #[inline]
            fn from(number: i32) -> Self {
                Self::from_number(number)
            }
        }

        impl From<$name> for i32 {
            #[inline]
            fn from(value: $name) -> Self {
                value.number()
            }
        }

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                match self.name() {
                    Some(name) => f.write_str(name),
                    None => write!(f, "unknown({})", self.number()),
                }
            }
        }
    };
}

/// Declares a wire record: a struct whose fields are encoded and decoded in order.
///
/// A field marked `secret` in front of its jute name is redacted: `Debug` and the serialized form show only its
/// size.
macro_rules! record {
    (
        $(#[$meta:meta])*
        pub struct $name:ident $(<$life:lifetime>)? {
            $($(#[$field_meta:meta])* pub $field:ident: $ty:ty = $($secret:ident)? $jute:literal,)*
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq)]
        pub struct $name $(<$life>)? {
            $($(#[$field_meta])* pub $field: $ty,)*
        }

        impl $(<$life>)? $crate::jute::Encode for $name $(<$life>)? {
            #[inline(always)] // 22 more instructions a getData without the four of encoding.
            fn encode(&self, _out: &mut impl bytes::BufMut) {
                $($crate::jute::Field::put(&self.$field, _out);)*
            }
        }

        impl $(<$life>)? core::fmt::Debug for $name $(<$life>)? {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.debug_struct(stringify!($name))
                    $(.field(stringify!($field), record!(@redact $($secret)? self.$field)))*
                    .finish()
            }
        }

        impl $(<$life>)? $crate::fields::Record for $name $(<$life>)? {
            fn fields(&self) -> alloc::vec::Vec<$crate::fields::Field<'_>> {
                alloc::vec![$(($jute, (*record!(@redact $($secret)? self.$field)).into())),*]
            }
        }

        #[cfg(feature = "serde")]
        impl $(<$life>)? ::serde::Serialize for $name $(<$life>)? {
            fn serialize<S: ::serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                $crate::serde::object(serializer, &$crate::fields::Record::fields(self))
            }
        }

        record!(@decode $name $(<$life>)? { $($field: $ty = $jute,)* });
    };
    (@redact secret $field:expr) => { &$crate::fields::Secret($field) };
    (@redact $field:expr) => { &$field };
    (@decode $name:ident <$life:lifetime> { $($field:ident: $ty:ty = $jute:literal,)* }) => {
        impl<$life> $crate::jute::Decode<$life> for $name<$life> {
            #[inline]
            fn decode(
                reader: &mut $crate::jute::Reader<$life>,
            ) -> Result<Self, $crate::DecodeError> {
                Ok(Self { $($field: $crate::jute::Field::take(reader, $jute)?,)* })
            }
        }
    };
    (@decode $name:ident { $($field:ident: $ty:ty = $jute:literal,)* }) => {
        impl<'a> $crate::jute::Decode<'a> for $name {
            #[inline]
            fn decode(
                _reader: &mut $crate::jute::Reader<'a>,
            ) -> Result<Self, $crate::DecodeError> {
                Ok(Self { $($field: $crate::jute::Field::take(_reader, $jute)?,)* })
            }
        }
    };
}

pub(crate) use {open_enum, record};
