//! An NBD server for tests: a volatile and a durable copy, and faults at any step.
//!
//! Requests of one connection are answered in the order in which they arrive, unless they are held: then in the reverse
//! order, once there are enough of them.

#![allow(dead_code)]

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use xfskit_nbd::{Address, NbdDevice, OpenError, Options, Writers};

pub const READ: u16 = 0;
pub const WRITE: u16 = 1;
pub const DISCONNECT: u16 = 2;
pub const FLUSH: u16 = 3;
pub const TRIM: u16 = 4;
pub const WRITE_ZEROES: u16 = 6;
pub const BLOCK_STATUS: u16 = 7;

pub const READ_ONLY: u16 = 2;
pub const SEND_FLUSH: u16 = 4;
pub const SEND_FUA: u16 = 8;
pub const SEND_TRIM: u16 = 32;
pub const SEND_WRITE_ZEROES: u16 = 64;
pub const CAN_MULTI_CONN: u16 = 256;
pub const USUAL: u16 = 1 | SEND_FLUSH | SEND_TRIM | SEND_WRITE_ZEROES;

pub const SECTOR: usize = 512;
pub const CONTEXT: u32 = 77;

/// Where the connections are cut, and the unflushed sectors lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    InRequest,
    BeforeDone,
    BeforeReply,
    InReply,
    AfterReply,
}

pub const STEPS: [Step; 5] = [Step::InRequest, Step::BeforeDone, Step::BeforeReply, Step::InReply, Step::AfterReply];

#[derive(Clone)]
pub struct Plan {
    pub size: usize,
    pub flags: u16,
    /// Minimum, preferred, maximum.
    pub blocks: Option<(u32, u32, u32)>,
    pub structured: bool,
    /// At which request of all connections, counted from 0.
    pub cut: Option<(usize, Step)>,
    /// Chooses what of the unflushed sectors is lost.
    pub seed: u64,
    /// Answers nothing before so many requests of a connection have arrived.
    pub hold: usize,
    /// The error of requests of a kind, and how many of them have it.
    pub errors: BTreeMap<u16, (u32, usize)>,
    /// Never answers requests of this kind.
    pub silent: Option<u16>,
    /// Waits before it does the requests at an offset.
    pub slow: Option<(u64, Duration)>,
    /// Changes bytes of what is sent, one in so many.
    pub noise: Option<u64>,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            size: 8 << 20,
            flags: USUAL,
            blocks: None,
            structured: true,
            cut: None,
            seed: 1,
            hold: 1,
            errors: BTreeMap::new(),
            silent: None,
            slow: None,
            noise: None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    pub connection: usize,
    pub command: u16,
    pub flags: u16,
    pub offset: u64,
    pub bytes: u32,
}

struct State {
    plan: Plan,
    durable: Vec<u8>,
    volatile: Vec<u8>,
    seen: Vec<Seen>,
    requests: usize,
    streams: Vec<UnixStream>,
    random: u64,
    cuts: usize,
}

impl State {
    fn random(&mut self) -> u64 {
        // SplitMix64.
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// The server dies: any part of what was not flushed is lost. It is at once there again.
    fn crash(&mut self) {
        for start in (0..self.durable.len()).step_by(SECTOR) {
            if self.random().is_multiple_of(2) {
                let sector = start..start + SECTOR;
                self.durable[sector.clone()].copy_from_slice(&self.volatile[sector]);
            }
        }
        self.volatile.clone_from(&self.durable);
        self.cuts += 1;
        for stream in self.streams.drain(..) {
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
    }
}

pub struct Server {
    state: Arc<Mutex<State>>,
    socket: PathBuf,
    _dir: tempfile::TempDir,
}

impl Server {
    pub fn start(plan: Plan) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("nbd.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let contents = vec![0; plan.size];
        let state = State {
            random: plan.seed,
            durable: contents.clone(),
            volatile: contents,
            seen: Vec::new(),
            requests: 0,
            streams: Vec::new(),
            cuts: 0,
            plan,
        };
        let state = Arc::new(Mutex::new(state));
        let accepted = Arc::clone(&state);
        std::thread::spawn(move || {
            for (number, stream) in listener.incoming().enumerate() {
                let Ok(stream) = stream else { return };
                let state = Arc::clone(&accepted);
                let born = {
                    let mut state = state.lock().unwrap();
                    state.streams.push(stream.try_clone().unwrap());
                    state.cuts
                };
                // The end of a connection is an error here.
                std::thread::spawn(move || drop(Session { state, stream, number, born, queue: Vec::new() }.serve()));
            }
        });
        Self { state, socket, _dir: dir }
    }

    pub fn address(&self) -> Address {
        address(&self.socket, "disk")
    }

    pub fn open(&self) -> Result<NbdDevice, OpenError> {
        NbdDevice::open(&self.address(), &quick())
    }

    pub fn open_writable(&self) -> Result<NbdDevice, OpenError> {
        NbdDevice::open_writable(&self.address(), Writers::OthersKeptOut, &quick())
    }

    /// The requests since the last call.
    pub fn seen(&self) -> Vec<Seen> {
        std::mem::take(&mut self.state.lock().unwrap().seen)
    }

    pub fn durable(&self) -> Vec<u8> {
        self.state.lock().unwrap().durable.clone()
    }

    pub fn volatile(&self) -> Vec<u8> {
        self.state.lock().unwrap().volatile.clone()
    }

    pub fn cuts(&self) -> usize {
        self.state.lock().unwrap().cuts
    }

    /// The next requests of a kind have an error.
    pub fn fail(&self, command: u16, error: u32, times: usize) {
        self.change(|plan| {
            plan.errors.insert(command, (error, times));
        });
    }

    pub fn change(&self, change: impl FnOnce(&mut Plan)) {
        change(&mut self.state.lock().unwrap().plan);
    }

    pub fn crash(&self) {
        self.state.lock().unwrap().crash();
    }
}

pub fn address(socket: &Path, export: &str) -> Address {
    format!("nbd+unix:///{export}?socket={}", socket.display()).parse().unwrap()
}

pub fn quick() -> Options {
    Options { opening: Duration::from_secs(5), silence: Duration::from_secs(5), ..Options::default() }
}

struct Session {
    state: Arc<Mutex<State>>,
    stream: UnixStream,
    number: usize,
    /// How often the server had died before.
    born: usize,
    queue: Vec<(Seen, u64, Vec<u8>)>,
}

impl Session {
    fn take<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.stream.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    fn take_bytes(&mut self, count: u32) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; count as usize];
        self.stream.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    fn put(&mut self, mut bytes: Vec<u8>) -> io::Result<()> {
        {
            let mut state = self.state.lock().unwrap();
            if let Some(noise) = state.plan.noise {
                for byte in &mut bytes {
                    if state.random().is_multiple_of(noise) {
                        *byte ^= 1 << (state.random() % 8);
                    }
                }
            }
        }
        self.stream.write_all(&bytes)
    }

    fn plan(&self) -> Plan {
        self.state.lock().unwrap().plan.clone()
    }

    fn serve(&mut self) -> io::Result<()> {
        let structured = self.negotiate()?;
        loop {
            assert_eq!(u32::from_be_bytes(self.take()?), 0x2560_9513);
            let flags = u16::from_be_bytes(self.take()?);
            let command = u16::from_be_bytes(self.take()?);
            let cookie = u64::from_be_bytes(self.take()?);
            let offset = u64::from_be_bytes(self.take()?);
            let bytes = u32::from_be_bytes(self.take()?);
            let seen = Seen { connection: self.number, command, flags, offset, bytes };
            let number = {
                let mut state = self.state.lock().unwrap();
                state.seen.push(seen);
                state.requests += 1;
                state.requests - 1
            };
            let plan = self.plan();
            let cut = |step| plan.cut == Some((number, step));
            if cut(Step::InRequest) {
                return self.crash();
            }
            if command == DISCONNECT {
                return Ok(());
            }
            let data = if command == WRITE { self.take_bytes(bytes)? } else { Vec::new() };
            self.queue.push((seen, cookie, data));
            if self.queue.len() < plan.hold {
                continue;
            }
            while let Some((seen, cookie, data)) = self.queue.pop() {
                if cut(Step::BeforeDone) {
                    return self.crash();
                }
                if plan.silent == Some(seen.command) {
                    continue;
                }
                if let Some((_, time)) = plan.slow.filter(|(offset, _)| *offset == seen.offset) {
                    std::thread::sleep(time);
                }
                let reply = self.answer(structured, seen, cookie, &data)?;
                if cut(Step::BeforeReply) {
                    return self.crash();
                }
                if cut(Step::InReply) {
                    self.put(reply[..reply.len() / 2].to_vec())?;
                    return self.crash();
                }
                self.put(reply)?;
                if cut(Step::AfterReply) {
                    return self.crash();
                }
            }
        }
    }

    fn crash(&mut self) -> io::Result<()> {
        self.state.lock().unwrap().crash();
        Err(io::ErrorKind::ConnectionAborted.into())
    }

    fn negotiate(&mut self) -> io::Result<bool> {
        let plan = self.plan();
        self.put([b"NBDMAGICIHAVEOPT".as_slice(), &[0, 3]].concat())?;
        assert_eq!(u32::from_be_bytes(self.take()?), 3);
        let mut structured = false;
        loop {
            assert_eq!(&self.take::<8>()?, b"IHAVEOPT");
            let option = u32::from_be_bytes(self.take()?);
            let length = u32::from_be_bytes(self.take()?);
            let data = self.take_bytes(length)?;
            let mut reply = |kind: u32, data: &[u8]| {
                let mut bytes = 0x0003_e889_0455_65a9_u64.to_be_bytes().to_vec();
                bytes.extend([option, kind, data.len() as u32].iter().flat_map(|word| word.to_be_bytes()));
                bytes.extend(data);
                self.put(bytes)
            };
            match option {
                2 => return reply(1, &[]).and(Err(io::ErrorKind::ConnectionAborted.into())),
                3 => {
                    for name in ["disk", "other"] {
                        reply(2, &[&(name.len() as u32).to_be_bytes()[..], name.as_bytes()].concat())?;
                    }
                    reply(1, &[])?;
                }
                8 if plan.structured => {
                    structured = true;
                    reply(1, &[])?;
                }
                10 => {
                    reply(4, &[&CONTEXT.to_be_bytes()[..], b"base:allocation"].concat())?;
                    reply(1, &[])?;
                }
                7 => {
                    let name = u32::from_be_bytes(data[..4].try_into().unwrap()) as usize;
                    if &data[4..4 + name] != b"disk" {
                        reply(0x8000_0006, b"what?")?;
                        continue;
                    }
                    let size = (plan.size as u64).to_be_bytes();
                    reply(3, &[&[0, 0], &size[..], &plan.flags.to_be_bytes()].concat())?;
                    if let Some((minimum, preferred, maximum)) = plan.blocks {
                        let sizes = [minimum, preferred, maximum].map(u32::to_be_bytes).concat();
                        reply(3, &[&[0, 3], &sizes[..]].concat())?;
                    }
                    reply(1, &[])?;
                    return Ok(structured);
                }
                _ => reply(0x8000_0001, &[])?,
            }
        }
    }

    fn answer(&mut self, structured: bool, seen: Seen, cookie: u64, data: &[u8]) -> io::Result<Vec<u8>> {
        let mut state = self.state.lock().unwrap();
        if state.cuts != self.born {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        if let Some((error, left)) = state.plan.errors.get_mut(&seen.command)
            && *left > 0
        {
            *left -= 1;
            let error = *error;
            if seen.command == FLUSH {
                // As a host whose disk fails: what was not written is forgotten, and reported once.
                let durable = state.durable.clone();
                state.volatile = durable;
            }
            return Ok(match structured {
                true => chunk(cookie, 0x8001, &[&error.to_be_bytes()[..], &[0, 5], b"a\x1bsad"].concat()),
                false => simple(cookie, error),
            });
        }
        let range = seen.offset as usize..seen.offset as usize + seen.bytes as usize;
        let minimum = state.plan.blocks.map_or(512, |(minimum, ..)| minimum as usize);
        assert!(range.start % minimum == 0 && range.end % minimum == 0 && range.end <= state.volatile.len());
        Ok(match seen.command {
            READ => {
                let maximum = state.plan.blocks.map_or(32 << 20, |(.., maximum)| maximum);
                assert!(seen.bytes <= maximum);
                let data = &state.volatile[range];
                match structured {
                    true => structured_read(cookie, seen.offset, data),
                    false => [simple(cookie, 0), data.to_vec()].concat(),
                }
            }
            WRITE => {
                if seen.flags & 1 != 0 {
                    assert!(state.plan.flags & SEND_FUA != 0);
                    state.durable[range.clone()].copy_from_slice(data);
                }
                state.volatile[range].copy_from_slice(data);
                simple(cookie, 0)
            }
            WRITE_ZEROES | TRIM => {
                state.volatile[range].fill(0);
                simple(cookie, 0)
            }
            FLUSH => {
                let volatile = state.volatile.clone();
                state.durable = volatile;
                simple(cookie, 0)
            }
            BLOCK_STATUS => {
                // A descriptor for each half; the server may say less than it is asked for.
                let mut payload = CONTEXT.to_be_bytes().to_vec();
                let half = (seen.bytes / 2).next_multiple_of(512);
                for part in [range.start..range.start + half as usize, range.start + half as usize..range.end] {
                    if !part.is_empty() {
                        let zeros = state.volatile[part.clone()].iter().all(|byte| *byte == 0);
                        payload.extend((part.len() as u32).to_be_bytes());
                        payload.extend(if zeros { 3_u32 } else { 0 }.to_be_bytes());
                    }
                }
                chunk(cookie, 5, &payload)
            }
            command => panic!("command {command}"),
        })
    }
}

fn simple(cookie: u64, error: u32) -> Vec<u8> {
    [&0x6744_6698_u32.to_be_bytes()[..], &error.to_be_bytes(), &cookie.to_be_bytes()].concat()
}

fn chunk_with(cookie: u64, flags: u16, kind: u16, payload: &[u8]) -> Vec<u8> {
    let mut bytes = 0x668e_33ef_u32.to_be_bytes().to_vec();
    bytes.extend(flags.to_be_bytes());
    bytes.extend(kind.to_be_bytes());
    bytes.extend(cookie.to_be_bytes());
    bytes.extend((payload.len() as u32).to_be_bytes());
    bytes.extend(payload);
    bytes
}

fn chunk(cookie: u64, kind: u16, payload: &[u8]) -> Vec<u8> {
    chunk_with(cookie, 1, kind, payload)
}

/// The second half comes first, and zeros as a hole.
fn structured_read(cookie: u64, offset: u64, data: &[u8]) -> Vec<u8> {
    let half = data.len() / 2;
    let mut bytes = Vec::new();
    for part in [half..data.len(), 0..half] {
        let at = (offset + part.start as u64).to_be_bytes();
        let (length, data) = (part.len() as u32, &data[part]);
        bytes.extend(match data.iter().all(|byte| *byte == 0) {
            true => chunk_with(cookie, 0, 2, &[&at[..], &length.to_be_bytes()].concat()),
            false => chunk_with(cookie, 0, 1, &[&at[..], data].concat()),
        });
    }
    bytes.extend(chunk(cookie, 0, &[]));
    bytes
}
