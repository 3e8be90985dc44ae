//! Runs `dwell roll-up`.

use std::path::Path;

use dwell_fleet::{Location, RollUpOptions, RolledUp};
use dwell_profile::EpochId;
use serde_json::json;

use crate::{args::RollUpArgs, complain, print, print_json};

/// Sums up the recordings in a bucket.
pub fn run(place: &Path, args: &RollUpArgs, json: bool) -> anyhow::Result<()> {
    anyhow::ensure!(
        Location::is_remote(place),
        "roll-up: {}: only recordings in an object store are summed up: --db s3://BUCKET/PREFIX",
        place.display()
    );
    let location = Location::parse(&place.to_string_lossy())?;
    let options = RollUpOptions {
        recordings_max: args.recordings as usize,
        today: args.today,
        only: args.only.iter().cloned().map(EpochId).collect(),
    };
    if args.plan {
        let groups = dwell_fleet::plan(&location, &options)?;
        if groups.is_empty() {
            complain("roll-up: no recordings can be summed up");
        }
        return match json {
            true => print_json(&json!({ "schema": 1, "groups": groups })),
            false => print(&lines(&groups)),
        };
    }
    let done = dwell_fleet::roll_up(&location, &options)?;
    done.warnings.iter().for_each(|warning| complain(&format!("roll-up: {warning}")));
    if !json {
        return print(&render(&done));
    }
    let made: Vec<_> =
        done.made.iter().map(|(id, recordings)| json!({ "epoch": id, "recordings": recordings })).collect();
    let warnings: Vec<String> = done.warnings.iter().map(ToString::to_string).collect();
    print_json(&json!({
        "schema": 1, "roll_ups": made, "objects": done.objects, "bytes": done.bytes, "warnings": warnings,
        "alone": done.alone, "today": done.today,
    }))
}

fn lines(groups: &[Vec<EpochId>]) -> String {
    groups.iter().map(|ids| ids.iter().map(|id| id.0.as_str()).collect::<Vec<_>>().join(",") + "\n").collect()
}

fn render(done: &RolledUp) -> String {
    let recordings: usize = done.made.iter().map(|(_, recordings)| recordings).sum();
    let mut text = format!(
        "summed up {recordings} recordings in {} roll-ups: {} objects, {} bytes\n",
        done.made.len(),
        done.objects,
        done.bytes
    );
    if done.today > 0 {
        text += &format!("{} recordings of today are left for later (--today includes them)\n", done.today);
    }
    if !done.alone.is_empty() {
        let all = done.alone.iter().map(|id| id.0.as_str()).collect::<Vec<_>>().join(", ");
        text +=
            &format!("in no roll-up, as nothing of their day and kind can be summed up with them: {all}\n");
    }
    text
}
