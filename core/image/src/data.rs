//! The bytes of a file, in memory or mapped. The only `unsafe` of this crate is here.

use std::borrow::Cow;
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use memmap2::Mmap;

use crate::elf32;

/// Files up to this size are read; larger ones are mapped.
///
/// A mapped file that is truncated under us kills the process (SIGBUS) when a page beyond the new end is touched, and
/// `cp new.so old.so` does truncate. What people build and copy about is smaller as a rule, and read; what remains
/// (large programs and debug files, which linkers and package managers replace by renaming, without truncation) is
/// mapped, since a server holds dozens of images, and its size is verified before each use, see [`Data::bytes`].
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

    /// Files of 32 bits are read in the form of 64; what that cannot be made of stays as it is, and is refused later.
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
        // SAFETY: the mapping is private and read-only, and parsers here accept any bytes, so that a file written to
        // while we look gives wrong answers at worst. A truncated one is caught by `bytes`, except in the moment
        // between that check and the last access after it; reading a debug file of gigabytes instead would cost every
        // user seconds and memory to guard against that moment.
        let map = unsafe { Mmap::map(&file)? };
        Ok(Data::Mapped { map, file })
    }

    /// Bytes of memory that it takes; a mapping takes none of its own.
    pub(crate) fn memory_bytes(&self) -> usize {
        match self {
            Data::Memory(bytes) => bytes.capacity(),
            Data::Mapped { .. } => 0,
        }
    }

    /// All bytes; none when the file behind a mapping has shrunk since.
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

/// The bytes of a file, whose parts are read when they are needed.
pub(crate) trait ReadAt: Send + Sync {
    /// How many bytes there are.
    fn length(&self) -> u64;

    /// The bytes of a range; `None` where not all of them can be read.
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

/// Longer parts of files on the disk are not read: no section of unwind entries, stubs or relocations has so many bytes.
const RANGE_BYTES_MAX: u64 = 64 << 20;

impl ReadAt for File {
    fn length(&self) -> u64 {
        self.metadata().map_or(0, |metadata| metadata.len())
    }

    fn read_range(&self, range: Range<u64>) -> Option<Cow<'_, [u8]>> {
        let count = range.end.checked_sub(range.start).filter(|count| *count <= RANGE_BYTES_MAX)?;
        // Into memory that was not zeroed before: look-ups of unwind entries read thousands of ranges.
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

/// Opens a file, but nothing else: a profile may name a pipe, which nobody writes to, or a device, which opening changes.
pub(crate) fn open_regular(path: &Path) -> io::Result<File> {
    check_regular(&std::fs::metadata(path)?)?;
    // By now another may lie there: without waiting a pipe opens at once, and is refused then.
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
