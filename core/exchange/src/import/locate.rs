//! Finds which image a mapped file is, and where it is on this machine.
//!
//! Enters: a path and, if the profile reports it, a build ID. Leaves: an image record, and a note about what is
//! missing. Never here: samples. If a build ID is known, only the build ID identifies a file. If none is known, the
//! file at the path must be older than the profile.

use std::{
    fs::File,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

use dwell_image::{DebugSearch, DebugState, Image, ImageError, UnwindRules, build_id_of_file};
use dwell_profile::{BuildId, ImageId, ImageKind, ImageRecord};

use super::ImportFile;
use crate::{Artifact, Debuginfod};

/// The folders in which a file with a build ID is searched if its own folder is not known.
const USUAL: [&str; 8] = [
    "/usr/bin",
    "/usr/sbin",
    "/usr/local/bin",
    "/usr/lib",
    "/usr/lib64",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/local/lib",
];

/// A mapped file as a record names it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Named {
    /// The file's path on the machine that was sampled.
    pub path: Vec<u8>,
    /// The file's build ID, if the profile reports it.
    pub build_id: Option<BuildId>,
}

/// Finds files on this machine.
pub struct Locator<'a> {
    request: &'a ImportFile,
    debuginfod: Option<&'a Debuginfod>,
    /// When the profile was written.
    written: Option<SystemTime>,
}

impl<'a> Locator<'a> {
    /// Returns a locator for a profile that was last written at this time.
    pub fn new(
        request: &'a ImportFile,
        debuginfod: Option<&'a Debuginfod>,
        written: Option<SystemTime>,
    ) -> Self {
        Locator { request, debuginfod, written }
    }

    /// Returns the arguments of the import.
    pub fn request(&self) -> &'a ImportFile {
        self.request
    }

    /// Returns when the profile was last written.
    pub fn written(&self) -> Option<SystemTime> {
        self.written
    }

    /// Returns the image's record, and a note for the user if there is one.
    pub fn locate(&self, named: &Named) -> (ImageRecord, Option<String>) {
        let path = PathBuf::from(std::ffi::OsStr::from_bytes(&named.path));
        let mut candidates: Vec<PathBuf> = self.under_root(&path).into_iter().chain([path.clone()]).collect();
        candidates.extend(self.beside(&path));
        match &named.build_id {
            Some(id) => {
                // Profiles of OpenTelemetry name a file without its folder.
                if path.components().count() == 1 {
                    let usual = USUAL.iter().map(|folder| Path::new(folder).join(&path));
                    candidates
                        .extend(usual.flat_map(|path| self.under_root(&path).into_iter().chain([path])));
                }
                self.by_build_id(id, &path, &candidates)
            }
            None => self.by_path(&path, &candidates),
        }
    }

    fn under_root(&self, path: &Path) -> Option<PathBuf> {
        let root = self.request.symfs.as_ref()?;
        Some(root.join(path.strip_prefix("/").unwrap_or(path)))
    }

    /// Returns a file that `perf inject --jit` wrote, if it was moved together with the profile.
    fn beside(&self, path: &Path) -> Option<PathBuf> {
        let name = path.file_name().filter(|name| name.as_bytes().starts_with(b"jitted-"))?;
        Some(self.request.path.parent()?.join(name))
    }

    fn by_build_id(
        &self,
        id: &BuildId,
        path: &Path,
        candidates: &[PathBuf],
    ) -> (ImageRecord, Option<String>) {
        let record = record(ImageId::of_build(id), path);
        let is_it = |p: &&PathBuf| build_id_of_file(p).as_ref() == Some(id);
        if let Some(found) = candidates.iter().find(is_it) {
            return (ImageRecord { path: found.clone(), ..record }, None);
        }
        let hex = id.to_string();
        if let Some(found) = self.kept(id, "elf").filter(|path| is_it(&path)) {
            return (ImageRecord { path: found, ..record }, None);
        }
        if self.place(&record).is_some() {
            return (record, None);
        }
        if self.debuginfod.is_some_and(|d| d.fetch(id, Artifact::Executable).is_some()) {
            return (record, None);
        }
        // A file that is not an image of a supported kind has no build ID to compare.
        let unsupported = |p: &PathBuf| match Image::open(p) {
            Err(e @ ImageError::Unsupported(_)) => Some(e.to_string()),
            _ => None,
        };
        let there = candidates.iter().any(|p| p.exists());
        let why = match candidates.iter().find_map(unsupported) {
            Some(why) => why,
            None if there => "the file on this machine is another build".to_owned(),
            None => "it is not on this machine".to_owned(),
        };
        (record, Some(format!("{}: {why} (build id {hex})", path.display())))
    }

    /// Returns whether missing files may be requested from a server.
    pub fn may_fetch(&self) -> bool {
        self.debuginfod.is_some()
    }

    /// Opens the image if it is on this machine.
    pub fn open(&self, named: &Named) -> Option<Image> {
        let (record, missing) = self.locate(named);
        if missing.is_some() { None } else { Image::open(self.place(&record)?).ok() }
    }

    /// Reads how callers are found in an image if it is on this machine.
    pub fn unwind_rules(&self, named: &Named) -> Option<UnwindRules> {
        let (record, missing) = self.locate(named);
        let path = self.place(&record).filter(|path| missing.is_none() && path.is_file())?;
        UnwindRules::read(File::open(path).ok()?).ok()
    }

    /// Reads how callers are found in the kernel's vdso, if perf kept a copy of it.
    pub fn unwind_rules_of_vdso(&self, id: &BuildId) -> Option<UnwindRules> {
        let path = self.kept(id, "vdso").filter(|path| path.is_file())?;
        UnwindRules::read(File::open(path).ok()?).ok()
    }

    /// Returns where perf would have kept a copy of an image.
    fn kept(&self, id: &BuildId, name: &str) -> Option<PathBuf> {
        let hex = id.to_string();
        let (first, rest) = hex.split_at_checked(2)?;
        Some(self.request.perf_cache.as_ref()?.join(".build-id").join(first).join(rest).join(name))
    }

    /// Fetches the debug information of a located image, unless it is on this machine.
    pub fn fetch_debug_info(&self, record: &ImageRecord) {
        let (Some(debuginfod), Some(id)) = (self.debuginfod, record.id.build_id()) else { return };
        let Some(Ok(mut image)) = self.place(record).map(Image::open) else { return };
        let folders = self.request.debug_dirs.iter().chain([&self.request.servers.cache]);
        let search = DebugSearch { debug_dirs: folders.cloned().collect() };
        image.attach_debug(&search);
        if matches!(image.debug_state(), DebugState::Missing(_)) {
            debuginfod.fetch(&id, Artifact::DebugInfo);
            image.attach_debug(&search);
        }
        if let Some(shared) = image.missing_shared_debug() {
            debuginfod.fetch(&shared, Artifact::DebugInfo);
        }
    }

    /// Returns where a located image is: at its path, or in a folder by build ID.
    fn place(&self, record: &ImageRecord) -> Option<PathBuf> {
        let Some(id) = record.id.build_id() else { return Some(record.path.clone()) };
        let hex = id.to_string();
        let folders = self.request.debug_dirs.iter().chain([&self.request.servers.cache]);
        let by_id = folders.map(|dir| dir.join(".build-id").join(&hex[..2]).join(&hex[2..]));
        let is_it = |path: &PathBuf| build_id_of_file(path).as_ref() == Some(&id);
        std::iter::once(record.path.clone()).chain(by_id).find(is_it)
    }

    fn by_path(&self, path: &Path, candidates: &[PathBuf]) -> (ImageRecord, Option<String>) {
        let Some((found, meta)) = candidates.iter().find_map(|p| Some((p, std::fs::metadata(p).ok()?)))
        else {
            let id = ImageId::named(&format!("file:{}", path.display()));
            return (record(id, path), Some(format!("{}: it is not on this machine", path.display())));
        };
        let modified = meta.modified().ok();
        let newer = modified.zip(self.written).is_some_and(|(file, profile)| file > profile);
        // The files in a copied folder have other times.
        if newer && Some(found) != self.beside(path).as_ref() {
            let id = ImageId::named(&format!("file:{}", path.display()));
            let note =
                format!("{}: it has no build ID in the profile, and the file here is newer", path.display());
            return (record(id, path), Some(note));
        }
        let since = modified.and_then(|t| t.duration_since(UNIX_EPOCH).ok());
        let mtime_ns = since.and_then(|d| i64::try_from(d.as_nanos()).ok());
        let id = match build_id_of_file(found) {
            Some(id) => ImageId::of_build(&id),
            None => ImageId::named(&format!("file:0:0:{}:{}", meta.len(), mtime_ns.unwrap_or(0))),
        };
        let record = ImageRecord { size_bytes: Some(meta.len()), mtime_ns, ..record(id, found) };
        (record, None)
    }
}

fn record(id: ImageId, path: &Path) -> ImageRecord {
    ImageRecord::new(id, ImageKind::File, path)
}
