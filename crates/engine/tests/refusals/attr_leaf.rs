//! What a leaf of attributes says of its free space, after any additions and removals: what the kernel's would say. The
//! kernel finds room by it, and gives up where the leaf says that there is none.

use crate::attr_plans::{Step, on_both};
use crate::shapes::{OLD, file};
use crate::stress::{Image, Random};
use xfskit_ondisk::InodeNumber;
use xfskit_testkit::copy_image;

/// A plan that adds attributes to a leaf and removes some, and never shrinks the leaf into the inode: attribute 0 is
/// too large for that. All that it ever adds has room beside each other, so the leaf is never packed: when to pack it
/// is for each to decide.
fn plan(seed: u64, most: usize) -> Vec<Step> {
    let (mut random, mut steps) = (Random::new(seed), vec![(0, Some(300))]);
    let (mut there, mut added) = (Vec::new(), 400);
    while added < 3200 {
        if there.is_empty() || random.below(5) < 3 {
            let bytes = random.below(most);
            there.push(steps.len());
            steps.push((steps.len(), Some(bytes)));
            added += bytes + 30;
        } else {
            // Now and then the newest, whose name and value lie first.
            let at = if random.one_in(3) { there.len() - 1 } else { random.below(there.len()) };
            steps.push((there.remove(at), None));
        }
    }
    steps
}

#[test]
fn a_leaf_says_of_its_free_space_what_the_kernels_says() {
    let image = Image::new(64, OLD);
    let fs = image.open();
    let plans: Vec<_> = (0..120).map(|seed| plan(seed, [40, 150, 400][seed as usize % 3])).collect();
    let names: Vec<_> = (0..plans.len()).map(|number| format!("file {number}")).collect();
    let inodes: Vec<InodeNumber> = names.iter().map(|name| file(&fs, name)).collect();
    fs.unmount().unwrap();
    let copy = image.path.with_extension("kernel");
    copy_image(&image.path, &copy);
    let todo: Vec<_> = names.iter().zip(&plans).map(|(name, plan)| (&**name, &**plan)).collect();
    let Some(reference) = on_both(&image, &copy, &todo) else { return };
    for (inode, plan) in inodes.into_iter().zip(&plans) {
        let inode = format!("inode {inode}");
        // The header's numbers, and the free runs in the order of their places: ours may be listed in another.
        let leaf = |image| {
            let print = "print hdr.count hdr.usedbytes hdr.firstused hdr.holes hdr.freemap";
            let printed = reference.db(image, &[&inode, "ablock 0", print]);
            let (numbers, runs) = printed.split_at(printed.find("hdr.freemap").expect("the runs are printed"));
            let mut runs: Vec<_> = runs
                .split(['[', ']'])
                .filter_map(|run| run.split_once(','))
                .filter_map(|(base, bytes)| Some((base.parse::<u32>().ok()?, bytes.parse::<u32>().ok()?)))
                .filter(|(_, bytes)| *bytes > 0)
                .collect();
            runs.sort();
            (numbers.to_owned(), runs)
        };
        assert_eq!(leaf(&image.path), leaf(&copy), "{inode}: {plan:?}");
    }
}

/// The kernel splits a leaf and joins two where we do, but for a block more or less.
#[test]
fn a_tree_that_shrinks_gives_back_as_many_leaves_as_the_kernels() {
    let image = Image::new(64, OLD);
    let fs = image.open();
    let mut plans: Vec<Vec<Step>> = Vec::new();
    for (seed, keep) in [1, 2, 3, 4, 6, 10, 30].into_iter().enumerate() {
        let mut random = Random::new(seed as u64);
        let mut steps: Vec<Step> = (0..400).map(|number| (number, Some(60 + random.below(120)))).collect();
        let mut gone: Vec<usize> = (0..400).filter(|number| number % keep != 0).collect();
        while !gone.is_empty() {
            steps.push((gone.swap_remove(random.below(gone.len())), None));
        }
        plans.push(steps);
    }
    let names: Vec<_> = (0..plans.len()).map(|number| format!("file {number}")).collect();
    let inodes: Vec<InodeNumber> = names.iter().map(|name| file(&fs, name)).collect();
    fs.unmount().unwrap();
    let copy = image.path.with_extension("kernel");
    copy_image(&image.path, &copy);
    let todo: Vec<_> = names.iter().zip(&plans).map(|(name, plan)| (&**name, &**plan)).collect();
    let Some(reference) = on_both(&image, &copy, &todo) else { return };
    for inode in inodes {
        let [ours, kernels] = [&image.path, &copy].map(|image| {
            let printed = reference.db(image, &[&format!("inode {inode}"), "print core.nblocks"]);
            let number = printed.trim().strip_prefix("core.nblocks = ").and_then(|number| number.parse::<i64>().ok());
            number.unwrap_or_else(|| panic!("{printed}"))
        });
        assert!((ours - kernels).abs() <= 1, "inode {inode}: {ours} blocks, and {kernels} of the kernel's");
    }
}
