//! Stores the source files of an epoch, so that later readers can see which lines were edited since.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use dwell_profile::{EpochId, ImageRecord, text_to_path};

use crate::{
    Query, QueryError,
    load::{selection::Selection, source},
};

impl Query {
    /// Stores the source files of the epoch's sampled lines as they are now, so that later readers can compare them. Call it
    /// when the last sample of the epoch has been stored. Files that are not the ones that were compiled are left out.
    /// Returns the number of files stored.
    pub fn keep_sources(&self, epoch: &EpochId) -> Result<usize, QueryError> {
        let view = self.view(&[epoch.to_string()])?;
        let mut texts = Vec::new();
        for (file, record) in self.sampled_files(&view.selection) {
            let path = text_to_path(&file);
            let Ok(text) = source::read(&path) else { continue };
            if self.built_as(record, &file).is(&text, source::mtime_ns(&path)) == Some(true) {
                texts.push((path.into_owned(), text));
            }
        }
        // Files are stored in batches, because each batch holds the lock of the metadata during several fsyncs.
        for batch in texts.chunks(100) {
            let batch: Vec<(&Path, &[u8])> = batch.iter().map(|(p, t)| (p.as_path(), t.as_slice())).collect();
            self.database.put_sources(epoch, &batch)?;
        }
        Ok(texts.len())
    }

    /// Returns the files of sampled lines, each with an image that was compiled from it. Images with less than a thousandth
    /// of the samples are skipped: their sources are rarely edited, and opening hundreds of images takes long.
    fn sampled_files<'s>(&self, selection: &'s Selection) -> BTreeMap<Arc<str>, &'s ImageRecord> {
        let mut files = BTreeMap::new();
        for samples in selection.images.iter().filter(|i| selection.share(&i.total) >= 0.001) {
            let found = self.store.find(&samples.record);
            let Ok(image) = &found.image else { continue };
            let addresses = samples.points.iter().filter_map(|(offset, _)| image.address_of(offset));
            for (file, _) in image.lines_at(addresses).into_iter().flatten() {
                files.entry(file).or_insert(&samples.record);
            }
        }
        files
    }
}
