//! Attribution of samples: finds the image, the offset in it and the application for an address in a process.
//! Enters: forks, executions, exits and mappings in order of time, and what is known about files. Leaves: images, offsets in
//! them, and executions of applications. Never here: system calls, rings, other tools' formats. The collector or importer
//! looks at the files and passes in what it found.

mod address_space;
mod applications;
mod images;
mod interval;
mod kernel;
mod modules;
mod processes;
pub mod program_headers;

pub use address_space::{AddressSpace, Anonymous, MappedRange, Mapping, TargetIndex};
pub use applications::{AppInstance, Applications, ExecutionId, InstanceLimits};
pub use images::{FileTag, FileVersion, Identity, ImageFiles, ImageIndex, Images, OwnedTag, Target};
pub use interval::Interval;
pub use kernel::{KernelLayout, KernelPlace, KernelSymbols, module_name, read_kernel};
pub use modules::Modules;
pub use processes::{CodeId, Process, Processes};
