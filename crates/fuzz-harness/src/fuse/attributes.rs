//! Requests for attributes.

use super::model::Node;
use super::wire::{self, Asker, Body, u32_at};
use super::{ATTR_ATTR, E2BIG, EEXIST, EFBIG, EINVAL, EISDIR, ENODATA, EOPNOTSUPP, EPERM, ERANGE, Errno, Run};

const SET_MODE: u32 = 1;
const SET_UID: u32 = 2;
const SET_GID: u32 = 4;
const SET_SIZE: u32 = 8;
const SET_ATIME: u32 = 16;
const SET_MTIME: u32 = 32;
const ATIME_NOW: u32 = 128;
const MTIME_NOW: u32 = 256;
const MAX_VALUE_BYTES: usize = 64 << 10;
/// Times in seconds that the image can store. The first second is left out, because it can have no nanoseconds.
const TIMES: std::ops::RangeInclusive<i64> = -(1 << 31) + 1..=16_000_000_000;
const SECOND: u32 = 1_000_000_000;

/// A request for a change of attributes.
struct Change {
    valid: u32,
    size: u64,
    times: [(i64, u32); 2],
    mode: u32,
    owner: [u32; 2],
}

impl Run<'_> {
    pub(super) fn getattr(&mut self) {
        let node = self.node();
        let causes = self.causes_of(node);
        let body = Body::default().u64s(&[0, 0]);
        if let Ok(answer) = self.ask(wire::GETATTR, node, Asker::default(), &body, &causes) {
            self.compare_attr(node, &answer[ATTR_ATTR..]);
        }
    }

    fn time(&mut self) -> (i64, u32) {
        let byte = self.input.byte();
        // Nanoseconds as the kernel sends them: less than a second, and none at the earliest time.
        let nanoseconds = self.input.word() % SECOND;
        let seconds = match byte % 16 {
            0 => return (i64::MIN, 0),
            1 => i64::MIN + 1,
            2 => i64::MAX,
            3 => -1,
            4 => -(1 << 31),
            5 => -(1 << 31) - 1,
            6 => 16_299_260_425,
            7 => 1 << 33,
            _ => i64::from(byte) << 20,
        };
        (seconds, nanoseconds)
    }

    pub(super) fn setattr(&mut self) {
        let node = self.node();
        let valid = u32::from(self.input.byte()) | u32::from(self.input.byte() % 16) << 8;
        let change = Change {
            valid,
            size: self.input.offset(),
            times: [self.time(), self.time()],
            mode: (u32::from(self.input.byte()) << 4) | (valid % 16) | 0o100_000,
            owner: [u32::from(self.input.byte()), u32::from(self.input.byte())],
        };
        let mut causes = self.causes_of(node);
        if let (Some(found), true) = (self.model.get(node), valid & SET_SIZE != 0) {
            match () {
                () if found.is_dir() => causes.push(EISDIR),
                () if !found.is_file() => causes.push(EINVAL),
                () => {}
            }
        }
        if valid & SET_SIZE != 0 && change.size > i64::MAX as u64 {
            causes.push(EFBIG);
        }
        let Change { size, times: [atime, mtime], mode, owner, .. } = change;
        let body = Body::default().u32s(&[valid, 0]).u64s(&[0, size, 0, atime.0 as u64, mtime.0 as u64, 0]);
        let body = body.u32s(&[atime.1, mtime.1, 0, mode, 0, owner[0], owner[1], 0]);
        let answer = self.ask(wire::SETATTR, node, Asker::default(), &body, &causes);
        let Ok(answer) = answer else { return };
        self.take_change(node, &change, u32_at(&answer, ATTR_ATTR + 60));
        self.compare_attr(node, &answer[ATTR_ATTR..]);
    }

    /// Applies a change to the model.
    fn take_change(&mut self, node: u64, change: &Change, mode_now: u32) {
        let Change { valid, size, times, mode, owner } = change;
        let found = self.model.get_mut(node);
        if valid & SET_SIZE != 0 {
            if *size != found.contents.size {
                found.mtime = None;
            }
            found.contents.truncate(*size);
        }
        if valid & SET_MODE != 0 {
            found.mode = found.mode & !0o7777 | mode & 0o7777;
        } else if valid & (SET_UID | SET_GID | SET_SIZE) != 0 && !found.is_dir() {
            // The server may have removed the set-id bits, because the owner or the contents changed.
            found.mode &= mode_now | !0o6000;
        }
        if valid & SET_UID != 0 {
            found.uid = owner[0];
        }
        if valid & SET_GID != 0 {
            found.gid = owner[1];
        }
        let set = |place: &mut Option<(i64, u32)>, time: (i64, u32), is_set: bool, is_now: bool| {
            if is_set {
                *place = Some(time).filter(|(seconds, _)| !is_now && TIMES.contains(seconds));
            }
        };
        set(&mut found.atime, times[0], valid & SET_ATIME != 0, valid & ATIME_NOW != 0);
        set(&mut found.mtime, times[1], valid & SET_MTIME != 0, valid & MTIME_NOW != 0);
    }

    fn xattr_name(&mut self) -> Vec<u8> {
        let byte = self.input.byte();
        match byte {
            0..120 => format!("user.a{}", byte % 6).into_bytes(),
            120..160 => format!("trusted.t{}", byte % 3).into_bytes(),
            160..200 => format!("security.s{}", byte % 3).into_bytes(),
            200..220 => [&b"user."[..], &[b'l'; 255]].concat(),
            220..226 => [&b"user."[..], &[b'l'; 256]].concat(),
            226..232 => b"user.".to_vec(),
            232..238 => b"unknown.a".to_vec(),
            238..244 => b"system.other".to_vec(),
            244..250 => b"trusted.\xff\n=".to_vec(),
            _ => Vec::new(),
        }
    }

    fn causes_of_xattr(&self, node: u64, name: &[u8]) -> Vec<Errno> {
        let mut causes = self.causes_of(node);
        let spaces: [&[u8]; 3] = [b"user.", b"trusted.", b"security."];
        match spaces.iter().find_map(|space| name.strip_prefix(*space)) {
            None => causes.push(EOPNOTSUPP),
            Some(b"") => causes.push(EINVAL),
            Some(rest) if rest.len() > 255 => causes.push(ERANGE),
            Some(_) => {}
        }
        causes
    }

    pub(super) fn set_xattr(&mut self) {
        let (node, kind) = (self.node(), self.input.byte());
        if kind >= 230 {
            return self.set_acl(node, kind);
        }
        let name = self.xattr_name();
        let length = match kind {
            0..120 => usize::from(kind),
            120..180 => usize::from(kind) * 20,
            180..210 => usize::from(kind - 180) * 1000,
            210..220 => MAX_VALUE_BYTES,
            _ => MAX_VALUE_BYTES + 1 + usize::from(kind),
        };
        let value: Vec<u8> = (0..length).map(|at| kind ^ (at / 3) as u8).collect();
        let flags = u32::from(self.input.byte()) % 8;
        let mut causes = self.causes_of_xattr(node, &name);
        if length > MAX_VALUE_BYTES {
            causes.push(E2BIG);
        }
        if let Some(found) = self.model.get(node) {
            if name.starts_with(b"user.") && !found.is_file() && !found.is_dir() {
                causes.push(EPERM);
            }
            match (flags % 4, found.xattrs.contains_key(&name)) {
                (1, true) => causes.push(EEXIST),
                (2, false) => causes.push(ENODATA),
                _ => {}
            }
        }
        if flags % 4 == 3 {
            causes.push(EINVAL);
        }
        let body = Body::default().u32s(&[length as u32, flags, 0, 0]).name(&name).bytes(&value);
        if self.ask(wire::SETXATTR, node, Asker::default(), &body, &causes).is_ok() {
            self.model.get_mut(node).xattrs.insert(name, value);
        }
    }

    /// Sets an ACL, which changes the mode, or the modes of what is made in a directory.
    fn set_acl(&mut self, node: u64, kind: u8) {
        let Some(found) = self.model.get(node).filter(|node| node.is_dir() || node.is_file()) else { return };
        let name: &[u8] =
            if kind & 1 == 0 || !found.is_dir() { b"system.posix_acl_access" } else { b"system.posix_acl_default" };
        let mut value = vec![2, 0, 0, 0];
        for (tag, id) in [(1, u32::MAX), (2, 1000), (4, u32::MAX), (16, u32::MAX), (32, u32::MAX)] {
            value.extend([tag, 0, self.input.byte() % 8, 0]);
            value.extend(id.to_le_bytes());
        }
        // Some ACLs are cut short.
        let is_broken = kind >= 246;
        if is_broken {
            let at = usize::from(self.input.byte()) % value.len();
            value.truncate(at);
        }
        let body = Body::default().u32s(&[value.len() as u32, 0, 0, 0]).name(name).bytes(&value);
        self.log.push(format!("ACL of {node}: {}", value.escape_ascii()));
        let answer = self.connection.ask(wire::SETXATTR, node, &body);
        self.behaviour.note((wire::SETXATTR, "acl", answer.as_ref().err()));
        match answer {
            Ok(_) => {
                self.model.get_mut(node).has_acl = true;
                self.look(node);
            }
            Err(super::ENOSPC) => {}
            Err(EINVAL | EOPNOTSUPP) if is_broken => {}
            Err(error) => self.fail(&format!("an ACL is refused with {error}")),
        }
    }

    pub(super) fn get_xattr(&mut self) {
        let (node, name, size) = (self.node(), self.xattr_name(), self.input.offset().min(90_000) as u32);
        let mut causes = self.causes_of_xattr(node, &name);
        let value = self.model.get(node).and_then(|node| node.xattrs.get(&name)).cloned();
        match &value {
            None => causes.push(ENODATA),
            Some(value) if size > 0 && value.len() > size as usize => causes.push(ERANGE),
            Some(_) => {}
        }
        let body = Body::default().u32s(&[size, 0]).name(&name);
        let Ok(answer) = self.ask(wire::GETXATTR, node, Asker::default(), &body, &causes) else { return };
        let value = value.unwrap_or_default();
        if size == 0 {
            self.expect_equal("length of a value", &(u32_at(&answer, 0) as usize), &value.len());
        } else if answer != value {
            self.fail("an attribute has another value");
        }
    }

    pub(super) fn list_xattrs(&mut self) {
        let (node, size) = (self.node(), self.input.offset().min(60_000) as u32);
        let causes = self.causes_of(node);
        let uid = u32::from(self.input.byte() & 1);
        let body = Body::default().u32s(&[size, 0]);
        self.log.push(format!("{} of {node}", wire::LISTXATTR));
        let answer = self.connection.ask_as(wire::LISTXATTR, node, Asker { uid, gid: 0 }, &body);
        self.behaviour.note((self.last, wire::LISTXATTR, answer.as_ref().err()));
        let answer = match answer {
            Ok(answer) if causes.is_empty() && size > 0 => answer,
            Ok(_) if causes.is_empty() => return,
            Err(ERANGE) if causes.is_empty() && size > 0 => return,
            Err(error) if causes.contains(&error) => return,
            answer => self.fail(&format!("a list of attributes: {answer:?}")),
        };
        let mut found: Vec<&[u8]> = answer.split(|byte| *byte == 0).filter(|name| !name.is_empty()).collect();
        found.retain(|name| !name.starts_with(b"system.") && !name.starts_with(b"trusted.SGI_ACL_"));
        found.sort_unstable();
        let names = self.model.get(node).map_or_else(Vec::new, |node: &Node| node.xattrs.keys().cloned().collect());
        let shown: Vec<&[u8]> =
            names.iter().map(Vec::as_slice).filter(|name| uid == 0 || !name.starts_with(b"trusted.")).collect();
        self.expect_equal("names of attributes", &found, &shown);
    }

    pub(super) fn remove_xattr(&mut self) {
        let (node, name) = (self.node(), self.xattr_name());
        let mut causes = self.causes_of_xattr(node, &name);
        if self.model.get(node).is_some_and(|node| !node.xattrs.contains_key(&name)) {
            causes.push(ENODATA);
        }
        let body = Body::default().name(&name);
        if self.ask(wire::REMOVEXATTR, node, Asker::default(), &body, &causes).is_ok() {
            self.model.get_mut(node).xattrs.remove(&name);
        }
    }
}
