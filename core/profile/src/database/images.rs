//! Copies of images, so that a profile can still be read after a rebuild. Each image is stored once, compressed, and
//! all of them stay within a size limit.
//!
//! Enters: the file of an image, as it was sampled. Leaves: its bytes, as long as it is among the most recently used
//! ones. Files are stored in pieces and never held whole, because an image may be larger than the collector's memory.

use std::{
    fs::{self, OpenOptions},
    io::{self, Read},
    os::unix::fs::OpenOptionsExt,
    path::PathBuf,
    time::SystemTime,
};

use crate::{
    DatabaseError, ImageId, ImageSymbol,
    error::IoContext,
    segment::{MAX_SEGMENT_BYTES, read_symbols},
};

use super::{Database, Writer};

/// Size of the largest image that is returned, in bytes.
const IMAGE_BYTES_MAX: u64 = 2 << 30;
/// zstd's fastest useful level: images are written once, while sampling goes on.
const LEVEL: i32 = 1;
/// One image may take at most one part in so many of the limit for all; otherwise each large image would evict all
/// others.
const LARGEST_PART: u64 = 4;

/// The result of storing an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// The image was stored already, and is now marked as used.
    Known,
    /// The image is now stored.
    New,
    /// The image is too large to be stored.
    TooLarge,
}

impl Writer {
    /// Stores the file of an image, which is durable when this returns. All stored images take at most `bytes_max`
    /// bytes; the least recently used ones are evicted first.
    pub fn keep_image(
        &self,
        id: &ImageId,
        file: &mut impl Read,
        bytes_max: u64,
    ) -> Result<Kept, DatabaseError> {
        let database = self.database();
        let Some(path) = database.kept_path(id) else { return Ok(Kept::TooLarge) };
        if let Ok(known) = OpenOptions::new().write(true).open(&path) {
            let _ = known.set_modified(SystemTime::now()); // Only the order of eviction depends on this time.
            return Ok(Kept::Known);
        }
        let folder = database.layout.images();
        database.create_dir(&folder)?;
        let temporary = self.inner.temporary();
        let packed = pack(file, &temporary, bytes_max / LARGEST_PART);
        if !matches!(packed, Ok(true)) {
            let _ = fs::remove_file(&temporary);
        }
        if !packed.context("write", &path)? {
            return Ok(Kept::TooLarge);
        }
        fs::rename(&temporary, &path).context("write", &path)?;
        database.disk.sync_dir(&folder).context("sync", &folder)?;
        database.drop_oldest_images(bytes_max)?;
        Ok(Kept::New)
    }
}

/// Compresses a file and returns whether the result is within the limit; if it is, it has been synced.
fn pack(file: &mut impl Read, path: &PathBuf, bytes_max: u64) -> io::Result<bool> {
    let packed = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    let mut encoder = zstd::Encoder::new(packed, LEVEL)?;
    encoder.include_checksum(true)?;
    let mut piece = vec![0; 64 << 10];
    loop {
        let read = match file.read(&mut piece) {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        io::Write::write_all(&mut encoder, &piece[..read])?;
        if encoder.get_ref().metadata()?.len() > bytes_max {
            return Ok(false);
        }
    }
    let packed = encoder.finish()?;
    packed.sync_all()?;
    Ok(packed.metadata()?.len() <= bytes_max)
}

impl Database {
    /// Returns the bytes of a stored image; `None` if it was never stored or has been evicted.
    pub fn kept_image(&self, id: &ImageId) -> Result<Option<Vec<u8>>, DatabaseError> {
        let Some(path) = self.kept_path(id) else { return Ok(None) };
        let packed = match self.disk.read(&path, IMAGE_BYTES_MAX) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            read => read.context("read", &path)?,
        };
        let mut bytes = Vec::new();
        let unpacked =
            zstd::Decoder::new(&packed[..]).and_then(|d| d.take(IMAGE_BYTES_MAX + 1).read_to_end(&mut bytes));
        unpacked.context("read", &path)?;
        if bytes.len() as u64 > IMAGE_BYTES_MAX {
            let why = format!("larger than {IMAGE_BYTES_MAX} bytes unpacked");
            return Err(DatabaseError::Damaged { path, why });
        }
        Ok(Some(bytes))
    }

    /// Returns the symbols of an image that were stored for readers who do not have it, ascending; `None` if there are none.
    pub fn stored_symbols(&self, id: &ImageId) -> Result<Option<Vec<ImageSymbol>>, DatabaseError> {
        let Some(build_id) = id.build_id() else { return Ok(None) };
        let path = self.layout.symbols().join(format!("{build_id}.parquet"));
        let bytes = match self.disk.read(&path, MAX_SEGMENT_BYTES) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            read => read.context("read", &path)?,
        };
        match read_symbols(&bytes, id, true) {
            Ok(symbols) => Ok(Some(symbols)),
            Err(error) => Err(DatabaseError::Damaged { path, why: error.to_string() }),
        }
    }

    /// Returns whether a copy of an image is stored in the folder of the database.
    pub fn keeps_image(&self, id: &ImageId) -> bool {
        self.kept_path(id).is_some_and(|path| path.exists())
    }

    /// Returns the path `<id>.zst` for images that are files, because other images have nothing to copy. The text of an
    /// id is untrusted.
    fn kept_path(&self, id: &ImageId) -> Option<PathBuf> {
        let name = match (id.build_id(), id.as_str().strip_prefix("file:")) {
            (Some(build_id), _) => build_id.to_string(),
            (None, Some(rest))
                if rest.len() < 100 && rest.bytes().all(|b| b.is_ascii_digit() || b == b':') =>
            {
                format!("file-{}", rest.replace(':', "-"))
            }
            _ => return None,
        };
        Some(self.layout.images().join(format!("{name}.zst")))
    }

    /// Returns the size of all stored images, in bytes.
    pub fn kept_images_bytes(&self) -> u64 {
        let entries = fs::read_dir(self.layout.images()).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.metadata().ok()).map(|m| m.len()).sum()
    }

    fn drop_oldest_images(&self, bytes_max: u64) -> Result<(), DatabaseError> {
        let folder = self.layout.images();
        let mut all = Vec::new();
        for entry in fs::read_dir(&folder).context("list", &folder)? {
            let entry = entry.context("list", &folder)?;
            // The file may be removed at any time.
            let Ok(metadata) = entry.metadata() else { continue };
            all.push((metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH), entry.path(), metadata.len()));
        }
        all.sort();
        let mut total: u64 = all.iter().map(|(.., bytes)| bytes).sum();
        for (_, path, bytes) in all {
            if total <= bytes_max {
                break;
            }
            match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(error).context("remove", &path);
                }
                _ => total -= bytes,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Returns bytes that cannot be compressed.
    fn noise(seed: u64, bytes: usize) -> Vec<u8> {
        let mut state = seed | 1;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        };
        (0..bytes).map(|_| next()).collect()
    }

    #[test]
    fn images_are_stored_once_and_the_oldest_are_evicted() {
        let dir = tempfile::tempdir().unwrap();
        let database = Database::open(dir.path().join("db")).unwrap();
        let writer = database.writer().unwrap();
        let [a, b, c] = ["aa01", "bb02", "file:1:2:3:4"].map(ImageId::named);
        let keep =
            |id: &ImageId, seed| writer.keep_image(id, &mut noise(seed, 30_000).as_slice(), 130_000).unwrap();
        let age = |id: &ImageId, seconds| {
            let file = OpenOptions::new().write(true).open(database.kept_path(id).unwrap()).unwrap();
            file.set_modified(SystemTime::now() - Duration::from_secs(seconds)).unwrap();
        };
        assert_eq!((keep(&a, 1), keep(&b, 2), keep(&a, 9)), (Kept::New, Kept::New, Kept::Known));
        assert_eq!(database.kept_image(&a).unwrap(), Some(noise(1, 30_000)));
        age(&a, 20);
        age(&b, 30);
        assert_eq!(keep(&b, 2), Kept::Known, "used again");
        assert_eq!((keep(&c, 3), keep(&ImageId::named("dd04"), 4)), (Kept::New, Kept::New));
        assert_eq!(keep(&ImageId::named("ee05"), 5), Kept::New);
        assert_eq!(database.kept_image(&a).unwrap(), None, "it was not used for longest");
        assert_eq!(database.kept_image(&b).unwrap(), Some(noise(2, 30_000)));
        assert_eq!(database.kept_image(&c).unwrap(), Some(noise(3, 30_000)));
    }

    #[test]
    fn special_and_oversized_files_are_not_kept() {
        let dir = tempfile::tempdir().unwrap();
        let database = Database::open(dir.path().join("db")).unwrap();
        let writer = database.writer().unwrap();
        for id in ["kernel", "jit:java", "file:../../etc", "unknown"].map(ImageId::named) {
            assert_eq!(writer.keep_image(&id, &mut &b"x"[..], 1000).unwrap(), Kept::TooLarge);
            assert_eq!(database.kept_image(&id).unwrap(), None);
        }
        let large = ImageId::named("aa01");
        assert_eq!(
            writer.keep_image(&large, &mut noise(1, 30_000).as_slice(), 60_000).unwrap(),
            Kept::TooLarge
        );
        assert_eq!(database.kept_image(&large).unwrap(), None);
        assert_eq!(fs::read_dir(dir.path().join("db/tmp")).unwrap().count(), 0, "nothing is left");
    }
}
