//! The macros behind the methods that have the name and the arguments of an async one, and behind iterators.
//!
//! `docent-discovery` uses them too, so they are exported, but no part of the public API.

/// Methods that do what the async type's methods of these names do. `async fn`: one that waits, and refuses inside a
/// runtime. `fn`: one that does not wait. `new fn`, `new async fn`: a constructor, whose first argument is the client; it
/// needs `Client` and `Error` in scope, and is for types of this crate.
#[doc(hidden)]
#[macro_export]
macro_rules! forward {
    ($of:ident;) => {};
    ($of:ident; $(#[$meta:meta])* async fn $name:ident(&mut $self:ident $(, $arg:ident: $ty:ty)*) -> $out:ty; $($rest:tt)*) => {
        $(#[$meta])*
        #[doc = ""]
        #[doc = concat!(" Blocking [`", stringify!($of), "::", stringify!($name), "`](crate::", stringify!($of), "::", stringify!($name), ").")]
        pub fn $name(&mut $self $(, $arg: $ty)*) -> $out {
            $crate::blocking::internal::check()?;
            $crate::blocking::internal::wait($self.inner.$name($($arg),*))
        }
        $crate::forward!($of; $($rest)*);
    };
    ($of:ident; $(#[$meta:meta])* async fn $name:ident(&$self:ident $(, $arg:ident: $ty:ty)*) -> $out:ty; $($rest:tt)*) => {
        $(#[$meta])*
        #[doc = ""]
        #[doc = concat!(" Blocking [`", stringify!($of), "::", stringify!($name), "`](crate::", stringify!($of), "::", stringify!($name), ").")]
        pub fn $name(&$self $(, $arg: $ty)*) -> $out {
            $crate::blocking::internal::check()?;
            $crate::blocking::internal::wait($self.inner.$name($($arg),*))
        }
        $crate::forward!($of; $($rest)*);
    };
    ($of:ident; $(#[$meta:meta])* async fn $name:ident($self:ident $(, $arg:ident: $ty:ty)*) -> $out:ty; $($rest:tt)*) => {
        $(#[$meta])*
        #[doc = ""]
        #[doc = concat!(" Blocking [`", stringify!($of), "::", stringify!($name), "`](crate::", stringify!($of), "::", stringify!($name), ").")]
        pub fn $name($self $(, $arg: $ty)*) -> $out {
            $crate::blocking::internal::check()?;
            $crate::blocking::internal::wait($self.inner.$name($($arg),*))
        }
        $crate::forward!($of; $($rest)*);
    };
    ($of:ident; $(#[$meta:meta])* fn $name:ident(&mut $self:ident $(, $arg:ident: $ty:ty)*) $(-> $out:ty)?; $($rest:tt)*) => {
        $(#[$meta])*
        #[doc = ""]
        #[doc = concat!(" As [`", stringify!($of), "::", stringify!($name), "`](crate::", stringify!($of), "::", stringify!($name), ").")]
        pub fn $name(&mut $self $(, $arg: $ty)*) $(-> $out)? {
            $self.inner.$name($($arg),*)
        }
        $crate::forward!($of; $($rest)*);
    };
    ($of:ident; $(#[$meta:meta])* fn $name:ident(&$self:ident $(, $arg:ident: $ty:ty)*) $(-> $out:ty)?; $($rest:tt)*) => {
        $(#[$meta])*
        #[doc = ""]
        #[doc = concat!(" As [`", stringify!($of), "::", stringify!($name), "`](crate::", stringify!($of), "::", stringify!($name), ").")]
        pub fn $name(&$self $(, $arg: $ty)*) $(-> $out)? {
            $self.inner.$name($($arg),*)
        }
        $crate::forward!($of; $($rest)*);
    };
    ($of:ident; $(#[$meta:meta])* new async fn $name:ident($client:ident $(, $arg:ident: $ty:ty)*); $($rest:tt)*) => {
        $(#[$meta])*
        #[doc = ""]
        #[doc = concat!(" Blocking [`", stringify!($of), "::", stringify!($name), "`](crate::", stringify!($of), "::", stringify!($name), ").")]
        pub fn $name($client: &Client $(, $arg: $ty)*) -> Result<Self, Error> {
            $crate::blocking::internal::check()?;
            let inner = $crate::blocking::internal::wait($crate::$of::$name($client.async_client() $(, $arg)*))?;
            Ok(Self { inner, context: $client.context.clone() })
        }
        $crate::forward!($of; $($rest)*);
    };
    ($of:ident; $(#[$meta:meta])* new fn $name:ident($client:ident $(, $arg:ident: $ty:ty)*); $($rest:tt)*) => {
        $(#[$meta])*
        #[doc = ""]
        #[doc = concat!(" As [`", stringify!($of), "::", stringify!($name), "`](crate::", stringify!($of), "::", stringify!($name), ").")]
        pub fn $name($client: &Client $(, $arg: $ty)*) -> Result<Self, Error> {
            let inner = $crate::$of::$name($client.async_client() $(, $arg)*)?;
            Ok(Self { inner, context: $client.context.clone() })
        }
        $crate::forward!($of; $($rest)*);
    };
}

/// `Debug` as the async types have it.
#[doc(hidden)]
#[macro_export]
macro_rules! debug_as_inner {
    ($($type:ident $(<$payload:ident>)?)*) => {
        $(impl $(<$payload>)? std::fmt::Debug for $type $(<$payload>)? {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::fmt::Debug::fmt(&self.inner, f)
            }
        })*
    };
}

/// Makes an iterator of a type whose `following` is a future of an `Option<Result<$event, Error>>`. `Error` is in scope.
/// The parameters of a generic type, with their bounds, are before it: `[T: Send] Type<T>`.
#[doc(hidden)]
#[macro_export]
macro_rules! events {
    ($type:ident, $event:ty) => {
        $crate::events!([] $type, $event);
    };
    ([$($parameters:tt)*] $type:ty, $event:ty) => {
        /// Waits for each event. A call inside an async runtime is refused: its item is the error.
        impl<$($parameters)*> Iterator for $type {
            type Item = Result<$event, Error>;

            fn next(&mut self) -> Option<Self::Item> {
                if let Err(refused) = $crate::blocking::internal::check() {
                    return Some(Err(refused));
                }
                $crate::blocking::internal::wait(self.following())
            }
        }

        impl<$($parameters)*> $crate::blocking::internal::Sealed for $type {
            fn next_within(&mut self, wait: std::time::Duration) -> Option<Option<Self::Item>> {
                if let Err(refused) = $crate::blocking::internal::check() {
                    return Some(Some(Err(refused)));
                }
                let context = self.context.clone();
                context.wait_timeout(wait, self.following())
            }

            fn failed(error: Error) -> Self::Item {
                Err(error)
            }
        }

        impl<$($parameters)*> $crate::blocking::Events for $type {}
    };
}
