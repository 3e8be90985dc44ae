//! Compares the machine models' figures with LLVM's scheduling models. Enters: `core/analysis/machines/*.json`, each
//! class with an `example` instruction, and llvm-mca 19 where it is installed. Leaves: a line for each figure that is
//! said to come from llvm-mca and does not. Figures from elsewhere are printed, not checked.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, ensure};
use serde_json::Value;

const MCA: &str = "llvm-mca-19";
/// Prefix of the sources that this chore checks.
const CITATION: &str = "llvm-mca 19";
/// Cycles by which equal figures may differ, because llvm-mca rounds to hundredths.
const TOLERANCE: f64 = 0.011;

/// Figures that llvm-mca computes for an instruction.
#[derive(Clone, Copy, Debug)]
struct Answer {
    latency: f64,
    throughput: f64,
}

/// A figure of a machine model, beside that of llvm-mca.
struct Row {
    machine: String,
    class: String,
    figure: &'static str,
    ours: f64,
    theirs: f64,
    is_cited: bool,
}

impl Row {
    fn is_wrong(&self) -> bool {
        self.is_cited && (self.ours - self.theirs).abs() > TOLERANCE
    }
}

/// Prints every figure beside llvm-mca's, or only the wrong ones if `check_only` is set. Fails if a figure is wrong.
pub fn machines(root: &Path, check_only: bool) -> anyhow::Result<ExitCode> {
    if !is_installed() {
        eprintln!("SKIPPED machines: {MCA} is not installed (Debian: apt-get install llvm-19)");
        return Ok(ExitCode::SUCCESS);
    }
    let rows = compare(root)?;
    for row in rows.iter().filter(|row| !check_only || row.is_wrong()) {
        let mark = match (row.is_cited, row.is_wrong()) {
            (_, true) => "WRONG",
            (true, false) => "same",
            (false, _) => "other source",
        };
        let Row { machine, class, figure, ours, theirs, .. } = row;
        println!("{machine}\t{class}\t{figure}\t{ours}\t{MCA}: {theirs}\t{mark}");
    }
    let (cited, wrong) =
        (rows.iter().filter(|r| r.is_cited).count(), rows.iter().filter(|r| r.is_wrong()).count());
    println!("machines: {cited} figures from {CITATION} compared, {wrong} wrong");
    Ok(if wrong == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn is_installed() -> bool {
    Command::new(MCA).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
}

fn compare(root: &Path) -> anyhow::Result<Vec<Row>> {
    let folder = root.join("core/analysis/machines");
    let mut paths: Vec<_> = std::fs::read_dir(&folder)
        .with_context(|| folder.display().to_string())?
        .collect::<Result<Vec<_>, _>>()?
        .into_iter()
        .map(|entry| entry.path())
        .collect();
    paths.sort();
    let mut rows = Vec::new();
    for path in paths.iter().filter(|path| path.extension().is_some_and(|e| e == "json")) {
        let model: Value =
            serde_json::from_slice(&std::fs::read(path)?).with_context(|| path.display().to_string())?;
        rows.extend(rows_of(&model).with_context(|| path.display().to_string())?);
    }
    Ok(rows)
}

fn rows_of(model: &Value) -> anyhow::Result<Vec<Row>> {
    let Some(llvm) = model.get("llvm") else { return Ok(Vec::new()) };
    let classes = model["classes"].as_object().context("no classes")?;
    let examples: BTreeMap<&str, &str> = classes
        .iter()
        .filter_map(|(class, cost)| Some((class.as_str(), cost.get("example")?.as_str()?)))
        .collect();
    let (answers, width) = ask(llvm, examples.values().copied())?;
    let machine = model["name"].as_str().unwrap_or_default();
    let row = |class: &str, figure, ours, theirs, is_cited| Row {
        machine: machine.to_owned(),
        class: class.to_owned(),
        figure,
        ours,
        theirs,
        is_cited,
    };
    let of_model = |figure| cites_mca(model, &model["source"], figure);
    let mut rows =
        vec![row("-", "issue_width", number(&model["issue_width"]), width, of_model("issue_width"))];
    for (&class, answer) in examples.keys().zip(answers) {
        let cost = &classes[class];
        let source = cost.get("source").unwrap_or(&model["source"]);
        let cited = |figure| cites_mca(model, source, figure);
        rows.push(row(class, "latency", number(&cost["latency"]), answer.latency, cited("latency")));
        rows.push(row(class, "busy", throughput(model, cost), answer.throughput, cited("busy")));
    }
    Ok(rows)
}

/// Returns whether the source of a figure is llvm-mca. The source is looked up as `dwell_analysis::machine::Source`
/// does.
fn cites_mca(model: &Value, source: &Value, figure: &str) -> bool {
    let key = source.as_str().or_else(|| source.get(figure).or_else(|| source.get("*"))?.as_str());
    let citation = key.and_then(|key| model["sources"].get(key)?.as_str());
    citation.is_some_and(|text| text.starts_with(CITATION))
}

/// Returns the cycles between two such instructions if only units limit them.
fn throughput(model: &Value, cost: &Value) -> f64 {
    let count = |pool: &Value| pool.as_str().map(|name| number(&model["units"][name]));
    let unit = count(&cost["unit"]).map(|count| number(&cost["busy"]) / count);
    let slot = count(&cost["slot"]).map(|count| 1.0 / count);
    let width = 1.0 / number(&model["issue_width"]);
    [unit, slot].into_iter().flatten().fold(width, f64::max)
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_default()
}

/// Returns latency and reciprocal throughput of each instruction, and the width of dispatch.
fn ask<'a>(llvm: &Value, examples: impl Iterator<Item = &'a str>) -> anyhow::Result<(Vec<Answer>, f64)> {
    let (triple, cpu) =
        (llvm["triple"].as_str().context("no triple")?, llvm["cpu"].as_str().context("no cpu")?);
    let syntax = if triple.starts_with("x86_64") { ".intel_syntax noprefix\n" } else { "" };
    let assembly = examples.fold(syntax.to_owned(), |all, line| all + line + "\n");
    let mut child = Command::new(MCA)
        .args([format!("-mtriple={triple}"), format!("-mcpu={cpu}")])
        .args(["-iterations=1", "--json"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context(MCA)?;
    child.stdin.take().context("no pipe")?.write_all(assembly.as_bytes())?;
    let output = child.wait_with_output()?;
    ensure!(output.status.success(), "{MCA}: {}", String::from_utf8_lossy(&output.stderr).trim());
    let answer: Value = serde_json::from_slice(&output.stdout).context("llvm-mca's answer")?;
    let region = &answer["CodeRegions"][0];
    let list = region["InstructionInfoView"]["InstructionList"].as_array().context("no instructions")?;
    let answers = list
        .iter()
        .map(|i| Answer { latency: number(&i["Latency"]), throughput: number(&i["RThroughput"]) })
        .collect();
    Ok((answers, number(&region["SummaryView"]["DispatchWidth"])))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_cited_from_llvm_mca_are_correct() {
        if !is_installed() {
            eprintln!("SKIPPED figures_cited_from_llvm_mca_are_correct: {MCA} is not installed");
            return;
        }
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let rows = compare(&root).expect("llvm-mca answers");
        let wrong = |r: &&Row| r.is_wrong();
        let tell = |r: &Row| format!("{} {} {}: {} not {}", r.machine, r.class, r.figure, r.ours, r.theirs);
        assert_eq!(rows.iter().filter(wrong).map(tell).collect::<Vec<_>>(), Vec::<String>::new());
        assert!(rows.iter().any(|r| r.is_cited));
    }
}
