use super::*;

const SCHEMAS: &str = r"
# Carbon's own metrics
[carbon]
pattern = ^carbon\.
retentions = 60:90d
priority = 100

[timers]
PATTERN = \.timers\.
retentions = 10s:6h, 1m:7d,
    10m:5y

[one]
pattern = ^one
retentions = 60:1440
";

const AGGREGATION: &str = r"
[min]
pattern = \.min$
xFilesFactor = 0.1
aggregationMethod = min

[sum]
pattern = \.count$
xFilesFactor = 0
aggregationMethod = sum

[factor]
pattern = ^factor
xFilesFactor = 1.0
";

fn schemas() -> Schemas {
    Schemas::default().with_schemas(SCHEMAS).unwrap().with_aggregation(AGGREGATION).unwrap()
}

#[test]
fn first_match_counts() {
    let schemas = schemas();
    let check = |name: &str, section: &str, steps: &[u32], method, factor| {
        let found = schemas.of(name);
        let found_steps: Vec<_> = found.archives.iter().map(|archive| archive.step_s).collect();
        assert_eq!((found.section, found_steps.as_slice()), (section, steps), "{name}");
        assert_eq!((found.method, found.x_files_factor), (method, factor), "{name}");
    };
    check("carbon.agents.a.timers.count", "carbon", &[60], Method::Sum, 0.0);
    check("web.timers.x.min", "timers", &[10, 60, 600], Method::Min, f64::from(0.1_f32));
    check("one.two", "one", &[60], Method::Average, 0.5);
    check("factor.x.count", "default", &[60], Method::Sum, 0.0);
    check("factor.x", "default", &[60], Method::Average, 1.0);
    let numbers = ["web.timers.x.min", "one.two", "a.timers.min", "x"].map(|name| schemas.of(name).number);
    assert!(
        numbers[0] == numbers[2] && numbers[0] != numbers[1] && numbers.iter().all(|n| *n < schemas.count())
    );
    assert_eq!((schemas.count(), schemas.longest_step_s()), (4 * 4, 600));
    check("disk;host=a.min", "default", &[60], Method::Min, f64::from(0.1_f32));
}

#[test]
fn ages_select_archives() {
    let schemas = schemas();
    let step = |name: &str, age_s| schemas.of(name).archive_for(age_s).map(|archive| archive.step_s);
    assert_eq!(step("a.timers.b", 0), Some(10));
    assert_eq!(step("a.timers.b", 6 * 3600), Some(10));
    assert_eq!(step("a.timers.b", 6 * 3600 + 1), Some(60));
    assert_eq!(step("a.timers.b", 5 * 365 * 86_400), Some(600));
    assert_eq!(step("a.timers.b", 5 * 365 * 86_400 + 1), None);
    assert_eq!(schemas.of("unmatched").retention_s(), Some(7 * 86_400));
    assert_eq!(schemas.longest_retention_s(), Some(5 * 365 * 86_400));
    let without = Schemas::default();
    assert_eq!(without.of("a").retention_s(), None);
    assert_eq!(without.of("a").archive_for(u64::MAX).map(|archive| archive.step_s), Some(60));
    assert_eq!(without.longest_retention_s(), None);
}

#[test]
fn errors_name_the_line() {
    for (text, error) in [
        ("[a]\nretentions = 60:1\n", "line 1: section [a] has no \"pattern\""),
        ("[a]\npattern = a\n", "line 1: section [a] has no \"retentions\""),
        ("[a]\npattern = (\nretentions = 60:1\n", "line 2: expression \"(\": unclosed group"),
        ("[a]\npattern = a\nretentions = 60\n", "line 3: archive \"60\" is not of the form step:retention"),
    ] {
        assert_eq!(Schemas::default().with_schemas(text).unwrap_err().to_string(), error);
    }
    for (text, error) in [
        ("[a]\npattern = a\nxFilesFactor = 2\n", "line 3: xFilesFactor \"2\" is not a number from 0 to 1"),
        (
            "[a]\npattern = a\naggregationMethod = median\n",
            "line 3: unknown aggregationMethod \"median\"; Whisper has average, sum, last, max, min, avg_zero, \
             absmax, absmin",
        ),
    ] {
        assert_eq!(Schemas::default().with_aggregation(text).unwrap_err().to_string(), error);
    }
}

#[test]
fn sections_that_go_carbon_would_use_in_another_order_are_found() {
    let check = |priorities: &[&str], expected: Option<(&str, &str)>| {
        let section = |(number, line): (usize, &&str)| {
            format!("[{number}]\npattern = .*\nretentions = 60:1d\n{line}\n")
        };
        let text: String = priorities.iter().enumerate().map(section).collect();
        let schemas = Schemas::default().with_schemas(&text).unwrap();
        assert_eq!(schemas.out_of_priority(), expected, "{priorities:?}");
    };
    check(&["", "", ""], None);
    check(&["priority = 100", "priority = 100", ""], None);
    check(&["priority = 0", "priority = 100"], Some(("0", "1")));
    check(&["priority = 9", "", "priority = 1"], Some(("1", "2")));
    check(&["priority = -1", ""], Some(("0", "1")));
}
