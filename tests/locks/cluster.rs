//! An ensemble of three that loses its quorum and recovers.
//!
//! Source: `TestInterProcessSemaphoreCluster.testCluster`.

use docent::{
    Client, Config, ConnectionState, ErrorKind,
    recipes::locks::{InterProcessSemaphoreV2, LockOptions},
    session::retry::RetryNTimes,
};
use docent_testing::TestingCluster;

use crate::{
    ms,
    support::{DEADLINE, eventually, pending_and_watches, real::RealEnsemble, within_deadline},
};

enum Cluster {
    Embedded(TestingCluster),
    Real(RealEnsemble),
}

impl Cluster {
    /// In one process, with one log.
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
        config.connect().await.unwrap()
    }

    async fn stop(&mut self, member: usize) {
        match self {
            Self::Embedded(cluster) => cluster.stop(member),
            Self::Real(ensemble) => ensemble.kill(member).await,
        }
    }

    async fn restart(&mut self, member: usize) {
        match self {
            Self::Embedded(cluster) => cluster.restart(member).await.unwrap(),
            Self::Real(ensemble) => ensemble.start_again(member).await,
        }
    }
}

#[tokio::test]
async fn no_lease_is_acquired_without_a_quorum_embedded() {
    no_lease_is_acquired_without_a_quorum(Cluster::embedded().await).await;
}

#[tokio::test]
async fn no_lease_is_acquired_without_a_quorum_real() {
    if let Some(cluster) = Cluster::real().await {
        no_lease_is_acquired_without_a_quorum(cluster).await;
    }
}

/// When the quorum is back, the holder still holds, and the waiter acquires the released lease.
async fn no_lease_is_acquired_without_a_quorum(mut cluster: Cluster) {
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
    eventually("B waits", async || (pending_and_watches(&b) == (0, 1)).then_some(())).await;

    cluster.stop(0).await;
    cluster.stop(1).await;
    for client in [&a, &b] {
        let mut state = client.state();
        let suspended = state.wait_for(|state| *state == Some(ConnectionState::Suspended));
        within_deadline("the outage", suspended).await.unwrap();
    }
    let unheard = ours.acquire_timeout(ms(100)).await.unwrap_err();
    assert_eq!(unheard.kind(), ErrorKind::Unanswered);
    assert!(!waiting.is_finished());

    cluster.restart(0).await;
    for client in [&a, &b] {
        client.wait_until_connected(DEADLINE).await.unwrap();
    }
    assert!(lease.is_held() && !waiting.is_finished());
    lease.release().await.unwrap();
    let lease = within_deadline("B's lease", waiting).await.unwrap().unwrap();
    assert!(lease.is_held());
    lease.release().await.unwrap();
}
