//! What nodes say for which nothing else was said.

use bytes::Bytes;
use docent_session::Client;
use tokio::sync::OnceCell;

use crate::locks::LockOptions;

/// The default data of the options, or this host's address, which is found out once.
///
/// Source: `CuratorFrameworkFactory.Builder.defaultData`, `getLocalAddress`.
pub(crate) async fn default_data(
    known: &OnceCell<Bytes>,
    client: &Client,
    options: &LockOptions,
) -> Bytes {
    match &options.default_data {
        Some(data) => data.clone(),
        None => known.get_or_init(|| local_address(client)).await.clone(),
    }
}

/// This host's address on its way to the first server; empty if there is none. Nothing is sent.
async fn local_address(client: &Client) -> Bytes {
    let hosts = client.config().connect_string.hosts();
    let Some(host) = hosts.first() else { return Bytes::new() };
    let address = async {
        let server = tokio::net::lookup_host((host.name.as_str(), host.port)).await.ok()?.next()?;
        let any: std::net::IpAddr = if server.is_ipv4() {
            std::net::Ipv4Addr::UNSPECIFIED.into()
        } else {
            std::net::Ipv6Addr::UNSPECIFIED.into()
        };
        let socket = tokio::net::UdpSocket::bind((any, 0)).await.ok()?;
        socket.connect(server).await.ok()?;
        Some(socket.local_addr().ok()?.ip().to_string())
    };
    address.await.map(Bytes::from).unwrap_or_default()
}
