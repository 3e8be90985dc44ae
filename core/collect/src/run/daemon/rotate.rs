//! When an epoch ends and the next begins: by schedule, by size, by a rebuild, or because something changed.
//!
//! Enters: how long the epoch has lasted, how large it is, which images were sampled. Leaves: why it should end.
//! Never here: ending it.

use std::{path::PathBuf, time::Duration};

use dwell_profile::{ImageId, ImageKind, ImageRecord};
use rustc_hash::FxHashMap;

/// Maximum number of image paths that are remembered to notice rebuilds. The first ones stay.
const PATHS_MAX: usize = 1 << 10;

/// The conditions that end an epoch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schedule {
    /// Duration of an epoch. `None`: no limit.
    pub every: Option<Duration>,
    /// Size of an epoch in bytes. `None`: no limit.
    pub bytes: Option<u64>,
    /// Parts of paths: an epoch ends when an image whose path contains one of them was rebuilt.
    pub rebuilt: Vec<String>,
}

/// Watches the current epoch for reasons to end it.
#[derive(Debug, Default)]
pub struct Rotation {
    schedule: Schedule,
    built: FxHashMap<PathBuf, ImageId>,
    rebuilt: Option<PathBuf>,
}

impl Rotation {
    /// Creates a watch with this schedule.
    pub fn new(schedule: Schedule) -> Self {
        Rotation { schedule, ..Rotation::default() }
    }

    /// Adds the images of a batch of counts. If a path appears with another id, its image was rebuilt.
    pub fn note_images<'a>(&mut self, images: impl IntoIterator<Item = &'a ImageRecord>) {
        for record in images {
            let path = record.path.to_string_lossy();
            let is_watched = self.schedule.rebuilt.iter().any(|part| path.contains(part.as_str()));
            if record.kind != ImageKind::File || !is_watched {
                continue;
            }
            match self.built.get(&record.path) {
                // Processes that still run the old image are no news, and must not switch the path back to it.
                Some(known) if *known != record.id && !record.deleted => {
                    self.rebuilt = Some(record.path.clone());
                    self.built.insert(record.path.clone(), record.id.clone());
                }
                None if self.built.len() < PATHS_MAX => {
                    self.built.insert(record.path.clone(), record.id.clone());
                }
                _ => {}
            }
        }
    }

    /// Returns why the epoch should end, if it should.
    pub fn due(&self, elapsed: Duration, bytes: u64) -> Option<String> {
        if let Some(path) = &self.rebuilt {
            return Some(format!("rebuilt: {}", path.display()));
        }
        if self.schedule.every.is_some_and(|every| elapsed >= every) {
            return Some("schedule".to_owned());
        }
        self.schedule.bytes.is_some_and(|max| bytes > max).then(|| "size".to_owned())
    }

    /// Begins to watch a new epoch.
    pub fn began(&mut self) {
        self.rebuilt = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(path: &str, id: &str, deleted: bool) -> ImageRecord {
        ImageRecord {
            id: ImageId::named(id),
            kind: ImageKind::File,
            path: path.into(),
            deleted,
            size_bytes: None,
            mtime_ns: None,
            symbols: Vec::new(),
            places: Default::default(),
            kernel_builds: Vec::new(),
        }
    }

    #[test]
    fn epochs_end_by_time_and_size() {
        let (hour, size) = (Duration::from_secs(3600), Some(1000));
        let rotation = Rotation::new(Schedule { every: Some(hour), bytes: size, rebuilt: Vec::new() });
        assert_eq!(rotation.due(hour / 2, 1000), None);
        assert_eq!(rotation.due(hour, 10).as_deref(), Some("schedule"));
        assert_eq!(rotation.due(hour / 2, 1001).as_deref(), Some("size"));
        assert_eq!(Rotation::default().due(hour * 9999, u64::MAX), None);
    }

    #[test]
    fn a_rebuild_of_a_watched_image_ends_its_epoch_once() {
        let mut rotation = Rotation::new(Schedule { rebuilt: vec!["/srv/".into()], ..Schedule::default() });
        rotation.note_images(&[record("/srv/app", "aa", false), record("/usr/bin/gcc", "11", false)]);
        rotation.note_images(&[record("/srv/app", "aa", false), record("/usr/bin/gcc", "22", false)]);
        assert_eq!(rotation.due(Duration::ZERO, 0), None);
        rotation.note_images(&[record("/srv/app", "bb", false), record("/srv/app", "aa", true)]);
        assert_eq!(rotation.due(Duration::ZERO, 0).as_deref(), Some("rebuilt: /srv/app"));
        rotation.began();
        rotation.note_images(&[record("/srv/app", "aa", true), record("/srv/app", "bb", false)]);
        assert_eq!(rotation.due(Duration::ZERO, 0), None, "the old build goes on beside the new one");
    }
}
