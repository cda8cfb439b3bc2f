//! Requests for contents.

use super::contents::PAGE;
use super::model::{Model, Node};
use super::wire::{self, Asker, Body, u32_at, u64_at};
use super::{EFBIG, EINVAL, EISDIR, ENOSPC, ENXIO, EOPNOTSUPP, Errno, Run};
use std::ops::Range;

const MAX_SIZE: u64 = i64::MAX as u64;
/// Maximum bytes of an answer to a read.
const MAX_READ_BYTES: u64 = 128 << 10;
const MAX_COPY_BYTES: u64 = 4 << 20;
const KEEP_SIZE: u32 = 1;
const PUNCH_HOLE: u32 = 2;
const COLLAPSE_RANGE: u32 = 8;
const ZERO_RANGE: u32 = 16;
const INSERT_RANGE: u32 = 32;
const SEEK_DATA: u32 = 3;
const SEEK_HOLE: u32 = 4;

impl Run<'_> {
    /// The errors of a request for the contents of a file.
    fn causes_of_file(&self, node: u64) -> Vec<Errno> {
        let mut causes = self.causes_of(node);
        match self.model.get(node) {
            Some(node) if node.is_dir() => causes.push(EISDIR),
            Some(node) if !node.is_file() => causes.push(EINVAL),
            _ => {}
        }
        causes
    }

    fn file(&mut self) -> u64 {
        let byte = usize::from(self.input.byte());
        if byte >= 220 {
            return self.node();
        }
        let mut files = self.model.nodes.iter().filter(|(_, node)| node.is_file());
        let count = files.clone().count().max(1);
        files.nth(byte % count).map_or(super::ROOT, |(number, _)| *number)
    }

    /// Notes that a request found no space: the contents of the file are not known then.
    fn note_room(&mut self, node: u64, answer: &wire::Answer) {
        if *answer == Err(ENOSPC) && self.model.get(node).is_some_and(Node::is_file) {
            self.model.get_mut(node).is_uncertain = true;
            self.look(node);
        }
    }

    /// A write may have removed set-id bits: takes the server's mode over.
    pub(super) fn settle_privileges(&mut self, node: u64) {
        let body = Body::default().u64s(&[0, 0]);
        if let Ok(answer) = self.connection.ask(wire::GETATTR, node, &body) {
            let mode = u32_at(&answer, super::ATTR_ATTR + 60);
            self.model.get_mut(node).mode &= mode | !0o6000;
            self.look(node);
        }
    }

    pub(super) fn read(&mut self) {
        let (node, offset, kind) = (self.file(), self.input.offset(), self.input.byte());
        let mut causes = self.causes_of_file(node);
        if offset > MAX_SIZE {
            causes.push(EINVAL);
        }
        let left = self.model.get(node).map_or(0, |node| node.contents.size.saturating_sub(offset));
        let size = match kind {
            0..200 => u32::from(kind) * 300,
            200..240 => MAX_READ_BYTES as u32,
            _ if left < MAX_READ_BYTES => u32::MAX,
            _ => 1,
        };
        let flags = if kind & 1 == 0 { 0 } else { 0o40_000 };
        let body = Body::default().u64s(&[0, offset]).u32s(&[size, 0]).u64s(&[0]).u32s(&[flags, 0]);
        let Ok(bytes) = self.ask(wire::READ, node, Asker::default(), &body, &causes) else { return };
        let found = self.model.get(node).expect("a file");
        let expected = found.contents.read(offset, size.into());
        if !found.is_uncertain && bytes != expected {
            let at = bytes.iter().zip(&expected).position(|(left, right)| left != right);
            self.fail(&format!("{} bytes of {} from {offset}, other at {at:?}", bytes.len(), expected.len()));
        }
    }

    pub(super) fn write(&mut self) {
        let (node, offset, kind, flags) = (self.file(), self.input.offset(), self.input.byte(), self.input.byte());
        let length = match kind {
            0..160 => usize::from(kind) * 20,
            160..240 => usize::from(kind - 160) * 512,
            _ => 140 << 10,
        };
        let mut causes = self.causes_of_file(node);
        if length == 0 && !causes.is_empty() {
            return;
        }
        let data: Vec<u8> = (0..length).map(|at| kind.wrapping_add((at / 5) as u8) | 1).collect();
        if offset > MAX_SIZE {
            causes.push(EINVAL);
        }
        let end = offset.saturating_add(length as u64);
        if end > MAX_SIZE {
            causes.push(EFBIG);
        }
        let open_flags = [0, 0o40_000, 0o10_000, 0][usize::from(flags / 8 % 4)];
        let body = Body::default().u64s(&[0, offset]).u32s(&[length as u32, u32::from(flags % 8)]);
        let body = body.u64s(&[0]).u32s(&[open_flags, 0]).bytes(&data);
        let answer = self.ask(wire::WRITE, node, Asker::default(), &body, &causes);
        self.note_room(node, &answer);
        let Ok(written) = answer else {
            // The server removes set-id bits before it changes the contents, so a refused write may remove them too.
            if self.model.get(node).is_some() {
                self.settle_privileges(node);
            }
            return;
        };
        self.expect_equal("bytes written", &(u32_at(&written, 0) as usize), &length);
        let found = self.model.get_mut(node);
        found.mtime = None;
        found.contents.write(offset, &data);
        self.settle_privileges(node);
    }

    pub(super) fn fallocate(&mut self) {
        let (node, kind) = (self.file(), self.input.byte());
        let (offset, length) = (self.input.offset(), self.input.offset());
        let mode = match kind {
            0..30 => 0,
            30..60 => KEEP_SIZE,
            60..100 => PUNCH_HOLE | KEEP_SIZE,
            100..130 => ZERO_RANGE,
            130..150 => ZERO_RANGE | KEEP_SIZE,
            150..190 => COLLAPSE_RANGE,
            190..230 => INSERT_RANGE,
            _ => u32::from(kind - 230) * 3,
        };
        let causes = self.causes_of_fallocate(node, mode, offset, length);
        let body = Body::default().u64s(&[0, offset, length]).u32s(&[mode, 0]);
        let answer = self.ask(wire::FALLOCATE, node, Asker::default(), &body, &causes);
        self.note_room(node, &answer);
        if answer.is_err() {
            return;
        }
        let found = self.model.get_mut(node);
        found.mtime = None;
        let range = offset..offset + length;
        allocate(found, mode, range);
        self.look(node);
    }

    fn causes_of_fallocate(&self, node: u64, mode: u32, offset: u64, length: u64) -> Vec<Errno> {
        let mut causes = self.causes_of_file(node);
        let size = self.model.get(node).map_or(0, |node| node.contents.size);
        let known = [0, 1, 3, ZERO_RANGE, ZERO_RANGE | KEEP_SIZE, COLLAPSE_RANGE, INSERT_RANGE];
        if !known.contains(&mode) {
            causes.push(EOPNOTSUPP);
        }
        if offset > MAX_SIZE || length > MAX_SIZE || length == 0 {
            causes.push(EINVAL);
        }
        let end = offset.saturating_add(length);
        if end > MAX_SIZE {
            causes.push(EFBIG);
        }
        let moves = mode == COLLAPSE_RANGE || mode == INSERT_RANGE;
        if moves && !(offset.is_multiple_of(PAGE) && length.is_multiple_of(PAGE)) {
            causes.push(EINVAL);
        }
        if mode == COLLAPSE_RANGE && end >= size || mode == INSERT_RANGE && offset >= size {
            causes.push(EINVAL);
        }
        if mode == INSERT_RANGE && size.saturating_add(length) > MAX_SIZE {
            causes.push(EFBIG);
        }
        causes
    }

    pub(super) fn seek(&mut self) {
        let (node, offset, kind) = (self.file(), self.input.offset(), self.input.byte());
        let whence = if kind < 220 { SEEK_DATA + u32::from(kind % 2) } else { u32::from(kind) - 220 };
        let mut causes = self.causes_of_file(node);
        if whence != SEEK_DATA && whence != SEEK_HOLE {
            causes.push(EINVAL);
        }
        let found = self.model.get(node).cloned().unwrap_or_default();
        let size = found.contents.size;
        if offset >= size || offset > MAX_SIZE {
            causes.push(ENXIO);
        }
        let body = Body::default().u64s(&[0, offset]).u32s(&[whence, 0]);
        self.log.push(format!("{} of {node}: {whence} from {offset}", wire::LSEEK));
        let answer = self.connection.ask(wire::LSEEK, node, &body);
        self.behaviour.note((self.last, wire::LSEEK, answer.as_ref().err()));
        match answer {
            Ok(place) if causes.is_empty() => {
                let place = u64_at(&place, 0);
                let is_within = (offset..size + u64::from(whence == SEEK_HOLE)).contains(&place);
                let skipped = found.contents.read(offset, (place.max(offset) - offset).min(MAX_READ_BYTES));
                let has_data = whence == SEEK_DATA && !found.is_uncertain && skipped.iter().any(|byte| *byte != 0);
                if !is_within || has_data {
                    self.fail(&format!("seek finds {place}, of {size} bytes"));
                }
            }
            // The rest of the file is a hole.
            Err(ENXIO) if whence == SEEK_DATA && causes.is_empty() => {
                let rest = found.contents.read(offset, MAX_READ_BYTES);
                if !found.is_uncertain && rest.iter().any(|byte| *byte != 0) {
                    self.fail("seek finds no data where there is some");
                }
            }
            Err(error) if causes.contains(&error) => {}
            answer => self.fail(&format!("seek answers {answer:?}, but it may be one of {causes:?}")),
        }
    }

    pub(super) fn copy(&mut self) {
        let (from, from_offset) = (self.file(), self.input.offset());
        let (to, to_offset) = (self.file(), self.input.offset());
        let mut length = self.input.offset();
        let mut causes = self.causes_of_file(from);
        causes.extend(self.causes_of_file(to));
        if from_offset > MAX_SIZE || to_offset > MAX_SIZE {
            causes.push(EINVAL);
        }
        let left = self.model.get(from).map_or(0, |node| node.contents.size.saturating_sub(from_offset));
        if left > MAX_COPY_BYTES {
            length = length.min(MAX_COPY_BYTES);
        }
        let count = left.min(length);
        let overlaps = |count: u64| overlap(&self.model, (from, from_offset), (to, to_offset), count);
        if overlaps(length) != overlaps(count) || count == 0 && !causes.is_empty() {
            return;
        }
        if overlaps(count) {
            causes.push(EINVAL);
        }
        if to_offset.saturating_add(length) > MAX_SIZE {
            if to_offset.saturating_add(count) <= MAX_SIZE {
                return;
            }
            causes.extend([EFBIG, EINVAL]);
        }
        let body = Body::default().u64s(&[0, from_offset, to, 0, to_offset, length, 0]);
        let answer = self.ask(wire::COPY_FILE_RANGE, from, Asker::default(), &body, &causes);
        self.note_room(to, &answer);
        let Ok(copied) = answer else { return };
        let copied = u64::from(u32_at(&copied, 0));
        self.expect_equal("bytes copied", &copied, &count);
        let source = self.model.get(from).expect("a file");
        let (data, is_uncertain) = (source.contents.read(from_offset, count), source.is_uncertain);
        let target = self.model.get_mut(to);
        target.is_uncertain |= is_uncertain;
        target.mtime = None;
        target.contents.write(to_offset, &data);
        self.settle_privileges(to);
    }
}

fn overlap(model: &Model, (from, from_offset): (u64, u64), (to, to_offset): (u64, u64), count: u64) -> bool {
    let is_same = model.key(from) == model.key(to);
    is_same && to_offset < from_offset.saturating_add(count) && from_offset < to_offset.saturating_add(count)
}

fn allocate(node: &mut Node, mode: u32, range: Range<u64>) {
    let contents = &mut node.contents;
    let end = range.end;
    match mode {
        COLLAPSE_RANGE => contents.collapse(range),
        INSERT_RANGE => contents.insert(range),
        _ => {
            if mode & (PUNCH_HOLE | ZERO_RANGE) != 0 {
                contents.zero(range);
            }
            if mode & KEEP_SIZE == 0 {
                contents.size = contents.size.max(end);
            }
        }
    }
}
