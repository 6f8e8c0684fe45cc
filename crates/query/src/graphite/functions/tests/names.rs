//! Functions refuse to build names beyond the limit.

use super::arguments;
use crate::QueryError;
use crate::graphite::functions;
use crate::graphite::name::NAME_BYTES_MAX;
use crate::graphite::test_store::Store;

const LONG: usize = 100_000;
const TIMES: usize = 2_000;

/// Has memory for names of hundreds of megabytes, so that it is the limit of names that refuses them.
fn store() -> Store {
    let mut store = Store::new().between(999_000, 1_000_000);
    (store.samples_max, store.targets_bytes) = (1 << 30, 64 << 20);
    store
}

fn times(text: &str) -> String {
    vec![text; TIMES].join(",")
}

#[test]
fn names_cannot_be_multiplied_by_arguments() {
    let long = format!("alias(constantLine(1),'{}')", "a".repeat(LONG));
    let (nodes, signs) = (times("0"), "%".repeat(TIMES));
    let interval = format!("{}1s", "0s".repeat(100));
    for target in [
        format!("aliasByNode({long},{nodes})"),
        format!("aliasByTags({long},{nodes})"),
        format!("groupByNodes({long},'sum',{nodes})"),
        format!("groupByNodes({long},'countSeries',{nodes})"),
        format!("reduceSeries(mapSeries({long},{nodes}),'sumSeries',0,'a')"),
        format!("asPercent({long},None,{nodes})"),
        format!("asPercent({long},constantLine(1),{nodes})"),
        format!("weightedAverage({long},constantLine(1),{nodes})"),
        format!("weightedAverage(constantLine(1),{long},{nodes})"),
        format!("applyByNode({long},0,'constantLine(1)','{signs}')"),
        format!("applyByNode({long},0,'{signs}')"),
        format!("groupByTags(summarize(constantLine(1),'{interval}'),'sum',{})", times("'summarize'")),
        format!("cactiStyle(constantLine(1),'si','{}')", "u".repeat(LONG)),
        format!("legendValue(constantLine(1e300),{},'si')", times("'sum'")),
        format!("template(events({}),a='{}')", times("$a"), "a".repeat(LONG)),
        format!("template(legendValue(constantLine(1),{}),a='{}')", times("$a"), "a".repeat(LONG)),
        format!("template(groupByTags({long},'sum',{}),a='{}')", times("$a"), "a".repeat(LONG)),
        format!(
            "template(weightedAverage(constantLine(1),constantLine(1),{}),a='{}')",
            times("$a"),
            "a".repeat(LONG)
        ),
    ] {
        match store().try_render(&target) {
            Err(error) => {
                let error = error.to_string();
                assert!(error.contains("the limit is 262144"), "{}…: {error:.200}", &target[..40]);
            }
            Ok(all) => {
                let lengths: Vec<_> = all.iter().map(|series| series.name.len()).collect();
                panic!("{}… has names of {lengths:?} bytes", &target[..40]);
            }
        }
    }
}

#[test]
fn functions_cannot_add_up_long_names() {
    let mut store = Store::new().with(&"a".repeat(16_000), &[1.0]);
    store.samples_max = 1 << 30;
    let mut target = String::from("*");
    for _ in 0..4 {
        target = format!("divideSeries({target},{target})");
        store.render(&target);
    }
    store.check_error(
        &format!("divideSeries({target},{target})"),
        "\"divideSeries\": the name of a series would have 512465 bytes or more, the limit is 262144",
    );
}

/// Every function of series, with the longest arguments that its parameters may have.
#[test]
fn no_function_makes_names_of_any_length() {
    let long = format!("alias(constantLine(1),'{}')", "a.".repeat(LONG / 2));
    let mut answers = 0;
    for function in functions::all() {
        let target = format!("{}({})", function.name, arguments(function, &long, TIMES));
        match store().try_render(&target) {
            Ok(all) => {
                answers += 1;
                for series in all {
                    let texts = [series.name.len(), series.path_expression.len()];
                    assert!(texts.iter().all(|len| *len <= NAME_BYTES_MAX), "{}: {texts:?}", function.name);
                }
            }
            Err(QueryError::Invalid(_)) => {}
            Err(error) => {
                // without series, or with a list of lists
                let error = error.to_string();
                let is_known = ["seriesByTag", "mapSeries"].contains(&function.name)
                    || error.contains("target has")
                    || error.contains("tag expression");
                assert!(is_known, "{}: {error:.300}", function.name);
            }
        }
    }
    assert!(answers > 80, "{answers} functions answered");
}

#[test]
fn columns_of_legends_are_as_wide_as_any_name() {
    let mut store = Store::new().with("a", &[1.0]);
    store.samples_max = 1_000_000;
    let name = "é".repeat(70_000);
    let all = store.render(&format!("cactiStyle(group(a,alias(a,'{name}')))"));
    let columns = " Current:1.00    Max:1.00    Min:1.00    ";
    assert!(all[0].name == format!("a{}{columns}", " ".repeat(69_999)), "{:.100}", all[0].name);
    assert!(all[1].name == format!("{name}{columns}"));
    let units = "u".repeat(70_000);
    let all = store.render(&format!("cactiStyle(a,'si','{units}')"));
    let column = format!("1.00 {units}    ");
    assert!(all[0].name == format!("a Current:{column}Max:{column}Min:{column}"), "{:.100}", all[0].name);
    let name = &store.render("legendValue(a,'sum','max','si')")[0].name;
    assert_eq!(name, "a                   sum  1.00      max  1.00      ");
}
