//! The kernel's XFS passes all cases that can be asked by paths: what they demand is what the kernel does.

use crate::path_volume::PathVolume;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use xfskit_conformance::{Excuse, Medium, check};
use xfskit_mkfs::{Options, make};
use xfskit_testkit::{kernel_mount_with, scratch};
use xfskit_vfs::{Timestamp, Volume};

const IMAGE_BYTES: u64 = 96 << 20;

const EXCUSES: &[Excuse] = &[
    Excuse { case: "a_name_is_not_empty_and_holds_no_slash", why: "a system call takes it for a path" },
    Excuse { case: "permissions_have_twelve_bits", why: "the kernel leaves out what is no permission" },
    Excuse { case: "a_device_number_is_a_device_nodes", why: "the kernel leaves it out" },
    Excuse { case: "dot_and_dotdot_are_not_renamed", why: "the kernel refuses them itself, by EBUSY" },
    Excuse { case: "an_owner_is_not_the_largest_number", why: "chown takes it for: leave the owner" },
    Excuse { case: "contents_that_change_take_privileges_away", why: "no system call does that alone" },
    Excuse { case: "a_batch_is_done_as_a_whole_or_not_at_all", why: "a system call sets one attribute" },
    Excuse { case: "a_link_can_replace_a_file", why: "no system call does that" },
    Excuse { case: "a_file_is_no_larger_than_the_limit", why: "a system call has no room for the size" },
    Excuse { case: "nothing_is_written_behind_the_largest_offset", why: "a system call has no room for the offset" },
    Excuse { case: "devices_and_links_have_no_contents", why: "a path leads to the device or the pipe itself" },
    Excuse { case: "what_was_synced_survives_a_crash", why: "the machine would have to crash" },
    Excuse { case: "what_was_fsynced_survives_a_crash", why: "the machine would have to crash" },
    Excuse { case: "fsyncs_are_begun_and_waited_for_together", why: "the machine would have to crash" },
];

/// A directory of its own on the kernel's mount.
struct Folder {
    path: PathBuf,
    reflink: bool,
}

impl Medium for Folder {
    fn open(&self) -> Box<dyn Volume> {
        Box::new(PathVolume::new(&self.path, self.reflink))
    }

    fn after_crash(&self) -> Box<dyn Medium> {
        panic!("the machine would have to crash")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A case that fails may leave files that cannot be removed; they are gone with the image.
        drop(std::fs::remove_dir_all(&self.path));
    }
}

fn kernel_passes(options: &Options) {
    let scratch = scratch();
    let image = scratch.file("image");
    let device = xfskit_device::FileDevice::create(&image, IMAGE_BYTES).expect("a device");
    make(&device, None, options, Timestamp::default()).expect("an image");
    drop(device);
    // Volumes leave times of access alone.
    let Some(kernel) = kernel_mount_with(&image, None, &["noatime"]) else { return };
    let next = AtomicU32::new(0);
    let folder = |at: &Path| {
        let path = at.join(next.fetch_add(1, Ordering::Relaxed).to_string());
        std::fs::create_dir(&path).expect("a directory");
        Folder { path, reflink: options.reflink }
    };
    check(&|| Box::new(folder(kernel.path())), EXCUSES);
    kernel.unmount();
}

#[test]
fn the_kernel_passes() {
    kernel_passes(&Options { allow_small: true, uuid: Some([9; 16]), ..Options::default() });
}

#[test]
fn the_kernel_passes_without_reflink() {
    kernel_passes(&Options {
        allow_small: true,
        uuid: Some([9; 16]),
        reflink: false,
        rmapbt: false,
        parent: false,
        ..Options::default()
    });
}
