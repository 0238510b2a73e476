//! Programs for everyday tasks, each of at most sixty lines.
//!
//! Each page explains a program and shows it whole. They are examples of the repository, and a test runs them.
//!
//! | task | page | uses |
//! |---|---|---|
//! | a worker that stops when its lock is lost | [`stop_when_lost`] | [`LockGuard::lost`](crate::LockGuard::lost) |
//! | configuration that survives reconnects | [`follow_node`] | [`Client::add_watch`](crate::Client::add_watch), [`WatchedEvent`](crate::WatchedEvent) |
//! | retrying a plain call | [`retry_call`] | [`Client::retry`](crate::Client::retry), [`retry`](crate::retry) |
//! | what to do with an error | [`error_kinds`] | [`ErrorKind`](crate::ErrorKind), [`Outcome`](crate::Outcome) |
//! | a transaction with a condition | [`conditional_write`] | [`Transaction`](crate::Transaction) |
//! | jobs of which only some run at once | [`limited_jobs`] | [`InterProcessSemaphoreV2`](crate::InterProcessSemaphoreV2) |
//! | tests that cut the connection | [`cut_connection`] | [`docent-testing`](https://docs.rs/docent-testing) |
//! | TLS and client certificates | [`tls`] | `TlsOptions` |
//! | a program without async | `blocking` (feature `blocking`) | [`docent::blocking`](https://docs.rs/docent/latest/docent/blocking) |
//! | ending a program well | [`end_well`] | [`Client::run`](crate::Client::run) |

/// A worker that stops when its lock is lost.
pub mod stop_when_lost {
    #![doc = ""]
    #![doc = include_str!("cookbook/stop_when_lost.md")]
    #![doc = "```no_run"]
    #![doc = include_str!("../examples/stop_when_lost.rs")]
    #![doc = "```"]
}

/// Configuration that survives reconnects.
pub mod follow_node {
    #![doc = ""]
    #![doc = include_str!("cookbook/follow_node.md")]
    #![doc = "```no_run"]
    #![doc = include_str!("../examples/follow_node.rs")]
    #![doc = "```"]
}

/// Retrying a plain call.
pub mod retry_call {
    #![doc = ""]
    #![doc = include_str!("cookbook/retry_call.md")]
    #![doc = "```no_run"]
    #![doc = include_str!("../examples/retry_call.rs")]
    #![doc = "```"]
}

/// What to do with an error.
pub mod error_kinds {
    #![doc = ""]
    #![doc = include_str!("cookbook/error_kinds.md")]
    #![doc = "```no_run"]
    #![doc = include_str!("../examples/error_kinds.rs")]
    #![doc = "```"]
}

/// A transaction with a condition.
pub mod conditional_write {
    #![doc = ""]
    #![doc = include_str!("cookbook/conditional_write.md")]
    #![doc = "```no_run"]
    #![doc = include_str!("../examples/conditional_write.rs")]
    #![doc = "```"]
}

/// Jobs of which only some run at once.
pub mod limited_jobs {
    #![doc = ""]
    #![doc = include_str!("cookbook/limited_jobs.md")]
    #![doc = "```no_run"]
    #![doc = include_str!("../examples/limited_jobs.rs")]
    #![doc = "```"]
}

/// Tests that cut the connection.
pub mod cut_connection {
    #![doc = ""]
    #![doc = include_str!("cookbook/cut_connection.md")]
    #![doc = "```no_run"]
    #![doc = include_str!("../examples/cut_connection.rs")]
    #![doc = "```"]
}

/// TLS and client certificates.
pub mod tls {
    #![doc = ""]
    #![doc = include_str!("cookbook/tls.md")]
    #![doc = "```no_run"]
    #![doc = include_str!("../examples/tls.rs")]
    #![doc = "```"]
}

/// A program without async.
#[cfg(feature = "blocking")]
pub mod blocking {
    #![doc = ""]
    #![doc = include_str!("cookbook/blocking.md")]
    #![doc = "```no_run"]
    #![doc = include_str!("../examples/blocking.rs")]
    #![doc = "```"]
}

/// Ending a program well.
pub mod end_well {
    #![doc = ""]
    #![doc = include_str!("cookbook/end_well.md")]
    #![doc = "```no_run"]
    #![doc = include_str!("../examples/end_well.rs")]
    #![doc = "```"]
}
