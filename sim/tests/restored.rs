//! A backup of the servers is restored under clients that have seen what came after it. Everything that a recipe keeps
//! follows the servers again, although zxids, versions and sequence numbers went back.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use docent::{
    Client, CreateMode, InterProcessMutex, LockGuard, PersistentNode, cache::CuratorCache,
    shared::SharedValue,
};
use docent_sim::{Check, Checks, Findings, Process, View, plan::Plan, run_program};

const PROCESSES: usize = 3;

const VALUE: &str = "/value";

/// The interval between two rounds of work.
const PAUSE: Duration = Duration::from_millis(300);

/// All faults are over for longer than any session, and nothing is written any more.
const QUIET: Duration = Duration::from_secs(120);

/// The rounds take longer than the faults last.
const ROUNDS: usize = 250;

/// What the processes have at their ends.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    /// What each process takes for the data of a path, unread by the check.
    believed: Vec<(usize, String, Option<Vec<u8>>)>,
    /// The process that holds the lock, after all faults.
    holder: Option<usize>,
    /// What went wrong, unread by the check.
    wrong: Vec<String>,
}

impl Seen {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn believes(&self, process: usize, path: &str, data: Option<&[u8]>) {
        self.state().believed.push((process, path.to_owned(), data.map(<[u8]>::to_vec)));
    }
}

/// What the processes have is what the servers have.
struct Follows(Seen);

impl Check for Follows {
    fn look(&mut self, view: &View<'_>, found: &mut Findings) {
        let mut state = self.0.state();
        for (process, path, data) in std::mem::take(&mut state.believed) {
            let node = view.node(&path).map(|(data, _)| data);
            // A shared value whose node is gone stays known, as documented.
            let is_value_kept = path == VALUE && node.is_none();
            if node.as_deref() != data.as_deref() && !is_value_kept {
                found.violation(format!("p{process}: {path} has {data:?}, not {node:?}"));
            }
        }
        state.wrong.drain(..).for_each(|text| found.violation(text));
    }
}

/// The recipes of a process.
struct Recipes {
    value: SharedValue,
    cache: CuratorCache,
    _node: PersistentNode,
    mutex: InterProcessMutex,
}

fn own(process: usize) -> String {
    format!("/kept/p{process}")
}

async fn start(process: &Process, client: &Client) -> Recipes {
    let value = loop {
        match SharedValue::start(client, VALUE, "seed").await {
            Ok(value) => break value,
            Err(_) => process.sleep(PAUSE).await,
        }
    };
    let (path, data) = (own(process.number()), own(process.number()));
    Recipes {
        value,
        cache: CuratorCache::start(client, "/data").unwrap(),
        _node: PersistentNode::start(client, &path, CreateMode::Ephemeral, data).unwrap(),
        mutex: InterProcessMutex::new(client, "/lock").unwrap(),
    }
}

/// Writes, and holds the lock. Any call may fail.
async fn round(client: &Client, of: &Recipes, number: usize) {
    let text = number.to_string();
    let path = format!("/data/{}", number % 7);
    if client.set_data(&path, text.as_bytes(), None).await.is_err() {
        let _ = client.create("/data", b"", CreateMode::Persistent).await;
        let _ = client.create(&path, text.as_bytes(), CreateMode::Persistent).await;
    }
    if number.is_multiple_of(5) {
        let _ = client.delete(&path, None).await;
    }
    let _ = of.value.set_value(text).await;
    if let Ok(Some(guard)) = of.mutex.acquire_timeout(Duration::from_secs(2)).await {
        let _ = guard.release().await;
    }
}

/// Holds the lock for a while, when all faults are over.
async fn hold(process: &Process, of: &Recipes, seen: &Seen) {
    let number = process.number();
    let guard: LockGuard = match of.mutex.acquire_timeout(QUIET).await {
        Ok(Some(guard)) => guard,
        other => return seen.state().wrong.push(format!("p{number} holds nothing: {other:?}")),
    };
    if let Some(other) = seen.state().holder.replace(number) {
        seen.state().wrong.push(format!("p{number} and p{other} hold the lock"));
    }
    process.sleep(PAUSE).await;
    seen.state().holder = None;
    if let Err(error) = guard.release().await {
        seen.state().wrong.push(format!("p{number} does not release: {error}"));
    }
}

async fn work(process: Process, seen: Seen) {
    let client = process.start_client();
    let recipes = start(&process, &client).await;
    for number in 0..ROUNDS {
        round(&client, &recipes, number).await;
        process.sleep(PAUSE).await;
    }
    process.sleep(QUIET).await;
    let number = process.number();
    seen.believes(number, VALUE, Some(&recipes.value.value()));
    seen.believes(number, &own(number), Some(own(number).as_bytes()));
    let cached: BTreeMap<_, _> = recipes
        .cache
        .snapshot()
        .iter()
        .map(|node| (node.path().to_owned(), node.data().map_or(Vec::new(), |data| data.to_vec())))
        .collect();
    for path in (0..7).map(|number| format!("/data/{number}")) {
        seen.believes(number, &path, cached.get(&path).map(Vec::as_slice));
    }
    hold(&process, &recipes, &seen).await;
    recipes.cache.close().await;
    drop(recipes);
    let _ = client.close().await;
}

// Case (Ensembles that change): a backup of all servers is restored, and zxids go back
#[test]
fn recipes_follow_servers_whose_backup_is_restored() {
    for seed in 1..=40 {
        let seen = Seen::default();
        let checks = Checks::default().with(Follows(seen.clone()));
        let main = move |process| work(process, seen.clone());
        let plan = Plan::draw(seed, PROCESSES).with_restored_backup();
        let outcome = run_program(&plan, checks, main);
        assert!(outcome.is_good(), "seed {seed}:\n{}", outcome.history);
    }
}
