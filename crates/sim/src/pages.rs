//! Contents of a device as pages that states share until one of them changes its own.

use std::sync::{Arc, LazyLock};
use xfskit_engine::hash::NumberMap;

/// Bytes of a page.
pub const PAGE_BYTES: usize = 4096;
/// The unit that a device writes as a whole.
pub const SECTOR_BYTES: usize = 512;

/// Contents of the device where nothing was written. They are not zeros, so that a read of a block that was never
/// written is noticed.
static STALE: [u8; PAGE_BYTES] = [0xdb; PAGE_BYTES];
/// The shared page of zeros.
static ZEROS: LazyLock<Arc<[u8; PAGE_BYTES]>> = LazyLock::new(|| Arc::new([0; PAGE_BYTES]));

/// Contents by page number; a page that is missing was never written. Pages are shared until one of their owners
/// changes them.
pub type Pages = NumberMap<u64, Arc<[u8; PAGE_BYTES]>>;

/// Copies `bytes` into pages at `offset`.
pub fn write_pages(pages: &mut Pages, base: Option<&Pages>, offset: u64, bytes: &[u8]) {
    let mut at = 0;
    while at < bytes.len() {
        let position = offset + at as u64;
        let (page, within) = (position / PAGE_BYTES as u64, (position % PAGE_BYTES as u64) as usize);
        let count = (PAGE_BYTES - within).min(bytes.len() - at);
        let page = pages
            .entry(page)
            .or_insert_with(|| base.and_then(|base| base.get(&page)).cloned().unwrap_or_else(|| Arc::new(STALE)));
        Arc::make_mut(page)[within..within + count].copy_from_slice(&bytes[at..at + count]);
        at += count;
    }
}

/// Lets pages of zeros share their memory.
pub fn share_zeros(pages: &mut Pages) {
    pages.values_mut().filter(|page| ***page == **ZEROS).for_each(|page| *page = Arc::clone(&ZEROS));
}

/// Whether a page is the shared page of zeros.
pub fn is_shared_zero(page: &Arc<[u8; PAGE_BYTES]>) -> bool {
    Arc::ptr_eq(page, &ZEROS)
}

/// The contents of a page: from `own`, else from `base`, else stale bytes.
pub fn page_of<'a>(own: &'a Pages, base: &'a Pages, page: u64) -> &'a [u8; PAGE_BYTES] {
    own.get(&page).or_else(|| base.get(&page)).map_or(&STALE, AsRef::as_ref)
}
