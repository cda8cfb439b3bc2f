//! Device numbers as XFS packs them into 32 bits.
//!
//! ```text
//! major 31..18 | minor 17..0
//! ```

use crate::DeviceNumber;

const XFS_MINOR_BITS: u32 = 18;
const MAX_XFS_MAJOR: u32 = 0x1ff;

/// Decodes the number in the data fork of a device node.
#[must_use]
pub fn decode_device(device: u32) -> DeviceNumber {
    DeviceNumber { major: device >> XFS_MINOR_BITS, minor: device & ((1 << XFS_MINOR_BITS) - 1) }
}

/// Whether a device node can have this number: XFS has two bits less for minor numbers than Linux, and the kernel
/// accepts only nine bits of major numbers.
#[must_use]
pub fn fits_device_node(number: DeviceNumber) -> bool {
    number.major <= MAX_XFS_MAJOR && number.minor >> XFS_MINOR_BITS == 0
}

/// Encodes a number for the data fork of a device node. Bits that do not fit are lost, so callers check
/// [`fits_device_node`] first.
#[must_use]
pub fn encode_device(number: DeviceNumber) -> u32 {
    number.major << XFS_MINOR_BITS | number.minor & ((1 << XFS_MINOR_BITS) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_numbers_survive_both_encodings() {
        let numbers = [(0, 0, 0, 0), (8, 1, 0x0801, 0x20_0001), (0xfff, 0x3_ffff, 0x3ff_fffff, 0x3fff_ffff)];
        for (major, minor, linux, xfs) in numbers {
            let number = DeviceNumber { major, minor };
            assert_eq!((number.to_linux(), encode_device(number)), (linux, xfs));
            assert_eq!((DeviceNumber::from_linux(linux), decode_device(xfs)), (number, number));
        }
        assert_eq!(DeviceNumber::from_linux(u32::MAX).to_linux(), u32::MAX);
    }

    /// A major number on disk may have 14 bits, of which Linux has room for 12: the other two must not become bits of
    /// the minor number.
    #[test]
    fn a_major_number_that_linux_has_no_room_for_leaves_the_minor_alone() {
        let number = decode_device(u32::MAX << XFS_MINOR_BITS | 5);
        assert_eq!(DeviceNumber::from_linux(number.to_linux()), DeviceNumber { major: 0xfff, minor: 5 });
    }
}
