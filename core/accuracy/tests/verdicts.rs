//! From a program with known truth to a report.

use dwell_accuracy::{random_programs, report, verdict};

#[test]
fn a_random_program_is_judged_and_reported() {
    let recipe = random_programs::recipes()[0];
    let program = recipe.program().expect("a model that is built in");
    let verdict = verdict::judge(recipe.set, &recipe.name(), &program, true);
    let dwell = &verdict.estimators[0];
    assert_eq!(dwell.name, "dwell");
    let ten = dwell.instructions.abs.expect("the period is known").0[1];
    assert!(ten > 0.85, "with a perfect model {ten:.3} of the samples are within 10%");
    assert!(verdict.culprits.is_none(), "nobody simulated its stalls");
    assert_eq!(verdict.unjudged_share, 0.0);

    let verdicts = [verdict];
    let text = report::text::render(&verdicts);
    for words in
        ["random-inorder", "minimum-cost flow", "reliability", "1/50 of the samples: clusters", "no mca.tsv"]
    {
        assert!(text.contains(words), "{words} is missing:\n{text}");
    }
    let json: serde_json::Value =
        serde_json::from_str(&report::json(&verdicts).expect("a report")).expect("one object");
    assert_eq!(json["schema"], 1);
    let reported = json["programs"][0]["estimators"][0]["instructions"]["abs"][1].as_f64().expect("a share");
    assert!((reported - ten).abs() < 1e-12);
    let pictures = report::pictures::all("random-inorder", &[&verdicts[0]]);
    let names: Vec<&str> = pictures.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, ["frequencies", "errors", "reliability", "sensitivity"]);
    assert!(pictures.iter().all(|(_, svg)| svg.ends_with("</svg>\n") && !svg.contains("NaN")));
}
