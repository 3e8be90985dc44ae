//! A file system in memory that loses unsynced data in a crash. Each folder keeps some prefix of the changes to its
//! names since its last sync (a move between folders happened in both or in neither), and each unsynced file may keep
//! only a part of its bytes. That is harsher than known file systems. The file system also fails or crashes at a chosen
//! step.

use std::{
    collections::BTreeMap,
    io::{Error, ErrorKind, Result},
    path::Path,
    sync::{Arc, Mutex, MutexGuard},
};

use crate::database::disk::{Disk, Entry, LockGuard, LockOutcome};

type Inode = usize;

#[derive(Debug)]
enum Node {
    File { bytes: Vec<u8>, synced: Vec<u8> },
    Dir { names: BTreeMap<String, Inode>, synced: BTreeMap<String, Inode> },
}

impl Node {
    fn dir() -> Self {
        Node::Dir { names: BTreeMap::new(), synced: BTreeMap::new() }
    }
}

/// What goes wrong at a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// This step fails (a write after half of its bytes), and the next ones work, like on a disk that was full for a
    /// moment.
    Error,
    /// This step and all after it fail, as if the process had died. [`SimDisk::reboot`] brings the disk back.
    Crash,
}

/// A change of a folder: the name now refers to this file, or to none.
type Change = (Inode, String, Option<Inode>);

#[derive(Debug)]
struct State {
    nodes: Vec<Node>,
    /// Changes of names that are not synced; each item happens completely or not at all.
    pending: Vec<Vec<Change>>,
    locked: Vec<Inode>,
    steps: u64,
    changes: u64,
    fault: Option<(u64, Fault)>,
}

#[derive(Clone, Debug)]
pub(super) struct SimDisk(Arc<Mutex<State>>);

impl SimDisk {
    pub(super) fn new() -> Self {
        let state = State {
            nodes: vec![Node::dir()],
            pending: vec![],
            locked: vec![],
            steps: 0,
            changes: 0,
            fault: None,
        };
        SimDisk(Arc::new(Mutex::new(state)))
    }

    /// Makes the step fail that is `after` steps ahead.
    pub(super) fn arm(&self, after: u64, fault: Fault) {
        let mut state = self.state();
        state.fault = Some((state.steps + after, fault));
    }

    /// Returns the number of steps so far.
    pub(super) fn steps(&self) -> u64 {
        self.state().steps
    }

    /// Returns whether the process is dead.
    pub(super) fn is_down(&self) -> bool {
        let state = self.state();
        matches!(state.fault, Some((at, Fault::Crash)) if state.steps > at)
    }

    /// Restarts after a crash. `random` decides which unsynced data survived.
    pub(super) fn reboot(&self, random: &mut dyn FnMut(usize) -> usize) {
        let mut state = self.state();
        state.fault = None;
        state.locked.clear();
        state.survive(random);
        for node in &mut state.nodes {
            match node {
                Node::File { bytes, synced } if bytes != synced => {
                    let mut kept = if bytes.starts_with(synced) {
                        bytes[synced.len()..].to_vec()
                    } else {
                        bytes.clone()
                    };
                    kept.truncate(random(kept.len() + 1));
                    if random(4) == 0 {
                        kept.fill(0);
                    }
                    *bytes = [synced.as_slice(), &kept].concat();
                    synced.clone_from(bytes);
                }
                Node::File { .. } => {}
                Node::Dir { names, synced } => names.clone_from(synced),
            }
        }
    }

    /// Makes all names durable.
    pub(super) fn sync_all(&self) {
        let mut state = self.state();
        let all = std::mem::take(&mut state.pending);
        all.into_iter().for_each(|changes| state.persist(changes));
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Counts a step; returns an error if it must fail.
    fn step(&self) -> Result<MutexGuard<'_, State>> {
        let mut state = self.state();
        let step = state.steps;
        state.steps += 1;
        match state.fault {
            Some((at, Fault::Crash)) if step >= at => Err(Error::other("the process died")),
            Some((at, Fault::Error)) if step == at => Err(Error::from_raw_os_error(28)),
            _ => Ok(state),
        }
    }
}

fn set(names: &mut BTreeMap<String, Inode>, name: String, inode: Option<Inode>) {
    match inode {
        Some(inode) => drop(names.insert(name, inode)),
        None => drop(names.remove(&name)),
    }
}

impl State {
    /// Keeps some of the unsynced changes: a prefix for each folder.
    fn survive(&mut self, random: &mut dyn FnMut(usize) -> usize) {
        let mut stopped = Vec::new();
        for changes in std::mem::take(&mut self.pending) {
            let folders = || changes.iter().map(|(folder, ..)| *folder);
            if folders().any(|f| stopped.contains(&f)) || random(8) == 0 {
                stopped.extend(folders());
            } else {
                self.persist(changes);
            }
        }
    }

    /// Makes the changes of a folder durable, together with those of other folders that belong to the same operation.
    fn sync(&mut self, folder: Inode) {
        let mut folders = vec![folder];
        let mut synced = Vec::new();
        for i in (0..self.pending.len()).rev() {
            if self.pending[i].iter().any(|(f, ..)| folders.contains(f)) {
                folders.extend(self.pending[i].iter().map(|(f, ..)| *f));
                synced.push(self.pending.remove(i));
            }
        }
        synced.into_iter().rev().for_each(|changes| self.persist(changes));
    }

    fn persist(&mut self, changes: Vec<Change>) {
        for (folder, name, inode) in changes {
            let Node::Dir { synced, .. } = &mut self.nodes[folder] else { panic!("no folder") };
            set(synced, name, inode);
        }
    }

    fn find(&self, path: &Path) -> Result<Inode> {
        let mut inode = 0;
        for part in path.components().skip(1) {
            let Node::Dir { names, .. } = &self.nodes[inode] else {
                return Err(ErrorKind::NotADirectory.into());
            };
            inode = *names.get(&*part.as_os_str().to_string_lossy()).ok_or(ErrorKind::NotFound)?;
        }
        Ok(inode)
    }

    /// Changes names atomically.
    fn link(&mut self, changes: &[(&Path, Option<Inode>)]) -> Result<()> {
        let mut pending = Vec::new();
        for (path, inode) in changes {
            let folder = self.find(path.parent().unwrap())?;
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            let Node::Dir { names, .. } = &mut self.nodes[folder] else { panic!("{path:?}: no folder") };
            set(names, name.clone(), *inode);
            pending.push((folder, name, *inode));
        }
        self.changes += 1;
        self.pending.push(pending);
        Ok(())
    }

    fn create(&mut self, path: &Path, node: Node) -> Result<Inode> {
        if self.find(path).is_ok() {
            return Err(ErrorKind::AlreadyExists.into());
        }
        self.nodes.push(node);
        let inode = self.nodes.len() - 1;
        self.link(&[(path, Some(inode))])?;
        Ok(inode)
    }
}

impl Disk for SimDisk {
    fn create_dir(&self, path: &Path) -> Result<()> {
        self.step()?.create(path, Node::dir()).map(drop)
    }

    /// Takes two steps; the second one syncs.
    fn write_new(&self, path: &Path, bytes: &[u8]) -> Result<()> {
        let half = bytes[..bytes.len() / 2].to_vec();
        let inode = self.step()?.create(path, Node::File { bytes: half, synced: vec![] })?;
        self.step()?.nodes[inode] = Node::File { bytes: bytes.to_vec(), synced: vec![] };
        self.step()?.nodes[inode] = Node::File { bytes: bytes.to_vec(), synced: bytes.to_vec() };
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        let mut state = self.step()?;
        let inode = state.find(from)?;
        state.link(&[(to, Some(inode)), (from, None)])
    }

    fn sync_dir(&self, path: &Path) -> Result<()> {
        let mut state = self.step()?;
        let inode = state.find(path)?;
        state.sync(inode);
        Ok(())
    }

    fn remove_file(&self, path: &Path) -> Result<()> {
        let mut state = self.step()?;
        state.find(path)?;
        state.link(&[(path, None)])
    }

    fn remove_dir(&self, path: &Path) -> Result<()> {
        self.remove_file(path)
    }

    fn read(&self, path: &Path, _limit_bytes: u64) -> Result<Vec<u8>> {
        let state = self.state();
        match &state.nodes[state.find(path)?] {
            Node::File { bytes, .. } => Ok(bytes.clone()),
            Node::Dir { .. } => Err(ErrorKind::IsADirectory.into()),
        }
    }

    fn bytes(&self, path: &Path) -> Result<u64> {
        self.read(path, u64::MAX).map(|bytes| bytes.len() as u64)
    }

    fn list(&self, path: &Path) -> Result<Vec<Entry>> {
        let state = self.state();
        let Node::Dir { names, .. } = &state.nodes[state.find(path)?] else {
            return Err(ErrorKind::NotADirectory.into());
        };
        let is_dir = |inode: Inode| matches!(state.nodes[inode], Node::Dir { .. });
        Ok(names.iter().map(|(name, &inode)| Entry { name: name.clone(), is_dir: is_dir(inode) }).collect())
    }

    fn changed(&self, _path: &Path) -> Result<u64> {
        Ok(self.state().changes)
    }

    fn lock(&self, path: &Path) -> Result<LockOutcome> {
        let mut state = self.step()?;
        let inode = match state.find(path) {
            Ok(inode) => inode,
            Err(_) => state.create(path, Node::File { bytes: vec![], synced: vec![] })?,
        };
        if state.locked.contains(&inode) {
            return Ok(LockOutcome::Busy(None));
        }
        state.locked.push(inode);
        Ok(LockOutcome::Held(LockGuard::new(Unlock(self.clone(), inode))))
    }
}

struct Unlock(SimDisk, Inode);

impl Drop for Unlock {
    fn drop(&mut self) {
        self.0.state().locked.retain(|held| *held != self.1);
    }
}
