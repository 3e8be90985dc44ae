//! What a host has sent to a place, so that it need not ask. If the file is lost, object stores are asked, and receivers of profiles get
//! recordings again.

use std::{
    collections::BTreeSet,
    fs,
    io::Write,
    path::{Path, PathBuf},
};

use dwell_profile::Epoch;

use crate::{
    FleetError,
    keys::{IMAGES, SYMBOLS},
};

/// The epochs and binaries that are known to be at a place: one id or name a line, in a file named after the place.
pub(crate) struct Sent {
    names: BTreeSet<String>,
    file: Option<PathBuf>,
}

impl Sent {
    pub(crate) fn contains(&self, name: &str) -> bool {
        self.names.contains(name)
    }

    /// Reads what was sent to the place with this name.
    pub(crate) fn open(state: Option<&Path>, place: &str) -> Result<Sent, FleetError> {
        let Some(folder) = state else { return Ok(Sent { names: BTreeSet::new(), file: None }) };
        let failed = |path: &Path, source| FleetError::File { path: path.to_owned(), source };
        fs::create_dir_all(folder).map_err(|source| failed(folder, source))?;
        let identity = blake3::hash(place.as_bytes());
        let file = folder.join(&identity.to_hex()[..32]);
        let text = match fs::read_to_string(&file) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            read => read.map_err(|source| failed(&file, source))?,
        };
        // The last line may have been cut off.
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        Ok(Sent { names: whole.lines().map(str::to_owned).collect(), file: Some(file) })
    }

    /// Notes what was sent.
    pub(crate) fn add(&mut self, id: &str) -> Result<(), FleetError> {
        self.names.insert(id.to_owned());
        let Some(file) = &self.file else { return Ok(()) };
        let appended = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(file)
            .and_then(|mut file| file.write_all(format!("{id}\n").as_bytes()));
        appended.map_err(|source| FleetError::File { path: file.clone(), source })
    }

    /// Forgets epochs that the database no longer has, and what a cut line left.
    pub(crate) fn keep_only(&mut self, epochs: &[Epoch]) -> Result<(), FleetError> {
        let here: BTreeSet<&str> = epochs.iter().map(|epoch| epoch.id.0.as_str()).collect();
        self.names
            .retain(|id| id.starts_with(IMAGES) || id.starts_with(SYMBOLS) || here.contains(id.as_str()));
        let Some(file) = &self.file else { return Ok(()) };
        let text: String = self.names.iter().map(|id| format!("{id}\n")).collect();
        let temporary = file.with_extension("new");
        let written = fs::write(&temporary, text).and_then(|()| fs::rename(&temporary, file));
        written.map_err(|source| FleetError::File { path: file.clone(), source })
    }
}
