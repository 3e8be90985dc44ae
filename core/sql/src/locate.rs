//! Finds libduckdb.
//!
//! Enters: environment variables, the path of the program, the current folder. Leaves: the path of a library, or the
//! loaded library.
//!
//! | place | why it is trusted |
//! | --- | --- |
//! | `DWELL_DUCKDB`: the library, or a folder with it | the user named it |
//! | beside the program | who can write there can replace the program |
//! | `node_modules` above the program | likewise, for a checkout and for an editor's extension |
//! | `node_modules` above the current folder | only if nobody but the user and root can replace the file |
//! | `node_modules` of the home folder | likewise |

use std::{
    env::{self, consts::ARCH},
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use crate::{Engine, SqlError};

/// The environment variable that names the library.
pub const VARIABLE: &str = "DWELL_DUCKDB";
/// The npm package that brings the library, with its version.
pub const PACKAGE: &str = "@duckdb/node-bindings@1.5.6-r.1";
/// The library's file name.
const FILE: &str = "libduckdb.so";

/// Returns what to do if there is no usable library.
pub fn how_to_get() -> String {
    format!(
        "no usable DuckDB: run `npm install --prefix ~ {PACKAGE}`, or set {VARIABLE} to the path of {FILE} (version 1.5)"
    )
}

/// Finds and loads the library. `program` is the file that asks for it; `current` is a folder whose `node_modules` the
/// user means to use, besides that of the home folder.
pub fn engine(program: Option<&Path>, current: Option<PathBuf>) -> Result<Engine, SqlError> {
    let named = env::var_os(VARIABLE).map(PathBuf::from);
    let home = env::var_os("HOME").map(PathBuf::from);
    let folders: Vec<PathBuf> = current.into_iter().chain(home).collect();
    Ok(Engine::load(&library(named.as_deref(), program, &folders)?)?)
}

/// Returns the path of the library. `named` is the value of [`VARIABLE`]; `folders` are those that need not be the
/// user's own.
pub fn library(
    named: Option<&Path>,
    program: Option<&Path>,
    folders: &[PathBuf],
) -> Result<PathBuf, SqlError> {
    if let Some(named) = named.filter(|named| !named.as_os_str().is_empty()) {
        return Ok(if named.is_dir() { named.join(FILE) } else { named.to_owned() });
    }
    // The program may be called through a link.
    let program = program.map(|program| fs::canonicalize(program).unwrap_or_else(|_| program.to_owned()));
    let folder = program.as_deref().and_then(Path::parent);
    let beside = folder.map(|folder| folder.join(FILE)).filter(|file| file.is_file());
    if let Some(found) = beside.or_else(|| folder.and_then(above)) {
        return Ok(found);
    }
    let mut folders = folders.iter().filter_map(|folder| fs::canonicalize(folder).ok());
    match folders.find_map(|folder| above(&folder)) {
        Some(found) if is_ours(&found) => Ok(found),
        Some(found) => Err(SqlError::UntrustedLibrary(found)),
        None => Err(SqlError::NoLibrary),
    }
}

/// Returns the library in the nearest `node_modules` above a folder that has one.
fn above(folder: &Path) -> Option<PathBuf> {
    let arch = if ARCH == "aarch64" { "arm64" } else { "x64" };
    let libc = if cfg!(target_env = "musl") { "-musl" } else { "" };
    let package = format!("node_modules/@duckdb/node-bindings-linux-{arch}{libc}");
    folder.ancestors().map(|folder| folder.join(&package).join(FILE)).find(|file| file.is_file())
}

/// Returns whether nobody but this user and root can replace a file: it and all folders above it belong to one of them,
/// and others may not write to them. In a folder like `/tmp` (sticky), others cannot rename what is ours.
fn is_ours(file: &Path) -> bool {
    const STICKY: u32 = 0o1000;
    let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    file.ancestors().all(|path| {
        fs::symlink_metadata(path).is_ok_and(|meta| {
            // A group of one's own is usual for users of Debian.
            let others = if meta.gid() == group { 0o002 } else { 0o022 };
            let is_closed = meta.mode() & others == 0 || (meta.is_dir() && meta.mode() & STICKY != 0);
            [0, user].contains(&meta.uid()) && is_closed && !meta.is_symlink()
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn the_nearest_library_is_found_in_the_documented_order() {
        let folder = tempfile::TempDir::new().unwrap();
        let root = fs::canonicalize(folder.path()).unwrap();
        let make = |path: &str| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, "").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
            path
        };
        let program = make("a/target/release/dwell");
        let current = make("b/c/file").parent().unwrap().to_owned();
        let home = make("home/file").parent().unwrap().to_owned();
        let folders = [current, home];
        let find = |named: Option<&Path>| library(named, Some(&program), &folders);
        assert!(matches!(find(None), Err(SqlError::NoLibrary)));
        let package = format!(
            "node_modules/@duckdb/node-bindings-linux-{}{}/libduckdb.so",
            if ARCH == "aarch64" { "arm64" } else { "x64" },
            if cfg!(target_env = "musl") { "-musl" } else { "" },
        );
        let at_home = make(&format!("home/{package}"));
        assert_eq!(find(None).unwrap(), at_home);
        let here = make(&format!("b/{package}"));
        assert_eq!(find(None).unwrap(), here);
        fs::set_permissions(&here, fs::Permissions::from_mode(0o666)).unwrap();
        assert!(matches!(find(None), Err(SqlError::UntrustedLibrary(path)) if path == here));
        let above = make(&format!("a/{package}"));
        assert_eq!(find(None).unwrap(), above);
        let beside = make("a/target/release/libduckdb.so");
        assert_eq!(find(None).unwrap(), beside);
        assert_eq!(find(Some(&root.join("other.so"))).unwrap(), root.join("other.so"));
        assert_eq!(find(Some(&root.join("b"))).unwrap(), root.join("b/libduckdb.so"));
        assert_eq!(find(Some(Path::new(""))).unwrap(), beside);
    }
}
