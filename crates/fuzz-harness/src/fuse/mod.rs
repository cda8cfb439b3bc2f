//! The fuzz target of the FUSE server: requests in any order, compared with a model. They are sent over a pair of
//! sockets, without a kernel, which would refuse most of them.
//!
//! ```text
//! input    requests: operation (1 byte), then its operands: which node (1), which name (1), flags, offsets, sizes
//! node     one that the model knows; for the last bytes of a byte's range one that was freed, or any number
//! ```
//! Each answer is compared with the model's. A request that breaks rules must fail with the error of one of these
//! rules. In the end the image is closed, opened again, compared with the model, and checked.

mod attributes;
mod contents;
mod files;
mod model;
mod names;
mod wire;

use crate::image::{empty, small};
use crate::{Behaviour, Overlay};
use model::{Model, Node, ROOT, TYPE};
use std::fmt::Write;
use std::sync::{Arc, LazyLock};
use std::thread::JoinHandle;
use wire::{Answer, Asker, Body, Connection, Errno, Opens, u32_at, u64_at};
use xfskit_check::{CheckOptions, Quiet};
use xfskit_engine::{MountOptions, Volume};
use xfskit_fuse::{MountError, Options, WriteCache, serve};
use xfskit_ondisk::InodeNumber;

const EPERM: Errno = 1;
const ENOENT: Errno = 2;
const ENXIO: Errno = 6;
const E2BIG: Errno = 7;
const EEXIST: Errno = 17;
const ENOTDIR: Errno = 20;
const EISDIR: Errno = 21;
const EINVAL: Errno = 22;
const EFBIG: Errno = 27;
const ENOSPC: Errno = 28;
const ERANGE: Errno = 34;
const ENAMETOOLONG: Errno = 36;
const ENOTEMPTY: Errno = 39;
const ENODATA: Errno = 61;
const EOPNOTSUPP: Errno = 95;
const ESTALE: Errno = 116;
const EUCLEAN: Errno = 117;

/// The allowed errors for a number that is no inode of the tree. A kernel never sends such a number, so EUCLEAN is
/// right too.
const NO_INODE: [Errno; 4] = [ESTALE, ENOENT, EINVAL, EUCLEAN];
const IMAGE_BYTES: usize = 24 << 20;
const MAX_REQUESTS: usize = 300;
/// Offset of the attributes in an answer with an entry, and in one with attributes alone.
const ENTRY_ATTR: usize = 40;
const ATTR_ATTR: usize = 16;
const ENTRY_BYTES: usize = 128;
/// The place of the command in the body of an ioctl, and the command that asks for flags.
const IOCTL_COMMAND: std::ops::Range<usize> = 12..16;
const GET_XFLAGS: u32 = 0x801c_581f;
/// Requests that a failure shows.
const MAX_SHOWN: usize = 40;

static BASE: LazyLock<Arc<Vec<u8>>> = LazyLock::new(|| Arc::new(empty(IMAGE_BYTES, &small([7; 16])).to_bytes()));

/// The bytes of an input, one after the other; zeros after the end.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    fn word(&mut self) -> u32 {
        u32::from_le_bytes([self.byte(), self.byte(), self.byte(), self.byte()])
    }

    /// An offset or a size: small, of whole blocks, or near a limit.
    fn offset(&mut self) -> u64 {
        let (kind, value) = (self.byte(), u64::from(self.byte()) << 8 | u64::from(self.byte()));
        match kind % 16 {
            0..=5 => value,
            6..=10 => value % 64 * contents::PAGE,
            11 => value << 20,
            12 => (1 << 43) + value,
            13 => (i64::MAX as u64).wrapping_sub(value),
            14 => (i64::MAX as u64).wrapping_add(value),
            _ => u64::MAX - value,
        }
    }
}

/// A server, the kernel's side of its connection, and the model.
struct Run<'a> {
    connection: Connection,
    opens: Opens,
    model: Model,
    input: Input<'a>,
    behaviour: Behaviour,
    last: u32,
    log: Vec<String>,
}

/// The result of a run.
#[derive(Debug)]
pub struct RunResult {
    /// The behaviour of the server.
    pub behaviour: Behaviour,
    /// The image afterwards.
    pub image: Arc<Overlay>,
}

/// Runs the requests of an input. Panics if the server differs from the model.
pub fn fuse(input: &[u8]) -> Behaviour {
    run(input).behaviour
}

/// As [`fuse`], but returns the image too.
///
/// # Panics
/// If the server differs from the model.
pub fn run(input: &[u8]) -> RunResult {
    let image = Arc::new(Overlay::new(&BASE));
    let options = MountOptions { cache_bytes: 16 << 20, ..MountOptions::default() };
    let filesystem = Volume::open(Arc::clone(&image) as _, options).expect("a sound image");
    let mut input = Input(input);
    let settings = input.byte();
    let cache = if settings & 1 == 0 { WriteCache::Back } else { WriteCache::Through };
    let options = Options { allow_other: true, commit_seconds: 0, cache, ..Options::default() };
    let (mut connection, theirs) = Connection::new();
    let server = std::thread::spawn(move || serve(filesystem, theirs, &options));
    // Half of the runs are of a kernel that always sends opens, and creates with them.
    let opens = if settings & 4 == 0 { Opens::Silent } else { Opens::Sent };
    connection.begin(opens);
    connection.answer(wire::INIT).expect("a server that begins");
    let mut run = Run::new(connection, input, opens);
    while !run.input.0.is_empty() && run.log.len() < MAX_REQUESTS {
        run.step();
    }
    let (model, behaviour) = run.finish(server, settings & 2 == 0);
    judge(&image, &model);
    RunResult { behaviour, image }
}

/// Compares the image with the model, and checks it.
fn judge(image: &Arc<Overlay>, model: &Model) {
    let options = MountOptions { read_only: true, ..MountOptions::default() };
    let filesystem = Volume::open(Arc::clone(image) as _, options).expect("an image that can be opened again");
    for (number, node) in model.nodes.iter().filter(|(_, node)| node.names > 0) {
        let inode = if *number == ROOT { filesystem.root() } else { InodeNumber(*number) };
        let stat = filesystem.stat(inode).expect("an inode with a name");
        assert_eq!((u32::from(stat.mode()), stat.links), (node.mode, model.links(*number)), "inode {number}");
        if node.is_dir() {
            let listed = filesystem.list_dir(inode).expect("a directory");
            let mut found: Vec<_> = listed.into_iter().map(|entry| (entry.name, entry.inode.0)).collect();
            found.retain(|(name, _)| name != b"." && name != b"..");
            found.sort();
            let entries: Vec<_> = node.entries.iter().map(|(name, child)| (name.clone(), *child)).collect();
            assert_eq!(found, entries, "directory {number}");
        } else if node.is_file() && !node.is_uncertain {
            assert_eq!(stat.size, node.contents.size, "size of inode {number}");
        }
    }
    drop(filesystem);
    let report =
        xfskit_check::check(Arc::clone(image) as _, None, &CheckOptions { threads: 1, ..Default::default() }, &Quiet);
    let report = report.expect("an image that can be checked");
    assert!(report.is_clean(), "{report:?}");
}

impl<'a> Run<'a> {
    fn new(mut connection: Connection, input: Input<'a>, opens: Opens) -> Self {
        let attr = connection.ask(wire::GETATTR, ROOT, &Body::default().u64s(&[0, 0])).expect("the root");
        let attr = &attr[ATTR_ATTR..];
        let mut root = Node { mode: u32_at(attr, 60), names: 1, held: 1, parent: ROOT, ..Node::default() };
        let names = connection.ask(wire::LISTXATTR, ROOT, &Body::default().u32s(&[4096, 0])).expect("its attributes");
        for name in names.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
            let body = Body::default().u32s(&[4096, 0]).name(name);
            root.xattrs.insert(name.to_vec(), connection.ask(wire::GETXATTR, ROOT, &body).expect("an attribute"));
        }
        let model = Model::new(root, u64_at(attr, 0));
        Self { connection, opens, model, input, behaviour: Behaviour::new(), last: 0, log: Vec::new() }
    }

    fn step(&mut self) {
        match self.input.byte() % 34 {
            0 | 1 => self.lookup(),
            2 => self.forget(),
            3 => self.getattr(),
            4 | 5 => self.setattr(),
            6 => self.readlink(),
            7 => self.symlink(),
            8 => self.make(wire::MKNOD),
            9 | 10 => self.make(wire::MKDIR),
            // A kernel that sends no opens sends this one instead.
            11 | 12 if self.opens == Opens::Silent => self.make(wire::MKNOD),
            11 | 12 => self.make(wire::CREATE),
            13 | 14 => self.remove(wire::UNLINK),
            15 => self.remove(wire::RMDIR),
            16..=18 => self.rename(),
            19 => self.link(),
            20 => self.read(),
            21 | 22 => self.write(),
            23 => self.fallocate(),
            24 => self.seek(),
            25 => self.copy(),
            26 | 27 => self.set_xattr(),
            28 => self.get_xattr(),
            29 => self.list_xattrs(),
            30 => self.remove_xattr(),
            31 | 32 => self.read_dir(),
            _ => self.odd(),
        }
    }

    /// Ends the connection as the kernel does at an unmount, or without a request, as if the kernel were gone.
    fn finish(mut self, server: JoinHandle<Result<(), MountError>>, orderly: bool) -> (Model, Behaviour) {
        if orderly {
            self.connection.ask(wire::DESTROY, 0, &Body::default()).expect("an orderly end");
        }
        drop(self.connection);
        let served = server.join().expect("a server that does not panic");
        match served {
            Ok(()) => {}
            Err(MountError::Connection(_)) if !orderly => {}
            Err(error) => panic!("the server ended with {error}"),
        }
        (self.model, self.behaviour)
    }

    /// A number of a node: usually one that the model knows, else one that was freed, or any.
    fn node(&mut self) -> u64 {
        let byte = usize::from(self.input.byte());
        let known = &self.model.nodes;
        match byte {
            0..232 => known.keys().nth(byte % known.len()).copied().unwrap_or(ROOT),
            232..244 => self.model.freed.get(byte - 232).copied().unwrap_or(ROOT),
            244 => self.model.root_inode,
            _ => [0, u64::MAX, i64::MAX as u64, 3, 1 << 32, 1 << 20, 64, 5000][byte % 8],
        }
    }

    /// A number of a node: usually that of a directory.
    fn dir(&mut self) -> u64 {
        let byte = usize::from(self.input.byte());
        if byte >= 200 {
            return self.node();
        }
        let mut dirs = self.model.nodes.iter().filter(|(_, node)| node.is_dir());
        let count = dirs.clone().count();
        dirs.nth(byte % count).map_or(ROOT, |(number, _)| *number)
    }

    fn name(&mut self) -> Vec<u8> {
        let byte = self.input.byte();
        match byte {
            0..240 => format!("n{}", byte % 12).into_bytes(),
            240 => Vec::new(),
            241 => b".".to_vec(),
            242 => b"..".to_vec(),
            243 => b"a/b".to_vec(),
            244 => b"/".to_vec(),
            245 | 246 => vec![b'l'; 255],
            247 => vec![b'l'; 256],
            248 => vec![b'l'; 5000],
            249 => b"\xff\xfe\x80".to_vec(),
            250 => b"...".to_vec(),
            _ => vec![byte; usize::from(byte) - 200],
        }
    }

    /// Sends a request and compares the error with `causes`, the allowed ones; without any, the request must succeed.
    fn ask(&mut self, opcode: u32, node: u64, asker: Asker, body: &Body, causes: &[Errno]) -> Answer {
        self.log.push(format!("{opcode} of {node}: {}", body.0[..body.0.len().min(100)].escape_ascii()));
        let answer = self.connection.ask_as(opcode, node, asker, body);
        let error = answer.as_ref().err().copied();
        self.behaviour.note((self.last, opcode, error));
        self.last = opcode;
        let is_right = match error {
            None => causes.is_empty(),
            // A full image may refuse any request that needs blocks.
            Some(ENOSPC) => causes.is_empty(),
            Some(error) => causes.contains(&error),
        };
        if !is_right {
            self.fail(&format!("the answer is {error:?}, but it may be one of {causes:?}"));
        }
        answer
    }

    fn fail(&self, what: &str) -> ! {
        let mut text = String::new();
        for line in &self.log[self.log.len().saturating_sub(MAX_SHOWN)..] {
            // Writing to a string does not fail.
            let _ = writeln!(text, "{}", &line[..line.len().min(300)]);
        }
        panic!("{what}\n{text}")
    }

    fn expect_equal<T: PartialEq + std::fmt::Debug>(&self, what: &str, found: &T, expected: &T) {
        if found != expected {
            self.fail(&format!("{what}: {found:?}, but the model has {expected:?}"));
        }
    }

    /// The errors of a request for a node.
    fn causes_of(&self, node: u64) -> Vec<Errno> {
        if self.model.get(node).is_some() { Vec::new() } else { NO_INODE.to_vec() }
    }

    /// The errors of a request for a directory.
    fn causes_of_dir(&self, dir: u64) -> Vec<Errno> {
        match self.model.get(dir) {
            None => NO_INODE.to_vec(),
            Some(node) if !node.is_dir() => vec![ENOTDIR],
            Some(_) => Vec::new(),
        }
    }

    /// Compares attributes with the model's. The model first takes over the mode and the size where only the server
    /// knows them.
    fn compare_attr(&mut self, number: u64, attr: &[u8]) {
        let key = self.model.key(number);
        let links = self.model.links(number);
        let Some(node) = self.model.nodes.get_mut(&key) else { self.fail("attributes of a node that is gone") };
        let (mode, size) = (u32_at(attr, 60), u64_at(attr, 8));
        if node.has_acl {
            node.mode = node.mode & !0o777 | mode & 0o777;
        }
        if node.is_uncertain {
            node.contents.size = size;
        }
        let expected_size = match node.mode & TYPE {
            model::FILE => node.contents.size,
            model::SYMLINK => node.target.len() as u64,
            _ => size,
        };
        let found = (mode, u32_at(attr, 64), u32_at(attr, 68), u32_at(attr, 72), u32_at(attr, 76), size);
        let expected = (node.mode, links, node.uid, node.gid, node.rdev, expected_size);
        let times = [(24, 48, node.atime), (32, 52, node.mtime)];
        self.expect_equal("mode, links, owner, group, device, size", &found, &expected);
        for (seconds, nanoseconds, time) in times {
            if let Some(time) = time {
                let found = (u64_at(attr, seconds) as i64, u32_at(attr, nanoseconds));
                self.expect_equal("a time", &found, &time);
            }
        }
    }

    /// Asks for a node's attributes and compares them.
    fn look(&mut self, node: u64) {
        let body = Body::default().u64s(&[0, 0]);
        if let Ok(answer) = self.ask(wire::GETATTR, node, Asker::default(), &body, &[]) {
            self.compare_attr(node, &answer[ATTR_ATTR..]);
        }
    }

    /// Sends a request that no kernel sends. It may return any error, and must do no harm.
    fn odd(&mut self) {
        let opcode = match self.input.byte() {
            byte @ 0..64 => u32::from(byte),
            byte @ 64..200 => [wire::OPEN, wire::RELEASE, wire::OPENDIR, wire::RELEASEDIR, wire::FLUSH, wire::FSYNC]
                [usize::from(byte) % 6],
            byte => [wire::STATFS, wire::FSYNCDIR, 4096, 9999, u32::MAX][usize::from(byte) % 5],
        };
        let length = usize::from(self.input.byte()) % 64;
        let body: Vec<u8> = (0..length).map(|_| self.input.byte()).collect();
        let harmless = [
            wire::OPEN,
            wire::RELEASE,
            wire::OPENDIR,
            wire::RELEASEDIR,
            wire::FLUSH,
            wire::FSYNC,
            wire::FSYNCDIR,
            wire::STATFS,
            wire::GETATTR,
            wire::READLINK,
            wire::LISTXATTR,
            wire::INIT,
            31,
            32,
            33,
            34,
            36,
            37,
            39,
            40,
        ];
        // Requests that have no answer, that end the connection, or that would change what the model must know.
        let silent = [wire::FORGET, wire::BATCH_FORGET, wire::NOTIFY_REPLY, wire::DESTROY];
        if silent.contains(&opcode) {
            return;
        }
        let changes = [wire::TMPFILE, wire::COPY_FILE_RANGE_64];
        let is_whole = harmless.contains(&opcode) || opcode > wire::COPY_FILE_RANGE && !changes.contains(&opcode);
        // The other requests are sent without a body, so that the server must refuse them.
        let mut body = if is_whole { body } else { Vec::new() };
        if opcode == wire::IOCTL && body.len() > IOCTL_COMMAND.end {
            // The command asks, and sets nothing.
            body[IOCTL_COMMAND].copy_from_slice(&GET_XFLAGS.to_ne_bytes());
        }
        let node = self.node();
        self.log.push(format!("{opcode} of {node}: {}", body.escape_ascii()));
        let answer = self.connection.ask_as(opcode, node, Asker::default(), &Body(body));
        self.behaviour.note((opcode, answer.as_ref().err()));
        if !is_whole && answer.is_ok() {
            self.fail("a request without its contents was answered");
        }
    }
}
