//! Runs the commands in the guide's chapter on the shell.

use std::{env, path::Path};
use tokio::{process::Command, time::timeout};

use super::*;

#[tokio::test]
async fn every_code_block_succeeds() {
    let text = include_str!("../../docs/guide/src/shell.md");
    let blocks: Vec<_> =
        text.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    assert!(blocks.len() > 5, "{}", blocks.len());
    let server = TestingServer::start().await.unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_docent")).parent().unwrap();
    let path = env::var_os("PATH").unwrap();
    let path = env::join_paths([program.to_owned()].into_iter().chain(env::split_paths(&path)));
    for block in blocks {
        // A command that fails must fail the block.
        let mut shell = Command::new("bash");
        shell
            .args(["-e", "-o", "pipefail", "-c", block])
            .env("PATH", path.as_ref().unwrap())
            .env("DOCENT_CONNECT", server.connect_string())
            .stdin(Stdio::null())
            .kill_on_drop(true);
        let output = timeout(Duration::from_secs(60), shell.output()).await.unwrap().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {stderr}\n{block}", output.status);
    }
}
