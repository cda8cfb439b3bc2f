//! Updates that take several transactions, cut off in the middle: the kernel must finish them from their intents.

mod stress;

use std::path::PathBuf;
use std::sync::Arc;
use xfskit_device::{Access, FileDevice};
use xfskit_engine::error_tags::{DA_READ_BUF, LARP};
use xfskit_engine::item::LogVector;
use xfskit_engine::mount::Mount;
use xfskit_engine::trans::deferred::{StepResult, Turn, Work};
use xfskit_engine::trans::{Reservation, Transaction};
use xfskit_engine::{AttrLogging, AttrPath, Caller, MountOptions, NewFile, RenameFlags, SetMode, Volume};
use xfskit_ondisk::InodeNumber;
use xfskit_ondisk::log_items::{AttrIntent, AttrVerb, encode_done};
use xfskit_ondisk::log_record::item_type;
use xfskit_testkit::{Reference, Scratch, TreeEntry};

struct Crash {
    reference: Reference,
    _scratch: Scratch,
    path: PathBuf,
}

/// Prepares an image, then runs `work` until its first intent is durable, and cuts the power there.
fn crash(prepare: impl Fn(&Volume), work: impl Fn(&Volume)) -> Option<Crash> {
    let reference = xfskit_testkit::reference()?;
    let scratch = xfskit_testkit::scratch();
    let path = scratch.image("a.img", 512 << 20);
    reference.tool_output("mkfs.xfs", ["-q", path.to_str().unwrap()]);
    let options =
        MountOptions { attr_logging: AttrLogging::Always, attr_path: AttrPath::Intents, ..Default::default() };
    let fs = Volume::open(Arc::new(FileDevice::open(&path, Access::Write).unwrap()), options).unwrap();
    prepare(&fs);
    fs.sync().unwrap();
    fs.mount().error_tags.arm(LARP, 1);
    work(&fs);
    assert!(fs.mount().journal.check().is_err(), "the tag was never reached");
    assert!(fs.mount().counters.intents_logged.get() > 0);
    drop(fs);
    let items = reference.tool("xfs_logprint", ["-t", path.to_str().unwrap()]);
    let items = String::from_utf8_lossy(&items.stdout).into_owned();
    assert!(items.contains("ATTRI"), "{items}");
    Some(Crash { reference, _scratch: scratch, path })
}

/// The tree that the kernel recovers from the image.
fn recovered(crash: &Crash) -> Option<Vec<TreeEntry>> {
    let tree = xfskit_testkit::kernel_mount(&crash.path)?.into_tree();
    crash.reference.repair_finds_nothing(&crash.path);
    Some(tree)
}

fn xattr<'a>(tree: &'a [TreeEntry], path: &str, name: &str) -> Option<&'a [u8]> {
    let entry = tree.iter().find(|entry| entry.path.to_str() == Some(path))?;
    entry.xattrs.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_slice())
}

fn file(fs: &Volume) -> InodeNumber {
    fs.lookup(fs.root(), b"file").unwrap().inode
}

fn make_file(fs: &Volume) {
    fs.create(fs.root(), b"file", &NewFile::file(0o644), &Caller::root()).unwrap();
}

#[test]
fn a_logged_set_is_finished() {
    let value = vec![0xa5; 65536];
    let work = |fs: &Volume| {
        let _ = fs.set_xattr(file(fs), b"user.big", &value, SetMode::Any, &Caller::root());
    };
    let Some(crash) = crash(make_file, work) else { return };
    let Some(tree) = recovered(&crash) else { return };
    assert_eq!(xattr(&tree, "file", "user.big"), Some(value.as_slice()));
}

#[test]
fn a_logged_replace_is_finished() {
    let prepare = |fs: &Volume| {
        make_file(fs);
        fs.set_xattr(file(fs), b"user.a", &[1; 3000], SetMode::Any, &Caller::root()).unwrap();
        fs.set_xattr(file(fs), b"trusted.b", &[2; 100], SetMode::Any, &Caller::root()).unwrap();
    };
    let work = |fs: &Volume| {
        let _ = fs.set_xattr(file(fs), b"trusted.b", &[3; 9000], SetMode::Replace, &Caller::root());
    };
    let Some(crash) = crash(prepare, work) else { return };
    let Some(tree) = recovered(&crash) else { return };
    assert_eq!(xattr(&tree, "file", "trusted.b"), Some([3; 9000].as_slice()));
    assert_eq!(xattr(&tree, "file", "user.a"), Some([1; 3000].as_slice()));
}

#[test]
fn a_logged_remove_is_finished() {
    let prepare = |fs: &Volume| {
        make_file(fs);
        for n in 0..20 {
            fs.set_xattr(file(fs), format!("user.{n}").as_bytes(), &[n; 600], SetMode::Any, &Caller::root()).unwrap();
        }
    };
    let work = |fs: &Volume| {
        let _ = fs.remove_xattr(file(fs), b"user.7", SetMode::Any, &Caller::root());
    };
    let Some(crash) = crash(prepare, work) else { return };
    let Some(tree) = recovered(&crash) else { return };
    assert_eq!(xattr(&tree, "file", "user.7"), None);
    assert_eq!(xattr(&tree, "file", "user.8"), Some([8; 600].as_slice()));
}

#[test]
fn a_parent_pointer_is_set() {
    let work = |fs: &Volume| {
        let _ = fs.link(fs.root(), b"second name", file(fs), &Caller::root());
    };
    let Some(crash) = crash(make_file, work) else { return };
    let Some(tree) = recovered(&crash) else { return };
    assert!(tree.iter().any(|entry| entry.path.ends_with("second name") && entry.links == 2));
}

#[test]
fn a_parent_pointer_is_removed() {
    let prepare = |fs: &Volume| {
        make_file(fs);
        fs.link(fs.root(), b"second name", file(fs), &Caller::root()).unwrap();
    };
    let work = |fs: &Volume| {
        let _ = fs.unlink(fs.root(), b"second name", &Caller::root());
    };
    let Some(crash) = crash(prepare, work) else { return };
    let Some(tree) = recovered(&crash) else { return };
    assert!(tree.iter().any(|entry| entry.path.ends_with("file") && entry.links == 1));
}

#[test]
fn a_parent_pointer_is_replaced() {
    let work = |fs: &Volume| {
        let _ = fs.rename(fs.root(), b"file", fs.root(), b"another", RenameFlags::default(), &Caller::root());
    };
    let Some(crash) = crash(make_file, work) else { return };
    let Some(tree) = recovered(&crash) else { return };
    assert!(tree.iter().any(|entry| entry.path.ends_with("another")));
}

/// The first link of a rename moves the name. The second, which is to replace the parent pointer, cannot read a block
/// before it has changed anything. The filesystem must shut down: otherwise it would go on with the name moved, the old
/// parent pointer, and the intent in the log for good.
#[test]
fn an_error_between_two_links_shuts_down_and_recovery_does_the_rest() {
    let image = stress::Image::new(32, &[]);
    let options =
        MountOptions { attr_logging: AttrLogging::Always, attr_path: AttrPath::Intents, ..Default::default() };
    let fs = image.open_with(options.clone());
    make_file(&fs);
    fs.set_xattr(file(&fs), b"user.a", &[1; 3000], SetMode::Any, &Caller::root()).unwrap();
    fs.sync().unwrap();
    let inode = file(&fs);
    let root = fs.root();
    let rename = || fs.rename(root, b"file", root, b"another name", RenameFlags::default(), &Caller::root());
    // The first link looks for the pointer before it changes anything.
    fs.mount().error_tags.arm(DA_READ_BUF, 1);
    assert!(rename().is_err() && fs.mount().journal.check().is_ok());
    fs.mount().error_tags.arm(DA_READ_BUF, 2);
    assert!(rename().is_err());
    assert!(fs.mount().journal.check().is_err(), "what is half done must not go on");
    drop(fs);
    let fs = image.open_with(options);
    let names: Vec<_> = fs.parents(inode).unwrap().into_iter().map(|(_, name)| name).collect();
    let listed: Vec<_> = fs.list_dir(root).unwrap().iter().map(|entry| entry.name.to_vec()).collect();
    assert_eq!(names.len(), 1);
    assert!(listed.contains(&names[0]), "{listed:?} has {names:?}");
    image.close(fs);
}

/// An update that takes long: while it runs, other threads write as much log as they may.
struct Slow {
    fs: Arc<Volume>,
    inode: InodeNumber,
    fills_log: bool,
}

impl Work for Slow {
    fn encode_intent(&self, id: u64, copy: &mut LogVector) {
        let nothing: &[u8] = &[];
        let intent = AttrIntent {
            id,
            verb: AttrVerb::Set,
            inode: self.inode,
            generation: 0,
            namespace: 0,
            name: b"slow",
            value: &[7; 500],
            new_name: nothing,
            new_value: nothing,
        };
        intent.encode(|region| copy.push(region));
    }

    fn encode_done(&self, id: u64, copy: &mut LogVector) {
        copy.push(&encode_done(item_type::ATTRD, id));
    }

    fn step(&mut self, _: &mut Transaction) -> xfskit_engine::error::Result<StepResult> {
        if self.fills_log {
            stress::fill_log(&self.fs, self.inode)?;
        }
        Ok(StepResult::Done)
    }

    fn reserve(&self, _: &Mount) -> Reservation {
        Reservation::default()
    }

    fn error_tag(&self) -> &'static str {
        LARP
    }
}

/// A chain commits several intents and does the first; other threads fill the log meanwhile. If the next link had to
/// wait for space, the tail would be the chain's own second intent, which only the chain can move. So the intents that
/// are left are logged anew before a link that may have to wait.
#[test]
fn what_a_waiting_chain_still_has_to_do_does_not_hold_the_tail() {
    let watchdog = stress::Watchdog::new("a chain that waits", 60);
    let image = stress::Image::new(64, &[('b', "size=1024"), ('d', "agcount=2")]);
    let fs = Arc::new(image.open_with(MountOptions {
        attr_logging: AttrLogging::Always,
        attr_path: AttrPath::Intents,
        ..Default::default()
    }));
    make_file(&fs);
    let inode = file(&fs);
    let (_, size) = fs.mount().journal.usage();
    let link = Reservation { log_bytes: size as u32 / 3, log_count: 1, ..Default::default() };
    let mut tx = fs.mount().transaction(link).unwrap();
    for n in 0..5 {
        let slow = Slow { fs: Arc::clone(&fs), inode, fills_log: n == 0 };
        tx.defer(Turn::First, vec![n], Box::new(slow));
    }
    tx.commit().unwrap();
    assert_eq!(fs.mount().counters.intents_relogged.get(), 4, "the four that were left, once");
    let fs = Arc::into_inner(fs).expect("the updates are done");
    image.close(fs);
    drop(watchdog);
}
