//! The cursor against a map, for every form of tree, in blocks of 1 KiB.

use super::block::view;
use super::{BtreeKind, Cursor, InlineRoot, KeyOf, NodeEntries, RecordOf, Root};
use crate::buffer::BufferKind;
use crate::error::Result;
use crate::space::{BNOBT_KIND, CNTBT_KIND, FINOBT_KIND, INOBT_KIND, REFCOUNTBT_KIND, RMAPBT_KIND};
use crate::test_image::{Random, TestImage, transact};
use crate::trans::{BufId, Transaction};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use xfskit_ondisk::btree::*;
use xfskit_ondisk::logged::buffer::buffer_type;
use xfskit_ondisk::{AgBlock, AgInode, AgNumber, DiskAddress, Extent, FileBlock, FsBlock, Geometry};

const IMAGE_MIB: usize = 64;
/// Blocks of which test trees are built; nothing else uses them.
const POOL: std::ops::Range<u64> = 20_000..30_000;
/// Children that an inline root has room for.
const INLINE_MAX: usize = 3;

static BMBT_KIND: BufferKind = BufferKind {
    name: Bmbt::NAME,
    family: "btree",
    log_type: buffer_type::BTREE,
    crc_offset: Some(Bmbt::CRC_OFFSET),
    lsn_offset: Some(Bmbt::LSN_OFFSET),
    verify: verify_block::<Bmbt>,
    refine: None,
};

trait TestFormat: TreeFormat {
    const BUFFER: &'static BufferKind;
    /// The `i`th record of its form, in the order of their keys.
    fn nth(i: u32) -> Self::Record;
    /// The same record with other contents.
    fn changed(record: &Self::Record) -> Self::Record;
}

macro_rules! test_format {
    ($format:ty, $buffer:expr, $nth:expr, $changed:expr) => {
        impl TestFormat for $format {
            const BUFFER: &'static BufferKind = $buffer;
            fn nth(i: u32) -> Self::Record {
                let make: fn(u32) -> Self::Record = $nth;
                make(i)
            }
            fn changed(record: &Self::Record) -> Self::Record {
                let change: fn(&Self::Record) -> Self::Record = $changed;
                change(record)
            }
        }
    };
}

fn chunk(i: u32) -> InodeChunk {
    InodeChunk { first: AgInode(64 + i), hole_mask: 0, recorded_count: 64, free_count: 64, free: u64::MAX }
}

fn used_chunk(chunk: &InodeChunk) -> InodeChunk {
    InodeChunk { free_count: 63, free: !1, ..*chunk }
}

test_format!(Bnobt, &BNOBT_KIND, |i| FreeExtent { start: AgBlock(10 + i), count: 1 }, |r| FreeExtent {
    count: 2,
    ..*r
});
test_format!(Cntbt, &CNTBT_KIND, |i| FreeExtent { start: AgBlock(10 + i % 10), count: 1 + i / 10 }, |r| *r);
test_format!(Inobt, &INOBT_KIND, chunk, used_chunk);
test_format!(Finobt, &FINOBT_KIND, chunk, used_chunk);
test_format!(
    Rmapbt,
    &RMAPBT_KIND,
    // Long and short, and three owners for some blocks, so that high keys matter.
    |i| Rmap { start: AgBlock(10 + i / 3), count: 1 + i % 7 * 40, owner: 100 + u64::from(i % 3), offset: i.into() },
    |r| Rmap { count: 5 + r.count / 2, ..*r }
);
test_format!(Refcountbt, &REFCOUNTBT_KIND, |i| Refcount { start: 10 + i, count: 1, references: 2 }, |r| Refcount {
    references: 9,
    ..*r
});
test_format!(
    Bmbt,
    &BMBT_KIND,
    |i| Extent { file_block: FileBlock(i.into()), block: FsBlock(50), count: 1, unwritten: false },
    |r| Extent { unwritten: true, ..*r }
);

/// A tree that contains its root and takes its blocks from the pool.
struct TestTree<F: TestFormat> {
    root: Root,
    inline: NodeEntries<F::Key>,
    unused: Vec<u64>,
    promised: u32,
}

impl<F: TestFormat> BtreeKind for TestTree<F> {
    type Format = F;

    fn buffer_kind() -> &'static BufferKind {
        F::BUFFER
    }
    fn owner(&self) -> u64 {
        0
    }
    fn address(&self, geometry: &Geometry, pointer: u64) -> Option<DiskAddress> {
        POOL.contains(&pointer).then(|| geometry.address(AgNumber(0), AgBlock(pointer as u32)))
    }
    fn root(&self, _: &Transaction) -> Root {
        self.root
    }
    fn set_root(&mut self, _: &mut Transaction, pointer: u64, levels: u32) {
        self.root = Root::Block { pointer, levels };
    }
    fn inline_root<'a>(&self, _: &'a Transaction) -> InlineRoot<'a, KeyOf<Self>> {
        // The trait ties the root to the transaction's lifetime; the tree of a test is not the transaction's, so it
        // leaks a copy.
        let Root::Inline { level } = self.root else { panic!("the root is a block") };
        InlineRoot { level, keys: self.inline.keys.clone().leak(), children: self.inline.children.clone().leak() }
    }
    fn inline_max(&self, _: &Transaction) -> usize {
        INLINE_MAX
    }
    fn set_inline_root(&mut self, _: &mut Transaction, level: u16, entries: NodeEntries<KeyOf<Self>>) {
        assert!(entries.keys.len() <= INLINE_MAX && entries.keys.len() == entries.children.len());
        self.root = Root::Inline { level };
        self.inline = entries;
    }
    fn expect_blocks(&mut self, _: &mut Transaction, count: u32) -> Result<()> {
        self.promised = count;
        Ok(())
    }
    fn allocate_block(&mut self, _: &mut Transaction, _: u64) -> Result<u64> {
        self.promised = self.promised.checked_sub(1).expect("no more blocks than were asked for");
        Ok(self.unused.pop().expect("the pool is large enough"))
    }
    fn free_block(&mut self, tx: &mut Transaction, pointer: u64, buffer: BufId) -> Result<()> {
        tx.invalidate(buffer);
        self.unused.push(pointer);
        Ok(())
    }
}

/// Walks the whole tree and checks what must hold of every block. Returns its records.
fn check<F: TestFormat>(tx: &mut Transaction, tree: &TestTree<F>) -> Vec<F::Record> {
    let mut cursor =
        Cursor::new(TestTree::<F> { root: tree.root, inline: tree.inline.clone(), unused: Vec::new(), promised: 0 });
    let (mut level, mut blocks) = match tree.root {
        Root::Block { pointer, levels } => ((levels - 1) as u16, vec![(pointer, None)]),
        Root::Inline { level } => {
            (level - 1, tree.inline.children.iter().copied().zip(tree.inline.keys.iter().copied().map(Some)).collect())
        }
    };
    let mut used = 0;
    loop {
        let (mut below, mut records) = (Vec::new(), Vec::new());
        for (index, &(pointer, key)) in blocks.iter().enumerate() {
            used += 1;
            let id = cursor.read_block(tx, pointer, level).unwrap();
            verify_block::<F>(tx.geometry(), tx.address(id), tx.bytes(id)).unwrap();
            let block = view::<F>(tx, id);
            assert_eq!(block.left(), index.checked_sub(1).map(|i| blocks[i].0));
            assert_eq!(block.right(), blocks.get(index + 1).map(|b| b.0));
            assert!(key.is_none_or(|key| key == block.key(0)), "a parent's key is its child's first");
            let lone = blocks.len() == 1;
            assert!(lone || block.count() >= block.max_count() / 2, "blocks are half full");
            for i in 0..block.count() {
                if level > 0 {
                    below.push((block.pointer(i), Some(block.key(i))));
                } else {
                    records.push(block.record(i));
                }
            }
            let high_keys: Vec<_> = (0..block.count()).map(|i| (block.pointer(i), block.high_key(i))).collect();
            if level > 0 && F::OVERLAPPING {
                for (child, high) in high_keys {
                    let id = cursor.read_block(tx, child, level - 1).unwrap();
                    assert_eq!(view::<F>(tx, id).bounds().unwrap().1, high);
                    tx.release(id);
                }
            }
            tx.release(id);
        }
        if level == 0 {
            assert_eq!(used + tree.unused.len(), POOL.count(), "no block is lost");
            cursor.reset(tx);
            return records;
        }
        (level, blocks) = (level - 1, below);
    }
}

struct Model<F: TestFormat> {
    mount: std::sync::Arc<crate::mount::Mount>,
    tree: Option<TestTree<F>>,
    map: BTreeMap<u32, F::Record>,
    random: Random,
    most_levels: u32,
}

impl<F: TestFormat> Model<F> {
    fn new(image: &TestImage, inline: bool) -> Self {
        let mount = image.mount();
        let mut unused: Vec<u64> = POOL.collect();
        let pointer = unused.pop().unwrap();
        let mut tree = TestTree::<F> {
            root: Root::Block { pointer, levels: 1 },
            inline: NodeEntries { keys: Vec::new(), children: Vec::new() },
            unused,
            promised: 0,
        };
        tree = transact(&mount, 0, |tx| {
            let bytes = tx.geometry().block_bytes();
            let address = tree.address(tx.geometry(), pointer).unwrap();
            let id = tx.create(address, bytes, F::BUFFER)?;
            super::block::write_header(tx, &tree, id, 0, None, None);
            let mut cursor = Cursor::new(tree);
            cursor.insert(tx, &F::nth(0))?;
            Ok(cursor.close(tx))
        })
        .unwrap();
        if inline {
            tree.root = Root::Inline { level: 1 };
            tree.inline = NodeEntries { keys: vec![F::key(&F::nth(0))], children: vec![pointer] };
        }
        let map = [(0, F::nth(0))].into_iter().collect();
        Self { mount, tree: Some(tree), map, random: Random::new(3), most_levels: 0 }
    }

    fn at_level(&mut self, range: u32, insert_percent: u64, sequential: bool) {
        let mount = std::sync::Arc::clone(&self.mount);
        let mut cursor = Cursor::new(self.tree.take().unwrap());
        transact(&mount, 0, |tx| {
            for _ in 0..20 {
                let next = self.map.last_key_value().map_or(0, |(i, _)| i + 1);
                let i = if sequential { next } else { 1 + self.random.below(u64::from(range) - 1) as u32 };
                let record = F::nth(i);
                let insert = self.random.below(100) < insert_percent;
                let found = cursor.lookup(tx, &F::key(&record))?;
                assert_eq!(found, self.map.get(&i).copied());
                match (found, insert) {
                    (None, true) => {
                        cursor.insert(tx, &record)?;
                        self.map.insert(i, record);
                    }
                    (Some(old), true) => {
                        let new = F::changed(&old);
                        cursor.update(tx, &new)?;
                        self.map.insert(i, new);
                    }
                    (Some(_), false) => {
                        cursor.remove(tx)?;
                        self.map.remove(&i);
                    }
                    (None, false) => self.look_around(tx, &mut cursor, i)?,
                }
            }
            Ok(())
        })
        .unwrap();
        self.tree = Some(cursor.kind);
    }

    fn look_around(&self, tx: &mut Transaction, cursor: &mut Cursor<TestTree<F>>, i: u32) -> Result<()> {
        let key = F::key(&F::nth(i));
        assert_eq!(cursor.lookup_le(tx, &key)?, self.map.range(..=i).next_back().map(|(_, r)| *r));
        if cursor.record(tx).is_some() {
            assert_eq!(cursor.previous(tx)?, self.map.range(..=i).nth_back(1).map(|(_, r)| *r));
        }
        assert_eq!(cursor.lookup_ge(tx, &key)?, self.map.range(i..).next().map(|(_, r)| *r));
        assert_eq!(cursor.next(tx)?, self.map.range(i..).nth(1).map(|(_, r)| *r));
        Ok(())
    }

    fn check(&mut self) {
        let tree = self.tree.take().unwrap();
        let levels = match tree.root {
            Root::Block { levels, .. } => levels,
            Root::Inline { level } => u32::from(level) + 1,
        };
        self.most_levels = self.most_levels.max(levels);
        let mut tx = Transaction::read_only(&self.mount);
        let records = check(&mut tx, &tree);
        assert!(records.iter().eq(self.map.values()), "the tree holds what the map does");
        let mut cursor = Cursor::new(tree);
        let count = self.map.len() as u64;
        let (a, b) = (self.random.below(count + 1) as u32, self.random.below(count + 1) as u32);
        let (low, high) = (F::key(&F::nth(a.min(b))), F::key(&F::nth(a.max(b))));
        let mut found: Vec<RecordOf<TestTree<F>>> = Vec::new();
        cursor
            .query(&mut tx, &low, &high, |record| {
                found.push(*record);
                ControlFlow::Continue(())
            })
            .unwrap();
        let reaches = |r: &&F::Record| F::key(r) <= high && F::high_key(r) >= low;
        assert!(found.iter().eq(self.map.values().filter(reaches)), "a query finds what reaches into the range");
        self.tree = Some(cursor.close(&mut tx));
    }
}

fn against_a_map<F: TestFormat>(inline: bool) {
    let image = TestImage::new(IMAGE_MIB, &[('b', "size=1024"), ('d', "agcount=1"), ('m', "reflink=1")]);
    let mut model = Model::<F>::new(&image, inline);
    for (steps, range, percent, sequential) in
        [(1200, 40_000, 95, true), (1000, 40_000, 60, false), (1000, 40_000, 20, false), (500, 3000, 70, false)]
    {
        for _ in 0..steps {
            model.at_level(range, percent, sequential);
        }
        model.check();
    }
    assert!(model.most_levels >= 3, "the tree grew to {} levels", model.most_levels);
    while model.map.len() > 10 {
        model.at_level(40_000, 0, false);
        if model.map.len().is_multiple_of(16) {
            model.check();
        }
        for sparse in model.map.keys().copied().collect::<Vec<_>>().chunks(20).take(4) {
            model.remove_all(sparse);
        }
    }
    model.check();
}

impl<F: TestFormat> Model<F> {
    fn remove_all(&mut self, keys: &[u32]) {
        let mount = std::sync::Arc::clone(&self.mount);
        let mut cursor = Cursor::new(self.tree.take().unwrap());
        transact(&mount, 0, |tx| {
            for i in keys.iter().filter(|&&i| i != 0) {
                cursor.lookup(tx, &F::key(&F::nth(*i)))?.expect("in the map");
                cursor.remove(tx)?;
                self.map.remove(i);
            }
            Ok(())
        })
        .unwrap();
        self.tree = Some(cursor.kind);
    }
}

#[test]
fn a_bnobt_is_a_map() {
    against_a_map::<Bnobt>(false);
}

#[test]
fn a_cntbt_is_a_map() {
    against_a_map::<Cntbt>(false);
}

#[test]
fn an_inobt_is_a_map() {
    against_a_map::<Inobt>(false);
    against_a_map::<Finobt>(false);
}

#[test]
fn an_rmapbt_is_a_map_of_overlapping_records() {
    against_a_map::<Rmapbt>(false);
}

#[test]
fn a_refcountbt_is_a_map() {
    against_a_map::<Refcountbt>(false);
}

#[test]
fn a_bmbt_with_its_root_in_an_inode_is_a_map() {
    against_a_map::<Bmbt>(true);
}
