//! The option syntax of mkfs.xfs: a section letter and a list of sub-options, `-d agcount=4,su=64k,sw=2`.

use crate::MakeError;
use crate::idle::asks_for;
use crate::options::{AgLayout, Autofsck, InodeSize, LogLocation, LogStripe, Options, Size, Stripe};

/// One `name=value` of a section, and its section, which errors name.
struct SubOption<'a> {
    section: char,
    name: &'a str,
    value: Option<&'a str>,
}

impl SubOption<'_> {
    fn title(&self) -> String {
        format!("-{} {}", self.section, self.name)
    }

    fn error(&self, why: impl Into<String>) -> MakeError {
        MakeError::value(self.title(), self.value.unwrap_or(""), why)
    }

    fn text(&self) -> Result<&str, MakeError> {
        self.value.ok_or_else(|| self.error("a value is needed"))
    }

    /// A switch: 0 or 1; 1 if no value is given.
    fn switch(&self) -> Result<bool, MakeError> {
        match self.value {
            None | Some("1") => Ok(true),
            Some("0") => Ok(false),
            Some(_) => Err(self.error("expected 0 or 1")),
        }
    }

    /// A switch that has only one value in XFS version 5.
    fn fixed(&self, only: &str, why: &str) -> Result<(), MakeError> {
        if self.value.unwrap_or("1") == only { Ok(()) } else { Err(self.error(why)) }
    }

    fn size(&self) -> Result<Size, MakeError> {
        parse_size(self.text()?).ok_or_else(|| self.error("expected a size such as 4096, 64k, 10g, 20b or 8s"))
    }

    fn number(&self, range: std::ops::RangeInclusive<u64>) -> Result<u64, MakeError> {
        match parse_size(self.text()?) {
            Some(Size::Bytes(number)) if range.contains(&number) => Ok(number),
            Some(Size::Bytes(_)) => Err(self.error(format!("expected {} to {}", range.start(), range.end()))),
            _ => Err(self.error("expected a number")),
        }
    }

    fn power_of_two(&self, range: std::ops::RangeInclusive<u64>) -> Result<u32, MakeError> {
        let number = self.number(range)?;
        if number.is_power_of_two() { Ok(number as u32) } else { Err(self.error("expected a power of two")) }
    }

    fn unsupported(&self, what: &'static str) -> MakeError {
        MakeError::Unsupported { option: self.title(), what }
    }

    fn unknown(&self) -> MakeError {
        MakeError::Unknown { option: self.title() }
    }
}

/// Parses a number with one of the suffixes b, s, k, m, g, t, p, e.
fn parse_size(text: &str) -> Option<Size> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let (number, suffix) = match text.strip_prefix("0x") {
        Some(hex) => (u64::from_str_radix(hex, 16).ok()?, ""),
        None => (digits.parse::<u64>().ok()?, &text[digits.len()..]),
    };
    let shift = match suffix.to_ascii_lowercase().as_str() {
        "" => 0,
        "b" => return Some(Size::Blocks(number)),
        "s" => return Some(Size::Sectors(number)),
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        "p" => 50,
        "e" => 60,
        _ => return None,
    };
    number.checked_mul(1 << shift).map(Size::Bytes)
}

impl Options {
    /// Applies the sub-options of one section, as in `apply('d', "agcount=4,su=64k,sw=2")`. Sections are b, d, i, l, m,
    /// n, r and s. Sections p and c are refused by name; the label is set by [`Options::set_label`].
    ///
    /// # Errors
    /// Each names the option: [`MakeError::Unknown`], [`MakeError::Value`], [`MakeError::Conflict`] for an option that
    /// is given twice or with one that excludes it, and [`MakeError::Unsupported`] for an option that xfskit does not
    /// support.
    pub fn apply(&mut self, section: char, list: &str) -> Result<(), MakeError> {
        let mut seen: Vec<&str> = Vec::new();
        for item in list.split(',') {
            let (name, value) = match item.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (item, None),
            };
            let option = SubOption { section, name, value };
            if seen.contains(&name) {
                return Err(MakeError::conflict(option.title(), "the option is given twice"));
            }
            if let Some(asked) = asks_for(section, name, value) {
                asked.map_err(|what| option.unsupported(what))?;
                seen.push(name);
                continue;
            }
            match section {
                'b' => self.apply_block(&option)?,
                'd' => self.apply_data(&option)?,
                'i' => self.apply_inode(&option)?,
                'l' => self.apply_log(&option)?,
                'm' => self.apply_metadata(&option)?,
                'n' => self.apply_naming(&option)?,
                's' => self.apply_sector(&option)?,
                'r' => self.apply_realtime(&option)?,
                'p' => return Err(option.unsupported("prototype files; use --from, or the name mkfs.xfs")),
                'c' => return Err(option.unsupported("configuration files within options")),
                _ => return Err(option.unknown()),
            }
            seen.push(name);
        }
        if section == 'd' { Self::check_exclusions(&seen) } else { Ok(()) }
    }

    fn check_exclusions(seen: &[&str]) -> Result<(), MakeError> {
        for (one, other) in [("su", "sunit"), ("su", "noalign"), ("sunit", "noalign"), ("agcount", "agsize")] {
            if seen.contains(&one) && seen.contains(&other) {
                return Err(MakeError::conflict(format!("-d {one}"), format!("it excludes {other}")));
            }
        }
        Ok(())
    }

    fn apply_block(&mut self, option: &SubOption<'_>) -> Result<(), MakeError> {
        match option.name {
            "size" => {
                self.block_bytes = option.power_of_two(512..=65536)?;
                if self.block_bytes == 512 {
                    return Err(option.error("metadata with checksums needs blocks of at least 1024 bytes"));
                }
                Ok(())
            }
            _ => Err(option.unknown()),
        }
    }

    fn apply_sector(&mut self, option: &SubOption<'_>) -> Result<(), MakeError> {
        match option.name {
            "size" | "sectsize" => self.sector_bytes = Some(option.power_of_two(512..=32768)?),
            _ => return Err(option.unknown()),
        }
        Ok(())
    }

    fn apply_data(&mut self, option: &SubOption<'_>) -> Result<(), MakeError> {
        match option.name {
            "agcount" => self.ag_layout = AgLayout::Count(option.number(1..=u64::from(u32::MAX - 1))? as u32),
            "agsize" => self.ag_layout = AgLayout::Size(option.size()?),
            "size" => self.data_size = Some(option.size()?),
            "sectsize" => self.sector_bytes = Some(option.power_of_two(512..=32768)?),
            "noalign" => {
                if option.switch()? {
                    self.stripe = Stripe::None;
                }
            }
            "sunit" | "swidth" => {
                let (mut unit, mut width) = match self.stripe {
                    Stripe::Sectors { unit, width } => (unit, width),
                    _ => (0, 0),
                };
                let number = option.number(0..=u64::from(u32::MAX))?;
                *(if option.name == "sunit" { &mut unit } else { &mut width }) = number;
                self.stripe = Stripe::Sectors { unit, width };
            }
            "su" | "sw" => {
                let (mut unit, mut width) = match self.stripe {
                    Stripe::Units { unit, width } => (unit, width),
                    _ => (Size::Bytes(0), 0),
                };
                if option.name == "su" {
                    unit = option.size()?
                } else {
                    width = option.number(0..=1 << 31)?
                }
                self.stripe = Stripe::Units { unit, width };
            }
            _ => return Err(option.unknown()),
        }
        Ok(())
    }

    fn apply_realtime(&mut self, option: &SubOption<'_>) -> Result<(), MakeError> {
        match option.name {
            "extsize" => self.realtime_extent = Some(option.size()?),
            _ => return Err(option.unknown()),
        }
        Ok(())
    }

    fn apply_inode(&mut self, option: &SubOption<'_>) -> Result<(), MakeError> {
        match option.name {
            "size" => self.inode_size = InodeSize::Bytes(option.power_of_two(256..=2048)?),
            "perblock" => self.inode_size = InodeSize::PerBlock(option.power_of_two(2..=256)?),
            "maxpct" => self.inode_max_percent = Some(option.number(0..=100)? as u8),
            "sparse" => self.sparse_inodes = option.switch()?,
            "nrext64" => self.large_extent_counts = option.switch()?,
            "exchange" => self.exchange_range = option.switch()?,
            "align" => option.fixed("1", "inodes are always aligned in version 5")?,
            "attr" => option.fixed("2", "attributes are always version 2 in XFS version 5")?,
            "projid32bit" => option.fixed("1", "project identifiers always have 32 bits in version 5")?,
            _ => return Err(option.unknown()),
        }
        Ok(())
    }

    fn apply_log(&mut self, option: &SubOption<'_>) -> Result<(), MakeError> {
        match option.name {
            "size" => self.log_size = Some(option.size()?),
            "agnum" => self.place_log(option, LogLocation::Ag(option.number(0..=u64::from(u32::MAX - 1))? as u32))?,
            "logdev" => {
                self.log_device = Some(option.text()?.into());
                self.place_log(option, LogLocation::External)?;
            }
            "internal" => {
                if !option.switch()? {
                    return Err(option.error("an external log is asked for with logdev"));
                }
                if self.log_place == LogLocation::External {
                    return Err(MakeError::conflict(option.title(), "it excludes logdev"));
                }
            }
            "su" => self.log_stripe = LogStripe::Size(option.size()?),
            "sunit" => self.log_stripe = LogStripe::Sectors(option.number(0..=512)?),
            "sectsize" => self.log_sector_bytes = Some(option.power_of_two(512..=32768)?),
            "version" => option.fixed("2", "the log is always version 2 in XFS version 5")?,
            "lazy-count" => option.fixed("1", "counters are always lazy in version 5")?,
            _ => return Err(option.unknown()),
        }
        Ok(())
    }

    fn place_log(&mut self, option: &SubOption<'_>, place: LogLocation) -> Result<(), MakeError> {
        if self.log_place != LogLocation::Default && self.log_place != place {
            return Err(MakeError::conflict(option.title(), "agnum and logdev exclude each other"));
        }
        self.log_place = place;
        Ok(())
    }

    fn apply_metadata(&mut self, option: &SubOption<'_>) -> Result<(), MakeError> {
        match option.name {
            "finobt" => self.finobt = option.switch()?,
            "inobtcount" => self.inobt_counts = Some(option.switch()?),
            "rmapbt" => self.rmapbt = option.switch()?,
            "reflink" => self.reflink = option.switch()?,
            "bigtime" => self.bigtime = option.switch()?,
            "uuid" => {
                let uuid = uuid::Uuid::parse_str(option.text()?).map_err(|_| option.error("expected a UUID"))?;
                self.uuid = Some(*uuid.as_bytes());
            }
            "autofsck" => self.autofsck = Some(parse_autofsck(option)?),
            _ => return Err(option.unknown()),
        }
        Ok(())
    }

    fn apply_naming(&mut self, option: &SubOption<'_>) -> Result<(), MakeError> {
        match option.name {
            "size" => self.dir_block_bytes = Some(option.power_of_two(4096..=65536)?),
            "parent" => self.parent = option.switch()?,
            "version" if option.value == Some("ci") => return Err(option.unsupported("case-insensitive names")),
            "version" => option.fixed("2", "directories are always version 2")?,
            "ftype" => option.fixed("1", "directories always carry file types in version 5")?,
            _ => return Err(option.unknown()),
        }
        Ok(())
    }
}

fn parse_autofsck(option: &SubOption<'_>) -> Result<Autofsck, MakeError> {
    Ok(match option.value {
        None | Some("1" | "repair") => Autofsck::Repair,
        Some("0" | "none") => Autofsck::None,
        Some("check") => Autofsck::Check,
        Some("optimize") => Autofsck::Optimize,
        Some(_) => return Err(option.error("expected none, check, optimize or repair")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fails(section: char, list: &str) -> String {
        Options::default().apply(section, list).unwrap_err().to_string()
    }

    #[test]
    fn sections_set_their_fields() {
        let mut options = Options::default();
        options.apply('d', "agcount=4,su=64k,sw=2,size=1g").unwrap();
        options.apply('l', "size=100b,su=8s").unwrap();
        options.apply('i', "perblock=4").unwrap();
        options.apply('m', "rmapbt=0,uuid=00000000-0000-0000-0000-000000000001").unwrap();
        assert_eq!(options.stripe, Stripe::Units { unit: Size::Bytes(65536), width: 2 });
        assert_eq!(options.log_size, Some(Size::Blocks(100)));
        assert_eq!(options.uuid.map(|uuid| uuid[15]), Some(1));
        assert!(!options.rmapbt && options.ag_layout == AgLayout::Count(4));
    }

    #[test]
    fn errors_name_the_option() {
        assert!(fails('b', "size=512").contains("checksums"));
        assert!(fails('b', "size=3000").contains("-b size"));
        assert!(fails('d', "su=64k,sw=2,noalign").contains("noalign"));
        assert!(fails('d', "agcount=2,agcount=3").contains("twice"));
        assert!(fails('d', "agcount=2,agsize=1g").contains("agsize"));
        assert!(fails('m', "crc=0").contains("-m crc"));
        assert!(fails('m', "metadir=1").contains("metadata directory"));
        assert!(fails('r', "size=4k").contains("realtime"));
        assert!(fails('l', "agnum=1,logdev=x").contains("logdev"));
        assert!(fails('n', "colour=3").contains("-n colour"));
        assert!(fails('i', "maxpct=101").contains("0 to 100"));
    }
}
