//! ACLs as text, as in tar streams: `user::rwx,user:1000:r-x,group::r-x,mask::r-x,other::r--`.
//!
//! The binary form is that of the attributes `system.posix_acl_*`: a version (2), then entries of tag, permissions and
//! id, all little-endian.

const VERSION: [u8; 4] = [2, 0, 0, 0];
const NO_ID: u32 = u32::MAX;
const TAGS: [(u16, &str, bool); 6] = [
    (0x01, "user", false),
    (0x02, "user", true),
    (0x04, "group", false),
    (0x08, "group", true),
    (0x10, "mask", false),
    (0x20, "other", false),
];

/// The text of an ACL as an attribute `system.posix_acl_*` has it, as in `user::rwx,group::r-x,other::r--`; `None` if
/// its form is not known.
pub fn acl_text(value: &[u8]) -> Option<String> {
    String::from_utf8(to_text(value)?).ok()
}

/// The text of an ACL; `None` if its form is not known.
pub(super) fn to_text(value: &[u8]) -> Option<Vec<u8>> {
    let (entries, rest) = value.strip_prefix(&VERSION)?.as_chunks::<8>();
    if !rest.is_empty() {
        return None;
    }
    let mut text = Vec::new();
    for entry in entries {
        let (tag, permissions) = (u16::from_le_bytes([entry[0], entry[1]]), u16::from_le_bytes([entry[2], entry[3]]));
        let id = u32::from_le_bytes([entry[4], entry[5], entry[6], entry[7]]);
        let (_, name, named) = TAGS.iter().find(|(known, ..)| *known == tag)?;
        let id = if *named { id.to_string() } else { String::new() };
        let letter = |bit: u16, letter: char| if permissions & bit != 0 { letter } else { '-' };
        let [r, w, x] = [letter(4, 'r'), letter(2, 'w'), letter(1, 'x')];
        let separator = if text.is_empty() { "" } else { "," };
        text.extend_from_slice(format!("{separator}{name}:{id}:{r}{w}{x}").as_bytes());
    }
    Some(text)
}

/// The binary form of an ACL's text.
pub(super) fn from_text(text: &[u8]) -> Result<Vec<u8>, String> {
    let text = std::str::from_utf8(text).map_err(|_| "an ACL that is not text".to_owned())?;
    let mut entries = Vec::new();
    for entry in text.split([',', '\n']).map(|entry| entry.split('#').next().unwrap_or("").trim()) {
        if !entry.is_empty() {
            entries.push(parse_entry(entry)?);
        }
    }
    entries.sort_unstable();
    let mut value = VERSION.to_vec();
    for (tag, id, permissions) in entries {
        value.extend_from_slice(&tag.to_le_bytes());
        value.extend_from_slice(&permissions.to_le_bytes());
        value.extend_from_slice(&id.to_le_bytes());
    }
    Ok(value)
}

fn parse_entry(entry: &str) -> Result<(u16, u32, u16), String> {
    let fail = || format!("the ACL entry {entry:?}");
    let mut fields = entry.split(':').map(str::trim);
    let mut next = || fields.next().ok_or_else(fail);
    let (name, who, letters) = (next()?, next()?, next()?);
    let name = match name {
        "u" => "user",
        "g" => "group",
        "m" => "mask",
        "o" => "other",
        name => name,
    };
    let (tag, _, named) = TAGS.iter().find(|tag| tag.1 == name && tag.2 != who.is_empty()).ok_or_else(fail)?;
    let mut permissions = 0;
    for letter in letters.chars() {
        permissions |= match letter {
            'r' => 4,
            'w' => 2,
            'x' => 1,
            '-' => 0,
            _ => return Err(fail()),
        };
    }
    if !named {
        return Ok((*tag, NO_ID, permissions));
    }
    // Some programs write the number after the name.
    let number = fields.next().and_then(|id| id.parse().ok()).or_else(|| who.parse().ok());
    let file = if name == "user" { "/etc/passwd" } else { "/etc/group" };
    let id = number.or_else(|| look_up(file, who));
    id.map(|id| (*tag, id, permissions)).ok_or_else(|| {
        format!(
            "the ACL entry {entry:?} names a user or a group that this machine does not know; make the archive with \
             --numeric-owner"
        )
    })
}

/// The number of a user or group in a list of the host.
fn look_up(file: &str, name: &str) -> Option<u32> {
    let list = std::fs::read_to_string(file).ok()?;
    let line = list.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    line.split(':').nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_say_the_same() {
        let text = b"user::rwx,user:1000:r-x,group::r-x,mask::r-x,other::r--";
        let value = from_text(text).unwrap();
        assert_eq!(value.len(), 4 + 5 * 8);
        assert_eq!(to_text(&value).unwrap(), text);
        assert_eq!(
            from_text(b"u::rwx\nuser:nobody-of-that-name:r-x:1000\ng::r-x\nm::r-x #effective\no::r--\n"),
            Ok(value)
        );
        assert_eq!(from_text(b"user:root:rwx").unwrap()[8..], [0; 4]);
        assert!(from_text(b"user:nobody-of-that-name:rwx").unwrap_err().contains("numeric-owner"));
        assert!(from_text(b"mask:5:r").is_err() && from_text(b"user::rwz").is_err());
    }
}
