//! Runs `dwell push`.

use std::path::{Path, PathBuf};

use dwell_exchange::{Format, otlp_rejection};
use dwell_fleet::{Location, Protocol, PushOptions, Pushed, Receiver};
use dwell_profile::{Database, Epoch, ImageRecord};
use dwell_query::{Options, Query};
use serde_json::json;

use crate::{args::PushArgs, complain, print, print_json};

/// Sends the recordings of the database in this folder. Fails if any of them could not be sent.
pub fn run(db: &Path, args: &PushArgs, json: bool) -> anyhow::Result<()> {
    anyhow::ensure!(db.is_dir(), "push: {}: there is no such folder", db.display());
    let query = Query::open(Options::for_database(db))?;
    let otlp = |url| (url, Protocol::Otlp(&otlp_rejection), Format::Otlp);
    let pprof = |url| (url, Protocol::Pyroscope, Format::Pprof);
    let receiver = args.otlp.as_ref().map(otlp).or_else(|| args.pprof.as_ref().map(pprof));
    let (to, pushed) = match (receiver, &args.to) {
        (Some((url, protocol, format)), _) => {
            (url.clone(), to_receiver(db, &query, (url, protocol, format), args)?)
        }
        (None, to) => {
            let location = Location::parse(to.as_deref().unwrap_or_default())?;
            (location.to_string(), to_bucket(db, &query, &location, args)?)
        }
    };
    tell(&to, &pushed, json)?;
    if pushed.epochs.is_empty() && pushed.known == 0 && pushed.unended.is_empty() && pushed.failed.is_empty()
    {
        complain(&format!("push: {}: no recording is there yet", db.display()));
    }
    pushed.failed.iter().for_each(|(id, why)| complain(&format!("push: recording {id}: {why}")));
    anyhow::ensure!(
        pushed.failed.is_empty(),
        "push: {} of the recordings could not be sent",
        pushed.failed.len()
    );
    Ok(())
}

fn to_bucket(db: &Path, query: &Query, location: &Location, args: &PushArgs) -> anyhow::Result<Pushed> {
    anyhow::ensure!(
        !location.selects(),
        "push: {location}: recordings are sent to a bucket and prefix; what is after the question mark chooses what is read"
    );
    let find = |record: &ImageRecord| query.binary(record);
    let symbols = |record: &ImageRecord| query.symbols(record);
    let options = PushOptions {
        bytes_per_second: args.rate.as_ref().and_then(|rate| rate.0),
        state: args.state.clone().or_else(state_dir),
        unended: args.unended,
        symbols: (!args.no_symbols).then_some(&symbols),
        binaries: args.binaries.then_some(&find),
    };
    Ok(dwell_fleet::push(&Database::open(db)?, location, &options)?)
}

fn to_receiver(
    db: &Path,
    query: &Query,
    (url, protocol, format): (&str, Protocol<'_>, Format),
    args: &PushArgs,
) -> anyhow::Result<Pushed> {
    let write = |epoch: &Epoch| {
        let message = crate::export::bytes(query, &[epoch.id.to_string()], None, None, true, format);
        message.map(|(_, bytes)| bytes).map_err(|error| crate::one_line(&error))
    };
    let state = args.state.clone().or_else(state_dir);
    let receiver = Receiver { protocol, write: &write };
    Ok(dwell_fleet::push_to_receiver(&Database::open(db)?, url, state.as_deref(), &receiver)?)
}

fn tell(to: &str, pushed: &Pushed, json: bool) -> anyhow::Result<()> {
    if !json {
        return print(&render(to, pushed));
    }
    let failed: Vec<_> =
        pushed.failed.iter().map(|(id, why)| json!({ "epoch": id, "reason": why })).collect();
    print_json(&json!({
        "schema": 1,
        "to": to,
        "epochs": pushed.epochs,
        "known": pushed.known,
        "unended": pushed.unended,
        "symbols": pushed.symbols,
        "binaries": pushed.binaries,
        "missing_binaries": pushed.missing,
        "objects": pushed.objects,
        "bytes": pushed.bytes,
        "failed": failed,
    }))
}

fn render(to: &str, pushed: &Pushed) -> String {
    let Pushed { epochs, known, unended, symbols, binaries, missing, objects, bytes, .. } = pushed;
    let mut text = format!(
        "sent {} recordings to {to}: {objects} objects, {bytes} bytes; {known} were there before\n",
        epochs.len()
    );
    if *symbols > 0 {
        text += &format!("sent the names of the functions of {symbols} binaries\n");
    }
    for path in binaries {
        text += &format!("sent the binary {}\n", path.display());
    }
    if !missing.is_empty() {
        text += &format!(
            "{} sampled binaries are not here as they were sampled, or are too large\n",
            missing.len()
        );
    }
    if !unended.is_empty() {
        text += &format!("{} have not ended and stay here for now (--unended sends them)\n", unended.len());
    }
    text
}

/// Returns the folder that systemd made for the unit, otherwise that of the user; `None` if neither is known.
fn state_dir() -> Option<PathBuf> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
    absolute("STATE_DIRECTORY").or_else(|| {
        let state =
            absolute("XDG_STATE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".local/state")));
        state.map(|state| state.join("dwell/push"))
    })
}
