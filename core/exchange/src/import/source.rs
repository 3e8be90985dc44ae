//! Where a profile's bytes come from: a file, standard input, a folder of `perf record --threads`; unpacked.
//!
//! Enters: the path that the user named. Leaves: files to read. Never here: what is in them, beyond how they begin.

use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    path::{Path, PathBuf},
};

use super::packed::{self, Packing};
use crate::ExchangeError;

/// As much of a file's start as its kind is known by.
const START_BYTES: u64 = 256;

/// A profile to read.
pub struct Source {
    /// It stands at its start.
    pub file: File,
    /// How it begins.
    pub start: Vec<u8>,
    /// How the file that was named is compressed.
    pub packing: Option<Packing>,
    /// Why what was unpacked ends early.
    pub ends_early: Option<String>,
    /// The folder that it is in, for a profile that is several files.
    pub folder: PathBuf,
    /// Whether the folder was named, rather than the file.
    pub is_folder: bool,
}

/// Opens what the user named; `-` is standard input.
pub fn open(path: &Path) -> Result<Source, ExchangeError> {
    let io = |source| ExchangeError::Io { path: path.to_owned(), source };
    let bad = |why| ExchangeError::BadPerfData { path: path.to_owned(), why };
    let is_folder = path.is_dir();
    let file_path = if is_folder { path.join("data") } else { path.to_owned() };
    if is_folder && !file_path.exists() {
        return Err(bad("a folder without the file data, which perf record --threads writes".to_owned()));
    }
    let mut file = spooled(&file_path).map_err(io)?;
    let (mut start, mut ends_early) = (beginning(&mut file).map_err(io)?, None);
    let packing = Packing::of(&start);
    if let Some(packing) = packing {
        (file, ends_early) = packed::unpack(file, packing).map_err(bad)?;
        start = beginning(&mut file).map_err(io)?;
    }
    if let Some(what) = packed::named(&start) {
        return Err(bad(what.to_owned()));
    }
    let folder = file_path.parent().map(Path::to_owned).unwrap_or_default();
    Ok(Source { file, start, packing, ends_early, folder, is_folder })
}

/// The files `data.0`, `data.1`, … of a folder, in the order of their numbers, with their sizes.
pub fn parts(folder: &Path) -> io::Result<Vec<(File, u64)>> {
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let number = |name: &str| name.strip_prefix("data.")?.parse::<u32>().ok();
    let mut paths: Vec<(u32, PathBuf)> = std::fs::read_dir(folder)?
        .flatten()
        .filter_map(|entry| Some((number(entry.file_name().to_str()?)?, entry.path())))
        .collect();
    paths.sort();
    let open = |(_, path): (u32, PathBuf)| {
        let file = File::open(path)?;
        let bytes = file.metadata()?.len();
        Ok((file, bytes))
    };
    paths.into_iter().map(open).collect()
}

/// The file; standard input goes through a temporary one, since its sizes must be checked first.
fn spooled(path: &Path) -> io::Result<File> {
    if path.as_os_str() != "-" {
        return File::open(path);
    }
    let mut spool = tempfile::tempfile()?;
    io::copy(&mut io::stdin().lock(), &mut spool)?;
    spool.rewind()?;
    Ok(spool)
}

/// How a file begins; it stands at its start afterwards.
fn beginning(file: &mut File) -> io::Result<Vec<u8>> {
    let mut start = Vec::new();
    file.by_ref().take(START_BYTES).read_to_end(&mut start)?;
    file.seek(SeekFrom::Start(0))?;
    Ok(start)
}
