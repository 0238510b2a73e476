//! The session machine on a blocking socket: no runtime, no threads. Reconnects as every client does.
//! `DOCENT_CONNECT=127.0.0.1:2181 cargo run -p docent-session --no-default-features --example embed`

use bytes::BytesMut;
use docent_protocol::{jute::*, operation::GetChildren};
use docent_protocol::{reply::GetChildrenReply, request::ReadRequest};
use docent_session::machine::{Connect, Session};
use docent_session::{Config, Error, ErrorKind, Outcome, runtime::Instant};
use std::{error, io, io::Read, io::Write, net::TcpStream, thread, time, time::Duration};

#[expect(clippy::disallowed_methods, reason = "the driver reads the clock")]
fn main() -> Result<(), Box<dyn error::Error>> {
    let connect = std::env::var("DOCENT_CONNECT")?;
    let mut session: Session<&str, ()> = Session::new(Config::new(&connect)?, 1);
    let start = time::Instant::now();
    let now = || Instant::from_nanos(1) + start.elapsed();
    let (mut connection, mut input, mut output) = (None, BytesMut::new(), Vec::new());
    let list = GetChildren(ReadRequest { path: "/".into(), watch: false });
    session.submit(&list, "the root's children", None, now);
    while !session.is_ended() {
        if let Connect::To(host, _) = session.poll_connect(now()) {
            connection = Some((TcpStream::connect((&*host.name, host.port)), host));
            session.handle_connected(now());
        }
        thread::sleep(Duration::from_millis(u64::from(connection.is_none())));
        session.handle_timeout(now());
        session.poll_transmit(now(), &mut output);
        let moved = match &mut connection {
            Some((Ok(stream), _)) => exchange(stream, &output, &mut input),
            Some((Err(error), _)) => Err(error.kind().into()),
            None => Ok(()),
        };
        session.handle_input(now(), &mut input);
        let lost = |why| Error::new(ErrorKind::ConnectionLoss, Outcome::Unknown).with_source(why);
        if let Some(why) = session.wants_disconnect().or_else(|| moved.err().map(lost))
            && let Some((_, host)) = connection.take()
        {
            session.handle_disconnected(now(), &host, &why);
        }
        while let Some(done) = session.poll_completion() {
            let (token, reply) = (done.token, done.result?.bytes);
            println!("{token}: {:?}", GetChildrenReply::decode(&mut Reader::new(&reply))?);
            session.close(None, now() + Duration::from_secs(5));
        }
        while session.poll_event().is_some() {}
    }
    Ok(())
}

/// Writes, and reads the bytes that arrive within a moment: the machine's alarms are further apart.
fn exchange(stream: &mut TcpStream, output: &[u8], input: &mut BytesMut) -> io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_millis(10)))?;
    stream.write_all(output)?;
    let mut buffer = [0; 4096];
    match stream.read(&mut buffer).map(|count| buffer.get(..count).unwrap_or_default()) {
        Ok([]) => Err(io::ErrorKind::UnexpectedEof.into()),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
        read => read.map(|bytes| input.extend_from_slice(bytes)),
    }
}
