//! Names of the objects of a fleet, as FORMAT.md describes them.
//!
//! Enters: epochs with their hosts, or keys of objects, which are untrusted. Leaves: the one as the other.

use dwell_profile::{Epoch, EpochId, ImageId};

/// The version of the layout in a bucket, which the object `FORMAT` names.
pub const FLEET_FORMAT: u32 = 1;

/// The start of the object `FORMAT`, before the version.
pub(crate) const MARK: &str = "dwell fleet ";
/// The key of the marker, under the prefix.
pub(crate) const FORMAT: &str = "FORMAT";
/// The start of the keys of epochs, under the prefix.
pub(crate) const EPOCHS: &str = "epochs/";
/// The object of an epoch that is written last: the epoch is there if this is.
pub(crate) const EPOCH_FILE: &str = "epoch.json";

/// The start of the keys of roll-ups, under the prefix.
pub(crate) const ROLL_UPS: &str = "rollups/";
/// The object of a roll-up that has the `epoch.json` of each recording in it, one on a line.
pub(crate) const RECORDINGS: &str = "recordings.jsonl.zst";
/// The start of the keys of totals of roll-ups, under the prefix. Engines that know folders as tables find nothing else there.
pub(crate) const TOTALS: &str = "totals/";

/// The start of the keys of rows of tables that were computed and stored.
pub(crate) const TABLES: &str = "tables/";

/// Returns the folder of an epoch's stored rows in that of a table, as Spark writes it.
pub(crate) fn folder_of_stored_rows(epoch: &EpochId) -> String {
    format!("of_epoch={}/", url::form_urlencoded::byte_serialize(epoch.0.as_bytes()).collect::<String>())
}

/// Takes the key of stored rows apart, `of_epoch=ID/of_image=ID/NAME.parquet` after the table, as Spark writes it.
pub(crate) fn stored_rows(key: &str) -> Option<(EpochId, ImageId)> {
    let mut parts = key.split('/');
    let mut value = |name: &str| {
        let text = parts.next()?.strip_prefix(name)?.strip_prefix('=')?;
        // A plus sign is itself here.
        let text = text.replace('+', "%2B");
        let decoded = url::form_urlencoded::parse(format!("v={text}").as_bytes()).next()?.1.into_owned();
        (!decoded.is_empty() && decoded.len() <= 4096).then_some(decoded)
    };
    let (epoch, image) = (value("of_epoch")?, value("of_image")?);
    let file = parts.next()?;
    let is_ours = file.ends_with(".parquet") && !file.starts_with(['.', '_']) && parts.next().is_none();
    is_ours.then(|| (EpochId(epoch), ImageId::named(&image)))
}

/// The start of the keys of symbols of binaries, under the prefix.
pub(crate) const SYMBOLS: &str = "symbols/";

/// The start of the keys of binaries, under the prefix; the names are those of a database.
pub(crate) const IMAGES: &str = "images/";

/// The folder of an epoch.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct EpochFolder {
    /// The date on which the epoch began (UTC), as `2026-11-27`.
    pub(crate) date: String,
    /// The host's name with characters that keys cannot hold replaced.
    pub(crate) host: String,
    /// The epoch.
    pub(crate) id: EpochId,
}

impl EpochFolder {
    pub(crate) fn of(epoch: &Epoch) -> Self {
        let date = epoch.start.strftime("%Y-%m-%d").to_string();
        EpochFolder { date, host: host_in_keys(&epoch.host.name), id: epoch.id.clone() }
    }

    /// Returns the key of a file, under the prefix.
    pub(crate) fn key(&self, file: &str) -> String {
        format!("{EPOCHS}date={}/host={}/{}/{file}", self.date, self.host, self.id)
    }

    /// Takes a key under the prefix apart, into the folder and the file. Returns `None` for keys that Dwell would not write.
    pub(crate) fn parse(key: &str) -> Option<(EpochFolder, &str)> {
        let mut parts = key.strip_prefix(EPOCHS)?.split('/');
        let date = parts.next()?.strip_prefix("date=").filter(|date| crate::location::is_date(date))?;
        let host = parts.next()?.strip_prefix("host=").filter(|host| host_in_keys(host) == *host)?;
        let (id, file) = id_and_file(parts)?;
        Some((EpochFolder { date: date.into(), host: host.into(), id }, file))
    }
}

/// The folder of a roll-up.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RollUpFolder {
    /// The date on which all its recordings began (UTC), as `2026-11-27`.
    pub(crate) date: String,
    /// Its id as an epoch.
    pub(crate) id: EpochId,
}

impl RollUpFolder {
    /// Returns the key of a file, under the prefix.
    pub(crate) fn key(&self, file: &str) -> String {
        format!("{ROLL_UPS}date={}/{}/{file}", self.date, self.id)
    }

    /// Returns the key of its totals, under the prefix.
    pub(crate) fn totals_key(&self) -> String {
        format!("{TOTALS}date={}/{}.parquet", self.date, self.id)
    }

    /// Takes a key under the prefix apart, like [`EpochFolder::parse`].
    pub(crate) fn parse(key: &str) -> Option<(RollUpFolder, &str)> {
        let mut parts = key.strip_prefix(ROLL_UPS)?.split('/');
        let date = parts.next()?.strip_prefix("date=").filter(|date| crate::location::is_date(date))?;
        let (id, file) = id_and_file(parts)?;
        Some((RollUpFolder { date: date.into(), id }, file))
    }
}

/// Returns the last two parts of a key, if Dwell would write them and nothing follows.
fn id_and_file<'k>(mut parts: impl Iterator<Item = &'k str>) -> Option<(EpochId, &'k str)> {
    let (id, file) = (parts.next()?, parts.next()?);
    let is_name = |text: &str, others: &[u8]| {
        let allowed = |b: u8| b.is_ascii_alphanumeric() || others.contains(&b);
        (1..=64).contains(&text.len()) && text.bytes().all(allowed)
    };
    let is_ours = is_name(id, b"-")
        && !id.starts_with('-')
        && is_name(file, b"-.")
        && !file.starts_with('.')
        && parts.next().is_none();
    is_ours.then(|| (EpochId(id.into()), file))
}

/// Returns a host's name as keys have it.
pub(crate) fn host_in_keys(host: &str) -> String {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
    let name: String = host.chars().take(100).map(|c| if allowed(c) { c } else { '_' }).collect();
    if name.is_empty() { "unnamed".to_owned() } else { name }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn keys_and_folders_say_the_same() {
        let key = "epochs/date=2026-11-27/host=web-1/20261127T110131Z-5f3a9c/segment-000001.parquet";
        let (folder, file) = EpochFolder::parse(key).unwrap();
        assert_eq!((&*folder.host, file), ("web-1", "segment-000001.parquet"));
        assert_eq!(folder.key(file), key);
    }

    #[test]
    fn keys_of_roll_ups_are_not_those_of_recordings() {
        let key = "rollups/date=2026-11-27/20261127T000000Z-5f3a9c0001/recordings.jsonl.zst";
        let (folder, file) = RollUpFolder::parse(key).unwrap();
        assert_eq!((folder.key(file).as_str(), file), (key, RECORDINGS));
        assert_eq!(folder.totals_key(), "totals/date=2026-11-27/20261127T000000Z-5f3a9c0001.parquet");
        assert_eq!(EpochFolder::parse(key), None);
        assert_eq!(RollUpFolder::parse("rollups/date=2026-11-27/host=a/1/epoch.json"), None);
    }

    #[test]
    fn keys_of_stored_rows_are_those_of_spark() {
        let key = "of_epoch=20261127T000000Z-1/of_image=module%3Aext4/part-0.c000.snappy.parquet";
        let found = stored_rows(key).unwrap();
        assert_eq!((&*found.0.0, found.1.as_str()), ("20261127T000000Z-1", "module:ext4"));
        assert!(key.starts_with(&folder_of_stored_rows(&found.0)));
        for foreign in
            ["_SUCCESS", "of_epoch=1/of_image=a/_temporary/0.parquet", "of_epoch=/of_image=a/p.parquet"]
        {
            assert_eq!(stored_rows(foreign), None, "{foreign}");
        }
    }

    #[test]
    fn foreign_keys_are_nobodys() {
        for key in [
            "FORMAT",
            "epochs/date=today/host=a/1/epoch.json",
            "epochs/date=2026-11-27/host=a/../epoch.json",
            "epochs/date=2026-11-27/host=a b/1/epoch.json",
            "epochs/date=2026-11-27/host=a/1/.hidden",
            "epochs/date=2026-11-27/host=a/1/x/epoch.json",
            "epochs/date=2026-11-27/host=a/1",
        ] {
            assert_eq!(EpochFolder::parse(key), None, "{key}");
        }
    }

    proptest! {
        #[test]
        fn what_is_parsed_is_what_would_be_written(key in "epochs/(date=2026-11-27|[a-z./]{0,9})/(host=[a-z ./]{0,3}|x)/[a-zA-Z0-9./-]{0,70}/[a-z./-]{0,20}") {
            if let Some((folder, file)) = EpochFolder::parse(&key) {
                prop_assert_eq!(folder.key(file), key);
            }
        }
    }
}
