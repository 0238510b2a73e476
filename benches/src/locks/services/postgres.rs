//! PostgreSQL's session-level advisory locks.

use tokio_postgres::{Client, NoTls};

use xtask::Result;

use super::{Service, Target};

/// A connection. Its locks end with it, or with its backend.
pub(crate) struct Advisory(Client);

/// The FNV-1a hash of the name, because an advisory lock is identified by a 64-bit number.
fn number(name: &str) -> i64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    name.bytes().fold(0xcbf2_9ce4_8422_2325, step) as i64
}

impl Service for Advisory {
    type Guard = i64;

    async fn connect(target: &Target) -> Result<Self> {
        let (host, port) = target.address().split_once(':').ok_or("an address without a port")?;
        let config = format!("host={host} port={port} user=locks dbname=postgres");
        let (client, connection) = tokio_postgres::connect(&config, NoTls).await?;
        tokio::spawn(connection);
        Ok(Self(client))
    }

    // A simple query, because a pooler in transaction mode does not support prepared statements.
    async fn acquire(&self, lock: &str) -> Result<i64> {
        let number = number(lock);
        self.0.simple_query(&format!("SELECT pg_advisory_lock({number})")).await?;
        Ok(number)
    }

    async fn is_held(&self, _guard: &i64) -> bool {
        !self.0.is_closed()
    }

    async fn release(&self, guard: i64) -> Result<()> {
        self.0.simple_query(&format!("SELECT pg_advisory_unlock({guard})")).await?;
        Ok(())
    }
}
