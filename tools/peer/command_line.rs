//! The command line of the program.
//!
//! Two protocols share it, one for locks and leader recipes, the other for the data recipes, and their settings differ:
//!
//! | | locks, leader recipes, kept nodes, groups | data recipes, discovery |
//! |---|---|---|
//! | fourth argument | `SLEEP_MS [POLICY]` | `FLAGS` |
//! | session timeout | 6000 ms | 20000 ms |
//! | connection timeout | 3000 ms | 5000 ms |
//! | retries | 5, every 100 ms | 3, every 50 ms |
//!
//! `FLAGS` or `SLEEP_MS` chooses the column. Without them, each recipe uses the retries of its column, and the timeouts
//! are those of the left column, because the client connects before its first verb. `none` stands for no flags.

use std::time::Duration;

use docent::{leader::ConnectionStateErrorPolicy, retry::RetryNTimes};

pub(super) const USAGE: &str = "CONNECT [SESSION_MS [RETRIES [FLAGS | SLEEP_MS [standard|session]]]], \
     FLAGS: none, or lazy, tracker or kept, separated by commas";

pub(super) struct CommandLine {
    pub(super) connect_string: String,
    pub(super) session_timeout: Duration,
    pub(super) connection_timeout: Duration,
    /// The retries of locks, leader recipes, kept nodes and groups.
    pub(super) leader_retries: RetryNTimes,
    /// The retries of barriers, atomic numbers and service discovery.
    pub(super) data_retries: RetryNTimes,
    pub(super) error_policy: ConnectionStateErrorPolicy,
    /// Whether the program reports that it is ready at once, without a session.
    pub(super) is_lazy: bool,
    pub(super) tracker: Tracking,
}

/// Whether the client follows the members of its ensemble.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tracking {
    Off,
    On,
    /// Follows them, but keeps the addresses of the command line.
    Kept,
}

impl CommandLine {
    /// Reads the arguments. The error is a message for the user.
    pub(super) fn read(arguments: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut arguments = arguments.peekable();
        let connect_string = arguments.next().ok_or("CONNECT is missing")?;
        let mut numbers = [None; 3];
        for (number, name) in numbers.iter_mut().zip(["SESSION_MS", "RETRIES", "SLEEP_MS"]) {
            let is_number = |text: &String| text.starts_with(|first: char| first.is_ascii_digit());
            let Some(text) = arguments.next_if(is_number) else { break };
            *number = Some(text.parse().map_err(|error| format!("{name}: {text}: {error}"))?);
        }
        let [session, retries, sleep] = numbers;
        let mut error_policy = ConnectionStateErrorPolicy::Standard;
        let mut flags = None;
        match arguments.next() {
            None => {}
            Some(policy) if sleep.is_some() => {
                error_policy = match policy.as_str() {
                    "standard" => ConnectionStateErrorPolicy::Standard,
                    "session" => ConnectionStateErrorPolicy::Session,
                    _ => return Err(format!("POLICY is standard or session, not {policy}")),
                }
            }
            Some(text) => flags = Some(text),
        }
        if let Some(surplus) = arguments.next() {
            return Err(format!("{surplus} is one argument too many"));
        }
        let is_data = flags.is_some();
        let (mut is_lazy, mut tracker) = (false, Tracking::Off);
        for flag in flags.iter().flat_map(|flags| flags.split(',')) {
            match flag {
                "lazy" => is_lazy = true,
                "tracker" => tracker = Tracking::On,
                "kept" => tracker = Tracking::Kept,
                "none" | "" => {}
                _ => return Err(format!("{flag} is no flag")),
            }
        }
        let millis = |number: u32| Duration::from_millis(number.into());
        let policy = |default: u32, pause: u32| {
            RetryNTimes::new(retries.unwrap_or(default), millis(sleep.unwrap_or(pause)))
        };
        let data_retries = policy(3, 50);
        Ok(Self {
            connect_string,
            session_timeout: millis(session.unwrap_or(if is_data { 20_000 } else { 6000 })),
            connection_timeout: millis(if is_data { 5000 } else { 3000 }),
            leader_retries: if is_data { data_retries } else { policy(5, 100) },
            data_retries: if sleep.is_some() { policy(5, 100) } else { data_retries },
            error_policy,
            is_lazy,
            tracker,
        })
    }
}
