//! Faults that hit one frame: which one, and what happens to it.
//!
//! A [`Fault`] names an operation, one side of it (the request or the reply), and which of the next
//! such frames it is meant for. Whoever moves frames asks the [`FaultTable`] about each request and does
//! what it says. The table is pure: no sockets, no clock, and chance only from a seed.

use std::time::Duration;

use docent_protocol::OpCode;

/// What happens to a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// The request never reaches the server; the connection is cut. (`DROP_BEFORE`)
    DropRequest,
    /// The request reaches the server and takes effect; the connection is cut instead of answering.
    /// (`DROP_REPLY`)
    DropReply,
    /// The request waits that long before it reaches the server, and what follows it waits behind it.
    DelayRequest(Duration),
    /// The reply waits that long before it reaches the client, and what follows it waits behind it.
    DelayReply(Duration),
    /// The reply is swallowed and the connection stays: the client waits for ever.
    LoseReply,
}

impl Action {
    /// How a trace shows it, behind the request.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::DropRequest => "DROP_BEFORE",
            Self::DropReply => "DROP_REPLY",
            Self::DelayRequest(_) => "DELAY_BEFORE",
            Self::DelayReply(_) => "DELAY_REPLY",
            Self::LoseReply => "LOSE_REPLY",
        }
    }
}

/// A fault waiting for its frame.
///
/// ```
/// use docent_protocol::OpCode;
/// use docent_testing::fault::Fault;
///
/// // The second create2 of client A takes effect, and its reply is lost with the connection.
/// let fault = Fault::drop_reply(OpCode::Create2).nth(2).of("A");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    action: Action,
    op: Option<OpCode>,
    client: Option<String>,
    path: Option<String>,
    /// How many matching requests still pass unharmed.
    skip: u32,
    /// How many it then hits.
    times: u32,
    /// It hits one in so many of those, by chance.
    one_in: u32,
}

impl Fault {
    /// `action` for the next request of `op` and its reply; `None` is any operation but ping.
    #[must_use]
    pub const fn new(action: Action, op: Option<OpCode>) -> Self {
        Self { action, op, client: None, path: None, skip: 0, times: 1, one_in: 1 }
    }

    /// Swallows the next `op` request and cuts the connection.
    #[must_use]
    pub const fn drop_before(op: OpCode) -> Self {
        Self::new(Action::DropRequest, Some(op))
    }

    /// Lets the next `op` take effect, then cuts the connection instead of answering.
    #[must_use]
    pub const fn drop_reply(op: OpCode) -> Self {
        Self::new(Action::DropReply, Some(op))
    }

    /// Delays the reply to the next `op`, and all that follows it on that connection.
    #[must_use]
    pub const fn delay_reply(op: OpCode, delay: Duration) -> Self {
        Self::new(Action::DelayReply(delay), Some(op))
    }

    /// Delays the next `op` request, and all that follows it on that connection.
    #[must_use]
    pub const fn delay_request(op: OpCode, delay: Duration) -> Self {
        Self::new(Action::DelayRequest(delay), Some(op))
    }

    /// Swallows the reply to the next `op` without cutting anything.
    #[must_use]
    pub const fn lose_reply(op: OpCode) -> Self {
        Self::new(Action::LoseReply, Some(op))
    }

    /// Meant for the `nth` matching request from now on; 1 is the next one.
    #[must_use]
    pub const fn nth(mut self, nth: u32) -> Self {
        self.skip = nth.saturating_sub(1);
        self
    }

    /// Hits that many matching requests, one after the other; `u32::MAX` is for ever.
    #[must_use]
    pub const fn times(mut self, times: u32) -> Self {
        self.times = times;
        self
    }

    /// Hits one in so many of the requests it is meant for, by chance, and stays until it has hit as often
    /// as [`times`](Self::times) says. Which ones follows from the [seed](FaultTable::seed).
    #[must_use]
    pub const fn one_in(mut self, chances: u32) -> Self {
        self.one_in = chances;
        self
    }

    /// Only requests of this client, by its label.
    #[must_use]
    pub fn of(mut self, client: &str) -> Self {
        self.client = Some(client.to_owned());
        self
    }

    /// Only requests whose path begins with this text.
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

/// The faults that still wait for their frames, oldest first.
#[derive(Debug, Clone, Default)]
pub struct FaultTable {
    waiting: Vec<Fault>,
    random: u64,
}

impl FaultTable {
    /// Adds one behind the others.
    pub fn add(&mut self, fault: Fault) {
        self.waiting.push(fault);
    }

    /// What the choices of [`Fault::one_in`] follow from: the same seed and the same requests, the same
    /// faults.
    pub const fn seed(&mut self, seed: u64) {
        self.random = seed;
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.waiting.clear();
    }

    /// Whether none is waiting.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// What happens to this request. Every waiting fault that matches counts it; the oldest that is due
    /// decides.
    pub fn on_request(&mut self, client: &str, op: OpCode, path: Option<&str>) -> Option<Action> {
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

/// True once in `chances` times. (SplitMix64.)
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
        let mut ask = |client, op| table.on_request(client, op, None);
        assert_eq!(ask("A", OpCode::Create2), None);
        assert_eq!(ask("B", OpCode::Create2), None);
        assert_eq!(ask("A", OpCode::Delete), None);
        assert_eq!(ask("A", OpCode::Create2), Some(Action::DropReply));
        assert_eq!(ask("A", OpCode::Create2), None);
    }

    #[test]
    fn two_faults_on_one_operation_hit_one_request_each() {
        let mut table = FaultTable::default();
        table.add(Fault::drop_before(OpCode::Create2));
        table.add(Fault::drop_reply(OpCode::Create2));
        let mut ask = || table.on_request("A", OpCode::Create2, Some("/x"));
        assert_eq!(ask(), Some(Action::DropRequest));
        assert_eq!(ask(), Some(Action::DropReply));
        assert_eq!(ask(), None);
    }

    /// One in four, about, and the same ones for the same seed.
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
        assert_eq!(table.on_request("A", OpCode::GetData, Some("/other")), None);
        assert_eq!(table.on_request("A", OpCode::Ping, None), None);
        assert_eq!(
            table.on_request("A", OpCode::GetData, Some("/lock/x")),
            Some(Action::DropRequest)
        );
        assert!(table.is_empty());
    }
}
