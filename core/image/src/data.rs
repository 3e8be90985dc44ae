//! Bytes of a file, read into memory or mapped. This file contains the only `unsafe` code of the crate.

use std::borrow::Cow;
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use memmap2::Mmap;

use crate::elf32;

/// Size up to which files are read into memory; larger files are mapped.
///
/// If a mapped file is truncated, the process is killed (SIGBUS) as soon as it touches a page beyond the new end, and `cp
/// new.so old.so` does truncate. Files that people build and copy are usually small enough to be read. The others are large
/// programs and debug files, which linkers and package managers replace by renaming, without truncation. These are mapped,
/// since a server holds dozens of images, and their size is verified before each use, see [`Data::bytes`].
const READ_BYTES_MAX: u64 = 8 << 20;

/// Bytes of an image.
pub(crate) enum Data {
    Memory(Vec<u8>),
    Mapped { map: Mmap, file: File },
}

impl Data {
    pub(crate) fn open(path: &Path) -> io::Result<Data> {
        let file = open_regular(path)?;
        let metadata = file.metadata()?;
        let data = if metadata.len() <= READ_BYTES_MAX {
            Data::read(file, metadata.len())?
        } else {
            Data::map(file)?
        };
        Ok(data.widened())
    }

    /// Converts 32-bit ELF files to the 64-bit format. A file that cannot be converted stays unchanged and is rejected
    /// later.
    pub(crate) fn widened(self) -> Data {
        match elf32::is_32_bit(self.bytes()).then(|| elf32::widen(self.bytes())) {
            Some(Ok(bytes)) => Data::Memory(bytes),
            _ => self,
        }
    }

    fn read(file: File, size_bytes: u64) -> io::Result<Data> {
        let mut bytes = Vec::with_capacity(size_bytes as usize);
        file.take(READ_BYTES_MAX).read_to_end(&mut bytes)?;
        Ok(Data::Memory(bytes))
    }

    #[allow(unsafe_code)]
    fn map(file: File) -> io::Result<Data> {
        // SAFETY: the mapping is private and read-only, and parsers here accept any bytes, so a file that is written to
        // while it is mapped causes wrong answers at worst. `bytes` detects a truncated file, except between that check and
        // the last access after it. Closing that gap would require reading debug files of gigabytes, which would cost every
        // user seconds and memory.
        let map = unsafe { Mmap::map(&file)? };
        Ok(Data::Mapped { map, file })
    }

    /// Returns the number of bytes of memory that it occupies; a mapping occupies none.
    pub(crate) fn memory_bytes(&self) -> usize {
        match self {
            Data::Memory(bytes) => bytes.capacity(),
            Data::Mapped { .. } => 0,
        }
    }

    /// Returns all bytes, or none if the file behind a mapping has shrunk.
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Data::Memory(bytes) => bytes,
            Data::Mapped { map, file } => match file.metadata() {
                Ok(metadata) if metadata.len() >= map.len() as u64 => map,
                _ => &[],
            },
        }
    }
}

/// A file whose parts are read when they are needed.
pub(crate) trait ReadAt: Send + Sync {
    /// Returns the number of bytes.
    fn length(&self) -> u64;

    /// Returns the bytes of a range; `None` if not all of them can be read.
    fn read_range(&self, range: Range<u64>) -> Option<Cow<'_, [u8]>>;
}

impl ReadAt for Data {
    fn length(&self) -> u64 {
        self.bytes().len() as u64
    }

    fn read_range(&self, range: Range<u64>) -> Option<Cow<'_, [u8]>> {
        let range = usize::try_from(range.start).ok()?..usize::try_from(range.end).ok()?;
        self.bytes().get(range).map(Cow::Borrowed)
    }
}

/// Largest part of a file on disk that is read. No section of unwind entries, stubs or relocations is larger.
const RANGE_BYTES_MAX: u64 = 64 << 20;

impl ReadAt for File {
    fn length(&self) -> u64 {
        self.metadata().map_or(0, |metadata| metadata.len())
    }

    fn read_range(&self, range: Range<u64>) -> Option<Cow<'_, [u8]>> {
        let count = range.end.checked_sub(range.start).filter(|count| *count <= RANGE_BYTES_MAX)?;
        // The memory is not zeroed first: look-ups of unwind entries read thousands of ranges.
        let mut bytes = Vec::with_capacity(count as usize);
        while (bytes.len() as u64) < count {
            let at = range.start.checked_add(bytes.len() as u64)?;
            match rustix::io::pread(self, rustix::buffer::spare_capacity(&mut bytes), at) {
                Ok(0) => return None,
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(_) => return None,
            }
        }
        bytes.truncate(count as usize);
        Some(Cow::Owned(bytes))
    }
}

/// Opens a regular file and nothing else. A profile may name a pipe, which nobody writes to, or a device, which opening may
/// change.
pub(crate) fn open_regular(path: &Path) -> io::Result<File> {
    check_regular(&std::fs::metadata(path)?)?;
    // Another file may be at the path by now. With NONBLOCK, a pipe opens at once and is rejected afterwards.
    let nonblocking = rustix::fs::OFlags::NONBLOCK.bits() as i32;
    let file = File::options().read(true).custom_flags(nonblocking).open(path)?;
    check_regular(&file.metadata()?)?;
    Ok(file)
}

fn check_regular(metadata: &Metadata) -> io::Result<()> {
    if metadata.is_file() {
        return Ok(());
    }
    Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"))
}
