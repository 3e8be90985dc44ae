//! Tests of files of call stacks.

use super::*;

fn tree(stacks: &[(&[u64], u64)]) -> StoredCallTree {
    let mut tree = StoredCallTree::default();
    let root = StackRoot { event: Event::CPU_CLOCK, app: "app".into(), instance: 1, end: StackEnd::Root };
    for (offsets, samples) in stacks {
        let place = |offset: &u64| CodePlace { image: ImageId::named("aa"), offset: ImageOffset(*offset) };
        tree.add(root.clone(), offsets.iter().map(place), *samples);
    }
    tree
}

/// Returns the number of frames and of samples.
fn size((tree, warnings): (StoredCallTree, Vec<Warning>)) -> (usize, u64) {
    assert_eq!(warnings, []);
    (tree.nodes().len(), tree.samples())
}

#[test]
fn stacks_of_several_appends_are_one_tree_before_and_after_merging() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path()).unwrap();
    let writer = db.writer().unwrap();
    let mut epoch = writer.begin(epoch_at(1)).unwrap();
    let id = epoch.epoch().id.clone();
    assert_eq!(size(db.read_call_stacks(&id).unwrap()), (0, 0));
    let before = db.generation();
    epoch.append_stacks(&tree(&[])).unwrap();
    assert_eq!(db.generation(), before, "no stack, no file");
    let appends: [&[(&[u64], u64)]; 3] = [&[(&[1, 2, 3], 5)], &[(&[1, 2], 7), (&[1, 2, 3], 1)], &[(&[9], 1)]];
    appends.iter().for_each(|stacks| epoch.append_stacks(&tree(stacks)).unwrap());
    assert_eq!(size(db.read_call_stacks(&id).unwrap()), (4, 14));
    writer.compact(&id).unwrap();
    let folder = dir.path().join("epochs").join(&id.0);
    let files = || {
        let names =
            std::fs::read_dir(&folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.filter(|name| name.starts_with("stacks-")).collect();
        names.sort();
        names
    };
    assert_eq!(files().len(), 3, "the epoch goes on");
    let first = folder.join("stacks-000001.parquet");
    let part = std::fs::read(&first).unwrap();
    epoch.finish(jiff::Timestamp::from_second(2).unwrap()).unwrap();
    writer.compact(&id).unwrap();
    assert_eq!(files(), ["stacks-000001-000003.parquet"]);
    assert_eq!(size(db.read_call_stacks(&id).unwrap()), (4, 14));
    // A merging that was interrupted leaves parts, which count for nothing and go with the next one.
    std::fs::write(&first, part).unwrap();
    assert_eq!(size(db.read_call_stacks(&id).unwrap()), (4, 14));
    writer.compact(&id).unwrap();
    assert_eq!(files(), ["stacks-000001-000003.parquet"]);
    assert_eq!(db.read(&id).unwrap().warnings, [], "such files are known");
}

#[test]
fn a_damaged_file_is_named_and_never_merged() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path()).unwrap();
    let writer = db.writer().unwrap();
    let mut epoch = writer.begin(epoch_at(1)).unwrap();
    let id = epoch.epoch().id.clone();
    (1..=3).for_each(|n| epoch.append_stacks(&tree(&[(&[n], 1)])).unwrap());
    epoch.finish(jiff::Timestamp::from_second(2).unwrap()).unwrap();
    let path = dir.path().join("epochs").join(&id.0).join("stacks-000002.parquet");
    std::fs::write(&path, "PAR1").unwrap();
    let (stacks, warnings) = db.read_call_stacks(&id).unwrap();
    assert_eq!((stacks.samples(), warnings.len(), &warnings[0].path), (2, 1, &path));
    let others = db.read(&id).unwrap().warnings;
    assert_eq!(others, warnings, "readers that need no stacks name it too");
    writer.compact(&id).unwrap();
    assert_eq!(db.read_call_stacks(&id).unwrap().0.samples(), 2);
    // A file that is gone for good leaves the others.
    std::fs::remove_file(&path).unwrap();
    assert_eq!(size(db.read_call_stacks(&id).unwrap()), (2, 2));
}
