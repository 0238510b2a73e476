//! Writes the seed corpus of the target `server` from the golden frames of real servers:
//! `cargo run --manifest-path fuzz/Cargo.toml --example server_seeds`.
//!
//! The seeds are frames of clients in the target's format (see `src/testing.rs`): one seed per operation, and
//! one per connection that is short enough.

use std::{collections::BTreeMap, fs, path::Path};

use serde_json::Value;

/// Maximum size of a seed, in bytes.
const MAX_SIZE: usize = 1500;

fn main() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = fs::read_to_string(root.join("../protocol/tests/data/golden.json")).unwrap();
    let entries: Vec<Value> = serde_json::from_str(&text).unwrap();
    let mut seeds = BTreeMap::<String, Vec<u8>>::new();
    let mut connections = BTreeMap::<&str, Vec<u8>>::new();
    for entry in entries.iter().filter(|entry| entry["direction"] == "c2s") {
        let bytes = unhex(entry["hex"].as_str().unwrap());
        let op = entry["op"].as_str().unwrap();
        // A whole connection contains its handshake; single frames go to the connection that has one.
        let connection = u8::from(op != "connect");
        let seed = seeds.entry(format!("op-{op}")).or_insert_with(|| vec![3]);
        if seed.len() + bytes.len() < MAX_SIZE {
            push(seed, connection, &bytes);
        }
        let name = entry["conn"].as_str().unwrap();
        push(connections.entry(name).or_insert_with(|| vec![2]), 0, &bytes);
    }
    for (name, seed) in connections {
        if seed.len() < MAX_SIZE {
            seeds.insert(format!("conn-{name}"), seed);
        }
    }
    let corpus = root.join("corpus/server");
    fs::create_dir_all(&corpus).unwrap();
    for (name, bytes) in &seeds {
        fs::write(corpus.join(format!("seed-{name}")), bytes).unwrap();
    }
    println!("{} seeds", seeds.len());
}

fn push(seed: &mut Vec<u8>, connection: u8, bytes: &[u8]) {
    let Ok(len) = u16::try_from(bytes.len()) else { return };
    seed.push(connection);
    seed.extend(len.to_be_bytes());
    seed.extend(bytes);
}

fn unhex(hex: &str) -> Vec<u8> {
    hex.as_bytes()
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}
