//! Whiteouts of each family of intents that a living mount logs: attributes (plain ones and parent pointers) and
//! extents to free. Intents of reverse mappings, reference counts and extent maps are only found in the logs of other
//! systems: recovery finishes them, and logs new ones only for what does not fit its transaction.

use crate::shapes::fragment;
use crate::stress::Image;
use crate::{UNRESERVED, counted, in_pieces, intents, kernels_tree, logged_intents, make_file, set};
use xfskit_engine::{AttrPath, Caller, MountOptions, RenameFlags, SetMode, Volume};
use xfskit_ondisk::InodeNumber;

/// What a family does, how it is opened, and what xfs_logprint calls its intents.
struct Family {
    name: &'static str,
    options: MountOptions,
    prepare: fn(&Volume),
    work: fn(&Volume),
    intent: &'static str,
    arguments: &'static [(char, &'static str)],
}

fn file(fs: &Volume) -> InodeNumber {
    fs.lookup(fs.root(), b"file").unwrap().inode
}

fn rename(fs: &Volume) {
    fs.rename(fs.root(), b"file", fs.root(), b"other", RenameFlags::default(), &Caller::root()).unwrap();
}

fn families() -> [Family; 3] {
    let plain = Family {
        name: "attribute",
        options: intents(),
        prepare: |fs| _ = make_file(fs, "file"),
        work: |fs| set(fs, file(fs), "user.a", b"value"),
        intent: "ATTRI:",
        arguments: &[],
    };
    let parent = Family {
        name: "parent pointer",
        options: MountOptions { attr_path: AttrPath::Intents, ..Default::default() },
        prepare: |fs| _ = make_file(fs, "file"),
        work: rename,
        intent: "ATTRI:",
        arguments: &[],
    };
    // A link frees two extents itself, and this value has many more.
    let free = Family {
        name: "extents to free",
        options: MountOptions::default(),
        prepare: |fs| {
            let inode = make_file(fs, "file");
            fragment(fs, 300);
            in_pieces(fs);
            set(fs, inode, "user.a", &[5; 64 << 10]);
        },
        work: |fs| {
            fs.remove_xattr(file(fs), b"user.a", SetMode::Any, &Caller::root()).unwrap();
        },
        intent: "EFI:",
        arguments: UNRESERVED,
    };
    [plain, parent, free]
}

#[test]
fn an_intent_that_is_done_in_its_checkpoint_does_not_reach_the_log() {
    for Family { name, options, prepare, work, intent, arguments } in families() {
        let image = Image::new(64, arguments);
        let fs = image.open_with(options);
        prepare(&fs);
        fs.sync().unwrap();
        let count = counted(&fs, || {
            work(&fs);
            fs.sync().unwrap();
        });
        assert!(count.get("intents_whited_out") > 0, "{name}: there was no intent");
        assert_eq!(count.get("intents_logged"), 0, "{name}");
        drop(fs);
        let logged = logged_intents(&image, intent).unwrap_or_default();
        assert!(logged.is_empty(), "{name}: {logged:?}");
        if kernels_tree(&image).is_none() {
            return;
        }
    }
}

#[test]
fn without_whiteouts_the_same_intents_reach_the_log() {
    for Family { name, options, prepare, work, intent, arguments } in families() {
        let image = Image::new(64, arguments);
        let fs = image.open_with(MountOptions { whiteouts: false, ..options });
        prepare(&fs);
        fs.sync().unwrap();
        let count = counted(&fs, || {
            work(&fs);
            fs.sync().unwrap();
        });
        assert!(count.get("intents_logged") > 0, "{name}: no intent was logged");
        assert_eq!(count.get("intents_whited_out"), 0, "{name}");
        drop(fs);
        let Some(logged) = logged_intents(&image, intent) else { return };
        assert!(!logged.is_empty(), "{name}: xfs_logprint shows none");
        if kernels_tree(&image).is_none() {
            return;
        }
    }
}

/// What is logged already cannot be left out: its done item must reach the log.
#[test]
fn an_intent_of_an_earlier_checkpoint_is_not_left_out() {
    use std::sync::Arc;
    use xfskit_engine::error::Result;
    use xfskit_engine::item::LogVector;
    use xfskit_engine::mount::Mount;
    use xfskit_engine::trans::deferred::{StepResult, Turn, Work};
    use xfskit_engine::trans::{Reservation, Transaction};
    use xfskit_ondisk::log_items::{FsExtent, extent_free};

    /// Makes its intent durable before it is done.
    struct Synced(Arc<Volume>);

    impl Work for Synced {
        fn encode_intent(&self, id: u64, copy: &mut LogVector) {
            copy.push(&extent_free::encode_intent(id, &[] as &[FsExtent]));
        }
        fn encode_done(&self, id: u64, copy: &mut LogVector) {
            copy.push(&extent_free::encode_done(id, &[] as &[FsExtent]));
        }
        fn step(&mut self, _: &mut Transaction) -> Result<StepResult> {
            self.0.mount().journal.force_all()?;
            Ok(StepResult::Done)
        }
        fn reserve(&self, _: &Mount) -> Reservation {
            Reservation::default()
        }
        fn error_tag(&self) -> &'static str {
            xfskit_engine::error_tags::FREE_EXTENT
        }
    }

    let image = Image::new(64, &[]);
    let fs = Arc::new(image.open());
    let count = counted(&fs, || {
        let link = Reservation { log_bytes: 64 << 10, log_count: 1, ..Default::default() };
        let mut tx = fs.mount().transaction(link).unwrap();
        tx.defer(Turn::Last, Vec::new(), Box::new(Synced(Arc::clone(&fs))));
        tx.commit().unwrap();
        fs.mount().journal.force_all().unwrap();
    });
    count.expect(&[("intents_logged", 1), ("intents_whited_out", 0)]);
    let fs = Arc::into_inner(fs).expect("the work is done");
    drop(fs);
    // Were the done item left out, the log would end with the intent, and the kernel would find it.
    let fs = image.open();
    image.close(fs);
    kernels_tree(&image);
}
