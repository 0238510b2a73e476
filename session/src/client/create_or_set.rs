//! Writes the data of a node, whether it exists or not.

use docent_protocol::{CreateMode, Stat};

use super::{client::Client, response::Call};
use crate::ErrorKind;

/// How often the call begins again when other clients create and delete the node meanwhile.
const MAX_ATTEMPTS: u32 = 10;

impl Client {
    /// Writes the data of a node, and creates it if it does not exist: persistent, for everybody (`OPEN_ACL_UNSAFE`).
    /// Returns the new Stat of a node that existed; `None` if the node was created, whose version is then 0.
    ///
    /// Sends setData (5), without regard to the version. If it fails with `NoNode`, sends create (1). If that fails with
    /// `NodeExists`, because another client was faster, it begins again, at most ten times.
    ///
    /// The order is not Curator's, which creates first. A node that exists takes one request this way, and needs no
    /// permission on its parent.
    ///
    /// # Errors
    ///
    /// Those of [`set_data`](Self::set_data) and [`create`](Self::create).
    ///
    /// * `NoNode`: the parent does not exist; see [`create_parents`](Self::create_parents).
    /// * `NodeExists`: other clients created and deleted the node again and again.
    /// * `ConnectionLoss` with [`Outcome::Unknown`](crate::Outcome::Unknown): the data may have been written. No request
    ///   is repeated after it. A repeated call writes the same data, unless another client has written since: it would
    ///   then overwrite them.
    ///
    /// # Cancel safety
    ///
    /// The requests are sent as the future is polled. If it is dropped, the data may have been written.
    ///
    /// # Example
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = docent_testing::TestingServer::start().await?;
    /// # let client = docent_session::Client::connect(&server.connect_string()).await?;
    /// assert!(client.create_or_set("/config", b"one").await?.is_none());
    /// assert_eq!(client.create_or_set("/config", b"two").await?.unwrap().version, 1);
    /// # client.close().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Source: Curator's `CreateBuilder.orSetData`, `CreateBuilderImpl.pathInForeground`.
    pub fn create_or_set<'a>(&'a self, path: &'a str, data: &'a [u8]) -> Call<'a, Option<Stat>> {
        Call::new(async move {
            let mut attempt = 1;
            loop {
                let written = self.set_data(path, data, None).allow(ErrorKind::NoNode).await?;
                if written.is_some() {
                    return Ok(written);
                }
                match self.create(path, data, CreateMode::Persistent).await {
                    Ok(_) => return Ok(None),
                    Err(error)
                        if error.kind() == ErrorKind::NodeExists && attempt < MAX_ATTEMPTS => {}
                    Err(error) => return Err(error),
                }
                attempt += 1;
            }
        })
    }
}
