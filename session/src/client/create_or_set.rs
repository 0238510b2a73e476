//! Writes the data of a node, whether it exists or not.

use docent_protocol::{OpCode, Stat};

use super::{
    client::Client,
    create_options::{CreateOptions, check_parents},
    response::Call,
};
use crate::{Error, ErrorKind};

/// How often the call begins again when other clients create and delete the node meanwhile.
const MAX_ATTEMPTS: u32 = 10;

impl Client {
    /// Writes the data of a node, and creates it if it does not exist. `options` are those of the [create](Self::create).
    /// Returns the new Stat of a node that existed; `None` if the node was created, whose version is then 0.
    ///
    /// Sends setData (5), without regard to the version. If it fails with `NoNode`, sends the requests of
    /// [`create`](Self::create), with parents if the options say so. If that fails with `NodeExists`, because another client was faster, it begins again, at most ten times.
    ///
    /// The order is not Curator's, which creates first. A node that exists takes one request this way, and needs no
    /// permission on its parent.
    ///
    /// # Errors
    ///
    /// Those of [`set_data`](Self::set_data) and [`create`](Self::create).
    ///
    /// * `NoNode`: the parent does not exist.
    /// * `BadArguments`: a sequential mode, in which no node has this path. Nothing was sent.
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
    /// # use docent_protocol::CreateMode;
    /// # let client = docent_session::Client::connect(&server.connect_string()).await?;
    /// assert!(client.create_or_set("/config", b"one", CreateMode::Persistent).await?.is_none());
    /// assert_eq!(client.create_or_set("/config", b"two", CreateMode::Persistent).await?.unwrap().version, 1);
    /// # client.close().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Source: Curator's `CreateBuilder.orSetData`, `CreateBuilderImpl.pathInForeground`.
    pub fn create_or_set<'a>(
        &'a self,
        path: &'a str,
        data: &'a [u8],
        options: impl Into<CreateOptions<'a>>,
    ) -> Call<'a, Option<Stat>> {
        let options = options.into();
        Call::new(self.runtime(), OpCode::SetData, path, async move {
            if options.mode().is_sequential() {
                let why = format_args!("no node in mode {} has this path", options.mode());
                let error = Error::refused(ErrorKind::BadArguments, why);
                return Err(error.with_operation(OpCode::Create, path));
            }
            options.parents().map_or(Ok(()), |mode| check_parents(path, mode))?;
            let mut attempt = 1;
            loop {
                let written = self.set_data(path, data, None).allow(ErrorKind::NoNode).await?;
                if written.is_some() {
                    return Ok(written);
                }
                match self.create(path, data, options).await {
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
