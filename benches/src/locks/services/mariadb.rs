//! MariaDB: named locks, and rows locked in a transaction.

use mysql_async::{Conn, OptsBuilder, prelude::Queryable};
use tokio::sync::Mutex;

use xtask::Result;

use super::{Service, Target};

async fn connect(target: &Target) -> Result<Conn> {
    let (host, port) = target.address().split_once(':').ok_or("an address without a port")?;
    let options = OptsBuilder::default()
        .ip_or_hostname(host)
        .tcp_port(port.parse()?)
        .user(Some("root"))
        .prefer_socket(false);
    let mut connection = Conn::new(options).await?;
    for statement in [
        "CREATE DATABASE IF NOT EXISTS locks",
        "USE locks",
        "CREATE TABLE IF NOT EXISTS locks (name VARCHAR(64) PRIMARY KEY) ENGINE=InnoDB",
        "SET SESSION innodb_lock_wait_timeout = 3600",
    ] {
        connection.query_drop(statement).await?;
    }
    Ok(connection)
}

/// A connection with named locks.
pub(crate) struct GetLock(Mutex<Conn>);

impl Service for GetLock {
    type Guard = String;

    async fn connect(target: &Target) -> Result<Self> {
        Ok(Self(Mutex::new(connect(target).await?)))
    }

    async fn acquire(&self, lock: &str) -> Result<String> {
        let query = format!("SELECT GET_LOCK('{lock}', 3600)");
        let granted: Option<Option<i64>> = self.0.lock().await.query_first(query).await?;
        if granted.flatten() == Some(1) {
            Ok(lock.to_owned())
        } else {
            Err(format!("GET_LOCK('{lock}') returned {granted:?}").into())
        }
    }

    async fn is_held(&self, guard: &String) -> bool {
        let query = format!("SELECT IS_USED_LOCK('{guard}') = CONNECTION_ID()");
        let held = self.0.lock().await.query_first::<Option<i64>, _>(query).await;
        matches!(held, Ok(Some(Some(1))))
    }

    async fn release(&self, guard: String) -> Result<()> {
        let query = format!("SELECT RELEASE_LOCK('{guard}')");
        self.0.lock().await.query_drop(query).await?;
        Ok(())
    }
}

/// A connection whose transaction locks rows.
pub(crate) struct ForUpdate(Mutex<(Conn, usize)>);

impl Service for ForUpdate {
    type Guard = ();

    async fn connect(target: &Target) -> Result<Self> {
        Ok(Self(Mutex::new((connect(target).await?, 0))))
    }

    async fn prepare(&self, lock: &str) -> Result<()> {
        let query = format!("INSERT IGNORE INTO locks VALUES ('{lock}')");
        self.0.lock().await.0.query_drop(query).await?;
        Ok(())
    }

    async fn acquire(&self, lock: &str) -> Result<()> {
        let mut connection = self.0.lock().await;
        if connection.1 == 0 {
            connection.0.query_drop("START TRANSACTION").await?;
        }
        let query = format!("SELECT name FROM locks WHERE name = '{lock}' FOR UPDATE");
        let row: Option<String> = connection.0.query_first(query).await?;
        row.ok_or("no row of this name")?;
        connection.1 += 1;
        Ok(())
    }

    async fn is_held(&self, _guard: &()) -> bool {
        self.0.lock().await.0.query_drop("SELECT 1").await.is_ok()
    }

    /// Ends the transaction when its last row is released.
    async fn release(&self, _guard: ()) -> Result<()> {
        let mut connection = self.0.lock().await;
        connection.1 = connection.1.saturating_sub(1);
        if connection.1 == 0 {
            connection.0.query_drop("COMMIT").await?;
        }
        Ok(())
    }
}
