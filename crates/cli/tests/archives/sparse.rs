//! Sparse files in GNU's forms.

use crate::make::{Case, Entry, GNU, case, end, padded, pax, small};

/// The parts of a file, and its size.
type Map = (Vec<(u64, u64)>, u64);

fn few() -> Map {
    (vec![(0, 1024), (4096, 512), (10_240, 3), (20_000, 0)], 20_000)
}

fn many(count: u64) -> Map {
    ((0..count).map(|part| (part * 8192, 512)).collect(), (count - 1) * 8192 + 512)
}

fn contents(parts: &[(u64, u64)]) -> Vec<u8> {
    parts.iter().enumerate().flat_map(|(at, (_, length))| vec![b'a' + at as u8 % 26; *length as usize]).collect()
}

fn numbers(parts: &[(u64, u64)]) -> Vec<u8> {
    parts.iter().flat_map(|(offset, length)| format!("{offset:011o}\0{length:011o}\0").into_bytes()).collect()
}

/// The form of old GNU headers.
fn old((parts, size): &Map) -> Vec<u8> {
    let (own, rest) = parts.split_at(parts.len().min(4));
    let mut further = Vec::new();
    let blocks = rest.chunks(21);
    let count = blocks.len();
    for (at, parts) in blocks.enumerate() {
        let mut block = padded(&numbers(parts));
        block[504] = u8::from(at + 1 < count);
        further.extend(block);
    }
    let header = Entry::new(b"s", b'S').magic(GNU).with(&contents(parts)).at(386, &numbers(own));
    let header = header.at(482, &[u8::from(count > 0)]).at(483, format!("{size:011o}\0").as_bytes());
    header.followed_by(&further).bytes()
}

fn pax_form(records: &[(&str, &[u8])], data: &[u8]) -> Vec<u8> {
    [pax(b'x', records), Entry::file(b"GNUSparseFile.1/s", data).bytes()].concat()
}

fn zero_one((parts, size): &Map) -> Vec<u8> {
    let map: Vec<String> = parts.iter().map(|(offset, length)| format!("{offset},{length}")).collect();
    let (map, size, count) = (map.join(","), size.to_string(), parts.len().to_string());
    let records = [
        ("GNU.sparse.size", size.as_bytes()),
        ("GNU.sparse.numblocks", count.as_bytes()),
        ("GNU.sparse.name", b"real"),
        ("GNU.sparse.map", map.as_bytes()),
    ];
    pax_form(&records, &contents(parts))
}

fn zero_zero((parts, size): &Map) -> Vec<u8> {
    let texts: Vec<[String; 2]> =
        parts.iter().map(|(offset, length)| [offset.to_string(), length.to_string()]).collect();
    let (size, count) = (size.to_string(), parts.len().to_string());
    let mut records = vec![("GNU.sparse.size", size.as_bytes()), ("GNU.sparse.numblocks", count.as_bytes())];
    for [offset, length] in &texts {
        records.push(("GNU.sparse.offset", offset.as_bytes()));
        records.push(("GNU.sparse.numbytes", length.as_bytes()));
    }
    pax_form(&records, &contents(parts))
}

/// The map and the contents of form 1.0.
fn one_zero((parts, size): &Map, more: &[(&str, &[u8])]) -> (Vec<u8>, Vec<u8>) {
    let lines: String = parts.iter().map(|(offset, length)| format!("{offset}\n{length}\n")).collect();
    let data = [padded(format!("{}\n{lines}", parts.len()).as_bytes()), contents(parts)].concat();
    let size = size.to_string();
    let mut records: Vec<(&str, &[u8])> =
        vec![("GNU.sparse.major", b"1"), ("GNU.sparse.minor", b"0"), ("GNU.sparse.name", b"real")];
    records.push(("GNU.sparse.realsize", size.as_bytes()));
    records.extend(more);
    (pax(b'x', &records), data)
}

pub fn cases() -> Vec<Case> {
    let hole = (vec![(20_000, 0)], 20_000);
    let whole = |map: &Map, more: &[(&str, &[u8])]| {
        let (header, data) = one_zero(map, more);
        [header, Entry::file(b"GNUSparseFile.1/s", &data).bytes()].concat()
    };
    let by_record = |map: &Map| {
        let data = one_zero(map, &[]).1;
        let (header, data) = one_zero(map, &[("size", data.len().to_string().as_bytes())]);
        [header, Entry::new(b"s", b'0').bytes(), padded(&data)].concat()
    };
    [
        ("old", old(&few())),
        ("old-ext", old(&many(30))),
        ("old-25", old(&many(25))),
        ("old-26", old(&many(26))),
        ("old-47", old(&many(47))),
        ("old-hole", old(&hole)),
        ("old-empty", old(&(vec![], 0))),
        ("pax-0.0", zero_zero(&few())),
        ("pax-0.0-many", zero_zero(&many(300))),
        ("pax-0.1", zero_one(&few())),
        ("pax-0.1-many", zero_one(&many(300))),
        ("pax-0.1-hole", zero_one(&hole)),
        ("pax-1.0", whole(&few(), &[])),
        ("pax-1.0-many", whole(&many(300), &[])),
        ("pax-1.0-hole", whole(&hole, &[])),
        ("pax-1.0-path", whole(&few(), &[("path", b"GNUSparseFile.1/s")])),
        ("pax-1.0-size", by_record(&few())),
        ("pax-1.0-mtime", whole(&few(), &[("mtime", b"7.5"), ("SCHILY.xattr.user.a", b"1")])),
    ]
    .into_iter()
    .map(|(name, bytes)| case(name, &[bytes, small("g"), end()]))
    .collect()
}
