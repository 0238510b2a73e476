//! Fuzzes a client in any language: `fuzz_client COMMAND {connect}`. COMMAND is its driver for `docent conform client`. A server
//! on loopback sends replies of the generator, some of them mutated; a driver that ends with an error is a finding.

use std::{
    env,
    error::Error,
    io::{self, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use arbitrary::Unstructured;
use docent_protocol::{
    arbitrary::Generator,
    dissect::{Direction, Dissector, Message},
};

const TASKS: &[u8] =
    b"1 connect 6000\n2 get /a\n3 children /a\n4 watch /a\n5 create /a x\n6 set /a y\n7 get /a\n";

/// How long a driver may take; whether it then hangs is not asked.
const LIMIT: Duration = Duration::from_secs(2);

fn main() -> Result<(), Box<dyn Error>> {
    let command: Vec<_> = env::args().skip(1).collect();
    for seed in 1.. {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let connect = listener.local_addr()?.to_string();
        thread::spawn(move || {
            listener.incoming().flatten().for_each(|stream| drop(serve(stream, seed)));
        });
        let mut words = command.iter().map(|word| word.replace("{connect}", &connect));
        let mut driver = Command::new(words.next().ok_or("COMMAND is missing")?);
        let mut driver = driver.args(words).stdin(Stdio::piped()).stdout(Stdio::null()).spawn()?;
        // Dropped behind the tasks: the driver ends when it has done them.
        let _ = driver.stdin.take().ok_or("no standard input")?.write_all(TASKS);
        let started_at = Instant::now();
        while started_at.elapsed() < LIMIT && driver.try_wait()?.is_none() {
            thread::sleep(Duration::from_millis(1));
        }
        match driver.try_wait()? {
            Some(status) if !status.success() => {
                println!("seed {seed}: {status}");
                return Ok(());
            }
            Some(_) => {}
            None => driver.kill().and_then(|()| driver.wait().map(drop))?,
        }
    }
    Ok(())
}

fn serve(mut stream: TcpStream, seed: u64) -> io::Result<()> {
    let bytes = random(seed);
    let mut choices = Unstructured::new(&bytes);
    let (valid, any) = (Generator::default(), Generator { mutate: true, harmful: false });
    let (mut dissector, mut buffer) = (Dissector::new(), [0; 4096]);
    loop {
        let read = match stream.read(&mut buffer)? {
            0 => return Ok(()),
            read => read,
        };
        let mut input = &buffer[..read];
        while let Some(frame) = dissector.feed(Direction::ToServer, &mut input) {
            let answer = match frame.message {
                Message::ConnectRequest(_) => valid.connect_response(&mut choices),
                Message::Request { header, .. } => any.reply(&mut choices, header.xid, header.op),
                _ => continue,
            };
            stream.write_all(&answer.map_err(io::Error::other)?)?;
        }
    }
}

/// The choices of a seed. (Xorshift.)
fn random(seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_be_bytes()
    };
    (0..512).flat_map(|_| next()).collect()
}
