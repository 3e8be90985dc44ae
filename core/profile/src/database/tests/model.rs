//! A model of a database's contents as maps, and operations that are applied to the model and the database.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use jiff::Timestamp;

use crate::{database::Database, *};

use super::{counts, epoch_at, record, sim::SimDisk};

/// Everything that a reader can see, by epoch.
pub(super) type Model = BTreeMap<EpochId, ModelEpoch>;

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ModelEpoch {
    pub(super) counts: BTreeMap<SampleKey, u64>,
    pub(super) images: BTreeMap<ImageId, PathBuf>,
    pub(super) name: Option<String>,
    pub(super) notes: usize,
    pub(super) end: Option<Timestamp>,
    pub(super) sources: BTreeMap<PathBuf, Vec<u8>>,
    pub(super) evidence: Vec<ExecutionEvidence>,
    /// Execution counts by offset.
    pub(super) executions: BTreeMap<u64, u64>,
}

impl std::fmt::Display for ModelEpoch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (key, count) in &self.counts {
            write!(f, "{}{}={count} ", key.image, key.offset)?;
        }
        let sources = self.sources.iter().map(|(path, text)| (path, text[0]));
        write!(f, "images {:?} name {:?} notes {} ", self.images.keys(), self.name, self.notes)?;
        write!(f, "end {:?} sources {:?} ", self.end, sources.collect::<Vec<_>>())?;
        write!(f, "evidence {:?} ", self.evidence)?;
        write!(f, "executions {:?}", self.executions)
    }
}

/// An operation; its numbers select from what exists.
#[derive(Clone, Debug)]
pub(super) enum Op {
    Begin,
    /// Appends samples, each as image, offset and count.
    Append(Vec<(u8, u8, u8)>),
    Update,
    Finish,
    /// Compacts; odd numbers use limits by which segments are soon full.
    Compact(u8),
    Rename(u8, u8),
    Remove(u8),
    PutSource(u8, u8, u8),
    /// Appends evidence of each kind with this offset.
    AppendEvidence(u8),
    /// Appends executions of the instruction at this offset.
    AppendExecutions(u8),
}

/// A process that writes, with its state between operations.
pub(super) struct Process {
    pub(super) database: Database,
    writer: Writer,
    current: Option<EpochWriter>,
    /// The counts of appends that failed; they are appended with the next ones.
    unsaved: Counts,
    /// The evidence of appends that failed.
    unsaved_evidence: Vec<ExecutionEvidence>,
    unsaved_executions: Vec<ExecutionCount>,
    /// The time in the next epoch's id. Ids must not be random here, so that a failing script fails again.
    next_second: i64,
}

pub(super) fn open(disk: &SimDisk) -> Result<Database, DatabaseError> {
    Database::on(Arc::new(disk.clone()), "/db".into())
}

impl Process {
    pub(super) fn start(disk: &SimDisk) -> Result<Self, DatabaseError> {
        let database = open(disk)?;
        let writer = database.writer_for("host")?;
        let next_second = 1_000 + database.epochs()?.epochs.len() as i64 * 100;
        Ok(Process {
            database,
            writer,
            current: None,
            unsaved: Counts::default(),
            unsaved_evidence: vec![],
            unsaved_executions: vec![],
            next_second,
        })
    }

    /// Applies an operation to the database, and returns the model that holds if it succeeded.
    pub(super) fn run(&mut self, op: &Op, model: &Model) -> (Model, Result<(), DatabaseError>) {
        let mut after = model.clone();
        let done = self.try_run(op, &mut after);
        (after, done)
    }

    fn try_run(&mut self, op: &Op, model: &mut Model) -> Result<(), DatabaseError> {
        let pick = |model: &Model, n: u8| model.keys().nth(usize::from(n) % model.len().max(1)).cloned();
        match op {
            Op::Begin => self.begin(model),
            Op::Append(rows) => self.append(rows, model),
            Op::AppendEvidence(offset) => self.append_evidence(*offset, model),
            Op::AppendExecutions(offset) => self.append_executions(*offset, model),
            Op::Update => self.update(model),
            Op::Finish => self.finish(model),
            Op::Compact(n) => pick(model, *n / 2).map_or(Ok(()), |id| {
                let rows_max = if n % 2 == 1 { 3 } else { crate::MAX_SEGMENT_ROWS };
                self.writer.compact_within(&id, rows_max).map(drop)
            }),
            Op::Rename(n, name) => {
                pick(model, *n).map_or(Ok(()), |id| self.rename(&id, &format!("n{name}"), model))
            }
            Op::Remove(n) => pick(model, *n).map_or(Ok(()), |id| self.remove(&id, model)),
            Op::PutSource(n, path, text) => pick(model, *n).map_or(Ok(()), |id| {
                let (path, text) = (PathBuf::from(format!("/src/{path}.c")), vec![*text; 50]);
                let stored = self.database.put_source(&id, &path, &text);
                model.get_mut(&id).unwrap().sources.insert(path, text);
                stored.map(drop)
            }),
        }
    }

    fn begin(&mut self, model: &mut Model) -> Result<(), DatabaseError> {
        self.next_second += 1;
        let epoch = Epoch { id: EpochId(format!("e{}", self.next_second)), ..epoch_at(self.next_second) };
        model.insert(epoch.id.clone(), ModelEpoch::default());
        self.current = Some(self.writer.begin(epoch)?);
        self.unsaved.clear();
        self.unsaved_evidence.clear();
        self.unsaved_executions.clear();
        Ok(())
    }

    fn append_evidence(&mut self, offset: u8, model: &mut Model) -> Result<(), DatabaseError> {
        let Some(epoch) = &mut self.current else { return Ok(()) };
        let place = |offset| CodePlace { image: ImageId::named("i1"), offset: ImageOffset(offset) };
        let (first, last) = (place(offset.into()), place(u64::from(offset) + 9));
        let transfers = vec![ControlTransfer { from: last.clone(), to: first.clone(), count: 5 }];
        let counts = vec![(first.clone(), 0), (last.clone(), u64::MAX)];
        self.unsaved_evidence.extend([
            ExecutionEvidence::BranchStacks(transfers.clone()),
            ExecutionEvidence::BreakpointCounts(counts),
            ExecutionEvidence::PathBurst {
                first,
                last,
                transfers,
                cpu_ns: (offset % 2 == 1).then_some(1_500_000),
            },
        ]);
        let stored = model.get_mut(&epoch.epoch().id).expect("the current epoch is there");
        stored.evidence.extend_from_slice(&self.unsaved_evidence);
        epoch.append_evidence(&self.unsaved_evidence)?;
        self.unsaved_evidence.clear();
        Ok(())
    }

    fn append_executions(&mut self, offset: u8, model: &mut Model) -> Result<(), DatabaseError> {
        let Some(epoch) = &mut self.current else { return Ok(()) };
        self.unsaved_executions.push(ExecutionCount {
            place: CodePlace { image: ImageId::named("i1"), offset: ImageOffset(offset.into()) },
            app: "app".into(),
            instance: 1,
            executions: 5,
            samples: 2,
            deviation_ppm: 30_000,
            source: CountSource::MemoryWord,
        });
        let stored = model.get_mut(&epoch.epoch().id).expect("the current epoch is there");
        for count in &self.unsaved_executions {
            *stored.executions.entry(count.place.offset.0).or_insert(0) += count.executions;
        }
        epoch.append_execution_counts(&self.unsaved_executions)?;
        self.unsaved_executions.clear();
        Ok(())
    }

    fn append(&mut self, rows: &[(u8, u8, u8)], model: &mut Model) -> Result<(), DatabaseError> {
        let Some(epoch) = &mut self.current else { return Ok(()) };
        for &(image, offset, count) in rows {
            for (key, count) in counts(&[(&format!("i{image}"), offset.into(), count.into())]) {
                *self.unsaved.entry(key).or_insert(0) += count;
            }
        }
        let images: Vec<_> = rows.iter().map(|(image, ..)| record(&format!("i{image}"))).collect();
        let stored = model.get_mut(&epoch.epoch().id).expect("the current epoch is there");
        for (key, count) in self.unsaved.iter().filter(|(_, count)| **count > 0) {
            *stored.counts.entry(key.clone()).or_insert(0) += count;
        }
        stored.images.extend(images.iter().map(|i| (i.id.clone(), i.path.clone())));
        epoch.append(&self.unsaved, &images)?;
        self.unsaved.clear();
        Ok(())
    }

    fn update(&mut self, model: &mut Model) -> Result<(), DatabaseError> {
        let Some(epoch) = &mut self.current else { return Ok(()) };
        let mut changed = epoch.epoch().clone();
        changed.notes.push("more".into());
        model.get_mut(&changed.id).unwrap().notes = changed.notes.len();
        epoch.update(&changed)
    }

    fn finish(&mut self, model: &mut Model) -> Result<(), DatabaseError> {
        let Some(epoch) = self.current.take() else { return Ok(()) };
        let end = epoch.epoch().start;
        let stored = model.get_mut(&epoch.epoch().id).unwrap();
        // It does not contain what a failed update would have added.
        (stored.end, stored.notes) = (Some(end), epoch.epoch().notes.len());
        epoch.finish(end).map(drop)
    }

    fn rename(&self, id: &EpochId, name: &str, model: &mut Model) -> Result<(), DatabaseError> {
        let taken = model.iter().any(|(other, e)| other != id && e.name.as_deref() == Some(name));
        let done = self.database.rename(id, name);
        if taken {
            assert!(!matches!(done, Ok(())), "{name} is taken");
            return Ok(());
        }
        model.get_mut(id).unwrap().name = Some(name.to_owned());
        done
    }

    fn remove(&self, id: &EpochId, model: &mut Model) -> Result<(), DatabaseError> {
        let done = self.database.remove(id);
        if self.current.as_ref().is_some_and(|current| current.epoch().id == *id) {
            assert!(done.is_err(), "{id} is being written");
            return Ok(());
        }
        model.remove(id);
        done
    }
}

/// Returns what a reader sees. Nothing may be left out, because no crash leaves a damaged file under its final name.
pub(super) fn observe(database: &Database) -> Model {
    let epochs = database.epochs().unwrap();
    assert_eq!(epochs.warnings, []);
    let observed = epochs.epochs.into_iter().map(|epoch| {
        let read = database.read(&epoch.id).unwrap();
        assert_eq!(read.warnings, []);
        let text = |record: &SourceRecord| database.source_text(record).unwrap();
        let seen = ModelEpoch {
            counts: read.counts.into_iter().collect(),
            images: read.images.into_iter().map(|i| (i.id, i.path)).collect(),
            name: epoch.name,
            notes: epoch.notes.len(),
            end: epoch.end,
            sources: read.sources.iter().map(|s| (s.path.clone(), text(s))).collect(),
            evidence: read.evidence,
            executions: read.execution_counts.iter().map(|c| (c.place.offset.0, c.executions)).collect(),
        };
        (epoch.id, seen)
    });
    observed.collect()
}

/// Returns how many files in the folder `sources` belong to no epoch.
pub(super) fn orphans(database: &Database) -> usize {
    let needed: std::collections::BTreeSet<_> =
        observe(database).into_values().flat_map(|e| e.sources.into_values()).collect();
    let kept = database.disk.list(Path::new("/db/sources")).unwrap().len();
    kept - needed.len()
}
