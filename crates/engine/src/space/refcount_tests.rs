//! Queries of shared blocks against a count of every block.

use super::refcount::{decrease_some, increase_some, shared_part};
use super::{AllocRequest, Near, Owner, allocate};
use crate::incore::ForkKind;
use crate::test_image::{Random, TestImage, transact};
use crate::trans::Transaction;
use xfskit_ondisk::{AgNumber, FileBlock, FsBlock, InodeNumber};

const BLOCKS: usize = 3000;

#[test]
fn the_first_shared_run_is_found_among_others() {
    let image = TestImage::new(64, &[('b', "size=1024"), ('d', "agcount=2"), ('m', "rmapbt=0")]);
    let mount = image.mount();
    let owner = Owner::Fork { inode: InodeNumber(1000), fork: ForkKind::Data, offset: FileBlock(0), bmbt: false };
    let request = AllocRequest::new(Near::Ag(AgNumber(1)), BLOCKS as u32, BLOCKS as u32, owner);
    let (first, _) = transact(&mount, BLOCKS as u64, |tx| allocate(tx, &request)).unwrap().expect("space");
    let mut random = Random::new(5);
    let mut references = [1u32; BLOCKS];
    let mut seen = [0; 2];
    for _ in 0..1500 {
        let start = random.below(BLOCKS as u64 - 100) as usize;
        let count = 1 + random.below(12) as usize;
        let block = FsBlock(first.0 + start as u64);
        let range = start..start + count;
        if references[range.clone()].iter().all(|&references| references > 1) && random.below(2) == 0 {
            let done = transact(&mount, 40, |tx| decrease_some(tx, block, count as u32)).unwrap() as usize;
            references[start..start + done].iter_mut().for_each(|references| *references -= 1);
        } else {
            let done = transact(&mount, 40, |tx| increase_some(tx, block, count as u32)).unwrap() as usize;
            references[start..start + done].iter_mut().for_each(|references| *references += 1);
        }
        let start = random.below(BLOCKS as u64 - 100) as usize;
        let asked = &references[start..start + 1 + random.below(20) as usize];
        let expected = asked.iter().position(|&references| references > 1).map(|at| {
            let run = asked[at..].iter().take_while(|&&references| references > 1).count();
            (at as u32, run as u32)
        });
        let mut tx = Transaction::read_only(&mount);
        let found = shared_part(&mut tx, FsBlock(first.0 + start as u64), asked.len() as u32).unwrap();
        assert_eq!(found, expected);
        seen[usize::from(found.is_some())] += 1;
    }
    assert!(seen.iter().all(|&times| times > 100), "{seen:?}");
}
