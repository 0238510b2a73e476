//! The standalone server of docker-compose.yml, for machines with docker and without Java.

use std::net::{SocketAddr, TcpListener};
use std::process::Command;

use xtask::{Result, command::succeeds, workspace::root};

/// A server in a container; dropping it removes the container and its volumes.
pub(crate) struct Container {
    project: String,
    address: SocketAddr,
}

impl Container {
    /// Starts the container and waits until it is healthy.
    pub(crate) fn start() -> Result<Self> {
        if !succeeds(Command::new("docker").args(["compose", "version"])) {
            return Err("no docker compose".into());
        }
        if !succeeds(Command::new("docker").arg("info")) {
            return Err("docker engine not running".into());
        }
        let address = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?;
        // The project name is unique, so that concurrent runs neither share nor stop a server.
        let container = Self { project: format!("docent-test-{}", std::process::id()), address };
        let status =
            container.compose().args(["up", "--detach", "--wait", "standalone"]).status()?;
        if status.success() { Ok(container) } else { Err("docker compose up failed".into()) }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    fn compose(&self) -> Command {
        let mut command = Command::new("docker");
        command
            .args(["compose", "--project-name", &self.project])
            .current_dir(root())
            .env("DOCENT_STANDALONE_PORT", self.address.port().to_string());
        command
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        let _ = self.compose().args(["down", "--volumes"]).status();
    }
}
