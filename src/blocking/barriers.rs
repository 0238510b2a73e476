//! Barriers: [`docent::recipes::barriers`](crate::recipes::barriers) with methods that wait.

use std::time::Duration;

use super::{Client, context::Context};
use crate::{Error, LockOptions};

/// A barrier that is passed when a node is deleted.
///
/// As [`DistributedBarrier`](crate::DistributedBarrier).
#[derive(Clone)]
pub struct DistributedBarrier {
    inner: crate::DistributedBarrier,
    #[expect(dead_code, reason = "its drop waits for the end of the session")]
    context: Context,
}

impl DistributedBarrier {
    forward! { DistributedBarrier;
        /// A barrier at this path, with the default options. Sends nothing.
        new fn new(client, path: &str);
        /// As [`new`](Self::new), with options.
        new fn with_options(client, path: &str, options: LockOptions);
        /// Sets the barrier: creates the node.
        async fn set_barrier(&self) -> Result<(), Error>;
        /// Opens the barrier: deletes the node.
        async fn remove_barrier(&self) -> Result<(), Error>;
        /// Waits until the node does not exist.
        async fn wait_on_barrier(&self) -> Result<(), Error>;
        /// As [`wait_on_barrier`](Self::wait_on_barrier), for at most `wait`; false if the node still exists then.
        async fn wait_on_barrier_timeout(&self, wait: Duration) -> Result<bool, Error>;
        /// The path of the barrier.
        #[must_use]
        fn path(&self) -> &str;
    }
}

/// A barrier that members enter and leave together.
///
/// As [`DistributedDoubleBarrier`](crate::DistributedDoubleBarrier).
pub struct DistributedDoubleBarrier {
    inner: crate::DistributedDoubleBarrier,
    #[expect(dead_code, reason = "its drop waits for the end of the session")]
    context: Context,
}

impl DistributedDoubleBarrier {
    forward! { DistributedDoubleBarrier;
        /// A member of the barrier at this path, with the default options. Sends nothing.
        new fn new(client, path: &str, member_qty: usize);
        /// As [`new`](Self::new), with options.
        new fn with_options(client, path: &str, member_qty: usize, options: LockOptions);
        /// Waits until all members have entered.
        async fn enter(&mut self) -> Result<(), Error>;
        /// As [`enter`](Self::enter), for at most `wait`; false if not all members have entered by then.
        async fn enter_timeout(&mut self, wait: Duration) -> Result<bool, Error>;
        /// Waits until all members have left.
        async fn leave(&mut self) -> Result<(), Error>;
        /// As [`leave`](Self::leave), for at most `wait`; false if not all members have left by then.
        async fn leave_timeout(&mut self, wait: Duration) -> Result<bool, Error>;
        /// Whether this member is inside.
        #[must_use]
        fn is_inside(&self) -> bool;
        /// The id of this member, which is the name of its node.
        #[must_use]
        fn member_id(&self) -> &str;
        /// The path of the barrier.
        #[must_use]
        fn path(&self) -> &str;
    }
}

debug_as_inner!(DistributedBarrier DistributedDoubleBarrier);
