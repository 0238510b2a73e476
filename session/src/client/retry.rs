//! Curator's retry policies: whether to retry, and how long to wait before.
//!
//! Source: `org.apache.curator.retry` of Curator 5.9.0.

pub use super::{
    retry_loop::RetryLoop,
    retry_policy::{
        ExponentialBackoffRetry, RetryForever, RetryNTimes, RetryOneTime, RetryPolicy,
        RetryUntilElapsed, SessionFailedRetryPolicy, Verdict,
    },
};
