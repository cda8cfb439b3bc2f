//! Makes archives block by block.

/// An archive, and what is particular about it.
pub struct Case {
    pub name: String,
    pub bytes: Vec<u8>,
}

pub fn case(name: impl Into<String>, parts: &[Vec<u8>]) -> Case {
    Case { name: name.into(), bytes: parts.concat() }
}

/// The end mark.
pub fn end() -> Vec<u8> {
    vec![0; 1024]
}

/// Fills the last block.
pub fn padded(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes.resize(bytes.len().next_multiple_of(512), 0);
    bytes
}

/// A header, and what follows it.
#[derive(Clone)]
pub struct Entry {
    header: [u8; 512],
    data: Vec<u8>,
    signed: bool,
    sum: fn(i64) -> String,
}

pub const GNU: &[u8] = b"ustar  \0";
pub const OLD: &[u8] = b"\0\0\0\0\0\0\0\0";

impl Entry {
    pub fn new(name: &[u8], kind: u8) -> Self {
        let plain = Self { header: [0; 512], data: Vec::new(), signed: false, sum: |sum| format!("{sum:06o}\0 ") };
        let mode: &[u8] = if kind == b'5' { b"0000755\0" } else { b"0000644\0" };
        let plain = plain.at(0, name).at(100, mode).at(108, b"0000000\0").at(116, b"0000000\0");
        plain
            .at(124, b"00000000000\0")
            .at(136, b"00000000005\0")
            .at(156, &[kind])
            .at(257, b"ustar\x0000")
            .devices(b"0000000\0", b"0000000\0")
    }

    /// A regular file.
    pub fn file(name: &[u8], data: &[u8]) -> Self {
        Self::new(name, b'0').with(data)
    }

    pub fn link(name: &[u8], kind: u8, target: &[u8]) -> Self {
        Self::new(name, kind).at(157, target)
    }

    /// Puts bytes into the header.
    pub fn at(mut self, offset: usize, bytes: &[u8]) -> Self {
        self.header[offset..offset + bytes.len()].copy_from_slice(bytes);
        self
    }

    /// Puts bytes into a field that is cleared first.
    pub fn field(self, offset: usize, length: usize, bytes: &[u8]) -> Self {
        self.at(offset, &vec![0; length]).at(offset, bytes)
    }

    pub fn devices(self, major: &[u8], minor: &[u8]) -> Self {
        self.field(329, 8, major).field(337, 8, minor)
    }

    pub fn mode(self, mode: &[u8]) -> Self {
        self.field(100, 8, mode)
    }

    pub fn size(self, size: u64) -> Self {
        self.at(124, format!("{size:011o}\0").as_bytes())
    }

    pub fn magic(self, magic: &[u8]) -> Self {
        if magic == OLD { self.devices(b"", b"").at(257, magic) } else { self.at(257, magic) }
    }

    /// Sets contents and their size.
    pub fn with(self, data: &[u8]) -> Self {
        let entry = self.size(data.len() as u64);
        Self { data: padded(data), ..entry }
    }

    /// Adds blocks behind the header, without a change of its size.
    pub fn followed_by(mut self, blocks: &[u8]) -> Self {
        self.data = [blocks, &self.data].concat();
        self
    }

    /// Sums the bytes with a sign.
    pub fn signed(self) -> Self {
        Self { signed: true, ..self }
    }

    pub fn sum(self, sum: fn(i64) -> String) -> Self {
        Self { sum, ..self }
    }

    pub fn bytes(mut self) -> Vec<u8> {
        self.header[148..156].fill(b' ');
        let value = |&byte: &u8| if self.signed { i64::from(byte as i8) } else { i64::from(byte) };
        let sum = (self.sum)(self.header.iter().map(value).sum());
        self.header[148..148 + sum.len()].copy_from_slice(sum.as_bytes());
        [&self.header[..], &self.data].concat()
    }
}

/// A small file.
pub fn small(name: &str) -> Vec<u8> {
    Entry::file(name.as_bytes(), b"hello").bytes()
}

/// A PAX header with records.
pub fn pax(kind: u8, records: &[(&str, &[u8])]) -> Vec<u8> {
    let records: Vec<u8> = records.iter().flat_map(|(key, value)| record(key, value)).collect();
    Entry::new(b"PaxHeader", kind).with(&records).bytes()
}

pub fn record(key: &str, value: &[u8]) -> Vec<u8> {
    let rest = key.len() + value.len() + 3;
    let mut length = rest + 1;
    while length != rest + length.to_string().len() {
        length = rest + length.to_string().len();
    }
    [format!("{length} {key}=").as_bytes(), value, b"\n"].concat()
}

/// GNU's long name or target.
pub fn long(kind: u8, name: &[u8]) -> Vec<u8> {
    Entry::new(b"././@LongLink", kind).magic(GNU).with(&[name, b"\0"].concat()).bytes()
}
