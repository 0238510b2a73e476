//! A script: clients, what they do, and the faults, as a few lines of text. With its seed it decides everything.

use std::{fmt, str::FromStr};

use docent_sim::{
    Plan,
    exhaust::{Schedule, Scope},
    recipes::draw,
};

/// The most bytes of a script.
pub const MOST_BYTES: usize = 8 * 1024;

/// The most clients of a script, and the most faults.
const MOST_CLIENTS: usize = 16;
const MOST_FAULTS: usize = 64;

/// The most steps of a client.
const MOST_STEPS: usize = 32;

/// The longest run, and the longest hold or wait, in milliseconds.
const MOST_MS: u64 = 600_000;

/// A script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Script {
    /// Decides delays, the order of tasks, and GUIDs.
    pub seed: u64,
    /// What is run.
    pub subject: Subject,
    pub faults: Vec<Fault>,
}

/// What a script runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subject {
    /// The clients of the script.
    Clients(Setting),
    /// The plan that the simulator draws from the seed.
    Plan,
    /// A run of `cargo xtask exhaust`, with its faults; and its stage.
    Schedule(Schedule, (Vec<String>, usize)),
}

/// The clients of a script, and their surroundings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    pub servers: usize,
    pub session_ms: u64,
    /// The longest way of a message.
    pub delay_ms: u64,
    pub run_ms: u64,
    /// The number of leases of a semaphore.
    pub leases: usize,
    /// Whether there is a storage, and whether it checks fencing tokens.
    pub storage: Option<bool>,
    pub clients: Vec<ClientScript>,
}

impl Default for Setting {
    fn default() -> Self {
        Self {
            servers: 1,
            session_ms: 6_000,
            delay_ms: 40,
            run_ms: 30_000,
            leases: 2,
            storage: None,
            clients: Vec::new(),
        }
    }
}

/// A client, and what it does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientScript {
    pub name: String,
    pub steps: Vec<Step>,
}

/// A step of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    Wait(u64),
    /// Acquires a lock, holds it, and releases it.
    Hold(Kind, u64),
    /// Deletes a node by hand: at this path, or else the first of the lock's queue.
    Delete(Option<String>),
}

/// A kind of lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Naive,
    Sequential,
    Mutex,
    Strict,
    Read,
    Write,
    /// A write lock whose holder then reads, and releases the write lock.
    Downgrade,
    Lease,
    Latch,
}

/// The kinds of locks, by their words in a script.
const KINDS: [(&str, Kind); 9] = [
    ("naive", Kind::Naive),
    ("sequential", Kind::Sequential),
    ("mutex", Kind::Mutex),
    ("strict", Kind::Strict),
    ("read", Kind::Read),
    ("write", Kind::Write),
    ("downgrade", Kind::Downgrade),
    ("lease", Kind::Lease),
    ("latch", Kind::Latch),
];

/// A fault, and when it begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    pub at_ms: u64,
    pub what: What,
}

/// A fault. Clients are numbers in their order, members too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// The connection ends in place of a delivery to or from a client, by its number in the run.
    Drop {
        client: usize,
        to_client: bool,
        delivery: u32,
    },
    /// What is sent to or from a client arrives when this is over.
    Delay {
        client: usize,
        to_client: bool,
        for_ms: u64,
    },
    /// What is sent to or from a client never arrives; `None`: in both directions.
    Lose {
        client: usize,
        to_client: Option<bool>,
        for_ms: u64,
    },
    Cut {
        client: usize,
    },
    Stop {
        client: usize,
        for_ms: u64,
    },
    Kill {
        client: usize,
    },
    Expire {
        client: usize,
    },
    /// From then on the clock of a client is wrong by this percentage.
    Skew {
        client: usize,
        percent: i32,
    },
    /// A node is deleted by hand; `None`: the first of the queue.
    Delete {
        path: Option<String>,
    },
    Isolate {
        member: usize,
        for_ms: u64,
    },
    StopMember {
        member: usize,
        for_ms: u64,
    },
    Lag {
        member: usize,
        for_ms: u64,
    },
}

impl Script {
    /// The names of its clients, and the number of servers. The clients of a plan are called after their processes.
    #[must_use]
    pub fn stage(&self) -> (Vec<String>, usize) {
        match &self.subject {
            Subject::Clients(setting) => {
                let names = setting.clients.iter().map(|client| client.name.clone());
                (names.collect(), setting.servers)
            }
            Subject::Plan => stage_of(&draw::plan(self.seed)),
            Subject::Schedule(_, stage) => stage.clone(),
        }
    }
}

fn stage_of(plan: &Plan) -> (Vec<String>, usize) {
    let names = (0..plan.processes.len()).map(|number| format!("p{number}"));
    (names.collect(), plan.servers.count)
}

/// A line with the schedule of a file, in its format.
#[must_use]
pub fn schedule_line(schedule: &Schedule) -> String {
    let plant = schedule.plant.as_ref().map(|plant| format!("plant:{plant:?},"));
    let (scope, choices, plant) = (&schedule.scope, &schedule.choices, plant.unwrap_or_default());
    let choices: Vec<_> = choices.iter().map(u8::to_string).collect();
    format!("schedule (scope:{scope:?},{plant}choices:[{}])", choices.join(","))
}

fn schedule(text: &str) -> Result<Subject, String> {
    let schedule = Schedule::from_ron(text).map_err(|error| format!("is no schedule: {error}"))?;
    let stage = stage_of(&Scope::named(&schedule.scope)?.plan);
    Ok(Subject::Schedule(schedule, stage))
}

impl FromStr for Script {
    type Err = String;

    /// Parses a script: lines, which may also be separated by semicolons.
    ///
    /// # Errors
    ///
    /// The line and what is wrong with it, in one line.
    fn from_str(text: &str) -> Result<Self, String> {
        if text.len() > MOST_BYTES {
            return Err(format!("the script is longer than {MOST_BYTES} bytes"));
        }
        let lines = text.split(['\n', ';']).map(str::trim).enumerate();
        let lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
        let lines: Vec<_> = lines.collect();
        let place = |at: usize, line: &str, error: String| {
            let shown: String = line.chars().take(60).collect();
            format!("line {} ({shown:?}): {error}", at + 1)
        };
        let (mut seed, mut setting, mut given) = (1, Setting::default(), None);
        for (at, line) in &lines {
            let parsed = match line.split_once(' ').unwrap_or((line, "")) {
                ("at" | "drop", _) => Ok(()),
                ("seed", value) => number(value, 0, u64::MAX).map(|value| seed = value),
                ("plan", value) => number(value, 0, u64::MAX).map(|value| {
                    seed = value;
                    given = Some(Subject::Plan);
                }),
                ("schedule", text) => schedule(text).map(|subject| given = Some(subject)),
                _ => setting.line(line),
            };
            parsed.map_err(|error| place(*at, line, error))?;
        }
        if given.is_some() && setting != Setting::default() {
            return Err("a run of the simulator has its own clients and settings".to_owned());
        }
        let subject = given.unwrap_or(Subject::Clients(setting));
        let mut script = Self { seed, subject, faults: Vec::new() };
        let (names, members) = script.stage();
        if names.is_empty() {
            return Err("the script has no client, such as `A: mutex 5s`".to_owned());
        }
        for (at, line) in
            lines.iter().filter(|(_, line)| matches!(line.split(' ').next(), Some("at" | "drop")))
        {
            let fault = fault(line, (&names, members)).map_err(|error| place(*at, line, error))?;
            script.faults.push(fault);
        }
        if !script.faults.is_empty() && matches!(script.subject, Subject::Schedule(..)) {
            return Err("a schedule has its own faults".to_owned());
        }
        if script.faults.len() > MOST_FAULTS {
            return Err(format!("there are more than {MOST_FAULTS} faults"));
        }
        script.faults.sort_by_key(|fault| fault.at_ms);
        Ok(script)
    }
}

impl Setting {
    fn line(&mut self, line: &str) -> Result<(), String> {
        if let Some((name, steps)) = line.split_once(':') {
            return self.client(name.trim(), steps);
        }
        let (word, value) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "servers" => self.servers = size(value, 5)?,
            "session" => self.session_ms = time(value, 2_000, 60_000)?,
            "delay" => self.delay_ms = time(value, 1, 5_000)?,
            "run" => self.run_ms = time(value, 1, MOST_MS)?,
            "leases" => self.leases = size(value, 16)?,
            "storage" => {
                self.storage = Some(match value {
                    "checks" => true,
                    "trusts" => false,
                    _ => return Err("the storage `checks` tokens or `trusts`".to_owned()),
                });
            }
            _ => return Err("is no line of a script".to_owned()),
        }
        Ok(())
    }

    fn client(&mut self, name: &str, steps: &str) -> Result<(), String> {
        let is_name = |c: char| c.is_ascii_alphanumeric();
        if name.is_empty() || name.len() > 8 || !name.chars().all(is_name) {
            return Err("a client has a short name of letters and digits".to_owned());
        }
        if self.clients.iter().any(|client| client.name == name) || name.starts_with('s') {
            return Err(format!("the name {name} is taken"));
        }
        if self.clients.len() == MOST_CLIENTS {
            return Err(format!("there are more than {MOST_CLIENTS} clients"));
        }
        let steps = steps.split(',').map(|step| self::step(step.trim()));
        let steps = steps.collect::<Result<Vec<_>, _>>()?;
        if steps.len() > MOST_STEPS {
            return Err(format!("a client has more than {MOST_STEPS} steps"));
        }
        self.clients.push(ClientScript { name: name.to_owned(), steps });
        Ok(())
    }
}

fn step(text: &str) -> Result<Step, String> {
    let (word, value) = text.split_once(' ').unwrap_or((text, ""));
    if word == "wait" {
        return Ok(Step::Wait(time(value, 0, MOST_MS)?));
    }
    let kind = KINDS.iter().find(|(known, _)| *known == word);
    let kind = kind.ok_or_else(|| format!("`{word}` is no step of a client"))?.1;
    Ok(Step::Hold(kind, time(value, 0, MOST_MS)?))
}

/// Parses `at TIME FAULT`, or `drop N to|from CLIENT`.
fn fault(line: &str, (names, members): (&[String], usize)) -> Result<Fault, String> {
    let words: Vec<_> = line.split_whitespace().collect();
    let client = |name: &str| {
        let at = names.iter().position(|known| known == name);
        at.ok_or_else(|| format!("there is no client {name}"))
    };
    let member = |name: &str| {
        let number = name.strip_prefix('s').and_then(|number| number.parse::<usize>().ok());
        number
            .filter(|number| *number < members)
            .ok_or_else(|| format!("there is no server {name}"))
    };
    let direction = |word: &str| match word {
        "to" => Ok(true),
        "from" => Ok(false),
        _ => Err("the direction is `to` or `from`".to_owned()),
    };
    let lasts = |text: &str| time(text, 1, MOST_MS);
    if let ["drop", delivery, way, name] = words.as_slice() {
        let delivery = number(delivery, 0, u64::from(u32::MAX))?;
        let delivery = u32::try_from(delivery).unwrap_or(u32::MAX);
        let what = What::Drop { client: client(name)?, to_client: direction(way)?, delivery };
        return Ok(Fault { at_ms: 0, what });
    }
    let ["at", at, fault @ ..] = words.as_slice() else {
        return Err("a fault is `at TIME ...`, or `drop N to|from CLIENT`".to_owned());
    };
    let what = match fault {
        ["delay", way, name, "for", lasting] => What::Delay {
            client: client(name)?,
            to_client: direction(way)?,
            for_ms: lasts(lasting)?,
        },
        ["lose", name, "for", lasting] => {
            What::Lose { client: client(name)?, to_client: None, for_ms: lasts(lasting)? }
        }
        ["lose", way, name, "for", lasting] => What::Lose {
            client: client(name)?,
            to_client: Some(direction(way)?),
            for_ms: lasts(lasting)?,
        },
        ["cut", name] => What::Cut { client: client(name)? },
        ["stop", name, "for", lasting] => match client(name) {
            Ok(client) => What::Stop { client, for_ms: lasts(lasting)? },
            Err(_) => What::StopMember { member: member(name)?, for_ms: lasts(lasting)? },
        },
        ["kill", name] => What::Kill { client: client(name)? },
        ["expire", name] => What::Expire { client: client(name)? },
        ["skew", name, percent] => {
            let text = percent.strip_suffix('%').unwrap_or(percent);
            let percent = text.parse().ok().filter(|percent| (-50..=50).contains(percent));
            let percent = percent.ok_or("a clock is wrong by -50% to 50%")?;
            What::Skew { client: client(name)?, percent }
        }
        ["isolate", name, "for", lasting] => {
            What::Isolate { member: member(name)?, for_ms: lasts(lasting)? }
        }
        ["lag", name, "for", lasting] => {
            What::Lag { member: member(name)?, for_ms: lasts(lasting)? }
        }
        ["delete", "first"] => What::Delete { path: None },
        ["delete", path] if path.starts_with('/') => {
            What::Delete { path: Some((*path).to_owned()) }
        }
        _ => return Err("is no fault".to_owned()),
    };
    Ok(Fault { at_ms: time(at, 0, MOST_MS)?, what })
}

/// Parses `300ms`, `2s` or `2.5s`, within bounds in milliseconds.
fn time(text: &str, least: u64, most: u64) -> Result<u64, String> {
    let error = || format!("`{text}` is no time from {} to {}", Time(least), Time(most));
    let ms = match (text.strip_suffix("ms"), text.strip_suffix('s')) {
        (Some(ms), _) => ms.parse().ok(),
        (None, Some(seconds)) => {
            let (whole, part) = seconds.split_once('.').unwrap_or((seconds, "0"));
            let digits = part.len() <= 3 && part.bytes().all(|digit| digit.is_ascii_digit());
            let part = format!("{part:0<3}").parse::<u64>().ok().filter(|_| digits);
            let whole = whole.parse::<u64>().ok().and_then(|whole| whole.checked_mul(1_000));
            whole.zip(part).and_then(|(whole, part)| whole.checked_add(part))
        }
        (None, None) => None,
    };
    ms.filter(|ms| (least..=most).contains(ms)).ok_or_else(error)
}

fn size(text: &str, most: u64) -> Result<usize, String> {
    Ok(usize::try_from(number(text, 1, most)?).unwrap_or(1))
}

fn number(text: &str, least: u64, most: u64) -> Result<u64, String> {
    let number = text.parse().ok().filter(|number| (least..=most).contains(number));
    number.ok_or_else(|| format!("`{text}` is no number from {least} to {most}"))
}

/// A time as a script has it.
struct Time(u64);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            ms if ms % 1_000 == 0 => write!(f, "{}s", ms / 1_000),
            ms => write!(f, "{ms}ms"),
        }
    }
}

impl fmt::Display for Fault {
    /// Clients are shown by their numbers: the page knows their names.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let way = |to_client| if to_client { "to" } else { "from" };
        match &self.what {
            What::Drop { to_client, delivery, .. } => {
                write!(
                    f,
                    "the connection ends in place of delivery {delivery} {} the client",
                    way(*to_client)
                )
            }
            What::Delay { to_client, for_ms, .. } => {
                write!(
                    f,
                    "what is sent {} the client is delayed for {}",
                    way(*to_client),
                    Time(*for_ms)
                )
            }
            What::Lose { to_client: Some(to_client), for_ms, .. } => {
                write!(
                    f,
                    "what is sent {} the client is lost for {}",
                    way(*to_client),
                    Time(*for_ms)
                )
            }
            What::Lose { to_client: None, for_ms, .. } => {
                write!(f, "the client is cut off for {}", Time(*for_ms))
            }
            What::Cut { .. } => write!(f, "its connection is cut"),
            What::Stop { for_ms, .. } => write!(f, "the process is stopped for {}", Time(*for_ms)),
            What::Kill { .. } => write!(f, "the process is killed"),
            What::Expire { .. } => write!(f, "the servers end its session"),
            What::Skew { percent, .. } => write!(f, "its clock is wrong by {percent} %"),
            What::Delete { path: Some(path) } => write!(f, "{path} is deleted by hand"),
            What::Delete { path: None } => {
                write!(f, "the first node of the queue is deleted by hand")
            }
            What::Isolate { member, for_ms } => {
                write!(f, "s{member} is cut off from the other servers for {}", Time(*for_ms))
            }
            What::StopMember { member, for_ms } => {
                write!(f, "s{member} is stopped for {}", Time(*for_ms))
            }
            What::Lag { member, for_ms } => write!(f, "s{member} lags for {}", Time(*for_ms)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Script, String> {
        text.parse()
    }

    #[test]
    fn a_script_is_parsed() {
        let text = "seed 7\n# said\nservers 3; session 4s; storage checks\nA: mutex 5s, wait 1.5s, mutex 2s\nB: wait 100ms, strict 1s\n\
                    at 2.5s stop A for 8s\ndrop 3 to B; at 1s skew B -20%; at 1s stop s2 for 1s";
        let script = parsed(text).unwrap();
        let Subject::Clients(setting) = &script.subject else { panic!("{script:?}") };
        assert_eq!((script.seed, setting.servers, setting.storage), (7, 3, Some(true)));
        let steps =
            [Step::Hold(Kind::Mutex, 5_000), Step::Wait(1_500), Step::Hold(Kind::Mutex, 2_000)];
        assert_eq!(setting.clients[0].steps, steps);
        let faults = [
            Fault { at_ms: 0, what: What::Drop { client: 1, to_client: true, delivery: 3 } },
            Fault { at_ms: 1_000, what: What::Skew { client: 1, percent: -20 } },
            Fault { at_ms: 1_000, what: What::StopMember { member: 2, for_ms: 1_000 } },
            Fault { at_ms: 2_500, what: What::Stop { client: 0, for_ms: 8_000 } },
        ];
        assert_eq!(script.faults, faults);
    }

    #[test]
    fn a_broken_script_is_refused_with_its_line() {
        for (text, expected) in [
            ("", "no client"),
            ("A: mutex 5s\nB: dance 5s", "line 2 (\"B: dance 5s\"): `dance` is no step"),
            ("A: mutex 5000s", "is no time from 0s to 600s"),
            ("A: mutex 99999999999999999999s", "is no time"),
            ("A: mutex 1.99999s", "is no time"),
            ("A: mutex 5s; A: mutex 5s", "the name A is taken"),
            ("s1: mutex 5s", "the name s1 is taken"),
            ("A: mutex 5s; at 1s kill B", "there is no client B"),
            ("A: mutex 5s; at 1s isolate s9 for 1s", "there is no server s9"),
            ("A: mutex 5s; at 1s explode", "is no fault"),
            ("A: mutex 5s; servers 6", "is no number from 1 to 5"),
            ("A: mutex 5s; drop -1 to A", "is no number"),
            ("A: mutex 5s; at 1s skew A 90%", "-50% to 50%"),
            ("<script>alert(1)</script>", "is no line of a script"),
            ("plan 7; A: mutex 5s", "its own clients"),
            ("schedule (scope:\"mutex-2\",choices:[]); A: mutex 5s", "its own clients"),
            ("schedule (scope:\"mutex-2\",choices:[]); at 1s cut p0", "its own faults"),
            ("schedule (scope:\"mutex-2\",choices:[)", "is no schedule"),
            ("schedule (scope:\"../mutex-2\",choices:[])", "no scope is called"),
            ("schedule (scope:\"mutex-2\",plant:\"x\",choices:[])", "no planted fault"),
            (&"A".repeat(MOST_BYTES + 1), "longer than"),
            (
                &"at 1s kill A;".repeat(65).replacen("at", "A: mutex 1s;at", 1),
                "more than 64 faults",
            ),
        ] {
            let error = parsed(text).unwrap_err();
            assert!(error.contains(expected), "{text:?}: {error}");
            assert!(!error.contains('\n'), "{error:?}");
        }
    }
}
