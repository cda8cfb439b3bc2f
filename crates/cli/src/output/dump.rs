//! The text form of attributes: what `getfattr --dump` prints and `setfattr --restore` reads.
//!
//! ```text
//! # file: path/of/a/file          \ooo for a backslash or a newline in the path; any other backslash stands for itself
//! user.name="text"                \o, \oo, \ooo, \" or \\ in the text; likewise
//! user.other=0x00ff               hex
//! user.third=0sAP8=               base64
//!                                 an empty line ends a file
//! ```

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use std::io::{self, BufRead, Write};

/// How a value is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Encoding {
    /// In quotes
    Text,
    /// 0x and digits
    Hex,
    /// 0s and base64
    Base64,
}

/// Encodes a value. Without an encoding, it is text if it looks like text, and base64 if not.
pub fn encode_value(value: &[u8], encoding: Option<Encoding>) -> Vec<u8> {
    let encoding = encoding.unwrap_or(if is_text(value) { Encoding::Text } else { Encoding::Base64 });
    match encoding {
        Encoding::Text => {
            let mut text = vec![b'"'];
            for &byte in value {
                match byte {
                    0 | b'\n' | b'\r' => text.extend(octal(byte)),
                    b'\\' | b'"' => text.extend([b'\\', byte]),
                    _ => text.push(byte),
                }
            }
            text.push(b'"');
            text
        }
        Encoding::Hex => value.iter().fold(b"0x".to_vec(), |mut text, byte| {
            text.extend(format!("{byte:02x}").bytes());
            text
        }),
        Encoding::Base64 => format!("0s{}", BASE64.encode(value)).into_bytes(),
    }
}

/// Whether at most one byte in eight is not printable, apart from a zero at the end.
fn is_text(value: &[u8]) -> bool {
    let value = value.strip_suffix(&[0]).unwrap_or(value);
    let others = value.iter().filter(|byte| !(b' '..=b'~').contains(byte)).count();
    value.len() >= others * 8
}

fn octal(byte: u8) -> Vec<u8> {
    format!("\\{byte:03o}").into_bytes()
}

/// Escapes characters that would end a path or a name early.
fn quote(text: &[u8], special: &[u8]) -> Vec<u8> {
    let escaped = |&byte: &u8| if byte == b'\\' || special.contains(&byte) { octal(byte) } else { vec![byte] };
    text.iter().flat_map(escaped).collect()
}

/// The byte from up to three octal digits at the front, and the number of digits; 0 if there is none. Bits that do not
/// fit a byte are lost.
fn octal_digits(text: &[u8]) -> (u8, usize) {
    let digits = text.iter().take(3).take_while(|byte| (b'0'..=b'7').contains(byte));
    digits.fold((0, 0), |(value, count), digit| (value << 3 | (digit - b'0'), count + 1))
}

/// Removes backslash escapes in a path or a name: a backslash before three octal digits. Any other stands for itself.
fn unquote(text: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        let (value, count) = octal_digits(after);
        let is_escaped = byte == b'\\' && count == 3;
        bytes.push(if is_escaped { value } else { byte });
        rest = if is_escaped { &after[3..] } else { after };
    }
    bytes
}

/// Removes backslash escapes in a value: a backslash before one to three octal digits, a backslash or a quotation mark.
/// Any other stands for itself. A backslash at the end is decoded as `end`, the mark that ends a quoted value.
fn unescape(text: &[u8], end: u8) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        let (value, count) = octal_digits(after);
        match after.first() {
            _ if byte != b'\\' => bytes.push(byte),
            None => bytes.push(end),
            Some(escaped @ (b'\\' | b'"')) => {
                bytes.push(*escaped);
                rest = &after[1..];
            }
            Some(_) if count > 0 => {
                bytes.push(value);
                rest = &after[count..];
            }
            Some(_) => bytes.push(byte),
        }
    }
    bytes
}

/// Decodes a value as `setfattr` does.
///
/// # Errors
/// A message for invalid digits.
pub fn decode_value(text: &[u8]) -> Result<Vec<u8>, String> {
    match text {
        [b'0', b'x' | b'X', digits @ ..] => decode_hex(digits),
        [b'0', b's' | b'S', digits @ ..] => {
            let digits: Vec<u8> = digits.iter().copied().filter(|byte| !byte.is_ascii_whitespace()).collect();
            BASE64.decode(digits).map_err(|error| format!("not base64: {error}"))
        }
        [b'"', inner @ .., b'"'] => Ok(unescape(inner, b'"')),
        _ => Ok(unescape(text, b'\\')),
    }
}

fn decode_hex(digits: &[u8]) -> Result<Vec<u8>, String> {
    let digits: Vec<u8> = digits.iter().copied().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let digit = |byte: u8| (byte as char).to_digit(16).ok_or_else(|| "not hex digits".to_owned());
    if !digits.len().is_multiple_of(2) {
        return Err("an odd number of hex digits".into());
    }
    digits.chunks_exact(2).map(|pair| Ok((digit(pair[0])? << 4 | digit(pair[1])?) as u8)).collect()
}

/// The attributes of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// Path, relative to where the dump starts.
    pub path: Vec<u8>,
    /// Names and values.
    pub attributes: Vec<(Vec<u8>, Vec<u8>)>,
}

/// Writes a block; nothing for a file without attributes.
///
/// # Errors
/// Those of the output.
pub fn write_block(out: &mut impl Write, block: &Block, encoding: Option<Encoding>) -> io::Result<()> {
    if block.attributes.is_empty() {
        return Ok(());
    }
    out.write_all(b"# file: ")?;
    out.write_all(&quote(&block.path, b"\n\r"))?;
    out.write_all(b"\n")?;
    for (name, value) in &block.attributes {
        out.write_all(&quote(name, b"=\n\r"))?;
        out.write_all(b"=")?;
        out.write_all(&encode_value(value, encoding))?;
        out.write_all(b"\n")?;
    }
    out.write_all(b"\n")
}

/// Reads a whole dump.
///
/// # Errors
/// `InvalidData` with the line; those of the input.
pub fn read_blocks(input: impl BufRead) -> io::Result<Vec<Block>> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut open = false;
    for (index, line) in input.split(b'\n').enumerate() {
        let line = line?;
        let line = line.strip_suffix(b"\r").unwrap_or(&line);
        let fail = |why: &str| io::Error::new(io::ErrorKind::InvalidData, format!("line {}: {why}", index + 1));
        if let Some(path) = line.strip_prefix(b"# file: ") {
            blocks.push(Block { path: unquote(path), attributes: Vec::new() });
            open = true;
        } else if line.is_empty() {
            open = false;
        } else if line.starts_with(b"#") {
            // A comment.
        } else {
            let block = blocks.last_mut().filter(|_| open).ok_or_else(|| fail("an attribute before \"# file: \""))?;
            let equals = line.iter().position(|&byte| byte == b'=');
            let (name, value) = equals.map_or((line, &[][..]), |at| (&line[..at], &line[at + 1..]));
            let value = decode_value(value).map_err(|why| fail(&why))?;
            block.attributes.push((unquote(name), value));
        }
    }
    Ok(blocks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_survive_every_encoding() {
        for value in [b"".as_slice(), b"plain", b"li\"ne\\\n\ttab", &[0, 255, 1, 2], "\u{fc}ml".as_bytes()] {
            for encoding in [None, Some(Encoding::Text), Some(Encoding::Hex), Some(Encoding::Base64)] {
                assert_eq!(decode_value(&encode_value(value, encoding)).unwrap(), value);
            }
        }
        assert!(decode_value(b"0xabc").is_err() && decode_value(b"0s!").is_err());
    }

    /// As setfattr 2.5 decodes them.
    #[test]
    fn backslashes_mean_what_they_mean_to_setfattr() {
        let values: [(&[u8], &[u8]); 10] = [
            (br#""\1\12\123\1234""#, b"\x01\nSS4"),
            (br#""\400\777\18""#, b"\x00\xff\x018"),
            (br#""\8x\nx""#, br"\8x\nx"),
            (br#""a\"#, br#""a\"#),
            (br#""a\""#, br#"a""#),
            (br#""a\\""#, br"a\"),
            (br#"a"b""#, br#"a"b""#),
            (br#""a"b""#, br#"a"b"#),
            (br#"""#, br#"""#),
            (br"\", br"\"),
        ];
        for (text, value) in values {
            assert_eq!(decode_value(text).unwrap(), value, "{}", text.escape_ascii());
        }
        assert_eq!(unquote(br"a\101\10\q\777\\101\"), b"aA\\10\\q\xff\\A\\");
    }

    #[test]
    fn blocks_survive_with_the_escapes_of_getfattr() {
        let block = Block {
            path: b"nl\nx\\y=z".to_vec(),
            attributes: vec![(b"user.b=c".to_vec(), vec![0, 255, 1]), (b"user.e".to_vec(), Vec::new())],
        };
        let mut text = Vec::new();
        write_block(&mut text, &block, None).unwrap();
        assert_eq!(text, b"# file: nl\\012x\\134y=z\nuser.b\\075c=0sAP8B\nuser.e=\"\"\n\n");
        assert_eq!(read_blocks(text.as_slice()).unwrap(), [block]);
        assert!(read_blocks(b"user.a=1\n".as_slice()).is_err());
    }
}
