//! Finds the separate debug file of an image without debug information, by build ID or by `.gnu_debuglink`.

use std::path::{Path, PathBuf};

use crate::BuildId;
use crate::data::Data;
use crate::elf::Elf;
use crate::symbols::le32;

/// Where to look for debug files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DebugSearch {
    /// Folders with the layout of `/usr/lib/debug`: `.build-id/ab/cdef….debug`, or the image's path.
    pub debug_dirs: Vec<PathBuf>,
}

impl Default for DebugSearch {
    fn default() -> Self {
        DebugSearch { debug_dirs: vec![PathBuf::from("/usr/lib/debug")] }
    }
}

/// Whether the source lines of an image are known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DebugState {
    /// The image contains debug information.
    Present,
    /// The debug information was found in this separate file.
    Separate(PathBuf),
    /// Lines are known, but functions and inlined calls are in other files, and some of these are missing. The text names
    /// the files, the number of units and where the files were looked for.
    Incomplete(String),
    /// There is no debug information. The text contains the reason, and where it was looked for.
    Missing(String),
}

/// A debug file that was found.
pub(crate) struct Found {
    pub(crate) path: PathBuf,
    pub(crate) elf: Elf,
    pub(crate) data: Data,
}

/// Finds the debug file of an image; the error is the reason why there is none.
pub(crate) fn find(
    search: &DebugSearch,
    image: &Elf,
    bytes: &[u8],
    path: Option<&Path>,
) -> Result<Found, String> {
    let mut refused = Vec::new();
    for candidate in by_build_id(search, image.build_id.as_ref()) {
        match open(&candidate, image, None) {
            Ok(found) => return Ok(found),
            Err(why) => refused.extend(why),
        }
    }
    let link = link(image, bytes);
    for candidate in by_link(search, link.as_ref(), path) {
        match open(&candidate, image, link.as_ref().map(|(_, crc)| *crc)) {
            Ok(found) => return Ok(found),
            Err(why) => refused.extend(why),
        }
    }
    Err(reason(search, image, link.as_ref(), refused))
}

/// Returns the places where a debug file may be, the best ones first.
pub(crate) fn places(
    search: &DebugSearch,
    build_id: Option<&BuildId>,
    link: Option<&(String, u32)>,
    path: &Path,
) -> Vec<PathBuf> {
    let mut places = by_build_id(search, build_id);
    places.extend(by_link(search, link, Some(path)));
    places
}

fn reason(search: &DebugSearch, image: &Elf, link: Option<&(String, u32)>, refused: Vec<String>) -> String {
    let dirs: Vec<_> = search.debug_dirs.iter().map(|d| d.display().to_string()).collect();
    let dirs = dirs.join(", ");
    let mut reason = String::from("the file has no debug information");
    match (&image.build_id, link) {
        _ if !refused.is_empty() => {
            reason.push_str("; ");
            reason.push_str(&refused.join("; "));
        }
        (Some(id), _) => reason.push_str(&format!(", and there is none for build id {id} in {dirs}")),
        (None, Some((name, _))) => {
            reason.push_str(&format!(", and {name} is neither beside it nor in {dirs}"))
        }
        (None, None) => reason.push_str(", and neither a build ID nor a link to find it by"),
    }
    reason
}

pub(crate) fn by_build_id(search: &DebugSearch, build_id: Option<&BuildId>) -> Vec<PathBuf> {
    let hex = build_id.map(BuildId::to_string).unwrap_or_default();
    if hex.len() < 4 {
        return Vec::new();
    }
    let file = format!(".build-id/{}/{}.debug", &hex[..2], &hex[2..]);
    search.debug_dirs.iter().map(|dir| dir.join(&file)).collect()
}

/// Returns the places for a debug link: beside the image, in `.debug` beside it, and below each debug folder (GDB manual,
/// "Separate Debug Files").
fn by_link(search: &DebugSearch, link: Option<&(String, u32)>, path: Option<&Path>) -> Vec<PathBuf> {
    let (Some((name, _)), Some(path)) = (link, path) else { return Vec::new() };
    let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let Some(folder) = path.parent() else { return Vec::new() };
    let mut places = vec![folder.join(name), folder.join(".debug").join(name)];
    let inside = folder.strip_prefix("/").unwrap_or(folder);
    places.extend(search.debug_dirs.iter().map(|dir| dir.join(inside).join(name)));
    places.retain(|place| *place != path);
    places
}

/// Returns the file name and CRC of `.gnu_debuglink`. A name that contains a folder is rejected, since it could lead
/// anywhere.
fn link(image: &Elf, bytes: &[u8]) -> Option<(String, u32)> {
    link_of(image.section(".gnu_debuglink")?.bytes(bytes))
}

/// Parses the file name and CRC in the content of `.gnu_debuglink`.
pub(crate) fn link_of(content: &[u8]) -> Option<(String, u32)> {
    let end = content.iter().position(|b| *b == 0)?;
    let name = std::str::from_utf8(&content[..end]).ok()?;
    let crc = le32(content, (end + 1).next_multiple_of(4))?;
    (!name.is_empty() && name != ".." && !name.contains('/')).then(|| (name.to_owned(), crc))
}

/// Opens a candidate. The error is `None` if there is no such file, or a reason if the file does not belong to the image.
fn open(path: &Path, image: &Elf, crc: Option<u32>) -> Result<Found, Option<String>> {
    if !path.is_file() {
        return Err(None);
    }
    let refuse = |why: &str| Some(format!("{} {why}", path.display()));
    let data = Data::open(path).map_err(|error| refuse(&format!("cannot be read: {error}")))?;
    let elf = Elf::parse(data.bytes()).map_err(|error| refuse(&format!("is unusable: {error}")))?;
    if elf.arch != image.arch {
        return Err(refuse("is for another architecture"));
    }
    match (crc, &image.build_id, &elf.build_id) {
        (_, Some(ours), Some(its)) if ours != its => return Err(refuse(&format!("has build id {its}"))),
        // An equal build ID is stronger evidence than the CRC and needs no reading of the file.
        (Some(_), Some(_), Some(_)) => {}
        (Some(crc), ..) if crc32fast::hash(data.bytes()) != crc => {
            return Err(refuse("has another CRC than the image's link requires"));
        }
        _ => {}
    }
    Ok(Found { path: path.to_owned(), elf, data })
}
