//! Runs `dwell top --tui`: shows live where the time goes; keys lead from an image to a procedure to a listing.
//!
//! Input: keys, the size of the terminal, and answers of the query. Output: pictures of the terminal. Requests are answered
//! in a separate thread, so that keys never wait, and they are repeated whenever the database has grown.
//!
//! However the program ends, it must never leave the terminal in raw mode. The picture must not flicker: only cells that
//! changed are written.

mod ansi;
mod app;
mod draw;
#[cfg(test)]
mod tests;

use std::{
    io::IsTerminal,
    path::Path,
    sync::{
        Arc,
        mpsc::{Receiver, Sender, channel},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::Context;
use dwell_profile::Database;
use dwell_query::{CallersRequest, Cancel, Direction, Query, SampleFilter, TopBy, TopRequest};
use ratatui::crossterm::event::{self, Event};

use crate::args::TopArgs;
use app::{App, Asked, Known, Question};

/// Interval between checks whether the database has grown.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Interval at which the daemon is asked to store its counts. By itself it stores them only every few minutes.
const STORE_EVERY: Duration = Duration::from_secs(2);
/// Longest wait for a key, so that answers are drawn soon after they arrive.
const KEY_WAIT: Duration = Duration::from_millis(50);

/// Shows the interface until a key ends it.
pub fn run(query: Query, database: Option<&Path>, args: &TopArgs) -> anyhow::Result<()> {
    anyhow::ensure!(
        std::io::stdout().is_terminal() && std::io::stdin().is_terminal(),
        "top: --tui needs a terminal, and standard output is none: omit it, or use --json"
    );
    query.epochs().context("top")?; // Errors are reported before the terminal switches to the table.
    let query = Arc::new(query);
    let (ask, asked) = channel();
    let (answer, answers) = channel();
    let answering = query.clone();
    let filter = args.filter();
    thread::spawn(move || answer_all(&answering, &filter, &asked, &answer));
    let goes_on = args.since.is_some() || args.epoch.iter().any(|epoch| epoch == "latest");
    if let Some(database) = database.filter(|_| goes_on) {
        let database = Database::open(database)?;
        thread::spawn(move || keep_fresh(&database));
    }
    let mut terminal = ratatui::try_init().context("top: terminal")?; // This also restores the terminal after a panic.
    let ended = show(&query, args, &mut terminal, &ask, &answers);
    let restored = ratatui::try_restore().context("top: terminal");
    ended.and(restored)
}

/// Makes the daemon store its counts while the interface is open. If there is no daemon, or it belongs to another user, the
/// stored data are shown.
fn keep_fresh(database: &Database) {
    loop {
        let _ = dwell_collect::flush(database);
        thread::sleep(STORE_EVERY);
    }
}

fn show(
    query: &Query,
    args: &TopArgs,
    terminal: &mut ratatui::DefaultTerminal,
    ask: &Sender<Asked>,
    answers: &Receiver<(Asked, Result<Known, String>)>,
) -> anyhow::Result<()> {
    let epochs = match args.since {
        Some(time) => crate::top::since(query, time)?,
        None => args.epoch.clone(),
    };
    let mut app = App::new(epochs, args.image.clone(), args.by, args.domain());
    let mut looked: Option<(Instant, u64)> = None;
    let mut is_stale = true;
    loop {
        if looked.is_none_or(|(at, _)| at.elapsed() >= LOOK_EVERY) {
            let generation = query.generation();
            app.has_grown(looked.is_some_and(|(_, before)| before != generation));
            looked = Some((Instant::now(), generation));
        }
        if let Some(asked) = app.take_question() {
            ask.send(asked).context("top: the thread that computes answers has ended")?;
        }
        while let Ok((asked, known)) = answers.try_recv() {
            app.take(&asked, known);
            is_stale = true;
        }
        if is_stale {
            terminal.draw(|frame| draw::draw(&mut app, frame)).context("top: terminal")?;
            is_stale = false;
        }
        if event::poll(KEY_WAIT).context("top: keys")? {
            match event::read().context("top: keys")? {
                Event::Key(key) if key.is_press() => app.press(key),
                _ => {}
            }
            is_stale = true;
        }
        if app.is_over {
            return Ok(());
        }
    }
}

/// Answers the newest request. Older requests are dropped.
fn answer_all(
    query: &Query,
    filter: &SampleFilter,
    asked: &Receiver<Asked>,
    answers: &Sender<(Asked, Result<Known, String>)>,
) {
    while let Ok(mut question) = asked.recv() {
        while let Ok(newer) = asked.try_recv() {
            question = newer;
        }
        let known = answer(query, filter, &question).map_err(|e| e.to_string());
        if answers.send((question, known)).is_err() {
            return;
        }
    }
}

fn answer(query: &Query, filter: &SampleFilter, asked: &Asked) -> Result<Known, dwell_query::QueryError> {
    let cancel = Cancel::new();
    let epochs = query.epochs()?.epochs;
    match &asked.question {
        Question::Rows { by, image } => {
            let limit = Some(app::ROWS_MAX);
            let domain = asked.domain;
            let of = |by| TopRequest { by, ..crate::top::request(&asked.epochs, image, filter) };
            let top = query.top(&TopRequest { limit, domain, ..of(*by) }, &cancel)?;
            let domains = crate::top::shares(&query.top(&of(TopBy::Image), &cancel)?);
            let epochs = epochs.into_iter().filter(|e| top.epochs.contains(&e.id)).collect();
            Ok(Known::Rows { top: Box::new(top), epochs, domains })
        }
        Question::Listing { procedure } => {
            Ok(Known::Listing(Box::new(query.listing_of(&asked.epochs, filter, procedure, &cancel)?)))
        }
        Question::Callers { function, through } => {
            let request = CallersRequest {
                epochs: asked.epochs.clone(),
                function: function.clone(),
                direction: Direction::Callers,
                event: None,
                through: through.clone(),
                depth: 1,
                share_min: 0.0,
                filter: filter.clone(),
            };
            Ok(Known::Callers(Box::new(query.callers(&request, &cancel)?)))
        }
    }
}
