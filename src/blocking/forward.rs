//! The macros behind the methods that have the name and the arguments of an async one.

/// Methods that do what the async type's methods of these names do. `async fn`: one that waits, and refuses inside a
/// runtime. `fn`: one that does not wait. `new fn`, `new async fn`: a constructor, whose first argument is the client; it
/// needs `Client` and `Error` in scope.
macro_rules! forward {
    ($of:ident;) => {};
    ($of:ident; $(#[$meta:meta])* async fn $name:ident(&mut $self:ident $(, $arg:ident: $ty:ty)*) -> $out:ty; $($rest:tt)*) => {
        $(#[$meta])*
        #[doc = ""]
        #[doc = concat!(" Blocking [`", stringify!($of), "::", stringify!($name), "`](crate::", stringify!($of), "::", stringify!($name), ").")]
        pub fn $name(&mut $self $(, $arg: $ty)*) -> $out {
            $crate::blocking::wait::check()?;
            $crate::blocking::wait::wait($self.inner.$name($($arg),*))
        }
        forward!($of; $($rest)*);
    };
    ($of:ident; $(#[$meta:meta])* async fn $name:ident(&$self:ident $(, $arg:ident: $ty:ty)*) -> $out:ty; $($rest:tt)*) => {
        $(#[$meta])*
        #[doc = ""]
        #[doc = concat!(" Blocking [`", stringify!($of), "::", stringify!($name), "`](crate::", stringify!($of), "::", stringify!($name), ").")]
        pub fn $name(&$self $(, $arg: $ty)*) -> $out {
            $crate::blocking::wait::check()?;
            $crate::blocking::wait::wait($self.inner.$name($($arg),*))
        }
        forward!($of; $($rest)*);
    };
    ($of:ident; $(#[$meta:meta])* async fn $name:ident($self:ident $(, $arg:ident: $ty:ty)*) -> $out:ty; $($rest:tt)*) => {
        $(#[$meta])*
        #[doc = ""]
        #[doc = concat!(" Blocking [`", stringify!($of), "::", stringify!($name), "`](crate::", stringify!($of), "::", stringify!($name), ").")]
        pub fn $name($self $(, $arg: $ty)*) -> $out {
            $crate::blocking::wait::check()?;
            $crate::blocking::wait::wait($self.inner.$name($($arg),*))
        }
        forward!($of; $($rest)*);
    };
    ($of:ident; $(#[$meta:meta])* fn $name:ident(&mut $self:ident $(, $arg:ident: $ty:ty)*) $(-> $out:ty)?; $($rest:tt)*) => {
        $(#[$meta])*
        #[doc = ""]
        #[doc = concat!(" As [`", stringify!($of), "::", stringify!($name), "`](crate::", stringify!($of), "::", stringify!($name), ").")]
        pub fn $name(&mut $self $(, $arg: $ty)*) $(-> $out)? {
            $self.inner.$name($($arg),*)
        }
        forward!($of; $($rest)*);
    };
    ($of:ident; $(#[$meta:meta])* fn $name:ident(&$self:ident $(, $arg:ident: $ty:ty)*) $(-> $out:ty)?; $($rest:tt)*) => {
        $(#[$meta])*
        #[doc = ""]
        #[doc = concat!(" As [`", stringify!($of), "::", stringify!($name), "`](crate::", stringify!($of), "::", stringify!($name), ").")]
        pub fn $name(&$self $(, $arg: $ty)*) $(-> $out)? {
            $self.inner.$name($($arg),*)
        }
        forward!($of; $($rest)*);
    };
    ($of:ident; $(#[$meta:meta])* new async fn $name:ident($client:ident $(, $arg:ident: $ty:ty)*); $($rest:tt)*) => {
        $(#[$meta])*
        #[doc = ""]
        #[doc = concat!(" Blocking [`", stringify!($of), "::", stringify!($name), "`](crate::", stringify!($of), "::", stringify!($name), ").")]
        pub fn $name($client: &Client $(, $arg: $ty)*) -> Result<Self, Error> {
            $crate::blocking::wait::check()?;
            let inner = $crate::blocking::wait::wait($crate::$of::$name($client.async_client() $(, $arg)*))?;
            Ok(Self { inner, context: $client.context.clone() })
        }
        forward!($of; $($rest)*);
    };
    ($of:ident; $(#[$meta:meta])* new fn $name:ident($client:ident $(, $arg:ident: $ty:ty)*); $($rest:tt)*) => {
        $(#[$meta])*
        #[doc = ""]
        #[doc = concat!(" As [`", stringify!($of), "::", stringify!($name), "`](crate::", stringify!($of), "::", stringify!($name), ").")]
        pub fn $name($client: &Client $(, $arg: $ty)*) -> Result<Self, Error> {
            let inner = $crate::$of::$name($client.async_client() $(, $arg)*)?;
            Ok(Self { inner, context: $client.context.clone() })
        }
        forward!($of; $($rest)*);
    };
}

/// `Debug` as the async types have it.
macro_rules! debug_as_inner {
    ($($type:ident)*) => {
        $(impl std::fmt::Debug for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::fmt::Debug::fmt(&self.inner, f)
            }
        })*
    };
}
