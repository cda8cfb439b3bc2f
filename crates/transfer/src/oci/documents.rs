//! The documents of a layout, as far as they are needed here. Members that are unknown are passed over.

use super::Platform as Wanted;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt;

/// `oci-layout`.
#[derive(Debug, Deserialize)]
pub(super) struct Marker {
    #[serde(rename = "imageLayoutVersion")]
    pub(super) version: String,
}

/// An index of images or manifests.
#[derive(Debug, Deserialize)]
pub(super) struct Index {
    pub(super) manifests: Vec<Descriptor>,
}

/// A manifest: the parts of one image.
#[derive(Debug, Deserialize)]
pub(super) struct Manifest {
    pub(super) config: Option<Descriptor>,
    pub(super) layers: Vec<Descriptor>,
}

/// One image of `manifest.json` in an archive of `docker save`: paths in the archive.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Saved {
    pub(super) config: String,
    pub(super) repo_tags: Option<Vec<String>>,
    pub(super) layers: Vec<String>,
}

/// What an image is for, and what its layers are when they are unpacked.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Config {
    architecture: Option<String>,
    os: Option<String>,
    variant: Option<String>,
    #[serde(default)]
    pub(super) rootfs: RootFs,
}

/// The layers of an image.
#[derive(Debug, Default, Deserialize)]
pub(super) struct RootFs {
    /// The digests of the layers as tar streams, the lowest first.
    #[serde(default)]
    pub(super) diff_ids: Vec<String>,
}

impl Config {
    pub(super) fn platform(&self) -> Option<Platform> {
        let (os, architecture) = (self.os.clone()?, self.architecture.clone()?);
        Some(Platform { architecture, os, variant: self.variant.clone() })
    }
}

/// What names a part.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Descriptor {
    #[serde(rename = "mediaType", default)]
    pub(super) media_type: String,
    pub(super) digest: String,
    pub(super) size: u64,
    #[serde(default)]
    pub(super) annotations: BTreeMap<String, String>,
    pub(super) platform: Option<Platform>,
}

/// The system that an image is for.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Platform {
    architecture: String,
    pub(super) os: String,
    variant: Option<String>,
}

impl Platform {
    /// Whether it is the platform that is wanted. A variant counts if one is wanted.
    pub(super) fn is(&self, wanted: &Wanted) -> bool {
        let is_variant = wanted.variant.is_none() || self.variant == wanted.variant;
        self.os == wanted.os && self.architecture == wanted.architecture && is_variant
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.os, self.architecture)?;
        self.variant.as_ref().map_or(Ok(()), |variant| write!(f, "/{variant}"))
    }
}

pub(super) fn is_index(media_type: &str) -> bool {
    matches!(
        media_type,
        "application/vnd.oci.image.index.v1+json" | "application/vnd.docker.distribution.manifest.list.v2+json"
    )
}

pub(super) fn is_manifest(media_type: &str) -> bool {
    matches!(
        media_type,
        "application/vnd.oci.image.manifest.v1+json" | "application/vnd.docker.distribution.manifest.v2+json"
    )
}

pub(super) fn is_config(media_type: &str) -> bool {
    matches!(media_type, "application/vnd.oci.image.config.v1+json" | "application/vnd.docker.container.image.v1+json")
}

/// Whether a layer is a tar stream, packed or not. How it is packed is found by its first bytes.
pub(super) fn is_layer(media_type: &str) -> bool {
    ["application/vnd.oci.image.layer.", "application/vnd.docker.image.rootfs."]
        .iter()
        .any(|prefix| media_type.starts_with(prefix) && media_type.contains("tar") && !media_type.contains("encrypted"))
}
