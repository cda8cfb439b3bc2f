//! Streams that are packed with gzip or zstd: recognized by their first bytes and unpacked while they are read.
//!
//! What comes out is as long as it likes; the reader of the stream decides how much it takes. The decoders are Rust
//! without C, since they read what others made: flate2 with miniz_oxide, and ruzstd, whose window has at most 100 MiB.

use flate2::bufread::GzDecoder;
use ruzstd::decoding::FrameDecoder;
use std::io::{self, BufRead, BufReader, Read};

const GZIP: &[u8] = b"\x1f\x8b";
const ZSTD: &[u8] = b"\x28\xb5\x2f\xfd";
/// Frames that carry no data have one of 16 magic numbers: the lowest four bits of the first byte vary.
const ZSTD_SKIPPED: &[u8] = b"\x2a\x4d\x18";
const BUFFER_BYTES: usize = 1 << 20;

/// Unpacks a stream if it is packed.
///
/// # Errors
/// Those of the stream's first read.
pub fn unpacked<'a>(stream: impl Read + Send + 'a) -> io::Result<Box<dyn Read + Send + 'a>> {
    let mut stream = BufReader::with_capacity(BUFFER_BYTES, stream);
    let head = loop {
        match stream.fill_buf() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            head => break head?,
        }
    };
    let is_skipped = |head: &[u8]| head.len() >= 4 && head[0] & 0xf0 == 0x50 && head[1..].starts_with(ZSTD_SKIPPED);
    if head.starts_with(GZIP) {
        Ok(Box::new(BufReader::with_capacity(BUFFER_BYTES, Gzip { part: Some(GzDecoder::new(stream)) })))
    } else if head.starts_with(ZSTD) || is_skipped(head) {
        Ok(Box::new(Zstd { frames: frame_decoder(), stream, in_frame: false }))
    } else {
        Ok(Box::new(stream))
    }
}

/// Parts of gzip, one after the other; errors name the format. Zeros may follow the last one, as what pads to the block
/// of a tape: gzip passes over them too.
struct Gzip<R> {
    /// `None` behind the last part.
    part: Option<GzDecoder<R>>,
}

impl<R: BufRead> Gzip<R> {
    /// Begins the next part behind one that is complete.
    fn begin(&mut self) -> io::Result<()> {
        let Some(part) = self.part.take() else { return Ok(()) };
        let mut stream = part.into_inner();
        let mut is_padded = false;
        loop {
            let bytes = match stream.fill_buf() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                bytes => bytes?,
            };
            match bytes.iter().position(|&byte| byte != 0) {
                _ if bytes.is_empty() => return Ok(()),
                Some(0) if !is_padded && bytes[0] == GZIP[0] => break,
                Some(_) => return Err(damaged("gzip", "something else than gzip follows it")),
                None => {
                    let zeros = bytes.len();
                    stream.consume(zeros);
                    is_padded = true;
                }
            }
        }
        self.part = Some(GzDecoder::new(stream));
        Ok(())
    }
}

impl<R: BufRead> Read for Gzip<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while let Some(part) = self.part.as_mut().filter(|_| !buffer.is_empty()) {
            let count = part.read(buffer).map_err(|error| match error.kind() {
                io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput => damaged("gzip", error),
                io::ErrorKind::UnexpectedEof => damaged("gzip", "the stream is cut short"),
                _ => error,
            })?;
            if count > 0 {
                return Ok(count);
            }
            self.begin()?;
        }
        Ok(0)
    }
}

/// Frames of zstd, one after the other.
struct Zstd<R: Read> {
    frames: FrameDecoder,
    stream: BufReader<R>,
    in_frame: bool,
}

/// A frame without data.
const EMPTY_FRAME: &[u8] = b"\x28\xb5\x2f\xfd\x20\x00\x01\x00\x00";

/// A decoder that refuses windows of more than 100 MiB. ruzstd looks at the window of every frame but the first, so one
/// without data goes before.
fn frame_decoder() -> FrameDecoder {
    let mut frames = FrameDecoder::new();
    frames.reset(EMPTY_FRAME).expect("the header of a frame");
    frames
}

/// Bytes that are decoded before they are handed out.
const STEP_BYTES: usize = 128 * 1024;

impl<R: Read> Zstd<R> {
    /// Begins the next frame; false at the end of the stream.
    fn begin(&mut self) -> io::Result<bool> {
        loop {
            if self.stream.fill_buf()?.is_empty() {
                return Ok(false);
            }
            match self.frames.reset(&mut self.stream) {
                Ok(()) => return Ok(true),
                Err(error) => match skipped_bytes(&error) {
                    Some(bytes) => {
                        let taken = io::copy(&mut (&mut self.stream).take(bytes), &mut io::sink())?;
                        if taken < bytes {
                            return Err(damaged("zstd", "the stream is cut short"));
                        }
                    }
                    None => return Err(damaged("zstd", error)),
                },
            }
        }
    }
}

/// The length of a frame that carries no data.
fn skipped_bytes(error: &ruzstd::decoding::errors::FrameDecoderError) -> Option<u64> {
    use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
    match error {
        FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame { length, .. }) => {
            Some(u64::from(*length))
        }
        _ => None,
    }
}

fn damaged(format: &str, error: impl std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{format}: {error}"))
}

impl<R: Read> Read for Zstd<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        use ruzstd::decoding::BlockDecodingStrategy::UptoBytes;
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            if !self.in_frame {
                if !self.begin()? {
                    return Ok(0);
                }
                self.in_frame = true;
            }
            while self.frames.can_collect() == 0 && !self.frames.is_finished() {
                self.frames
                    .decode_blocks(&mut self.stream, UptoBytes(STEP_BYTES))
                    .map_err(|error| damaged("zstd", error))?;
            }
            let count = self.frames.read(buffer)?;
            if count > 0 {
                return Ok(count);
            }
            let (stored, computed) = (self.frames.get_checksum_from_data(), self.frames.get_calculated_checksum());
            if stored.is_some() && computed.is_some() && stored != computed {
                return Err(damaged("zstd", "a frame has a wrong checksum"));
            }
            self.in_frame = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_packed_is_handed_on() {
        for bytes in [&b""[..], b"x", b"\x1f", b"plain text"] {
            let mut read = Vec::new();
            unpacked(bytes).unwrap().read_to_end(&mut read).unwrap();
            assert_eq!(read, bytes);
        }
    }

    #[test]
    fn a_window_that_takes_too_much_memory_is_refused_in_the_first_frame() {
        // A window of 2 GiB, and one block of zeros.
        let mut read = Vec::new();
        let packed: &[u8] = b"\x28\xb5\x2f\xfd\x00\xa8\x03\x00\x00\x00";
        let error = unpacked(packed).unwrap().read_to_end(&mut read).unwrap_err().to_string();
        assert!(error.starts_with("zstd: ") && error.contains("indow"), "{error}");
    }

    #[test]
    fn parts_of_gzip_are_read_and_zeros_behind_them_passed_over() {
        use flate2::{Compression, write::GzEncoder};
        use std::io::Write;
        let part = |bytes: &[u8]| {
            let mut part = GzEncoder::new(Vec::new(), Compression::fast());
            part.write_all(bytes).unwrap();
            part.finish().unwrap()
        };
        let read = |stream: &[u8]| {
            let mut bytes = Vec::new();
            unpacked(stream).unwrap().read_to_end(&mut bytes).map(|_| bytes)
        };
        let two = [part(b"one"), part(b""), part(b" two")].concat();
        assert_eq!(read(&two).unwrap(), b"one two");
        assert_eq!(read(&[&two[..], &[0; 3000]].concat()).unwrap(), b"one two");
        for rest in [&b"x"[..], b"\0\0x", &part(b"x")[..9]] {
            assert!(read(&[&two[..], rest].concat()).is_err(), "{rest:?}");
        }
        assert!(read(&[&two[..], &[0; 512], &part(b"x")].concat()).is_err());
    }

    #[test]
    fn damage_is_an_error() {
        for bytes in [&b"\x1f\x8b\x08"[..], b"\x28\xb5\x2f\xfd\xff\xff", b"\x50\x2a\x4d\x18\xff\xff\xff\x00x"] {
            let mut read = Vec::new();
            assert!(unpacked(bytes).unwrap().read_to_end(&mut read).is_err(), "{bytes:?}");
        }
    }
}
