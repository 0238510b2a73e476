//! A browser and a lab for the tests of the page.

mod curator;

use std::{
    env, fs,
    io::{BufRead as _, BufReader, Write as _},
    net::{Ipv4Addr, TcpListener},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use fantoccini::{Client, ClientBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use serde_json::{Value, json};

pub use curator::Curator;

/// The longest wait for anything.
pub const DEADLINE: Duration = Duration::from_secs(20);

/// Reports that a test is skipped, and notes it in the file that `DOCENT_TEST_SKIPS` names.
pub fn skip(reason: &str) {
    let text = format!("SKIPPED: the lab in a browser: {reason}\n");
    eprint!("{text}");
    if let Some(path) = env::var_os("DOCENT_TEST_SKIPS") {
        let file = fs::OpenOptions::new().create(true).append(true).open(path);
        file.and_then(|mut file| file.write_all(text.as_bytes())).expect("the file of skips");
    }
}

/// A process that ends with the test.
pub struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The programs of the browser, if there are both: chromedriver is on the PATH, and Debian's chromium is in a directory
/// beside that of chromedriver.
#[must_use]
pub fn programs() -> Option<(PathBuf, PathBuf)> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path).find_map(|directory| {
        let driver = directory.join("chromedriver");
        let browser = directory.parent()?.join("lib/chromium/chromium");
        (driver.is_file() && browser.is_file()).then_some((driver, browser))
    })
}

/// Starts a lab. Returns its address.
///
/// # Panics
///
/// If it cannot be started.
#[must_use]
pub fn lab(program: &Path, arguments: &[&str]) -> (Running, String) {
    let mut command = Command::new(program);
    let mut child = command.args(arguments).stdout(Stdio::piped()).spawn().expect("docent-lab");
    let mut address = String::new();
    let out = child.stdout.take().expect("the output of docent-lab");
    BufReader::new(out).read_line(&mut address).expect("the address of docent-lab");
    (Running(child), address.trim().to_owned())
}

/// Starts a browser.
///
/// # Panics
///
/// If it cannot be started in time.
pub async fn browser((driver, browser): (PathBuf, PathBuf)) -> (Running, Client) {
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let port = free.local_addr().expect("an address").port();
    drop(free);
    let mut command = Command::new(driver);
    command.arg(format!("--port={port}")).stdout(Stdio::null()).stderr(Stdio::null());
    let running = Running(command.spawn().expect("chromedriver"));
    let options = json!({
        "binary": browser,
        "args": ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1440,900"],
    });
    let mut capabilities = serde_json::Map::new();
    capabilities.insert("goog:chromeOptions".to_owned(), options);
    let logging = json!({ "browser": "ALL" });
    capabilities.insert("goog:loggingPrefs".to_owned(), logging);
    let address = format!("http://127.0.0.1:{port}");
    let start = Instant::now();
    loop {
        let mut builder = ClientBuilder::new(HttpConnector::new());
        match builder.capabilities(capabilities.clone()).connect(&address).await {
            Ok(client) => return (running, client),
            Err(error) if start.elapsed() > DEADLINE => panic!("no browser: {error}"),
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

/// Runs a script of the page, and returns its result.
///
/// # Panics
///
/// If the script fails.
pub async fn eval(client: &Client, script: &str) -> Value {
    let result = client.execute(script, Vec::new()).await;
    result.unwrap_or_else(|error| panic!("{script}: {error}"))
}

/// Waits until a script returns true.
///
/// # Panics
///
/// If it does not in time.
pub async fn until(client: &Client, script: &str) {
    let start = Instant::now();
    while eval(client, script).await != Value::Bool(true) {
        assert!(start.elapsed() < DEADLINE, "never: {script}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
