//! Requests that delete the nodes of earlier requests.
//!
//! Cleanup goes through the session's queue: the destructor itself queues its first request, and only the requests
//! after it are a task. It ends with a definite reply (success or `NoNode`) or with the client; no other error
//! completes it. It keeps the client alive only while the session that may own the node is alive by its deadline; a
//! session of a read-only server owns none.

use docent_protocol::{
    Stat,
    operation::{ApplicationOperation, Delete, GetChildren2},
    request::{DeleteRequest, ReadRequest},
};

use super::{
    arguments::{ANY_VERSION, check},
    children::Children,
    client::Client,
    exchange::Exchange,
    response::Response,
    transaction::{Transaction, TransactionResponse},
};

/// The operations for cleanup, which are queued even when the queue is full. See [`Client::cleanup`].
// Public for docent-recipes.
#[doc(hidden)]
#[derive(Debug, Clone, Copy)]
pub struct Cleanup<'a>(&'a Client);

impl Client {
    /// Operations to delete nodes that this client created, such as the node of a lock. They are queued in the order of
    /// calls, as all others, but [`max_requests`](crate::Config::with_max_requests) and
    /// [`max_pending_bytes`](crate::Config::with_max_pending_bytes) do not refuse them. A node that cannot be deleted
    /// because the queue is full would stay until the session ends.
    ///
    /// They are exempt from the limits because their number is bounded: by the nodes that were created, and by the holds of
    /// strict mutexes, each of which renews its record by one at a time. Use them for nothing else.
    // Public for docent-recipes.
    #[doc(hidden)]
    #[must_use]
    pub const fn cleanup(&self) -> Cleanup<'_> {
        Cleanup(self)
    }
}

impl Cleanup<'_> {
    /// As [`Client::delete`].
    ///
    /// # Errors
    ///
    /// As [`Client::delete`], without `TooManyRequests`.
    pub fn delete(&self, path: &str, version: Option<i32>) -> Response<()> {
        let (at, version) = (self.0.chroot.prefix(path), version.unwrap_or(ANY_VERSION));
        self.request(path, &Delete(DeleteRequest { path: (&*at).into(), version }))
    }

    /// As [`Client::get_children_with_stat`].
    ///
    /// # Errors
    ///
    /// As [`Client::get_children_with_stat`], without `TooManyRequests`.
    pub fn get_children_with_stat(&self, path: &str) -> Response<(Children, Stat)> {
        let at = self.0.chroot.prefix(path);
        self.request(path, &GetChildren2(ReadRequest { path: (&*at).into(), watch: false }))
    }

    /// As [`Transaction::commit`]: for the delete of a node together with another write, or for a write that keeps a hold
    /// of such a node.
    ///
    /// # Errors
    ///
    /// As [`Transaction::commit`], without `TooManyRequests`.
    pub fn commit(&self, transaction: &Transaction<'_>) -> TransactionResponse {
        transaction.commit_with(|checked, writes| match checked {
            Ok(()) => self.request("/", writes),
            Err(error) => self.0.request_if(Err(error), "", writes),
        })
    }

    fn request<E: Exchange + ApplicationOperation>(
        &self,
        path: &str,
        call: &E,
    ) -> Response<E::Value> {
        let shared = &self.0.handle.shared;
        self.0.exchange(check(path), path, call, || {
            shared.request(path, |machine, token| {
                machine.submit_reserved(call, token, || shared.clock().now());
            })
        })
    }
}
