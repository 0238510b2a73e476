//! The network of a run: a namespace for each process, and one for the bridge between them, where packets are dropped.
//!
//! Nothing of the machine's own network is used: the bridge has no way out, so two runs can use the same addresses.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::net::Ipv4Addr;
use std::process::{Command, Stdio};
use std::sync::Mutex;

use xtask::Result;

use crate::janitor::{Janitor, PREFIX};
use crate::lock::lock;

/// A host of the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Host {
    Member(usize),
    Client(usize),
}

impl Host {
    pub(crate) fn address(self) -> Ipv4Addr {
        let (base, number) = match self {
            Self::Member(number) => (1, number),
            Self::Client(number) => (101, number),
        };
        Ipv4Addr::new(10, 213, 0, u8::try_from(base + number).unwrap_or(u8::MAX))
    }

    /// The name of its interface on the bridge, and the end of the name of its namespace.
    fn name(self) -> String {
        match self {
            Self::Member(number) => format!("m{}", number + 1),
            Self::Client(number) => format!("c{}", number + 1),
        }
    }
}

/// A pair of hosts: packets from the first to the second are dropped.
pub(crate) type Cut = (Host, Host);

pub(crate) struct Network {
    /// The prefix of the names of its namespaces.
    name: String,
    /// The cuts of each fault, by its number.
    cuts: Mutex<BTreeMap<usize, Vec<Cut>>>,
}

impl Network {
    /// Creates the bridge. `run` is a unique name.
    pub(crate) fn new(janitor: &Janitor, run: &str) -> Result<Self> {
        let network = Self { name: format!("{PREFIX}{run}"), cuts: Mutex::default() };
        let bridge = network.bridge();
        add_namespace(janitor, &bridge)?;
        ip(&["-n", &bridge, "link", "add", "bridge", "type", "bridge"])?;
        ip(&["-n", &bridge, "link", "set", "bridge", "up"])?;
        network.apply(&BTreeMap::new())?;
        Ok(network)
    }

    /// Connects a new namespace with the bridge.
    pub(crate) fn add(&self, janitor: &Janitor, host: Host) -> Result<()> {
        let (namespace, bridge, port) = (self.namespace(host), self.bridge(), host.name());
        add_namespace(janitor, &namespace)?;
        let peer = ["peer", "name", "eth0", "netns", &namespace];
        ip(&[&["-n", &bridge, "link", "add", &port, "type", "veth"][..], &peer].concat())?;
        ip(&["-n", &bridge, "link", "set", &port, "master", "bridge", "up"])?;
        ip(&["-n", &namespace, "link", "set", "lo", "up"])?;
        let address = format!("{}/24", host.address());
        ip(&["-n", &namespace, "address", "add", &address, "dev", "eth0"])?;
        ip(&["-n", &namespace, "link", "set", "eth0", "up"])
    }

    /// Returns a command that runs a program in the namespace of a host. `ip` executes the program in its own process,
    /// so the process ID is that of the program.
    pub(crate) fn command(&self, host: Host) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.namespace(host)]);
        command
    }

    /// Makes all cuts of a fault at once.
    pub(crate) fn cut(&self, fault: usize, cuts: Vec<Cut>) -> Result<()> {
        let mut all = lock(&self.cuts);
        all.insert(fault, cuts);
        self.apply(&all)
    }

    /// Ends the cuts of a fault.
    pub(crate) fn heal(&self, fault: usize) -> Result<()> {
        let mut all = lock(&self.cuts);
        all.remove(&fault).map_or(Ok(()), |_| self.apply(&all))
    }

    fn apply(&self, cuts: &BTreeMap<usize, Vec<Cut>>) -> Result<()> {
        // In one transaction, so that at no time some of the rules are missing.
        let mut rules = String::from(
            "add table bridge cut\ndelete table bridge cut\ntable bridge cut {\nchain forward {\n",
        );
        rules += "type filter hook forward priority 0; policy accept;\n";
        for (from, to) in cuts.values().flatten() {
            rules += &format!("ip saddr {} ip daddr {} drop\n", from.address(), to.address());
        }
        rules += "}\n}\n";
        let mut nft = Command::new("ip")
            .args(["netns", "exec", &self.bridge(), "nft", "-f", "-"])
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        if let Some(mut input) = nft.stdin.take() {
            input.write_all(rules.as_bytes())?;
        }
        let output = nft.wait_with_output()?;
        if output.status.success() {
            return Ok(());
        }
        Err(format!("nft: {}", String::from_utf8_lossy(&output.stderr).trim()).into())
    }

    fn bridge(&self) -> String {
        format!("{}-bridge", self.name)
    }

    fn namespace(&self, host: Host) -> String {
        format!("{}-{}", self.name, host.name())
    }
}

fn add_namespace(janitor: &Janitor, name: &str) -> Result<()> {
    janitor.register("namespace", name)?;
    run_ip(&["netns", "add", name], janitor.awaited_input()?)
}

fn ip(arguments: &[&str]) -> Result<()> {
    run_ip(arguments, Stdio::null())
}

fn run_ip(arguments: &[&str], input: Stdio) -> Result<()> {
    xtask::command::output(Command::new("ip").args(arguments).stdin(input)).map(drop)
}
