//! TLS: what servers of others accept and refuse, judged by qemu-nbd, nbdkit and the files below them; and servers that
//! are not what they say.

mod real;
mod server;

use real::{MIB, Running, has, pattern, work};
use server::quick;
use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use xfskit_device::BlockDevice;
use xfskit_nbd::{Address, NbdDevice, OpenError, Problem, Writers};

/// Certificates of an authority, a server and a client, by openssl: folders as the servers and libnbd read them.
struct Certificates {
    dir: tempfile::TempDir,
}

impl Certificates {
    fn new() -> Self {
        let it = Self { dir: tempfile::tempdir().unwrap() };
        it.authority("ca");
        it.sign("server", "ca", "DNS:server.example,IP:127.0.0.1,DNS:localhost");
        it.sign("client", "ca", "DNS:client.example");
        let folder = it.folder("trusting", "ca");
        let client = it.folder("client-too", "ca");
        it.put("server-cert.pem", "server.pem", &folder);
        it.put("server-key.pem", "server.key", &folder);
        it.put("client-cert.pem", "client.pem", &client);
        it.put("client-key.pem", "client.key", &client);
        it
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn openssl(&self, args: &[&str]) {
        let output = Command::new("openssl").args(args).current_dir(self.dir.path()).output().unwrap();
        assert!(output.status.success(), "openssl {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    }

    fn authority(&self, name: &str) {
        let (key, certificate, subject) = (format!("{name}.key"), format!("{name}.pem"), format!("/CN={name}"));
        let kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"];
        let files = ["-keyout", &key, "-out", &certificate, "-subj", &subject];
        self.openssl(&[&["req", "-x509"][..], &kind, &files].concat());
    }

    fn sign(&self, name: &str, authority: &str, names: &str) {
        let (key, request, certificate) = (format!("{name}.key"), format!("{name}.req"), format!("{name}.pem"));
        let subject = format!("/CN={name}");
        let kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"];
        self.openssl(&[&["req"][..], &kind, &["-keyout", &key, "-out", &request, "-subj", &subject]].concat());
        std::fs::write(self.path("names"), format!("subjectAltName={names}\nbasicConstraints=CA:FALSE\n")).unwrap();
        let (by, its_key) = (format!("{authority}.pem"), format!("{authority}.key"));
        let files = ["-req", "-in", &request, "-CA", &by, "-CAkey", &its_key, "-CAcreateserial", "-out", &certificate];
        self.openssl(&[&["x509"][..], &files, &["-days", "2", "-extfile", "names"]].concat());
    }

    /// Makes the folder's list of revoked certificates.
    fn list_revoked(&self, folder: &Path, revoked: &[&str]) {
        let config =
            "[ca]\ndefault_ca=d\n[d]\ndatabase=index\ncrlnumber=number\ndefault_md=sha256\ndefault_crl_days=2\n";
        std::fs::write(self.path("config"), config).unwrap();
        std::fs::write(self.path("index"), "").unwrap();
        std::fs::write(self.path("number"), "01\n").unwrap();
        let ca = ["ca", "-config", "config", "-keyfile", "ca.key", "-cert", "ca.pem"];
        for name in revoked {
            self.openssl(&[&ca[..], &["-revoke", name]].concat());
        }
        let list = folder.join("ca-crl.pem");
        self.openssl(&[&ca[..], &["-gencrl", "-out", list.to_str().unwrap()]].concat());
    }

    /// A folder that trusts one authority.
    fn folder(&self, name: &str, authority: &str) -> PathBuf {
        let folder = self.path(name);
        std::fs::create_dir(&folder).unwrap();
        self.put("ca-cert.pem", &format!("{authority}.pem"), &folder);
        folder
    }

    fn put(&self, name: &str, from: &str, folder: &Path) {
        std::fs::copy(self.path(from), folder.join(name)).unwrap();
    }
}

fn tools() -> bool {
    has("nbdkit") && has("qemu-nbd") && Command::new("openssl").arg("version").output().is_ok()
}

fn secure(server: &Running, folder: &Path, name: &str) -> Address {
    let (socket, folder) = (server.socket.display(), folder.display());
    format!("nbds+unix:///?socket={socket}&tls-certificates={folder}&tls-hostname={name}").parse().unwrap()
}

fn open(address: &Address) -> Result<NbdDevice, OpenError> {
    real::retry(|| NbdDevice::open_writable(address, Writers::OthersKeptOut, &quick()))
}

fn nbdkit(dir: &Path, certificates: &Path, args: &[&str]) -> Running {
    let certificates = format!("--tls-certificates={}", certificates.display());
    Running::nbdkit(dir, &[&["--tls=require", &certificates][..], args].concat())
}

#[test]
fn what_is_written_over_tls_is_in_the_file() {
    if !tools() {
        return;
    }
    let certificates = Certificates::new();
    let trusting = certificates.path("trusting");
    let bytes = 16 * MIB;
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("a.img");
    let servers: [&dyn Fn() -> Running; 2] =
        [&|| nbdkit(dir.path(), &trusting, &["file", image.to_str().unwrap()]), &|| {
            let object = format!("tls-creds-x509,id=tls0,endpoint=server,verify-peer=no,dir={}", trusting.display());
            let args = ["-e", "8", "-f", "raw", "--object", &object, "--tls-creds", "tls0", image.to_str().unwrap()];
            Running::qemu(dir.path(), &args)
        }];
    for start in servers {
        std::fs::write(&image, vec![0; bytes]).unwrap();
        let server = start();
        let device = open(&secure(&server, &trusting, "server.example")).unwrap();
        let model = work(&device, bytes);
        // Requests longer than everything that a session takes at once, in both directions.
        let long = pattern(8 * MIB + 512, 3);
        device.write(MIB as u64, &long).unwrap();
        let mut back = vec![0; long.len()];
        device.read(MIB as u64, &mut back).unwrap();
        assert!(back == long);
        device.flush().unwrap();
        drop(device);
        drop(server);
        let found = std::fs::read(&image).unwrap();
        assert!(found[..MIB] == model[..MIB] && found[MIB..MIB + long.len()] == long);
        assert!(found[MIB + long.len()..] == model[MIB + long.len()..]);
    }
}

#[test]
fn a_server_that_is_killed_under_tls_is_a_loss() {
    if !tools() {
        return;
    }
    let certificates = Certificates::new();
    let trusting = certificates.path("trusting");
    let dir = tempfile::tempdir().unwrap();
    let server = nbdkit(dir.path(), &trusting, &["memory", "16M"]);
    let device = open(&secure(&server, &trusting, "server.example")).unwrap();
    device.write(0, &[1; 4096]).unwrap();
    server.kill();
    assert!(device.flush().unwrap_err().to_string().contains("the connection is lost"));
    assert!(device.write(0, &[1; 512]).is_err() && device.read(0, &mut [0; 512]).is_err());
}

#[test]
fn only_the_server_of_the_certificate_is_believed() {
    if !tools() {
        return;
    }
    let certificates = Certificates::new();
    let trusting = certificates.path("trusting");
    certificates.authority("other");
    let other = certificates.folder("trusting-another", "other");
    let dir = tempfile::tempdir().unwrap();
    let server = nbdkit(dir.path(), &trusting, &["memory", "1M"]);
    let says = |address: &Address| open(address).map(drop).unwrap_err().to_string();
    open(&secure(&server, &trusting, "server.example")).unwrap();
    let stranger = says(&secure(&server, &other, "server.example"));
    assert!(stranger.contains("?tls-certificates=DIR"), "{stranger}");
    let another = says(&secure(&server, &trusting, "another.example"));
    assert!(another.contains("server.example") && another.contains("?tls-hostname=NAME"), "{another}");
    // The authorities of the system do not have this one.
    let by_system = format!("nbds+unix:///?socket={}", server.socket.display()).parse().unwrap();
    let system = says(&by_system);
    assert!(system.contains("not signed by an authority") || system.contains("the system's list"), "{system}");
    let plain = server.open().unwrap_err();
    assert!(matches!(plain.problem(), Problem::TlsRequired) && plain.to_string().contains("nbds"), "{plain}");
    drop(server);
    let server = Running::nbdkit(dir.path(), &["--tls=off", "memory", "1M"]);
    let without = open(&secure(&server, &trusting, "server.example")).map(drop).unwrap_err();
    assert!(matches!(without.problem(), Problem::NoTls(_)), "{without}");
}

#[test]
fn a_certificate_that_was_taken_back_is_not_believed() {
    if !tools() {
        return;
    }
    let certificates = Certificates::new();
    let trusting = certificates.path("trusting");
    let dir = tempfile::tempdir().unwrap();
    let server = nbdkit(dir.path(), &trusting, &["memory", "1M"]);
    let address = secure(&server, &trusting, "server.example");
    certificates.list_revoked(&trusting, &[]);
    open(&address).unwrap();
    certificates.list_revoked(&trusting, &["server.pem"]);
    let error = open(&address).map(drop).unwrap_err().to_string();
    assert!(error.contains("Revoked"), "{error}");
}

#[test]
fn a_server_with_the_certificate_of_an_authority_is_refused_with_the_reason() {
    if !tools() {
        return;
    }
    let certificates = Certificates::new();
    let folder = certificates.folder("authority", "ca");
    certificates.put("server-cert.pem", "ca.pem", &folder);
    certificates.put("server-key.pem", "ca.key", &folder);
    let dir = tempfile::tempdir().unwrap();
    let server = nbdkit(dir.path(), &folder, &["memory", "1M"]);
    let error = open(&secure(&server, &folder, "server.example")).map(drop).unwrap_err().to_string();
    assert!(error.contains("CA:FALSE"), "{error}");
}

#[test]
fn a_client_shows_its_certificate() {
    if !tools() {
        return;
    }
    let certificates = Certificates::new();
    let dir = tempfile::tempdir().unwrap();
    let server = nbdkit(dir.path(), &certificates.path("trusting"), &["--tls-verify-peer", "memory", "1M"]);
    let with = secure(&server, &certificates.path("client-too"), "server.example");
    open(&with).unwrap().write(0, &[7; 512]).unwrap();
    let without = open(&secure(&server, &certificates.path("trusting"), "server.example"));
    // Under TLS 1.3 the server refuses after the handshake, at the first request.
    let refused = match without {
        Ok(device) => device.read(0, &mut [0; 512]).unwrap_err().to_string(),
        Err(error) => error.to_string(),
    };
    assert!(refused.contains("client-cert.pem") || refused.contains("closed the connection"), "{refused}");
}

#[test]
fn certificates_that_cannot_be_used_are_named() {
    if !tools() {
        return;
    }
    let certificates = Certificates::new();
    let says = |folder: &Path| {
        let address: Address = format!("nbds://127.0.0.1:1/?tls-certificates={}", folder.display()).parse().unwrap();
        let error = NbdDevice::open(&address, &quick()).map(drop).unwrap_err();
        assert!(matches!(error.problem(), Problem::Credentials(_)), "{error}");
        error.to_string()
    };
    assert!(says(Path::new("/nonexistent")).contains("/nonexistent/ca-cert.pem"));
    let half = certificates.folder("half", "ca");
    certificates.put("client-cert.pem", "client.pem", &half);
    assert!(says(&half).contains("has a client-cert.pem and no client-key.pem"));
    certificates.put("client-key.pem", "server.key", &half);
    assert!(says(&half).contains("do not belong together"));
    std::fs::write(half.join("ca-cert.pem"), "nothing\n").unwrap();
    assert!(says(&half).contains("ca-cert.pem contains no certificate"));
}

/// A man in the middle answers in the place of TLS, or ahead of it.
#[test]
fn nothing_without_the_keys_is_believed() {
    if !tools() {
        return;
    }
    let certificates = Certificates::new();
    let reply = |kind: u32, data: &[u8]| {
        let mut bytes = 0x0003_e889_0455_65a9_u64.to_be_bytes().to_vec();
        bytes.extend([5, kind, data.len() as u32].iter().flat_map(|word: &u32| word.to_be_bytes()));
        bytes.extend(data);
        bytes
    };
    let export = [&[0; 18][..], &reply(1, &[])].concat();
    let answers = [
        (reply(1, &export), "an unexpected reply to NBD_OPT_STARTTLS"),
        ([reply(1, &[]), export.clone()].concat(), "TLS: "),
        ([reply(1, &[]), vec![0x16, 3, 3, 0xff, 0xff]].concat(), ""),
        ([reply(1, &[]), vec![0x16, 3, 3, 0, 4, 2, 0, 0, 0]].concat(), "TLS: "),
        (reply(0x8000_0002, b"no \x1b"), r"no \u{1b}"),
    ];
    for (bytes, expected) in answers {
        let socket = certificates.path("hostile.sock");
        let _ = std::fs::remove_file(&socket);
        let listener = UnixListener::bind(&socket).unwrap();
        let (address, ahead) = (socket.display(), certificates.path("trusting"));
        let address: Address =
            format!("nbds+unix:///?socket={address}&tls-certificates={}", ahead.display()).parse().unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(&[b"NBDMAGICIHAVEOPT".as_slice(), &[0, 3], &bytes].concat()).unwrap();
            stream.shutdown(std::net::Shutdown::Write).unwrap();
            let mut got = Vec::new();
            // The client may have gone already.
            let _ = stream.read_to_end(&mut got);
            got
        });
        let error = NbdDevice::open(&address, &quick()).map(drop).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}, not {expected}");
        let got = server.join().unwrap();
        // Flags, and the one request: what follows is TLS.
        assert!(got[4..12] == *b"IHAVEOPT" && got[12..20] == [0, 0, 0, 5, 0, 0, 0, 0], "{got:02x?}");
        assert!(got.len() == 20 || got[20..22] == [0x16, 3], "{got:02x?}");
    }
}
