//! Barriers: processes that wait for one another.
//!
//! Every wait of these types survives cuts, servers that are lost, and the end of the session: only its deadline and
//! the end of the client end it. When time is up, and when a future is dropped, the node of the waiter is deleted, in the
//! background if need be.
//!
//! Source: `org.apache.curator.framework.recipes.barriers`.

mod distributed_barrier;
mod distributed_double_barrier;
mod leaving;
mod member;
mod persistently;

pub use distributed_barrier::DistributedBarrier;
pub use distributed_double_barrier::DistributedDoubleBarrier;
