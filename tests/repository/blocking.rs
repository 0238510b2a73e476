//! `docent::blocking` has what the async client and the recipes have, and `docent_discovery::blocking` what service discovery
//! has: the lists of the public API are compared.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

/// Functions and types that the blocking modules do not have, with the reason.
const MISSING: &[(&str, &str)] = &[
    ("Cleanup", "for recipes, which are async"),
    ("Client::cleanup", "for recipes, which are async"),
    ("Client::renew_proof", "for recipes, which are async"),
    ("Config", "a value; `Client::connect_with` and `Client::start_with` take it"),
    ("RandomStrategy", "a value; takes `Client::async_client`"),
    ("RetryLoop", "the loop behind `Client::retry`"),
    ("SessionClaim", "a value; `Client::wait` waits for its `lost`"),
    ("SessionLease", "a value, which makes claims"),
    ("States::poll_next", "for futures"),
    ("read_nodes", "for the recipes and service discovery"),
    ("Watcher::poll_changed", "for futures"),
];

/// Functions whose arguments differ: closures that return a value in place of a future.
const OTHER_ARGUMENTS: &[&str] = &[
    "Client::retry",
    "Client::retry_idempotent",
    "Client::run",
    "LeaderSelector::run",
    "LeaderSelector::run_requeued",
];

/// The libraries with async functions, and those with their blocking counterparts.
const ASYNC: &[&str] = &["docent-session", "docent-recipes", "docent-discovery"];
const BLOCKING: &[&str] = &["docent", "docent-discovery"];

/// Functions that only the blocking modules have, beside those of `Receiver` and those with the suffix `_timeout`.
const ADDED: &[(&str, &str)] = &[
    ("Allow::allow", "`Response::allow`, for results"),
    ("Client::async_client", "for futures"),
    ("Client::start_with", "`Config::start`"),
    ("Client::wait", "for futures"),
    ("Events::timeout_iter", "an iterator with a limit of time"),
];

/// A function of the public API, without its crate and modules.
#[derive(Debug)]
struct Function {
    /// Its type, if it has one.
    of: Option<String>,
    /// The arguments and the output, as they are without futures.
    signature: String,
    waits: bool,
}

/// The functions by name, such as `Client::create`, below a prefix of the lists of some libraries.
fn functions(libraries: &[&str], prefix: &str) -> BTreeMap<String, Function> {
    let mut functions = BTreeMap::new();
    for line in libraries.iter().flat_map(|library| lines(library)) {
        let Some((before, rest)) = line.split_once("fn docent") else { continue };
        let Some((_, rest)) = rest.split_once("::") else { continue };
        let Some(rest) = rest.strip_prefix(prefix) else { continue };
        let (path, signature) = rest.split_at(rest.find(['(', '<']).unwrap());
        let parts: Vec<_> = path.split("::").filter(|part| *part != "machine").collect();
        if path.starts_with("machine") || (prefix.is_empty() && path.starts_with("blocking")) {
            continue;
        }
        let (name, modules) = parts.split_last().unwrap();
        let of = modules.last().filter(|of| of.starts_with(char::is_uppercase));
        let name = of.map_or_else(|| (*name).to_owned(), |of| format!("{of}::{name}"));
        let (signature, waits) = without_futures(signature, before.contains("async"));
        let of = of.map(|of| (*of).to_owned());
        functions.insert(name, Function { of, signature, waits });
    }
    functions
}

fn lines(library: &str) -> Vec<String> {
    let path = xtask::workspace::root().join(format!("docs/api/{library}.txt"));
    fs::read_to_string(path).unwrap().lines().map(str::to_owned).collect()
}

/// The signature of the blocking function, and whether it waits.
fn without_futures(signature: &str, is_async: bool) -> (String, bool) {
    let mut text =
        signature.split(" (impl<").next().unwrap().replace(" { .. }", "").replace("&'a[", "&[");
    for noise in ["mut self", "'a ", "<'a>", "mut ", "crate::", "watch::"] {
        text = text.replace(noise, if noise == "mut self" { "self" } else { "" });
    }
    if signature.contains("&mut self") {
        text = text.replacen("&self", "&mut self", 1);
    }
    let (arguments, output) =
        text.rsplit_once(") -> ").unwrap_or_else(|| (text.trim_end_matches(')'), "()"));
    let output = output.split(" where ").next().unwrap();
    let inner = |before: &str, after: &str| output.strip_prefix(before)?.strip_suffix(after);
    let result = |value: &str| format!("Result<{value}, Error>");
    let waited = match output {
        "AddWatchResponse" => Some(result("Watcher")),
        "MultiReadResponse" => Some(result("Vec<Result<ReadResult, Error>>")),
        "TransactionResponse" => Some(result("Vec<TransactionResult>")),
        _ => inner("Response<", ">")
            .or_else(|| inner("Call<'a, ", ">"))
            .or_else(|| inner("LockFuture<'_, ", ">"))
            .or_else(|| inner("LockFuture<", ">")?.strip_prefix("'a, "))
            .map(result)
            .or_else(|| Some(result(&format!("({}, Watcher)", inner("WatchResponse<", ">")?))))
            .or_else(|| Some(inner("impl Future<Output = ", "> + Send + use<>")?.to_owned()))
            .or_else(|| Some(inner("impl Future<Output = ", "> + Send + use<T>")?.to_owned()))
            .or_else(|| Some(inner("HeldFuture<'_, ", ">")?.to_owned()))
            .or_else(|| is_async.then(|| output.to_owned())),
    };
    match waited {
        None => (format!("{arguments}) -> {output}"), false),
        // A wait can be refused.
        Some(output) if !output.starts_with("Result<") => {
            (format!("{arguments}) -> {}", result(&output)), true)
        }
        Some(output) => (format!("{arguments}) -> {output}"), true),
    }
}

/// The types that have a counterpart: a function of theirs waits, or its signature contains such a type.
fn types_that_wait(functions: &BTreeMap<String, Function>) -> BTreeSet<String> {
    let mut types = BTreeSet::new();
    loop {
        let more: BTreeSet<_> = functions
            .values()
            .filter(|function| waits(function, &types))
            .filter_map(|function| function.of.clone())
            .collect();
        if more == types {
            return types;
        }
        types = more;
    }
}

fn waits(function: &Function, types: &BTreeSet<String>) -> bool {
    let words = function.signature.split(|c: char| !c.is_alphanumeric() && c != '_');
    function.waits || words.into_iter().any(|word| word == "Receiver" || types.contains(word))
}

#[test]
fn the_blocking_client_has_every_function_of_the_async_one() {
    let async_functions = functions(ASYNC, "");
    let blocking = functions(BLOCKING, "blocking::");
    let iterators: BTreeSet<_> = BLOCKING
        .iter()
        .flat_map(|library| lines(library))
        .filter_map(|line| {
            let (_, of) = line.split_once(" Iterator for docent")?;
            let path = of.split_once("::blocking::")?.1.split('<').next()?;
            path.rsplit("::").next().map(str::to_owned)
        })
        .collect();
    let types = types_that_wait(&async_functions);
    for wanted in [
        "Client",
        "LockGuard",
        "InterProcessReadWriteLock",
        "WeakClient",
        "Held",
        "ServiceDiscovery",
        "ServiceCache",
        "ServiceCacheEvents",
        "ServiceProvider",
    ] {
        assert!(types.contains(wanted), "{types:?}");
    }
    let (mut wrong, mut excepted, mut compared) = (Vec::new(), BTreeSet::new(), 0);
    for (name, function) in &async_functions {
        let of_such_a_type = function.of.as_ref().is_some_and(|of| types.contains(of));
        if !of_such_a_type && !waits(function, &types) {
            continue;
        }
        let exception = MISSING
            .iter()
            .find(|(missing, _)| missing == name || function.of.as_deref() == Some(missing));
        if let Some((missing, _)) = exception {
            excepted.insert(*missing);
            assert!(!blocking.contains_key(name), "{name} is no exception");
            continue;
        }
        if let (Some(of), true) = (&function.of, name.ends_with("::next")) {
            if !iterators.contains(of) {
                wrong.push(format!("{of} is no iterator"));
            }
            continue;
        }
        compared += 1;
        match blocking.get(name) {
            None => wrong.push(format!("{name} is missing")),
            Some(_) if OTHER_ARGUMENTS.contains(&&**name) => {}
            Some(other) if other.signature == function.signature => {}
            Some(other) => {
                let (expected, found) = (&function.signature, &other.signature);
                wrong.push(format!("{name}:\n  {expected} expected\n  {found} found"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(compared > 200, "only {compared} functions");
    assert_eq!(excepted.len(), MISSING.len(), "unused exceptions; used: {excepted:?}");

    let own = |name: &&String| {
        !async_functions.contains_key(*name)
            && !name.starts_with("Receiver::")
            && !ADDED.iter().any(|(added, _)| added == *name)
    };
    for name in blocking.keys().filter(own) {
        let base = name.strip_suffix("_timeout");
        let base = base.filter(|base| blocking.contains_key(*base) || base.ends_with("::next"));
        assert!(base.is_some(), "{name} has no counterpart");
    }
}

/// A wait that can be dropped can be limited: each function that waits for something else than a reply has a variant.
#[test]
fn waits_have_limits_of_time() {
    let blocking = functions(BLOCKING, "blocking::");
    let waits = [
        "Client::close",
        "Client::ready",
        "Client::wait",
        "Client::wait_until_deleted",
        "Client::wait_until_exists",
        "CuratorCache::initialized",
        "DistributedBarrier::wait_on_barrier",
        "DistributedDoubleBarrier::enter",
        "DistributedDoubleBarrier::leave",
        "Events::next",
        "GroupMember::joined",
        "Held::lost",
        "InterProcessLock::acquire",
        "InterProcessLock::acquire_as",
        "InterProcessMultiLock::acquire",
        "InterProcessMultiLock::acquire_as",
        "InterProcessMutex::acquire",
        "InterProcessMutex::acquire_as",
        "InterProcessSemaphoreMutex::acquire",
        "InterProcessSemaphoreV2::acquire",
        "InterProcessSemaphoreV2::acquire_many",
        "LeaderLatch::leadership",
        "LeaderSelector::run",
        "Leadership::lost",
        "LockGuard::lost",
        "LockGuard::release",
        "PersistentNode::created",
        "PersistentNode::written",
        "PersistentTtlNode::created",
        "PersistentTtlNode::written",
        "Receiver::changed",
        "Receiver::wait_for",
        "ServiceCache::initialized",
        "ServiceDiscovery::register",
        "ServiceDiscovery::set_enabled",
        "ServiceDiscovery::update",
        "ServiceProvider::initialized",
        "StrictMutex::acquire",
        "Watcher::changed",
    ];
    for name in waits {
        assert!(blocking.contains_key(&format!("{name}_timeout")), "{name}");
    }
}
