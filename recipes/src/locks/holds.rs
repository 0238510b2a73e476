//! The holds behind a guard or a leadership, and the token that ends with them.
//!
//! Every end of a guard or of its hold cancels the guard's token, in the call that ends it. A task only reports ends
//! that no call causes.

use std::{
    future::{Future, poll_fn},
    pin::Pin,
    sync::{Arc, OnceLock},
    task::Poll,
};

use docent_session::{Transaction, runtime::Instant};
use tokio_util::sync::CancellationToken;

use super::hold::Hold;
use crate::{Error, error, planted, select::select};

/// One hold, or those of several locks acquired together, in the order in which they were acquired.
#[derive(Default)]
pub(crate) struct Holds {
    all: Vec<Arc<Hold>>,
    token: OnceLock<CancellationToken>,
    /// The tokens of the holds that were appended.
    appended_tokens: Vec<CancellationToken>,
}

impl Holds {
    pub(crate) fn one(hold: Arc<Hold>) -> Self {
        Self { all: vec![hold], ..Self::default() }
    }

    pub(crate) fn all(&self) -> &[Arc<Hold>] {
        &self.all
    }

    /// Moves the holds of another one behind its own.
    pub(crate) fn append(&mut self, other: &mut Self) {
        self.all.append(&mut other.all);
        self.appended_tokens.append(&mut other.appended_tokens);
        self.appended_tokens.extend(other.token.take());
    }

    pub(crate) fn take(&mut self) -> Vec<Arc<Hold>> {
        std::mem::take(&mut self.all)
    }

    pub(crate) fn is_held(&self) -> bool {
        let held = !self.all.is_empty() && self.all.iter().all(|hold| hold.is_held());
        if !held {
            // The task that cancels the token may not have run yet.
            self.cancel();
        }
        held
    }

    /// The path of the first node that is no longer held.
    pub(crate) fn first_lost(&self) -> Option<&str> {
        self.all.iter().find(|hold| !hold.is_held()).map(|hold| hold.path())
    }

    /// Cancels the tokens.
    pub(crate) fn cancel(&self) {
        for token in self.token.get().into_iter().chain(&self.appended_tokens) {
            token.cancel();
        }
    }

    pub(crate) fn proven_until(&self) -> Instant {
        let bounds = self.all.iter().map(|hold| hold.proven_until());
        bounds.min().unwrap_or(Instant::ZERO)
    }

    /// Waits until one of the holds ends, and watches their nodes.
    pub(crate) async fn lost(&self) {
        self.watch_nodes();
        any_lost(&self.all).await;
    }

    /// As [`lost`](Self::lost), without a watch on the node: sends nothing.
    pub(crate) async fn ended(&self) {
        any_lost(&self.all).await;
    }

    fn watch_nodes(&self) {
        for hold in &self.all {
            hold.watch_node();
        }
    }

    pub(crate) fn cancellation_token(&self) -> crate::locks::CancellationToken {
        let watched = || {
            let token = CancellationToken::new();
            let Some(first) = self.all.first() else {
                token.cancel();
                return token;
            };
            self.watch_nodes();
            let (holds, watched) = (self.all.clone(), token.clone());
            // Cancels the token however the task ends: the end of its runtime ends the client, and with it the hold.
            let end = token.clone().drop_guard();
            first.client().runtime().spawn(Box::pin(async move {
                select(watched.cancelled(), any_lost(&holds)).await;
                drop(end);
            }));
            token
        };
        crate::locks::CancellationToken(self.token.get_or_init(watched).clone())
    }

    pub(crate) async fn fencing_token(&self) -> Result<i64, Error> {
        match self.all.first() {
            Some(hold) => hold.fencing_token().await,
            None => Err(error::lock_lost(self.path())),
        }
    }

    pub(crate) fn guarded(&self) -> Result<Transaction<'_>, Error> {
        let lost = || error::lock_lost(self.path());
        let first = self.all.first().filter(|_| self.is_held()).ok_or_else(lost)?;
        let mut transaction = first.client().transaction();
        let checked = if planted::is("guarded-by-the-first") { 1 } else { self.all.len() };
        for hold in self.all.iter().take(checked) {
            let path = if planted::is("guarded-without-check") { "/" } else { hold.path() };
            transaction.check_of(hold.client(), path, None);
        }
        Ok(transaction)
    }

    /// The path of the first node.
    pub(crate) fn path(&self) -> &str {
        self.all.first().map_or("", |hold| hold.path())
    }

    pub(crate) fn paths(&self) -> impl Iterator<Item = &str> {
        self.all.iter().map(|hold| hold.path())
    }

    pub(crate) fn session_id(&self) -> i64 {
        self.all.first().map_or(0, |hold| hold.claim().lease().session_id())
    }
}

/// Waits until one of several holds ends; returns at once if there are none.
async fn any_lost(holds: &[Arc<Hold>]) {
    let mut all: Vec<Pin<Box<dyn Future<Output = ()> + Send + '_>>> =
        holds.iter().map(|hold| Box::pin(hold.lost()) as Pin<Box<_>>).collect();
    poll_fn(|cx| {
        let any = all.iter_mut().any(|lost| lost.as_mut().poll(cx).is_ready());
        if any || holds.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}
