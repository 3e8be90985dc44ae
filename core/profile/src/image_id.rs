//! How an image is named, so that its samples find it again after a rebuild, a reboot or a copy.

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

/// Why a text is not a build id.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("'{0}' is no build id: expected 2 to 128 hexadecimal digits, an even number of them")]
pub struct BuildIdError(pub String);

impl BuildId {
    /// A build id of these bytes; `None` where there are none or more than 64.
    pub fn new(bytes: &[u8]) -> Option<Self> {
        (1..=64).contains(&bytes.len()).then(|| BuildId(bytes.into()))
    }

    /// Parses lower- or upper-case hexadecimal.
    pub fn from_hex(text: &str) -> Result<Self, BuildIdError> {
        let bad = || BuildIdError(text.to_owned());
        if !text.is_ascii() || !text.len().is_multiple_of(2) {
            return Err(bad());
        }
        let bytes: Option<Vec<u8>> =
            (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).ok()).collect();
        BuildId::new(&bytes.ok_or_else(bad)?).ok_or_else(bad)
    }

    /// The bytes as the note holds them.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for BuildId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

/// The name of an image in a profile: cheap to clone, compared and ordered by its text.
///
/// | text | image |
/// | --- | --- |
/// | `<hex>` | a file with that build id |
/// | `kernel` | the kernel's own text |
/// | `module:<name>` | a kernel module |
/// | `vdso:<hex>` or `vdso` | the kernel's code mapped into processes |
/// | `file:<dev>:<inode>:<size>:<mtime ns>` | a file without a build id (numbers in decimal) |
/// | `jit:<application>` | anonymous code of that application, its symbols from a perf map if it wrote one; FORMAT.md says what its offsets are |
/// | `named:<path>` | places that an imported profile named without their addresses ([`ImagePlaces::numbered`]) |
/// | `data:<what>` | data that samples refer to ([`Event::DATA`](crate::Event::DATA)) and that is no file's: `data:heap`, …; FORMAT.md lists them |
/// | `unknown` | samples that no mapping explains |
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ImageId(Arc<str>);

impl ImageId {
    /// The id spelled `text`.
    pub fn named(text: &str) -> Self {
        ImageId(text.into())
    }

    /// The image with that build id.
    pub fn of_build(build_id: &BuildId) -> Self {
        ImageId(build_id.to_string().into())
    }

    /// The kernel's own text.
    pub fn kernel() -> Self {
        ImageId("kernel".into())
    }

    /// Samples that no mapping explains.
    pub fn unknown() -> Self {
        ImageId("unknown".into())
    }

    /// The text, as the database's `image` column holds it.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The build id, where the image is a file named by one.
    pub fn build_id(&self) -> Option<BuildId> {
        BuildId::from_hex(&self.0).ok()
    }
}

impl fmt::Display for ImageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What sort of thing an image is; decides where its bytes and names can be found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ImageKind {
    /// An executable or shared library in the file system.
    File,
    /// The kernel's own text.
    Kernel,
    /// A kernel module.
    Module,
    /// The vdso.
    Vdso,
    /// Anonymous executable memory.
    Jit,
    /// No mapping was known.
    Unknown,
}

/// What was known of an image when its samples were taken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageRecord {
    /// Its id, unique in the epoch.
    pub id: ImageId,
    /// What it is.
    pub kind: ImageKind,
    /// The path it was mapped from (for the rest, a name: `[kernel.kallsyms]`, `[vdso]`, …). Stored as the
    /// text of [`path_to_text`](crate::path_to_text).
    #[serde(with = "crate::path_text")]
    pub path: PathBuf,
    /// Whether the file had been deleted or replaced when it was seen.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deleted: bool,
    /// Size in bytes and modification time in ns since 1970, where it is a file that could be looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<u64>,
    /// See `size_bytes`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtime_ns: Option<i64>,
    /// Symbols of an image that leaves no file behind (kernel, modules, JIT): those with samples only. In a segment perhaps
    /// those alone that no earlier segment of the epoch has.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub symbols: Vec<ImageSymbol>,
    /// What the source of the samples said of single places, where it was another profiler: for readers that do not have the image.
    #[serde(default, skip_serializing_if = "ImagePlaces::is_empty")]
    pub places: ImagePlaces,
    /// Of the kernel: the build ids, in hex, of the kernels that the offsets are of: one, but where epochs of several were merged;
    /// an empty one stands for kernels of which that was not recorded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kernel_builds: Vec<String>,
}

impl ImageRecord {
    /// An image of which no more is known than its id, what it is, and its path.
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

    /// Takes in a newer record of the same image: what that says holds, and the symbols and named places of both.
    pub fn absorb(&mut self, mut newer: ImageRecord) {
        debug_assert_eq!(self.id, newer.id);
        let mut places = std::mem::take(&mut self.places);
        places.absorb(std::mem::take(&mut newer.places));
        newer.places = places;
        // One that does not say which kernel it was may be of another.
        if self.kind == ImageKind::Kernel && self.kernel_builds.is_empty() != newer.kernel_builds.is_empty() {
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

    /// Puts newer records among those known, by id.
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

/// A name for a range of an image's offsets.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ImageSymbol {
    /// First byte.
    pub offset: ImageOffset,
    /// Size in bytes (up to the next symbol, where the source does not tell).
    pub size_bytes: u64,
    /// The name as the source spells it.
    pub name: String,
}
