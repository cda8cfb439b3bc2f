//! Which requests a device sends, and what it makes of the answers.

mod server;

use server::{
    BLOCK_STATUS, CAN_MULTI_CONN, DISCONNECT, FLUSH, Plan, READ, READ_ONLY, SECTOR, SEND_FLUSH, SEND_FUA, SEND_TRIM,
    SEND_WRITE_ZEROES, Seen, Server, TRIM, USUAL, WRITE, WRITE_ZEROES, address, quick,
};
use std::io::ErrorKind;
use std::time::Duration;
use xfskit_device::BlockDevice;
use xfskit_nbd::{NbdDevice, Options, Problem};

const MIB: usize = 1 << 20;

fn ranges(seen: &[Seen], command: u16) -> Vec<(u64, u32)> {
    let mut ranges: Vec<_> =
        seen.iter().filter(|one| one.command == command).map(|one| (one.offset, one.bytes)).collect();
    ranges.sort_unstable();
    ranges
}

fn count(server: &Server, command: u16) -> usize {
    ranges(&server.seen(), command).len()
}

/// Writers may follow each other without end, so a flush must not wait for a moment with fewer of them.
#[test]
fn a_flush_is_sent_while_writes_have_all_the_room() {
    let plan = Plan { blocks: Some((512, 4096, 4096)), silent: Some(WRITE), ..Plan::default() };
    let server = Server::start(plan);
    let device = server.open_writable().unwrap();
    std::thread::scope(|scope| {
        // More pieces than there is room for, none of which is answered.
        let writer = scope.spawn(|| device.write(0, &vec![1; MIB]));
        let mut sent = 0;
        while sent < 128 {
            sent += count(&server, WRITE);
            assert!(!writer.is_finished(), "{sent} writes were sent");
            std::thread::sleep(Duration::from_millis(1));
        }
        device.flush().unwrap();
        assert_eq!(count(&server, FLUSH), 1);
        server.crash();
        assert!(writer.join().unwrap().is_err());
    });
}

#[test]
fn a_flush_is_one_round_trip_or_none() {
    let server = Server::start(Plan { flags: USUAL | CAN_MULTI_CONN, ..Plan::default() });
    let device = server.open_writable().unwrap();
    // The server may still have writes of an earlier client.
    device.flush().unwrap();
    assert_eq!(count(&server, FLUSH), 1);
    device.flush().unwrap();
    assert_eq!(count(&server, FLUSH), 0);
    for _ in 0..3 {
        device.write(0, &vec![1; 4 * MIB]).unwrap();
        device.flush().unwrap();
        device.flush().unwrap();
        assert_eq!(count(&server, FLUSH), 1);
    }
    device.discard(0, MIB as u64).unwrap();
    device.flush().unwrap();
    assert_eq!(count(&server, FLUSH), 1);
    // A write that failed may have arrived in part.
    server.fail(WRITE, 28, 1);
    device.write(0, &[1; SECTOR]).unwrap_err();
    device.flush().unwrap();
    assert_eq!(count(&server, FLUSH), 1);
    drop(device);
    while count(&server, DISCONNECT) == 0 {
        std::thread::yield_now();
    }
}

/// What was written before is as much in doubt as it was.
#[test]
fn a_durable_write_is_one_round_trip_where_the_server_has_it() {
    for (flags, flushes) in [(USUAL | SEND_FUA, 0), (USUAL, 1)] {
        let server = Server::start(Plan { flags, ..Plan::default() });
        let device = server.open_writable().unwrap();
        device.flush().unwrap();
        assert_eq!(device.hints().supports_fua, flushes == 0);
        server.seen();
        device.write(0, &[1; SECTOR]).unwrap();
        device.write_fua(MIB as u64, &vec![2; 2 * MIB]).unwrap();
        let seen = server.seen();
        assert_eq!(seen.iter().filter(|seen| seen.command == FLUSH).count(), flushes);
        assert_eq!(seen.iter().filter(|seen| seen.command == WRITE && seen.flags == 1).count(), 2 * (1 - flushes));
        let durable = server.durable();
        assert!(durable[MIB..3 * MIB].iter().all(|byte| *byte == 2));
        assert_eq!(durable[0], flushes as u8);
        // The flush that follows covers the write that was not durable.
        device.flush().unwrap();
        assert_eq!((count(&server, FLUSH), server.durable()[0]), (1 - flushes, 1));
        server.fail(WRITE, 28, 1);
        device.write_fua(0, &[3; SECTOR]).unwrap_err();
    }
}

/// The server answers nothing before it has all of them, and then the last one first.
#[test]
fn pieces_are_sent_without_waiting() {
    for structured in [true, false] {
        let server = Server::start(Plan { structured, ..Plan::default() });
        let device = server.open_writable().unwrap();
        let data: Vec<u8> = (0..5 * MIB).map(|n| (n / 1000 + n) as u8).collect();
        server.change(|plan| plan.hold = 6);
        device.write(MIB as u64 / 2, &data).unwrap();
        let mut back = vec![0; data.len()];
        device.read(MIB as u64 / 2, &mut back).unwrap();
        assert!(back == data);
        let half = MIB as u32 / 2;
        let mut pieces = vec![(u64::from(half), half)];
        pieces.extend((1..5).map(|n| (n * MIB as u64, MIB as u32)));
        pieces.push((5 * MIB as u64, half));
        let seen = server.seen();
        assert_eq!((ranges(&seen, WRITE), ranges(&seen, READ)), (pieces.clone(), pieces));
    }
}

/// Or a piece could arrive over a later write of the caller.
#[test]
fn a_write_that_fails_returns_after_its_last_piece() {
    let server = Server::start(Plan::default());
    let device = server.open_writable().unwrap();
    server.fail(WRITE, 28, 1);
    server.change(|plan| plan.slow = Some((3 * MIB as u64, Duration::from_millis(300))));
    assert_eq!(device.write(0, &vec![1; 4 * MIB]).unwrap_err().kind(), ErrorKind::StorageFull);
    let contents = server.volatile();
    assert!(contents[..MIB].iter().all(|byte| *byte == 0) && contents[MIB..4 * MIB].iter().all(|byte| *byte == 1));
}

#[test]
fn more_than_fits_in_flight_is_read_in_order() {
    let server = Server::start(Plan { blocks: Some((512, 512, 512)), size: MIB, ..Plan::default() });
    let device = server.open_writable().unwrap();
    let data: Vec<u8> = (0..MIB).map(|n| (n / 512 + n) as u8).collect();
    device.write(0, &data).unwrap();
    // 2048 requests each, with at most 128 of all threads in flight.
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                let mut back = vec![0; MIB];
                device.read(0, &mut back).unwrap();
                assert!(back == data);
            });
        }
    });
}

#[test]
fn a_piece_stays_on_its_connection() {
    for (flags, connections) in [(USUAL, 1), (USUAL | CAN_MULTI_CONN, 4)] {
        let server = Server::start(Plan { flags, ..Plan::default() });
        let device = server.open_writable().unwrap();
        assert_eq!(device.connections(), connections);
        for _ in 0..3 {
            device.write(0, &vec![1; 8 * MIB]).unwrap();
            device.read(0, &mut vec![0; 8 * MIB]).unwrap();
        }
        let seen = server.seen();
        let used: std::collections::BTreeSet<_> = seen.iter().map(|one| one.connection).collect();
        assert_eq!(used.len(), connections);
        for one in &seen {
            let first = seen.iter().find(|other| other.offset == one.offset).unwrap();
            assert_eq!(one.connection, first.connection);
        }
        let one = Options { connections: 1, ..quick() };
        assert_eq!(NbdDevice::open(&server.address(), &one).unwrap().connections(), 1);
    }
}

#[test]
fn threads_see_their_own_writes() {
    let server = Server::start(Plan { flags: USUAL | CAN_MULTI_CONN, size: 4 * MIB, ..Plan::default() });
    let device = server.open_writable().unwrap();
    std::thread::scope(|scope| {
        for thread in 0..16_usize {
            let device = &device;
            scope.spawn(move || {
                let start = (thread * MIB / 4) as u64;
                for round in 0..40_usize {
                    let data = vec![(thread * 40 + round) as u8 | 1; 512 * (1 + round)];
                    let at = start + (round as u64 * 512);
                    device.write(at, &data).unwrap();
                    let mut back = vec![0; data.len()];
                    device.read(at, &mut back).unwrap();
                    assert!(back == data);
                    if round % 8 == 0 {
                        device.flush().unwrap();
                    }
                }
            });
        }
    });
}

#[test]
fn zeros_are_sent_as_a_request() {
    let server = Server::start(Plan::default());
    let device = server.open_writable().unwrap();
    device.write(0, &vec![1; 2 * MIB]).unwrap();
    server.seen();
    device.write(0, &vec![0; 2 * MIB]).unwrap();
    device.write(0, &[0; SECTOR]).unwrap();
    let seen = server.seen();
    assert_eq!(ranges(&seen, WRITE), [(0, SECTOR as u32)]);
    assert_eq!(ranges(&seen, WRITE_ZEROES), [(0, MIB as u32), (MIB as u64, MIB as u32)]);
    // They are allocated, as by a write.
    assert!(seen.iter().all(|one| (one.flags == 2) == (one.command == WRITE_ZEROES)), "{seen:?}");
    device.flush().unwrap();
    assert!(server.durable().iter().all(|byte| *byte == 0));

    // A server that says it can and cannot is asked once.
    server.fail(WRITE_ZEROES, 95, usize::MAX);
    device.write(0, &vec![1; MIB]).unwrap();
    device.write(0, &vec![0; MIB]).unwrap();
    device.write(0, &vec![0; MIB]).unwrap();
    let seen = server.seen();
    assert_eq!((ranges(&seen, WRITE_ZEROES).len(), ranges(&seen, WRITE).len()), (1, 3));

    let server = Server::start(Plan { flags: USUAL & !SEND_WRITE_ZEROES, ..Plan::default() });
    server.open_writable().unwrap().write(0, &vec![0; MIB]).unwrap();
    assert_eq!(count(&server, WRITE), 1);
}

#[test]
fn block_sizes_of_the_server_hold() {
    let server = Server::start(Plan { blocks: Some((4096, 4096, 12288)), ..Plan::default() });
    let device = server.open_writable().unwrap();
    assert_eq!(device.hints().sector_bytes, 4096);
    let data: Vec<u8> = (0..65536_u32).map(|n| (n / 256 + n) as u8).collect();
    device.write(4096, &data).unwrap();
    assert!(server.seen().iter().all(|one| one.bytes <= 8192));
    // Reads are widened.
    let mut back = vec![0; 10_000];
    device.read(4096 + 700, &mut back).unwrap();
    assert!(back == data[700..10_700]);
    // Writes of parts of blocks too, and the rest of the block stays.
    let mut expected = [vec![0; 4096], data].concat();
    for (offset, bytes) in [(4608, 4096), (4096, 512), (20_000, 1)] {
        device.write(offset, &vec![1; bytes]).unwrap();
        expected[offset as usize..][..bytes].fill(1);
    }
    assert!(server.seen().iter().all(|one| one.offset % 4096 == 0 && one.bytes % 4096 == 0));
    assert!(server.volatile()[..expected.len()] == expected);
    device.discard(4000, 100).unwrap();
    device.discard(4000, 8300).unwrap();
    assert_eq!(ranges(&server.seen(), TRIM), [(4096, 8192)]);

    // Without sizes, the specification recommends 512 bytes.
    let server = Server::start(Plan { size: 5 * 512 + 100, ..Plan::default() });
    let device = server.open_writable().unwrap();
    assert_eq!((device.hints().sector_bytes, device.size_bytes()), (512, 5 * 512));
    assert_eq!(device.read(5 * 512, &mut [0]).unwrap_err().kind(), ErrorKind::UnexpectedEof);
    assert_eq!(device.write(5 * 512, &[0; 512]).unwrap_err().kind(), ErrorKind::UnexpectedEof);
    assert_eq!(device.read(u64::MAX, &mut [0]).unwrap_err().kind(), ErrorKind::UnexpectedEof);
    let server = Server::start(Plan { blocks: Some((1, 512, 1 << 20)), ..Plan::default() });
    let device = server.open_writable().unwrap();
    device.write(3, &[1; 5]).unwrap();
    assert_eq!(device.hints().sector_bytes, 512);
}

#[test]
fn threads_that_write_one_block_do_not_undo_each_other() {
    let server = Server::start(Plan { blocks: Some((512, 4096, 1 << 20)), ..Plan::default() });
    let device = server.open_writable().unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4_u8 {
            let device = &device;
            scope.spawn(move || {
                for round in 0..100_u64 {
                    device.write(round * 512 + u64::from(thread) * 128, &[thread + 1; 128]).unwrap();
                }
            });
        }
    });
    let expected: Vec<u8> = (1..=4).flat_map(|byte| [byte; 128]).collect();
    assert!(server.volatile()[..51_200] == expected.repeat(100));
}

#[test]
fn what_cannot_be_written_is_refused_at_opening() {
    let refused = |flags, blocks| {
        let server = Server::start(Plan { flags, blocks, ..Plan::default() });
        let device = server.open().unwrap();
        device.read(0, &mut [0; SECTOR]).unwrap();
        assert!(device.hints().read_only);
        device.flush().unwrap();
        assert_eq!(device.write(0, &[0; SECTOR]).unwrap_err().kind(), ErrorKind::PermissionDenied);
        assert_eq!(device.discard(0, MIB as u64).unwrap_err().kind(), ErrorKind::PermissionDenied);
        server.open_writable().unwrap_err()
    };
    assert!(matches!(refused(USUAL | READ_ONLY, None).problem(), Problem::ReadOnly));
    assert!(matches!(refused(USUAL & !SEND_FLUSH, None).problem(), Problem::NoFlush));
    let large = refused(USUAL, Some((65536, 65536, 1 << 20)));
    assert!(matches!(large.problem(), Problem::MinimumBlock(65536)));
}

#[test]
fn a_server_says_what_it_has_instead() {
    let server = Server::start(Plan::default());
    let text = server.address().to_string().replace("/disk?", "/disc?");
    let error = NbdDevice::open(&text.parse().unwrap(), &quick()).unwrap_err().to_string();
    assert!(error.starts_with(&text), "{error}");
    assert!(error.ends_with(r#"the server has no export "disc"; it has "disk", "other""#), "{error}");
    let missing = address(std::path::Path::new("/nonexistent/socket"), "disk");
    assert!(matches!(NbdDevice::open(&missing, &quick()).unwrap_err().problem(), Problem::Unreachable(_)));
}

#[test]
fn errors_of_the_server_have_kinds() {
    let kinds = [
        (1, ErrorKind::PermissionDenied),
        (5, ErrorKind::Other),
        (12, ErrorKind::OutOfMemory),
        (22, ErrorKind::InvalidInput),
        (28, ErrorKind::StorageFull),
        (75, ErrorKind::InvalidInput),
        (95, ErrorKind::Unsupported),
        (4711, ErrorKind::Other),
    ];
    for structured in [true, false] {
        for (number, kind) in kinds {
            let server = Server::start(Plan { structured, ..Plan::default() });
            let device = server.open_writable().unwrap();
            server.change(|plan| plan.errors.extend([(WRITE, (number, 1)), (READ, (number, 1))]));
            let write = device.write(1024, &[1; SECTOR]).unwrap_err();
            let read = device.read(1024, &mut [1; SECTOR]).unwrap_err();
            assert_eq!((write.kind(), read.kind()), (kind, kind), "{write} {read}");
            let text = write.to_string();
            let words = if structured { "a\\u{1b}sad" } else { "" };
            assert!(text.contains("a write of 512 bytes at 1024") && text.contains(words), "{text}");
            assert!(text.contains("disk?socket="), "{text}");
            // The connection goes on.
            device.write(1024, &[1; SECTOR]).unwrap();
            device.flush().unwrap();
        }
    }
}

#[test]
fn holes_are_asked_for() {
    let server = Server::start(Plan::default());
    let device = server.open_writable().unwrap();
    assert!(!device.may_hold_data(0, 8 * MIB as u64));
    device.write(5 * MIB as u64, &[1; SECTOR]).unwrap();
    server.seen();
    assert!(device.may_hold_data(0, 8 * MIB as u64));
    assert!(!device.may_hold_data(0, 5 * MIB as u64));
    assert!(device.may_hold_data(5 * MIB as u64 + 100, 1));
    assert!(!device.may_hold_data(5 * MIB as u64 + 512, u64::MAX));
    assert_eq!(count(&server, BLOCK_STATUS), 4);
    server.fail(BLOCK_STATUS, 5, 1);
    assert!(device.may_hold_data(0, 512));
    // Without structured replies nothing can be asked.
    let server = Server::start(Plan { structured: false, ..Plan::default() });
    assert!(server.open().unwrap().may_hold_data(0, 512));
    assert_eq!(count(&server, BLOCK_STATUS), 0);
}

#[test]
fn discards_are_hints() {
    let server = Server::start(Plan { flags: USUAL & !SEND_TRIM, ..Plan::default() });
    server.open_writable().unwrap().discard(0, MIB as u64).unwrap();
    assert_eq!(count(&server, TRIM), 0);
    let server = Server::start(Plan::default());
    let device = server.open_writable().unwrap();
    server.fail(TRIM, 95, 1);
    device.discard(0, MIB as u64).unwrap();
    server.fail(TRIM, 5, 1);
    assert_eq!(device.discard(0, MIB as u64).unwrap_err().kind(), ErrorKind::Other);
    assert_eq!(device.allocate(0, 512).unwrap_err().kind(), ErrorKind::Unsupported);
}

#[test]
fn a_server_that_says_nothing_is_given_up() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("mute");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let options = Options { opening: Duration::from_millis(200), ..quick() };
    let error = NbdDevice::open(&address(&socket, ""), &options).unwrap_err();
    assert!(matches!(error.problem(), Problem::Silent(_)), "{error}");
}
