//! Tests of sums of epochs.

use std::path::Path;

use super::*;

fn stored(db: &Database, epoch: Epoch, image: &str, rows: &[(u64, u64, u32, &str)]) -> Epoch {
    let cgroup = |name: &str| {
        let values = DimensionValues { cgroup: Some(name.into()), ..DimensionValues::default() };
        Some(Arc::new(values)).filter(|_| !name.is_empty())
    };
    let counts: Counts = rows
        .iter()
        .map(|&(offset, count, instance, group)| {
            let key = SampleKey {
                image: ImageId::named(image),
                event: Event::CPU_CLOCK,
                offset: ImageOffset(offset),
                app: Arc::from("app"),
                instance,
                dimensions: cgroup(group),
            };
            (key, count)
        })
        .collect();
    let mut writer = db.writer().unwrap().begin(epoch).unwrap();
    writer.append(&counts, &[record(image)]).unwrap();
    let mut tree = StoredCallTree::default();
    let root = StackRoot { event: Event::CPU_CLOCK, app: "app".into(), instance: 1, end: StackEnd::Root };
    let place = CodePlace { image: ImageId::named(image), offset: ImageOffset(7) };
    tree.add(root, [place.clone()], 2);
    writer.append_stacks(&tree).unwrap();
    let source = CountSource::MemoryWord;
    let count = ExecutionCount {
        place: place.clone(),
        app: "app".into(),
        instance: 1,
        executions: 10,
        samples: 2,
        deviation_ppm: 1,
        source,
    };
    writer.append_execution_counts(&[count]).unwrap();
    writer.append_evidence(&[ExecutionEvidence::breakpoint_counts(vec![(place, 5)]).unwrap()]).unwrap();
    writer.finish(jiff::Timestamp::from_second(1_000_000).unwrap()).unwrap()
}

fn sum_of(db: &Database, epochs: &[Epoch], folder: &Path) -> (EpochsSummed, Database, Epoch) {
    let local = Database::open(folder.join("sum")).unwrap();
    let sum = Epoch::sum(EpochId("sum-1".into()), epochs).unwrap();
    let mut writer = local.writer().unwrap().begin(sum.clone()).unwrap();
    let summed = db.sum_into(epochs, &mut writer).unwrap();
    drop(writer);
    (summed, local, sum)
}

#[test]
fn a_sum_has_all_that_its_epochs_have() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path().join("db")).unwrap();
    let mut other = epoch_at(2_000);
    other.host.name = "other".into();
    other.events.get_mut(&Event::CPU_CLOCK).unwrap().lost = 4;
    other.notes = vec!["a note".into()];
    let rows = [(1, 2, 1, "/a"), (1, 3, 2, "/b"), (9, 1, 1, "")];
    let epochs = [
        stored(&db, epoch_at(1_000), "aa", &rows),
        stored(&db, other, "aa", &[(1, 10, 7, ""), (u64::MAX, 1, 1, "/a")]),
        stored(&db, epoch_at(3_000), "bb", &[(5, 1, 1, "")]),
    ];
    let (summed, local, sum) = sum_of(&db, &epochs, dir.path());
    assert_eq!((summed.epochs.len(), summed.warnings), (3, vec![]));
    let read = local.read(&sum.id).unwrap();
    assert_eq!(read.warnings, []);
    let mut sums: Vec<_> =
        read.counts.iter().map(|(key, n)| (key.image.as_str(), key.offset.0, key.instance, *n)).collect();
    sums.sort_unstable();
    assert_eq!(sums, [("aa", 1, 0, 15), ("aa", 9, 0, 1), ("aa", u64::MAX, 0, 1), ("bb", 5, 0, 1)]);
    assert_eq!(read.images.iter().map(|image| image.id.as_str()).collect::<Vec<_>>(), ["aa", "bb"]);
    let counted: Vec<_> =
        read.execution_counts.iter().map(|c| (c.place.image.as_str(), c.instance, c.executions)).collect();
    assert_eq!(counted, [("aa", 0, 20), ("bb", 0, 10)]);
    assert_eq!(read.evidence.len(), 3);
    let (stacks, _) = local.read_call_stacks(&sum.id).unwrap();
    assert_eq!((stacks.samples(), stacks.nodes().len(), stacks.roots().len()), (6, 2, 1));
    let totals: Vec<_> =
        summed.totals.iter().map(|t| (&*t.host, t.image.as_str(), &*t.path, &*t.cgroup, t.count)).collect();
    let of_first = [
        ("test", "aa", "/bin/aa", "", 1),
        ("test", "aa", "/bin/aa", "/a", 2),
        ("test", "aa", "/bin/aa", "/b", 3),
    ];
    assert!(of_first.iter().all(|total| totals.contains(total)), "{totals:?}");
    assert_eq!((totals.len(), totals.iter().map(|t| t.4).sum::<u64>()), (6, 18));
    assert!(!encode_totals(&summed.totals).unwrap().is_empty());
    // The metadata.
    assert_eq!(sum.scope, Scope::Sum { recordings: 3, hosts: 2, sampled_ns: 2_994_000_000_000_000 });
    assert_eq!((&*sum.host.name, sum.start, sum.end), ("2 hosts", epochs[0].start, epochs[2].end));
    let record = &sum.events[&Event::CPU_CLOCK];
    assert_eq!((record.period, record.samples, record.lost), (200_000, 9, 4));
    assert_eq!(sum.notes, ["1 of 3 recordings: a note"]);
}

#[test]
fn an_epoch_that_cannot_be_read_is_left_out_whole() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path().join("db")).unwrap();
    let epochs = [
        stored(&db, epoch_at(1_000), "aa", &[(1, 2, 1, "")]),
        stored(&db, epoch_at(2_000), "bb", &[(1, 2, 1, "")]),
    ];
    let segment = dir.path().join(format!("db/epochs/{}/segment-000001.parquet", epochs[1].id));
    let mut bytes = std::fs::read(&segment).unwrap();
    bytes[40] ^= 1;
    std::fs::write(&segment, bytes).unwrap();
    let (summed, local, sum) = sum_of(&db, &epochs, dir.path());
    assert_eq!((summed.epochs.len(), summed.warnings.len()), (1, 1));
    let read = local.read(&sum.id).unwrap();
    assert_eq!((read.images.len(), read.evidence.len(), summed.totals.len()), (1, 1, 1));
}

#[test]
fn epochs_of_one_kind_have_one_meaning_of_a_sample() {
    let one = epoch_at(1_000);
    assert_eq!(one.kind(), Epoch { name: Some("named".into()), ..epoch_at(9_000) }.kind());
    let mut other = one.clone();
    other.events.get_mut(&Event::CPU_CLOCK).unwrap().period += 1;
    assert_ne!(one.kind(), other.kind());
    let mut other = one.clone();
    other.host.kernel_release = "7".into();
    assert_ne!(one.kind(), other.kind());
    assert_eq!(Epoch::sum(EpochId("sum".into()), &[]), None);
}
