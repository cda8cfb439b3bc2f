//! The image that a run starts from: the workload decides its shape, the seed its age.

use crate::device::SimDevice;
use crate::log_history::{LogHistory, write_history};
use crate::pages::{Pages, share_zeros};
use crate::random::Random;
use crate::stop::Stop;
use std::sync::Arc;
use xfskit_mkfs::{Options, make};
use xfskit_ondisk::{Geometry, Timestamp};

/// The shape of an image.
#[derive(Clone, Debug)]
pub struct Shape {
    /// Size in MiB.
    pub mib: u64,
    /// Options of mkfs, by letter.
    pub options: Vec<(char, String)>,
}

/// Options of mkfs that give an image the features of an older release.
type Features = &'static [(char, &'static str)];

const OF_TODAY: Features = &[];
/// Such images have smaller logs, because a transaction needs less without the features.
const OF_RHEL_8: Features =
    &[('m', "rmapbt=0,bigtime=0,inobtcount=0"), ('i', "nrext64=0,exchange=0"), ('n', "parent=0")];
const OF_RHEL_9: Features = &[('m', "rmapbt=0"), ('i', "nrext64=0,exchange=0"), ('n', "parent=0")];

/// Seeds, modulo 16, whose images have a past: a used log, and perhaps older features. Images of the other seeds are
/// new, so that the states that `tests/regressions.rs` names stay the same.
const SEEDS_WITH_A_PAST: [u64; 6] = [4, 8, 10, 11, 12, 13];

/// Whether the image of a seed has a past.
pub fn has_past(seed: u64) -> bool {
    SEEDS_WITH_A_PAST.contains(&(seed % 16))
}

/// The features and the log that the image of a seed has.
struct AgedImage {
    features: Features,
    random: Option<Random>,
}

impl AgedImage {
    fn of(seed: u64) -> Self {
        if !has_past(seed) {
            return Self { features: OF_TODAY, random: None };
        }
        let mut random = Random::new(seed ^ 0x6c6f_6720_6167_6500);
        let features = [OF_TODAY, OF_RHEL_8, OF_RHEL_9][random.below(3)];
        Self { features, random: Some(random) }
    }
}

/// Makes the image of a seed, and returns its size and contents.
///
/// # Errors
/// `Stop` where mkfs refuses the shape.
pub fn make_image(shape: &Shape, seed: u64) -> Result<(u64, Pages), Stop> {
    let size_bytes = shape.mib << 20;
    let device = SimDevice::new(size_bytes, Arc::default(), Pages::default());
    let mut options = Options { uuid: Some([7; 16]), allow_small: true, ..Options::default() };
    let AgedImage { features, random } = AgedImage::of(seed);
    let ours = shape.options.iter().map(|(letter, value)| (*letter, value.as_str()));
    for (letter, value) in ours.chain(features.iter().copied()) {
        options.apply(letter, value).map_err(|error| Stop::Wrong(format!("mkfs -{letter} {value}: {error}")))?;
    }
    let made = make(&device, None, &options, Timestamp::default());
    let geometry = Geometry::new(&made.map_err(|error| Stop::Wrong(format!("mkfs: {error}")))?);
    if let Some(mut random) = random {
        write_history(&device, &geometry, LogHistory::any(&mut random, &geometry))?;
    }
    let mut pages = device.into_pages();
    share_zeros(&mut pages);
    Ok((size_bytes, pages))
}
