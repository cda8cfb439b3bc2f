//! How often a long value is copied between the caller and the device, and how many values wait for their checkpoint.

use crate::shapes::fragment;
use crate::stress::Image;
use crate::{UNRESERVED, counted, in_pieces, intents, kernels_tree, make_file, set, xattr};
use xfskit_engine::{AttrLogging, AttrPath, MountOptions};

const LONG: usize = 64 << 10;

/// Copies of one value of 64 KiB until its checkpoint is durable.
fn copies(options: &MountOptions) -> u64 {
    let image = Image::new(64, &[]);
    let fs = image.open_with(options.clone());
    let inode = make_file(&fs, "file");
    fs.sync().unwrap();
    let count = counted(&fs, || {
        set(&fs, inode, "user.a", &[5; LONG]);
        fs.sync().unwrap();
    });
    drop(fs);
    if let Some(tree) = kernels_tree(&image) {
        assert!(xattr(&tree, "file", "user.a") == Some(&[5; LONG][..]), "{options:?}");
    }
    let bytes = count.get("value_bytes_copied");
    assert!(bytes.is_multiple_of(LONG as u64), "{bytes} bytes are not whole copies");
    bytes / LONG as u64
}

#[test]
fn a_value_is_copied_once() {
    let of = |attr_path, attr_logging, whiteouts| {
        copies(&MountOptions { attr_path, attr_logging, whiteouts, ..Default::default() })
    };
    for whiteouts in [true, false] {
        // One transaction makes the update, so there is no intent, whether the caller wants one or not.
        assert_eq!(of(AttrPath::Fast, AttrLogging::Never, whiteouts), 1);
        assert_eq!(of(AttrPath::Fast, AttrLogging::Always, whiteouts), 1);
        assert_eq!(of(AttrPath::General, AttrLogging::Always, whiteouts), 1);
        assert_eq!(of(AttrPath::Intents, AttrLogging::Never, whiteouts), 1);
    }
}

#[test]
fn an_intent_shares_the_copy_and_makes_two_more_only_if_it_is_logged() {
    assert_eq!(copies(&intents()), 1);
    assert_eq!(copies(&MountOptions { whiteouts: false, ..intents() }), 3);
}

/// A value in many pieces takes several transactions, each with an intent for the whole.
#[test]
fn the_intents_of_a_chain_share_one_copy() {
    for (whiteouts, more_than_one) in [(true, false), (false, true)] {
        let image = Image::new(64, UNRESERVED);
        let fs =
            image.open_with(MountOptions { attr_logging: AttrLogging::Always, whiteouts, ..MountOptions::default() });
        let inode = make_file(&fs, "file");
        fragment(&fs, 300);
        in_pieces(&fs);
        let count = counted(&fs, || {
            set(&fs, inode, "user.a", &[5; LONG]);
            fs.sync().unwrap();
        });
        let (copied, logged) = (count.get("value_bytes_copied") / LONG as u64, count.get("intents_logged"));
        if more_than_one {
            assert!(logged > 1, "the chain has links");
        } else {
            assert!(count.get("intents_whited_out") > 1, "the chain has links");
            assert_eq!(logged, 0);
        }
        assert_eq!(copied, 1 + 2 * logged);
        drop(fs);
        let Some(tree) = kernels_tree(&image) else { return };
        assert!(xattr(&tree, "file", "user.a") == Some(&[5; LONG][..]));
    }
}

/// A thread that has committed a value writes it before its next one, so however much a checkpoint gathers, no more
/// values wait in memory than there are threads.
#[test]
fn no_more_values_wait_than_threads_set() {
    const THREADS: u64 = 4;
    const SETS: usize = 100;
    // 17 blocks, for each has a header.
    const IN_BLOCKS: u64 = 17 * 4096;
    let image = Image::new(512, &[('l', "size=64m")]);
    let fs = image.open_with(intents());
    let files: Vec<_> = (0..THREADS).map(|n| make_file(&fs, &format!("file {n}"))).collect();
    let before = fs.mount().counters.checkpoints.get();
    std::thread::scope(|scope| {
        for &file in &files {
            let fs = &fs;
            scope.spawn(move || (0..SETS).for_each(|n| set(fs, file, "user.a", &vec![n as u8; LONG])));
        }
    });
    let counters = &fs.mount().counters;
    let peak = counters.value_bytes_waiting_peak.get();
    assert!((IN_BLOCKS..=THREADS * IN_BLOCKS).contains(&peak), "{peak} bytes waited");
    let checkpoints = counters.checkpoints.get() - before + 1;
    let gathered = THREADS * SETS as u64 / checkpoints;
    assert!(gathered > 4 * THREADS, "a checkpoint gathers {gathered} values on average: too few to wait");
    fs.sync().unwrap();
    drop(fs);
    let Some(tree) = kernels_tree(&image) else { return };
    for n in 0..THREADS {
        assert!(xattr(&tree, &format!("file {n}"), "user.a") == Some(&[SETS as u8 - 1; LONG][..]));
    }
}
