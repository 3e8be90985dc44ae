//! Counts the functions of an image that can be patched, and why the others cannot.
//!
//!     cargo run --release -p dwell-probe --example patchable -- /usr/bin/bash

use std::{collections::BTreeMap, time::Instant};

use dwell_image::{Image, Procedure};
use dwell_probe::patch::{from_image::function_codes, plan::plan};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for path in std::env::args().skip(1) {
        let image = Image::open(&path)?;
        let procedures: Vec<Procedure> =
            image.procedures().iter().filter(|p| !p.name().contains("@plt")).collect();
        let start = Instant::now();
        let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
        let [mut entries, mut complete] = [0; 2];
        for code in function_codes(&image, &procedures, 0) {
            let [with_exits, entry] = [true, false]
                .map(|exits| code.as_ref().map_err(Clone::clone).and_then(|code| plan(code, exits)));
            entries += usize::from(entry.is_ok());
            complete += usize::from(with_exits.is_ok());
            if let Err(refusal) = with_exits {
                let mut text = refusal.to_string();
                while let Some(at) = text.find("0x") {
                    let end = text[at + 2..]
                        .find(|c: char| !c.is_ascii_hexdigit())
                        .map_or(text.len(), |n| at + 2 + n);
                    text.replace_range(at..end, "…");
                }
                *reasons.entry(text).or_default() += 1;
            }
        }
        let percent = |n: usize| 100.0 * n as f64 / procedures.len().max(1) as f64;
        println!(
            "{path}: {} functions, entry {:.1} %, entry and all exits {:.1} %, {:.0} ms",
            procedures.len(),
            percent(entries),
            percent(complete),
            start.elapsed().as_secs_f64() * 1e3
        );
        let mut reasons: Vec<_> = reasons.into_iter().collect();
        reasons.sort_by_key(|(_, n)| std::cmp::Reverse(*n));
        reasons.iter().take(8).for_each(|(reason, n)| println!("  {n:6} {reason}"));
    }
    Ok(())
}
