//! Reads the header of a virtual disk: for a process that does nothing else, or that gives up no rights.

use crate::below::{Below, OPEN_FILES};
use crate::signature::{SIGNATURE_BYTES, Signature};
use crate::{foreign, qcow2, vmdk};
use imago::StorageOpenOptions;
use imago::file::File as ImagoFile;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

/// The file of a virtual disk whose header is about to be read.
pub struct Header {
    named: ImagoFile,
    file: File,
}

impl Header {
    /// Opens an open file once more, for reading. Nothing of it is read.
    ///
    /// # Errors
    /// Those of the system, also where it has no `/proc`.
    pub fn over(file: &impl AsFd) -> io::Result<Self> {
        Ok(Self { named: reopened(file)?, file: file.as_fd().try_clone_to_owned()?.into() })
    }

    /// Reads what the header says. Nothing is opened. A header that is damaged, or of a kind that is not handled, names
    /// nothing: who opens the disk is told why.
    pub fn read(self) -> Below {
        let first = head(&self.file, 0, SIGNATURE_BYTES);
        match Signature::of(&first) {
            Signature::Qcow2 => qcow2::below(Path::new(OPEN_FILES), Arc::new(self.named)),
            Signature::Vmdk => Below { names: vmdk::extents(self.named, &self.file), ..Below::default() },
            Signature::Metadump => Below::default(),
            Signature::Other => foreign::below(&first, |offset, length| head(&self.file, offset, length)),
        }
    }
}

/// The bytes of a file from `offset`, `length` of them or as many as can be read.
fn head(file: &File, offset: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    let mut there = 0;
    while there < length {
        match file.read_at(&mut bytes[there..], offset.saturating_add(there as u64)) {
            Ok(read) if read > 0 => there += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            _ => break,
        }
    }
    bytes.truncate(there);
    bytes
}

/// Another handle of an open file that has a name, beside which imago looks for others.
pub(crate) fn reopened(file: &impl AsFd) -> io::Result<ImagoFile> {
    let name = Path::new(OPEN_FILES).join(file.as_fd().as_raw_fd().to_string());
    imago::Storage::open(StorageOpenOptions::new().filename(name).write(false))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::below::{Base, Service};

    /// What arrives of what a header says.
    fn read(bytes: &[u8]) -> Below {
        let mut file = tempfile::tempfile().unwrap();
        io::Write::write_all(&mut file, bytes).unwrap();
        Below::decode(&Header::over(&file).unwrap().read().encode()).unwrap()
    }

    fn said(bytes: &[u8]) -> (Service, Base) {
        let below = read(bytes);
        (below.service, below.base)
    }

    /// A sparse vmdk of a size, with a descriptor in its second sector.
    fn sparse_vmdk(descriptor: &str, change: impl Fn(&mut Vec<u8>)) -> Vec<u8> {
        let mut bytes = vec![0; 2048];
        bytes[..4].copy_from_slice(b"KDMV");
        for (at, number) in [(12, 100_u64), (28, 1), (36, 3)] {
            bytes[at..at + 8].copy_from_slice(&number.to_le_bytes());
        }
        bytes[512..512 + descriptor.len()].copy_from_slice(descriptor.as_bytes());
        change(&mut bytes);
        bytes
    }

    /// A qcow2 header of version 3 with incompatible features, the name of a backing file and what is declared of it.
    fn qcow2(features: u8, name: &[u8], format: Option<&[u8]>) -> Vec<u8> {
        let mut bytes = vec![0; 4096];
        bytes[..8].copy_from_slice(b"QFI\xfb\0\0\0\x03");
        bytes[14..16].copy_from_slice(&2048_u16.to_be_bytes());
        bytes[16..20].copy_from_slice(&u32::try_from(name.len()).unwrap().to_be_bytes());
        (bytes[79], bytes[103]) = (features, 104);
        if let Some(format) = format {
            bytes[104..108].copy_from_slice(&0xe279_2aca_u32.to_be_bytes());
            bytes[111] = u8::try_from(format.len()).unwrap();
            bytes[112..112 + format.len()].copy_from_slice(format);
        }
        bytes[2048..2048 + name.len()].copy_from_slice(name);
        bytes
    }

    #[test]
    fn a_sparse_vmdk_says_that_it_lies_on_no_other_one() {
        let none = "# Disk DescriptorFile\nCID=1\nparentCID=ffffffff\n";
        assert_eq!(said(&sparse_vmdk(none, |_| ())), (Service::ToReadAndWrite, Base::None));
        assert_eq!(said(&sparse_vmdk(none, |bytes| bytes[10] = 1)), (Service::ToRead, Base::None));
        let another = none.replace("ffffffff", "11111111");
        let nowhere = |bytes: &mut Vec<u8>| bytes[28..36].fill(0xff);
        for bytes in [
            sparse_vmdk(&another, |_| ()),
            sparse_vmdk("CID=1", |_| ()),
            sparse_vmdk(none, nowhere),
            sparse_vmdk(none, |bytes| bytes[28] = 0),
            sparse_vmdk(none, |bytes| bytes[12] = 0),
            sparse_vmdk(none, |bytes| bytes.truncate(520)),
            sparse_vmdk(none, |bytes| bytes.truncate(9)),
            sparse_vmdk(none, |bytes| bytes[0] = b'C'),
        ] {
            assert_ne!(said(&bytes), (Service::ToReadAndWrite, Base::None));
        }
    }

    #[test]
    fn qed_says_it_by_a_bit() {
        for (bit, base) in [(0, Base::None), (1, Base::Another)] {
            let mut bytes = [0; 64];
            bytes[..4].copy_from_slice(b"QED\0");
            bytes[16] = bit;
            assert_eq!(said(&bytes), (Service::ToReadAndWrite, base));
        }
        assert_eq!(said(b"QED\0"), (Service::NotNeeded, Base::Another));
    }

    #[test]
    fn qcow2_says_what_qemu_has_to_read() {
        let (zstd, subclusters, dirty, external) = (8, 16, 1, 4);
        for (features, service) in [
            (zstd, Service::ToReadAndWrite),
            (subclusters | zstd, Service::ToReadAndWrite),
            (subclusters | dirty, Service::ToRead),
            (external, Service::NotNeeded),
            (external | zstd, Service::NotNeeded),
        ] {
            assert_eq!(said(&qcow2(features, b"", None)), (service, Base::None));
            assert_eq!(said(&qcow2(features, b"a", None)), (service, Base::Another));
        }
        let below = read(&qcow2(zstd, b"a name", Some(b"raw")));
        assert!(below.names == ["a name"] && below.format == "raw", "{below:?}");
        // A name that cannot be used, and a format that is said, but not understood.
        for name in [&b"\xff"[..], &[b'n'; 1024]] {
            let below = read(&qcow2(zstd, name, None));
            assert!(below.names.is_empty() && below.base == Base::Another, "{below:?}");
        }
        for format in [&b"\xff"[..], b"?"] {
            assert!(!read(&qcow2(zstd, b"a", Some(format))).format.is_empty());
        }
        let mut long = qcow2(zstd, b"a", Some(b"raw"));
        long[108..112].fill(0xff);
        assert!(!["", "raw"].contains(&read(&long).format.as_str()));
        for length in [0, 4, 80, 103, 200] {
            assert!(read(&qcow2(zstd, b"a", None)[..length]).names.is_empty());
        }
    }
}
