//! Addresses of exports: the URIs that the NBD project specifies.
//!
//! ```text
//! nbd://HOST[:PORT]/EXPORT               over TCP; the port is 10809 where none is given
//! nbd+unix:///EXPORT?socket=PATH         over a Unix socket; a PATH that begins with %00 is an abstract name
//! nbds://…  nbds+unix://…                the same over TLS, with certificates
//!   &tls-certificates=DIR                ca-cert.pem, and client-cert.pem and client-key.pem if the client has them
//!   &tls-hostname=NAME                   the host of the server's certificate, where it is not HOST
//! ```
//!
//! Refused by name: TLS without certificates, and a server that is not verified. So is every parameter that the
//! specification does not have, since it could be one that the user relies on.
//!
//! Source of the facts: the NBD project's `doc/uri.md`; RFC 3986 for percent-encoding and hosts.

use std::ffi::OsString;
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::str::FromStr;

/// The port of NBD.
const PORT: u16 = 10809;
/// The longest string of the protocol.
const MAX_NAME_BYTES: usize = 4096;

/// An export of a server.
///
/// ```
/// use xfskit_nbd::Address;
/// let address: Address = "nbd://[::1]/my%20disk".parse()?;
/// assert_eq!(address.export(), "my disk");
/// assert_eq!(address.to_string(), "nbd://[::1]:10809/my%20disk");
/// let address: Address = "nbds://example.com/disk?tls-certificates=/etc/pki/nbd".parse()?;
/// assert_eq!(address.trust(), Some(&xfskit_nbd::Trust::Folder("/etc/pki/nbd".into())));
/// # Ok::<(), xfskit_nbd::AddressError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    pub(crate) server: Server,
    pub(crate) tls: Option<Tls>,
    export: String,
}

/// Whose certificates are trusted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trust {
    /// Those of the authorities in the folder's `ca-cert.pem`. The folder may have a certificate of the client.
    Folder(PathBuf),
    /// Those of the authorities that the system trusts.
    System,
}

/// What an address says of TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tls {
    pub(crate) trust: Trust,
    pub(crate) hostname: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Server {
    Tcp {
        host: String,
        port: u16,
    },
    Unix(PathBuf),
    /// A name in the abstract name space of Unix sockets.
    Abstract(Vec<u8>),
}

/// Why a text is not the address of an export.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}: {why}")]
pub struct AddressError {
    text: String,
    why: Why,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum Why {
    #[error(
        "not an address of an NBD export: these are nbd://HOST[:PORT]/EXPORT and nbd+unix:///EXPORT?socket=PATH, with \
         nbds instead of nbd for TLS"
    )]
    Scheme,
    #[error("{0} is for TLS: use nbds:// or nbds+unix://")]
    WithoutTls(String),
    #[error("tls-type={0} is not supported: a server over TLS is known by its certificate (x509)")]
    TlsType(String),
    #[error(
        "a server that is not verified can be anybody: name the folder with the ca-cert.pem of its certificate, or of \
         itself, by tls-certificates=DIR instead of tls-verify-peer=0"
    )]
    Unverified,
    #[error("no host after ://")]
    NoHost,
    #[error("user names are for TLS with passwords, which is not supported: use certificates")]
    User,
    #[error("the port is not a number from 1 to 65535")]
    Port,
    #[error("the address of a Unix socket has no host: nbd+unix:///EXPORT?socket=PATH, with three slashes")]
    UnixHost,
    #[error("no ?socket=PATH")]
    NoSocket,
    #[error("unknown parameter {0:?}")]
    Parameter(String),
    #[error("the parameter {0:?} is given twice")]
    Twice(String),
    #[error("% is not followed by two hexadecimal digits")]
    Percent,
    #[error("the name of the export is not UTF-8, or contains a NUL")]
    Text,
    #[error("the name of the export is longer than 4096 bytes")]
    Long,
    #[error("what follows # has no meaning here")]
    Fragment,
}

impl Address {
    /// Whether a text has the scheme of an address of this kind, supported or not. A file may have such a name.
    pub fn looks_like_one(text: &str) -> bool {
        ["nbd://", "nbds://", "nbd+unix://", "nbds+unix://"].iter().any(|scheme| text.starts_with(scheme))
    }

    /// The name of the export; empty for the server's default.
    pub fn export(&self) -> &str {
        &self.export
    }

    /// Whose certificates are trusted; `None` without TLS.
    pub fn trust(&self) -> Option<&Trust> {
        self.tls.as_ref().map(|tls| &tls.trust)
    }

    /// The host that the address names; `None` for a Unix socket.
    pub(crate) fn host(&self) -> Option<&str> {
        match &self.server {
            Server::Tcp { host, .. } => Some(host),
            Server::Unix(_) | Server::Abstract(_) => None,
        }
    }

    /// The TCP port of the server; `None` for one with a Unix socket.
    pub fn tcp_port(&self) -> Option<u16> {
        match self.server {
            Server::Tcp { port, .. } => Some(port),
            Server::Unix(_) | Server::Abstract(_) => None,
        }
    }
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        parse(text).map_err(|why| AddressError { text: text.escape_debug().to_string(), why })
    }
}

fn parse(text: &str) -> Result<Address, Why> {
    let (scheme, rest) = text.split_once("://").ok_or(Why::Scheme)?;
    let (unix, secure) = match scheme {
        "nbd" => (false, false),
        "nbds" => (false, true),
        "nbd+unix" => (true, false),
        "nbds+unix" => (true, true),
        _ => return Err(Why::Scheme),
    };
    if rest.contains('#') {
        return Err(Why::Fragment);
    }
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let parameters = Parameters::decode(query)?;
    let export = String::from_utf8(decode(path)?).map_err(|_| Why::Text)?;
    if export.contains('\0') {
        return Err(Why::Text);
    }
    if export.len() > MAX_NAME_BYTES {
        return Err(Why::Long);
    }
    let server = match (unix, &parameters.socket) {
        (true, _) if !authority.is_empty() => {
            return Err(if authority.contains('@') { Why::User } else { Why::UnixHost });
        }
        (true, None) => return Err(Why::NoSocket),
        (true, Some(name)) => match name.split_first() {
            None => return Err(Why::NoSocket),
            Some((0, name)) => Server::Abstract(name.to_vec()),
            Some(_) => Server::Unix(OsString::from_vec(name.clone()).into()),
        },
        (false, Some(_)) => return Err(Why::Parameter("socket".into())),
        (false, None) => tcp(authority)?,
    };
    let tls = if secure { Some(parameters.tls()?) } else { parameters.verify_no_tls().map(|()| None)? };
    Ok(Address { server, tls, export })
}

/// What follows the question mark.
#[derive(Default)]
struct Parameters {
    socket: Option<Vec<u8>>,
    certificates: Option<Vec<u8>>,
    hostname: Option<Vec<u8>>,
    kind: Option<Vec<u8>>,
    verify: Option<Vec<u8>>,
}

impl Parameters {
    fn decode(query: &str) -> Result<Self, Why> {
        let mut found = Self::default();
        for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
            let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            let place = match name {
                "socket" => &mut found.socket,
                "tls-certificates" => &mut found.certificates,
                "tls-hostname" => &mut found.hostname,
                "tls-type" => &mut found.kind,
                "tls-verify-peer" => &mut found.verify,
                "tls-psk-file" => return Err(Why::TlsType("psk".into())),
                _ => return Err(Why::Parameter(name.into())),
            };
            if place.replace(decode(value)?).is_some() {
                return Err(Why::Twice(name.into()));
            }
        }
        Ok(found)
    }

    fn tls(self) -> Result<Tls, Why> {
        let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
        if let Some(kind) = self.kind.filter(|kind| kind != b"x509") {
            return Err(Why::TlsType(text(&kind)));
        }
        if self.verify.is_some_and(|verify| !matches!(&verify[..], b"1" | b"true")) {
            return Err(Why::Unverified);
        }
        let trust = match self.certificates {
            Some(folder) if !folder.is_empty() => Trust::Folder(OsString::from_vec(folder).into()),
            Some(_) => return Err(Why::Parameter("tls-certificates".into())),
            None => Trust::System,
        };
        let hostname = match self.hostname.map(String::from_utf8) {
            Some(Ok(name)) if !name.is_empty() => Some(name),
            Some(_) => return Err(Why::Parameter("tls-hostname".into())),
            None => None,
        };
        Ok(Tls { trust, hostname })
    }

    /// Whether nothing is said that only TLS would give.
    fn verify_no_tls(&self) -> Result<(), Why> {
        let given = [
            ("tls-certificates", &self.certificates),
            ("tls-hostname", &self.hostname),
            ("tls-type", &self.kind),
            ("tls-verify-peer", &self.verify),
        ];
        match given.iter().find(|(_, value)| value.is_some()) {
            Some((name, _)) => Err(Why::WithoutTls((*name).into())),
            None => Ok(()),
        }
    }
}

fn tcp(authority: &str) -> Result<Server, Why> {
    if authority.contains('@') {
        return Err(Why::User);
    }
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, after) = rest.split_once(']').ok_or(Why::NoHost)?;
            match after.strip_prefix(':') {
                Some(port) => (host, port),
                None if after.is_empty() => (host, ""),
                None => return Err(Why::Port),
            }
        }
        None => authority.split_once(':').unwrap_or((authority, "")),
    };
    let host = String::from_utf8(decode(host)?).map_err(|_| Why::NoHost)?;
    if host.is_empty() {
        return Err(Why::NoHost);
    }
    let port = match port {
        "" => PORT,
        digits if digits.bytes().all(|byte| byte.is_ascii_digit()) => digits.parse().map_err(|_| Why::Port)?,
        _ => return Err(Why::Port),
    };
    if port == 0 {
        return Err(Why::Port);
    }
    Ok(Server::Tcp { host, port })
}

fn decode(text: &str) -> Result<Vec<u8>, Why> {
    let mut bytes = text.bytes();
    let mut decoded = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            decoded.push(byte);
            continue;
        }
        let mut digit = || char::from(bytes.next()?).to_digit(16);
        let (Some(high), Some(low)) = (digit(), digit()) else { return Err(Why::Percent) };
        decoded.push((high * 16 + low) as u8);
    }
    Ok(decoded)
}

/// Bytes of a URI: what is neither unreserved nor a slash is written as `%` and two digits.
struct Encoded<'a>(&'a [u8]);

impl fmt::Display for Encoded<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for &byte in self.0 {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                    write!(f, "{}", char::from(byte))?;
                }
                _ => write!(f, "%{byte:02X}")?,
            }
        }
        Ok(())
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let export = Encoded(self.export.as_bytes());
        let s = if self.tls.is_some() { "s" } else { "" };
        match &self.server {
            Server::Tcp { host, port } if host.contains(':') => write!(f, "nbd{s}://[{host}]:{port}/{export}")?,
            Server::Tcp { host, port } => write!(f, "nbd{s}://{}:{port}/{export}", Encoded(host.as_bytes()))?,
            Server::Unix(path) => {
                write!(f, "nbd{s}+unix:///{export}?socket={}", Encoded(path.as_os_str().as_bytes()))?;
            }
            Server::Abstract(name) => write!(f, "nbd{s}+unix:///{export}?socket=%00{}", Encoded(name))?,
        }
        let Some(tls) = &self.tls else { return Ok(()) };
        let mut separator = if self.tcp_port().is_some() { '?' } else { '&' };
        if let Trust::Folder(folder) = &tls.trust {
            write!(f, "{separator}tls-certificates={}", Encoded(folder.as_os_str().as_bytes()))?;
            separator = '&';
        }
        match &tls.hostname {
            Some(name) => write!(f, "{separator}tls-hostname={}", Encoded(name.as_bytes())),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn why(text: &str) -> Why {
        text.parse::<Address>().unwrap_err().why
    }

    fn shown(text: &str) -> String {
        let address: Address = text.parse().unwrap();
        let again = address.to_string();
        assert_eq!(again.parse::<Address>().unwrap(), address, "{again}");
        again
    }

    /// The table of the specification, "NBD URI export name".
    #[test]
    fn exports_of_the_specification() {
        let export = |text: &str| text.parse::<Address>().unwrap().export().to_owned();
        assert_eq!(export("nbd://example.com/disk"), "disk");
        assert_eq!(export("nbd+unix:///disk?socket=sock"), "disk");
        assert_eq!(export("nbd://example.com/"), "");
        assert_eq!(export("nbd://example.com"), "");
        assert_eq!(export("nbd://example.com//disk"), "/disk");
        assert_eq!(export("nbd://example.com/hello%20world"), "hello world");
    }

    #[test]
    fn addresses_are_shown_as_they_are_read() {
        assert_eq!(shown("nbd://example.com:1/a"), "nbd://example.com:1/a");
        assert_eq!(shown("nbd://[::1]"), "nbd://[::1]:10809/");
        assert_eq!(shown("nbd+unix:///?socket=/tmp/a%20b"), "nbd+unix:///?socket=/tmp/a%20b");
        assert_eq!(shown("nbd+unix:///x?socket=%00/abstract"), "nbd+unix:///x?socket=%00/abstract");
        assert_eq!(shown("nbds://host/a?tls-type=x509&tls-verify-peer=1"), "nbds://host:10809/a");
        let whole = "nbds://host:1/a?tls-certificates=/a%20b&tls-hostname=other.example";
        assert_eq!(shown(whole), whole);
        let whole = "nbds+unix:///a?socket=/s&tls-hostname=other";
        assert_eq!(shown(whole), whole);
    }

    #[test]
    fn what_is_wrong_is_named() {
        assert_eq!(why("nbd://host/a?tls-hostname=b"), Why::WithoutTls("tls-hostname".into()));
        assert_eq!(why("nbd+unix:///?socket=a&tls-certificates=b"), Why::WithoutTls("tls-certificates".into()));
        assert_eq!(why("nbds://host/a?tls-type=psk"), Why::TlsType("psk".into()));
        assert_eq!(why("nbds://host/a?tls-type=anon"), Why::TlsType("anon".into()));
        assert_eq!(why("nbds://host/a?tls-psk-file=b"), Why::TlsType("psk".into()));
        assert_eq!(why("nbds://host/a?tls-verify-peer=0"), Why::Unverified);
        assert_eq!(why("nbds://host/a?tls-certificates="), Why::Parameter("tls-certificates".into()));
        assert_eq!(why("nbds+unix://me@/?socket=a"), Why::User);
        assert_eq!(why("http://host/a"), Why::Scheme);
        assert_eq!(why("nbd:///a"), Why::NoHost);
        assert_eq!(why("nbd://me@host/a"), Why::User);
        for port in ["0", "65536", "+1", "x", "1:2"] {
            assert_eq!(why(&format!("nbd://host:{port}/a")), Why::Port, "{port}");
        }
        assert_eq!(why("nbd://[::1]x/a"), Why::Port);
        assert_eq!(why("nbd+unix:///a"), Why::NoSocket);
        assert_eq!(why("nbd+unix:///a?socket="), Why::NoSocket);
        assert_eq!(why("nbd+unix://tmp/a?socket=b"), Why::UnixHost);
        assert_eq!(why("nbd+unix:///a?socket=b&socket=c"), Why::Twice("socket".into()));
        assert_eq!(why("nbd://host/a?socket=b"), Why::Parameter("socket".into()));
        assert_eq!(why("nbd://host/a?x=b"), Why::Parameter("x".into()));
        for end in ["%", "%1", "%1g", "%g1", "%+1"] {
            assert_eq!(why(&format!("nbd://host/{end}")), Why::Percent, "{end}");
        }
        assert_eq!(why("nbd://host/%ff"), Why::Text);
        assert_eq!(why("nbd://host/%00"), Why::Text);
        assert_eq!(why("nbd://host/a#1"), Why::Fragment);
        assert_eq!(why(&format!("nbd://host/{}", "a".repeat(4097))), Why::Long);
    }
}
