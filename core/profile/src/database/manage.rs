//! Renaming and removing epochs, from any process.

use crate::{DatabaseError, Epoch, EpochId, error::IoContext};

use super::{Database, select::check_name};

impl Database {
    /// Names an epoch. This is possible at any time, even while the epoch is collected.
    pub fn rename(&self, id: &EpochId, name: &str) -> Result<(), DatabaseError> {
        // This precedes the lock, because the lock's folder exists only if there is a database.
        self.read_epoch(id)?;
        let _metadata = self.lock_metadata()?;
        check_name(&self.epochs()?.epochs, Some(id), name)?;
        let epoch = Epoch { name: Some(name.to_owned()), ..self.read_epoch(id)? };
        self.write_epoch(&epoch)
    }

    /// Returns the size of an epoch's files, in bytes. Files may appear or be removed meanwhile; removed ones are not
    /// counted.
    pub fn epoch_bytes(&self, id: &EpochId) -> Result<u64, DatabaseError> {
        let folder = self.layout.epoch(id)?;
        let entries = self.disk.list(&folder).map_err(|_| self.no_such_epoch(&id.0))?;
        let files = entries.iter().filter(|entry| !entry.is_dir);
        Ok(files.map(|entry| self.disk.bytes(&folder.join(&entry.name)).unwrap_or(0)).sum())
    }

    /// Removes an epoch and the source texts that no other epoch needs. Readers of the epoch get an error. An epoch
    /// that is being collected is refused.
    pub fn remove(&self, id: &EpochId) -> Result<(), DatabaseError> {
        let folder = self.layout.epoch(id)?;
        // The content is not needed: an unreadable epoch can be removed too.
        self.disk.list(&folder).map_err(|_| self.no_such_epoch(&id.0))?;
        let _metadata = self.lock_metadata()?;
        let _epoch = self.lock_epoch(id)?;
        let aside = self.metadata_temporary();
        self.disk.rename(&folder, &aside).context("remove", &folder)?;
        let epochs = self.layout.epochs();
        self.disk.sync_dir(&epochs).context("sync", &epochs)?;
        self.remove_tree(&aside, true).context("remove", &aside)?;
        self.collect_sources()
    }
}
