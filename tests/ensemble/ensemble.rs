//! An embedded or a real ensemble, for tests that run on both.

use super::*;
use crate::support::{
    ensemble::address,
    real::{four_letter_word, settings},
};

pub(crate) const TICK: Duration = Duration::from_millis(500);

pub(crate) enum Ensemble {
    Embedded(TestingCluster),
    Real(RealEnsemble),
}

/// When it is dropped, the members can communicate again.
pub(crate) struct Isolation<'a> {
    ensemble: &'a Ensemble,
    _frozen: Vec<Frozen>,
}

impl Drop for Isolation<'_> {
    fn drop(&mut self) {
        if let Ensemble::Embedded(cluster) = self.ensemble {
            cluster.heal_all();
        }
    }
}

impl Ensemble {
    /// An embedded ensemble; `sync_limit` is in ticks.
    pub(crate) async fn embedded(size: usize, sync_limit: u32) -> Self {
        let config = server::Config {
            servers: size,
            tick_time: TICK,
            sync_limit,
            read_only_mode_enabled: false,
            ..server::Config::default()
        };
        Self::Embedded(TestingCluster::start_with(config).await.unwrap())
    }

    /// A real ensemble; `None` (and a counted skip) without Java.
    #[track_caller]
    pub(crate) fn real(size: usize, sync_limit: u32) -> impl Future<Output = Option<Self>> {
        let (tick, limit) = (TICK.as_millis().to_string(), sync_limit.to_string());
        let config = settings(&[("tickTime", &tick), ("syncLimit", &limit)], &[]);
        let ensemble = RealEnsemble::start_of(size, config);
        async move { Some(Self::Real(ensemble.await?)) }
    }

    pub(crate) async fn leader(&self) -> usize {
        match self {
            Self::Embedded(cluster) => cluster.leader().unwrap(),
            Self::Real(ensemble) => ensemble.leader().await,
        }
    }

    pub(crate) fn connect_to(&self, member: usize) -> String {
        match self {
            Self::Embedded(cluster) => address(cluster, member),
            Self::Real(ensemble) => ensemble.connect_to(member),
        }
    }

    /// The settings of a client of one member, with a session timeout longer than the test.
    pub(crate) fn config_of(connect: &str) -> Config {
        Config::new(connect).unwrap().with_session_timeout(Duration::from_secs(60))
    }

    pub(crate) async fn client_of(&self, member: usize) -> Client {
        Self::config_of(&self.connect_to(member)).connect().await.unwrap()
    }

    /// Cuts these members off from all others; on a real ensemble, the others are stopped.
    pub(crate) fn isolate(&self, size: usize, members: &[usize]) -> Isolation<'_> {
        let others = || (0..size).filter(|other| !members.contains(other));
        let frozen = match self {
            Self::Embedded(cluster) => {
                for (member, other) in members.iter().flat_map(|m| others().map(|o| (*m, o))) {
                    cluster.cut(member, other);
                    cluster.cut(other, member);
                }
                Vec::new()
            }
            Self::Real(ensemble) => {
                others().map(|other| Frozen::new(ensemble.process_id(other).unwrap())).collect()
            }
        };
        Isolation { ensemble: self, _frozen: frozen }
    }

    /// Waits until a member has a request without a reply.
    pub(crate) async fn has_outstanding(&self, member: usize) {
        let address = self.connect_to(member);
        eventually("a request at the member", async || {
            let answer = four_letter_word(&address, "srvr").await.ok()?;
            let line = answer.lines().find_map(|line| line.strip_prefix("Outstanding: "))?;
            (line != "0").then_some(())
        })
        .await;
    }
}
