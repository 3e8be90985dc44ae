//! The images of a process, with what probes need of them.
//!
//! Enters: a process. Leaves: each mapped image with its unwind table, and the code of functions. Files are opened through the
//! process's own mappings, so containers and deleted files make no difference.

use std::{
    collections::BTreeMap,
    fs::File,
    ops::Range,
    os::unix::fs::{FileExt, MetadataExt},
    sync::{Arc, OnceLock},
};

use dwell_image::{Image, ImageAddress, ImageError, ImageOffset, Procedure};
use dwell_profile::{CodePlace, ImageId, ImageKind, ImageRecord, Pid, VirtualAddress};

use crate::{
    ProbeError,
    patch::{from_image::function_codes, function_code::FunctionCode, plan::Refusal},
    process::procfs::{Mapping, mappings},
    shared_memory::MappedTable,
    unwind_table::UnwindTable,
};

/// An executable mapping of an image.
pub struct MappedImage {
    /// The mapping.
    pub mapping: Mapping,
    /// The image.
    pub image: Arc<Image>,
    /// What is added to an image address to get the address in the process.
    pub bias: u64,
    table: OnceLock<UnwindTable>,
    restartable: Vec<Range<u64>>,
}

/// Largest number of restartable sequences of an image.
const SEQUENCES_MAX: u64 = 1 << 16;

/// What tells a file from all others, and from what it was before it was written again: what `/proc` calls it, its path, its size, and
/// when it changed last, in s and ns.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileIdentity {
    file: String,
    path: String,
    size: u64,
    changed: (i64, i64),
}

/// Images of many processes, each opened once.
#[derive(Default)]
pub struct ImageCache {
    images: BTreeMap<FileIdentity, Arc<Image>>,
}

impl ImageCache {
    /// How many images are kept.
    const IMAGES_MAX: usize = 128;

    /// Opens the images of a process like [`process_images`].
    pub fn process_images(&mut self, pid: Pid) -> Result<Vec<MappedImage>, ProbeError> {
        let mappings = executable_files(pid)?;
        Ok(mappings.into_iter().filter_map(|mapping| self.open(pid, mapping)).collect())
    }

    fn open(&mut self, pid: Pid, mapping: Mapping) -> Option<MappedImage> {
        let identity = file_identity(pid, &mapping);
        if let Some(image) = identity.as_ref().and_then(|identity| self.images.get(identity)) {
            return MappedImage::new(pid, mapping, image.clone());
        }
        let opened = open_image(pid, &mapping)?;
        if self.images.len() >= Self::IMAGES_MAX {
            self.images.clear();
        }
        if let Some(identity) = identity {
            self.images.insert(identity, opened.image.clone());
        }
        Some(opened)
    }
}

/// Returns the identity of the file of a mapping; `None` if it is not known.
pub fn file_identity(pid: Pid, mapping: &Mapping) -> Option<FileIdentity> {
    let [linked, named] = paths(pid, mapping);
    let metadata = std::fs::metadata(linked).or_else(|_| std::fs::metadata(named)).ok()?;
    Some(FileIdentity {
        file: mapping.file.clone()?,
        path: mapping.path.clone(),
        size: metadata.len(),
        changed: (metadata.ctime(), metadata.ctime_nsec()),
    })
}

/// Returns where the file of a mapping can be opened: the file itself, which not everybody may, and what has its name now.
fn paths(pid: Pid, mapping: &Mapping) -> [String; 2] {
    let linked = format!("/proc/{pid}/map_files/{}-{}", mapping.start, mapping.end);
    [linked, format!("/proc/{pid}/root{}", mapping.path)]
}

impl MappedImage {
    fn open(pid: Pid, mapping: Mapping) -> Result<Option<Self>, ImageError> {
        let [linked, named] = paths(pid, &mapping);
        let image = Image::open(linked).or_else(|_| Image::open(named))?;
        Ok(Self::new(pid, mapping, Arc::new(image)))
    }

    fn new(pid: Pid, mapping: Mapping, image: Arc<Image>) -> Option<Self> {
        let first = image.address_of_code_page(ImageOffset(mapping.offset))?;
        let bias = mapping.start.0.wrapping_sub(first.0);
        let restartable = restartable_sequences(pid, &image, bias);
        Some(MappedImage { mapping, image, bias, table: OnceLock::new(), restartable })
    }

    /// Returns the same image in a copy of the process's memory.
    pub fn in_copy(&self) -> Self {
        let MappedImage { mapping, image, bias, restartable, .. } = self;
        let (mapping, image, restartable) = (mapping.clone(), image.clone(), restartable.clone());
        MappedImage { mapping, image, bias: *bias, table: OnceLock::new(), restartable }
    }

    /// Returns the unwind table and where it is mapped. The first call makes it.
    pub fn table(&self) -> MappedTable<'_> {
        let Mapping { start, end, .. } = self.mapping;
        let make =
            || UnwindTable::new(&self.image.unwind_rows(), self.in_image(start).0, self.mapping.bytes());
        let end = end.min(start.saturating_offset(u64::from(u32::MAX - 1))); // The table's addresses have 32 bits.
        MappedTable { start, end, table: self.table.get_or_init(make) }
    }

    /// The path of its file, also if that was deleted or replaced: then the build ID says which one it is.
    pub fn path(&self) -> &str {
        self.mapping.path.trim_end_matches(" (deleted)")
    }

    /// Returns its id in recordings.
    pub fn id(&self) -> ImageId {
        let named = || ImageId::named(&format!("file:{}", self.path()));
        self.image.build_id().map_or_else(named, ImageId::of_build)
    }

    /// Returns what a recording stores of it.
    pub fn record(&self) -> ImageRecord {
        ImageRecord::new(self.id(), ImageKind::File, self.path())
    }

    /// Returns the place of an instruction, as recordings have it.
    pub fn place_of(&self, address: ImageAddress) -> CodePlace {
        match self.image.offset_of(address) {
            Some(offset) => CodePlace { image: self.id(), offset },
            None => CodePlace { image: ImageId::unknown(), offset: ImageOffset(address.0) },
        }
    }

    /// Returns where an address of the image is in the process.
    pub fn in_process(&self, address: ImageAddress) -> VirtualAddress {
        VirtualAddress(address.0.wrapping_add(self.bias))
    }

    /// Returns which address of the image an address of the process is.
    pub fn in_image(&self, address: VirtualAddress) -> ImageAddress {
        ImageAddress(address.0.wrapping_sub(self.bias))
    }

    /// Returns the procedure around an address of the process.
    pub fn procedure_at(&self, address: VirtualAddress) -> Option<Procedure<'_>> {
        self.image.procedure_at(self.in_image(address))
    }

    /// Reads the code of procedures.
    pub fn codes(&self, procedures: &[Procedure]) -> Vec<Result<FunctionCode, Refusal>> {
        let mut codes = function_codes(&self.image, procedures, self.bias);
        for code in &mut codes {
            let overlaps = |own: Range<u64>| {
                self.restartable.iter().any(|other| own.start < other.end && other.start < own.end)
            };
            if code.as_ref().is_ok_and(|code| code.ranges().any(overlaps)) {
                *code = Err(Refusal::Restartable);
            }
        }
        codes
    }
}

/// Reads where the process has restartable sequences of an image: `struct rseq_cs` in include/uapi/linux/rseq.h.
fn restartable_sequences(pid: Pid, image: &Image, bias: u64) -> Vec<Range<u64>> {
    const ENTRY_BYTES: u64 = 32;
    let Some(table) = image.restartable_sequences() else { return Vec::new() };
    let entries = ((table.end.0 - table.start.0) / ENTRY_BYTES).min(SEQUENCES_MAX);
    let mut bytes = vec![0; (entries * ENTRY_BYTES) as usize];
    let memory = File::open(format!("/proc/{pid}/mem"));
    if memory.and_then(|memory| memory.read_exact_at(&mut bytes, table.start.0.wrapping_add(bias))).is_err() {
        return std::iter::once(0..u64::MAX).collect(); // They may be anywhere.
    }
    let words = bytes.as_chunks::<8>().0.iter().map(|word| u64::from_ne_bytes(*word)).collect::<Vec<_>>();
    // Version and flags; start; length; where to continue.
    words
        .as_chunks::<4>()
        .0
        .iter()
        .map(|[_, start, length, _]| *start..start.saturating_add(*length))
        .collect()
}

/// Opens the image of a mapping of a process; `None` if it is none, or cannot be read.
pub fn open_image(pid: Pid, mapping: &Mapping) -> Option<MappedImage> {
    MappedImage::open(pid, mapping.clone()).ok().flatten()
}

/// Opens the images of a process, ascending. Files that are no images, or cannot be read, are left out: paths end there.
pub fn process_images(pid: Pid) -> Result<Vec<MappedImage>, ProbeError> {
    new_images(pid, &[])
}

/// Opens the images of a process that are not among those that are known.
pub fn new_images(pid: Pid, known: &[MappedImage]) -> Result<Vec<MappedImage>, ProbeError> {
    let is_known = |mapping: &Mapping| {
        let key = |mapping: &Mapping| (mapping.start, mapping.end, mapping.file.clone());
        known.iter().any(|image| key(&image.mapping) == key(mapping))
    };
    let executable = executable_files(pid)?.into_iter();
    let unknown = executable.filter(|mapping| !is_known(mapping));
    Ok(unknown.filter_map(|mapping| open_image(pid, &mapping)).collect())
}

fn executable_files(pid: Pid) -> Result<Vec<Mapping>, ProbeError> {
    let mappings = mappings(pid).map_err(|source| match source.raw_os_error() {
        Some(libc::ENOENT | libc::ESRCH) => ProbeError::Gone(pid),
        _ => ProbeError::NotPermitted { pid, source },
    })?;
    Ok(mappings.into_iter().filter(|mapping| mapping.is_executable && mapping.file.is_some()).collect())
}
