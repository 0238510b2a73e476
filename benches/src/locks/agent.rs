//! A contender as a separate process, for the faults: holds locks, writes to the resource in steps, and before each
//! step asks its client whether it still holds the lock.
//!
//! It reads one command per line: `acquire`, `release`, `disturb`. It prints `ready` once its connections are open,
//! and exits when its standard input ends.

use std::{cell::RefCell, rc::Rc, time::Duration};

use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    net::TcpStream,
    runtime::Builder,
    sync::watch,
    task::LocalSet,
    time::{sleep, timeout},
};

use xtask::{Arguments, Result};

use super::{
    microseconds,
    services::{Service, Target},
};
use crate::with_service;

/// The duration of a step, from the question to the write.
const WORK: Duration = Duration::from_millis(10);

/// The pause of a program before it retries a failed call.
const RETRY: Duration = Duration::from_millis(20);

const CONNECT_LIMIT: Duration = Duration::from_secs(3);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Idle,
    Acquire,
    Release,
}

pub(crate) fn run(service: &str, arguments: &Arguments) -> Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let work = async { with_service!(service, agent(arguments)) };
    let outcome: Result<()> = LocalSet::new().block_on(&runtime, work);
    outcome?;
    std::process::exit(0)
}

/// A connection, which the task of its lock replaces after an error.
type Slot<S> = Rc<RefCell<Option<Rc<S>>>>;

async fn agent<S: Service>(arguments: &Arguments) -> Result<()> {
    let target = Target::new(arguments)?;
    let name = arguments.text("agent").ok_or("--agent is missing")?.to_owned();
    let resource = arguments.text("resource").ok_or("--resource is missing")?.to_owned();
    let locks = arguments.text("locks").ok_or("--locks is missing")?;
    let (phase, observed) = watch::channel(Phase::Idle);
    let mut slots = Vec::new();
    for lock in locks.split(',') {
        let service = Rc::new(timeout(CONNECT_LIMIT, S::connect(&target)).await??);
        service.prepare(lock).await?;
        let slot: Slot<S> = Rc::new(RefCell::new(Some(service)));
        slots.push(Rc::clone(&slot));
        let contender = Contender {
            target: target.clone(),
            slot,
            grant: format!("{name}.1"),
            lock: lock.to_owned(),
            resource: Connection::open(&resource).await?,
            phase: observed.clone(),
        };
        tokio::task::spawn_local(async move {
            if let Err(error) = contender.run().await {
                eprintln!("bench: {error}");
            }
        });
    }
    println!("ready");
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        match line.as_str() {
            "acquire" => drop(phase.send(Phase::Acquire)),
            "release" => drop(phase.send(Phase::Release)),
            "disturb" => {
                for slot in &slots {
                    let service = slot.borrow().clone();
                    if let Some(service) = service {
                        service.disturb().await?;
                    }
                }
                println!("disturbed");
            }
            other => return Err(format!("no command {other:?}").into()),
        }
    }
    Ok(())
}

/// A connection to the resource, which replies to each line with a line.
struct Connection(BufReader<TcpStream>);

impl Connection {
    async fn open(address: &str) -> Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self(BufReader::new(stream)))
    }

    async fn send(&mut self, line: String) -> Result<()> {
        self.0.get_mut().write_all(format!("{line}\n").as_bytes()).await?;
        let mut reply = String::new();
        self.0.read_line(&mut reply).await?;
        if reply == "ok\n" { Ok(()) } else { Err(format!("the resource replied {reply:?}").into()) }
    }
}

/// One lock of an agent, from its acquire to its release or loss.
struct Contender<S> {
    target: Target,
    slot: Slot<S>,
    grant: String,
    lock: String,
    resource: Connection,
    phase: watch::Receiver<Phase>,
}

impl<S: Service> Contender<S> {
    async fn run(mut self) -> Result<()> {
        self.phase.wait_for(|phase| *phase != Phase::Idle).await?;
        let mut released = self.phase.clone();
        let (service, guard) = tokio::select! {
            acquired = acquire(&self.target, &self.slot, &self.lock) => acquired,
            _ = released.wait_for(|phase| *phase == Phase::Release) => return Ok(()),
        };
        let token =
            service.token(&guard).await.map_or_else(|| "-".into(), |token| token.to_string());
        let Self { lock, grant, resource, phase, .. } = &mut self;
        resource.send(format!("enter {lock} {grant} {token}")).await?;
        loop {
            let asked = microseconds();
            if !service.is_held(&guard).await {
                resource.send(format!("lost {lock} {grant}")).await?;
                // Dropping it would release the lock with another request.
                std::mem::forget(guard);
                return Ok(());
            }
            sleep(WORK).await;
            resource.send(format!("write {lock} {grant} {token} {asked}")).await?;
            if *phase.borrow() == Phase::Release {
                return service.release(guard).await;
            }
        }
    }
}

/// Acquires the lock, with a new connection and a retry after each error.
async fn acquire<S: Service>(target: &Target, slot: &Slot<S>, lock: &str) -> (Rc<S>, S::Guard) {
    loop {
        let service = slot.borrow().clone();
        if let Some(service) = service
            && let Ok(guard) = service.acquire(lock).await
        {
            return (service, guard);
        }
        slot.replace(None);
        sleep(RETRY).await;
        if let Ok(Ok(service)) = timeout(CONNECT_LIMIT, S::connect(target)).await {
            slot.replace(Some(Rc::new(service)));
        }
    }
}
