//! A container image in a folder of the OCI image layout, or in an archive of one, as a source:
//! its layers in order, whiteouts applied.
//!
//! ```text
//! DIR/oci-layout
//! DIR/index.json               images, by name or platform      ─┐
//! DIR/blobs/sha256/HEX         an index, for several platforms   ├▶ manifest ─▶ layers, the lowest first
//!                              a manifest, a layer, ...         ─┘
//! ```
//! Each part names the next by its digest and its size. All are verified before the first file of the image is made, so
//! that an image whose parts do not fit is not made in part. As the OCI image specification has it (image-layout.md,
//! descriptor.md, image-index.md, manifest.md, config.md, layer.md); Docker's media types of the same things are taken
//! as well.

mod blob;
mod documents;
mod saved;

use crate::archive::{TarSource, unpacked};
use crate::error::{Losses, Result, TransferError};
use crate::event::OverLinks;
use crate::pipe::{Outlet, Source};
use crate::whiteout::Whiteouts;
use blob::Blobs;
use documents::{Config, Descriptor, Index, Manifest, Marker, is_config, is_index, is_layer, is_manifest};
use std::path::Path;

/// An annotation by which an image in a layout has a name.
const NAME: &str = "org.opencontainers.image.ref.name";
/// Indexes within indexes, of which real images have one.
const MAX_DEPTH: usize = 4;
/// Most images in all indexes of a layout that are looked at: an index may name one that names it again.
const MAX_IMAGES: usize = 50_000;

/// The system that an image is for: `OS/ARCHITECTURE` or `OS/ARCHITECTURE/VARIANT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Platform {
    os: String,
    architecture: String,
    variant: Option<String>,
}

impl std::str::FromStr for Platform {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts: Vec<&str> = text.split('/').collect();
        let (os, architecture, variant) = match parts.as_slice() {
            [os, architecture] => (os, architecture, None),
            [os, architecture, variant] => (os, architecture, Some((*variant).to_owned())),
            _ => return Err("expected a platform such as linux/amd64 or linux/arm/v7".into()),
        };
        if parts.iter().any(|part| part.is_empty()) {
            return Err("expected a platform such as linux/amd64 or linux/arm/v7".into());
        }
        Ok(Self { os: (*os).to_owned(), architecture: (*architecture).to_owned(), variant })
    }
}

/// A container image in a layout or an archive.
#[derive(Debug)]
pub struct ContainerImage {
    blobs: Blobs,
    layers: Vec<Layer>,
    /// The digests of the unpacked layers, if the image's config is there and has them.
    unpacked: Vec<String>,
}

/// A layer.
#[derive(Debug)]
struct Layer {
    /// Its path in the folder or the archive.
    part: String,
    /// What is said of it where it is named; `docker save` gives no more than the path.
    descriptor: Option<Descriptor>,
}

impl ContainerImage {
    /// Finds the image in a layout: the one of this name, or the only one. `platform` chooses where it is there for
    /// several. The manifest is verified, the layers are not ([`Self::verify_layers`]).
    ///
    /// # Errors
    /// `Host` for a file that cannot be read, `BadContainer` for one that is not what was expected, and for a choice
    /// that is missing: it lists what there is.
    pub fn open(layout: &Path, name: Option<&str>, platform: Option<&Platform>) -> Result<Self> {
        let blobs = Blobs::new(layout)?;
        let marker: Marker = blobs.document("oci-layout")?;
        if marker.version.split('.').next() != Some("1") {
            return Err(blobs.bad("oci-layout", format!("a layout of the unknown version {}", marker.version)));
        }
        let index: Index = blobs.document("index.json")?;
        let named = choose_by_name(&blobs, index.manifests, name)?;
        let manifest = choose_by_platform(&blobs, named, platform)?;
        let text = blobs.read(&manifest)?;
        let manifest: Manifest = blobs.parse(&manifest.digest, &text)?;
        if let Some(other) = manifest.layers.iter().find(|layer| !is_layer(&layer.media_type)) {
            let what = format!("a layer of the type {}, which is no tar stream", other.media_type);
            return Err(blobs.bad(&other.digest, what));
        }
        let unpacked = read_config(&blobs, &manifest)?.unwrap_or_default().rootfs.diff_ids;
        if !unpacked.is_empty() && unpacked.len() != manifest.layers.len() {
            let (layers, ids) = (manifest.layers.len(), unpacked.len());
            let what = format!("it has {layers} layers, and its config has {ids} (rootfs.diff_ids)");
            return Err(blobs.bad("the image's manifest", what));
        }
        let layer = |descriptor: Descriptor| -> Result<Layer> {
            Ok(Layer { part: blobs.path_below(&descriptor.digest)?, descriptor: Some(descriptor) })
        };
        let layers = manifest.layers.into_iter().map(layer).collect::<Result<_>>()?;
        Ok(Self { blobs, layers, unpacked })
    }

    /// Reads all layers and compares them with their digests and sizes, and what is in them with the digests that the
    /// image's config has.
    ///
    /// # Errors
    /// `Host`, `BadContainer`.
    pub fn verify_layers(&self) -> Result<()> {
        self.layers.iter().flat_map(|layer| &layer.descriptor).try_for_each(|layer| self.blobs.verify(layer))?;
        let mut pairs = self.layers.iter().zip(&self.unpacked);
        pairs.try_for_each(|(layer, expected)| self.blobs.verify_unpacked(&layer.part, expected))
    }

    /// The layers as a source.
    pub fn source(&self) -> ContainerSource<'_> {
        ContainerSource { image: self, losses: Losses::default() }
    }

    /// Whether a file is part of the layout that not all users may read.
    pub fn blob_paths(&self) -> impl Iterator<Item = std::path::PathBuf> + '_ {
        self.layers.iter().map(|layer| self.blobs.host_path(&layer.part))
    }
}

/// The layers of a container image, one over the other.
pub struct ContainerSource<'a> {
    image: &'a ContainerImage,
    losses: Losses,
}

impl Source for ContainerSource<'_> {
    fn send(&mut self, out: &mut Outlet) -> Result<()> {
        for layer in &self.image.layers {
            out.begin_layer(Whiteouts::Hide, OverLinks::Replaces)?;
            let shown = self.image.blobs.shown(layer.descriptor.as_ref().map_or(&layer.part, |layer| &layer.digest));
            let host = |source| TransferError::Host { path: shown.clone(), what: "reading it", source };
            let stream = unpacked(self.image.blobs.open(&layer.part)?.0).map_err(host)?;
            let mut tar = TarSource::new(stream).named(shown.clone()).of_a_layer();
            let sent = tar.send(out);
            // Its digest says that it was not cut short.
            let losses = Losses { unmarked: Default::default(), ..tar.losses() };
            self.losses = std::mem::take(&mut self.losses).and(losses);
            sent?;
        }
        Ok(())
    }

    fn losses(&self) -> Losses {
        self.losses.clone()
    }
}

/// The config of an image, verified; `None` where there is none, as for what is no container.
fn read_config(blobs: &Blobs, manifest: &Manifest) -> Result<Option<Config>> {
    match manifest.config.as_ref().filter(|config| is_config(&config.media_type)) {
        Some(config) if blobs.has(&blobs.path_below(&config.digest)?) => {
            Ok(Some(blobs.parse(&config.digest, &blobs.read(config)?)?))
        }
        _ => Ok(None),
    }
}

/// The images of a layout that have a name, or all without one. Several of one name are for several platforms.
fn choose_by_name(blobs: &Blobs, images: Vec<Descriptor>, name: Option<&str>) -> Result<Vec<Descriptor>> {
    let names: Vec<String> = images.iter().filter_map(|image| image.annotations.get(NAME).cloned()).collect();
    let listed =
        || if names.is_empty() { "no image has a name".into() } else { format!("it has {}", names.join(", ")) };
    let chosen: Vec<Descriptor> = match name {
        Some(name) => {
            images.into_iter().filter(|image| image.annotations.get(NAME).is_some_and(|n| n == name)).collect()
        }
        None => images,
    };
    match (chosen.len(), name) {
        (0, Some(name)) => Err(blobs.bad("index.json", format!("there is no image of the name {name}: {}", listed()))),
        (0, None) => Err(blobs.bad("index.json", "there is no image in it".into())),
        (2.., None) if names.iter().any(|name| *name != names[0]) => {
            Err(blobs.bad("index.json", format!("there are several images; choose one by oci:PATH:NAME: {}", listed())))
        }
        _ => Ok(chosen),
    }
}

/// The manifest for a platform, or the only one, in these images and the indexes that they may be.
fn choose_by_platform(blobs: &Blobs, images: Vec<Descriptor>, wanted: Option<&Platform>) -> Result<Descriptor> {
    let mut manifests = Vec::new();
    let mut seen = images.len();
    let mut waiting: Vec<(usize, Descriptor)> = images.into_iter().map(|image| (0, image)).collect();
    while let Some((depth, image)) = waiting.pop() {
        if is_manifest(&image.media_type) {
            manifests.push(image);
        } else if is_index(&image.media_type) && depth < MAX_DEPTH {
            let text = blobs.read(&image)?;
            let index: Index = blobs.parse(&image.digest, &text)?;
            seen += index.manifests.len();
            if seen > MAX_IMAGES {
                return Err(blobs.bad("index.json", format!("more than {MAX_IMAGES} images in it and its indexes")));
            }
            waiting.extend(index.manifests.into_iter().map(|image| (depth + 1, image)));
        } else if is_index(&image.media_type) {
            return Err(blobs.bad(&image.digest, "an index within too many others".into()));
        }
    }
    // Statements about an image, such as how it was built, have a platform that no machine is.
    manifests.retain(|manifest| manifest.platform.as_ref().is_none_or(|platform| platform.os != "unknown"));
    if wanted.is_some() {
        for unnamed in manifests.iter_mut().filter(|manifest| manifest.platform.is_none()) {
            let manifest: Manifest = blobs.parse(&unnamed.digest, &blobs.read(unnamed)?)?;
            unnamed.platform = read_config(blobs, &manifest)?.and_then(|config| config.platform());
        }
    }
    let platforms: Vec<String> =
        manifests.iter().filter_map(|manifest| Some(manifest.platform.as_ref()?.to_string())).collect();
    if let Some(wanted) = wanted {
        let is_wanted = |manifest: &Descriptor| manifest.platform.as_ref().is_some_and(|platform| platform.is(wanted));
        manifests.retain(is_wanted);
    }
    match <[Descriptor; 1]>::try_from(manifests) {
        Ok([manifest]) => Ok(manifest),
        Err(found) => {
            let mut listed = platforms;
            listed.sort_unstable();
            listed.dedup();
            let listed = if listed.is_empty() { "none is named".into() } else { listed.join(", ") };
            let what = match found.is_empty() {
                true => format!("there is no image for that platform: {listed}"),
                false => format!("the image is there for several platforms; --platform chooses one: {listed}"),
            };
            Err(blobs.bad("index.json", what))
        }
    }
}
