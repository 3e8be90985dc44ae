//! Executions that were counted while programs ran undisturbed.
//!
//! Input: the execution counts of merged epochs, and the samples of each application. Output: absolute counts of a
//! procedure's instructions over the whole selection. If only some of the applications that execute an instruction were
//! counted, their count is never presented as the count of all. Cost: linear in the counts, once for each selection.

use std::collections::BTreeMap;

use dwell_analysis::AbsoluteCount;
use dwell_image::{ImageOffset, ProcedureOffsets};
use dwell_profile::{CountSource, ExecutionCount};
use rustc_hash::FxHashMap;

use crate::load::samples::{AppCounts, ImageSamples, file_indexes};

/// Least part of an image's samples that the counted applications must have. The other applications may execute other parts
/// of the image.
const COVERED_MIN: f64 = 0.8;
/// Standard deviation of the logarithm of an extrapolated rate. It applies to a rate in an epoch without counts that is
/// extrapolated from other epochs, and to executions of uncounted applications that are extrapolated from their samples.
const UNCOVERED_DEVIATION: f64 = 0.7;

/// Executions over the whole selection.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Count {
    executions: f64,
    deviation: f64,
}

/// Counts by image (an index) and offset, separate for each source of counts.
#[derive(Default)]
pub struct ExecutionCounts {
    by_image: FxHashMap<usize, BTreeMap<(ImageOffset, CountSource), Count>>,
}

/// Counts of one place in one application, summed over epochs.
#[derive(Clone, Copy, Default)]
struct Rate {
    executions: f64,
    samples: f64,
    deviation: f64,
}

/// Rates by application and instance.
type RateByApp<'a> = BTreeMap<(&'a str, u32), Rate>;

impl ExecutionCounts {
    /// Scales counts to the samples of the selection. `epochs` is the number of merged epochs.
    pub fn new(
        counts: &[ExecutionCount],
        images: &[ImageSamples],
        apps: &AppCounts,
        epochs: usize,
    ) -> ExecutionCounts {
        if counts.is_empty() {
            return ExecutionCounts::default();
        }
        let index = file_indexes(images);
        let samples = Samples::new(apps);
        let mut rates: BTreeMap<(usize, ImageOffset, CountSource), RateByApp> = BTreeMap::new();
        for count in counts {
            let Some(&image) = index.get(&count.place.image) else { continue };
            let of_place = rates.entry((image, count.place.offset, count.source)).or_default();
            let rate = of_place.entry((&count.app, count.instance)).or_default();
            rate.executions += count.executions as f64;
            rate.samples += count.samples as f64;
            rate.deviation = rate.deviation.max(f64::from(count.deviation_ppm) / 1e6);
        }
        let mut by_image: FxHashMap<usize, BTreeMap<(ImageOffset, CountSource), Count>> =
            FxHashMap::default();
        for ((image, offset, source), of_apps) in rates {
            if let Some(count) = samples.count(image, &of_apps, epochs) {
                by_image.entry(image).or_default().insert((offset, source), count);
            }
        }
        ExecutionCounts { by_image }
    }

    /// Returns whether there are no counts.
    pub fn is_empty(&self) -> bool {
        self.by_image.is_empty()
    }

    /// Returns the counts of the instructions of a procedure of an image. `image_index` is the index of the image, `period`
    /// the mean number of cycles between two time samples.
    pub fn absolute(
        &self,
        image_index: usize,
        offsets: &ProcedureOffsets,
        period: Option<f64>,
    ) -> Vec<AbsoluteCount> {
        let (Some(all), Some(period)) = (self.by_image.get(&image_index), period.filter(|p| *p > 0.0)) else {
            return Vec::new();
        };
        let first = (*offsets.range().start(), CountSource::ALL[0]);
        let own = all.range(first..).take_while(|((offset, _), _)| offset <= offsets.range().end());
        own.filter_map(|((offset, source), count)| {
            Some(AbsoluteCount {
                at: offsets.index_of(*offset)?,
                frequency: count.executions / period,
                deviation: count.deviation,
                in_code: *source == CountSource::CodeCounter,
            })
        })
        .collect()
    }
}

/// Samples of the primary event.
struct Samples<'a> {
    of_app: BTreeMap<(&'a str, u32), f64>,
    in_image: BTreeMap<(usize, &'a str, u32), f64>,
    of_image: BTreeMap<usize, f64>,
}

impl<'a> Samples<'a> {
    /// Sums the samples. An instance number stands for that instance; 0 stands for all instances of an application.
    fn new(apps: &'a AppCounts) -> Samples<'a> {
        let mut samples =
            Samples { of_app: BTreeMap::new(), in_image: BTreeMap::new(), of_image: BTreeMap::new() };
        for ((app, instance, image), counts) in apps {
            let n = counts.first().copied().unwrap_or(0) as f64;
            *samples.of_image.entry(*image).or_default() += n;
            for instance in std::iter::once(0).chain(Some(*instance).filter(|i| *i != 0)) {
                *samples.of_app.entry((app, instance)).or_default() += n;
                *samples.in_image.entry((*image, app, instance)).or_default() += n;
            }
        }
        samples
    }

    /// Returns the executions of one place over the whole selection, by all applications that run it. Returns `None` if too
    /// many of these were not counted.
    fn count(&self, image: usize, rates: &RateByApp<'_>, epochs: usize) -> Option<Count> {
        let all = *self.of_image.get(&image)?;
        let (mut executions, mut variance, mut covered) = (0.0, 0.0, 0.0);
        for (&(app, instance), rate) in rates {
            // If the instances of an application are recorded separately, there is no count for all of them together.
            let (Some(&samples), Some(&own)) =
                (self.of_app.get(&(app, instance)), self.in_image.get(&(image, app, instance)))
            else {
                continue;
            };
            if rate.samples <= 0.0 || samples <= 0.0 {
                continue;
            }
            let part = (rate.samples / samples).min(1.0);
            // Within one epoch, the deviation that the collector reports is complete.
            let extrapolated = if epochs > 1 { UNCOVERED_DEVIATION * (1.0 - part) } else { 0.0 };
            let chance = (1.0 - part) / rate.samples;
            let deviation = rate.deviation.hypot(extrapolated).hypot(chance.sqrt());
            let whole = rate.executions / rate.samples * samples;
            executions += whole;
            variance += (whole * deviation).powi(2);
            covered += own;
        }
        let covered = (covered / all.max(1.0)).min(1.0);
        if executions <= 0.0 || covered < COVERED_MIN {
            return None;
        }
        let deviation = (variance.sqrt() / executions).hypot(UNCOVERED_DEVIATION * (1.0 - covered));
        Some(Count { executions: executions / covered, deviation })
    }
}

#[cfg(test)]
mod tests {
    use dwell_profile::{CodePlace, ImageId, ImageKind, ImageRecord};

    use super::*;
    use crate::load::samples::CountsByEvent;

    const IMAGE: usize = 0;

    fn place() -> CodePlace {
        CodePlace { image: ImageId::named("f00d"), offset: ImageOffset(0x10) }
    }

    fn count(app: &str, instance: u32, executions: u64, samples: u64) -> ExecutionCount {
        let (place, app, source) = (place(), app.to_owned(), CountSource::MemoryWord);
        ExecutionCount { place, app, instance, executions, samples, deviation_ppm: 30_000, source }
    }

    /// Returns the count over a selection with these samples: application, instance, samples in the image, samples
    /// elsewhere.
    fn counted(counts: &[ExecutionCount], apps: &[(&str, u32, u64, u64)], epochs: usize) -> Option<Count> {
        let mut all = AppCounts::new();
        for (app, instance, here, elsewhere) in apps {
            all.insert(((*app).into(), *instance, IMAGE), CountsByEvent::from_elem(*here, 1));
            all.insert(((*app).into(), *instance, 1), CountsByEvent::from_elem(*elsewhere, 1));
        }
        let record = ImageRecord {
            id: place().image,
            kind: ImageKind::File,
            path: "/bin/a".into(),
            deleted: false,
            size_bytes: None,
            mtime_ns: None,
            symbols: Vec::new(),
            places: Default::default(),
            kernel_builds: Vec::new(),
        };
        let images = [ImageSamples {
            record,
            epochs: vec![0],
            points: Default::default(),
            total: CountsByEvent::new(),
        }];
        let counts = ExecutionCounts::new(counts, &images, &all, epochs);
        counts.by_image.get(&IMAGE).and_then(|all| all.values().next().copied())
    }

    #[test]
    fn a_rate_stands_for_all_samples_of_its_application() {
        let half = counted(&[count("a", 1, 5000, 50)], &[("a", 1, 60, 40)], 1).unwrap();
        assert_eq!(half.executions, 10_000.0);
        assert!(half.deviation > 0.03 && half.deviation < 0.11, "{half:?}");
        // Each of several instances is counted separately.
        let both = [count("a", 1, 5000, 100), count("a", 2, 9000, 100)];
        let both = counted(&both, &[("a", 1, 100, 0), ("a", 2, 100, 0)], 1).unwrap();
        assert_eq!(both.executions, 14_000.0);
    }

    #[test]
    fn those_who_were_not_counted_are_not_taken_for_the_same() {
        assert_eq!(counted(&[count("a", 1, 5000, 50)], &[("a", 1, 50, 0), ("b", 1, 50, 0)], 1), None);
        let most = counted(&[count("a", 1, 5000, 90)], &[("a", 1, 90, 0), ("b", 1, 10, 0)], 1).unwrap();
        assert!((most.executions - 5000.0 / 0.9).abs() < 1e-6 && most.deviation > 0.07, "{most:?}");
        // The program may have done other work in an epoch without counts.
        let merged = counted(&[count("a", 1, 5000, 50)], &[("a", 1, 100, 0)], 2).unwrap();
        assert!(merged.deviation > 0.3, "{merged:?}");
    }
}
