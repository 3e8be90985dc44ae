//! The source of a profile's bytes: a file, standard input, or a folder of `perf record --threads`; unpacked.
//!
//! Enters: the path that the user named. Leaves: files to read. Never here: the contents of the files beyond their
//! first bytes.

use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    path::{Path, PathBuf},
};

use super::{
    header,
    packed::{self, Packing},
};
use crate::ExchangeError;

/// Number of bytes at the start of a file by which its format is recognized.
const START_BYTES: u64 = 256;

/// A profile to read.
pub struct Source {
    /// The file, positioned at its start.
    pub file: File,
    /// The first bytes of the file.
    pub start: Vec<u8>,
    /// The compression of the file that the user named.
    pub packing: Option<Packing>,
    /// The reason why the unpacked data ends early.
    pub ends_early: Option<String>,
    /// The folder of the file, for a profile that consists of several files.
    pub folder: PathBuf,
    /// Whether the user named the folder instead of the file.
    pub is_folder: bool,
}

/// Opens the path that the user named; `-` is standard input.
pub fn open(path: &Path) -> Result<Source, ExchangeError> {
    let io = |source| ExchangeError::Io { path: path.to_owned(), source };
    let bad = |why| ExchangeError::BadPerfData { path: path.to_owned(), why };
    let is_folder = path.is_dir();
    let file_path = if is_folder { path.join("data") } else { path.to_owned() };
    if is_folder && !file_path.exists() {
        return Err(bad("a folder without a file named data, as perf record --threads writes it".to_owned()));
    }
    let mut file = spooled(&file_path).map_err(io)?;
    let (mut start, mut ends_early) = (beginning(&mut file).map_err(io)?, None);
    let packing = Packing::detect(&start);
    if let Some(packing) = packing {
        (file, ends_early) = packed::unpack(file, packing).map_err(bad)?;
        start = beginning(&mut file).map_err(io)?;
    }
    if let Some(what) = packed::named(&start) {
        return Err(bad(what.to_owned()));
    }
    let folder = file_path.parent().map(Path::to_owned).unwrap_or_default();
    let name = file_path.file_name().unwrap_or_default().to_string_lossy();
    if part_number(&name).is_some() && !header::is_perf_data(&start) && folder.join("data").exists() {
        return Err(bad("one of the files that perf record --threads wrote: import their folder".to_owned()));
    }
    Ok(Source { file, start, packing, ends_early, folder, is_folder })
}

/// Returns the files `data.0`, `data.1`, … of a folder with their sizes, ordered by number.
pub fn parts(folder: &Path) -> io::Result<Vec<(File, u64)>> {
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let mut paths: Vec<(u32, PathBuf)> = std::fs::read_dir(folder)?
        .flatten()
        .filter_map(|entry| Some((part_number(entry.file_name().to_str()?)?, entry.path())))
        .collect();
    paths.sort();
    let open = |(_, path): (u32, PathBuf)| {
        let file = File::open(path)?;
        let bytes = file.metadata()?.len();
        Ok((file, bytes))
    };
    paths.into_iter().map(open).collect()
}

/// Returns N of `data.N`.
fn part_number(name: &str) -> Option<u32> {
    name.strip_prefix("data.")?.parse().ok()
}

/// Opens the file. Standard input is copied to a temporary file, since sizes must be checked first.
fn spooled(path: &Path) -> io::Result<File> {
    if path.as_os_str() != "-" {
        return File::open(path);
    }
    let mut spool = tempfile::tempfile()?;
    io::copy(&mut io::stdin().lock(), &mut spool)?;
    spool.rewind()?;
    Ok(spool)
}

/// Returns the first bytes of a file and moves back to its start.
fn beginning(file: &mut File) -> io::Result<Vec<u8>> {
    let mut start = Vec::new();
    file.by_ref().take(START_BYTES).read_to_end(&mut start)?;
    file.seek(SeekFrom::Start(0))?;
    Ok(start)
}
