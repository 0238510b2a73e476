//! `--fault NAME --service SERVICE`: runs one fault, in rounds. Several rounds run at the same time, each on a
//! different lock: a fault of a process or of a server affects all of them.
//!
//! In each round, a holder acquires the lock and works, a second contender waits for it, and the fault happens.
//! The resource counts late writes ([`super::resource`]).

use std::{
    fs,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use xtask::{
    Arguments, Result, TemporaryDirectory,
    command::{find, output},
};

use super::{
    microseconds, random,
    resource::{Record, Resource, is_of},
    results,
    servers::{Kind, Servers, pooler, send, start_this_program},
    services::{ENTRIES, Entry, entry},
};
use crate::{process::Process, proxy::Proxy, statistics};

/// A fault, and the services that it applies to.
pub(crate) struct Fault {
    pub(crate) name: &'static str,
    pub(crate) services: fn(&Entry) -> bool,
    /// Whether the servers sync their writes to the disk.
    pub(crate) fsync: bool,
}

const fn has_server(service: &Entry) -> bool {
    !matches!(service.kind, Kind::File)
}

fn is_redis(service: &Entry) -> bool {
    matches!(service.kind, Kind::Redis | Kind::Redis3)
}

fn is_postgres(service: &Entry) -> bool {
    service.kind == Kind::Postgres
}

/// The faults, which docs/LOCK-SERVICES.md describes.
pub(crate) const FAULTS: [Fault; 13] = [
    fault("none", |_| true),
    fault("holder-stopped", |_| true),
    fault("server-stopped", has_server),
    fault("server-killed", has_server),
    Fault { fsync: false, ..fault("server-killed-volatile", is_redis) },
    fault("server-restored", |service| {
        service.has_lease && service.name != "zookeeper-docent-pipelined"
    }),
    fault("reply-lost", has_server),
    fault("clock-moved", is_redis),
    fault("redis-failover", |service| service.kind == Kind::Redis),
    Fault { fsync: false, ..fault("majority-restarted", |service| service.kind == Kind::Redis3) },
    fault("backend-killed", is_postgres),
    fault("pooler", is_postgres),
    fault("lease-revoked", |service| service.kind == Kind::Etcd),
];

const fn fault(name: &'static str, services: fn(&Entry) -> bool) -> Fault {
    Fault { name, services, fsync: true }
}

/// The lease of all services. etcd grants no shorter one; ZooKeeper's shortest is one second here.
const LEASE: Duration = Duration::from_secs(2);

/// The time limit of a contender: twice the length of two leases, one renewed at the fault and one more to wait for.
const LIMIT: Duration = Duration::from_secs(4 * LEASE.as_secs());

/// Puts glibc's allocator in front of Redis's jemalloc, which reads the clock before libfaketime is ready.
const MALLOC: &str = "/lib/x86_64-linux-gnu/libc_malloc_debug.so.0";

/// The name of the file with the offset of libfaketime.
const OFFSET: &str = "offset";

/// The time for a waiter to join the queue, and for late writes to arrive: several steps of a holder.
const SETTLE: Duration = Duration::from_millis(400);

/// The servers of the rounds, and their parameters.
struct Scene<'a> {
    fault: &'a str,
    service: &'static Entry,
    fsync: bool,
    servers: Servers,
    resource: Resource,
    /// The directory with the file from which libfaketime reads its offset.
    clock: Option<TemporaryDirectory>,
}

/// The result of one round.
#[derive(Debug, Clone, Default)]
struct Round {
    record: Record,
    /// Milliseconds from the fault until the next contender has acquired the lock.
    next_after: Option<f64>,
    holder_said_lost: bool,
}

pub(crate) fn run(arguments: &Arguments, name: &str) -> Result<()> {
    let fault = FAULTS.iter().find(|fault| fault.name == name).ok_or_else(|| {
        let names: Vec<_> = FAULTS.iter().map(|fault| fault.name).collect();
        format!("no fault {name:?}; the faults are {}", names.join(", "))
    })?;
    let service = entry(arguments.text("service").ok_or("--service is missing")?)?;
    if !(fault.services)(service) {
        let names = ENTRIES.iter().filter(|entry| (fault.services)(entry)).map(|entry| entry.name);
        let names: Vec<_> = names.collect();
        return Err(format!("{name} is about {}", names.join(", ")).into());
    }
    let rounds: usize = arguments.number("rounds", 200)?;
    let parallel: usize = arguments.number("parallel", 25)?;
    let fsync = match arguments.text("fsync") {
        None => fault.fsync,
        Some("on") => true,
        Some("off") => false,
        Some(other) => return Err(format!("--fsync {other}: on or off").into()),
    };
    let begin = Instant::now();
    let mut done: Vec<Round> = Vec::new();
    let mut failure = None;
    match Scene::new(name, service, fsync) {
        Err(error) => failure = Some(error.to_string()),
        Ok(mut scene) => {
            let mut failed = 0;
            while done.len() < rounds {
                match scene.batch(parallel.min(rounds - done.len())) {
                    Ok(rounds) => done.extend(rounds),
                    Err(error) => {
                        eprintln!("bench: {name}, {}: {error}", service.name);
                        failure = Some(error.to_string());
                        failed += 1;
                        if failed == 3 {
                            break;
                        }
                        scene = Scene::new(name, service, fsync)?;
                    }
                }
            }
        }
    }
    let line = summary(fault, service, fsync, &done, failure, begin.elapsed());
    println!("{line}");
    if arguments.flag("save") {
        results::append("faults", &line)?;
    }
    Ok(())
}

fn summary(
    fault: &Fault,
    service: &Entry,
    fsync: bool,
    rounds: &[Round],
    failure: Option<String>,
    took: Duration,
) -> Value {
    let count =
        |condition: fn(&Round) -> bool| rounds.iter().filter(|round| condition(round)).count();
    let has_token = rounds.iter().all(|round| !round.record.without_token);
    let mut after: Vec<_> = rounds.iter().filter_map(|round| round.next_after).collect();
    after.sort_by(f64::total_cmp);
    let mut line = json!({
        "fault": fault.name,
        "service": service.name,
        "fsync": fsync,
        "rounds": rounds.len(),
        "violations": count(|round| round.record.late > 0),
        "late_writes": rounds.iter().map(|round| round.record.late).sum::<u64>(),
        "wrong_answers": count(|round| round.record.wrong_answers > 0),
        "said_lost": count(|round| round.holder_said_lost),
        "next_acquired": after.len(),
        "next_after_ms": statistics::quantile(&after, 0.5),
        "next_after_max_ms": after.last(),
        "seconds": took.as_secs_f64().round(),
        "date": results::date(),
    });
    if let Some(line) = line.as_object_mut() {
        if has_token && !rounds.is_empty() {
            let despite = count(|round| round.record.late_despite_token > 0);
            line.insert("violations_despite_token".into(), despite.into());
        }
        if rounds.is_empty() {
            line.insert("error".into(), failure.unwrap_or_default().into());
        }
    }
    line
}

impl<'a> Scene<'a> {
    fn new(fault: &'a str, service: &'static Entry, fsync: bool) -> Result<Self> {
        let (mut environment, mut clock) = (Vec::new(), None);
        if fault == "clock-moved" {
            let library = "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1";
            fs::metadata(library).map_err(|_| "no libfaketime (Debian package libfaketime)")?;
            let directory = TemporaryDirectory::new("clock")?;
            let file = directory.path().join(OFFSET);
            fs::write(&file, "+0\n")?;
            environment = vec![
                ("LD_PRELOAD", format!("{MALLOC}:{library}")),
                ("FAKETIME_TIMESTAMP_FILE", file.display().to_string()),
                ("FAKETIME_NO_CACHE", "1".into()),
                ("FAKETIME_DONT_FAKE_MONOTONIC", "1".into()),
            ];
            clock = Some(directory);
        }
        let servers = Servers::start_with(service.kind, fsync, &environment)?;
        Ok(Self { fault, service, fsync, servers, resource: Resource::start()?, clock })
    }

    /// Starts a contender for all locks of a batch.
    fn agent(&self, name: &str, addresses: &[String], locks: &[String]) -> Result<Process> {
        let lease = LEASE.as_millis().to_string();
        let (addresses, locks) = (addresses.join(","), locks.join(","));
        let words = ["locks", "client", self.service.name, "agent", "--agent", name];
        let options = ["--addresses", &addresses, "--lease-ms", &lease, "--locks", &locks];
        let resource = ["--resource", &self.resource.address()];
        let mut agent = start_this_program(&[&words[..], &options, &resource].concat())?;
        agent.expect("ready")?;
        Ok(agent)
    }

    fn batch(&mut self, count: usize) -> Result<Vec<Round>> {
        let batch = random();
        let locks: Vec<_> = (0..count).map(|number| format!("l{batch:x}-{number}")).collect();
        let (since, next) = match self.fault {
            "redis-failover" => (self.failover(&locks)?, "waiter"),
            "lease-revoked" => (self.revoke(&locks)?, "third"),
            "reply-lost" => (self.lose_replies(&locks)?, "holder"),
            _ => (self.with_waiter(&locks)?, "waiter"),
        };
        let round = |lock: &String| {
            let record = self.resource.record(lock);
            let entered = record.entered.iter().find(|(grant, _)| is_of(grant, next));
            let next_after = entered.map(|(_, at)| at.saturating_sub(since) as f64 / 1000.0);
            let holder_said_lost = record.lost.iter().any(|grant| is_of(grant, "holder"));
            Round { record, next_after, holder_said_lost }
        };
        Ok(locks.iter().map(round).collect())
    }

    /// Lets an agent acquire all locks.
    fn acquire(&self, agent: &mut Process, name: &str, locks: &[String]) -> Result<()> {
        agent.send("acquire")?;
        if self.resource.wait_for(name, locks, 5 * LEASE) {
            return Ok(());
        }
        Err(format!("the {name} did not acquire its locks").into())
    }

    /// Runs a round with a holder and a waiter. Returns the time at which the fault began.
    fn with_waiter(&mut self, locks: &[String]) -> Result<u64> {
        let snapshot = if self.fault == "server-restored" {
            // The agent creates the nodes that the locks need: without them, the snapshot would be a different fault.
            drop(self.agent("before", self.servers.addresses(), locks)?);
            self.servers.stop()?;
            let copy = self.servers.copy_data()?;
            self.servers.start_again()?;
            Some(copy)
        } else {
            None
        };
        let pooler =
            if self.fault == "pooler" { Some(pooler(self.servers.address())?) } else { None };
        let addresses = match &pooler {
            Some((_, _, address)) => vec![address.clone()],
            None => self.servers.addresses().to_vec(),
        };
        let mut holder = self.agent("holder", &addresses, locks)?;
        let mut waiter = self.agent("waiter", &addresses, locks)?;
        self.acquire(&mut holder, "holder", locks)?;
        waiter.send("acquire")?;
        thread::sleep(SETTLE);
        let since = microseconds();
        let all = usize::MAX;
        match self.fault {
            "none" => holder.send("release")?,
            "holder-stopped" => {
                send(holder.id(), Signal::SIGSTOP)?;
                self.resource.wait_for("waiter", locks, LIMIT);
                thread::sleep(SETTLE / 4);
                send(holder.id(), Signal::SIGCONT)?;
                thread::sleep(SETTLE);
            }
            "server-stopped" => {
                self.servers.signal(Signal::SIGSTOP, all)?;
                thread::sleep(LEASE * 3 / 2);
                self.servers.signal(Signal::SIGCONT, all)?;
            }
            "server-killed" | "server-killed-volatile" => {
                self.servers.kill(all)?;
                self.servers.start_again()?;
            }
            "server-restored" => {
                self.servers.kill(all)?;
                if let Some(snapshot) = &snapshot {
                    self.servers.restore_data(snapshot)?;
                }
                self.servers.start_again()?;
            }
            "majority-restarted" => {
                self.servers.kill(2)?;
                self.servers.start_again()?;
            }
            "clock-moved" => {
                let file = self.clock.as_ref().ok_or("no clock")?.path().join(OFFSET);
                let text = fs::read_to_string(&file)?;
                let offset: u64 = text.trim().trim_start_matches('+').parse()?;
                fs::write(file, format!("+{}\n", offset + 3600))?;
            }
            "backend-killed" => terminate_backends(self.servers.address())?,
            "pooler" => {}
            other => return Err(format!("no fault {other:?}").into()),
        }
        // The holder goes on working: its writes after the waiter's grant are late.
        self.resource.wait_for("waiter", locks, LIMIT);
        thread::sleep(SETTLE);
        Ok(since)
    }

    /// The primary is killed, and a replica is promoted that had lost its connection to the primary before.
    fn failover(&mut self, locks: &[String]) -> Result<u64> {
        let mut replica = Servers::start(Kind::Redis, self.fsync)?;
        let proxy = Proxy::start(self.servers.address())?;
        let (host, port) = (proxy.address(), replica.address().to_owned());
        let (host, of_proxy) = host.split_once(':').ok_or("an address without a port")?;
        redis(&port, &["REPLICAOF", host, of_proxy])?;
        let deadline = Instant::now() + Duration::from_secs(10);
        while !redis(&port, &["INFO", "replication"])?.contains("master_link_status:up") {
            if Instant::now() > deadline {
                return Err("the replica did not connect".into());
            }
            thread::sleep(Duration::from_millis(50));
        }
        let mut holder = self.agent("holder", self.servers.addresses(), locks)?;
        // Commands that the primary forwards from now on do not reach the replica.
        proxy.stall();
        self.acquire(&mut holder, "holder", locks)?;
        let since = microseconds();
        self.servers.kill(usize::MAX)?;
        redis(&port, &["REPLICAOF", "NO", "ONE"])?;
        let mut waiter = self.agent("waiter", replica.addresses(), locks)?;
        waiter.send("acquire")?;
        self.resource.wait_for("waiter", locks, LIMIT);
        thread::sleep(SETTLE);
        drop((holder, waiter));
        replica.kill(usize::MAX)?;
        self.servers.start_again()?;
        Ok(since)
    }

    /// The reply to the holder's first acquire is lost, and the holder retries. Then a waiter arrives.
    fn lose_replies(&mut self, locks: &[String]) -> Result<u64> {
        let proxies: Result<Vec<_>> =
            self.servers.addresses().iter().map(|address| Proxy::start(address)).collect();
        let proxies = proxies?;
        let addresses: Vec<_> = proxies.iter().map(Proxy::address).collect();
        let mut holder = self.agent("holder", &addresses, locks)?;
        let mut waiter = self.agent("waiter", self.servers.addresses(), locks)?;
        proxies.iter().for_each(Proxy::lose_next_replies);
        let since = microseconds();
        self.acquire(&mut holder, "holder", locks)?;
        waiter.send("acquire")?;
        thread::sleep(SETTLE);
        holder.send("release")?;
        self.resource.wait_for("waiter", locks, LIMIT);
        thread::sleep(SETTLE);
        Ok(since)
    }

    /// The waiter's lease is revoked while it waits.
    fn revoke(&mut self, locks: &[String]) -> Result<u64> {
        let addresses = self.servers.addresses();
        let mut holder = self.agent("holder", addresses, locks)?;
        let mut waiter = self.agent("waiter", addresses, locks)?;
        let mut third = self.agent("third", addresses, locks)?;
        self.acquire(&mut holder, "holder", locks)?;
        waiter.send("acquire")?;
        thread::sleep(SETTLE);
        let since = microseconds();
        waiter.send("disturb")?;
        waiter.expect("disturbed")?;
        holder.send("release")?;
        self.resource.wait_for("waiter", locks, SETTLE);
        third.send("acquire")?;
        self.resource.wait_for("third", locks, LIMIT);
        thread::sleep(SETTLE);
        Ok(since)
    }
}

/// Terminates every backend that holds an advisory lock.
fn terminate_backends(address: &str) -> Result<()> {
    let psql = find("psql").ok_or("no psql (Debian package postgresql-client)")?;
    let (host, port) = address.split_once(':').ok_or("an address without a port")?;
    let query =
        "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted";
    let mut command = Command::new(psql);
    command.args(["-q", "-h", host, "-p", port, "-U", "locks", "-d", "postgres", "-c", query]);
    output(&mut command).map(drop)
}

/// Sends a command to a Redis server with redis-cli and returns the reply.
fn redis(address: &str, words: &[&str]) -> Result<String> {
    let (host, port) = address.split_once(':').ok_or("an address without a port")?;
    output(Command::new("redis-cli").args(["-h", host, "-p", port]).args(words))
}
