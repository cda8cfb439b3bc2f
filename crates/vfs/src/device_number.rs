//! Device numbers, in Linux's encoding.
//!
//! ```text
//! minor 31..20 | major 19..8 | minor 7..0
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
}
