//! Loads libduckdb and checks its version.

use std::{
    ffi::{CStr, c_char},
    ops::RangeInclusive,
    path::{Path, PathBuf},
    sync::{Mutex, OnceLock, PoisonError},
};

use libloading::Library;

use super::api::Api;

/// Minor versions of DuckDB 1 that are accepted. The tests run with 1.5.
pub const VERSIONS: RangeInclusive<u32> = 5..=5;

/// The reason why a file is not a usable libduckdb.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum LoadError {
    /// The dynamic linker refused the file.
    #[error("{}: not loadable: {why}", path.display())]
    NotLoadable {
        /// The file.
        path: PathBuf,
        /// The linker's message.
        why: String,
    },
    /// The file is a library, but not DuckDB.
    #[error("{}: it is not DuckDB: it has no function {function}", path.display())]
    NotDuckDb {
        /// The file.
        path: PathBuf,
        /// The function that it lacks.
        function: String,
    },
    /// Another library was loaded before.
    #[error("{}: this process uses {} already", path.display(), first.display())]
    Another {
        /// The file.
        path: PathBuf,
        /// The library in use.
        first: PathBuf,
    },
    /// The library is a version of DuckDB that was not tried.
    #[error("{}: DuckDB {found} is the wrong version: dwell needs 1.{}", path.display(), VERSIONS.end())]
    WrongVersion {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: String,
    },
}

/// A loaded libduckdb. A process loads one and never unloads it: callbacks find its functions without being told, and
/// threads of DuckDB may outlive the last connection for a moment.
#[derive(Clone, Copy)]
pub struct Engine {
    pub(super) api: &'static Api,
    version: &'static str,
}

/// The library of this process, with its path.
static LOADED: Mutex<Option<(PathBuf, Engine)>> = Mutex::new(None);
/// Its functions.
static FUNCTIONS: OnceLock<&'static Api> = OnceLock::new();

/// Returns the functions of the library that was loaded. Only callbacks of that library may call this.
pub(super) fn loaded() -> &'static Api {
    FUNCTIONS.get().expect("a library calls back only after it was loaded")
}

impl Engine {
    /// Loads the library at `path` and checks its version.
    ///
    /// The code of the library runs with the rights of this process, so the caller must have chosen a file that it
    /// trusts.
    pub fn load(path: &Path) -> Result<Engine, LoadError> {
        let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((first, engine)) = &*loaded {
            return match first == path {
                true => Ok(*engine),
                false => Err(LoadError::Another { path: path.to_owned(), first: first.clone() }),
            };
        }
        let engine = load(path)?;
        FUNCTIONS.get_or_init(|| engine.api);
        *loaded = Some((path.to_owned(), engine));
        Ok(engine)
    }

    /// Returns the version, such as `v1.5.6`.
    pub fn version(&self) -> &'static str {
        self.version
    }
}

fn load(path: &Path) -> Result<Engine, LoadError> {
    let not_loadable = |error: libloading::Error| LoadError::NotLoadable {
        path: path.to_owned(),
        why: reason(&error, path),
    };
    let not_duckdb = |function: &str| LoadError::NotDuckDb {
        path: path.to_owned(),
        function: format!("duckdb_{function}"),
    };
    // SAFETY: initializers of the library run. That is what the user asked for by naming or installing it.
    let library = unsafe { Library::new(path) }.map_err(not_loadable)?;
    let library: &'static Library = Box::leak(Box::new(library));
    type LibraryVersion = unsafe extern "C" fn() -> *const c_char;
    // SAFETY: every version of libduckdb that has this function declares it so.
    let version = unsafe { library.get::<LibraryVersion>(b"duckdb_library_version\0") }
        .map_err(|_| not_duckdb("library_version"))?;
    // SAFETY: the function returns a static text that ends with a zero, or null.
    let version = unsafe { version().as_ref().map(|text| CStr::from_ptr(text)) };
    let version = version.map_or("unknown".into(), |text| text.to_string_lossy());
    if !check_version(&version) {
        return Err(LoadError::WrongVersion { path: path.to_owned(), found: version.into_owned() });
    }
    // SAFETY: its version was checked, and it was leaked.
    let api = unsafe { Api::of(library) }.map_err(not_duckdb)?;
    Ok(Engine { api: Box::leak(Box::new(api)), version: String::leak(version.into_owned()) })
}

/// Returns whether `dwell` can work with this version of the library.
pub(crate) fn check_version(version: &str) -> bool {
    let mut numbers = version.trim_start_matches('v').split(['.', '-']).map(str::parse::<u32>);
    numbers.next() == Some(Ok(1)) && matches!(numbers.next(), Some(Ok(minor)) if VERSIONS.contains(&minor))
}

/// Returns the linker's message, which names the file once more, without that name.
fn reason(error: &libloading::Error, path: &Path) -> String {
    let text = std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string);
    let text = text.replace(['\n', '\r'], " ");
    text.strip_prefix(&format!("{}: ", path.display())).map_or(text.clone(), str::to_owned)
}
