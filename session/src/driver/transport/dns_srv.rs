//! SRV records, by hickory-resolver.

use std::io;

use hickory_resolver::{
    TokioResolver,
    net::NetError,
    proto::rr::{RData, RecordType},
};
use tokio::runtime::Handle;

use crate::config::Host;

/// Asks the DNS servers of the system. Their list is read each time, and nothing is kept between two lookups.
pub(super) async fn lookup(name: &str) -> io::Result<Vec<Host>> {
    let runtime = Handle::try_current().map_err(|_| {
        io::Error::other("there is no runtime of tokio; implement Transport::lookup_servers")
    })?;
    // Reads files.
    let resolver = runtime.spawn_blocking(|| TokioResolver::builder_tokio()?.build());
    ask(&resolver.await?.map_err(failed)?, name).await
}

/// The targets and ports of the SRV records of a name.
///
/// Source: `DnsSrvHostProvider.createAddressFromSrvRecord`; RFC 2782 for the target `.`.
async fn ask(resolver: &TokioResolver, name: &str) -> io::Result<Vec<Host>> {
    let found = resolver.lookup(name, RecordType::SRV).await.map_err(failed)?;
    let servers = found.answers().iter().filter_map(|record| match &record.data {
        RData::SRV(srv) if srv.port != 0 && !srv.target.is_root() => {
            let target = srv.target.to_ascii();
            let name = target.trim_end_matches('.');
            // An escaped character is in no name of a host.
            let is_host = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.');
            name.bytes().all(is_host).then(|| Host { name: name.to_owned(), port: srv.port })
        }
        _ => None,
    });
    Ok(servers.collect())
}

fn failed(error: NetError) -> io::Error {
    if error.is_nx_domain() {
        io::Error::new(io::ErrorKind::NotFound, "the name does not exist in DNS")
    } else if error.is_no_records_found() {
        io::Error::new(io::ErrorKind::NotFound, "there are no SRV records")
    } else {
        io::Error::other(format!("SRV records: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use std::{
        future::Future as _,
        net::Ipv4Addr,
        pin::pin,
        task::{Context, Poll, Waker},
        time::Duration,
    };

    use hickory_resolver::{
        config::{ConnectionConfig, NameServerConfig, ResolverConfig},
        net::runtime::TokioRuntimeProvider,
    };
    use tokio::net::UdpSocket;

    use super::*;

    /// Priority, weight, port and target.
    type Record = (u16, u16, u16, &'static str);

    /// Looks up a name at a DNS server on loopback that has these records for each name. `code` is that of
    /// its replies; without one, it does not reply.
    async fn asked(records: &'static [Record], code: Option<u8>) -> Result<Vec<String>, String> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let mut connection = ConnectionConfig::udp();
        connection.port = socket.local_addr().unwrap().port();
        let server = NameServerConfig::new(Ipv4Addr::LOCALHOST.into(), true, vec![connection]);
        let config = ResolverConfig::from_name_servers(vec![server]);
        let mut resolver =
            TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
        resolver.options_mut().timeout = Duration::from_millis(200);
        resolver.options_mut().attempts = 1;
        let serving = tokio::spawn(async move {
            let mut query = [0; 512];
            loop {
                let (length, client) = socket.recv_from(&mut query).await.unwrap();
                if let Some(code) = code {
                    let reply = reply(&query[..length], records, code);
                    socket.send_to(&reply, client).await.unwrap();
                }
            }
        });
        let found = ask(&resolver.build().unwrap(), "_zk._tcp.example.").await;
        serving.abort();
        let found = found.map_err(|error| error.to_string())?;
        Ok(found.iter().map(ToString::to_string).collect())
    }

    /// RFC 1035, 4.1; RFC 2782.
    fn reply(query: &[u8], records: &[Record], code: u8) -> Vec<u8> {
        let question = &query[12..];
        let length = question.iter().position(|byte| *byte == 0).unwrap() + 5;
        let count = u8::try_from(records.len()).unwrap();
        let mut reply = query[..2].to_vec();
        reply.extend([0x81, 0x80 | code, 0, 1, 0, count, 0, 0, 0, 0]);
        reply.extend(&question[..length]);
        for (priority, weight, port, target) in records {
            let mut data = Vec::new();
            for number in [priority, weight, port] {
                data.extend(number.to_be_bytes());
            }
            for label in target.split('.').filter(|label| !label.is_empty()) {
                data.push(u8::try_from(label.len()).unwrap());
                data.extend(label.as_bytes());
            }
            data.push(0);
            // The name of the question, SRV, IN, 60 s.
            reply.extend([0xc0, 12, 0, 33, 0, 1, 0, 0, 0, 60]);
            reply.extend(u16::try_from(data.len()).unwrap().to_be_bytes());
            reply.extend(data);
        }
        reply
    }

    #[test]
    fn a_lookup_outside_tokio_is_refused() {
        let mut lookup = pin!(lookup("zk.example"));
        let polled = lookup.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        let Poll::Ready(Err(error)) = polled else { panic!("{polled:?}") };
        assert!(error.to_string().contains("lookup_servers"), "{error}");
    }

    // Case (Found in docent itself): a target of an SRV record with a space, a slash or a colon was a server.
    #[tokio::test]
    async fn srv_records_are_read() {
        // Records with a port of 0, with the target `.` or with an invalid host name are skipped.
        let records: &[Record] = &[
            (1, 9, 2281, "zk1.example"),
            (0, 0, 2181, "zk2.example"),
            (0, 0, 0, "zk3.example"),
            (0, 0, 2181, "."),
            (0, 0, 2181, "zk 4.example"),
            (0, 0, 2181, "zk5/app.example"),
        ];
        let found = asked(records, Some(0)).await.unwrap();
        assert_eq!(found, ["zk1.example:2281", "zk2.example:2181"]);
    }

    #[tokio::test]
    async fn an_answer_without_records_is_named() {
        for (code, text) in [
            (Some(0), "there are no SRV records"),
            (Some(3), "the name does not exist in DNS"),
            (Some(5), "Refused"),
            (None, "timed out"),
        ] {
            let error = asked(&[], code).await.unwrap_err();
            assert!(error.contains(text), "{code:?}: {error}");
        }
    }
}
