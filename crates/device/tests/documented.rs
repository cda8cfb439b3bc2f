//! The example of a device that wraps another one shows every method: one that it leaves out would not be forwarded by
//! those who copy it.

/// The names of the functions that are declared in these lines.
fn functions<'a>(lines: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let name = |line: &'a str| line.trim_start().strip_prefix("fn ")?.split('(').next();
    let mut found: Vec<_> = lines.filter_map(name).collect();
    found.sort_unstable();
    found
}

#[test]
fn the_example_of_a_wrapper_forwards_every_method() {
    let source = include_str!("../src/lib.rs");
    let (example, rest) = source.split_once("\npub trait BlockDevice").expect("the trait");
    let (_, example) = example.split_once("BlockDevice for Limited<D> {").expect("the example");
    let declared = rest.split("\n}\n").next().expect("its end");
    let declared = functions(declared.lines().filter(|line| !line.trim_start().starts_with("//")));
    let forwarded = functions(example.lines().filter_map(|line| line.strip_prefix("///")));
    assert!(declared.len() > 10, "{declared:?}");
    assert_eq!(forwarded, declared);
}
