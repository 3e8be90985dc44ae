//! Renaming and removing epochs, from any process.

use crate::{DatabaseError, Epoch, EpochId, error::IoContext};

use super::{Database, select::check_name};

impl Database {
    /// Names an epoch, at any time: also while it is being collected.
    pub fn rename(&self, id: &EpochId, name: &str) -> Result<(), DatabaseError> {
        // Before the lock: its folder is there only if there is a database.
        self.read_epoch(id)?;
        let _metadata = self.lock_metadata()?;
        check_name(&self.epochs()?.epochs, Some(id), name)?;
        let epoch = Epoch { name: Some(name.to_owned()), ..self.read_epoch(id)? };
        self.write_epoch(&epoch)
    }

    /// The bytes of an epoch's files. Some may come or go meanwhile; those that went do not count.
    pub fn epoch_bytes(&self, id: &EpochId) -> Result<u64, DatabaseError> {
        let folder = self.layout.epoch(id)?;
        let entries = self.disk.list(&folder).map_err(|_| self.no_such_epoch(&id.0))?;
        let files = entries.iter().filter(|entry| !entry.is_dir);
        Ok(files.map(|entry| self.disk.bytes(&folder.join(&entry.name)).unwrap_or(0)).sum())
    }

    /// Removes an epoch and the source texts that no other one needs. Readers that are at it get an error. An epoch that
    /// is being collected is refused.
    pub fn remove(&self, id: &EpochId) -> Result<(), DatabaseError> {
        let folder = self.layout.epoch(id)?;
        // Not needed to go on: what cannot be read can be removed.
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
