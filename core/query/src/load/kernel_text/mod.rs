//! Finds the text of the kernel or of a module by its build ID, so that its procedures can be listed by instruction like any others.
//!
//! Input: the record of the kernel or module, and folders of debug information. Output: the image, or the reason why there is none.
//! Text of another build is never returned.
//!
//! A file is preferred because it may also contain source lines. If there is none and the recorded kernel is the running
//! one, the text is read from its memory, if permissions allow it.
//!
//! A file contains the text as it was linked. The running kernel differs from it in few places: it patches in instructions
//! that the processor supports, and it enables and disables jumps of tracing and static keys. Each patch replaces bytes in
//! place.

use std::{
    fs,
    path::{Path, PathBuf},
};

use dwell_image::{Image, build_id_in_notes};
use dwell_profile::ImageRecord;

mod running;

/// Folders where distributions and builders put an uncompressed kernel, in addition to the folders of debug information.
const OTHER_DIRS: [&str; 3] = ["/boot", "/lib/modules", "/usr/lib/modules"];

/// Opens the text of a kernel module that was recorded, which must be loaded. Its file is no help: the kernel lays out a module's sections
/// and links them when it loads it.
pub fn open_module(record: &ImageRecord) -> Result<Image, String> {
    let build = match &record.kernel_builds[..] {
        [build] if !build.is_empty() => build,
        [_, _, ..] => {
            return Err("several builds of the module, or unknown ones, were loaded meanwhile".to_owned());
        }
        _ => return Err("the recording does not say which build of the module it was".to_owned()),
    };
    let name = record.id.as_str().strip_prefix("module:").unwrap_or_default();
    let is_loaded =
        || build_id_in_notes(&running::module_notes(name)).is_some_and(|id| id.to_string() == *build);
    let read = || {
        let image = running::module_image(name, &record.symbols)?;
        // It may have been loaded anew while it was read.
        if is_loaded() { Ok(image) } else { Err("the module was unloaded".to_owned()) }
    };
    let read = if is_loaded() { read() } else { Err("that module is not loaded here".to_owned()) };
    read.map_err(|why| {
        format!(
            "no code of the module's build {build} was found ({why}): run dwell as root while it is loaded"
        )
    })
}

/// Opens the text of the kernel that was recorded.
pub fn open(record: &ImageRecord, debug_dirs: &[PathBuf]) -> Result<Image, String> {
    let build = match &record.kernel_builds[..] {
        [build] => build,
        [] => return Err("the recording does not say which build of the kernel it was".to_owned()),
        _ => {
            return Err(
                "recordings of several builds of the kernel, or of unknown ones, are merged".to_owned()
            );
        }
    };
    let folders = debug_dirs.iter().map(PathBuf::as_path).chain(OTHER_DIRS.map(Path::new));
    let files = debug_dirs.iter().flat_map(|dir| by_build_id(dir, build)).chain(folders.flat_map(in_folder));
    let of_build = |path: PathBuf| {
        let image = Image::open(path).ok()?;
        image.build_id().is_some_and(|id| id.to_string() == *build).then_some(image)
    };
    if let Some(image) = files.filter_map(of_build).find_map(Image::as_kernel) {
        return Ok(image);
    }
    let is_running = build_id_in_notes(&running::notes()).is_some_and(|id| id.to_string() == *build);
    let read =
        if is_running { running::image(&record.symbols) } else { Err("another kernel runs".to_owned()) };
    read.map_err(|why| {
        format!(
            "no vmlinux of build {build} was found ({why}): install the kernel's debug package, or name its folder (--debug-dir, \
             in editors the setting for debug folders), or run dwell as root while that kernel runs"
        )
    })
}

fn by_build_id(dir: &Path, build: &str) -> impl Iterator<Item = PathBuf> + use<> {
    let split = build.split_at_checked(2);
    let file = split.map(|(folder, rest)| dir.join(".build-id").join(folder).join(rest));
    file.into_iter().flat_map(|file| [file.with_extension("debug"), file])
}

/// Returns the files named `vmlinux` in a folder, also with a version appended or in a folder named after a version:
/// `vmlinux-6.1.0`, `boot/vmlinux-6.1.0`, `lib/modules/6.1.0/vmlinux`, `6.1.0/build/vmlinux`.
fn in_folder(dir: &Path) -> Vec<PathBuf> {
    let entries = |dir: &Path| {
        let mut paths: Vec<PathBuf> =
            fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
        paths.sort();
        paths
    };
    let is_kernel = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"vmlinux")) && path.is_file()
    };
    let plain = entries(dir).into_iter().chain(entries(&dir.join("boot"))).filter(is_kernel);
    let versions = entries(dir).into_iter().chain(entries(&dir.join("lib/modules")));
    let of_versions = versions.flat_map(|version| [version.join("vmlinux"), version.join("build/vmlinux")]);
    plain.chain(of_versions.filter(|path| path.is_file())).collect()
}
