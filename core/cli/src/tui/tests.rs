//! Tests pictures of the terminal after keys, drawn on ratatui's test backend. The answers are constructed here.

use std::collections::BTreeMap;

use dwell_query::{
    CallStep, Domain, TopBy,
    answer::{CallSite, Callers, CallersRow, EpochSummary, EventSummary, Top, TopRow},
};
use expect_test::{Expect, expect};
use ratatui::{
    Terminal,
    backend::TestBackend,
    crossterm::event::{KeyCode, KeyEvent, KeyModifiers},
};

use super::{
    app::{App, Asked, Known, Question},
    draw,
};

fn counts(samples: u64) -> BTreeMap<String, u64> {
    BTreeMap::from([("cpu-clock".to_owned(), samples)])
}

fn epoch() -> EpochSummary {
    let event = EventSummary {
        period: 1_000_000,
        unit: "ns".into(),
        samples: 1000,
        lost: 3,
        throttled: 0,
        unknown: 0,
        running_share: None,
    };
    EpochSummary {
        id: "e1".into(),
        name: Some("daily".into()),
        start: String::new(),
        end: None,
        host: String::new(),
        cpu: String::new(),
        backend: "bpf".into(),
        scope: "system".into(),
        events: BTreeMap::from([("cpu-clock".to_owned(), event)]),
        notes: Vec::new(),
    }
}

fn row(name: &str, image: &str, build_id: &str, samples: u64, by: TopBy) -> TopRow {
    TopRow {
        id: Some(format!("{image}:{name}")),
        demangled: (by == TopBy::Procedure).then(|| name.to_owned()),
        image: Some(image.to_owned()),
        build_id: Some(build_id.to_owned()),
        samples: counts(samples),
        share: samples as f64 / 1000.0,
        cycles: Some(samples as f64 * 2e6),
        cpi: Some(1.5),
        ..TopRow::default()
    }
}

fn rows(by: TopBy) -> Vec<TopRow> {
    match by {
        TopBy::Image => vec![
            row("", "/usr/bin/prog", "aa", 700, by),
            row("", "[kernel]", "kernel", 250, by),
            row("", "/lib/libc.so.6", "cc", 50, by),
        ],
        _ => vec![
            row("hot", "/usr/bin/prog", "aa", 600, by),
            row("cold\u{1b}[2J", "/usr/bin/prog", "aa", 100, by),
        ],
    }
}

/// `parse` and `load` call the function, `main` calls `parse`, and nobody calls `main`.
fn callers(function: &str, through: &[CallStep]) -> Callers {
    let row = |function: &str, samples: u64, line: u32| CallersRow {
        function: function.to_owned(),
        image: "prog".to_owned(),
        inlined: function == "load",
        begins: None,
        samples,
        share: samples as f64 / 40.0,
        sites: [line, line + 2].map(|line| CallSite { file: "/src/a.c".to_owned(), line, samples }).to_vec(),
        rows: Vec::new(),
    };
    let rows = match through {
        [] => vec![row("parse", 30, 7), row("load", 9, 20), row("[incomplete]", 1, 0)],
        [step] if step.function == "parse" => vec![row("main", 30, 33)],
        _ => Vec::new(),
    };
    Callers {
        schema: 1,
        epochs: vec!["e1".into()],
        event: "cpu-clock".into(),
        function: function.split(':').next_back().unwrap_or_default().to_owned(),
        image: "prog".into(),
        begins: None,
        samples: 40,
        own: 40,
        total: 200,
        rows,
        incomplete: Vec::new(),
        notes: Vec::new(),
    }
}

/// An application whose requests are answered at once.
struct Run {
    app: App,
    terminal: Terminal<TestBackend>,
    asked: Vec<Question>,
}

impl Run {
    fn new(width: u16, height: u16) -> Run {
        let app = App::new(vec!["latest".into()], None, None, Domain::All);
        let mut run =
            Run { app, terminal: Terminal::new(TestBackend::new(width, height)).unwrap(), asked: Vec::new() };
        run.answer();
        run
    }

    fn answer(&mut self) {
        while let Some(asked) = self.app.take_question() {
            self.asked.push(asked.question.clone());
            let known = match &asked.question {
                Question::Rows { by, image } => {
                    let domains = if image.is_none() { (0.75, 0.25) } else { (0.7, 0.0) };
                    let top = Top {
                        schema: 1,
                        epochs: vec!["e1".into()],
                        total: counts(1000),
                        rows: rows(*by),
                        omitted_rows: 0,
                        notes: Vec::new(),
                    };
                    Ok(Known::Rows { top: Box::new(top), epochs: vec![epoch()], domains })
                }
                Question::Callers { function, through } => {
                    Ok(Known::Callers(Box::new(callers(function, through))))
                }
                Question::Listing { .. } => Err("hot: no instructions can be read".to_owned()),
            };
            self.app.take(&asked, known);
        }
    }

    fn press(&mut self, keys: &[KeyCode]) {
        for key in keys {
            self.app.press(KeyEvent::new(*key, KeyModifiers::NONE));
            self.answer();
        }
    }

    fn check(&mut self, expected: Expect) {
        self.terminal.draw(|frame| draw::draw(&mut self.app, frame)).unwrap();
        expected.assert_eq(&self.terminal.backend().to_string());
    }
}

#[test]
fn keys_open_images_procedures_and_listings_and_lead_back() {
    let mut run = Run::new(80, 8);
    run.check(expect![[r#"
        " dwell top  daily  live  1,000 samples of cpu-clock, 3 lost                     "
        " images   user 75.0%  kernel 25.0%                                              "
        "            share     samples   cycles    CPI images                            "
        "████████   70.00%         700   1.40 G   1.50 /usr/bin/prog                     "
        "██▉        25.00%         250    500 M   1.50 [kernel]  kernel                  "
        "▋           5.00%          50    100 M   1.50 /lib/libc.so.6                    "
        "                                                                                "
        " ↑↓ move  Enter open  Esc back  Tab rows  u kernel  / filter  ? help  q quit  p "
    "#]]);
    run.press(&[KeyCode::Enter]);
    run.check(expect![[r#"
        " dwell top  daily  live  1,000 samples of cpu-clock, 3 lost                     "
        " images › procedures of prog   user 70.0%  kernel 0.0%                          "
        "            share     samples   cycles    CPI procedures                        "
        "████████   60.00%         600   1.20 G   1.50 hot  prog                         "
        "█▍         10.00%         100    200 M   1.50 cold[2J  prog                     "
        "                                                                                "
        "                                                                                "
        " ↑↓ move  Enter open  c callers  Esc back  Tab rows  u kernel  / filter  ? help "
    "#]]);
    run.press(&[KeyCode::Enter]);
    assert!(
        matches!(run.asked.last(), Some(Question::Listing { procedure }) if procedure == "/usr/bin/prog:hot")
    );
    run.check(expect![[r#"
        " dwell top  daily  live  1,000 samples of cpu-clock, 3 lost                     "
        " images › procedures of prog › listing of hot                                   "
        "                                                                                "
        "                        hot: no instructions can be read                        "
        "                                                                                "
        "                                                                                "
        "                                                                                "
        " ↑↓ scroll  Esc back  p pause  ? help  q quit                                   "
    "#]]);
    run.press(&[KeyCode::Esc, KeyCode::Esc]);
    assert_eq!(run.app.places.len(), 1);
}

#[test]
fn a_key_shows_callers_and_theirs_and_leads_back() {
    let mut run = Run::new(80, 8);
    run.press(&[KeyCode::Char('c')]);
    assert_eq!(run.app.places.len(), 1, "an image has no callers");
    run.press(&[KeyCode::Enter, KeyCode::Char('c')]);
    run.check(expect![[r#"
        " dwell top  daily  live  1,000 samples of cpu-clock, 3 lost                     "
        " images › procedures of prog › callers of hot                                   "
        " share of the 40 samples of hot, of 200 with a call stack                       "
        "            share     samples called from                       at              "
        "████████   75.00%          30 parse  prog                       a.c:7 +1        "
        "██▍        22.50%           9 load  prog  inlined               a.c:20 +1       "
        "▎           2.50%           1 [incomplete]  prog                a.c:0 +1        "
        " ↑↓ move  Enter its callers  Esc back  p pause  ? help  q quit                  "
    "#]]);
    run.press(&[KeyCode::Enter]);
    run.check(expect![[r#"
        " dwell top  daily  live  1,000 samples of cpu-clock, 3 lost                     "
        " images › procedures of prog › callers of hot › callers of parse                "
        " share of the 40 samples of hot, of 200 with a call stack                       "
        "            share     samples called from                       at              "
        "████████   75.00%          30 main  prog                        a.c:33 +1       "
        "                                                                                "
        "                                                                                "
        " ↑↓ move  Enter its callers  Esc back  p pause  ? help  q quit                  "
    "#]]);
    run.press(&[KeyCode::Char('c')]);
    run.check(expect![[r#"
        " dwell top  daily  live  1,000 samples of cpu-clock, 3 lost                     "
        " images › procedures of prog › callers of hot › callers of parse › callers of ma"
        " share of the 40 samples of hot, of 200 with a call stack                       "
        "            share     samples called from                       at              "
        "                        no caller: the stacks begin here                        "
        "                                                                                "
        "                                                                                "
        " ↑↓ move  Enter its callers  Esc back  p pause  ? help  q quit                  "
    "#]]);
    run.press(&[KeyCode::Esc, KeyCode::Esc, KeyCode::End, KeyCode::Enter]);
    assert_eq!(run.app.places.len(), 3, "the callers of an incomplete stack are not known");
    run.press(&[KeyCode::Esc, KeyCode::Esc]);
    assert_eq!(run.app.places.len(), 1);
}

#[test]
fn rows_are_filtered_by_mode_and_by_name() {
    let mut run = Run::new(80, 8);
    run.press(&[KeyCode::Char('u'), KeyCode::Char('u')]);
    assert_eq!(run.app.rows().len(), 1);
    run.check(expect![[r#"
        " dwell top  daily  live  1,000 samples of cpu-clock, 3 lost                     "
        " images   user 75.0%  kernel 25.0%   kernel only                                "
        "            share     samples   cycles    CPI images                            "
        "████████   25.00%         250    500 M   1.50 [kernel]  kernel                  "
        "                                                                                "
        "                                                                                "
        "                                                                                "
        " ↑↓ move  Enter open  Esc back  Tab rows  u kernel  / filter  ? help  q quit  p "
    "#]]);
    run.press(&[
        KeyCode::Char('u'),
        KeyCode::Char('/'),
        KeyCode::Char('L'),
        KeyCode::Char('I'),
        KeyCode::Char('B'),
    ]);
    assert_eq!(run.app.rows().len(), 1, "a filter knows no case");
    run.press(&[KeyCode::Esc]);
    assert_eq!(run.app.rows().len(), 3);
}

#[test]
fn a_growing_recording_is_refreshed_unless_paused() {
    let mut run = Run::new(80, 8);
    run.press(&[KeyCode::Tab]);
    let asked = run.asked.len();
    run.app.has_grown(false);
    run.answer();
    assert_eq!(run.asked.len(), asked);
    run.app.has_grown(true);
    run.answer();
    assert_eq!(run.asked.len(), asked + 1);
    run.press(&[KeyCode::Char('p')]);
    run.app.has_grown(true);
    run.answer();
    assert_eq!(run.asked.len(), asked + 1);
}

#[test]
fn an_answer_that_comes_too_late_is_dropped() {
    let mut run = Run::new(80, 8);
    let question = Question::Listing { procedure: "x".into() };
    let late = Asked { epochs: vec!["latest".into()], domain: Domain::All, question };
    run.app.take(&late, Err("no".into()));
    assert!(run.app.place().problem.is_none());
}

#[test]
fn small_and_large_terminals_draw_all_that_fits() {
    for (width, height) in [(1, 1), (20, 3), (80, 24), (300, 100)] {
        let mut run = Run::new(width, height);
        run.press(&[KeyCode::Char('?')]);
        run.terminal.draw(|frame| draw::draw(&mut run.app, frame)).unwrap();
        run.press(&[KeyCode::Char('x'), KeyCode::End, KeyCode::PageUp]);
        run.terminal.backend_mut().resize(height.max(2), width.max(2));
        run.terminal.draw(|frame| draw::draw(&mut run.app, frame)).unwrap();
        assert!(!run.app.is_over);
        run.press(&[KeyCode::Char('q')]);
        assert!(run.app.is_over);
    }
}
