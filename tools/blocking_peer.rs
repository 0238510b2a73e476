//! A program that uses the blocking client and ends in one of several ways: driven by `tests/blocking/end.rs`.
//!
//! `blocking_peer HOW CONNECT PATH`

use std::{env, fs, process::exit, sync::OnceLock, time::Duration};

use docent::{
    Config, CreateMode,
    blocking::{Client, InterProcessMutex},
};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

static KEPT: OnceLock<Client> = OnceLock::new();

fn main() -> Result<()> {
    let mut arguments = env::args().skip(1);
    let mut argument = || arguments.next().ok_or("HOW CONNECT PATH");
    let (how, connect, path) = (argument()?, argument()?, argument()?);
    if how == "threads" {
        return count_threads(&connect);
    }
    let config = Config::new(&connect)?.with_session_timeout(Duration::from_secs(60));
    let client = Client::connect_with(config)?;
    client.create(&path, b"", CreateMode::Ephemeral)?;
    let mutex = InterProcessMutex::new(&client, &format!("{path}-lock"))?;
    let guard = mutex.acquire()?;
    println!("held {}", guard.is_held());
    match &*how {
        "return" => Ok(()),
        "error" => Err("an error".into()),
        "panic" => panic!("a panic"),
        "forget" => {
            KEPT.get_or_init(|| client.clone());
            Ok(())
        }
        "exit" => exit(0),
        other => Err(other.into()),
    }
}

/// Prints the number of the clients' threads: before the first client, with two clients, with only a guard of one
/// of them, and after the last drop.
fn count_threads(connect: &str) -> Result<()> {
    println!("threads {}", threads()?);
    let clients = [Client::connect(connect)?, Client::connect(connect)?];
    let guard = InterProcessMutex::new(&clients[0], "/threads")?.acquire()?;
    println!("threads {}", threads()?);
    drop(clients);
    // The guard keeps its client alive; the session of the other client is closed.
    while threads()? != 1 {
        std::thread::yield_now();
    }
    println!("threads 1, held {}", guard.is_held());
    drop(guard);
    while threads()? != 0 {
        std::thread::yield_now();
    }
    println!("threads 0");
    Ok(())
}

fn threads() -> Result<usize> {
    let mut count = 0;
    for thread in fs::read_dir("/proc/self/task")? {
        // The thread may have ended since it was listed.
        let name = fs::read_to_string(thread?.path().join("comm")).unwrap_or_default();
        count += usize::from(name.trim_end() == "docent");
    }
    Ok(count)
}
