//! Tests of tables that are narrowed to a service.

use dwell_profile::DimensionValues;

use super::*;

#[test]
fn a_service_has_its_samples_alone() {
    let Some(engine) = engine("a_service_has_its_samples_alone") else { return };
    let scratch = Scratch::new();
    scratch.record(0, "bare");
    let database = Database::open(scratch.database()).unwrap();
    let mut epoch = scratch.epoch("kept");
    epoch.id = EpochId("20261126T110201Z-5f3a9c".to_owned());
    let of = |cgroup: &str, count| {
        let cgroup = Some(cgroup.into());
        let dimensions = Some(DimensionValues { cgroup, ..DimensionValues::default() }.into());
        let key = SampleKey {
            image: image("kept"),
            event: Event::CYCLES,
            offset: ImageOffset(20),
            app: "kept".into(),
            instance: 1,
            dimensions,
        };
        (key, count)
    };
    let hostile = "/it's \" web*";
    let counts = Counts::from_iter([of("/a/web.service", 3), of(hostile, 5), of("/store", 11)]);
    database.writer().unwrap().begin(epoch).unwrap().append(&counts, &[record("kept")]).unwrap();

    let open = |service: &str, text: Option<&str>| {
        let mut options = Options::for_database(scratch.database());
        options.service = Some(service.to_owned());
        Session::open(&engine, options, &LIMITS, text, Format::Jsonl).unwrap()
    };
    let sums = "SELECT (SELECT sum(count) FROM samples) AS s, (SELECT sum(count) FROM totals) AS t, \
                (SELECT sum(count) FROM applications) AS a, (SELECT sum(count) FROM procedure_samples) AS p";
    for (service, count) in [("web", 8), ("web.service", 3), ("'", 5), ("store", 11)] {
        let session = open(service, None);
        let found = &rows(&session, sums)[0];
        assert_eq!(*found, serde_json::json!({"s": count, "t": count, "a": count, "p": count}), "{service}");
        let left_out = session.warnings().iter().chain(&session.take_notes()).cloned().collect::<String>();
        assert!(left_out.contains("have no control groups"), "{left_out}");
    }
    let session = open("nginx", None);
    assert_eq!(rows(&session, "SELECT count(*) AS n FROM samples")[0]["n"], 0);
    assert!(session.warnings().concat().contains("no samples of service 'nginx'"));
    let text = "SELECT count(*) AS n FROM procedure_samples";
    let session = open("nginx", Some(text));
    assert_eq!(rows(&session, text)[0]["n"], 0);
    assert!(session.take_notes().concat().contains("no samples of service 'nginx'"));
}
