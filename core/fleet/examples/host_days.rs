//! Makes a database with simulated days of hosts, for `npm run bench:fleet`.
//!
//! Enters: the folder of the new database, the number of host-days, the rows of a recording, and the number of recordings a day (24 if it is not
//! given). Leaves: that many recordings for each host-day, each with that many rows over 300 binaries by power laws, with a fixed seed.

use dwell_profile::{
    Counts, Database, Epoch, Event, ImageId, ImageKind, ImageOffset, ImageRecord, SampleKey,
};

const IMAGES: usize = 300;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let usage = "usage: host_days DIR HOST_DAYS ROWS [RECORDINGS]";
    let folder = arguments.next().expect(usage);
    let mut number = |default| arguments.next().map_or(default, |text| text.parse().ok()).expect(usage);
    let (host_days, rows, recordings): (usize, usize, usize) = (number(None), number(None), number(Some(24)));
    let writer =
        Database::open(&folder).expect("the folder can be opened").writer().expect("it can be written");
    let image = |n: usize| {
        let id = ImageId::named(&format!("{n:040x}"));
        ImageRecord::new(id, ImageKind::File, format!("/usr/lib/service-{n}/lib{n}.so"))
    };
    let images: Vec<ImageRecord> = (0..IMAGES).map(image).collect();
    let mut random = Random(88_172_645_463_325_252);
    for host in 0..host_days {
        for hour in 0..recordings {
            let counts = counts(&images, rows, &mut random);
            let mut epoch = epoch(host, hour);
            epoch.events.values_mut().for_each(|record| record.samples = counts.values().sum());
            let mut epoch = writer.begin(epoch).expect("an epoch can be begun");
            epoch.append(&counts, &images).expect("samples can be stored");
        }
    }
}

fn counts(images: &[ImageRecord], rows: usize, random: &mut Random) -> Counts {
    let mut counts = Counts::default();
    while counts.len() < rows {
        let at = (random.share().powi(3) * images.len() as f64) as usize;
        let key = SampleKey {
            image: images[at].id.clone(),
            event: Event::CYCLES,
            offset: ImageOffset((random.share().powi(2) * 2e5) as u64),
            app: format!("/usr/bin/service-{}", at % 40).into(),
            instance: (random.share() * 3.0) as u32,
            dimensions: None,
        };
        *counts.entry(key).or_insert(0) += 1 + (random.share() * 3.0) as u64;
    }
    counts
}

fn epoch(host: usize, hour: usize) -> Epoch {
    let epoch = serde_json::json!({
        "id": format!("20261127T{hour:02}0000Z-{host:06x}"), "start": format!("2026-11-27T{hour:02}:00:00Z"),
        "end": format!("2026-11-27T{hour:02}:59:59Z"), "host": {"name": format!("host-{host}"), "kernel_release": "6"},
        "cpu": {"arch": "x86_64", "vendor": "v", "model_name": "m", "family": 6, "model": 1, "stepping": 1, "count": 2, "clock_hz": 1e9},
        "backend": "bpf", "scope": "system",
        "events": {"cycles": {"period": 62000, "unit": "cycles", "samples": 0, "lost": 0, "throttled": 0, "unknown": 0}},
    });
    serde_json::from_value(epoch).expect("it is an epoch")
}

/// A xorshift generator.
struct Random(u64);

impl Random {
    /// Returns a number from 0 up to 1.
    fn share(&mut self) -> f64 {
        for shift in [13, -7, 17] {
            self.0 ^= if shift > 0 { self.0 << shift } else { self.0 >> -shift };
        }
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }
}
