//! Parameters of `top`: what the rows are, which samples count, and how much is computed for each row.

use dwell_profile::{Dimension, ImageKind, ImageRecord};

use crate::{
    SampleFilter,
    load::{filter::wants, selection::Selection},
};

/// What the rows of a [`Top`](crate::answer::Top) stand for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TopBy {
    /// Procedures, with CPI if it can be estimated.
    #[default]
    Procedure,
    /// Images (binaries).
    Image,
    /// Source lines, those of the innermost inlined call.
    Line,
    /// Applications, by the name of the executable.
    App,
    /// Executions of applications. Executions that were not recorded separately share one row.
    Instance,
    /// Thread names, CPUs or control groups, for epochs that recorded them.
    Dimension(Dimension),
    /// The data that sampled instructions refer to, for epochs that recorded it.
    Data,
}

/// The part of the system whose samples count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Domain {
    /// All code, of user mode and of the kernel.
    #[default]
    All,
    /// Code that runs in user mode.
    User,
    /// The kernel and its modules.
    Kernel,
}

impl Domain {
    /// Returns whether an image belongs to the domain.
    fn has(self, record: &ImageRecord) -> bool {
        let is_kernel = matches!(record.kind, ImageKind::Kernel | ImageKind::Module);
        match self {
            Domain::All => true,
            Domain::User => !is_kernel,
            Domain::Kernel => is_kernel,
        }
    }
}

/// How much is computed for each row of a procedure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Detail {
    /// Only samples. This is for a list of thousands of rows, whose other columns are requested when they become visible.
    Samples,
    /// A table that is read once and must be quick. It has at most [`TopRequest::limit`] rows. Rows have no id, and a CPI
    /// only if there is evidence of executions besides time.
    Hottest,
    /// Like [`Detail::Hottest`], but always with a CPI.
    HottestWithCpi,
    /// Id, CPI, and the file and line that the procedure begins at.
    #[default]
    Full,
    /// The same as [`Detail::Full`], and the procedure's cycles by cause.
    FullWithCycles,
}

/// A request to [`Query::top`](crate::Query::top).
#[derive(Clone, Debug, Default)]
pub struct TopRequest {
    /// Epochs to merge. If empty, the latest epoch is used.
    pub epochs: Vec<String>,
    /// What the rows stand for.
    pub by: TopBy,
    /// Number of most costly rows to skip.
    pub offset: usize,
    /// Largest number of rows; `None` means all.
    pub limit: Option<usize>,
    /// How much is computed for each row, if the rows are procedures.
    pub detail: Detail,
    /// If set, only samples of images whose path, file name or id contains this text.
    pub image: Option<String>,
    /// Restricts the samples to user mode or to the kernel.
    pub domain: Domain,
    /// Restricts the samples to an application, a thread, …. Shares stay relative to all samples.
    pub filter: SampleFilter,
}

impl TopRequest {
    /// Returns whether samples of the image count.
    pub(crate) fn takes(&self, record: &ImageRecord) -> bool {
        self.domain.has(record) && wants(&self.image, record)
    }

    /// Returns for each image of the selection whether its samples count.
    pub(crate) fn wanted_images(&self, selection: &Selection) -> Vec<bool> {
        selection.images.iter().map(|image| self.takes(&image.record)).collect()
    }
}
