//! A case: what is measured of a workload, and on what image.

use xfskit_engine::MountOptions;

/// What differs between runs of one workload.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) threads: usize,
    pub(crate) mkfs: Vec<(char, &'static str)>,
    pub(crate) image_bytes: u64,
    /// Bytes of the device of an external journal, if the scratch image has one.
    pub(crate) log_device_bytes: Option<u64>,
    pub(crate) mount: MountOptions,
    /// Whether the image must have parent pointers or must not; `None` where they do not matter.
    pub(crate) parent: Option<bool>,
    /// An option of the engine differs from its default, so only the engine can run the case.
    pub(crate) switched: bool,
}

impl Case {
    /// An image with parent pointers, or without.
    pub(crate) fn parent(mut self, parent: bool) -> Self {
        self.parent = Some(parent);
        if !parent {
            self.mkfs.push(('n', "parent=0"));
        }
        self
    }

    /// The engine with an option changed.
    pub(crate) fn switch(mut self, change: impl FnOnce(&mut MountOptions)) -> Self {
        change(&mut self.mount);
        self.switched = true;
        self
    }

    pub(crate) fn mkfs(mut self, options: &[(char, &'static str)]) -> Self {
        self.mkfs.extend(options);
        self
    }
}
