//! A database with many different call stacks, for measuring what shows them.
//!
//! Enters: a folder, and optionally the number of stacks (100,000). Leaves: a database there with one epoch, in which each sample
//! has a stack of its own: 12 to 40 frames of 5,000 functions in eight binaries, common outside and different inside.

use std::{collections::HashSet, path::PathBuf, sync::Arc};

use dwell_profile::*;

const IMAGES: usize = 8;
const FUNCTIONS: usize = 5_000;
const FUNCTION_BYTES: u64 = 256;

struct Random(u64);

impl Random {
    /// Returns one of n; the first ones are the likeliest.
    fn steep(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let unit = (self.0 >> 11) as f64 / (1_u64 << 53) as f64;
        (unit.powi(3) * n as f64) as usize
    }
}

fn images() -> Vec<ImageRecord> {
    let symbols = |image: usize| {
        let of_image = (0..FUNCTIONS).filter(move |function| function % IMAGES == image);
        of_image.map(|function| ImageSymbol {
            offset: ImageOffset(function as u64 * FUNCTION_BYTES),
            size_bytes: FUNCTION_BYTES,
            name: format!("component_{}::step_{function}(input const&, output&)", function % 40),
        })
    };
    let image = |at: usize| {
        let id = ImageId::named(&format!("jit:library-{at}"));
        ImageRecord {
            symbols: symbols(at).collect(),
            ..ImageRecord::new(id, ImageKind::Jit, format!("library-{at}"))
        }
    };
    (0..IMAGES).map(image).collect()
}

fn epoch(samples: u64) -> Epoch {
    let start = jiff::Timestamp::from_second(1_790_000_000).expect("in range");
    let record = EventRecord {
        period: 1_000_000,
        unit: Unit::Nanoseconds,
        samples,
        lost: 0,
        throttled: 0,
        unknown: 0,
        running_share: None,
    };
    Epoch {
        id: EpochId::new(start),
        name: Some("stacks".to_owned()),
        start,
        end: Some(start),
        host: Host { name: "simulated".into(), kernel_release: "6.1".into() },
        cpu: Cpu {
            arch: "x86_64".into(),
            vendor: "GenuineIntel".into(),
            model_name: "simulated".into(),
            family: 6,
            model: 1,
            stepping: 1,
            count: 2,
            clock_hz: Some(3e9),
            clock_hz_range: None,
            machine_model: None,
        },
        backend: "perf".to_owned(),
        scope: Scope::System,
        events: [(Event::CPU_CLOCK, record)].into(),
        notes: vec![],
        bursts: None,
        breakpoints: None,
        counts: None,
        call_stacks: None,
        collector: None,
    }
}

fn main() {
    let mut words = std::env::args().skip(1);
    let folder: PathBuf = words.next().expect("usage: many_stacks FOLDER [STACKS]").into();
    let stacks: usize = words.next().map_or(100_000, |word| word.parse().expect("a number of stacks"));
    let records = images();
    let place = |function: usize| CodePlace {
        image: records[function % IMAGES].id.clone(),
        offset: ImageOffset(function as u64 * FUNCTION_BYTES + 8),
    };
    let app: Arc<str> = "simulated".into();
    let root = StackRoot { event: Event::CPU_CLOCK, app: app.clone(), instance: 0, end: StackEnd::Root };
    let (mut tree, mut counts, mut seen) = (StoredCallTree::default(), Counts::default(), HashSet::new());
    let random = &mut Random(1997);
    while seen.len() < stacks {
        let depth = 12 + random.steep(28);
        // A frame's callees are few near the root and many near the end.
        let frames: Vec<usize> = (0..depth)
            .map(|at| (at * 131 + random.steep(if at + 4 < depth { 6 } else { 400 }) * 17) % FUNCTIONS)
            .collect();
        if !seen.insert(frames.clone()) {
            continue;
        }
        let last = place(*frames.last().expect("a stack has frames"));
        tree.add(root.clone(), frames.into_iter().map(place), 1);
        let key = SampleKey {
            image: last.image,
            event: Event::CPU_CLOCK,
            offset: last.offset,
            app: app.clone(),
            instance: 0,
            dimensions: None,
        };
        *counts.entry(key).or_default() += 1;
    }
    let writer = Database::open(&folder).expect("a database").writer().expect("its writer");
    let mut epoch = writer.begin(epoch(stacks as u64)).expect("an epoch");
    epoch.append(&counts, &records).expect("stored");
    epoch.append_stacks(&tree).expect("stored");
    println!("{stacks} stacks, {} frames by place in {}", tree.nodes().len(), folder.display());
}
