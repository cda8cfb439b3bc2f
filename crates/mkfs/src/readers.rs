//! What kernels and boot loaders can read, so that an image can leave out what one of them cannot.
//!
//! The kernel refuses an image with an incompatible feature that it does not know, and writing to one with an unknown
//! read-only compatible feature; GRUB refuses the former and never writes. Sources: the feature masks in `xfs_format.h`
//! of each kernel, and in `grub-core/fs/xfs.c` of each release of GRUB.

use crate::{MakeError, Options};

/// A feature that an image can have or lack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Feature {
    Finobt,
    SparseInodes,
    Rmapbt,
    Reflink,
    InobtCounts,
    Bigtime,
    LargeExtentCounts,
    ExchangeRange,
    Parent,
}

type Version = (u32, u32);

/// Each feature, its option, and the first kernel and the first GRUB that read images with it. GRUB passes over what
/// only a writer must know.
const FEATURES: [(Feature, &str, Version, Option<Version>); 9] = [
    (Feature::Finobt, "-m finobt", (3, 16), None),
    (Feature::SparseInodes, "-i sparse", (4, 2), Some((2, 4))),
    (Feature::Rmapbt, "-m rmapbt", (4, 8), None),
    (Feature::Reflink, "-m reflink", (4, 9), None),
    (Feature::InobtCounts, "-m inobtcount", (5, 10), None),
    (Feature::Bigtime, "-m bigtime", (5, 10), Some((2, 6))),
    (Feature::LargeExtentCounts, "-i nrext64", (5, 19), Some((2, 12))),
    (Feature::ExchangeRange, "-i exchange", (6, 10), Some((2, 14))),
    (Feature::Parent, "-n parent", (6, 10), Some((2, 14))),
];

/// The first kernel and the first GRUB that read version 5.
const FIRST_KERNEL: Version = (3, 15);
const FIRST_GRUB: Version = (2, 2);

/// Distributions, with their first kernel and their GRUB.
const DISTRIBUTIONS: [(&str, Version, Version); 9] = [
    ("debian-11", (5, 10), (2, 6)),
    ("debian-12", (6, 1), (2, 6)),
    ("debian-13", (6, 12), (2, 12)),
    ("rhel-8", (4, 18), (2, 2)),
    ("rhel-9", (5, 14), (2, 6)),
    ("rhel-10", (6, 12), (2, 12)),
    ("ubuntu-20.04", (5, 4), (2, 4)),
    ("ubuntu-22.04", (5, 15), (2, 6)),
    ("ubuntu-24.04", (6, 8), (2, 12)),
];

/// Names of readers: the distributions, and the beginnings of those with a version of their own.
pub fn reader_names() -> impl Iterator<Item = &'static str> {
    DISTRIBUTIONS.iter().map(|(name, ..)| *name).chain(["linux-", "grub-"])
}

/// A program that is to read an image, or several.
///
/// ```
/// use xfskit_mkfs::{Options, Reader};
///
/// let reader: Reader = "grub-2.06".parse().unwrap();
/// let mut options = Options::default();
/// options.lower_to(&reader);
/// assert!(options.bigtime && !options.parent && !options.large_extent_counts);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reader {
    name: String,
    kernel: Option<Version>,
    grub: Option<Version>,
}

impl Reader {
    /// The names of readers, for people to choose from.
    pub fn names() -> impl Iterator<Item = &'static str> {
        ["linux-VERSION", "grub-VERSION"].into_iter().chain(DISTRIBUTIONS.iter().map(|(name, ..)| *name))
    }

    fn knows(&self, kernel: Version, grub: Option<Version>) -> bool {
        let by_grub = grub.is_none_or(|first| self.grub.is_none_or(|own| own >= first));
        self.kernel.is_none_or(|own| own >= kernel) && by_grub
    }
}

impl std::str::FromStr for Reader {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let name = text.to_owned();
        if let Some((_, kernel, grub)) = DISTRIBUTIONS.iter().find(|(name, ..)| *name == text) {
            return Ok(Self { name, kernel: Some(*kernel), grub: Some(*grub) });
        }
        let unknown = || {
            format!("{text:?} is no reader that is known; known are {}", Self::names().collect::<Vec<_>>().join(", "))
        };
        let (program, version) = text.split_once('-').ok_or_else(unknown)?;
        let version = parse_version(version).ok_or_else(unknown)?;
        let (reader, first) = match program {
            "linux" => (Self { name, kernel: Some(version), grub: None }, FIRST_KERNEL),
            "grub" => (Self { name, kernel: None, grub: Some(version) }, FIRST_GRUB),
            _ => return Err(unknown()),
        };
        if version < first {
            return Err(format!("{text} reads no images of version 5, and xfskit makes no others"));
        }
        Ok(reader)
    }
}

/// Two numbers, with any more behind them, as in 6.12.3 or 2.06.
fn parse_version(text: &str) -> Option<Version> {
    let mut numbers = text.split('.').map(|number| number.parse().ok());
    let version = (numbers.next()??, numbers.next()??);
    numbers.all(|number| number.is_some()).then_some(version)
}

impl Options {
    /// Leaves out what a reader does not know.
    pub fn lower_to(&mut self, reader: &Reader) {
        for (feature, _, kernel, grub) in FEATURES {
            if !reader.knows(kernel, grub) {
                self.leave_out(feature);
            }
        }
    }

    /// Whether a reader knows all features that the image will have.
    ///
    /// # Errors
    /// [`MakeError::Conflict`], which names the first feature that it does not know.
    pub fn verify_for(&self, reader: &Reader) -> Result<(), MakeError> {
        let unknown = |(feature, _, kernel, grub): &&(Feature, &str, Version, Option<Version>)| {
            self.has(*feature) && !reader.knows(*kernel, *grub)
        };
        match FEATURES.iter().find(unknown) {
            Some((_, option, ..)) => Err(MakeError::conflict(*option, format!("{} does not know it", reader.name))),
            None => Ok(()),
        }
    }

    fn has(&self, feature: Feature) -> bool {
        match feature {
            Feature::Finobt => self.finobt,
            Feature::SparseInodes => self.sparse_inodes,
            Feature::Rmapbt => self.rmapbt,
            Feature::Reflink => self.reflink,
            Feature::InobtCounts => self.inobt_counts.unwrap_or(self.finobt),
            Feature::Bigtime => self.bigtime,
            Feature::LargeExtentCounts => self.large_extent_counts,
            Feature::ExchangeRange => self.exchange_range,
            Feature::Parent => self.parent,
        }
    }

    fn leave_out(&mut self, feature: Feature) {
        match feature {
            Feature::Finobt => self.finobt = false,
            Feature::SparseInodes => self.sparse_inodes = false,
            Feature::Rmapbt => self.rmapbt = false,
            Feature::Reflink => self.reflink = false,
            Feature::InobtCounts => self.inobt_counts = Some(false),
            Feature::Bigtime => self.bigtime = false,
            Feature::LargeExtentCounts => self.large_extent_counts = false,
            Feature::ExchangeRange => self.exchange_range = false,
            Feature::Parent => self.parent = false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_are_named_with_their_version() {
        let reader = |text: &str| text.parse::<Reader>();
        assert_eq!(reader("grub-2.06").unwrap().grub, Some((2, 6)));
        assert_eq!(reader("linux-6.12.3").unwrap().kernel, Some((6, 12)));
        assert!(reader("debian-12").is_ok());
        for (wrong, why) in
            [("linux", "known are"), ("linux-x", "known are"), ("lilo-2.0", "known are"), ("linux-2.6", "version 5")]
        {
            assert!(reader(wrong).unwrap_err().contains(why), "{wrong}");
        }
    }

    #[test]
    fn a_feature_that_a_reader_does_not_know_is_named() {
        let reader = "linux-5.4".parse().unwrap();
        let mut options = Options::default();
        options.lower_to(&reader);
        options.verify_for(&reader).unwrap();
        options.apply('m', "bigtime=1").unwrap();
        let why = options.verify_for(&reader).unwrap_err().to_string();
        assert!(why.contains("-m bigtime") && why.contains("linux-5.4"), "{why}");
    }
}
