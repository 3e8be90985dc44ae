//! Evidence of executions ⇄ the bytes of a Parquet file beside the segments, with the same checksum and checks as a
//! segment.
//!
//! Enters: evidence, or untrusted bytes of version 1 to 3. Leaves: bytes of version 2 or 3, or evidence by number. Never
//! here: the file system. `FORMAT.md` describes all versions.

use std::{collections::BTreeMap, num::NonZeroU64, sync::Arc};

use parquet::{
    data_type::{Int32Type, Int64Type},
    schema::types::TypePtr,
};

use crate::{
    CodePlace, ControlTransfer, EpochId, ExecutionEvidence, ImageId, ImageOffset, database::SegmentRange,
};

use super::{
    MAX_SEGMENT_ROWS, SegmentError,
    columns::{
        BURST, COUNT, CPU_NS, EVIDENCE_SCHEMA, EVIDENCE_SCHEMA_V1, EVIDENCE_SCHEMA_V3, IMAGE, KIND, OFFSET,
        TO_IMAGE, TO_OFFSET,
    },
    decode::{BesideFile, Group, read_beside},
    encode::{column, encode_group, texts},
    metadata::Metadata,
};

/// The newest version of files of evidence that this crate writes and reads. It is written only if a path has a CPU time.
const EVIDENCE_VERSION: u32 = 3;
/// The version of files in which no path has a CPU time. Older dwells read it.
const UNTIMED_VERSION: u32 = 2;

/// Kind of the rows of a path burst.
const PATH: &str = "path";
/// Kind of the rows of breakpoint counts.
const BREAKPOINTS: &str = "breakpoints";
/// Kind of the rows of branch stacks.
const BRANCH_STACKS: &str = "branch-stacks";

/// The evidence of a file, by its number in the epoch.
type Contents = BTreeMap<u32, ExecutionEvidence>;

/// Encodes a file of evidence, which is numbered from `first_number` on.
pub(crate) fn encode_evidence(
    epoch: &EpochId,
    range: SegmentRange,
    first_number: u32,
    evidence: &[ExecutionEvidence],
) -> Result<Vec<u8>, SegmentError> {
    let rows: Vec<Row<'_>> = (first_number..).zip(evidence).flat_map(|(n, e)| rows_of(n, e)).collect();
    encode_rows(epoch, range, &rows)
}

fn encode_rows(epoch: &EpochId, range: SegmentRange, rows: &[Row<'_>]) -> Result<Vec<u8>, SegmentError> {
    SegmentError::limit("rows", rows.len() as u64, MAX_SEGMENT_ROWS as u64)?;
    let is_timed = rows.iter().any(|row| row.cpu_ns > 0);
    let version = if is_timed { EVIDENCE_VERSION } else { UNTIMED_VERSION };
    let metadata = Metadata { version, ..Metadata::new(epoch, range, &[])? };
    encode_group(schema(version), &metadata, |group| {
        column::<Int32Type>(group, rows.iter().map(|r| r.number as i32).collect())?;
        texts(group, rows, |r| r.kind)?;
        texts(group, rows, |r| r.from.image.as_str())?;
        column::<Int64Type>(group, rows.iter().map(|r| r.from.offset.0 as i64).collect())?;
        texts(group, rows, |r| r.to.image.as_str())?;
        column::<Int64Type>(group, rows.iter().map(|r| r.to.offset.0 as i64).collect())?;
        column::<Int64Type>(group, rows.iter().map(|r| r.count as i64).collect())?;
        if is_timed {
            column::<Int64Type>(group, rows.iter().map(|r| r.cpu_ns as i64).collect())?;
        }
        Ok(())
    })
}

/// Returns the columns of a version.
fn schema(version: u32) -> &'static TypePtr {
    match version {
        1 => &EVIDENCE_SCHEMA_V1,
        UNTIMED_VERSION => &EVIDENCE_SCHEMA,
        _ => &EVIDENCE_SCHEMA_V3,
    }
}

struct Row<'a> {
    number: u32,
    kind: &'static str,
    from: &'a CodePlace,
    to: &'a CodePlace,
    count: u64,
    /// CPU time of the path that the row begins, in ns; 0 if it is not known, and in all other rows.
    cpu_ns: u64,
}

fn rows_of(number: u32, evidence: &ExecutionEvidence) -> Vec<Row<'_>> {
    let row = |kind, from, to, count| Row { number, kind, from, to, count, cpu_ns: 0 };
    let transfers = |kind| {
        let counted = evidence.transfers().iter().filter(|t| t.count > 0);
        counted.map(move |t| row(kind, &t.from, &t.to, t.count))
    };
    match evidence {
        ExecutionEvidence::PathBurst { first, last, cpu_ns, .. } => {
            let opening = Row { cpu_ns: cpu_ns.unwrap_or(0), ..row(PATH, first, last, 0) };
            std::iter::once(opening).chain(transfers(PATH)).collect()
        }
        ExecutionEvidence::BreakpointCounts(counts) => {
            counts.iter().map(|(place, count)| row(BREAKPOINTS, place, place, *count)).collect()
        }
        ExecutionEvidence::BranchStacks(_) => transfers(BRANCH_STACKS).collect(),
    }
}

/// Reads a file of evidence completely, by number. Hostile bytes return an error that says what is wrong, and never
/// panic. Rows of a path before its first row, and of another kind than the number's first row, are left out. Without
/// `verify` the checksum is not checked.
pub(crate) fn read_evidence(bytes: &[u8], verify: bool) -> Result<BesideFile<Contents>, SegmentError> {
    let columns = |version| &**schema(version);
    let mut file = read_beside(bytes, verify, EVIDENCE_VERSION, columns, Contents::new(), read_group)?;
    if file.version == 1 {
        file.contents.values_mut().for_each(restore_kind);
    }
    Ok(file)
}

/// Adds the evidence of a row group. Rows of version 1 are all taken for paths.
fn read_group(group: &Group<'_>, evidence: &mut Contents) -> Result<(), SegmentError> {
    let kinds = match group.version {
        1 => vec![PATH.into(); group.rows],
        _ => group.texts(KIND, |kind| Arc::<str>::from(kind))?,
    };
    let places = |image, offset| -> Result<Vec<CodePlace>, SegmentError> {
        let images = group.texts(image, ImageId::named)?.into_iter().zip(group.values::<Int64Type>(offset)?);
        Ok(images.map(|(image, offset)| CodePlace { image, offset: ImageOffset(offset as u64) }).collect())
    };
    let places = places(IMAGE, OFFSET)?.into_iter().zip(places(TO_IMAGE, TO_OFFSET)?);
    let (numbers, counts) = (group.values::<Int32Type>(BURST)?, group.values::<Int64Type>(COUNT)?);
    let times = match group.version {
        ..=UNTIMED_VERSION => vec![0; group.rows],
        _ => group.values::<Int64Type>(CPU_NS)?,
    };
    let rows = numbers.into_iter().zip(kinds).zip(places).zip(counts).zip(times);
    for ((((number, kind), (from, to)), count), cpu_ns) in rows {
        let row = ControlTransfer { from, to, count: count as u64 };
        add_row(evidence, number as u32, &kind, row, NonZeroU64::new(cpu_ns as u64))?;
    }
    Ok(())
}

/// Adds a row to the evidence with its number. The first row decides the kind and, of a path, the CPU time.
fn add_row(
    evidence: &mut Contents,
    number: u32,
    kind: &str,
    row: ControlTransfer,
    cpu_ns: Option<NonZeroU64>,
) -> Result<(), SegmentError> {
    use ExecutionEvidence::{BranchStacks, BreakpointCounts, PathBurst};
    let known = match (kind, row.count) {
        (PATH, 0) => {
            let cpu_ns = cpu_ns.map(NonZeroU64::get);
            let opened = PathBurst { first: row.from, last: row.to, transfers: Vec::new(), cpu_ns };
            evidence.entry(number).or_insert(opened);
            return Ok(());
        }
        (PATH, _) => evidence.get_mut(&number),
        (BRANCH_STACKS, 0) => return Ok(()), // A transfer that nobody took.
        (BREAKPOINTS, _) => Some(evidence.entry(number).or_insert(BreakpointCounts(Vec::new()))),
        (BRANCH_STACKS, _) => Some(evidence.entry(number).or_insert(BranchStacks(Vec::new()))),
        _ => {
            let why = format!("has the kind '{kind}', which this dwell does not know");
            return Err(SegmentError::Column { column: KIND, why });
        }
    };
    match (kind, known) {
        (BREAKPOINTS, Some(BreakpointCounts(counts))) => counts.push((row.from, row.count)),
        (PATH, Some(PathBurst { transfers, .. })) | (BRANCH_STACKS, Some(BranchStacks(transfers))) => {
            transfers.push(row);
        }
        _ => {} // The row belongs to nothing.
    }
    Ok(())
}

/// Turns a path of a version 1 file into what it stands for: breakpoint counts were stored there as transfers of each
/// place to itself with one more than the executions, and branch stacks as a path from and to an unknown place.
fn restore_kind(stored: &mut ExecutionEvidence) {
    let ExecutionEvidence::PathBurst { first, last, transfers, .. } = stored else { return };
    if transfers.is_empty() || first != last {
        return;
    }
    let nowhere = CodePlace { image: ImageId::unknown(), offset: ImageOffset(0) };
    let transfers = std::mem::take(transfers);
    *stored = if *first == transfers[0].from && transfers.iter().all(|t| t.from == t.to) {
        let counts = transfers.into_iter().map(|t| (t.from, t.count.saturating_sub(1)));
        ExecutionEvidence::BreakpointCounts(counts.collect())
    } else if *first == nowhere {
        ExecutionEvidence::BranchStacks(transfers)
    } else {
        ExecutionEvidence::PathBurst { first: first.clone(), last: last.clone(), transfers, cpu_ns: None }
    };
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use proptest::prelude::*;

    use super::*;

    fn place() -> impl Strategy<Value = CodePlace> {
        let image = prop_oneof![Just("ab12"), Just("unknown"), Just("jit:node")];
        (image, any::<u64>())
            .prop_map(|(i, o)| CodePlace { image: ImageId::named(i), offset: ImageOffset(o) })
    }

    fn transfer() -> impl Strategy<Value = ControlTransfer> {
        (place(), place(), 1..=u64::MAX).prop_map(|(from, to, count)| ControlTransfer { from, to, count })
    }

    fn evidence() -> impl Strategy<Value = ExecutionEvidence> {
        let cpu_ns = prop::option::of(1..=u64::MAX);
        let path = (place(), place(), prop::collection::vec(transfer(), 0..20), cpu_ns).prop_map(
            |(first, last, transfers, cpu_ns)| ExecutionEvidence::PathBurst {
                first,
                last,
                transfers,
                cpu_ns,
            },
        );
        let counts = prop::collection::vec((place(), any::<u64>()), 1..5);
        let stacks = prop::collection::vec(transfer(), 1..20);
        prop_oneof![
            path,
            counts.prop_map(ExecutionEvidence::BreakpointCounts),
            stacks.prop_map(ExecutionEvidence::BranchStacks),
        ]
    }

    fn epoch() -> EpochId {
        EpochId("20261121T110131Z-5f3a9c".into())
    }

    fn encode(evidence: &[ExecutionEvidence]) -> Vec<u8> {
        encode_evidence(&epoch(), SegmentRange::one(3), 7, evidence).unwrap()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn what_is_written_is_read(evidence in prop::collection::vec(evidence(), 0..8)) {
            let read = read_evidence(&encode(&evidence), true).unwrap();
            prop_assert_eq!((read.epoch, read.range), (epoch(), SegmentRange::one(3)));
            prop_assert_eq!(read.contents, (7..).zip(evidence).collect());
        }

        #[test]
        fn damage_is_reported(evidence in prop::collection::vec(evidence(), 1..4), at in any::<prop::sample::Index>(), bit in 0..8_u8) {
            let mut bytes = encode(&evidence);
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
            if let Ok(read) = read_evidence(&bytes, true) {
                // Only bytes that neither the checksum nor the reader examines may change.
                prop_assert_eq!(read.contents, (7..).zip(evidence).collect());
            }
        }

        /// The checksum does not protect against a hostile writer, so anything may follow it.
        #[test]
        fn hostile_bytes_never_panic(evidence in prop::collection::vec(evidence(), 1..4), changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8)) {
            let mut bytes = encode(&evidence);
            for (at, byte) in changes {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            let _ = read_evidence(&bytes, false);
            let _ = read_evidence(&bytes[..bytes.len() / 2], false);
        }
    }

    fn check(bytes: &[u8], expect: Expect) {
        let place = |p: &CodePlace| format!("{}+{:x}", p.image, p.offset.0);
        let transfers = |transfers: &[ControlTransfer]| {
            let text = |t: &ControlTransfer| format!(" {}>{} x{}", place(&t.from), place(&t.to), t.count);
            transfers.iter().map(text).collect::<String>()
        };
        let text = |(number, evidence): (u32, ExecutionEvidence)| match evidence {
            ExecutionEvidence::PathBurst { first, last, transfers: all, cpu_ns } => {
                let time = cpu_ns.map(|ns| format!(" in {ns} ns")).unwrap_or_default();
                format!("{number} path {}..{}{time}{}\n", place(&first), place(&last), transfers(&all))
            }
            ExecutionEvidence::BreakpointCounts(counts) => {
                let counts: String = counts.iter().map(|(p, n)| format!(" {}={n}", place(p))).collect();
                format!("{number} breakpoints{counts}\n")
            }
            ExecutionEvidence::BranchStacks(all) => format!("{number} stacks{}\n", transfers(&all)),
        };
        let found = match read_evidence(bytes, true) {
            Ok(read) => read.contents.into_iter().map(text).collect(),
            Err(error) => error.to_string(),
        };
        expect.assert_eq(&found);
    }

    #[test]
    fn a_file_of_version_1_is_read_as_what_it_stands_for() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../test-fixtures/profiles/paths-v1.parquet");
        check(
            &std::fs::read(file).unwrap(),
            expect![[r#"
            1 path ab12+10..unknown+2328 ab12+18>jit:node+7 x1 ab12+40>ab12+10 x5
            2 breakpoints ab12+10=0 ab12+40=70 cd34+8=18446744073709551614
            3 stacks ab12+12>ab12+14 x3 ab12+18>ab12+10 x3
            4 path ab12+20..ab12+30
        "#]],
        );
    }

    #[test]
    fn rows_that_belong_to_nothing_are_left_out() {
        let place = |offset| CodePlace { image: ImageId::named("ab12"), offset: ImageOffset(offset) };
        let row = |count| ControlTransfer { from: place(1), to: place(2), count };
        let mut evidence = BTreeMap::new();
        for (number, kind, count) in [
            (1, PATH, 5),
            (2, PATH, 0),
            (2, BREAKPOINTS, 7),
            (2, PATH, 0),
            (3, BREAKPOINTS, 0),
            (3, BRANCH_STACKS, 9),
        ] {
            add_row(&mut evidence, number, kind, row(count), None).unwrap();
        }
        let empty = ExecutionEvidence::PathBurst {
            first: place(1),
            last: place(2),
            transfers: Vec::new(),
            cpu_ns: None,
        };
        let counts = ExecutionEvidence::BreakpointCounts(vec![(place(1), 0)]);
        assert_eq!(evidence, BTreeMap::from([(2, empty), (3, counts)]));
    }

    #[test]
    fn unknown_kinds_and_newer_versions_are_refused() {
        let place = CodePlace { image: ImageId::unknown(), offset: ImageOffset(0) };
        let row = Row { number: 1, kind: "trace", from: &place, to: &place, count: 1, cpu_ns: 0 };
        let bytes = encode_rows(&epoch(), SegmentRange::one(1), &[row]).unwrap();
        check(&bytes, expect!["its column `kind` has the kind 'trace', which this dwell does not know"]);
        // This is what a dwell that knows older versions alone says.
        let refused = |newest, evidence: &[ExecutionEvidence]| {
            let read = read_beside(&encode(evidence), true, newest, |v| schema(v), (), |_, _| Ok(()));
            read.err().map(|error| error.to_string()).unwrap_or_default()
        };
        expect!["segment version 2, this dwell reads up to 1"].assert_eq(&refused(1, &[]));
        expect!["segment version 3, this dwell reads up to 2"].assert_eq(&refused(2, &[path(Some(7))]));
        expect![""].assert_eq(&refused(2, &[path(None)]));
    }

    fn path(cpu_ns: Option<u64>) -> ExecutionEvidence {
        let place = |offset| CodePlace { image: ImageId::named("ab12"), offset: ImageOffset(offset) };
        let transfers = vec![ControlTransfer { from: place(0x18), to: place(0x10), count: 5 }];
        ExecutionEvidence::PathBurst { first: place(0x10), last: place(0x18), transfers, cpu_ns }
    }

    #[test]
    fn only_files_with_a_cpu_time_are_of_version_3() {
        let version =
            |evidence: &[ExecutionEvidence]| read_evidence(&encode(evidence), true).unwrap().version;
        let counts = ExecutionEvidence::BreakpointCounts(Vec::new());
        assert_eq!([version(&[]), version(&[counts, path(None)])], [UNTIMED_VERSION; 2]);
        let mixed = [path(None), path(Some(u64::MAX)), path(Some(1_500_000))];
        assert_eq!(version(&mixed), 3);
        check(
            &encode(&mixed),
            expect![[r#"
            7 path ab12+10..ab12+18 ab12+18>ab12+10 x5
            8 path ab12+10..ab12+18 in 18446744073709551615 ns ab12+18>ab12+10 x5
            9 path ab12+10..ab12+18 in 1500000 ns ab12+18>ab12+10 x5
        "#]],
        );
    }

    #[test]
    fn a_path_has_the_cpu_time_of_its_first_row() {
        let ExecutionEvidence::PathBurst { first, last, transfers, .. } = path(None) else {
            panic!("a path")
        };
        let row = |from, to, count, cpu_ns| Row { number: 1, kind: PATH, from, to, count, cpu_ns };
        let rows = [
            row(&first, &last, 0, 70),
            row(&transfers[0].from, &transfers[0].to, 5, 80), // A time of a row that begins nothing.
            row(&first, &last, 0, 90),                        // A second first row.
        ];
        let bytes = encode_rows(&epoch(), SegmentRange::one(1), &rows).unwrap();
        check(
            &bytes,
            expect![[r#"
            1 path ab12+10..ab12+18 in 70 ns ab12+18>ab12+10 x5
        "#]],
        );
    }

    #[test]
    fn version_3_needs_its_column() {
        let metadata = Metadata { version: 3, ..Metadata::new(&epoch(), SegmentRange::one(1), &[]).unwrap() };
        let bytes = encode_group(&EVIDENCE_SCHEMA, &metadata, |group| {
            let none: &[Row<'_>] = &[];
            column::<Int32Type>(group, Vec::new())?;
            for is_text in [true, true, false, true, false, false] {
                match is_text {
                    true => texts(group, none, |r| r.kind)?,
                    false => column::<Int64Type>(group, Vec::new())?,
                }
            }
            Ok(())
        });
        check(&bytes.unwrap(), expect!["its column `cpu_ns` is missing"]);
    }

    #[test]
    fn other_files_are_no_evidence() {
        let segment = super::super::encode(&epoch(), SegmentRange::one(1), &Default::default(), &[]).unwrap();
        assert!(matches!(read_evidence(&segment, true), Err(SegmentError::Column { column: "burst", .. })));
    }
}
