//! Totals of many epochs → the bytes of a Parquet file, for engines that answer with SQL. This crate does not read it.

use std::sync::{Arc, LazyLock};

use parquet::{
    data_type::{ByteArray, ByteArrayType, Int64Type},
    file::{properties::WriterPropertiesPtr, writer::SerializedFileWriter},
    schema::types::{Type, TypePtr},
};

use crate::{Event, ImageId};

use super::{
    SegmentError,
    columns::{APP, CGROUP, COUNT, EVENT, IMAGE, PATH, PROPERTIES, signed, text},
};

/// The samples of an epoch in one image.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TotalRow {
    /// Id of the epoch.
    pub epoch: Arc<str>,
    /// Name of its host.
    pub host: Arc<str>,
    /// The image.
    pub image: ImageId,
    /// Its path, as text.
    pub path: Arc<str>,
    /// The event; none that is derived from samples.
    pub event: Event,
    /// The application.
    pub app: Arc<str>,
    /// The control group; empty if it was not kept.
    pub cgroup: Arc<str>,
    /// Number of samples.
    pub count: u64,
}

static SCHEMA: LazyLock<TypePtr> = LazyLock::new(|| {
    let columns = vec![
        text("epoch"),
        text("host"),
        text(IMAGE),
        text(PATH),
        text(EVENT),
        text(APP),
        text(CGROUP),
        signed(COUNT),
    ];
    Arc::new(Type::group_type_builder("totals").with_fields(columns).build().expect("a fixed schema"))
});

/// Number of rows in a row group.
const ROW_GROUP_ROWS: usize = 1 << 20;

/// Returns totals as a Parquet file whose integers are signed. FORMAT.md of `dwell-fleet` describes it.
pub fn encode_totals(rows: &[TotalRow]) -> Result<Vec<u8>, SegmentError> {
    let properties: WriterPropertiesPtr = PROPERTIES.clone();
    let mut file = SerializedFileWriter::new(Vec::new(), SCHEMA.clone(), properties)?;
    for rows in rows.chunks(ROW_GROUP_ROWS) {
        let texts: [&dyn Fn(&TotalRow) -> ByteArray; 7] = [
            &|row| ByteArray::from(&*row.epoch),
            &|row| ByteArray::from(&*row.host),
            &|row| ByteArray::from(row.image.as_str()),
            &|row| ByteArray::from(&*row.path),
            &|row| ByteArray::from(row.event.name()),
            &|row| ByteArray::from(&*row.app),
            &|row| ByteArray::from(&*row.cgroup),
        ];
        let mut group = file.next_row_group()?;
        for value in texts {
            let values: Vec<ByteArray> = rows.iter().map(value).collect();
            let mut column = group.next_column()?.expect("as many columns as the schema has");
            column.typed::<ByteArrayType>().write_batch(&values, None, None)?;
            column.close()?;
        }
        let counts: Vec<i64> = rows.iter().map(|row| i64::try_from(row.count).unwrap_or(i64::MAX)).collect();
        let mut column = group.next_column()?.expect("as many columns as the schema has");
        column.typed::<Int64Type>().write_batch(&counts, None, None)?;
        column.close()?;
        group.close()?;
    }
    Ok(file.into_inner()?)
}
