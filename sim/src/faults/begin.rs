//! The effect of each fault on the world, and its end.

use std::time::Duration;

use docent_protocol::Perms;
use docent_session::planted;
use docent_testing::server::{Ensemble, Version};

use super::{Direction, Fault, FaultKind, Flow, KillKind};
use crate::world::{
    World,
    disturbances::{Apart, Away},
    history::What,
    process::Death,
    time::MILLISECOND,
};

impl World {
    /// Schedules all faults, and the peace.
    pub(crate) fn plan_faults(&self, faults: &[Fault], peace_at_ms: u64) {
        for fault in faults {
            let kind = fault.kind.clone();
            self.at(fault.at_ms * MILLISECOND, move |world| world.begin(&kind));
        }
        self.at(peace_at_ms * MILLISECOND, Self::make_peace);
    }

    fn note(&self, text: impl Into<String>) {
        self.record(What::Fault(text.into()));
    }

    fn servers<R>(&self, call: impl FnOnce(&mut Ensemble, Duration) -> R) {
        let now = self.elapsed();
        self.core().with_servers(now, call);
    }

    fn ends_after(&self, ms: u64, action: impl FnOnce(&Self) + Send + 'static) {
        self.at(self.now() + ms * MILLISECOND, action);
    }

    /// Switches something on, and off again after this time.
    fn lasts(&self, ms: u64, set: impl Fn(&Self, bool) + Send + 'static) {
        set(self, true);
        self.ends_after(ms, move |world| set(world, false));
    }

    /// Switches something on at the servers, and off again after this time.
    fn lasts_there(&self, ms: u64, set: impl Fn(&mut Ensemble, Duration, bool) + Send + 'static) {
        self.lasts(ms, move |world, on| world.servers(|servers, now| set(servers, now, on)));
    }

    /// The number of a member; `None`: the leader now, if there is one.
    fn member(&self, member: Option<usize>) -> Option<usize> {
        member.or_else(|| self.core().servers.ensemble.leader())
    }

    /// Ends all faults that last.
    fn make_peace(&self) {
        self.note("peace");
        let now = self.elapsed();
        let mut core = self.core();
        core.puts_off_one_in = 0;
        core.network.spikes_one_in = 0;
        core.severed_at_grant.clear();
        core.network.names.clear();
        core.heal_links(now);
        let peace = self.now();
        core.disturbances.make_peace(peace);
        for process in &mut core.processes {
            process.disturbed_until = peace;
        }
        let members = core.servers.count;
        core.servers.lagging.clear();
        core.with_servers(now, |servers, now| {
            servers.heal_all(now);
            servers.throttle(0);
            servers.stall_disks(now, false);
            servers.set_full(None);
            for member in 0..members {
                servers.resume_member(now, member, false);
                servers.set_lag(now, member, false);
                start(servers, now, member);
            }
        });
        let processes = core.processes.len();
        drop(core);
        (0..processes).for_each(|pid| self.continue_process(pid));
    }

    /// Notes that a member may renew sessions without the leader for this time. A single server is its own leader.
    fn renew_apart(&self, member: usize, for_ms: u64) {
        let now = self.now();
        let mut core = self.core();
        if core.servers.count > 1 {
            // A leader that stands still, or is cut off, hears nothing of the other members' clients: then each member
            // counts.
            let is_leader = core.servers.ensemble.leader() == Some(member);
            core.disturbances.renew_apart(now, (!is_leader).then_some(member), for_ms);
        }
    }

    /// Like `renew_apart`, but at most for the sync limit, after which members give each other up.
    fn renew_until_given_up(&self, member: usize, for_ms: u64) {
        let limit_ms = self.core().disturbances.sync_limit_ms;
        self.renew_apart(member, for_ms.min(limit_ms));
    }

    /// One of the nodes of the recipes, if there are any.
    fn some_path(&self, node: u16) -> Option<String> {
        let mut nodes = self.core().paths();
        (!nodes.is_empty()).then(|| nodes.swap_remove(usize::from(node) % nodes.len()))
    }

    /// Cuts the connections of the clients that missed events because they had no permission to read: until a reconnect,
    /// nothing shows them the changes.
    fn reconnect_unnotified(&self) {
        self.servers(|servers, _| {
            for session in servers.take_unnotified() {
                servers.cut_session(session);
            }
        });
    }

    fn note_cut(&self, for_ms: u64) {
        let now = self.now();
        self.core().disturbances.note_cut(now, for_ms);
    }

    /// Heals the links of a process this long after it was severed.
    fn heal_severed(&self, process: usize, for_ms: u64) {
        self.ends_after(for_ms, move |world| {
            let core = world.core();
            let is_waited_for = core.severed_at_grant.contains_key(&process);
            let is_severed = core.is_severed(process);
            drop(core);
            if is_waited_for && !is_severed {
                return world.heal_severed(process, for_ms);
            }
            world.ends_after(for_ms, move |world| {
                let (now, mut core) = (world.elapsed(), world.core());
                for member in 0..core.servers.count {
                    core.set_link(now, (process, member), Direction::ToServer, Flow::Pass);
                }
            });
        });
    }

    pub(crate) fn begin(&self, kind: &FaultKind) {
        if let Some(process) = kind.process()
            && process >= self.core().processes.len()
        {
            return;
        }
        self.note(format!("{kind:?}"));
        let now = self.elapsed();
        let until = self.now() + kind.lasts_ms() * MILLISECOND;
        {
            let mut core = self.core();
            let away = kind.takes_away(core.ensemble().leader());
            core.disturb(kind.process(), away, until);
        }
        match *kind {
            FaultKind::Cut { process, sides } => self.core().cut_process(now, process, sides),
            FaultKind::Trap { process, ref trap } => self.core().set_trap(process, trap.clone()),
            FaultKind::Link { process, member, direction, flow, for_ms } => {
                let members = self.core().servers.count;
                let directions = [Direction::ToServer, Direction::ToClient];
                let links: Vec<_> = (0..members)
                    .filter(|at| member.is_none_or(|member| member == *at))
                    .flat_map(|at| directions.map(|direction| (at, direction)))
                    .filter(|(_, of)| direction.is_none_or(|direction| direction == *of))
                    .collect();
                self.lasts(for_ms, move |world, on| {
                    let (now, flow) = (world.elapsed(), if on { flow } else { Flow::Pass });
                    for (member, direction) in &links {
                        world.core().set_link(now, (process, *member), *direction, flow);
                    }
                });
            }
            FaultKind::Slow { process, by_ms, for_ms } => {
                let members = self.core().servers.count;
                self.lasts(for_ms, move |world, on| {
                    let by = if on { by_ms * MILLISECOND } else { 0 };
                    (0..members).for_each(|at| world.core().slow_link((process, at), by));
                });
            }
            FaultKind::Stop { process, for_ms } => {
                self.stop_process(process);
                self.ends_after(for_ms, move |world| world.continue_process(process));
            }
            FaultKind::Kill { process, how } => {
                let death = match how {
                    KillKind::Killed => Death::Killed,
                    KillKind::PoweredOff => Death::PoweredOff,
                    KillKind::ShutDown => Death::ShutDown,
                };
                self.end_process(process, death);
            }
            FaultKind::Expire { process } => {
                let session = self.core().processes[process].session;
                if let Some(session) = session {
                    let now_at = self.now();
                    self.core().disturbances.expired.insert(session, now_at);
                    self.servers(|servers, _| servers.expire_session(session));
                }
            }
            FaultKind::StopMember { member, for_ms } => {
                let Some(member) = self.member(member) else { return };
                self.renew_until_given_up(member, for_ms);
                self.lasts_there(for_ms, move |servers, now, on| stop(servers, now, member, on));
            }
            FaultKind::Upgrade { member, ref version, for_ms } => {
                let Some(version) = Version::from_number(version) else { return };
                self.renew_until_given_up(member, for_ms);
                self.lasts_there(for_ms, move |servers, now, on| {
                    stop(servers, now, member, on);
                    if on {
                        servers.set_version(member, version);
                    }
                });
            }
            FaultKind::StallDisks { for_ms } => {
                let limit_ms = {
                    let of = &self.core().disturbances;
                    of.sync_limit_ms.saturating_sub(2 * of.tick / MILLISECOND)
                };
                self.lasts_there(for_ms.min(limit_ms), |servers, now, on| {
                    servers.stall_disks(now, on);
                });
            }
            FaultKind::Resolve { server, leads_to, for_ms } => {
                let members = self.core().servers.count;
                let leads_to = leads_to.filter(|to| *to < members);
                self.lasts(for_ms, move |world, on| {
                    let names = &mut world.core().network.names;
                    for name in (0..members).filter(|at| server.is_none_or(|of| of == *at)) {
                        if on {
                            names.insert(name, leads_to)
                        } else {
                            names.remove(&name)
                        };
                    }
                });
            }
            FaultKind::UseUpQuota { node, for_ms } => {
                let Some(path) = self.some_path(node) else { return };
                let top = path.split('/').nth(1).unwrap_or_default();
                let path = format!("/{top}");
                self.note(format!("the nodes are those of {path}"));
                self.core().disturbances.deny(&path, until);
                self.lasts_there(for_ms, move |servers, _, on| {
                    servers.set_full(on.then_some(path.as_str()));
                });
            }
            FaultKind::Lag { member, for_ms } => {
                let lag = Apart { member: Some(member), from: self.now(), until };
                self.core().disturbances.lags.push(lag);
                self.lasts(for_ms, move |world, lags| {
                    let lagging = &mut world.core().servers.lagging;
                    if lags {
                        lagging.insert(member)
                    } else {
                        lagging.remove(&member)
                    };
                });
                self.lasts_there(for_ms, move |servers, now, on| servers.set_lag(now, member, on));
            }
            FaultKind::Isolate { member, for_ms } => {
                let Some(member) = self.member(member) else { return };
                self.renew_until_given_up(member, for_ms);
                self.note_cut(for_ms);
                let members = self.core().servers.count;
                self.lasts_there(for_ms, move |servers, now, on| {
                    if on {
                        return servers.isolate(now, member);
                    }
                    for other in (0..members).filter(|other| *other != member) {
                        servers.heal(now, member, other);
                        servers.heal(now, other, member);
                    }
                });
            }
            FaultKind::CutMembers { from, to, for_ms } => {
                self.renew_until_given_up(from, for_ms);
                self.renew_until_given_up(to, for_ms);
                self.note_cut(for_ms);
                self.lasts_there(for_ms, move |servers, now, on| {
                    if on { servers.cut(now, from, to) } else { servers.heal(now, from, to) }
                });
            }
            FaultKind::IsolateFromClients { member, for_ms } => {
                use docent_testing::server::Peer;
                self.lasts_there(for_ms, move |servers, now, on| {
                    if on {
                        return servers.isolate_from_clients(now, member);
                    }
                    servers.heal(now, Peer::Clients, member);
                    servers.heal(now, member, Peer::Clients);
                });
            }
            FaultKind::Throttle { requests } => {
                let at = self.now();
                self.core().disturbances.throttled.push(at);
                self.servers(|servers, _| servers.throttle(requests));
            }
            FaultKind::RestartAll { for_ms } => {
                let members = self.core().servers.count;
                self.lasts_there(for_ms, move |servers, now, on| {
                    (0..members).for_each(|member| stop(servers, now, member, on));
                });
            }
            FaultKind::RestoreBackup { age_ms, for_ms } => {
                let members = self.core().servers.count;
                self.servers(|servers, _| servers.make_backup());
                self.ends_after(age_ms, move |world| {
                    let until = world.now() + for_ms * MILLISECOND;
                    world.core().disturb(None, Away::All, until);
                    world.note("the backup is restored");
                    world.lasts_there(for_ms, move |servers, now, on| {
                        // Another fault may have started a member meanwhile.
                        (0..members).for_each(|member| servers.stop_member(now, member));
                        if !on {
                            (0..members).for_each(|member| servers.restore_backup(member));
                            (0..members).for_each(|member| servers.start_member(now, member));
                        }
                    });
                });
            }
            FaultKind::PauseMember { member, for_ms, clients_first } => {
                let Some(member) = self.member(member) else { return };
                // When it continues, it answers waiting requests before it knows that it no longer leads.
                self.renew_apart(member, for_ms);
                self.note_cut(for_ms);
                self.servers(|servers, now| servers.pause_member(now, member));
                self.ends_after(for_ms, move |world| {
                    world.renew_until_given_up(member, for_ms);
                    world.servers(|servers, now| servers.resume_member(now, member, clients_first));
                });
            }
            FaultKind::Starve { process, task, .. } => {
                let until = until.min(self.core().disturbances.peace_at);
                self.core().starve(process, task, until);
                self.at(until, move |world| world.core().process_mut(process).interruptions += 1);
            }
            FaultKind::Clock { process, drift_ppm } => {
                let now = self.now();
                self.core().process_mut(process).set_drift(now, drift_ppm);
            }
            FaultKind::Limit { member, timeout_ms } => {
                let limit = Duration::from_millis(timeout_ms);
                let members = 0..self.core().servers.count;
                for at in members.filter(|at| member.is_none_or(|member| member == *at)) {
                    self.servers(|servers, _| servers.set_max_session_timeout(at, limit));
                }
            }
            FaultKind::Deny { node, perms, for_ms } => {
                let Some(path) = self.some_path(node) else { return };
                self.note(format!("the node is {path}"));
                self.core().disturbances.deny(&path, until);
                self.lasts_there(for_ms, move |servers, _, on| {
                    let denied = if on { perms } else { 0 };
                    servers.set_perms(&path, Perms::from_number(Perms::ALL.number() & !denied));
                });
                self.ends_after(for_ms, Self::reconnect_unnotified);
            }
            FaultKind::SeverAtGrant { process, for_ms } => {
                self.core().severed_at_grant.insert(process, for_ms * MILLISECOND);
                self.heal_severed(process, for_ms);
            }
            FaultKind::Suspend { process, for_ms, jump_ms } => {
                self.stop_process(process);
                self.jump(process, jump_ms * MILLISECOND);
                self.ends_after(for_ms, move |world| world.continue_process(process));
            }
        }
    }
}

/// Stops a member, or starts it.
fn stop(servers: &mut Ensemble, now: Duration, member: usize, stops: bool) {
    if stops {
        servers.stop_member(now, member);
    } else {
        start(servers, now, member);
    }
}

/// Starts a member that is stopped.
fn start(servers: &mut Ensemble, now: Duration, member: usize) {
    if planted::is("log-lost") {
        servers.restore_backup(member);
    }
    servers.start_member(now, member);
}
