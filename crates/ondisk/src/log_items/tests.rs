//! Round trips of every kind, and what decoders must refuse.

use super::exchange::flags as exchange_flags;
use super::*;
use crate::attr::{ParentRecord, flags};
use crate::btree::rmap_owner;
use crate::features::{Incompat, RoCompat};

fn extent(ag: u64, block: u64, count: u32) -> FsExtent {
    FsExtent { block: FsBlock(ag << 14 | block), count }
}

fn update(verb: RmapVerb, owner: u64) -> RmapUpdate {
    RmapUpdate { verb, owner, extent: extent(1, 77, 9), offset: FileBlock(5), attr_fork: false, unwritten: true }
}

fn exchange() -> ExchangeIntent {
    ExchangeIntent {
        id: 9,
        inodes: [InodeNumber(131), InodeNumber(132)],
        generations: [3, u32::MAX],
        offsets: [FileBlock(0), FileBlock(70)],
        count: 12,
        flags: exchange_flags::SET_SIZES | exchange_flags::CLEAR_REFLINK2,
        sizes: [4000, 0],
    }
}

fn map() -> BmapIntent {
    BmapIntent {
        id: 8,
        verb: BmapVerb::Map,
        inode: InodeNumber(131),
        extent: extent(3, 9000, 1000),
        offset: FileBlock((1 << 54) - 1000),
        attr_fork: true,
        unwritten: false,
    }
}

fn attr_regions(intent: &AttrIntent<'_>) -> Vec<Vec<u8>> {
    let mut regions = Vec::new();
    intent.encode(|region| {
        let mut padded = region.to_vec();
        padded.resize(region.len().next_multiple_of(4), 0);
        regions.push(padded);
    });
    regions
}

fn parent(inode: u64) -> [u8; 12] {
    ParentRecord { inode, generation: 1 }.encode()
}

/// The attribute intents of all six verbs.
fn with_attrs(mut each: impl FnMut(AttrIntent<'_>)) {
    let (old, new) = (parent(128), parent(140));
    let plain = AttrIntent {
        id: 4,
        verb: AttrVerb::Set,
        inode: InodeNumber(131),
        generation: 0,
        namespace: flags::SECURE,
        name: b"selinux",
        value: b"any value",
        new_name: &[],
        new_value: &[],
    };
    each(plain);
    each(AttrIntent { value: &[], ..plain });
    each(AttrIntent { verb: AttrVerb::Replace, ..plain });
    each(AttrIntent { verb: AttrVerb::Remove, value: &[], ..plain });
    let pointer = AttrIntent { namespace: flags::PARENT, value: &old, generation: 77, ..plain };
    each(AttrIntent { verb: AttrVerb::SetParent, ..pointer });
    each(AttrIntent { verb: AttrVerb::RemoveParent, ..pointer });
    each(AttrIntent { verb: AttrVerb::ReplaceParent, new_name: b"n", new_value: &new, ..pointer });
}

/// One intent of each kind, as regions.
fn all() -> Vec<Vec<Vec<u8>>> {
    let counts = [RefcountUpdate { verb: RefcountVerb::FreeCow, extent: extent(0, 100, 1) }];
    let mut all = vec![
        vec![extent_free::encode_intent(1, &[extent(0, 10, 1), extent(3, 9_999, 1)])],
        vec![rmap::encode_intent(2, &[update(RmapVerb::Map, 131), update(RmapVerb::Free, rmap_owner::COW)])],
        vec![refcount::encode_intent(3, &counts)],
        vec![bmap::encode_intent(&map())],
        vec![exchange::encode_intent(&exchange())],
    ];
    with_attrs(|intent| all.push(attr_regions(&intent)));
    all
}

fn decode(regions: &[Vec<u8>]) -> Verdict<Intent<'_>> {
    decode_with(&Geometry::of_tests(), regions)
}

fn decode_with<'a>(geometry: &Geometry, regions: &'a [Vec<u8>]) -> Verdict<Intent<'a>> {
    decode_intent(&IntentRules { geometry: Some(geometry), logged_attrs: true }, regions)
}

fn refuses(regions: &[Vec<u8>], check: &str) {
    match decode(regions) {
        Err(corruption) => assert_eq!(corruption.check, check, "{corruption}"),
        Ok(intent) => panic!("{intent:?} was accepted in spite of \"{check}\""),
    }
}

#[test]
fn every_intent_is_found_again() {
    let extents = [extent(0, 10, 1), extent(3, 9_999, 1)];
    let regions = [extent_free::encode_intent(1, &extents)];
    assert_eq!(decode(&regions), Ok(Intent::ExtentFree(ExtentFreeIntent { id: 1, extents: extents.to_vec() })));
    let verbs = [
        RmapVerb::Map,
        RmapVerb::MapShared,
        RmapVerb::Unmap,
        RmapVerb::UnmapShared,
        RmapVerb::Convert,
        RmapVerb::ConvertShared,
        RmapVerb::Alloc,
        RmapVerb::Free,
    ];
    let updates = verbs.map(|verb| update(verb, 131)).to_vec();
    let regions = [rmap::encode_intent(2, &updates)];
    assert_eq!(decode(&regions), Ok(Intent::Rmap(RmapIntent { id: 2, updates })));
    let verbs = [RefcountVerb::Increase, RefcountVerb::Decrease, RefcountVerb::AllocCow, RefcountVerb::FreeCow];
    let updates = verbs.map(|verb| RefcountUpdate { verb, extent: extent(2, 50, 60) }).to_vec();
    let regions = [refcount::encode_intent(3, &updates)];
    assert_eq!(decode(&regions), Ok(Intent::Refcount(RefcountIntent { id: 3, updates })));
    assert_eq!(decode(&[bmap::encode_intent(&map())]), Ok(Intent::Bmap(map())));
    assert_eq!(decode(&[exchange::encode_intent(&exchange())]), Ok(Intent::Exchange(exchange())));
    with_attrs(|intent| {
        assert_eq!(decode(&attr_regions(&intent)), Ok(Intent::Attr(intent)));
    });
}

#[test]
fn extents_of_machines_with_short_words_are_understood() {
    let mut region = extent_free::encode_intent(1, &[]);
    region[4] = 2;
    for (block, count) in [(20u64, 3u32), (40, 5)] {
        region.extend_from_slice(&block.to_le_bytes());
        region.extend_from_slice(&count.to_le_bytes());
    }
    let extents = vec![extent(0, 20, 3), extent(0, 40, 5)];
    assert_eq!(decode(&[region]), Ok(Intent::ExtentFree(ExtentFreeIntent { id: 1, extents })));
}

#[test]
fn done_items_name_their_intents() {
    let extents = [extent(0, 10, 1)];
    assert_eq!(decode_done(&[extent_free::encode_done(5, &extents)]), Ok(5));
    for kind in [item_type::RUD, item_type::CUD, item_type::BUD, item_type::ATTRD, item_type::XMD] {
        assert_eq!(decode_done(&[encode_done(kind, 6)]), Ok(6));
        assert!(decode_done(&[&encode_done(kind, 6)[..12]]).is_err());
        let intent = intent_type(kind).unwrap();
        assert_eq!(done_type(intent), Some(kind));
    }
    assert!(decode_done(&[&extent_free::encode_done(5, &extents)[..20]]).is_err());
    assert!(decode_done(&[encode_done(item_type::EFI, 6)]).is_err());
    assert!(decode_done::<&[u8]>(&[]).is_err());
}

#[test]
fn cut_regions_and_huge_counts_are_refused() {
    assert!(decode(&[]).is_err());
    for regions in all() {
        for (index, region) in regions.iter().enumerate() {
            for length in (0..region.len()).step_by(4) {
                let mut cut = regions.clone();
                cut[index].truncate(length);
                assert!(decode(&cut).is_err(), "{length} of {} bytes", region.len());
            }
            let mut fewer = regions.clone();
            fewer.remove(index);
            assert!(decode(&fewer).is_err());
            let mut more = regions.clone();
            more.insert(index, region.clone());
            assert!(decode(&more).is_err());
        }
    }
    for index in 0..4 {
        for count in [0u32, 3, 1 << 28, u32::MAX] {
            let mut regions = all().swap_remove(index);
            regions[0][4..8].copy_from_slice(&count.to_le_bytes());
            refuses(&regions, "length");
        }
    }
}

#[test]
fn no_mutation_panics() {
    let mut seed = 7u64;
    for regions in all() {
        for _ in 0..3000 {
            let mut mutated = regions.clone();
            for _ in 0..1 + seed % 3 {
                seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                let region = (seed >> 33) as usize % mutated.len();
                let at = (seed >> 40) as usize % mutated[region].len().max(1);
                mutated[region][at] = (seed >> 20) as u8;
            }
            let _ = decode(&mutated);
        }
    }
}

#[test]
fn what_cannot_be_is_refused() {
    for (block, count) in [(0, 1), (10, 0), (9_999, 2), (10_000, 1), (10, u32::MAX)] {
        let bad = FsExtent { block: FsBlock(block), count };
        let check = "blocks within one AG behind its headers";
        refuses(&[extent_free::encode_intent(1, &[bad])], check);
        refuses(&[refcount::encode_intent(1, &[RefcountUpdate { verb: RefcountVerb::Increase, extent: bad }])], check);
        if count > 0 && count < 9 {
            refuses(&[bmap::encode_intent(&BmapIntent { extent: bad, ..map() })], check);
        }
    }
    let rmap_of = |update: RmapUpdate| [rmap::encode_intent(1, &[update])];
    refuses(&rmap_of(update(RmapVerb::Map, rmap_owner::NULL)), "owner");
    refuses(&rmap_of(update(RmapVerb::Map, rmap_owner::COW - 1)), "owner");
    refuses(&rmap_of(update(RmapVerb::Map, 1 << 40)), "inode within an AG");
    refuses(&rmap_of(update(RmapVerb::Map, 0)), "inode within an AG");
    let far = RmapUpdate { offset: FileBlock((1 << 54) - 3), ..update(RmapVerb::Map, 131) };
    refuses(&rmap_of(far), "range of fork blocks");
    for (word, check) in [(9u32, "kind of update"), (0, "kind of update"), (1 | 1 << 28, "flags")] {
        let mut regions = rmap_of(update(RmapVerb::Map, 131));
        regions[0][44..48].copy_from_slice(&word.to_le_bytes());
        refuses(&regions, check);
    }
    refuses(&[exchange::encode_intent(&ExchangeIntent { flags: 1 << 5, ..exchange() })], "flags");
    refuses(&[exchange::encode_intent(&ExchangeIntent { sizes: [0, 1 << 63], ..exchange() })], "size of a file");
    refuses(&[exchange::encode_intent(&ExchangeIntent { count: 1 << 54, ..exchange() })], "range of fork blocks");
    let many = vec![extent(0, 10, 1); 65];
    refuses(&[extent_free::encode_intent(1, &many)], "at most 64 records");
}

#[test]
fn attributes_that_cannot_be_are_refused() {
    let one = |change: &dyn Fn(&mut AttrIntent<'_>), check: &str| {
        let mut first = true;
        with_attrs(|intent| {
            if std::mem::take(&mut first) {
                let mut intent = intent;
                change(&mut intent);
                refuses(&attr_regions(&intent), check);
            }
        });
    };
    let long = [b'x'; 256];
    one(&|intent| intent.name = b"a\0b", "characters of a name");
    one(&|intent| intent.namespace = flags::ROOT | flags::SECURE, "name space");
    one(&|intent| intent.namespace = flags::PARENT, "name space of the verb");
    one(&|intent| intent.verb = AttrVerb::SetParent, "name space of the verb");
    one(&|intent| intent.verb = AttrVerb::Remove, "length of the value");
    one(&|intent| intent.inode = InodeNumber(1 << 50), "inode within an AG");
    let mut regions = Vec::new();
    with_attrs(|intent| {
        if intent.verb == AttrVerb::SetParent {
            regions.push(attr_regions(&AttrIntent { name: b"a/b", ..intent }));
            regions.push(attr_regions(&AttrIntent { value: &parent(1 << 45), ..intent }));
            regions.push(attr_regions(&AttrIntent { value: b"short", ..intent }));
            regions.push(attr_regions(&AttrIntent { name: &long, ..intent }));
        }
    });
    let checks = ["characters of a name", "inode within an AG", "length of the value", "length of a name"];
    for (regions, check) in regions.iter().zip(checks) {
        refuses(regions, check);
    }
}

#[test]
fn an_image_without_the_feature_has_no_such_intents() {
    let bare = Geometry { incompat: Incompat::empty(), ro_compat: RoCompat::empty(), ..Geometry::of_tests() };
    for (index, regions) in all().iter().enumerate() {
        let refused = decode_intent(&IntentRules { geometry: Some(&bare), logged_attrs: false }, regions).is_err();
        // Extent-free intents and extent map intents need no feature.
        assert_eq!(refused, ![0, 3].contains(&index), "{index}");
    }
}
