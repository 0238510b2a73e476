//! Embedded ensembles: their members, and changes of them.

use std::{collections::BTreeSet, time::Duration};

use docent::{Client, Config, EnsembleTracker, ensemble::EnsembleConfig};
use docent_testing::{TestingCluster, server};

use super::within_deadline;

/// The digest of `super:test`, the credentials of the super user.
pub const SUPER_DIGEST: &str = "super:D/InIHSb7yEEbrWz8b9l71RjZJU=";

/// An ensemble whose members may be changed by the super user, also one of a single member.
pub fn changeable(servers: usize) -> server::Config {
    server::Config {
        servers,
        standalone_enabled: false,
        reconfig_enabled: true,
        super_digest: Some(SUPER_DIGEST.to_owned()),
        ..server::Config::default()
    }
}

/// A cluster whose members keep sessions without a majority, and the settings of a client that accepts read-only
/// servers.
pub async fn serving_without_majority() -> (TestingCluster, Config) {
    let settings = server::Config {
        servers: 3,
        version: server::Version::V3_6,
        tick_time: Duration::from_millis(100),
        read_only_mode_enabled: true,
        ..server::Config::default()
    };
    let cluster = TestingCluster::start_with(settings).await.unwrap();
    let config = Config::new(&cluster.connect_string())
        .unwrap()
        .with_session_timeout(Duration::from_secs(2))
        .with_read_only(true);
    (cluster, config)
}

/// The leader of an ensemble, and a follower.
pub fn leader_and_follower(cluster: &TestingCluster) -> (usize, usize) {
    let leader = cluster.leader().unwrap();
    (leader, (0..2).find(|member| *member != leader).unwrap())
}

/// The address of a member.
pub fn address(cluster: &TestingCluster, member: usize) -> String {
    cluster.addr(member).unwrap().to_string()
}

/// A client of one member.
pub async fn client_of(cluster: &TestingCluster, member: usize) -> Client {
    Client::connect(&address(cluster, member)).await.unwrap()
}

/// The addresses of these members.
pub fn addresses(cluster: &TestingCluster, members: &[usize]) -> BTreeSet<String> {
    members.iter().map(|member| address(cluster, *member)).collect()
}

/// The servers that a client knows.
pub fn servers(client: &Client) -> BTreeSet<String> {
    client.servers().iter().map(ToString::to_string).collect()
}

/// Waits until a tracker uses the configuration of this version, or a later one.
pub async fn configured(tracker: &EnsembleTracker, least: i64) -> EnsembleConfig {
    let mut config = tracker.config();
    let known = config.wait_for(|config| config.as_ref().is_some_and(|c| c.version >= least));
    (**within_deadline("a configuration", known).await.unwrap().as_ref().unwrap()).clone()
}
