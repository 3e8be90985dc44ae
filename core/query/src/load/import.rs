//! Imports a table of samples from any source, for instance a simulator, as an epoch: `import --counts`.
//!
//! The lines of the table are `image<TAB>hex address<TAB>count`. Empty lines and lines that start with `#` are ignored.
//! `image` is the path, the file name or the build ID of one of the ELF files that the request names; addresses are image
//! addresses. If any line is malformed, nothing is stored.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use dwell_analysis::MachineModel;
use dwell_image::{Image, ImageAddress};
use dwell_profile::{
    Counts, Cpu, Database, Epoch, EpochId, Event, EventRecord, Host, ImageId, ImageKind, ImageRecord,
    SampleKey, Scope, Unit, name_to_text, path_to_text,
};
use jiff::Timestamp;

use crate::{QueryError, load::source::mtime_ns};

/// Parameters of an import.
#[derive(Clone, Debug)]
pub struct ImportRequest {
    /// Path of the table.
    pub counts: PathBuf,
    /// Paths of the ELF files that the table refers to.
    pub images: Vec<PathBuf>,
    /// Name of the machine model of the processor that was sampled.
    pub machine: String,
    /// Name of the event.
    pub event: String,
    /// Mean period of the event, in units of `unit`.
    pub period: u64,
    /// Unit of the period.
    pub unit: Unit,
    /// Clock rate of the core, which converts nanoseconds to cycles.
    pub clock_hz: Option<f64>,
    /// Name of the new epoch.
    pub name: Option<String>,
}

/// Stores the table as a new epoch.
pub fn import_counts(
    database: &Database,
    request: &ImportRequest,
    now: Timestamp,
) -> Result<EpochId, QueryError> {
    let model = MachineModel::named(&request.machine).ok_or_else(|| QueryError::NoModel {
        name: request.machine.clone(),
        known: MachineModel::names().map(str::to_owned).collect(),
    })?;
    let images = request.images.iter().map(|p| Subject::open(p)).collect::<Result<Vec<_>, _>>()?;
    let text = std::fs::read_to_string(&request.counts)
        .map_err(|source| QueryError::Io { path: request.counts.clone(), source })?;
    let counts = parse(&text, &request.counts, &images, &Event::named(&request.event))?;
    let arch = images.first().map_or("", |s| s.image.arch().name());
    let epoch = epoch(request, model, arch, counts.values().sum(), now);
    let id = epoch.id.clone();
    let mut writer = database.writer()?.begin(epoch)?;
    writer.append(&counts, &images.iter().map(|s| s.record.clone()).collect::<Vec<_>>())?;
    writer.finish(now)?;
    Ok(id)
}

/// An ELF file that the table may refer to.
struct Subject {
    path: PathBuf,
    image: Image,
    record: ImageRecord,
}

impl Subject {
    fn open(path: &Path) -> Result<Self, QueryError> {
        let io = |source| QueryError::Io { path: path.to_owned(), source };
        let image = Image::open(path)?;
        let path = path.canonicalize().map_err(io)?;
        let size_bytes = std::fs::metadata(&path).map_err(io)?.len();
        let mtime_ns = mtime_ns(&path);
        let id = match image.build_id() {
            Some(id) => ImageId::of_build(id),
            None => ImageId::named(&format!("file:0:0:{size_bytes}:{}", mtime_ns.unwrap_or(0))),
        };
        let record = ImageRecord {
            id,
            kind: ImageKind::File,
            path: path.clone(),
            deleted: false,
            size_bytes: Some(size_bytes),
            mtime_ns,
            symbols: Vec::new(),
            places: Default::default(),
            kernel_builds: Vec::new(),
        };
        Ok(Subject { path, image, record })
    }

    fn is_called(&self, name: &str) -> bool {
        path_to_text(&self.path) == name
            || self.path.file_name().is_some_and(|n| name_to_text(n) == name)
            || self.record.id.as_str() == name
            || Path::new(name).canonicalize().is_ok_and(|p| p == self.path)
    }
}

fn parse(text: &str, path: &Path, images: &[Subject], event: &Event) -> Result<Counts, QueryError> {
    let app: Arc<str> =
        images.first().and_then(|s| s.path.file_name()).map_or("".into(), |n| name_to_text(n).into());
    let mut counts = Counts::default();
    let lines = text.lines().enumerate().filter(|(_, l)| !l.trim().is_empty() && !l.starts_with('#'));
    for (index, line) in lines {
        let bad = |why: String| QueryError::BadTable { path: path.to_owned(), line: index + 1, why };
        let [name, address, count] = line.split('\t').collect::<Vec<_>>()[..] else {
            return Err(bad("expected 'image<TAB>hex address<TAB>count'".to_owned()));
        };
        let subject = images
            .iter()
            .find(|s| s.is_called(name))
            .ok_or_else(|| bad(format!("image '{name}' is not among those named by --image")))?;
        let address = u64::from_str_radix(address.trim_start_matches("0x"), 16)
            .map_err(|_| bad(format!("'{address}' is not a hexadecimal address")))?;
        let count: u64 =
            count.trim().parse().map_err(|_| bad(format!("'{count}' is not a number of samples")))?;
        let offset = subject
            .image
            .offset_of(ImageAddress(address))
            .ok_or_else(|| bad(format!("address {address:x} lies in no segment of '{name}'")))?;
        let key = SampleKey {
            image: subject.record.id.clone(),
            event: event.clone(),
            offset,
            app: app.clone(),
            instance: 1,
            dimensions: None,
        };
        let sum = counts.entry(key).or_default();
        *sum = sum.checked_add(count).ok_or_else(|| bad("the counts of this address overflow".to_owned()))?;
    }
    Ok(counts)
}

fn epoch(request: &ImportRequest, model: &MachineModel, arch: &str, samples: u64, now: Timestamp) -> Epoch {
    let record = EventRecord {
        period: request.period,
        unit: request.unit,
        samples,
        lost: 0,
        throttled: 0,
        unknown: 0,
        running_share: None,
    };
    Epoch {
        id: EpochId::new(now),
        name: request.name.clone(),
        start: now,
        end: None,
        host: Host { name: "import".to_owned(), kernel_release: String::new() },
        cpu: Cpu {
            arch: arch.to_owned(),
            vendor: String::new(),
            model_name: model.name().to_owned(),
            family: 0,
            model: 0,
            stepping: 0,
            count: 1,
            clock_hz: request.clock_hz,
            clock_hz_range: None,
            machine_model: Some(model.name().to_owned()),
        },
        backend: "import".to_owned(),
        scope: Scope::Import(path_to_text(&request.counts).into_owned()),
        events: BTreeMap::from([(Event::named(&request.event), record)]),
        notes: Vec::new(),
        bursts: None,
        breakpoints: None,
        counts: None,
        call_stacks: None,
        collector: None,
    }
}
