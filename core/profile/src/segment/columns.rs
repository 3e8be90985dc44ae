//! The columns of a segment, shared by the writer and the reader.

use std::sync::{Arc, LazyLock};

use parquet::{
    basic::{Compression, Encoding, LogicalType, Repetition, Type as Physical, ZstdLevel},
    file::properties::{EnabledStatistics, WriterProperties, WriterPropertiesPtr},
    schema::types::{ColumnPath, Type, TypePtr},
};

use crate::{Dimension, DimensionSet};

pub(super) const IMAGE: &str = "image";
pub(super) const EVENT: &str = "event";
pub(super) const OFFSET: &str = "offset";
pub(super) const COUNT: &str = "count";
pub(super) const APP: &str = "app";
pub(super) const INSTANCE: &str = "instance";
pub(super) const PATH: &str = "path";
pub(super) const THREAD: &str = "thread";
pub(super) const CGROUP: &str = "cgroup";
pub(super) const CPU: &str = "cpu";
/// Value in the CPU column that means that the CPU is not known.
pub(super) const NO_CPU: u32 = u32::MAX;
pub(super) const PARENT: &str = "parent";
pub(super) const END: &str = "end";
pub(super) const START: &str = "start";
pub(super) const NAME: &str = "name";
pub(super) const BURST: &str = "burst";
pub(super) const KIND: &str = "kind";
pub(super) const TO_IMAGE: &str = "to_image";
pub(super) const TO_OFFSET: &str = "to_offset";
pub(super) const CPU_NS: &str = "cpu_ns";
pub(super) const SOURCE: &str = "source";
pub(super) const EXECUTIONS: &str = "executions";
pub(super) const SAMPLES: &str = "samples";
pub(super) const DEVIATION_PPM: &str = "deviation_ppm";

/// The columns that every segment has, in the order of the file.
pub(super) static SCHEMA: LazyLock<TypePtr> = LazyLock::new(|| schema(DimensionSet::NONE));

/// Returns the columns that every segment has, followed by the columns of the given dimensions.
pub(super) fn schema(dimensions: DimensionSet) -> TypePtr {
    let mut columns = vec![
        text(IMAGE),
        text(EVENT),
        unsigned(OFFSET, 64),
        unsigned(COUNT, 64),
        text(APP),
        unsigned(INSTANCE, 32),
        text(PATH),
    ];
    columns.extend(dimensions.iter().map(|dimension| match dimension {
        Dimension::Thread => text(THREAD),
        Dimension::Cpu => unsigned(CPU, 32),
        Dimension::Cgroup => text(CGROUP),
    }));
    Arc::new(Type::group_type_builder("segment").with_fields(columns).build().expect("a fixed schema"))
}

/// The columns of evidence of executions.
pub(super) static EVIDENCE_SCHEMA: LazyLock<TypePtr> = LazyLock::new(|| evidence_schema(&[text(KIND)], &[]));

/// The columns of evidence of executions in files of version 1.
pub(super) static EVIDENCE_SCHEMA_V1: LazyLock<TypePtr> = LazyLock::new(|| evidence_schema(&[], &[]));

/// The columns of evidence of executions in files of version 3, in which paths have a CPU time.
pub(super) static EVIDENCE_SCHEMA_V3: LazyLock<TypePtr> =
    LazyLock::new(|| evidence_schema(&[text(KIND)], &[unsigned(CPU_NS, 64)]));

fn evidence_schema(kind: &[TypePtr], time: &[TypePtr]) -> TypePtr {
    let mut columns = vec![
        unsigned(BURST, 32),
        text(IMAGE),
        unsigned(OFFSET, 64),
        text(TO_IMAGE),
        unsigned(TO_OFFSET, 64),
        unsigned(COUNT, 64),
    ];
    columns.splice(1..1, kind.iter().cloned());
    columns.extend(time.iter().cloned());
    Arc::new(Type::group_type_builder("paths").with_fields(columns).build().expect("a fixed schema"))
}

/// The columns of execution counts.
pub(super) static COUNTS_SCHEMA: LazyLock<TypePtr> = LazyLock::new(|| {
    let columns = vec![
        text(IMAGE),
        unsigned(OFFSET, 64),
        text(APP),
        unsigned(INSTANCE, 32),
        text(SOURCE),
        unsigned(EXECUTIONS, 64),
        unsigned(SAMPLES, 64),
        unsigned(DEVIATION_PPM, 32),
    ];
    Arc::new(Type::group_type_builder("counts").with_fields(columns).build().expect("a fixed schema"))
});

/// The columns of call stacks.
pub(super) static STACKS_SCHEMA: LazyLock<TypePtr> = LazyLock::new(|| {
    let columns = vec![
        unsigned(PARENT, 32),
        text(IMAGE),
        unsigned(OFFSET, 64),
        unsigned(COUNT, 64),
        text(EVENT),
        text(APP),
        unsigned(INSTANCE, 32),
        text(END),
    ];
    Arc::new(Type::group_type_builder("stacks").with_fields(columns).build().expect("a fixed schema"))
});

/// The columns of the symbols of an image. Its integers are signed, since the file is for other engines too.
pub(super) static SYMBOLS_SCHEMA: LazyLock<TypePtr> = LazyLock::new(|| {
    let columns = vec![text(IMAGE), signed(START), signed(END), text(NAME)];
    Arc::new(Type::group_type_builder("symbols").with_fields(columns).build().expect("a fixed schema"))
});

/// The encodings of the columns. Texts, counts and instances use a dictionary and run lengths; offsets are stored as
/// differences, since they ascend within an image's application. All columns are compressed by zstd, whose slower
/// levels do not shrink them further.
pub(super) static PROPERTIES: LazyLock<WriterPropertiesPtr> = LazyLock::new(|| {
    let zstd = Compression::ZSTD(ZstdLevel::try_new(1).expect("a valid level"));
    let (offset, parent) = (ColumnPath::from(OFFSET), ColumnPath::from(PARENT));
    let properties = WriterProperties::builder()
        .set_created_by(format!("dwell {}", env!("CARGO_PKG_VERSION")))
        .set_compression(zstd)
        .set_dictionary_enabled(true)
        .set_column_dictionary_enabled(offset.clone(), false)
        .set_column_encoding(offset, Encoding::DELTA_BINARY_PACKED)
        // The rows of callers ascend as long as stacks get deeper.
        .set_column_dictionary_enabled(parent.clone(), false)
        .set_column_encoding(parent, Encoding::DELTA_BINARY_PACKED)
        // One minimum and maximum for each column is enough to skip a segment, and only the footer contains them.
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_offset_index_disabled(true);
    Arc::new(properties.build())
});

pub(super) fn text(name: &str) -> TypePtr {
    column(name, Physical::BYTE_ARRAY, LogicalType::String)
}

/// Returns a column of signed numbers of 64 bits, which every engine reads well.
pub(super) fn signed(name: &str) -> TypePtr {
    column(name, Physical::INT64, LogicalType::integer(64, true))
}

fn unsigned(name: &str, bit_width: i8) -> TypePtr {
    let physical = if bit_width == 64 { Physical::INT64 } else { Physical::INT32 };
    column(name, physical, LogicalType::integer(bit_width, false))
}

fn column(name: &str, physical: Physical, logical: LogicalType) -> TypePtr {
    let builder = Type::primitive_type_builder(name, physical)
        .with_repetition(Repetition::REQUIRED)
        .with_logical_type(Some(logical));
    Arc::new(builder.build().expect("a fixed column"))
}
