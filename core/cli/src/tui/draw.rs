//! Draws the state: a heading, a table or a listing, and a line of keys.

use dwell_query::{
    Domain, TopBy,
    answer::{Callers, CallersRow, EpochSummary, Top, TopRow},
};
use ratatui::{
    Frame,
    layout::{Alignment, Constraint, Layout, Rect},
    style::{Color, Modifier, Style},
    text::{Line, Span},
    widgets::{
        Block, Cell, Clear, Paragraph, Row, Scrollbar, ScrollbarOrientation, ScrollbarState, Table,
        TableState,
    },
};

use super::{
    ansi,
    app::{App, Known, Question, file_name, kind, row_name},
};
use crate::{
    annotate,
    text::{cycles_each, grouped, si_or_dash},
    top::is_kernel,
};

const QUIET: Style = Style::new().add_modifier(Modifier::DIM);
const STRONG: Style = Style::new().add_modifier(Modifier::BOLD);
const SELECTED: Style = Style::new().add_modifier(Modifier::REVERSED);
const KEY: Style = Style::new().fg(Color::Cyan).add_modifier(Modifier::BOLD);
const BAR: &str = "▏▎▍▌▋▊▉█";

/// Draws the whole screen.
pub fn draw(app: &mut App, frame: &mut Frame) {
    let [head, path, body, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Min(1),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(Paragraph::new(heading(app)), head);
    frame.render_widget(Paragraph::new(crumbs(app)), path);
    match (&app.place().problem, &app.place().known) {
        (Some(problem), _) => say(frame, body, problem),
        (None, None) => say(frame, body, "reading …"),
        (None, Some(Known::Rows { .. })) => table(app, frame, body),
        (None, Some(Known::Listing(_))) => listing(app, frame, body),
        (None, Some(Known::Callers(_))) => callers(app, frame, body),
    }
    frame.render_widget(Paragraph::new(keys(app)), foot);
    if app.has_help {
        help(frame);
    }
}

fn say(frame: &mut Frame, area: Rect, text: &str) {
    let [_, middle, _] =
        Layout::vertical([Constraint::Fill(1), Constraint::Length(3), Constraint::Fill(1)]).areas(area);
    let text = Paragraph::new(text.to_owned()).alignment(Alignment::Center);
    frame.render_widget(text.wrap(ratatui::widgets::Wrap { trim: true }), middle);
}

/// Returns the heading: what was sampled, and the shares of user mode and kernel.
fn heading(app: &App) -> Line<'static> {
    let mut spans =
        vec![Span::styled(" dwell top ", STRONG.fg(Color::Black).bg(Color::Cyan)), Span::raw(" ")];
    let rows = app.places.iter().rev().find_map(|p| match &p.known {
        Some(Known::Rows { top, epochs, .. }) => Some((top, epochs)),
        _ => None,
    });
    if let Some((top, epochs)) = rows {
        spans.extend(told(top, epochs));
    }
    let live = if app.is_paused { Span::styled("  paused", STRONG.fg(Color::Yellow)) } else { Span::raw("") };
    spans.push(live);
    Line::from(spans)
}

fn told(top: &Top, epochs: &[EpochSummary]) -> Vec<Span<'static>> {
    let name =
        epochs.iter().map(|e| e.name.clone().unwrap_or_else(|| e.id.clone())).collect::<Vec<_>>().join("+");
    let (event, samples) = top.primary().unwrap_or_default();
    let state = if epochs.iter().any(|e| e.end.is_none()) { "live" } else { "ended" };
    let mut spans = vec![
        Span::styled(name, STRONG),
        Span::styled(format!("  {state}  "), if state == "live" { STRONG.fg(Color::Green) } else { QUIET }),
        Span::raw(format!("{} samples of {event}", grouped(samples))),
    ];
    let lost: u64 = epochs.iter().flat_map(|e| e.events.values()).map(|e| e.lost).sum();
    if lost > 0 {
        spans.push(Span::styled(format!(", {} lost", grouped(lost)), STRONG.fg(Color::Red)));
    }
    spans
}

/// Returns the path to the current place, and the kind of its rows.
fn crumbs(app: &App) -> Line<'static> {
    let mut spans = vec![Span::raw(" ")];
    for (n, place) in app.places.iter().enumerate() {
        let is_last = n + 1 == app.places.len();
        let what = match place.question {
            Question::Rows { by, .. } => kind(by),
            Question::Listing { .. } => "listing",
            Question::Callers { .. } => "callers",
        };
        let of = if place.title.is_empty() { String::new() } else { format!(" of {}", place.title) };
        spans.push(Span::styled(format!("{what}{of}"), if is_last { STRONG } else { QUIET }));
        if !is_last {
            spans.push(Span::styled(" › ", QUIET));
        }
    }
    if app.place().by().is_some() {
        spans.push(Span::styled(domain_told(app), Style::new().fg(Color::Cyan)));
    }
    if app.is_typing || !app.filter.is_empty() {
        let cursor = if app.is_typing { "▏" } else { "" };
        spans.push(Span::styled(format!("   /{}{cursor}", app.filter), STRONG.fg(Color::Yellow)));
    }
    Line::from(spans)
}

/// Describes the shares of user mode and kernel, and which of them is shown.
fn domain_told(app: &App) -> String {
    let Some(Known::Rows { domains: (user, kernel), .. }) = &app.place().known else { return String::new() };
    let which = match app.domain {
        Domain::All => "",
        Domain::User => "   user only",
        Domain::Kernel => "   kernel only",
    };
    format!("   user {:.1}%  kernel {:.1}%{which}", 100.0 * user, 100.0 * kernel)
}

fn table(app: &mut App, frame: &mut Frame, area: Rect) {
    let Some(by) = app.place().by() else { return };
    app.page = usize::from(area.height.saturating_sub(2)).max(1);
    let (selected, offset) = (app.place().selected, app.place().offset);
    let bar = if area.width >= 100 { 16 } else { 8 };
    let shown = app.rows();
    let most = shown.iter().map(|r| r.share).fold(1e-9, f64::max);
    let primary = match &app.place().known {
        Some(Known::Rows { top, .. }) => top.primary().map(|(event, _)| event),
        _ => None,
    };
    let rows: Vec<Row> = shown.iter().map(|r| row(r, primary, by, most, bar)).collect();
    let count = rows.len();
    let head =
        Row::new(["", "share", "samples", "cycles", "CPI", kind(by)].map(|t| Cell::from(right(t, by))))
            .style(STRONG);
    let widths = [
        Constraint::Length(bar as u16 + 1),
        Constraint::Length(7),
        Constraint::Length(11),
        Constraint::Length(8),
        Constraint::Length(6),
        Constraint::Fill(1),
    ];
    let mut state =
        TableState::new().with_selected(selected.min(count.saturating_sub(1))).with_offset(offset);
    let table = Table::new(rows, widths).header(head.bottom_margin(0)).row_highlight_style(SELECTED);
    frame.render_stateful_widget(table, area, &mut state);
    let place = app.places.last_mut().expect("there is always a first place");
    place.offset = state.offset();
    scrollbar(frame, area, count, selected);
    if count == 0 {
        say(frame, area, "no row matches the filter");
    }
}

/// Returns the title of a numeric column, aligned to the last digit of the numbers.
fn right(title: &str, by: TopBy) -> Line<'static> {
    let line = Line::from(title.to_owned());
    if title == kind(by) { line } else { line.alignment(Alignment::Right) }
}

fn row<'a>(row: &TopRow, primary: Option<&str>, by: TopBy, most: f64, bar_width: usize) -> Row<'a> {
    let samples = primary.and_then(|event| row.samples.get(event)).copied().unwrap_or(0);
    let number = |text: String| Cell::from(Line::from(text).alignment(Alignment::Right));
    let name = match (by, is_kernel(row)) {
        (TopBy::Procedure | TopBy::Image, true) => Line::from(vec![
            Span::raw(row_name(row)),
            Span::styled("  kernel", Style::new().fg(Color::Magenta)),
        ]),
        _ => Line::from(row_name(row)),
    };
    let colour = if is_kernel(row) { Color::Magenta } else { Color::Cyan };
    Row::new([
        Cell::from(Span::styled(bar(row.share / most, bar_width), Style::new().fg(colour))),
        number(format!("{:.2}%", 100.0 * row.share)).style(heat(row.share)),
        number(grouped(samples)),
        number(si_or_dash(row.cycles)),
        number(cycles_each(row.cpi, row.cpi_min)),
        Cell::from(name),
    ])
}

/// Draws a bar in steps of an eighth of a column.
fn bar(part: f64, width: usize) -> String {
    let eighths = (part.clamp(0.0, 1.0) * width as f64 * 8.0).round() as usize;
    let last = (eighths % 8).checked_sub(1).and_then(|n| BAR.chars().nth(n));
    "█".repeat(eighths / 8).chars().chain(last).collect()
}

/// Draws the callers of a function, and what their samples are a share of.
fn callers(app: &mut App, frame: &mut Frame, area: Rect) {
    let [head, body] = Layout::vertical([Constraint::Length(1), Constraint::Min(1)]).areas(area);
    app.page = usize::from(body.height.saturating_sub(1)).max(1);
    let place = app.places.last_mut().expect("there is always a first place");
    let Some(Known::Callers(callers)) = &place.known else { return };
    frame.render_widget(Paragraph::new(Line::styled(callers_heading(callers), QUIET)), head);
    let bar_width = if area.width >= 100 { 16 } else { 8 };
    let most = callers.rows.iter().map(|row| row.share).fold(1e-9, f64::max);
    let rows: Vec<Row> = callers.rows.iter().map(|row| caller(row, most, bar_width)).collect();
    let count = rows.len();
    let number = |title: &'static str| Cell::from(Line::from(title).alignment(Alignment::Right));
    let titles =
        [number(""), number("share"), number("samples"), Cell::from("called from"), Cell::from("at")];
    let widths = [
        Constraint::Length(bar_width as u16 + 1),
        Constraint::Length(7),
        Constraint::Length(11),
        Constraint::Fill(2),
        Constraint::Fill(1),
    ];
    let selected = place.selected.min(count.saturating_sub(1));
    let mut state = TableState::new().with_selected(selected).with_offset(place.offset);
    let table = Table::new(rows, widths).header(Row::new(titles).style(STRONG)).row_highlight_style(SELECTED);
    frame.render_stateful_widget(table, body, &mut state);
    place.offset = state.offset();
    scrollbar(frame, body, count, selected);
    if count == 0 {
        say(frame, body, "no caller: the stacks begin here");
    }
}

/// Describes what the shares of callers are parts of, and how many stacks are incomplete.
fn callers_heading(callers: &Callers) -> String {
    let incomplete: u64 = callers.incomplete.iter().map(|row| row.samples).sum();
    let incomplete = match incomplete {
        0 => String::new(),
        n => format!("; {} of all stacks are incomplete", grouped(n)),
    };
    let (samples, total) = (grouped(callers.samples), grouped(callers.total));
    format!(
        " share of the {samples} samples of {}, of {total} with a call stack{incomplete}",
        callers.function
    )
}

fn caller<'a>(row: &CallersRow, most: f64, bar_width: usize) -> Row<'a> {
    let number = |text: String| Cell::from(Line::from(text).alignment(Alignment::Right));
    let inlined = if row.inlined { "  inlined" } else { "" };
    let name = vec![
        Span::raw(format!("{}  {}", row.function, row.image)),
        Span::styled(inlined, Style::new().fg(Color::Magenta)),
    ];
    let site = row.sites.first().map_or(String::new(), |site| {
        let more = if row.sites.len() > 1 { format!(" +{}", row.sites.len() - 1) } else { String::new() };
        format!("{}:{}{more}", file_name(&site.file), site.line)
    });
    Row::new([
        Cell::from(Span::styled(bar(row.share / most, bar_width), Style::new().fg(Color::Cyan))),
        number(format!("{:.2}%", 100.0 * row.share)).style(heat(row.share)),
        number(grouped(row.samples)),
        Cell::from(Line::from(name)),
        Cell::from(site),
    ])
}

fn heat(share: f64) -> Style {
    match share {
        s if s >= 0.1 => Style::new().fg(Color::Red),
        s if s >= 0.01 => Style::new().fg(Color::Yellow),
        _ => Style::new(),
    }
}

fn listing(app: &mut App, frame: &mut Frame, area: Rect) {
    let place = app.places.last_mut().expect("there is always a first place");
    let Some(Known::Listing(listing)) = &place.known else { return };
    let view = annotate::View { width: usize::from(area.width) - 1, source: true, full: false, raw: false };
    let lines = ansi::lines(&annotate::render(listing, &view));
    app.page = usize::from(area.height).max(1);
    app.lines = lines.len();
    let last = lines.len().saturating_sub(app.page);
    place.selected = place.selected.min(last);
    let (count, first) = (lines.len(), place.selected);
    let shown: Vec<Line> = lines.into_iter().skip(first).take(app.page).collect();
    frame.render_widget(Paragraph::new(shown), area);
    scrollbar(frame, area, count, first);
}

fn scrollbar(frame: &mut Frame, area: Rect, count: usize, at: usize) {
    if count > usize::from(area.height) {
        let mut state = ScrollbarState::new(count).position(at);
        let bar = Scrollbar::new(ScrollbarOrientation::VerticalRight).begin_symbol(None).end_symbol(None);
        frame.render_stateful_widget(bar.style(QUIET), area, &mut state);
    }
}

/// Returns the line of keys, as many as fit.
fn keys(app: &App) -> Line<'static> {
    let all: &[(&str, &str)] = match (app.is_typing, &app.place().question) {
        (true, _) => &[("Enter", "keep"), ("Esc", "drop")],
        (_, Question::Rows { by: TopBy::Procedure, .. }) => &[
            ("↑↓", "move"),
            ("Enter", "open"),
            ("c", "callers"),
            ("Esc", "back"),
            ("Tab", "rows"),
            ("u", "kernel"),
            ("/", "filter"),
            ("?", "help"),
            ("q", "quit"),
            ("p", "pause"),
        ],
        (_, Question::Callers { .. }) => &[
            ("↑↓", "move"),
            ("Enter", "its callers"),
            ("Esc", "back"),
            ("p", "pause"),
            ("?", "help"),
            ("q", "quit"),
        ],
        (_, Question::Rows { .. }) => &[
            ("↑↓", "move"),
            ("Enter", "open"),
            ("Esc", "back"),
            ("Tab", "rows"),
            ("u", "kernel"),
            ("/", "filter"),
            ("?", "help"),
            ("q", "quit"),
            ("p", "pause"),
        ],
        (_, Question::Listing { .. }) => {
            &[("↑↓", "scroll"), ("Esc", "back"), ("p", "pause"), ("?", "help"), ("q", "quit")]
        }
    };
    let mut spans = Vec::new();
    for (key, does) in all {
        spans.push(Span::styled(format!(" {key}"), KEY));
        spans.push(Span::styled(format!(" {does} "), QUIET));
    }
    Line::from(spans)
}

const HELP: [(&str, &str); 10] = [
    ("↑ ↓ j k", "move by a row; PgUp PgDn: a page; Home End g G: to an end"),
    ("Enter → l", "show an image's procedures or a procedure's listing"),
    ("c", "show who calls the function of the row; Enter: who calls that caller"),
    ("Esc ←", "back to where you came from"),
    ("Tab", "switch rows: images, procedures, lines, applications, instances"),
    ("u", "switch between all, user only and kernel only"),
    ("/", "show only rows whose name contains the text you type"),
    ("p", "pause the refresh"),
    ("?", "this help"),
    ("q Ctrl-C", "quit"),
];

fn help(frame: &mut Frame) {
    let area = frame.area();
    let (width, height) = (area.width.min(74), area.height.min(HELP.len() as u16 + 5));
    let middle =
        Rect { x: area.x + (area.width - width) / 2, y: area.y + (area.height - height) / 2, width, height };
    let mut lines: Vec<Line> = HELP
        .iter()
        .map(|(key, does)| Line::from(vec![Span::styled(format!(" {key:<11}"), KEY), Span::raw(*does)]))
        .collect();
    lines.push(Line::from(""));
    lines.push(Line::styled(" A recording that is still running is read again when it has grown;", QUIET));
    lines.push(Line::styled(" a daemon is asked every 2 seconds to store its counts.", QUIET));
    frame.render_widget(Clear, middle);
    frame.render_widget(Paragraph::new(lines).block(Block::bordered().title(" keys ")), middle);
}
