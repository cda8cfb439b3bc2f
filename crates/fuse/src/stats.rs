//! The figures of a mount, as JSON.

use crate::server::Server;
use serde_json::{Map, Value, json};
use xfskit_engine::Volume;
use xfskit_fuse_session::Counters;

/// The figures: counts since the mount, and current use.
pub(crate) fn stats(filesystem: &Volume, server: &Server) -> String {
    let (failures, requests, sandbox) = (server.commit_failures(), server.requests(), server.sandbox());
    let waited = requests.map_or(0, Counters::waited);
    let followed = requests.map_or(0, Counters::followed);
    let requests: Map<String, Value> = requests
        .map(Counters::list)
        .unwrap_or_default()
        .into_iter()
        .map(|(name, count)| (name.to_owned(), count.into()))
        .collect();
    let counters: Map<String, Value> =
        filesystem.counters().list().into_iter().map(|(name, count)| (name.to_owned(), count.into())).collect();
    let (usage, space, options) = (filesystem.usage(), filesystem.statfs(), filesystem.options());
    json!({
        "counters": counters,
        "requests": requests,
        "waiting": { "requests": waited },
        "followed": { "requests": followed },
        "log": { "used_bytes": usage.log_used_bytes, "size_bytes": usage.log_bytes },
        "cache": {
            "buffer_bytes": usage.buffer_bytes,
            "limit_bytes": options.cache_bytes,
            "inodes": usage.inodes,
        },
        "space": {
            "block_bytes": space.block_bytes,
            "blocks": space.blocks,
            "free_blocks": space.free_blocks,
            "inodes": space.inodes,
            "free_inodes": space.free_inodes,
        },
        "sandbox": { "in_force": sandbox },
        "commits": { "failed": failures.count, "last_error": failures.last },
        "state": {
            "shut_down": filesystem.shutdown_reason().unwrap_or_default(),
            "refused_writes": server.refused(),
        },
        "options": {
            "read_only": options.read_only,
            "wsync": options.wsync,
            "whiteouts": options.whiteouts,
            "attr_path": format!("{:?}", options.attr_path).to_lowercase(),
            "known_absent": options.known_absent,
            "attr_logging": filesystem.attr_logging().name(),
        },
    })
    .to_string()
}
