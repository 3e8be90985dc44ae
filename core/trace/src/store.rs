//! The files of a trace (FORMAT.md): packed chunks, each of which can be read although the rest is lost.

use std::{
    fs::{self, File},
    io::{self, Read, Write},
    path::{Path, PathBuf},
    sync::{
        Arc,
        mpsc::{SyncSender, sync_channel},
    },
    thread::{self, JoinHandle},
};

use dwell_profile::VirtualAddress;
use serde::{Deserialize, Serialize};

use crate::superblock::plan::Detail;

/// Version of the format.
pub const VERSION: u32 = 1;
/// Level of zstd.
const LEVEL: i32 = 1;

/// What `trace.json` says.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
pub struct Manifest {
    /// Version of the format.
    pub version: u32,
    /// What is recorded.
    pub detail: Detail,
    /// The command and its arguments.
    pub command: Vec<String>,
    /// The threads, in the order in which they began; one for each program that a process executed.
    pub threads: Vec<ThreadEntry>,
}

/// A thread that was traced; its stream has the number of its place in the list.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
pub struct ThreadEntry {
    /// Id of the process.
    pub process: u32,
    /// Id of the thread.
    pub thread: u32,
    /// The number of its space of addresses.
    pub space: u32,
}

/// Returns the name of a file of code, a stream or its events.
pub fn file_name(kind: &str, number: u32) -> String {
    format!("{kind}-{number}.zst")
}

/// Largest number of chunks that wait to be packed; a thread that fills its stream faster waits.
const WAITING_MAX: usize = 8;

/// Packs and writes chunks in a thread of its own, off the traced program's way, in the order in which they were flushed.
pub struct Packer {
    sender: SyncSender<(Arc<File>, Vec<u8>)>,
    worker: JoinHandle<io::Result<()>>,
}

impl Packer {
    pub fn start() -> Packer {
        let (sender, receiver) = sync_channel::<(Arc<File>, Vec<u8>)>(WAITING_MAX);
        let worker = thread::spawn(move || {
            for (file, chunk) in receiver {
                let mut encoder = zstd::Encoder::new(Vec::new(), LEVEL)?;
                encoder.include_checksum(true)?;
                encoder.write_all(&chunk)?;
                (&*file).write_all(&encoder.finish()?)?;
            }
            Ok(())
        });
        Packer { sender, worker }
    }

    /// Creates a file that grows by chunks. It must not exist.
    pub fn create(&self, path: &Path) -> io::Result<ChunkWriter> {
        let file = Arc::new(File::create_new(path)?);
        Ok(ChunkWriter { file, sender: self.sender.clone(), waiting: Vec::new(), bytes: 0 })
    }

    /// Waits until everything is written. All writers must be gone.
    pub fn finish(self) -> io::Result<()> {
        drop(self.sender);
        self.worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

/// A file that grows by chunks.
pub struct ChunkWriter {
    file: Arc<File>,
    sender: SyncSender<(Arc<File>, Vec<u8>)>,
    waiting: Vec<u8>,
    /// Number of bytes that were added, before packing.
    pub bytes: u64,
}

impl ChunkWriter {
    /// Adds bytes, which stay in memory until [`ChunkWriter::flush`].
    pub fn add(&mut self, bytes: &[u8]) {
        self.waiting.extend_from_slice(bytes);
        self.bytes += bytes.len() as u64;
    }

    /// Lets what was added be written as a chunk. Fails if an earlier chunk could not be written.
    pub fn flush(&mut self) -> io::Result<()> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        let chunk = std::mem::take(&mut self.waiting);
        let lost = |_| io::Error::other("the trace cannot be written");
        self.sender.send((self.file.clone(), chunk)).map_err(lost)
    }
}

/// Reads a file of chunks to its end, or to the place where it is damaged. Returns the bytes, and why that is not all of it.
pub fn read_chunks(path: &Path) -> io::Result<(Vec<u8>, Option<String>)> {
    let mut bytes = Vec::new();
    let mut decoder = zstd::Decoder::new(File::open(path)?)?;
    let mut part = vec![0; 1 << 16];
    loop {
        match decoder.read(&mut part) {
            Ok(0) => return Ok((bytes, None)),
            Ok(read) => bytes.extend_from_slice(&part[..read]),
            Err(error) => return Ok((bytes, Some(error.to_string()))),
        }
    }
}

/// Writes `trace.json`.
pub fn write_manifest(folder: &Path, manifest: &Manifest) -> io::Result<()> {
    let (new, path) = (folder.join(".trace.json"), folder.join("trace.json"));
    fs::write(&new, serde_json::to_vec_pretty(manifest)?)?;
    fs::rename(new, path)
}

/// Reads `trace.json`.
pub fn read_manifest(folder: &Path) -> io::Result<Manifest> {
    let path: PathBuf = folder.join("trace.json");
    let bad = |why: String| io::Error::new(io::ErrorKind::InvalidData, format!("{}: {why}", path.display()));
    let bytes = fs::read(&path)
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))?;
    let manifest: Manifest = serde_json::from_slice(&bytes).map_err(|error| bad(error.to_string()))?;
    match manifest.version {
        VERSION => Ok(manifest),
        version => Err(bad(format!("version {version} is not known to this dwell, which reads {VERSION}"))),
    }
}

/// Code of a file in the memory of a process.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mapping {
    /// First address.
    pub start: VirtualAddress,
    /// Address behind the last byte.
    pub end: VirtualAddress,
    /// Offset in the file of the first byte.
    pub offset: u64,
    /// Path of the file, or a name such as `[vdso]`.
    pub path: String,
}

/// A record in a file of code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CodeRecord {
    /// A superblock: its number, first address, known registers, and the code of its path, one run of bytes for each jump.
    Superblock { number: u32, pc: u64, known: u16, instructions: u16, code: Vec<(u64, Vec<u8>)> },
    /// In a space, an exit of a superblock leads to another.
    Link { space: u32, from: u32, exit: u8, to: u32 },
    /// A space begins as a copy of another.
    Fork { space: u32, of: u32 },
    /// A file was mapped as code when a thread of the space ended.
    Mapped { space: u32, mapping: Mapping },
}

impl CodeRecord {
    pub fn write(&self, out: &mut Vec<u8>) {
        match self {
            CodeRecord::Superblock { number, pc, known, instructions, code } => {
                out.push(1);
                out.extend(number.to_le_bytes());
                out.extend(pc.to_le_bytes());
                out.extend(known.to_le_bytes());
                out.extend(instructions.to_le_bytes());
                out.extend((code.len() as u16).to_le_bytes());
                for (at, bytes) in code {
                    out.extend(at.to_le_bytes());
                    out.extend((bytes.len() as u16).to_le_bytes());
                    out.extend(bytes);
                }
            }
            CodeRecord::Mapped { space, mapping } => {
                out.push(4);
                out.extend(space.to_le_bytes());
                let numbers = [mapping.start.0, mapping.end.0, mapping.offset];
                numbers.iter().for_each(|n| out.extend(n.to_le_bytes()));
                out.extend((mapping.path.len() as u16).to_le_bytes());
                out.extend(mapping.path.as_bytes());
            }
            CodeRecord::Fork { space, of } => {
                out.push(3);
                out.extend(space.to_le_bytes());
                out.extend(of.to_le_bytes());
            }
            CodeRecord::Link { space, from, exit, to } => {
                out.push(2);
                out.extend(space.to_le_bytes());
                out.extend(from.to_le_bytes());
                out.push(*exit);
                out.extend(to.to_le_bytes());
            }
        }
    }

    /// Reads all whole records.
    pub fn read_all(bytes: &[u8]) -> Vec<CodeRecord> {
        let mut cursor = Cursor { bytes };
        std::iter::from_fn(|| {
            Some(match cursor.number::<1>()? {
                1 => {
                    let (number, pc) = (cursor.number::<4>()? as u32, cursor.number::<8>()?);
                    let (known, instructions) = (cursor.number::<2>()? as u16, cursor.number::<2>()? as u16);
                    let runs = cursor.number::<2>()?;
                    let mut code = Vec::new();
                    for _ in 0..runs {
                        let (at, length) = (cursor.number::<8>()?, cursor.number::<2>()?);
                        code.push((at, cursor.take(length as usize)?.to_vec()));
                    }
                    CodeRecord::Superblock { number, pc, known, instructions, code }
                }
                4 => {
                    let space = cursor.number::<4>()? as u32;
                    let (start, end) = (cursor.number::<8>()?, cursor.number::<8>()?);
                    let (start, end) = (VirtualAddress(start), VirtualAddress(end));
                    let (offset, length) = (cursor.number::<8>()?, cursor.number::<2>()? as usize);
                    let path = String::from_utf8_lossy(cursor.take(length)?).into_owned();
                    CodeRecord::Mapped { space, mapping: Mapping { start, end, offset, path } }
                }
                3 => {
                    CodeRecord::Fork { space: cursor.number::<4>()? as u32, of: cursor.number::<4>()? as u32 }
                }
                2 => CodeRecord::Link {
                    space: cursor.number::<4>()? as u32,
                    from: cursor.number::<4>()? as u32,
                    exit: cursor.number::<1>()? as u8,
                    to: cursor.number::<4>()? as u32,
                },
                _ => return None,
            })
        })
        .collect()
    }
}

/// Something that happened at a place in a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Number of bytes of the stream before it.
    pub position: u64,
    pub kind: EventKind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// The run whose bytes end here was cut before the instruction of its path with this number.
    Cut { instructions: u16 },
    /// The thread goes on with this superblock and these registers.
    Resume { superblock: u32, fs_base: u64, registers: [u64; 16] },
    /// An instruction was executed alone; its references are not known.
    Alone { pc: u64, length: u8 },
    /// A signal was delivered.
    Signal { number: u8 },
    /// The thread ended, with this status of `waitpid`.
    Exit { status: u32 },
}

impl Event {
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend(self.position.to_le_bytes());
        match &self.kind {
            EventKind::Cut { instructions } => {
                out.push(1);
                out.extend(instructions.to_le_bytes());
            }
            EventKind::Resume { superblock, fs_base, registers } => {
                out.push(2);
                out.extend(superblock.to_le_bytes());
                out.extend(fs_base.to_le_bytes());
                registers.iter().for_each(|register| out.extend(register.to_le_bytes()));
            }
            EventKind::Alone { pc, length } => {
                out.push(3);
                out.extend(pc.to_le_bytes());
                out.push(*length);
            }
            EventKind::Signal { number } => out.extend([4, *number]),
            EventKind::Exit { status } => {
                out.push(5);
                out.extend(status.to_le_bytes());
            }
        }
    }

    /// Reads all whole events.
    pub fn read_all(bytes: &[u8]) -> Vec<Event> {
        let mut cursor = Cursor { bytes };
        std::iter::from_fn(|| {
            let position = cursor.number::<8>()?;
            let kind = match cursor.number::<1>()? {
                1 => EventKind::Cut { instructions: cursor.number::<2>()? as u16 },
                2 => {
                    let (superblock, fs_base) = (cursor.number::<4>()? as u32, cursor.number::<8>()?);
                    let mut registers = [0; 16];
                    for register in &mut registers {
                        *register = cursor.number::<8>()?;
                    }
                    EventKind::Resume { superblock, fs_base, registers }
                }
                3 => EventKind::Alone { pc: cursor.number::<8>()?, length: cursor.number::<1>()? as u8 },
                4 => EventKind::Signal { number: cursor.number::<1>()? as u8 },
                5 => EventKind::Exit { status: cursor.number::<4>()? as u32 },
                _ => return None,
            };
            Some(Event { position, kind })
        })
        .collect()
    }
}

struct Cursor<'b> {
    bytes: &'b [u8],
}

impl<'b> Cursor<'b> {
    fn take(&mut self, length: usize) -> Option<&'b [u8]> {
        let (taken, rest) = self.bytes.split_at_checked(length)?;
        self.bytes = rest;
        Some(taken)
    }

    /// Reads a little-endian number of `N` bytes, at most 8.
    fn number<const N: usize>(&mut self) -> Option<u64> {
        let mut whole = [0; 8];
        whole[..N].copy_from_slice(self.take(N)?);
        Some(u64::from_le_bytes(whole))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_and_events_are_read_as_written_and_cut_ones_are_left_out() {
        let records = vec![
            CodeRecord::Superblock {
                number: 7,
                pc: 0x1000,
                known: 16,
                instructions: 2,
                code: vec![(0x1000, vec![0x90]), (0x2000, vec![0xc3])],
            },
            CodeRecord::Link { space: 0, from: 7, exit: 0, to: 8 },
            CodeRecord::Fork { space: 1, of: 0 },
            CodeRecord::Mapped {
                space: 1,
                mapping: Mapping {
                    start: VirtualAddress(1),
                    end: VirtualAddress(2),
                    offset: 3,
                    path: "/a".into(),
                },
            },
        ];
        let mut bytes = Vec::new();
        records.iter().for_each(|record| record.write(&mut bytes));
        assert_eq!(CodeRecord::read_all(&bytes), records);
        assert_eq!(CodeRecord::read_all(&bytes[..bytes.len() - 1]), records[..3]);
        let events = vec![
            Event { position: 3, kind: EventKind::Cut { instructions: 9 } },
            Event { position: 3, kind: EventKind::Resume { superblock: 1, fs_base: 2, registers: [3; 16] } },
            Event { position: 4, kind: EventKind::Alone { pc: 5, length: 6 } },
            Event { position: 5, kind: EventKind::Signal { number: 11 } },
            Event { position: 9, kind: EventKind::Exit { status: 256 } },
        ];
        let mut bytes = Vec::new();
        events.iter().for_each(|event| event.write(&mut bytes));
        assert_eq!(Event::read_all(&bytes), events);
        assert_eq!(Event::read_all(&bytes[..bytes.len() - 1]), events[..4]);
    }

    #[test]
    fn a_cut_file_is_read_up_to_the_cut() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("stream-0.zst");
        let packer = Packer::start();
        let mut writer = packer.create(&path).unwrap();
        for part in [&b"first"[..], b"second"] {
            writer.add(part);
            writer.flush().unwrap();
        }
        drop(writer);
        packer.finish().unwrap();
        assert_eq!(read_chunks(&path).unwrap(), (b"firstsecond".to_vec(), None));
        let whole = fs::read(&path).unwrap();
        fs::write(&path, &whole[..whole.len() - 2]).unwrap();
        let (bytes, why) = read_chunks(&path).unwrap();
        assert!(bytes.starts_with(b"first") && why.is_some());
    }
}
