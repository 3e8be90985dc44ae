//! State of the terminal interface: what is shown and what keys do. The state is a stack of places, from images through
//! procedures to a listing or to callers.
//!
//! This module knows no terminal and no database. Keys and answers come in; requests and state go out, so that tests are
//! deterministic.

use dwell_profile::Dimension;
use dwell_query::{
    CallStep, Domain, TopBy,
    answer::{Callers, CallersRow, EpochSummary, INCOMPLETE, Listing, Top, TopRow},
};
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use crate::{
    args::By,
    top::{dimension, is_kernel},
};

/// Largest number of rows in a table. Computing the CPI makes each row expensive.
pub const ROWS_MAX: usize = 200;

/// A request with its epochs and domain.
#[derive(Clone, Debug, PartialEq)]
pub struct Asked {
    pub epochs: Vec<String>,
    pub domain: Domain,
    pub question: Question,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Question {
    Rows {
        by: TopBy,
        image: Option<String>,
    },
    Listing {
        procedure: String,
    },
    /// The callers of a function (`BINARY:NAME`), after those that `through` leads through.
    Callers {
        function: String,
        through: Vec<CallStep>,
    },
}

/// An answer to a request.
pub enum Known {
    /// Rows of a table. `domains` are the shares of user mode and of the kernel, regardless of which of them the rows belong
    /// to.
    Rows {
        top: Box<Top>,
        epochs: Vec<EpochSummary>,
        domains: (f64, f64),
    },
    Listing(Box<Listing>),
    Callers(Box<Callers>),
}

/// Returns whether a row of an earlier answer belongs to the domain. It selects rows until the answer for the domain
/// arrives. Rows of applications belong to both domains.
fn is_of(domain: Domain, row: &TopRow) -> bool {
    match domain {
        Domain::All => true,
        Domain::User => !is_kernel(row),
        Domain::Kernel => row.build_id.is_none() || is_kernel(row),
    }
}

/// One place on the stack.
pub struct Place {
    pub question: Question,
    /// Name of the row that led here.
    pub title: String,
    pub selected: usize,
    /// First row or line on the screen. The drawing code maintains it.
    pub offset: usize,
    pub known: Option<Known>,
    pub problem: Option<String>,
}

impl Place {
    fn new(question: Question, title: String) -> Place {
        Place { question, title, selected: 0, offset: 0, known: None, problem: None }
    }

    pub fn by(&self) -> Option<TopBy> {
        match self.question {
            Question::Rows { by, .. } => Some(by),
            Question::Listing { .. } | Question::Callers { .. } => None,
        }
    }

    /// Returns the callers that are shown; `None` if the place shows something else.
    pub fn callers(&self) -> Option<&Callers> {
        match &self.known {
            Some(Known::Callers(callers)) => Some(callers),
            _ => None,
        }
    }
}

/// The whole state.
pub struct App {
    epochs: Vec<String>,
    pub places: Vec<Place>,
    pub domain: Domain,
    pub filter: String,
    /// Whether the user is typing a filter.
    pub is_typing: bool,
    pub has_help: bool,
    /// Whether the epochs recorded dimensions.
    has_dimensions: bool,
    pub is_paused: bool,
    pub is_over: bool,
    /// Number of answers that arrived so far.
    pub answers: u64,
    /// Number of rows or lines that fit on the screen, set by the drawing code.
    pub page: usize,
    /// Number of lines in the listing, set by the drawing code.
    pub lines: usize,
    is_asked: bool,
}

/// Kinds of rows that Tab cycles through. Dimensions are included only if the program started with one, since most epochs do
/// not record them.
const KINDS: [TopBy; 8] = [
    TopBy::Image,
    TopBy::Procedure,
    TopBy::Line,
    TopBy::App,
    TopBy::Instance,
    TopBy::Dimension(Dimension::Thread),
    TopBy::Dimension(Dimension::Cpu),
    TopBy::Dimension(Dimension::Cgroup),
];
const KINDS_WITHOUT_DIMENSIONS: usize = 5;

/// Returns the name of a kind of rows.
pub fn kind(by: TopBy) -> &'static str {
    match by {
        TopBy::Image => "images",
        TopBy::Procedure => "procedures",
        TopBy::Line => "lines",
        TopBy::App => "applications",
        TopBy::Instance => "instances",
        TopBy::Dimension(Dimension::Thread) => "threads",
        TopBy::Dimension(Dimension::Cpu) => "CPUs",
        TopBy::Dimension(Dimension::Cgroup) => "control groups",
        TopBy::Data => "data",
    }
}

impl App {
    pub fn new(epochs: Vec<String>, image: Option<String>, by: Option<By>, domain: Domain) -> App {
        let by = by.map_or(TopBy::Image, crate::top::by);
        let title = image.clone().unwrap_or_default();
        App {
            epochs,
            places: vec![Place::new(Question::Rows { by, image }, title)],
            domain,
            filter: String::new(),
            is_typing: false,
            has_help: false,
            has_dimensions: matches!(by, TopBy::Dimension(_)),
            is_paused: false,
            is_over: false,
            answers: 0,
            page: 1,
            lines: 0,
            is_asked: false,
        }
    }

    pub fn place(&self) -> &Place {
        self.places.last().expect("there is always a first place")
    }

    fn place_mut(&mut self) -> &mut Place {
        self.places.last_mut().expect("there is always a first place")
    }

    /// Records that the database has new samples, so that the current request is repeated.
    pub fn has_grown(&mut self, grown: bool) {
        self.is_asked &= !grown || self.is_paused;
    }

    /// Returns the request to send now, if there is one. Each request is returned once.
    pub fn take_question(&mut self) -> Option<Asked> {
        if std::mem::replace(&mut self.is_asked, true) {
            return None;
        }
        Some(Asked {
            epochs: self.epochs.clone(),
            domain: self.domain,
            question: self.place().question.clone(),
        })
    }

    /// Accepts an answer. An answer to a request that is no longer current is dropped.
    pub fn take(&mut self, asked: &Asked, known: Result<Known, String>) {
        if self.place().question != asked.question || self.domain != asked.domain {
            return;
        }
        let place = self.place_mut();
        match known {
            Ok(known) => (place.known, place.problem) = (Some(known), None),
            Err(problem) => place.problem = Some(problem),
        }
        self.answers += 1;
        self.keep_selected();
    }

    /// Returns the rows that are shown.
    pub fn rows(&self) -> Vec<&TopRow> {
        let Some(Known::Rows { top, .. }) = &self.place().known else { return Vec::new() };
        let wanted = self.filter.to_lowercase();
        let named = |r: &&TopRow| wanted.is_empty() || row_name(r).to_lowercase().contains(&wanted);
        top.rows.iter().filter(|r| is_of(self.domain, r)).filter(named).collect()
    }

    pub fn press(&mut self, key: KeyEvent) {
        if key.modifiers.contains(KeyModifiers::CONTROL) && matches!(key.code, KeyCode::Char('c')) {
            self.is_over = true;
        } else if self.is_typing {
            self.press_typing(key.code);
        } else if std::mem::take(&mut self.has_help) {
            self.is_over = key.code == KeyCode::Char('q'); // Any other key only closes the help.
        } else {
            self.press_moving(key.code);
        }
        self.keep_selected();
    }

    fn press_typing(&mut self, key: KeyCode) {
        match key {
            KeyCode::Enter => self.is_typing = false,
            KeyCode::Esc => (self.is_typing, self.filter) = (false, String::new()),
            KeyCode::Backspace => drop(self.filter.pop()),
            KeyCode::Char(c) => self.filter.push(c),
            _ => {}
        }
    }

    fn press_moving(&mut self, key: KeyCode) {
        let page = self.page.max(1);
        match key {
            KeyCode::Char('q') => self.is_over = true,
            KeyCode::Char('?' | 'h') => self.has_help = true,
            KeyCode::Char('p') => self.is_paused = !self.is_paused,
            KeyCode::Char('/') => self.is_typing = self.place().by().is_some(),
            KeyCode::Char('u') => (self.domain, self.is_asked) = (next_domain(self.domain), false),
            KeyCode::Up | KeyCode::Char('k') => self.move_by(-1),
            KeyCode::Down | KeyCode::Char('j') => self.move_by(1),
            KeyCode::PageUp => self.move_by(-(page as isize)),
            KeyCode::PageDown | KeyCode::Char(' ') => self.move_by(page as isize),
            KeyCode::Home | KeyCode::Char('g') => self.place_mut().selected = 0,
            KeyCode::End | KeyCode::Char('G') => self.place_mut().selected = usize::MAX,
            KeyCode::Tab => self.turn(1),
            KeyCode::BackTab => self.turn(self.kinds().len() - 1),
            KeyCode::Enter | KeyCode::Right | KeyCode::Char('l') => self.enter(),
            KeyCode::Char('c') => self.enter_callers(),
            KeyCode::Esc | KeyCode::Left | KeyCode::Backspace => self.leave(),
            _ => {}
        }
    }

    fn move_by(&mut self, rows: isize) {
        let place = self.place_mut();
        place.selected = place.selected.saturating_add_signed(rows);
    }

    fn kinds(&self) -> &'static [TopBy] {
        if self.has_dimensions { &KINDS } else { &KINDS[..KINDS_WITHOUT_DIMENSIONS] }
    }

    /// Switches the current place to another kind of rows.
    fn turn(&mut self, by: usize) {
        let Question::Rows { by: now, image } = &self.place().question else { return };
        let (kinds, now) = (self.kinds(), *now);
        let at = kinds.iter().position(|k| *k == now).unwrap_or(0);
        let question = Question::Rows { by: kinds[(at + by) % kinds.len()], image: image.clone() };
        let title = self.place().title.clone();
        *self.place_mut() = Place::new(question, title);
        self.is_asked = false;
    }

    /// Opens the selected row: from an image to its procedures, from a procedure to its listing.
    fn enter(&mut self) {
        if self.place().callers().is_some() {
            return self.enter_callers();
        }
        let rows = self.rows();
        let Some(row) = rows.get(self.place().selected) else { return };
        let next = match self.place().by() {
            Some(TopBy::Image) => row.build_id.clone().map(|id| {
                let title = file_name(row.image.as_deref().unwrap_or_default()).to_owned();
                (Question::Rows { by: TopBy::Procedure, image: Some(id) }, title)
            }),
            Some(TopBy::Procedure) => row
                .id
                .clone()
                .map(|id| (Question::Listing { procedure: id }, row.demangled.clone().unwrap_or_default())),
            _ => None,
        };
        if let Some((question, title)) = next {
            self.go_to(question, title);
        }
    }

    /// Opens the callers of the selected function, or of the selected caller.
    fn enter_callers(&mut self) {
        let place = self.place();
        let next = match (&place.question, place.callers()) {
            (Question::Rows { by: TopBy::Procedure, .. }, _) => {
                self.rows().get(place.selected).and_then(|row| callers_of(row))
            }
            (Question::Callers { function, through }, Some(callers)) => {
                callers.rows.get(place.selected).and_then(|row| further_callers(function, through, row))
            }
            _ => None,
        };
        if let Some((question, title)) = next {
            self.go_to(question, title);
        }
    }

    fn go_to(&mut self, question: Question, title: String) {
        self.places.push(Place::new(question, title));
        self.filter.clear();
        self.is_asked = false;
    }

    fn leave(&mut self) {
        if self.places.len() > 1 {
            self.places.pop();
            self.is_asked = false; // The recording may have grown meanwhile.
        } else {
            self.filter.clear();
        }
    }

    fn keep_selected(&mut self) {
        let last = match (self.place().by(), self.place().callers()) {
            (Some(_), _) => self.rows().len().saturating_sub(1),
            (None, Some(callers)) => callers.rows.len().saturating_sub(1),
            (None, None) => self.lines.saturating_sub(self.page.max(1)),
        };
        let is_known = self.place().known.is_some();
        let place = self.place_mut();
        if is_known {
            place.selected = place.selected.min(last);
        }
    }
}

/// Returns the request for the callers of a procedure's row, with the procedure's name.
fn callers_of(row: &TopRow) -> Option<(Question, String)> {
    let name = row.demangled.clone()?;
    let function = format!("{}:{name}", file_name(row.image.as_deref()?));
    Some((Question::Callers { function, through: Vec::new() }, name))
}

/// Returns the request for the callers of a caller, with its name; `None` if they are not known.
fn further_callers(function: &str, through: &[CallStep], row: &CallersRow) -> Option<(Question, String)> {
    let CallersRow { function: name, image, inlined, .. } = row;
    if name == INCOMPLETE {
        return None;
    }
    let step = CallStep { function: name.clone(), image: image.clone(), inlined: *inlined };
    let through = through.iter().cloned().chain([step]).collect();
    Some((Question::Callers { function: function.to_owned(), through }, name.clone()))
}

fn next_domain(domain: Domain) -> Domain {
    match domain {
        Domain::All => Domain::User,
        Domain::User => Domain::Kernel,
        Domain::Kernel => Domain::All,
    }
}

/// Returns the name of a row, whatever kind it has.
pub fn row_name(row: &TopRow) -> String {
    let file = row.file.as_deref().zip(row.line).map(|(f, l)| format!("{f}:{l}"));
    let app = row.app.as_ref().map(|a| match row.instance {
        Some(n) if n > 0 => format!("{a} #{n}"),
        _ => a.clone(),
    });
    let image = row.image.as_deref().unwrap_or_default();
    match &row.demangled {
        Some(name) => format!("{name}  {}", file_name(image)),
        None => {
            let dimension = Some(dimension(row)).filter(|name| !name.is_empty());
            file.or(app).or(dimension).or(row.data.clone()).unwrap_or_else(|| image.to_owned())
        }
    }
}

pub fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}
