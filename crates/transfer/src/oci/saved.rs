//! An image in an archive of `docker save`, which skopeo and podman call `docker-archive`.
//!
//! ```text
//! manifest.json     images: names, the path of the config, paths of the layers, the lowest first
//! HEX.json          a config, with the digests of the unpacked layers
//! HEX/layer.tar     a layer, or a link to that of another image; also HEX.tar, blobs/sha256/HEX
//! ```
//! Facts: moby's image/tarexport, containers/image's docker/internal/tarfile.

use super::blob::Blobs;
use super::documents::{Config, Saved};
use super::{ContainerImage, Layer, Platform};
use crate::error::Result;
use std::path::Path;

const MANIFEST: &str = "manifest.json";

impl ContainerImage {
    /// Finds the image in an archive of `docker save`, or in a folder with its contents: the one of this name, or the
    /// only one. `platform` refuses one that is for another system.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_saved(archive: &Path, name: Option<&str>, platform: Option<&Platform>) -> Result<Self> {
        let blobs = Blobs::new(archive)?;
        if !blobs.has(MANIFEST) {
            let what = match blobs.has("index.json") {
                true => "there is no such file: it is an OCI layout, which oci: reads",
                false => "there is no such file: it is no archive of docker save",
            };
            return Err(blobs.bad(MANIFEST, what.into()));
        }
        let images: Vec<Saved> = blobs.document(MANIFEST)?;
        let image = choose(&blobs, images, name)?;
        let config: Config = blobs.document(&image.config)?;
        if let Some(wanted) = platform {
            let own = config.platform();
            if !own.as_ref().is_some_and(|own| own.is(wanted)) {
                let own = own.map_or_else(|| "none is named".into(), |own| own.to_string());
                return Err(blobs.bad(&image.config, format!("there is no image for that platform: {own}")));
            }
        }
        let unpacked = config.rootfs.diff_ids;
        if unpacked.len() != image.layers.len() {
            let (layers, ids) = (image.layers.len(), unpacked.len());
            let what = format!("the image has {layers} layers, and its config has {ids} (rootfs.diff_ids)");
            return Err(blobs.bad(&image.config, what));
        }
        let layers = image.layers.into_iter().map(|part| Layer { part, descriptor: None }).collect();
        Ok(Self { blobs, layers, unpacked })
    }
}

/// The image of a name, or the only one.
fn choose(blobs: &Blobs, images: Vec<Saved>, name: Option<&str>) -> Result<Saved> {
    let tags = |image: &Saved| image.repo_tags.clone().unwrap_or_default();
    let names: Vec<String> = images.iter().flat_map(tags).collect();
    let listed =
        if names.is_empty() { "no image has a name".to_owned() } else { format!("it has {}", names.join(", ")) };
    // A name without a tag stands for the latest.
    let is_it = |image: &Saved| {
        let latest = name.map(|name| format!("{name}:latest"));
        tags(image).iter().any(|tag| Some(tag.as_str()) == name || Some(tag) == latest.as_ref())
    };
    let chosen: Vec<Saved> = images.into_iter().filter(|image| name.is_none() || is_it(image)).collect();
    match <[Saved; 1]>::try_from(chosen) {
        Ok([image]) => Ok(image),
        Err(found) => Err(blobs.bad(
            MANIFEST,
            match (found.is_empty(), name) {
                (true, Some(name)) => format!("there is no image of the name {name}: {listed}"),
                (true, None) => "there is no image in it".into(),
                _ => format!("there are several images; choose one by docker-archive:FILE:NAME: {listed}"),
            },
        )),
    }
}
