//! The data model of profiling and the database of epochs.
//!
//! Enters: counts of samples by image, event, offset and application instance, and what was known about them when they
//! were taken. Leaves: the same data, even years later or on another machine. Never here: ELF, DWARF, symbol tables,
//! system calls that sample, or any other crate of this project.
//!
//! `FORMAT.md` beside this crate's manifest describes the format on disk.

mod address;
mod branches;
mod call_stacks;
mod collector;
mod counted_event;
mod database;
mod dimensions;
mod epoch;
mod epoch_sum;
mod error;
mod event;
mod evidence;
mod executions;
mod identity;
mod image_id;
mod image_places;
mod path_text;
mod sample;
mod sample_accumulator;
mod segment;
mod source;

pub use address::{ImageAddress, ImageOffset, VirtualAddress};
pub use branches::{BranchEntry, BranchSums, stacks_note};
pub use call_stacks::{
    CallNode, CallParent, CallStacksRecord, CallTree, StackEnd, StackRoot, StoredCallTree,
};
pub use collector::{CollectorRecord, TableRecord};
pub use counted_event::{CountedEvent, DerivedEvent};
pub use database::disk::{Disk, Entry, LockGuard, LockOutcome, StoredRows, read_file};
#[doc(hidden)]
pub use database::fuzz_epoch_file;
pub use database::{
    Compacted, DATABASE_FORMAT, Database, EpochProfile, EpochRows, EpochWriter, EpochsRead, EpochsSummed,
    Kept, SegmentFiles, SegmentRange, StoredAnalysis, TOTALS_FILE, Writer, newest_first,
};
pub use dimensions::{Dimension, DimensionSet, DimensionValues, NoDimension};
pub use epoch::{Cpu, Epoch, EpochId, EventRecord, Host, Scope};
pub use epoch_sum::EpochKind;
pub use error::{DatabaseError, Warning};
pub use event::{Event, Unit};
pub use evidence::{BreakpointRecord, BurstsRecord, CodePlace, ControlTransfer, ExecutionEvidence};
pub use executions::{CountSource, CountsRecord, ExecutionCount};
pub use identity::{CpuId, EventIndex, Pid, Tid};
pub use image_id::{BuildId, BuildIdError, ImageId, ImageKind, ImageRecord, ImageSymbol};
pub use image_places::{ImagePlace, ImagePlaces, NamedFrame};
pub use path_text::{bytes_to_text, name_to_text, path_to_text, text_to_path};
pub use sample::{Counts, SampleKey};
pub use sample_accumulator::{AccumulatedSamples, SampleAccumulator};
#[doc(hidden)]
pub use segment::fuzz_beside;
pub use segment::{
    MAX_SEGMENT_BYTES, MAX_SEGMENT_ROWS, SEGMENT_VERSION, SampleRun, Segment, SegmentError, TotalRow,
    encode_symbols, encode_totals, read_segment, read_segment_unverified, sum_runs_unverified,
};
pub use source::{MAX_SOURCE_BYTES, SourceRecord};
