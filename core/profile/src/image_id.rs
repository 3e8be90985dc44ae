//! Names of images, by which samples find their image again after a rebuild, a reboot or a copy.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    fmt,
    path::PathBuf,
    sync::Arc,
};

use serde::{Deserialize, Serialize};

use crate::{ImageOffset, ImagePlaces};

/// The linker's fingerprint of an ELF image (`NT_GNU_BUILD_ID`), usually 20 bytes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BuildId(Box<[u8]>);

/// The error for a text that is not a build ID.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("'{0}' is not a build ID: expected an even number of hexadecimal digits, from 2 to 128")]
pub struct BuildIdError(pub String);

impl BuildId {
    /// Returns the build ID of these bytes; `None` if there are no bytes or more than 64.
    pub fn new(bytes: &[u8]) -> Option<Self> {
        (1..=64).contains(&bytes.len()).then(|| BuildId(bytes.into()))
    }

    /// Parses a build ID in lower-case or upper-case hexadecimal.
    pub fn from_hex(text: &str) -> Result<Self, BuildIdError> {
        let bad = || BuildIdError(text.to_owned());
        if !text.is_ascii() || !text.len().is_multiple_of(2) {
            return Err(bad());
        }
        let bytes: Option<Vec<u8>> =
            (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).ok()).collect();
        BuildId::new(&bytes.ok_or_else(bad)?).ok_or_else(bad)
    }

    /// Returns the bytes as the ELF note holds them.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for BuildId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

/// The name of an image in a profile. It is cheap to clone, and is compared and ordered by its text.
///
/// | text | image |
/// | --- | --- |
/// | `<hex>` | a file with that build ID |
/// | `kernel` | the kernel's own text |
/// | `module:<name>` | a kernel module |
/// | `vdso:<hex>` or `vdso` | the kernel's code mapped into processes |
/// | `file:<dev>:<inode>:<size>:<mtime ns>` | a file without a build ID (numbers in decimal; device and inode are 0 if they are unknown) |
/// | `file:<path>` or `file:<other>` | a file of which an import knows only that: its path, or a hash of another tool |
/// | `jit:<application>` | anonymous code of that application, named by its perf map if any; offsets: see FORMAT.md |
/// | `named:<path>` | places that an imported profile named without their addresses ([`ImagePlaces::numbered`]) |
/// | `data:<what>` | data that is no file's ([`Event::DATA`](crate::Event::DATA)): `data:heap`, …; see FORMAT.md |
/// | `unknown` | samples in no known mapping |
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ImageId(Arc<str>);

impl ImageId {
    /// Returns the id with this text.
    pub fn named(text: &str) -> Self {
        ImageId(text.into())
    }

    /// Returns the id of the image with this build ID.
    pub fn of_build(build_id: &BuildId) -> Self {
        ImageId(build_id.to_string().into())
    }

    /// Returns the id of the kernel's own text.
    pub fn kernel() -> Self {
        ImageId("kernel".into())
    }

    /// Returns the id under which samples in no known mapping are counted.
    pub fn unknown() -> Self {
        ImageId("unknown".into())
    }

    /// Returns the text, as the database's `image` column holds it.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the build ID if the image is a file that is named by one.
    pub fn build_id(&self) -> Option<BuildId> {
        BuildId::from_hex(&self.0).ok()
    }
}

impl fmt::Display for ImageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The kind of an image. It determines where the image's bytes and names can be found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ImageKind {
    /// An executable or shared library in the file system.
    File,
    /// The kernel's own text, without modules.
    Kernel,
    /// A module of the kernel.
    Module,
    /// The kernel's code that is mapped into every process.
    Vdso,
    /// Anonymous executable memory, usually code from a JIT compiler.
    Jit,
    /// Addresses for which no mapping was known.
    Unknown,
}

/// What was known about an image when its samples were taken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageRecord {
    /// The image's id, unique in the epoch.
    pub id: ImageId,
    /// The kind of the image.
    pub kind: ImageKind,
    /// The path from which the image was mapped. For images that are not files it is a name: `[kernel.kallsyms]`,
    /// `[vdso]`, …. It is stored as the text of [`path_to_text`](crate::path_to_text).
    #[serde(with = "crate::path_text")]
    pub path: PathBuf,
    /// Whether the file had already been deleted or replaced when the collector saw it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deleted: bool,
    /// Size of the file in bytes; `None` if the image is not a file or could not be examined.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<u64>,
    /// Modification time of the file, in ns since 1970; `None` if the image is not a file or could not be examined.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtime_ns: Option<i64>,
    /// Symbols of an image that leaves no file behind (kernel, modules, JIT); only those with samples. A segment may
    /// contain only the symbols that no earlier segment of the epoch has.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub symbols: Vec<ImageSymbol>,
    /// What another profiler recorded about single places, if the samples were imported from one, for readers that do
    /// not have the image.
    #[serde(default, skip_serializing_if = "ImagePlaces::is_empty")]
    pub places: ImagePlaces,
    /// For the kernel and its modules: the build IDs, in hex, of what the offsets belong to. There is one, unless epochs of
    /// several kernels were merged or a module was loaded anew. An empty text stands for builds that were not recorded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kernel_builds: Vec<String>,
}

impl ImageRecord {
    /// Returns the record of an image of which only the id, the kind and the path are known.
    pub fn new(id: ImageId, kind: ImageKind, path: impl Into<PathBuf>) -> Self {
        ImageRecord {
            id,
            kind,
            path: path.into(),
            deleted: false,
            size_bytes: None,
            mtime_ns: None,
            symbols: Vec::new(),
            places: ImagePlaces::default(),
            kernel_builds: Vec::new(),
        }
    }

    /// Merges a newer record of the same image into this one. The newer values replace the older ones; the symbols and
    /// named places of both are kept.
    pub fn absorb(&mut self, mut newer: ImageRecord) {
        debug_assert_eq!(self.id, newer.id);
        let mut places = std::mem::take(&mut self.places);
        places.absorb(std::mem::take(&mut newer.places));
        newer.places = places;
        // A record without a build ID may belong to another kernel.
        let has_builds = matches!(self.kind, ImageKind::Kernel | ImageKind::Module);
        if has_builds && self.kernel_builds.is_empty() != newer.kernel_builds.is_empty() {
            newer.kernel_builds.push(String::new());
        }
        newer.kernel_builds.append(&mut self.kernel_builds);
        newer.kernel_builds.sort();
        newer.kernel_builds.dedup();
        let older = std::mem::replace(self, newer).symbols;
        if !older.is_empty() {
            self.symbols.extend(older);
            self.symbols.sort();
            self.symbols.dedup();
        }
    }

    /// Merges newer records into the known ones, by id.
    pub fn absorb_all(
        known: &mut BTreeMap<ImageId, ImageRecord>,
        newer: impl IntoIterator<Item = ImageRecord>,
    ) {
        for record in newer {
            match known.entry(record.id.clone()) {
                Entry::Occupied(mut older) => older.get_mut().absorb(record),
                Entry::Vacant(free) => {
                    free.insert(record);
                }
            }
        }
    }
}

/// A symbol: a name for a range of an image's offsets.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ImageSymbol {
    /// Offset of the first byte.
    pub offset: ImageOffset,
    /// Size in bytes; the distance to the next symbol if the source does not report a size.
    pub size_bytes: u64,
    /// The name as the source spells it.
    pub name: String,
}
