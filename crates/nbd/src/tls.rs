//! TLS over a connection, by the crate `rustls`.
//!
//! ```text
//! sender  bytes ─▶ session: sealed ─▶ unsent ─▶ socket          in the order in which they were sealed
//! reader  socket ─▶ received ─▶ session: opened ─▶ bytes
//! ```
//! The folder's list of revoked certificates counts.
//! The server is the one that the certificate names, and the certificate is signed by an authority of the folder that
//! the address names, or of the system where it names none. Nothing turns that check off, and nothing of NBD but the
//! greeting is sent or believed before it. A client with a certificate of its own shows it if the server asks.
//!
//! What the reader makes the session answer (a change of keys) is sent before the next request. Nobody waits for it:
//! the server goes on with what it has.
//!
//! Locks: the sender has `unsent` and the reader has `received` for the time of a call; both then take `session` for
//! as long as it computes, and never while they wait for the socket.
//!
//! Source of the facts: the NBD project's `doc/proto.md` and `doc/uri.md`; the names of the files are those of libnbd
//! and QEMU.

use crate::address::{Address, Trust};
use crate::error::{OpenError, Problem};
use crate::socket::{Socket, TimedSocket};
use parking_lot::Mutex;
use rustls::client::WebPkiServerVerifier;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer, ServerName};
use rustls::{AlertDescription, CertificateError, ClientConfig, ClientConnection, OtherError, RootCertStore};
use std::fmt;
use std::io::{self, IoSlice, Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

/// Bytes that are received at once.
const RECEIVED_BYTES: usize = 64 << 10;
const AUTHORITIES: &str = "ca-cert.pem";
/// Certificates that the authorities have taken back.
const REVOKED: &str = "ca-crl.pem";
const CERTIFICATE: &str = "client-cert.pem";
const KEY: &str = "client-key.pem";

/// Whom a client trusts under TLS, whom it expects, and who it is: what the files say that an address names.
///
/// A program that gives up its rights reads them before, and needs no rights to the files afterwards.
#[derive(Clone, Debug)]
pub struct Credentials {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl Credentials {
    /// Reads the files for an address; `None` if it does not ask for TLS.
    ///
    /// # Errors
    /// [`Problem::Credentials`].
    pub fn read(address: &Address) -> Result<Option<Self>, OpenError> {
        Self::find(address).map_err(|problem| OpenError::new(address, problem))
    }

    pub(crate) fn find(address: &Address) -> Result<Option<Self>, Problem> {
        let Some(tls) = &address.tls else { return Ok(None) };
        let name = match (&tls.hostname, address.host()) {
            (Some(name), _) => name.clone(),
            (None, Some(host)) => host.to_owned(),
            (None, None) => "localhost".to_owned(),
        };
        let refused = |what: String| Problem::Credentials(what);
        let server =
            ServerName::try_from(name.clone()).map_err(|_| refused(format!("{name:?} is no name of a host")))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = verifier(&tls.trust, Arc::clone(&provider))?;
        // This verifier is the library's own, which looks at lists of revoked certificates besides.
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| refused(error.to_string()))?
            .dangerous()
            .with_custom_certificate_verifier(verifier);
        let own = match &tls.trust {
            Trust::Folder(folder) => read_own(folder)?,
            Trust::System => None,
        };
        let config = match own {
            Some((chain, key)) => builder.with_client_auth_cert(chain, key).map_err(|error| {
                refused(format!("{CERTIFICATE} and {KEY} do not belong together, or cannot be used: {error}"))
            })?,
            None => builder.with_no_client_auth(),
        };
        Ok(Some(Self { config: Arc::new(config), name: server }))
    }

    /// Makes the handshake of TLS.
    ///
    /// # Errors
    /// Those of the socket; `InvalidData` with what is wrong with the server's certificate, or with its TLS.
    pub(crate) fn start(&self, socket: &Socket, deadline: Instant) -> io::Result<Session> {
        let mut session = ClientConnection::new(Arc::clone(&self.config), self.name.clone()).map_err(as_io)?;
        while session.is_handshaking() {
            session.complete_io(&mut TimedSocket { socket, deadline }).map_err(plainer)?;
        }
        let (received, unsent) = Default::default();
        Ok(Session { session: Mutex::new(session), received, unsent })
    }
}

/// Verifies a server's certificate: by authorities that are trusted, and by the lists of what they have revoked, where
/// there are any.
fn verifier(trust: &Trust, provider: Arc<CryptoProvider>) -> Result<Arc<WebPkiServerVerifier>, Problem> {
    let authorities = Arc::new(read_authorities(trust)?);
    let mut builder = WebPkiServerVerifier::builder_with_provider(authorities, provider);
    if let Trust::Folder(folder) = trust
        && is_there(&folder.join(REVOKED))?
    {
        let file = folder.join(REVOKED);
        let lists = CertificateRevocationListDer::pem_file_iter(&file).map_err(|error| unreadable(&file, &error))?;
        let lists = lists.collect::<Result<Vec<_>, _>>().map_err(|error| unreadable(&file, &error))?;
        // An authority without a list has revoked nothing.
        builder = builder.with_crls(lists).allow_unknown_revocation_status();
    }
    builder.build().map_err(|error| Problem::Credentials(error.to_string()))
}

fn read_authorities(trust: &Trust) -> Result<RootCertStore, Problem> {
    let mut store = RootCertStore::empty();
    let (from, certificates) = match trust {
        Trust::Folder(folder) => {
            let file = folder.join(AUTHORITIES);
            (file.display().to_string(), read_certificates(&file)?)
        }
        Trust::System => {
            let found = rustls_native_certs::load_native_certs();
            let from = "the system's list of authorities".to_owned();
            match found.errors.first() {
                Some(error) if found.certs.is_empty() => {
                    return Err(Problem::Credentials(format!("{from} cannot be read: {error}")));
                }
                _ => (from, found.certs),
            }
        }
    };
    // A system's list may have certificates of forms that are no longer used.
    let (added, _) = store.add_parsable_certificates(certificates);
    if added == 0 {
        return Err(Problem::Credentials(format!("{from} contains no certificate of an authority")));
    }
    Ok(store)
}

/// The certificate and the key of this client, if the folder has both.
fn read_own(folder: &Path) -> Result<Option<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)>, Problem> {
    let (certificate, key) = (folder.join(CERTIFICATE), folder.join(KEY));
    match (is_there(&certificate)?, is_there(&key)?) {
        (false, false) => Ok(None),
        (true, true) => {
            let key = PrivateKeyDer::from_pem_file(&key).map_err(|error| unreadable(&key, &error))?;
            Ok(Some((read_certificates(&certificate)?, key)))
        }
        (has_certificate, _) => {
            let (has, lacks) = if has_certificate { (CERTIFICATE, KEY) } else { (KEY, CERTIFICATE) };
            Err(Problem::Credentials(format!("{} has a {has} and no {lacks}", folder.display())))
        }
    }
}

/// Whether a file is there. One that cannot be looked at is an error: without it the client would be another one.
fn is_there(file: &Path) -> Result<bool, Problem> {
    match std::fs::symlink_metadata(file) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(unreadable(file, &error)),
    }
}

fn read_certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, Problem> {
    let read = CertificateDer::pem_file_iter(file).map_err(|error| unreadable(file, &error))?;
    read.collect::<Result<_, _>>().map_err(|error| unreadable(file, &error))
}

fn unreadable(file: &Path, error: &dyn fmt::Display) -> Problem {
    Problem::Credentials(format!("{}: {error}", file.display()))
}

/// A connection under TLS.
pub struct Session {
    session: Mutex<ClientConnection>,
    received: Mutex<Pending>,
    unsent: Mutex<Pending>,
}

/// Sealed bytes that have not gone on yet.
#[derive(Default)]
struct Pending {
    bytes: Vec<u8>,
    at: usize,
}

impl Pending {
    fn left(&self) -> &[u8] {
        &self.bytes[self.at..]
    }

    fn is_empty(&self) -> bool {
        self.at == self.bytes.len()
    }

    fn advance(&mut self, count: usize) {
        self.at += count;
        if self.is_empty() {
            self.bytes.clear();
            self.at = 0;
        }
    }
}

impl Session {
    /// Takes a part of the slices, none while sealed bytes wait.
    ///
    /// # Errors
    /// Those of the socket.
    pub fn send(&self, socket: &Socket, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut unsent = self.unsent.lock();
        if !unsent.is_empty() {
            let sent = socket.send(&[IoSlice::new(unsent.left())])?;
            unsent.advance(sent);
            return Ok(0);
        }
        let mut session = self.session.lock();
        let taken = session.writer().write_vectored(slices)?;
        seal(&mut session, &mut unsent)?;
        Ok(taken)
    }

    /// Sends a part of the sealed bytes; 0 when there are none.
    ///
    /// # Errors
    /// Those of the socket.
    pub fn send_rest(&self, socket: &Socket) -> io::Result<usize> {
        let mut unsent = self.unsent.lock();
        if unsent.is_empty() {
            return Ok(0);
        }
        let sent = socket.send(&[IoSlice::new(unsent.left())])?;
        unsent.advance(sent);
        Ok(sent)
    }

    /// Receives what is there, at least a byte; 0 at the end.
    ///
    /// # Errors
    /// Those of the socket; `InvalidData` for bytes that the server did not seal.
    pub fn receive(&self, socket: &Socket, buffer: &mut [u8]) -> io::Result<usize> {
        let mut received = self.received.lock();
        loop {
            if let Some(count) = self.open(&mut received, buffer)? {
                return Ok(count);
            }
            received.bytes.resize(RECEIVED_BYTES, 0);
            let result = socket.receive(&mut received.bytes);
            let count = *result.as_ref().unwrap_or(&0);
            received.bytes.truncate(count);
            if result? == 0 {
                return Ok(0);
            }
        }
    }

    /// Opens what was received; `None` when more is needed for a byte.
    fn open(&self, received: &mut Pending, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        let mut session = self.session.lock();
        loop {
            match session.reader().read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // The end without a farewell: as for a plain connection, what is in flight is lost.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(Some(0)),
                result => return result.map(Some),
            }
            if received.is_empty() {
                return Ok(None);
            }
            let taken = session.read_tls(&mut received.left())?;
            received.advance(taken);
            session.process_new_packets().map_err(as_io)?;
        }
    }
}

/// Moves what the session has sealed to the bytes that are to be sent.
fn seal(session: &mut ClientConnection, unsent: &mut Pending) -> io::Result<()> {
    while session.wants_write() {
        session.write_tls(&mut unsent.bytes)?;
    }
    Ok(())
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").finish_non_exhaustive()
    }
}

fn as_io(error: rustls::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, explain(&error))
}

/// The same for an error that has passed through an error of I/O.
fn plainer(error: io::Error) -> io::Error {
    let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>());
    match cause.map(explain) {
        Some(text) => io::Error::new(io::ErrorKind::InvalidData, text),
        None => error,
    }
}

/// What is wrong, and what can be done.
fn explain(error: &rustls::Error) -> String {
    let certificate = match error {
        rustls::Error::InvalidCertificate(certificate) => certificate,
        rustls::Error::AlertReceived(
            AlertDescription::CertificateRequired
            | AlertDescription::BadCertificate
            | AlertDescription::UnknownCA
            | AlertDescription::HandshakeFailure
            | AlertDescription::AccessDenied,
        ) => {
            return format!(
                "TLS: {error}: the server may ask for a certificate of the client; {CERTIFICATE} and {KEY} in the \
                 folder of ?tls-certificates=DIR are shown to it"
            );
        }
        _ => return format!("TLS: {error}"),
    };
    match certificate {
        CertificateError::UnknownIssuer => format!(
            "TLS: the server's certificate is not signed by an authority that is trusted here: name the folder with \
             its {AUTHORITIES} by ?tls-certificates=DIR"
        ),
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            format!("TLS: {error}: if the server is right, name the host of its certificate by ?tls-hostname=NAME")
        }
        CertificateError::Other(OtherError(cause))
            if matches!(cause.downcast_ref(), Some(webpki::Error::CaUsedAsEndEntity)) =>
        {
            "TLS: the server's certificate is one of an authority, \
             which signs those of servers and cannot be one (CA:TRUE): make the server one of its own (CA:FALSE)"
                .to_owned()
        }
        _ => format!("TLS: {error}"),
    }
}
