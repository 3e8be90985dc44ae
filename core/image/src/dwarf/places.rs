//! Determines where parts of debug information in other files may be: from `.gnu_debugaltlink` or `.debug_sup`, and from the
//! names of split units.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::split::Skeleton;
use crate::BuildId;
use crate::debug_files::{DebugSearch, by_build_id};
use crate::elf::Elf;

/// Places where the parts of one file's debug information may be.
pub(crate) struct Places {
    pub(crate) search: DebugSearch,
    /// Path of the program or library.
    pub(crate) image: Option<PathBuf>,
    /// Path of the file with its debug information: the image or its debug file.
    pub(crate) file: Option<PathBuf>,
    pub(crate) build_id: Option<BuildId>,
}

impl Places {
    /// Returns where the file with shared entries may be, the best places first: the link's path relative to the folder of
    /// the file that contains the link; the folders of distributions; the build ID in the debug folders.
    pub(crate) fn of_alt(&self, link: &AltLink) -> impl Iterator<Item = PathBuf> {
        let folder = self.file.as_deref().and_then(folder_of).unwrap_or_default();
        let named = folder.join(&link.name);
        let id = link.build_id();
        let mut places = vec![named.clone()];
        let dirs = &self.search.debug_dirs;
        // Distributions put such files below `.dwz`, some of them in a folder for the architecture.
        let below = link.name.iter().skip_while(|part| *part != ".dwz");
        let below = Some(below.collect::<PathBuf>()).filter(|below| !below.as_os_str().is_empty());
        let plain = link.name.file_name().map(|name| Path::new(".dwz").join(name));
        for tail in below.into_iter().chain(plain) {
            places.extend(dirs.iter().map(|dir| dir.join(&tail)));
        }
        places.extend(dirs.iter().map(|dir| dir.join(inside(&named))));
        places.extend(by_build_id(&self.search, id.as_ref()));
        places.into_iter()
    }

    /// Returns where the package of split debug information may be, the best places first: beside the image and its debug
    /// file; below the debug folders by path, name and build ID.
    pub(crate) fn of_package(&self) -> impl Iterator<Item = PathBuf> {
        let mut places = Vec::new();
        for file in self.files() {
            places.push(with_suffix(&file, ".dwp"));
            if file.extension().is_some_and(|e| e == "debug") {
                places.push(file.with_extension("dwp"));
            }
        }
        let files: Vec<PathBuf> = places.clone();
        for dir in &self.search.debug_dirs {
            places.extend(files.iter().map(|file| dir.join(inside(file))));
            places.extend(files.iter().filter_map(|file| Some(dir.join(file.file_name()?))));
        }
        let by_id = by_build_id(&self.search, self.build_id.as_ref());
        places.extend(by_id.into_iter().map(|debug| debug.with_extension("dwp")));
        places.into_iter()
    }

    /// Returns where the split part of a unit may be, the best places first: the path that the compiler recorded; beside the
    /// image and its debug file; below the debug folders by path and name.
    pub(crate) fn of_split(&self, skeleton: &Skeleton) -> impl Iterator<Item = PathBuf> {
        let built = skeleton.folder.as_deref().unwrap_or(Path::new("")).join(&skeleton.name);
        let mut places = Vec::new();
        places.extend(built.is_absolute().then(|| built.clone()));
        let folders = self.files().filter_map(|file| file.parent().map(Path::to_owned));
        let name = skeleton.name.file_name();
        for folder in folders.chain(self.search.debug_dirs.iter().cloned()) {
            if skeleton.name.is_relative() {
                places.push(folder.join(&skeleton.name));
            }
            places.extend(name.map(|name| folder.join(name)));
        }
        places.extend(self.search.debug_dirs.iter().map(|dir| dir.join(inside(&built))));
        places.into_iter()
    }

    /// Iterates over the image and its debug file: the paths as given, and with symbolic links resolved.
    fn files(&self) -> impl Iterator<Item = PathBuf> {
        let named: Vec<PathBuf> = [&self.image, &self.file].into_iter().flatten().cloned().collect();
        let mut files = named.clone();
        files.extend(named.iter().filter_map(|file| std::fs::canonicalize(file).ok()));
        let mut seen = Vec::new();
        files.retain(|file| {
            let new = !seen.contains(file);
            seen.push(file.clone());
            new
        });
        files.into_iter()
    }
}

/// Returns the folder that contains a file, with symbolic links resolved.
fn folder_of(file: &Path) -> Option<PathBuf> {
    let file = std::fs::canonicalize(file).unwrap_or_else(|_| file.to_owned());
    file.parent().map(Path::to_owned)
}

/// Returns a path relative to a folder that stands for `/`.
fn inside(path: &Path) -> &Path {
    path.strip_prefix("/").unwrap_or(path)
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Link to the file with shared entries.
pub(crate) struct AltLink {
    pub(crate) name: PathBuf,
    id: Vec<u8>,
}

impl AltLink {
    pub(crate) fn build_id(&self) -> Option<BuildId> {
        BuildId::new(&self.id)
    }

    pub(crate) fn id_hex(&self) -> String {
        self.id.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// Reads `.gnu_debugaltlink` or DWARF 5's `.debug_sup`. Returns `None` if there is neither.
pub(crate) fn alt_link(elf: &Elf, bytes: &[u8]) -> Option<AltLink> {
    let content = |name| elf.section(name).map(|section| section.bytes(bytes));
    let (name, id) = match content(".gnu_debugaltlink") {
        Some(content) => {
            let end = content.iter().position(|b| *b == 0)?;
            (&content[..end], &content[end + 1..])
        }
        None => {
            supplementary(content(".debug_sup")?).filter(|sup| !sup.is_alt).map(|sup| (sup.name, sup.id))?
        }
    };
    let sane = !name.is_empty() && name.len() < 4096 && !id.is_empty() && id.len() <= 64;
    sane.then(|| AltLink { name: OsStr::from_bytes(name).into(), id: id.to_owned() })
}

/// Returns whether a file is the one that the link refers to, judged by its id.
pub(crate) fn is_alt(alt: &Elf, bytes: &[u8], link: &AltLink) -> bool {
    let by_build_id = alt.build_id.is_some() && alt.build_id == link.build_id();
    let content = alt.section(".debug_sup").map(|section| section.bytes(bytes));
    by_build_id || content.and_then(supplementary).is_some_and(|sup| sup.is_alt && sup.id == link.id)
}

/// Content of `.debug_sup` (DWARF 5 §7.3.6).
struct Supplementary<'a> {
    /// Whether the file is the one with shared entries. If not, it refers to that file.
    is_alt: bool,
    name: &'a [u8],
    id: &'a [u8],
}

fn supplementary(content: &[u8]) -> Option<Supplementary<'_>> {
    let (is_alt, rest) = (*content.get(2)? != 0, content.get(3..)?);
    let end = rest.iter().position(|b| *b == 0)?;
    // The length is a LEB128 number. An id is shorter than 128 bytes, so its length takes one byte.
    let length = usize::from(*rest.get(end + 1)?);
    Some(Supplementary { is_alt, name: &rest[..end], id: rest.get(end + 2..)?.get(..length)? })
}
