//! An ensemble of three that loses its majority, and gets it back.
//!
//! Source: `TestInterProcessSemaphoreCluster.testCluster`.

use docent::{
    Client, Config, ConnectionState,
    recipes::locks::{InterProcessSemaphoreV2, LockOptions},
    session::retry::RetryNTimes,
};
use docent_testing::TestingCluster;

use crate::{
    ms,
    support::{DEADLINE, eventually, real::RealEnsemble, within_deadline},
};

enum Cluster {
    Embedded(TestingCluster),
    Real(RealEnsemble),
}

impl Cluster {
    /// In one process, over one log.
    async fn embedded() -> Self {
        Self::Embedded(TestingCluster::start(3).await.unwrap())
    }

    #[track_caller]
    fn real() -> impl Future<Output = Option<Self>> {
        let ensemble = RealEnsemble::start();
        async move { Some(Self::Real(ensemble.await?)) }
    }

    /// A client whose session outlives an election on a slow machine.
    async fn client(&self) -> Client {
        let connect_string = match self {
            Self::Embedded(cluster) => cluster.connect_string(),
            Self::Real(ensemble) => ensemble.connect(),
        };
        let config = Config::new(&connect_string)
            .unwrap()
            .with_session_timeout(ms(60_000))
            .with_connection_timeout(DEADLINE);
        Client::connect_with(config).await.unwrap()
    }

    async fn loses(&mut self, member: usize) {
        match self {
            Self::Embedded(cluster) => cluster.stop(member),
            Self::Real(ensemble) => ensemble.kill(member).await,
        }
    }

    async fn gets_back(&mut self, member: usize) {
        match self {
            Self::Embedded(cluster) => cluster.restart(member).await.unwrap(),
            Self::Real(ensemble) => ensemble.start_again(member).await,
        }
    }
}

#[tokio::test]
async fn nobody_gets_a_lease_without_a_majority_embedded() {
    nobody_gets_a_lease_without_a_majority(Cluster::embedded().await).await;
}

#[tokio::test]
async fn nobody_gets_a_lease_without_a_majority_real() {
    if let Some(cluster) = Cluster::real().await {
        nobody_gets_a_lease_without_a_majority(cluster).await;
    }
}

/// And with one, everything goes on: the holder holds, and who waits gets what is released.
async fn nobody_gets_a_lease_without_a_majority(mut cluster: Cluster) {
    let (a, b) = (cluster.client().await, cluster.client().await);
    let semaphore = |client| {
        let patient = LockOptions::default().with_retry_policy(RetryNTimes::new(600, ms(100)));
        InterProcessSemaphoreV2::with_options(client, "/semaphore", 1, patient).unwrap()
    };
    let (ours, theirs) = (semaphore(&a), semaphore(&b));
    let lease = ours.acquire().await.unwrap();
    let waiting = tokio::spawn({
        let theirs = theirs.clone();
        async move { theirs.acquire().await }
    });
    eventually("B waits", async || (b.load() == (0, 1)).then_some(())).await;

    cluster.loses(0).await;
    cluster.loses(1).await;
    for client in [&a, &b] {
        let mut state = client.state();
        let suspended = state.wait_for(|state| *state == Some(ConnectionState::Suspended));
        within_deadline("the outage", suspended).await.unwrap();
    }
    assert!(ours.acquire_timeout(ms(100)).await.unwrap().is_none());
    assert!(!waiting.is_finished());

    cluster.gets_back(0).await;
    for client in [&a, &b] {
        client.wait_until_connected(DEADLINE).await.unwrap();
    }
    assert!(lease.is_held() && !waiting.is_finished());
    lease.release().await.unwrap();
    let lease = within_deadline("B's lease", waiting).await.unwrap().unwrap();
    assert!(lease.is_held());
    lease.release().await.unwrap();
}
