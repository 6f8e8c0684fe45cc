use super::*;

fn error(text: &str) -> String {
    Scenario::parse(text).expect_err(text).to_string()
}

#[test]
fn an_empty_scenario_is_a_small_run_against_this_machine() {
    let scenario = Scenario::parse("").unwrap();
    assert_eq!(scenario, Scenario::default());
    assert_eq!(scenario.target.write.all(), ["http://127.0.0.1:9009/api/v1/write"]);
    assert_eq!((scenario.verdict.lost, scenario.course().factor_max()), (0, 1.0));
}

#[test]
fn errors_name_the_line_and_suggest_a_name() {
    assert_eq!(
        error("name = 'x'\n[load]\nmetric = 16000\n"),
        "line 3, column 1: unknown field `metric`; did you mean `metrics`?\n    3 | metric = 16000\n      | ^^^^^^"
    );
    let check = |text: &str, line: usize, words: &[&str]| {
        let said = error(text);
        assert!(said.starts_with(&format!("line {line}, ")), "{text}: {said}");
        for word in words {
            assert!(said.contains(word), "{text}: {word:?} is not in {said}");
        }
    };
    check("name = ", 1, &[]);
    check("duration = '5x'", 1, &["\"5x\" is not a duration", "'5x'"]);
    check("\n\nduration = -1", 3, &["-1 s is not a duration"]);
    check("[load]\nmetrics = '1q'", 2, &["not a number"]);
    check("[load]\nmetrics = true", 2, &["expected a number such as"]);
    check("[verdict]\nmemory = '4 gigs'", 2, &["not a size"]);
    check("[verdict]\nlost = 0\np98 = '1s'", 3, &["did you mean `p99`"]);
    check("[shape]\nkind = 'spiky'", 2, &["unknown variant `spiky`; did you mean `spike`?"]);
    check("[load]\nvalues = 'walks'", 2, &["did you mean `walk`?"]);
    check("[target]\nprotocol = '3.0'", 2, &["unknown variant `3.0`"]);
    check("[[fault]]\nat = '1s'\ndo = 'burn'", 3, &["unknown variant `burn`"]);
    check("[target]\nwrite = 'localhost:9009'", 1, &["does not begin with http://"]);
}

#[test]
fn errors_between_values_name_the_line() {
    let check = |text: &str, line: usize, word: &str| {
        let said = error(text);
        assert!(said.starts_with(&format!("line {line}, ")) && said.contains(word), "{text}: {said}");
    };
    check("name = 'x'\nscale = 0", 2, "scale: 0 is not between");
    check("[load]\ntenants = 0", 2, "load.tenants");
    check("[load]\n\ninterval = '15s'\nseries_interval = '10s'", 4, "shorter than the interval");
    check("[load]\nmetrics = '900M'\nseries_per_metric = 1", 2, "load.metrics");
    check("[load]\nmetrics = '90M'", 1, "at the peak are more than");
    check("[load]\n[shape]\nkind = 'ladder'\nfactors = [1, -2]", 4, "-2 is not between");
    check("duration = '10s'\n[[fault]]\nat = '10s'\ndo = 'pause'", 3, "not before the end");
    for kind in ["spike", "relabel-all", "outage"] {
        let shape = format!("duration = '10s'\n[shape]\nkind = '{kind}'\nat = ['2s', '10s']");
        check(&shape, 4, "shape.at: 10s is not before the end of the load (10s)");
    }
    check("[[fault]]\nat = '1s'\ndo = 'pause'", 3, "needs target.pid");
    check("[target]\npid = 1\n[[fault]]\nat = '1s'\ndo = 'kill'", 3, "must be started again");
    check("[verdict]\npass_rate = 99", 2, "99 is not between 0 and 1");
    check("[verdict]\nread_p99 = '1s'", 1, "there are no reads");
    check("[[reads]]\nusers = 3", 1, "no query");
    check("[[reads]]\nqueries = ['up']\nusers = 0", 3, "0 is not between");
    check("[verify]\nprobes_per_s = 0\n[verdict]\nfreshness_p99 = '1s'", 4, "needs verify.probes_per_s");
    check("[target]\nheaders = { 'a b' = 'c' }", 2, "header name");
    check("[target]\nstart = 'a'\nwrite = 'http://127.0.0.1:{port}/'", 2, "{port} is used in an address");
    check("[target]\nstart = 'a {port}'\ndata_dir = '{data}'", 2, "{data} is used in target.data_dir");
    assert!(error(&"#".repeat(TEXT_BYTES_MAX + 1)).contains("the limit is"));
}

#[test]
fn values_are_changed_from_the_command_line() {
    let with = |changes: &[&str]| {
        let changes: Vec<String> = changes.iter().map(|c| (*c).to_owned()).collect();
        Scenario::parse_with("[load]\ntenants = 2\n", &changes)
    };
    let scenario =
        with(&["scale=0.5", "load.interval=2s", "target.read=http://[::1]:1", "seed = 7"]).unwrap();
    assert_eq!((scenario.scale, scenario.seed, scenario.load.tenants), (0.5, 7, 2));
    assert_eq!(scenario.load.interval, Some(Span::seconds(2.0)));
    assert_eq!(scenario.target.read.as_deref(), Some("http://[::1]:1"));
    let text = "[[reads]]\nqueries = ['up', 'down']\n[[reads]]\nqueries = ['up']\n";
    let with_list = |change: &str| Scenario::parse_with(text, &[change.to_owned()]);
    assert_eq!(with_list("reads.1.users=40").unwrap().reads[1].users, 40);
    assert_eq!(with_list("reads.0.queries.1=sum(x)").unwrap().reads[0].queries, ["up", "sum(x)"]);
    for bad in ["reads.2.users=1", "reads.users=1", "reads.0.queries.2=x", "reads.-1.users=1"] {
        assert!(with_list(bad).unwrap_err().to_string().contains("items, numbered from 0"), "{bad}");
    }
    for (bad, word) in [
        ("scale", "not a change"),
        ("=1", "does not name a key"),
        ("load.tenant=1", "did you mean `tenants`"),
        ("scale=0", "with the changes scale=0: scale: 0 is not"),
        ("load.tenants.x=1", "is a single value and has no keys"),
    ] {
        let said = with(&[bad]).unwrap_err().to_string();
        assert!(said.contains(word), "{bad}: {said}");
    }
}

#[test]
fn a_shortened_run_does_not_lose_its_event() {
    let text = "duration = '1m'\n[shape]\nkind = 'spike'\nat = ['30s']\n";
    let shortened = |change: &str| Scenario::parse_with(text, &[change.to_owned()]);
    assert!(shortened("duration=31.0").is_ok() && shortened("compress=10").is_ok());
    let said = shortened("duration=4.0").unwrap_err().to_string();
    assert!(
        said.contains("with the changes duration=4.0: shape.at: 30s is not before the end of the load (4s)"),
        "{said}"
    );
}

#[test]
fn scale_multiplies_one_thing_and_leaves_at_least_one() {
    let load = |text: &str| Scenario::parse(text).unwrap().scaled();
    assert_eq!(load("scale = 0.1").series_per_metric, Count(1.0));
    assert_eq!(load("scale = 0.001").series_per_metric, Count(1.0));
    assert_eq!(load("scale = 0.1\nscales = 'metrics'").metrics, Count(50.0));
    assert_eq!(load("scale = 3\nscales = 'tenants'").tenants, 3);
    assert_eq!(load("scale = 0.5\nscales = 'writers'").writers, 2);
}
