//! Tests of segments as bytes: what is written is read again, the fixtures of `test-fixtures/profiles` are read as
//! before, and hostile bytes do no harm. `UPDATE_EXPECT=1` writes missing fixtures (their README says when to do that).

use std::{fmt::Write, path::PathBuf, sync::Arc};

use expect_test::{Expect, expect};
use parquet::file::{metadata::KeyValue, writer::SerializedFileWriter};
use proptest::prelude::*;

use super::*;
use crate::{Counts, Event, ImageId, ImageKind, ImageOffset, ImageSymbol};

fn key(image: &str, event: &str, offset: u64, app: &str, instance: u32) -> SampleKey {
    let (image, event, offset) = (ImageId::named(image), Event::named(event), ImageOffset(offset));
    SampleKey { image, event, offset, app: Arc::from(app), instance, dimensions: None }
}

/// Returns a small segment that uses every feature.
fn sample() -> Vec<u8> {
    let symbol = ImageSymbol { offset: ImageOffset(64), size_bytes: 32, name: "do_syscall_64".into() };
    let image = |id: &str, kind, path: &str, symbols| ImageRecord {
        id: ImageId::named(id),
        kind,
        path: path.into(),
        deleted: false,
        size_bytes: None,
        mtime_ns: None,
        symbols,
        places: Default::default(),
        kernel_builds: Vec::new(),
    };
    let images = [
        image("0123abcd", ImageKind::File, "/usr/bin/hash_join", vec![]),
        image("kernel", ImageKind::Kernel, "[kernel.kallsyms]", vec![symbol]),
    ];
    let mut counts = Counts::default();
    for i in 0..40u64 {
        counts.insert(key("0123abcd", "cpu-clock", 0x1000 + 4 * i, "hash_join", 1), i + 1);
    }
    counts.insert(key("kernel", "cpu-clock", 70, "hash_join", 1), 3);
    counts.insert(key("kernel", "branch-taken", u64::MAX, "swapper", 0), u64::MAX);
    counts.insert(key("unknown", "cpu-clock", 1 << 63, "größer", u32::MAX), 1);
    let range = SegmentRange { first: 1, last: 9 };
    encode(&EpochId("20261121T110131Z-5f3a9c".into()), range, &counts, &images).unwrap()
}

/// Returns a file with the segment's columns and other metadata, or none.
fn with_metadata(metadata: &[(&str, &str)]) -> Vec<u8> {
    let mut file =
        SerializedFileWriter::new(Vec::new(), columns::SCHEMA.clone(), columns::PROPERTIES.clone()).unwrap();
    for (key, value) in metadata {
        file.append_key_value_metadata(KeyValue::new((*key).to_owned(), (*value).to_owned()));
    }
    file.into_inner().unwrap()
}

/// Returns a copy in which `new` replaces the first `old`.
fn patched(bytes: &[u8], old: &[u8], new: &[u8]) -> Vec<u8> {
    let at = bytes.windows(old.len()).position(|w| w == old).expect("a known place");
    [&bytes[..at], new, &bytes[at + old.len()..]].concat()
}

/// Returns a file with this footer.
fn with_footer(footer: &[u8]) -> Vec<u8> {
    [b"PAR1", footer, &(footer.len() as u32).to_le_bytes(), b"PAR1"].concat()
}

/// Returns every fixture with the bytes that it is made of. An existing fixture is never made again, because it stands
/// for what older versions wrote.
fn fixtures() -> Vec<(&'static str, Vec<u8>)> {
    let good = sample();
    let mut flipped = good.clone();
    flipped[100] ^= 1;
    vec![
        ("v1.parquet", good.clone()),
        ("truncated.parquet", good[..good.len() / 2].to_vec()),
        ("flipped-bit.parquet", flipped),
        ("newer.parquet", with_metadata(&[(metadata::VERSION, "2")])),
        ("foreign.parquet", with_metadata(&[])),
        ("empty.parquet", vec![]),
        ("magic-alone.parquet", b"PAR1PAR1".to_vec()),
        // The header of the first page: type 2 (dictionary), then its unpacked size, which is set to 2^30 bytes.
        ("huge-page.parquet", huge_page(&good)),
        ("huge-dictionary.parquet", huge_dictionary(&good)),
        // A list of 2^31 booleans takes no bytes, but reading it takes hours.
        ("endless-list.parquet", with_footer(&[0x09, 0x7e, 0xf1, 0xff, 0xff, 0xff, 0xff, 0x07, 0])),
    ]
}

/// Patches the unpacked size, a zigzag varint of Thrift: field 1 (type 2), field 2 (unpacked size), both i32.
fn huge_page(good: &[u8]) -> Vec<u8> {
    let size_at = 4 + 3;
    assert_eq!(good[4..size_at], [0x15, 4, 0x15], "the first page's header");
    let length = good[size_at..].iter().position(|b| b & 0x80 == 0).unwrap() + 1;
    let old = &good[4..size_at + length];
    patched(good, old, &[&[0x15, 4, 0x15][..], &[0xff; 4][..length.min(5) - 1], &[0x0f]].concat())
}

/// Patches the header of the dictionary page: field 7 is a struct whose field 1 is the number of values. It becomes
/// 2^20, where 3 would fit.
fn huge_dictionary(good: &[u8]) -> Vec<u8> {
    patched(good, &[0x4c, 0x15, 6], &[0x4c, 0x15, 0x80, 0x80, 0x80, 1])
}

fn folder() -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "..", "..", "test-fixtures", "profiles"].iter().collect()
}

fn describe(read: Result<Segment, SegmentError>) -> String {
    match read {
        Ok(s) => {
            format!("epoch {} appends {} rows {} images {}", s.epoch, s.range, s.rows.len(), s.images.len())
        }
        Err(error) => error.to_string(),
    }
}

fn check_fixtures(expect: Expect) {
    let mut text = String::new();
    for (name, made) in fixtures() {
        let path = folder().join(name);
        if std::env::var_os("UPDATE_EXPECT").is_some() && !path.exists() {
            std::fs::write(&path, &made).unwrap();
        }
        let bytes = std::fs::read(&path).unwrap();
        let unverified = describe(read_segment_unverified(&bytes));
        writeln!(text, "{name}\n  {}\n  {unverified}", describe(read_segment(&bytes))).unwrap();
    }
    expect.assert_eq(&text);
}

/// Checks for each fixture the result of reading it, and then the result without verifying the checksum.
#[test]
fn fixtures_read_as_ever() {
    check_fixtures(expect![[r#"
        v1.parquet
          epoch 20261121T110131Z-5f3a9c appends 000001-000009 rows 43 images 2
          epoch 20261121T110131Z-5f3a9c appends 000001-000009 rows 43 images 2
        truncated.parquet
          not a readable Parquet file: its end is missing: truncated, or another kind of file
          not a readable Parquet file: its end is missing: truncated, or another kind of file
        flipped-bit.parquet
          its checksum does not match: the file is damaged
          not a readable Parquet file: malformed page header
        newer.parquet
          segment version 2, this dwell reads up to 1
          segment version 2, this dwell reads up to 1
        foreign.parquet
          a Parquet file, but no segment of Dwell's: its metadata has no `dwell.version`
          a Parquet file, but no segment of Dwell's: its metadata has no `dwell.version`
        empty.parquet
          not a readable Parquet file: its end is missing: truncated, or another kind of file
          not a readable Parquet file: its end is missing: truncated, or another kind of file
        magic-alone.parquet
          too large: footer in bytes 827474256, the limit is 201326592
          too large: footer in bytes 827474256, the limit is 201326592
        huge-page.parquet
          its checksum does not match: the file is damaged
          not a readable Parquet file: malformed page header
        huge-dictionary.parquet
          its checksum does not match: the file is damaged
          not a readable Parquet file: malformed page header
        endless-list.parquet
          not a readable Parquet file: malformed footer
          not a readable Parquet file: malformed footer
    "#]]);
}

#[test]
fn rows_come_back_sorted_and_whole() {
    let segment = read_segment(&sample()).unwrap();
    assert_eq!(segment.rows.len(), 43);
    assert!(segment.rows.is_sorted_by_key(|(k, _)| (
        k.image.clone(),
        k.event.clone(),
        k.app.clone(),
        k.instance,
        k.offset
    )));
    assert_eq!(segment.rows[41], (key("kernel", "cpu-clock", 70, "hash_join", 1), 3));
    assert_eq!(segment.images[1].symbols[0].name, "do_syscall_64");
}

#[test]
fn what_does_not_fit_is_refused_when_written() {
    let counts = Counts::from_iter([(key("aa", "cycles", 1, &"x".repeat(5000), 1), 1)]);
    let error = encode(&EpochId("e".into()), SegmentRange::one(1), &counts, &[]).unwrap_err();
    expect!["too large: text in bytes 5000, the limit is 4096"].assert_eq(&error.to_string());
}

#[test]
fn each_single_changed_byte_is_found() {
    let good = sample();
    let want = read_segment(&good).unwrap().rows;
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 0x55;
        // Some bytes of the footer are not used (writer, statistics); what is read must be right.
        if let Ok(segment) = read_segment(&bad) {
            assert_eq!(segment.rows, want, "byte {at}");
        }
    }
    for end in 0..good.len() {
        assert!(read_segment(&good[..end]).is_err(), "cut at {end}");
    }
}

/// Each row is image, event, offset, application, instance; count.
#[test]
fn what_older_versions_wrote_is_read_alike_as_rows_and_as_runs() {
    let bytes = std::fs::read(folder().join("v1.parquet")).unwrap();
    let rows: Counts = read_segment(&bytes).unwrap().rows.into_iter().collect();
    assert_eq!(sum_runs_unverified(&bytes).unwrap(), rows);
    assert_eq!(rows.len(), 43);
}

type Row = ((u8, u8, u64, u8, u32), u64);

fn any_rows() -> impl Strategy<Value = Vec<Row>> {
    prop::collection::vec(((0u8..5, 0u8..3, any::<u64>(), 0u8..5, any::<u32>()), 1u64..), 0..300)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn any_counts_come_back(rows in any_rows()) {
        let name = |prefix: &str, n: u8| format!("{prefix}{n}");
        let counts: Counts = rows
            .into_iter()
            .map(|((i, e, o, a, n), c)| (key(&name("i", i), &name("e", e), o, &name("a", a), n), c))
            .collect();
        let bytes = encode(&EpochId("e".into()), SegmentRange::one(3), &counts, &[]).unwrap();
        let read: Counts = read_segment(&bytes).unwrap().rows.into_iter().collect();
        prop_assert_eq!(read, counts);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, ..ProptestConfig::default() })]

    /// Mutates the bytes without verifying the checksum, as a hostile writer could.
    #[test]
    fn mutated_fixtures_neither_panic_nor_swell(
        which in 0usize..10,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in prop::option::weighted(0.1, any::<prop::sample::Index>()),
    ) {
        let name = fixtures_names()[which];
        let mut bytes = std::fs::read(folder().join(name)).unwrap();
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len() + 1));
        }
        for (at, value) in changes.iter().filter(|_| !bytes.is_empty()).collect::<Vec<_>>() {
            let at = at.index(bytes.len());
            bytes[at] = *value;
        }
        let _ = read_segment(&bytes);
        let _ = read_segment_unverified(&bytes);
        let _ = sum_runs_unverified(&bytes);
    }
}

fn fixtures_names() -> Vec<&'static str> {
    static NAMES: std::sync::LazyLock<Vec<&'static str>> =
        std::sync::LazyLock::new(|| fixtures().into_iter().map(|(name, _)| name).collect());
    NAMES.clone()
}
