//! One id of a connection, as whoAmI lists it.

use crate::{Text, macros::record};

record! {
    /// One id of a connection.
    pub struct ClientInfo<'a> {
        /// The authentication scheme.
        pub auth_scheme: Text<'a> = "authScheme",
        /// The user.
        pub user: Text<'a> = "user",
    }
}
