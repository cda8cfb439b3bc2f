//! The figures of a mount, as JSON.

use crate::server::{Servable, Server};
use serde_json::{Map, Value, json};
use xfskit_fuse_session::Counters;
use xfskit_vfs::{Figure, Figures, Result};

fn object(figures: Figures) -> Map<String, Value> {
    let value = |figure| match figure {
        Figure::Count(count) => count.into(),
        Figure::Flag(flag) => flag.into(),
        Figure::Text(text) => text.into(),
    };
    figures.into_iter().map(|(name, figure)| (name.to_owned(), value(figure))).collect()
}

/// The figures: counts since the mount, and current use.
pub(crate) fn stats<V: Servable>(filesystem: &V, server: &Server<V>) -> Result<String> {
    let (failures, requests, sandbox) = (server.commit_failures(), server.requests(), server.sandbox());
    let waited = requests.map_or(0, Counters::waited);
    let followed = requests.map_or(0, Counters::followed);
    let requests: Map<String, Value> = requests
        .map(Counters::list)
        .unwrap_or_default()
        .into_iter()
        .map(|(name, count)| (name.to_owned(), count.into()))
        .collect();
    let (own, space) = (filesystem.statistics(), filesystem.statfs()?);
    let figures = json!({
        "counters": object(own.counters),
        "requests": requests,
        "waiting": { "requests": waited },
        "followed": { "requests": followed },
        "log": object(own.log),
        "cache": object(own.cache),
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
        "options": object(own.options),
    });
    Ok(figures.to_string())
}
