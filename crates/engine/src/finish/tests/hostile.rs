//! Intents that make no sense: an error, and nothing else.

use super::*;
use xfskit_ondisk::log_items::{
    AttrIntent, AttrVerb, BmapIntent, BmapVerb, ExchangeIntent, RefcountUpdate, RefcountVerb, RmapUpdate, RmapVerb,
    bmap as bui, exchange as xmi, extent_free as efi, refcount as cui, rmap as rui,
};

const ARGUMENTS: &[(char, &str)] = &[('d', "agcount=2")];

/// The result of recovering a scene's intents.
fn outcome(work: &dyn Fn(&mut Scene)) -> Result<()> {
    let device = Arc::new(MemoryDevice::from_bytes(crash(ARGUMENTS, work)));
    let first = open(&device).map(|_| ());
    if let Err(error) = &first {
        // Nothing was finished by half: the next mount reports the same error.
        let again = open(&device).err().map(|error| error.to_string());
        assert_eq!(again, Some(error.to_string()));
    }
    first
}

/// The error names the check, and which intent of which kind led to it.
fn refused(kind: &str, check: &str, work: &dyn Fn(&mut Scene)) {
    match outcome(work) {
        Err(Error::Corrupt(corruption)) => {
            assert_eq!(corruption.check, check, "{corruption}");
            assert!(corruption.found.contains(&format!("{kind} intent 0x77, log cycle 1 block ")), "{corruption}");
        }
        other => panic!("{other:?} in spite of \"{check}\""),
    }
}

fn change(scene: &Scene, verb: BmapVerb, block: FsBlock) -> BmapIntent {
    let inode = scene.inodes[0];
    let offset = FileBlock(3);
    BmapIntent { id: 0x77, verb, inode, extent: extent(block, 4), offset, attr_fork: false, unwritten: false }
}

#[test]
fn what_the_trees_contradict_is_refused() {
    refused("extent-free", "blocks freed by an intent have one owner or none", &|scene| {
        let block = scene.write(0, 0, 4);
        scene.log(efi::encode_intent(0x77, &[extent(FsBlock(block.0 + 2), 5)]));
    });
    refused("reverse mapping", "freed blocks belong to their owner", &|scene| {
        let block = scene.write(0, 0, 4);
        let update = RmapUpdate {
            verb: RmapVerb::Unmap,
            owner: scene.inodes[1].0,
            extent: extent(block, 4),
            offset: FileBlock(0),
            attr_fork: false,
            unwritten: false,
        };
        scene.log(rui::encode_intent(0x77, &[update]));
    });
    refused("reference count", "blocks that leave staging are staged", &|scene| {
        let block = scene.write(0, 0, 4);
        let update = RefcountUpdate { verb: RefcountVerb::FreeCow, extent: extent(block, 4) };
        scene.log(cui::encode_intent(0x77, &[update]));
    });
    refused("extent map", "maps the blocks that are unmapped", &|scene| {
        let block = scene.write(0, 3, 4);
        scene.log(bui::encode_intent(&change(scene, BmapVerb::Unmap, FsBlock(block.0 + 1))));
    });
    refused("extent map", "blocks are mapped into a hole", &|scene| {
        let block = scene.write(0, 5, 4);
        scene.log(bui::encode_intent(&change(scene, BmapVerb::Map, block)));
    });
    refused("extent map", "is mapped by extents", &|scene| {
        let block = scene.blocks(4);
        scene.log(bui::encode_intent(&BmapIntent { attr_fork: true, ..change(scene, BmapVerb::Map, block) }));
    });
}

#[test]
fn inodes_that_are_gone_are_named() {
    refused("extent map", "an inode that an intent names is in use", &|scene| {
        let block = scene.blocks(4);
        let inode = InodeNumber(scene.inodes[1].0 + 9);
        scene.log(bui::encode_intent(&BmapIntent { inode, ..change(scene, BmapVerb::Map, block) }));
    });
    refused("exchange", "an inode that an intent names has the generation it had then", &|scene| {
        let generations = [0, 1].map(|side| scene.tx.inode(scene.inos[side]).core.generation);
        let intent = ExchangeIntent {
            id: 0x77,
            inodes: [scene.inodes[0], scene.inodes[1]],
            generations: [generations[0], generations[1].wrapping_add(1)],
            offsets: [FileBlock(0); 2],
            count: 5,
            flags: 0,
            sizes: [0; 2],
        };
        scene.log(xmi::encode_intent(&intent));
    });
    refused("attribute", "announced in the superblock's log features", &|scene| {
        let intent = AttrIntent {
            id: 0x77,
            verb: AttrVerb::Set,
            inode: scene.inodes[0],
            generation: 0,
            namespace: 0,
            name: b"a",
            value: b"b",
            new_name: &[],
            new_value: &[],
        };
        let mut regions = Vec::new();
        intent.encode(|region| {
            let mut region = region.to_vec();
            region.resize(region.len().next_multiple_of(4), 0);
            regions.push(region);
        });
        scene.log_regions(&regions);
    });
}

#[test]
fn mutated_intents_end_in_an_error_at_most() {
    let mut seed = 11u64;
    let mut next = move |limit: usize| {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (seed >> 33) as usize % limit
    };
    for round in 0..60 {
        let (place, byte, value) = (next(5), next(88), next(256) as u8);
        let small = next(2) == 0;
        let _ = outcome(&|scene| {
            let block = scene.write(0, 3, 4);
            scene.write(1, 0, 6);
            let owner = scene.inodes[0].0;
            let update = RmapUpdate {
                verb: RmapVerb::Unmap,
                owner,
                extent: extent(block, 4),
                offset: FileBlock(3),
                attr_fork: false,
                unwritten: false,
            };
            let generations = [0, 1].map(|side| scene.tx.inode(scene.inos[side]).core.generation);
            let exchange = ExchangeIntent {
                id: 0x77,
                inodes: [scene.inodes[0], scene.inodes[1]],
                generations,
                offsets: [FileBlock(0); 2],
                count: 9,
                flags: 0,
                sizes: [0; 2],
            };
            let mut region = match place {
                0 => efi::encode_intent(0x77, &[extent(block, 4)]),
                1 => rui::encode_intent(0x77, &[update]),
                2 => {
                    let verb = RefcountVerb::Decrease;
                    cui::encode_intent(0x77, &[RefcountUpdate { verb, extent: extent(block, 4) }])
                }
                3 => bui::encode_intent(&change(scene, BmapVerb::Unmap, block)),
                _ => xmi::encode_intent(&exchange),
            };
            // A small change passes the first checks more often.
            let at = 16 + byte % (region.len() - 16);
            region[at] = if small { region[at] ^ (1 << (value % 8)) } else { value };
            let _ = round;
            scene.log(region);
        });
    }
}
