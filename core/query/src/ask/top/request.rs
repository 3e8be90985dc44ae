//! The question of where the time goes, and how much of the answer is computed.

use dwell_profile::{Dimension, ImageKind, ImageRecord};

use crate::{
    SampleFilter,
    load::{filter::wants, selection::Selection},
};

/// What the rows of a [`Top`](crate::answer::Top) are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TopBy {
    /// Procedures, with CPI where it can be estimated.
    #[default]
    Procedure,
    /// Images.
    Image,
    /// Source lines (of the innermost inlined call).
    Line,
    /// Applications.
    App,
    /// Executions of applications; those that were not kept apart together.
    Instance,
    /// Names of threads, CPUs, control groups, of epochs that kept them.
    Dimension(Dimension),
    /// What data the sampled instructions refer to, of epochs that kept it.
    Data,
}

/// Which code's samples count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Domain {
    /// All code.
    #[default]
    All,
    /// Code that runs in user mode.
    User,
    /// The kernel and its modules.
    Kernel,
}

impl Domain {
    /// Whether an image belongs to the domain.
    fn has(self, record: &ImageRecord) -> bool {
        let is_kernel = matches!(record.kind, ImageKind::Kernel | ImageKind::Module);
        match self {
            Domain::All => true,
            Domain::User => !is_kernel,
            Domain::Kernel => is_kernel,
        }
    }
}

/// How much is computed of each procedure's row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Detail {
    /// Samples only: for a list of thousands, whose rows are asked for again when they come in sight.
    Samples,
    /// A table that is read once and quickly: at most [`TopRequest::limit`] rows, which have no id, and a CPI only where
    /// there is evidence of executions besides time.
    Hottest,
    /// Like [`Detail::Hottest`], with a CPI in any case.
    HottestWithCpi,
    /// The id, the CPI, and the file and line that the procedure begins at.
    #[default]
    Full,
    /// All of that, and the procedure's cycles by cause.
    FullWithCycles,
}

/// A question for [`Query::top`](crate::Query::top).
#[derive(Clone, Debug, Default)]
pub struct TopRequest {
    /// The epochs to merge; where there are none, the latest.
    pub epochs: Vec<String>,
    /// What the rows are.
    pub by: TopBy,
    /// The number of most costly rows to skip.
    pub offset: usize,
    /// The largest number of rows; `None` means all.
    pub limit: Option<usize>,
    /// By procedure: how much is computed of each row.
    pub detail: Detail,
    /// Only samples of images whose path, file name or id contains this.
    pub image: Option<String>,
    /// Only samples of user mode, or of the kernel.
    pub domain: Domain,
    /// Only samples of an application, a thread, …; shares stay those of all samples.
    pub filter: SampleFilter,
}

impl TopRequest {
    /// Whether samples of the image count.
    pub(crate) fn takes(&self, record: &ImageRecord) -> bool {
        self.domain.has(record) && wants(&self.image, record)
    }

    /// For each image of the selection, whether its samples count.
    pub(crate) fn wanted_images(&self, selection: &Selection) -> Vec<bool> {
        selection.images.iter().map(|image| self.takes(&image.record)).collect()
    }
}
