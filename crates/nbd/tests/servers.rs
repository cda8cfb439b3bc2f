//! Real servers: qemu-nbd and nbdkit, and the files below them.

mod real;
mod server;

use real::{MIB, Running, has, pattern, retry, work};
use server::{address, quick};
use std::io::ErrorKind;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use xfskit_device::BlockDevice;
use xfskit_nbd::{Address, NbdDevice, Problem, Writers};

#[test]
fn qemu_nbd_writes_what_was_written() {
    if !has("qemu-nbd") || !has("qemu-img") {
        return;
    }
    let bytes = 16 * MIB;
    for format in ["raw", "qcow2"] {
        let dir = tempfile::tempdir().unwrap();
        let (image, raw) = (dir.path().join("a.img"), dir.path().join("raw.img"));
        let run = |args: &[&str]| {
            let output = Command::new("qemu-img").args(args).output().unwrap();
            assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        };
        let (image, raw) = (image.to_str().unwrap(), raw.to_str().unwrap());
        run(&["create", "-q", "-f", format, image, "16M"]);
        let server = Running::qemu(dir.path(), &["-f", format, "-e", "8", "--discard=unmap", image]);
        let device = server.open_writable().unwrap();
        assert_eq!((device.size_bytes(), device.connections()), (bytes as u64, 4));
        // qemu-img has written the first block of a raw image, as zeros.
        assert!(!device.may_hold_data(MIB as u64, (bytes - MIB) as u64));
        let model = work(&device, bytes);
        assert!(device.may_hold_data(0, bytes as u64));
        device.discard(0, bytes as u64 / 2).unwrap();
        device.flush().unwrap();
        // What is discarded reads as zeros or as before.
        let mut kept = vec![0; bytes / 2];
        device.read(bytes as u64 / 2, &mut kept).unwrap();
        assert!(kept == model[bytes / 2..]);
        drop(device);
        drop(server);
        if format == "qcow2" {
            run(&["check", "-q", image]);
        }
        run(&["convert", "-f", format, "-O", "raw", image, raw]);
        let written = std::fs::read(raw).unwrap();
        assert!(written[bytes / 2..] == model[bytes / 2..], "{format}");
        assert!(written[..bytes / 2].iter().zip(&model).all(|(is, was)| *is == 0 || is == was), "{format}");
    }
}

#[test]
fn qemu_nbd_refuses_by_name() {
    if !has("qemu-nbd") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("a.img");
    std::fs::write(&image, pattern(MIB, 1)).unwrap();
    let server = Running::qemu(dir.path(), &["-f", "raw", "-r", "-x", "disk", image.to_str().unwrap()]);
    let error = retry(|| NbdDevice::open(&server.address(), &quick())).unwrap_err().to_string();
    assert!(error.ends_with(r#"the server has no export ""; it has "disk""#), "{error}");
    let disk = address(&server.socket, "disk");
    let error = NbdDevice::open_writable(&disk, Writers::OthersKeptOut, &quick()).unwrap_err();
    assert!(matches!(error.problem(), Problem::ReadOnly), "{error}");
    let device = NbdDevice::open(&disk, &quick()).unwrap();
    assert_eq!(device.connections(), 1);
    let mut back = vec![0; MIB];
    device.read(0, &mut back).unwrap();
    assert!(back == pattern(MIB, 1));
}

#[test]
fn nbdkit_writes_what_was_written() {
    if !has("nbdkit") {
        return;
    }
    let bytes = 16 * MIB;
    for args in [&[][..], &["--no-sr"], &["--filter=multi-conn"], &["--filter=noextents", "--filter=nozero"]] {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("a.img");
        std::fs::write(&image, vec![0; bytes]).unwrap();
        let mut args = args.to_vec();
        args.extend(["file", image.to_str().unwrap()]);
        if args[0] == "--filter=multi-conn" {
            args.push("multi-conn-mode=disable");
        }
        let server = Running::nbdkit(dir.path(), &args);
        let device = server.open_writable().unwrap();
        assert_eq!(device.connections(), if args[0] == "--filter=multi-conn" { 1 } else { 4 }, "{args:?}");
        let model = work(&device, bytes);
        assert!(std::fs::read(&image).unwrap() == model, "{args:?}");
    }
}

#[test]
fn nbdkit_over_tcp() {
    if !has("nbdkit") {
        return;
    }
    // A port that is free now.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut command = Command::new("nbdkit");
    command.args(["-f", "-i", "127.0.0.1", "-p", &port.to_string(), "memory", "16M"]);
    let child = command.stderr(Stdio::null()).spawn().unwrap();
    let _server = Running { child, socket: PathBuf::new() };
    let address: Address = format!("nbd://127.0.0.1:{port}/").parse().unwrap();
    let device = retry(|| NbdDevice::open_writable(&address, Writers::OthersKeptOut, &quick())).unwrap();
    work(&device, 16 * MIB);
}

#[test]
fn errors_of_nbdkit() {
    if !has("nbdkit") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let failing = dir.path().join("failing");
    let error_file = format!("error-file={}", failing.display());
    let args = ["--filter=error", "memory", "16M", "error=ENOSPC", "error-rate=100%", &error_file];
    let server = Running::nbdkit(dir.path(), &args);
    let device = server.open_writable().unwrap();
    device.write(0, &[1; 512]).unwrap();
    std::fs::write(&failing, b"").unwrap();
    assert_eq!(device.write(0, &[2; 512]).unwrap_err().kind(), ErrorKind::StorageFull);
    assert_eq!(device.read(0, &mut [2; 512]).unwrap_err().kind(), ErrorKind::StorageFull);
    std::fs::remove_file(&failing).unwrap();
    work(&device, 16 * MIB);
    drop((device, server));

    // A flush that fails: nothing succeeds any more.
    let marker = dir.path().join("once");
    let flush = format!("flush=test -e {0} || {{ touch {0}; echo EIO no disk >&2; exit 1; }}", marker.display());
    let args = [
        "eval",
        "get_size=echo 1M",
        "pread=dd if=/dev/zero count=$3 iflag=count_bytes status=none",
        "pwrite=cat >/dev/null",
        "can_write=exit 0",
        "can_flush=exit 0",
        &flush,
    ];
    let server = Running::nbdkit(dir.path(), &args);
    let device = server.open_writable().unwrap();
    device.write(0, &[1; 512]).unwrap();
    let error = device.flush().unwrap_err().to_string();
    assert!(error.contains("EIO"), "{error}");
    assert!(device.flush().is_err() && device.write(0, &[1; 512]).is_err());
    device.read(0, &mut [0; 512]).unwrap();
}

#[test]
fn block_sizes_of_nbdkit() {
    if !has("nbdkit") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let sizes =
        ["blocksize-minimum=4k", "blocksize-preferred=4k", "blocksize-maximum=64k", "blocksize-error-policy=error"];
    let args = [&["--filter=blocksize-policy", "memory", "16M"], &sizes[..]].concat();
    let server = Running::nbdkit(dir.path(), &args);
    let device = server.open_writable().unwrap();
    assert_eq!(device.hints().sector_bytes, 4096);
    let data = pattern(MIB, 3);
    device.write(4096, &data).unwrap();
    let mut back = vec![0; 100_000];
    device.read(5000, &mut back).unwrap();
    assert!(back == data[904..100_904]);
    // A part of a block: nbdkit would refuse such a request.
    device.write(5000, &[1; 512]).unwrap();
    device.read(4096, &mut back).unwrap();
    assert!(back[904..1416] == [1; 512] && back[..904] == data[..904] && back[1416..] == data[1416..100_000]);
}

#[test]
fn handshakes_that_are_refused() {
    if !has("nbdkit") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let server = Running::nbdkit(dir.path(), &["-o", "memory", "1M"]);
    let error = server.open().unwrap_err();
    assert!(matches!(error.problem(), Problem::Oldstyle), "{error}");
    drop(server);
    let keys = dir.path().join("keys");
    std::fs::write(&keys, "someone:00112233445566778899aabbccddeeff\n").unwrap();
    let server =
        Running::nbdkit(dir.path(), &["--tls=require", &format!("--tls-psk={}", keys.display()), "memory", "1M"]);
    let error = server.open().unwrap_err();
    assert!(matches!(error.problem(), Problem::TlsRequired), "{error}");
}

/// One after the other, 32 pieces would wait for 3.2 seconds.
#[test]
fn delays_of_nbdkit_are_waited_for_at_once() {
    if !has("nbdkit") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let server = Running::nbdkit(dir.path(), &["--filter=delay", "memory", "32M", "rdelay=100ms", "wdelay=100ms"]);
    let device = server.open_writable().unwrap();
    let mut data = pattern(32 * MIB, 1);
    let began = Instant::now();
    device.write(0, &data).unwrap();
    let written = began.elapsed();
    device.read(0, &mut data).unwrap();
    let read = began.elapsed() - written;
    assert!(data == pattern(32 * MIB, 1));
    assert!(written.max(read) < Duration::from_millis(1600), "{written:?} {read:?}");
}

/// What a killed server has answered, its host has; what a flush acknowledged above all.
#[test]
fn nbdkit_killed_at_any_moment() {
    if !has("nbdkit") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("a.img");
    std::fs::write(&image, vec![0; MIB]).unwrap();
    let args = ["--filter=delay", "file", image.to_str().unwrap(), "wdelay=1ms"];
    let (mut flushed, mut begun) = (0_u64, 0_u64);
    for round in 0..12 {
        let server = Running::nbdkit(dir.path(), &args);
        let device = server.open_writable().unwrap();
        let writer = std::thread::spawn(move || {
            loop {
                begun += 1;
                let data = begun.to_le_bytes().repeat(MIB / 8);
                if device.write(0, &data).and_then(|()| device.flush()).is_err() {
                    break;
                }
                flushed = begun;
            }
            assert!(device.flush().is_err() && device.read(0, &mut [0]).is_err());
            (flushed, begun)
        });
        std::thread::sleep(Duration::from_millis(30 + round * 7));
        server.kill();
        (flushed, begun) = writer.join().unwrap();
        let contents = std::fs::read(&image).unwrap();
        let mut versions = contents.chunks(8).map(|word| u64::from_le_bytes(word.try_into().unwrap()));
        assert!(versions.all(|version| (flushed..=begun).contains(&version)), "{flushed} {begun}");
    }
    assert!(flushed > 24, "{flushed}: the flushes of the test do not succeed");
}
