//! A server that sends anything: an error, never a panic, a hang or an allocation by its numbers.

mod server;

use server::{CAN_MULTI_CONN, Plan, Server, USUAL, address, quick};
use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::time::Duration;
use xfskit_device::BlockDevice;
use xfskit_nbd::{NbdDevice, Options, Problem, Writers};

/// A tenth of a second.
const TENTH: Duration = Duration::from_millis(100);

/// Opens an export of a server that sends these bytes, whatever it is asked.
fn open(bytes: Vec<u8>) -> Result<NbdDevice, xfskit_nbd::OpenError> {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("hostile");
    let listener = UnixListener::bind(&socket).unwrap();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        // The client may have gone already.
        let _ = stream.write_all(&bytes);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let opened = NbdDevice::open(&address(&socket, ""), &Options { connections: 1, ..quick() });
    if let Ok(device) = &opened {
        assert!(device.read(0, &mut [0; 512]).is_err());
    }
    let opened = opened.map(drop);
    server.join().unwrap();
    match opened {
        Err(error) => Err(error),
        Ok(()) => panic!("it opens"),
    }
}

fn greeting(flags: u16) -> Vec<u8> {
    [b"NBDMAGICIHAVEOPT".as_slice(), &flags.to_be_bytes()].concat()
}

fn reply(option: u32, kind: u32, length: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = 0x0003_e889_0455_65a9_u64.to_be_bytes().to_vec();
    bytes.extend([option, kind, length].iter().flat_map(|word| word.to_be_bytes()));
    bytes.extend(data);
    bytes
}

/// The handshake up to `NBD_OPT_GO`, without structured replies.
fn before_go() -> Vec<u8> {
    [greeting(3), reply(8, 0x8000_0001, 0, &[])].concat()
}

#[test]
fn each_step_of_the_handshake_is_checked() {
    let problem = |bytes| format!("{:?}", open(bytes).unwrap_err().problem());
    assert_eq!(problem(b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec()), "NotNbd");
    assert_eq!(problem([b"NBDMAGIC".as_slice(), &0x4202_8186_1253_u64.to_be_bytes()].concat()), "Oldstyle");
    assert_eq!(problem(b"NBDMAGICxxxxxxxx".to_vec()), "NotNbd");
    assert_eq!(problem(Vec::new()), "Closed");
    assert!(problem(greeting(0)).starts_with("TooOld"));
    assert!(problem([greeting(3), reply(8, 0x8000_0005, 0, &[])].concat()).starts_with("TlsRequired"));
    let go = |kind, data: &[u8]| problem([before_go(), reply(7, kind, data.len() as u32, data)].concat());
    assert!(go(0x8000_0005, &[]).starts_with("TlsRequired"));
    assert!(go(0x8000_0001, &[]).starts_with("TooOld"));
    assert!(go(0x8000_0002, b"go \x1b away").contains(r"go \\u{1b} away"));
    assert!(go(1, &[]).contains("no size"));
    assert!(go(4, &[]).contains("unexpected"));
    assert!(go(3, &[0]).contains("short"));
    assert!(go(3, &[0, 0, 1]).contains("wrong length"));
    assert!(go(3, &[[0, 0].as_slice(), &[0xff; 10]].concat()).contains("8 EiB"));
    for sizes in [[0_u32, 512, 4096], [3, 512, 4096], [1 << 17, 1 << 17, 1 << 20], [4096, 4096, 512], [1, 1, 1]] {
        let data = [[0, 3].as_slice(), &sizes.map(u32::to_be_bytes).concat()].concat();
        assert!(go(3, &data).contains("block sizes"), "{sizes:?}");
    }
    // A length that would need 4 GiB.
    assert!(problem([before_go(), reply(7, 3, u32::MAX, &[])].concat()).contains("too long"));
    assert!(problem([before_go(), reply(9, 1, 0, &[])].concat()).contains("another option"));
    assert!(problem([greeting(3), vec![0; 20]].concat()).contains("no reply"));
    let endless = reply(7, 3, 2, &[0, 99]).repeat(5000);
    assert!(problem([before_go(), endless].concat()).contains("too many"));
    // A handshake that ends anywhere.
    let whole = [before_go(), reply(7, 3, 12, &[0, 0, 0, 0, 0, 0, 0, 0, 16, 0, 0, 1]), reply(7, 1, 0, &[])].concat();
    for end in 0..whole.len() {
        assert_eq!(problem(whole[..end].to_vec()), "Closed", "{end}");
    }
}

/// Whatever a server changes in what it sends, the device answers with data or an error, and ends.
#[test]
fn any_changed_byte_is_survived() {
    let (mut lost, mut whole) = (0, 0);
    for seed in 0..400 {
        let flags = if seed % 2 == 0 { USUAL } else { USUAL | CAN_MULTI_CONN };
        let plan = Plan { size: 1 << 16, flags, seed, structured: seed % 4 < 2, ..Plan::default() };
        let server = Server::start(plan);
        // Half of them change the handshake, too.
        let noise = Some(1 << (seed % 9 + 3));
        let options = Options { silence: TENTH, opening: TENTH, connections: 2, ..Options::default() };
        if seed % 8 == 0 {
            server.change(|plan| plan.noise = noise);
        }
        let opened = NbdDevice::open_writable(&server.address(), Writers::OthersKeptOut, &options);
        server.change(|plan| plan.noise = noise);
        let Ok(device) = opened else { continue };
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let device = &device;
                scope.spawn(move || {
                    for n in 0..10 {
                        // Any result will do; none is a hang.
                        let _ = device.write(thread * 4096, &[n; 1024]);
                        let _ = device.read(thread * 4096, &mut [0; 4096]);
                        let _ = device.flush();
                        let _ = device.may_hold_data(0, 1 << 16);
                    }
                });
            }
        });
        if device.read(0, &mut [0; 512]).is_ok() { whole += 1 } else { lost += 1 }
    }
    assert!(lost > 100 && whole > 10, "{lost} lost, {whole} whole");
}

#[test]
fn a_changed_size_between_connections_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("two");
    let listener = UnixListener::bind(&socket).unwrap();
    let server = std::thread::spawn(move || {
        for size in [1_u8, 2] {
            let (mut stream, _) = listener.accept().unwrap();
            let info = [0, 0, 0, 0, 0, 0, 0, 0, size << 4, 0, 1, 1];
            let _ = stream.write_all(&[before_go(), reply(7, 3, 12, &info), reply(7, 1, 0, &[])].concat());
            std::thread::spawn(move || stream.read_to_end(&mut Vec::new()));
        }
    });
    let error = NbdDevice::open(&address(&socket, ""), &quick()).unwrap_err();
    assert!(matches!(error.problem(), Problem::Protocol(why) if why.contains("different exports")), "{error}");
    server.join().unwrap();
}
