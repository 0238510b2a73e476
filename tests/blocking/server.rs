//! A server for tests without async code: it runs in its own runtime.

use super::*;
use crate::support::fixture::Fixture;

/// Runs each test on both servers.
macro_rules! blocking_on_both_servers {
    ($($test:ident)*) => {
        mod embedded {
            $(
                #[test]
                fn $test() {
                    super::$test($crate::server::Server::embedded());
                }
            )*
        }
        mod real {
            $(
                #[test]
                fn $test() {
                    let Some(server) = $crate::server::Server::real() else { return };
                    super::$test(server);
                }
            )*
        }
    };
}

/// A server, and a path that no other test uses.
pub(crate) struct Server {
    pub(crate) fixture: Fixture,
    pub(crate) runtime: tokio::runtime::Runtime,
}

impl Server {
    pub(crate) fn embedded() -> Self {
        let runtime = runtime();
        let fixture = runtime.block_on(Fixture::embedded());
        Self { fixture, runtime }
    }

    /// `None` if there is no server; the test is then counted as skipped.
    #[track_caller]
    pub(crate) fn real() -> Option<Self> {
        let runtime = runtime();
        let fixture = Fixture::real();
        let fixture = runtime.block_on(fixture)?;
        Some(Self { fixture, runtime })
    }

    pub(crate) fn config(&self) -> Config {
        Config::new(&self.fixture.server).unwrap().with_session_timeout(Duration::from_secs(20))
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect_with(self.config()).unwrap()
    }

    /// A path below the test's path.
    pub(crate) fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.fixture.path)
    }

    pub(crate) fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.runtime.block_on(future)
    }

    /// The embedded server.
    pub(crate) fn server(&self) -> &docent_testing::TestingServer {
        self.fixture.testing_server()
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}
