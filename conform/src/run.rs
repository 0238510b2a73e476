//! Runs the cases against servers.

use std::{
    collections::BTreeMap,
    ops::ControlFlow,
    sync::{
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use crate::{
    case::{self, Case, Need},
    channel::Servers,
    play::{Ended, PATIENCE, Player},
    probe::{self, Unusable},
    received::Received,
    report::{Report, Verdict, VerdictKind},
    value::hex,
    version::Version,
};

/// The number of cases that run at once. It is high because most of them wait for a server.
const AT_ONCE: usize = 12;

/// Above this number of nodes, the final cleanup does not list further children.
const MAX_NODES: usize = 10_000;

/// The label of the connection that creates and deletes the subtrees of cases.
const HOUSEKEEPER: &str = "housekeeper";

/// Adds the credentials that the cases use, so that their nodes can be deleted.
const CREDENTIALS: &str = "auth digest conform:conform";

/// The cases to run, and the servers.
#[derive(Debug, Clone)]
pub struct Options {
    servers: Vec<String>,
    only: Option<String>,
    version: Option<Version>,
    auth: Option<(String, String)>,
    parent: String,
    allows_harm: bool,
    /// The time limit for a reply.
    pub(crate) patience: Duration,
}

impl Options {
    /// Selects all cases, on servers `HOST:PORT` of one ensemble.
    pub fn new(servers: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self {
            servers: servers.into_iter().map(Into::into).collect(),
            only: None,
            version: None,
            auth: None,
            parent: "/".to_owned(),
            allows_harm: false,
            patience: PATIENCE,
        }
    }

    /// Selects only the cases whose names contain this text; `*` stands for any characters.
    #[must_use]
    pub fn only(mut self, pattern: impl Into<String>) -> Self {
        self.only = Some(pattern.into());
        self
    }

    /// Sets the version of the servers. By default, it is taken from the reply to `srvr`.
    #[must_use]
    pub const fn version(mut self, version: Version) -> Self {
        self.version = Some(version);
        self
    }

    /// Sets the credentials of the connections that create and delete nodes: a scheme, and the data that it requires.
    #[must_use]
    pub fn auth(mut self, scheme: impl Into<String>, auth: impl Into<String>) -> Self {
        self.auth = Some((scheme.into(), auth.into()));
        self
    }

    /// Sets the node below which the cases run. The default is `/`.
    #[must_use]
    pub fn parent(mut self, path: impl Into<String>) -> Self {
        self.parent = path.into();
        self
    }

    /// Also sends requests that may harm the servers: some versions crash, or lose their log.
    #[must_use]
    pub const fn allow_harm(mut self) -> Self {
        self.allows_harm = true;
        self
    }

    fn is_chosen(&self, case: &Case) -> bool {
        self.only.as_deref().is_none_or(|pattern| matches(pattern, &case.id))
    }

    fn player<'a>(&self, servers: &'a mut Servers, version: Version, root: &str) -> Player<'a> {
        let mut player = Player::new(servers, version, root.to_owned());
        (player.allows_harm, player.patience) = (self.allows_harm, self.patience);
        player
    }
}

/// Whether a name contains the parts of a pattern in order; `*` separates them.
#[must_use]
pub fn matches(pattern: &str, text: &str) -> bool {
    let mut rest = Some(text);
    for part in pattern.split('*') {
        rest = rest.and_then(|rest| rest.split_once(part)).map(|(_, behind)| behind);
    }
    rest.is_some()
}

/// Runs the cases, and reports each verdict as soon as it is known, in the order of the cases. [`ControlFlow::Break`]
/// ends the run early: no further case begins.
///
/// Everything happens below a new node, which is deleted at the end.
///
/// # Errors
///
/// If nothing can be tested, because there is no server, the program at the address is not a server, or permissions are
/// missing; or if the servers do not reply any more at the end. The error is one line. A case that fails is not an
/// error.
pub fn run(
    options: &Options,
    mut report: impl FnMut(&Verdict) -> ControlFlow<()>,
) -> Result<Report, Unusable> {
    let cases = case::all().map_err(Unusable::Usage)?;
    let cases: Vec<_> = cases.iter().filter(|case| options.is_chosen(case)).collect();
    let usage = |text: String| Unusable::Usage(text);
    let first = options.servers.first().ok_or_else(|| usage("no server is given".into()))?;
    if cases.is_empty() {
        let pattern = options.only.as_deref().unwrap_or_default();
        return Err(usage(format!("no case has a name with `{pattern}`")));
    }
    let version = match options.version {
        Some(version) => Some(version),
        None => probe::version(first)?,
    };
    let base = format!("{}/docent-conform-{}", options.parent.trim_end_matches('/'), random());
    let mut servers = Servers(options.servers.clone());
    // A program that is not a server is reported as such, before its missing version is.
    let mut player = options.player(&mut servers, version.unwrap_or(Version::UNKNOWN), &base);
    probe::begin(&mut player, HOUSEKEEPER, first)?;
    for address in options.servers.iter().skip(1) {
        probe::connect(address)?;
    }
    let version = version.ok_or_else(|| {
        usage(format!("{first}: no version in its reply to `srvr`: give it by --version"))
    })?;
    // A toy may close the connection instead of a reply, so this connection is another one.
    let has_auth = player.ask("credentials", CREDENTIALS).is_ok_and(|reply| reply.kind == "OK");
    authenticate(options, &mut player, first)?;
    let created = ask(&mut player, "create ~", first)?;
    if created.kind != "OK" {
        let hint = match created.kind.as_str() {
            "NOAUTH" => ": give --parent with a node that may be used, or --auth",
            "NOTREADONLY" => ": it is read-only, its ensemble has no quorum",
            "SESSIONCLOSEDREQUIRESASLAUTH" => ": the server needs credentials",
            _ => "",
        };
        return Err(Unusable::Server(format!("{first}: create {base}: {}{hint}", created.kind)));
    }
    let verdicts = play_all(options, &cases, version, &base, &mut report);
    let mut servers = Servers(options.servers.clone());
    let mut player = options.player(&mut servers, version, &base);
    let mut left = Vec::new();
    probe::begin(&mut player, HOUSEKEEPER, first)
        .and_then(|()| authenticate(options, &mut player, first))
        .map_err(|error| Unusable::Server(format!("after the cases: {error}; {base} is left")))?;
    if has_auth {
        ask(&mut player, CREDENTIALS, first)?;
    }
    delete_all(&mut player, &base, &mut left);
    Ok(Report { verdicts, left })
}

fn ask(player: &mut Player<'_>, request: &str, address: &str) -> Result<Received, Unusable> {
    player.ask(HOUSEKEEPER, request).map_err(|ended| match ended {
        Ended::Unplayable(why) | Ended::Skipped(why) => {
            Unusable::Server(format!("{address}: {why}"))
        }
        Ended::Deviation { actual, .. } => Unusable::Server(format!("{address}: {actual}")),
    })
}

/// Adds the credentials of the options.
fn authenticate(options: &Options, player: &mut Player<'_>, address: &str) -> Result<(), Unusable> {
    if let Some((scheme, auth)) = &options.auth {
        let request = format!("auth {scheme} hex:{}", hex(auth.as_bytes()));
        let received = ask(player, &request, address)?;
        if received.kind != "OK" {
            return Err(Unusable::Server(format!("{address}: --auth {scheme}: {}", received.kind)));
        }
    }
    Ok(())
}

/// Plays the cases on several threads.
fn play_all(
    options: &Options,
    cases: &[&Case],
    version: Version,
    base: &str,
    report: &mut impl FnMut(&Verdict) -> ControlFlow<()>,
) -> Vec<Verdict> {
    let next = AtomicUsize::new(0);
    let (sender, receiver) = mpsc::channel();
    let (mut early, mut verdicts) = (BTreeMap::new(), Vec::new());
    thread::scope(|scope| {
        for _ in 0..AT_ONCE.min(cases.len()) {
            let (sender, next) = (sender.clone(), &next);
            scope.spawn(move || {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(case) = cases.get(index) else { return };
                    // The receiver outlives the threads.
                    let _ = sender.send((index, judge(options, case, version, base)));
                }
            });
        }
        drop(sender);
        for (index, verdict) in receiver {
            early.insert(index, verdict);
            while let Some(verdict) = early.remove(&verdicts.len()) {
                if report(&verdict).is_break() {
                    next.store(cases.len(), Ordering::Relaxed);
                    return;
                }
                verdicts.push(verdict);
            }
        }
    });
    verdicts
}

/// Plays one case in a separate subtree.
fn judge(options: &Options, case: &Case, version: Version, base: &str) -> Verdict {
    let server = options.servers.join(",");
    let verdict = |result| Verdict::new(case, &server, &version.to_string(), result);
    let skip = |why: &str| Verdict { step: why.to_owned(), ..verdict(VerdictKind::Skip) };
    if !case.versions.contains(version) {
        return skip("about other versions");
    }
    for need in &case.needs {
        match need {
            Need::Servers if options.servers.len() < 2 => return skip("needs several servers"),
            Need::Harmful if !options.allows_harm => return skip("may harm the server"),
            Need::Servers | Need::Harmful => {}
        }
    }
    let mut servers = Servers(options.servers.clone());
    let root = format!("{base}/{}", case.id.replace('/', "-"));
    let mut player = options.player(&mut servers, version, &root);
    let played = player.ask(HOUSEKEEPER, "create ~").and_then(|created| {
        if created.kind == "OK" {
            return player.play(case);
        }
        Err(Ended::Unplayable(format!("create {root}: {created}")))
    });
    match played {
        Ok(()) => verdict(VerdictKind::Pass),
        Err(Ended::Deviation { step, expected, actual }) => {
            Verdict { step, expected, actual, ..verdict(VerdictKind::Fail) }
        }
        Err(Ended::Skipped(why)) => skip(&why),
        Err(Ended::Unplayable(why)) => Verdict { actual: why, ..verdict(VerdictKind::Fail) },
    }
}

/// Deletes a node and everything below it. Adds nodes that cannot be deleted to `left`. After a request without a reply, the
/// others are not sent.
fn delete_all(player: &mut Player<'_>, base: &str, left: &mut Vec<String>) {
    let (mut todo, mut count) = (vec![(base.to_owned(), false)], 0);
    while let Some((path, is_empty)) = todo.pop() {
        let mut ask = |op: &str| {
            let reply = player.ask(HOUSEKEEPER, &format!("{op} \"{path}\"")).ok();
            reply.filter(|reply| !["nothing", "closed"].contains(&reply.kind.as_str()))
        };
        let is_listed = !is_empty && count < MAX_NODES;
        let Some(reply) = ask(if is_listed { "getChildren" } else { "delete" }) else {
            left.push(format!("{base}: no reply at {path}"));
            return;
        };
        if is_listed {
            let names = reply.fields.get("children").filter(|names| *names != "empty").cloned();
            let names = names.unwrap_or_default();
            todo.push((path.clone(), true));
            for name in names.split(',').filter(|name| !name.is_empty()) {
                count += 1;
                todo.push((format!("{path}/{name}"), false));
            }
            continue;
        }
        if !["OK", "NONODE"].contains(&reply.kind.as_str()) {
            left.push(format!("{path}: {}", reply.kind));
        }
    }
}

/// Eight hexadecimal digits.
fn random() -> String {
    let mut bytes = [0; 4];
    // If the system has no randomness, two concurrent runs choose the same name, and the second one
    // fails because its node exists.
    let _ = getrandom::fill(&mut bytes);
    hex(&bytes)
}
