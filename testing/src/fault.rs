//! Faults that hit a single frame.
//!
//! A [`Fault`] names an operation, a side of it (the request or the reply), and which of the following matching
//! requests it hits. The forwarder passes each request to the table of faults and applies the resulting [`Action`].
//! The table is pure: no sockets, no clock, and randomness only from a seed.

use std::time::Duration;

use docent_protocol::OpCode;

/// Turns a reply, as a frame with its length, into the bytes that the client gets instead: a wrong frame, several, part of
/// one, or none.
pub type Rewrite = fn(&[u8]) -> Vec<u8>;

/// The effect of a fault on a frame.
#[derive(Debug, Clone, Copy)]
pub enum Action {
    /// The request never reaches the server; the connection is cut. (`DROP_BEFORE`)
    DropRequest,
    /// The request reaches the server and takes effect; the connection is cut before the reply. (`DROP_REPLY`)
    DropReply,
    /// The request is delayed on its way to the server, together with everything behind it.
    DelayRequest(Duration),
    /// The reply is delayed on its way to the client, together with everything behind it.
    DelayReply(Duration),
    /// The reply is discarded and the connection stays open: the client waits for ever.
    LoseReply,
    /// The reply is replaced.
    RewriteReply(Rewrite),
}

impl Action {
    /// The action's name in a trace, after the request.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::DropRequest => "DROP_BEFORE",
            Self::DropReply => "DROP_REPLY",
            Self::DelayRequest(_) => "DELAY_BEFORE",
            Self::DelayReply(_) => "DELAY_REPLY",
            Self::LoseReply => "LOSE_REPLY",
            Self::RewriteReply(_) => "REWRITE_REPLY",
        }
    }
}

/// A pending fault.
///
/// ```
/// use docent_protocol::OpCode;
/// use docent_testing::fault::Fault;
///
/// // The second create2 of client A takes effect, and its reply is lost with the connection.
/// let fault = Fault::drop_reply(OpCode::Create2).nth(2).of("A");
/// ```
#[derive(Debug, Clone)]
pub struct Fault {
    action: Action,
    op: Option<OpCode>,
    client: Option<String>,
    path: Option<String>,
    /// Number of matching requests to let pass first.
    skip: u32,
    /// Number of matching requests to hit after that.
    times: u32,
    /// Hits each of those with a probability of 1 in `one_in`.
    one_in: u32,
}

impl Fault {
    /// Creates a fault with `action` for the next `op` request and its reply; `None` is any operation except ping.
    #[must_use]
    pub const fn new(action: Action, op: Option<OpCode>) -> Self {
        Self { action, op, client: None, path: None, skip: 0, times: 1, one_in: 1 }
    }

    /// Drops the next `op` request and cuts the connection.
    #[must_use]
    pub const fn drop_before(op: OpCode) -> Self {
        Self::new(Action::DropRequest, Some(op))
    }

    /// Lets the next `op` take effect, then cuts the connection before the reply.
    #[must_use]
    pub const fn drop_reply(op: OpCode) -> Self {
        Self::new(Action::DropReply, Some(op))
    }

    /// Delays the reply to the next `op`, and everything behind it on that connection, for this time or until
    /// [`Tap::end_delays`](crate::tap::Tap::end_delays).
    #[must_use]
    pub const fn delay_reply(op: OpCode, delay: Duration) -> Self {
        Self::new(Action::DelayReply(delay), Some(op))
    }

    /// Delays the next `op` request, and everything behind it on that connection, for this time or until
    /// [`Tap::end_delays`](crate::tap::Tap::end_delays).
    #[must_use]
    pub const fn delay_request(op: OpCode, delay: Duration) -> Self {
        Self::new(Action::DelayRequest(delay), Some(op))
    }

    /// Discards the reply to the next `op` and keeps the connection open.
    #[must_use]
    pub const fn lose_reply(op: OpCode) -> Self {
        Self::new(Action::LoseReply, Some(op))
    }

    /// Replaces the reply to the next `op`, as a faulty server would. The trace shows the reply of the server.
    ///
    /// ```
    /// use docent_protocol::OpCode;
    /// use docent_testing::fault::Fault;
    ///
    /// // The client gets the reply twice.
    /// let fault = Fault::rewrite_reply(OpCode::GetData, |reply| reply.repeat(2));
    /// ```
    #[must_use]
    pub const fn rewrite_reply(op: OpCode, rewrite: Rewrite) -> Self {
        Self::new(Action::RewriteReply(rewrite), Some(op))
    }

    /// Hits the `nth` matching request from now on; 1 is the next one.
    #[must_use]
    pub const fn nth(mut self, nth: u32) -> Self {
        self.skip = nth.saturating_sub(1);
        self
    }

    /// Hits `times` consecutive matching requests; `u32::MAX` is unlimited.
    #[must_use]
    pub const fn times(mut self, times: u32) -> Self {
        self.times = times;
        self
    }

    /// Hits a matching request with a probability of 1 in `chances`. The fault stays pending until it has hit
    /// [`times`](Self::times) requests. The random choices follow from the [seed](crate::tap::Tap::seed).
    #[must_use]
    pub const fn one_in(mut self, chances: u32) -> Self {
        self.one_in = chances;
        self
    }

    /// Restricts the fault to requests of this client, by its label.
    #[must_use]
    pub fn of(mut self, client: &str) -> Self {
        self.client = Some(client.to_owned());
        self
    }

    /// Restricts the fault to requests whose path starts with this text.
    #[must_use]
    pub fn below(mut self, path: &str) -> Self {
        self.path = Some(path.to_owned());
        self
    }

    fn matches(&self, client: &str, op: OpCode, path: Option<&str>) -> bool {
        self.op.map_or(op != OpCode::Ping, |wanted| wanted == op)
            && self.client.as_deref().is_none_or(|wanted| wanted == client)
            && self.path.as_deref().is_none_or(|wanted| path.is_some_and(|p| p.starts_with(wanted)))
    }
}

/// The pending faults, oldest first.
#[derive(Debug, Clone, Default)]
pub(crate) struct FaultTable {
    waiting: Vec<Fault>,
    random: u64,
}

impl FaultTable {
    /// Adds a fault after the others.
    pub(crate) fn add(&mut self, fault: Fault) {
        self.waiting.push(fault);
    }

    /// Seeds the random choices of [`Fault::one_in`]: the same seed and the same requests give the same faults.
    pub(crate) const fn seed(&mut self, seed: u64) {
        self.random = seed;
    }

    /// Removes all faults.
    pub(crate) fn clear(&mut self) {
        self.waiting.clear();
    }

    /// Returns the action for a request. Every pending fault that matches counts the request; the oldest one that is
    /// due determines the action.
    pub(crate) fn on_request(
        &mut self,
        client: &str,
        op: OpCode,
        path: Option<&str>,
    ) -> Option<Action> {
        let mut action = None;
        for fault in self.waiting.iter_mut().filter(|fault| fault.matches(client, op, path)) {
            if fault.skip > 0 {
                fault.skip -= 1;
            } else if action.is_none() && chance(&mut self.random, fault.one_in) {
                action = Some(fault.action);
                fault.times = if fault.times == u32::MAX { u32::MAX } else { fault.times - 1 };
            }
        }
        self.waiting.retain(|fault| fault.times > 0);
        action
    }
}

/// True with a probability of 1 in `chances`. (SplitMix64.)
const fn chance(random: &mut u64, chances: u32) -> bool {
    if chances <= 1 {
        return true;
    }
    *random = random.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut mixed = *random;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    (mixed ^ (mixed >> 31)).is_multiple_of(chances as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_hits_its_nth_request_and_no_other() {
        let mut table = FaultTable::default();
        table.add(Fault::drop_reply(OpCode::Create2).nth(2).of("A"));
        let mut ask = |client, op| table.on_request(client, op, None).map(Action::name);
        assert_eq!(ask("A", OpCode::Create2), None);
        assert_eq!(ask("B", OpCode::Create2), None);
        assert_eq!(ask("A", OpCode::Delete), None);
        assert_eq!(ask("A", OpCode::Create2), Some("DROP_REPLY"));
        assert_eq!(ask("A", OpCode::Create2), None);
    }

    #[test]
    fn two_faults_on_one_operation_hit_one_request_each() {
        let mut table = FaultTable::default();
        table.add(Fault::drop_before(OpCode::Create2));
        table.add(Fault::drop_reply(OpCode::Create2));
        let mut ask = || table.on_request("A", OpCode::Create2, Some("/x")).map(Action::name);
        assert_eq!(ask(), Some("DROP_BEFORE"));
        assert_eq!(ask(), Some("DROP_REPLY"));
        assert_eq!(ask(), None);
    }

    /// The hit rate is about one in four, and the same seed gives the same hits.
    #[test]
    fn chance_follows_from_the_seed() {
        let hits = |seed| {
            let mut table = FaultTable::default();
            table.seed(seed);
            let always = Fault::drop_reply(OpCode::Create).one_in(4).times(u32::MAX);
            table.add(always);
            (0..1000)
                .map(|_| table.on_request("A", OpCode::Create, None).is_some())
                .collect::<Vec<_>>()
        };
        assert_eq!(hits(7), hits(7));
        assert_ne!(hits(7), hits(8));
        let count = hits(7).iter().filter(|hit| **hit).count();
        assert!((200..300).contains(&count), "{count}");
    }

    #[test]
    fn a_path_narrows_it_and_a_ping_is_never_meant_by_any() {
        let mut table = FaultTable::default();
        table.add(Fault::new(Action::DropRequest, None).below("/lock"));
        let mut ask = |op, path| table.on_request("A", op, path).map(Action::name);
        assert_eq!(ask(OpCode::GetData, Some("/other")), None);
        assert_eq!(ask(OpCode::Ping, None), None);
        assert_eq!(ask(OpCode::GetData, Some("/lock/x")), Some("DROP_BEFORE"));
        assert!(table.waiting.is_empty());
    }
}
