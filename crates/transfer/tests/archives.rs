//! Tar streams: cases that archives of other programs do not cover. Those are read and written in
//! `crates/cli/tests/fill.rs`.

use xfskit_transfer::{
    Adjust, Contents, Event, Kind, Meta, Node, Outlet, Result, Sink, Source, TarSink, TarSource, TransferError,
    transfer,
};
use xfskit_vfs::Timestamp;

/// Sends nodes. The contents that follow a node are computed from their offsets.
struct Nodes(Vec<Node>);

impl Source for Nodes {
    fn send(&mut self, out: &mut Outlet) -> Result<()> {
        for node in &self.0 {
            out.send(Event::Node(node.clone()))?;
            if let Kind::File { contents: Contents::Parts(parts), .. } = &node.kind {
                for &(offset, length) in parts {
                    out.send(Event::Data { offset, bytes: vec![offset as u8; length as usize] })?;
                }
                out.send(Event::End)?;
            }
        }
        Ok(())
    }
}

/// Stores everything that it receives.
#[derive(Default)]
struct Kept {
    nodes: Vec<Node>,
    data: u64,
}

impl Sink for Kept {
    fn node(&mut self, node: Node) -> Result<()> {
        self.nodes.push(node);
        Ok(())
    }

    fn data(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        let node = self.nodes.last().expect("contents follow their file");
        let Kind::File { contents: Contents::Parts(parts), .. } = &node.kind else { panic!("contents of {node:?}") };
        let end = offset + bytes.len() as u64;
        assert!(parts.iter().any(|(start, length)| offset >= *start && end <= start + length), "{offset} of {node:?}");
        self.data += bytes.len() as u64;
        Ok(())
    }

    fn end(&mut self) -> Result<()> {
        Ok(())
    }

    fn broken(&mut self, why: &TransferError) -> Result<()> {
        panic!("an archive has no such files: {why}");
    }

    fn finish(&mut self) -> Result<()> {
        Ok(())
    }

    fn abort(&mut self) {}
}

fn node(path: &[u8], kind: Kind) -> Node {
    let time = Timestamp { seconds: 5, nanoseconds: 0 };
    let meta = Meta { mode: 0o640, uid: 1, gid: 2, atime: time, mtime: time, xattrs: Vec::new() };
    Node { path: path.to_vec(), kind, meta }
}

/// Files at the limits of header fields.
fn nodes() -> Vec<Node> {
    let whole = |bytes: &[u8]| Kind::File { size: bytes.len() as u64, contents: Contents::Whole(bytes.to_vec()) };
    let parts = |size, parts: &[(u64, u64)]| Kind::File { size, contents: Contents::Parts(parts.to_vec()) };
    let mut nodes = vec![
        node(b"", Kind::Directory),
        node(&[b'd'; 99], Kind::Directory),
        node(&[b'e'; 100], Kind::Directory),
        node(&[b'n'; 100], whole(b"100")),
        node(&[b'm'; 101], whole(&[7; 512])),
        node(b"\xff\xfe", Kind::Symlink([b't'; 300].to_vec())),
        node(b"again", Kind::Link([b'm'; 101].to_vec())),
        node(b"device", Kind::Char(0xfff0_ffff)),
        node(b"sparse", parts(1 << 62, &[(4096, 10_000), (1 << 40, 512)])),
        node(b"hole", parts(1 << 35, &[])),
        node(b"end", parts(100_000, &[(90_000, 10_000)])),
    ];
    let meta = &mut nodes[3].meta;
    (meta.uid, meta.gid) = (u32::MAX - 1, 0o10_000_000);
    meta.mtime = Timestamp { seconds: -3, nanoseconds: 5 };
    meta.atime = Timestamp { seconds: 1 << 40, nanoseconds: 999_999_999 };
    meta.xattrs = vec![(b"user.=%".to_vec(), b"=\n".to_vec()), (b"user.b".to_vec(), vec![0; 65536])];
    nodes
}

fn archive(nodes: Vec<Node>) -> Vec<u8> {
    let mut stream = Vec::new();
    transfer(&mut Nodes(nodes), &mut TarSink::new(&mut stream), &Adjust::default(), &()).unwrap();
    stream
}

fn read(stream: &[u8]) -> Result<Kept> {
    let mut kept = Kept::default();
    transfer(&mut TarSource::new(stream), &mut kept, &Adjust::default(), &()).map(|()| kept)
}

#[test]
fn what_no_header_holds_survives() {
    let nodes = nodes();
    let read = read(&archive(nodes.clone())).unwrap();
    assert_eq!(read.nodes.len(), nodes.len());
    for (left, right) in nodes.iter().zip(&read.nodes) {
        assert_eq!((&left.path, &left.kind, &left.meta), (&right.path, &right.kind, &right.meta));
    }
    assert_eq!(read.data, 10_000 + 512 + 10_000);
}

#[test]
fn a_stream_that_ends_anywhere_is_cut_short() {
    let stream = archive(nodes());
    let end = stream.len() - 1024;
    let mut complete = 0;
    for length in (0..=end).step_by(509).chain((0..=end).step_by(512)) {
        let (mut kept, mut source) = (Kept::default(), TarSource::new(&stream[..length]));
        let result = transfer(&mut source, &mut kept, &Adjust::default(), &());
        match (result, source.losses().unmarked.count) {
            (Err(TransferError::CutShort(..)), 0) => {}
            // Behind a file nothing shows whether others followed, so the missing end mark is told.
            (Ok(()), 1) if length % 512 == 0 => complete += 1,
            (result, count) => panic!("{length} of {}: {result:?}, {count}", stream.len()),
        }
    }
    assert_eq!(complete, nodes().len());
    let (mut kept, mut source) = (Kept::default(), TarSource::new(&stream[..end + 512]));
    transfer(&mut source, &mut kept, &Adjust::default(), &()).unwrap();
    assert_eq!(source.losses().unmarked.count, 0);
}

#[test]
fn damaged_streams_are_errors_or_other_trees() {
    let stream = archive(nodes());
    let mut seed = 1_u64;
    for _ in 0..3000 {
        let mut random = || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) as usize
        };
        let mut damaged = stream.clone();
        for _ in 0..1 + random() % 4 {
            let at = random() % damaged.len();
            damaged[at] = [b'0', b'9', b'\n', 0, 0xff, b'=', b','][random() % 7];
        }
        // Half of the streams get right checksums, so that the reader looks at their headers.
        if random() % 2 == 0 {
            for block in damaged.chunks_exact_mut(512).filter(|block| &block[257..262] == b"ustar") {
                block[148..156].fill(b' ');
                let sum: u32 = block.iter().map(|&byte| u32::from(byte)).sum();
                block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
            }
        }
        if let Err(error) = read(&damaged) {
            assert!(error.is_bad_source(), "{error}");
        }
    }
}

#[test]
fn a_path_longer_than_any_is_refused_before_folders_are_made_for_it() {
    let file = Kind::File { size: 0, contents: Contents::Whole(Vec::new()) };
    assert!(read(&archive(vec![node(&b"a/".repeat(2000), file.clone())])).is_ok());
    let error = read(&archive(vec![node(&b"a/".repeat(1 << 20), file)])).err().expect("a refusal");
    assert!(error.to_string().contains("path of"), "{error}");
}
