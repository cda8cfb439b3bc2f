//! Device numbers. Linux and XFS each pack them into 32 bits in a way of their own.
//!
//! ```text
//! Linux   minor 31..20 | major 19..8 | minor 7..0        XFS   major 31..18 | minor 17..0
//! ```

/// The number of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct DeviceNumber {
    /// What kind of device.
    pub major: u32,
    /// Which one of the kind.
    pub minor: u32,
}

const LINUX_MAJOR: u32 = 0xfff;
const XFS_MINOR_BITS: u32 = 18;
const MAX_XFS_MAJOR: u32 = 0x1ff;

impl DeviceNumber {
    /// From the encoding of Linux's `stat` and `mknod`, of which only the low 32 bits are decoded.
    #[must_use]
    pub fn from_linux(device: u32) -> Self {
        Self { major: device >> 8 & LINUX_MAJOR, minor: device & 0xff | device >> 12 & 0xf_ff00 }
    }

    /// To the encoding of Linux's `stat` and `mknod`. Bits that do not fit are lost.
    #[must_use]
    pub fn to_linux(self) -> u32 {
        self.minor & 0xff | (self.major & LINUX_MAJOR) << 8 | (self.minor & 0xf_ff00) << 12
    }

    /// From the encoding in the data fork of a device node.
    #[must_use]
    pub fn from_xfs(device: u32) -> Self {
        Self { major: device >> XFS_MINOR_BITS, minor: device & ((1 << XFS_MINOR_BITS) - 1) }
    }

    /// Whether a device node can have this number: XFS has two bits less for minor numbers than Linux, and the kernel
    /// accepts only nine bits of major numbers.
    #[must_use]
    pub fn fits_xfs(self) -> bool {
        self.major <= MAX_XFS_MAJOR && self.minor >> XFS_MINOR_BITS == 0
    }

    /// To the encoding in the data fork of a device node. Bits that do not fit are lost, so callers check
    /// [`Self::fits_xfs`] first.
    #[must_use]
    pub fn to_xfs(self) -> u32 {
        self.major << XFS_MINOR_BITS | self.minor & ((1 << XFS_MINOR_BITS) - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_numbers_survive_both_encodings() {
        let numbers = [(0, 0, 0, 0), (8, 1, 0x0801, 0x20_0001), (0xfff, 0x3_ffff, 0x3ff_fffff, 0x3fff_ffff)];
        for (major, minor, linux, xfs) in numbers {
            let number = DeviceNumber { major, minor };
            assert_eq!((number.to_linux(), number.to_xfs()), (linux, xfs));
            assert_eq!((DeviceNumber::from_linux(linux), DeviceNumber::from_xfs(xfs)), (number, number));
        }
        assert_eq!(DeviceNumber::from_linux(u32::MAX).to_linux(), u32::MAX);
    }

    /// A major number on disk may have 14 bits, of which Linux has room for 12: the other two must not become bits of
    /// the minor number.
    #[test]
    fn a_major_number_that_linux_has_no_room_for_leaves_the_minor_alone() {
        let number = DeviceNumber::from_xfs(u32::MAX << XFS_MINOR_BITS | 5);
        assert_eq!(DeviceNumber::from_linux(number.to_linux()), DeviceNumber { major: 0xfff, minor: 5 });
    }
}
