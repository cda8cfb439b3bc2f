//! A wrapper passes on every method of a device. One with a default that [`xfskit_device::WrapsDevice`] did not know
//! would compile, and be the default's for every wrapper: slow, or wrong.

/// The names of the functions that are declared in these lines.
fn functions(lines: &str) -> Vec<&str> {
    let mut found: Vec<_> =
        lines.lines().filter_map(|line| line.trim_start().strip_prefix("fn ")?.split(['(', '<']).next()).collect();
    found.sort_unstable();
    found
}

/// What stands between a line that begins so and the first `}` at the start of a line.
fn body<'a>(source: &'a str, beginning: &str) -> &'a str {
    let (_, rest) = source.split_once(beginning).expect(beginning);
    rest.split("\n}\n").next().expect("its end")
}

#[test]
fn a_wrapper_passes_on_every_method() {
    let devices = functions(body(include_str!("../src/block_device.rs"), "\npub trait BlockDevice"));
    let wrappers = include_str!("../src/wraps.rs");
    assert!(devices.len() >= 9, "{devices:?}");
    assert_eq!(functions(body(wrappers, "BlockDevice for W {")), devices);
    let mut passed = functions(body(wrappers, "\npub trait WrapsDevice"));
    passed.retain(|name| *name != "below");
    // Both kinds of write are one method.
    let expected: Vec<_> =
        devices.iter().filter(|name| **name != "write_fua").map(|name| format!("pass_{name}")).collect();
    assert_eq!(passed, expected);
}
