//! Tests of service discovery, on the embedded server and, where possible, on a real one. Cn: a defect of Curator in
//! `docs/CURATOR.md`.

#[macro_use]
extern crate docent_tests as support;

mod interop;
mod queries;
mod registration;
mod registration_faults;
mod service_cache;
mod service_provider;
mod watched_instances;

use docent::{
    Client, Config, CreateMode, ErrorKind, LockOptions, OpCode, Stat, nodes::NodeEvent,
    retry::RetryNTimes,
};
use docent_discovery::{DiscoveryOptions, Error, ServiceDiscovery, ServiceInstance};
use docent_testing::fault::Fault;
use std::time::Duration;
use support::{
    DEADLINE, eventually, fixture::Fixture, ms, peer::Options, poll_once, until, within_deadline,
};

/// The settings of the peers that the recorded scenarios used.
const RECORDED: Options = Options { session: Duration::from_secs(20), retries: 3 };

fn options() -> DiscoveryOptions {
    let lock_options = LockOptions::default().with_retry_policy(RetryNTimes::new(5, ms(50)));
    DiscoveryOptions::default().with_lock_options(lock_options)
}

/// A discovery below the path of the fixture.
fn discovery(fixture: &Fixture, client: &Client) -> ServiceDiscovery {
    ServiceDiscovery::with_options(client, &fixture.path, options()).unwrap()
}

/// An instance of `web`.
fn web(id: &str, port: u16) -> ServiceInstance {
    ServiceInstance::new("web", id)
        .with_address("10.1.1.1")
        .with_port(port)
        .with_registration_time_utc(1_700_000_000_000)
}

async fn done(what: &str, call: impl Future<Output = Result<(), Error>>) {
    within_deadline(what, call).await.unwrap();
}

/// The kind of the error of a call that must fail.
async fn refusal(call: impl Future<Output = Result<(), Error>>) -> ErrorKind {
    within_deadline("an error", call).await.unwrap_err().kind()
}

/// The path of an instance of `web`.
fn node(fixture: &Fixture, id: &str) -> String {
    format!("{}/web/{id}", fixture.path)
}

async fn stat(client: &Client, path: &str) -> Stat {
    client.exists(path).await.unwrap().unwrap_or_else(|| panic!("{path} is missing"))
}

async fn data(client: &Client, path: &str) -> String {
    String::from_utf8(client.get_data(path).await.unwrap().data.to_vec()).unwrap()
}

/// Waits until `web` has these instances: `id:port`, in the order of their ids.
async fn finds(discovery: &ServiceDiscovery, wanted: &[&str]) {
    until(&format!("{wanted:?}"), async || {
        let found = discovery.query_for_instances("web").await.unwrap();
        names(&found) == wanted
    })
    .await;
}

fn names<'a>(instances: impl IntoIterator<Item = &'a ServiceInstance>) -> Vec<String> {
    let name = |one: &ServiceInstance| format!("{}:{}", one.id(), one.port().unwrap_or(-1));
    let mut names: Vec<_> = instances.into_iter().map(name).collect();
    names.sort_unstable();
    names
}
