use crate::graphite::test_store::{NONE, Store};

fn servers() -> Store {
    Store::new()
        .with("s.a.cpu", &[1.0, 2.0, NONE])
        .with("s.a.load", &[10.0, 20.0, NONE])
        .with("s.b.cpu", &[3.0, NONE, NONE])
        .with("s.b.load", &[30.0, 40.0, 50.0])
}

#[test]
fn aggregations_combine_what_is_present() {
    let store = Store::new()
        .with("a", &[1.0, 2.0, NONE, NONE])
        .with("b", &[4.0, NONE, NONE, 8.0])
        .with("c", &[7.0, 5.0, NONE, NONE]);
    let check = |target: &str, name: &str, values: &[f64]| store.check(target, &[(name, values)]);
    check("sumSeries(*)", "sumSeries(*)", &[12.0, 7.0, NONE, 8.0]);
    check("avg(a,b,c)", "averageSeries(a,b,c)", &[4.0, 3.5, NONE, 8.0]);
    check("minSeries(*)", "minSeries(*)", &[1.0, 2.0, NONE, 8.0]);
    check("maxSeries(*)", "maxSeries(*)", &[7.0, 5.0, NONE, 8.0]);
    check("diffSeries(*)", "diffSeries(*)", &[-10.0, -3.0, NONE, 8.0]);
    check("diffSeries(c,a)", "diffSeries(c,a)", &[6.0, 3.0, NONE, NONE]);
    check("rangeOfSeries(*)", "rangeOfSeries(*)", &[6.0, 3.0, NONE, 0.0]);
    check("stddevSeries(*)", "stddevSeries(*)", &[6f64.sqrt(), 1.5, NONE, 0.0]);
    check("multiplySeries(*)", "multiplySeries(*)", &[28.0, NONE, NONE, NONE]);
    check("multiplySeries(a)", "a", &[1.0, 2.0, NONE, NONE]);
    check("countSeries(*)", "countSeries(*)", &[3.0, 3.0, 3.0, 3.0]);
    check("percentileOfSeries(*,50)", "percentileOfSeries(*,50)", &[4.0, 5.0, NONE, 8.0]);
    check("percentileOfSeries(*,50,true)", "percentileOfSeries(*,50)", &[4.0, 3.5, NONE, 8.0]);
    check("powSeries(a,c)", "powSeries(a,c)", &[1.0, 32.0, NONE, NONE]);
    check("aggregate(*,'median')", "medianSeries(*)", &[4.0, 3.5, NONE, 8.0]);
    check("aggregate(*,'sumSeries',0.5)", "sumSeries(*)", &[12.0, 7.0, NONE, NONE]);
    check("aggregate(*,'count')", "countSeries(*)", &[3.0, 2.0, NONE, 1.0]);
    check("aggregate(*,'last')", "lastSeries(*)", &[7.0, 5.0, NONE, 8.0]);
    check("aggregate(*,'avg_zero')", "avg_zeroSeries(*)", &[4.0, 7.0 / 3.0, NONE, 8.0 / 3.0]);
    store.check("group(c,a)", &[("c", &[7.0, 5.0, NONE, NONE]), ("a", &[1.0, 2.0, NONE, NONE])]);
    // names of the result are in the order of the series, whatever these are called
    store.check(
        "sumSeries(scale(aliasSub(*,'a','z'),0))",
        &[("sumSeries(scale(z,0),scale(b,0),scale(c,0))", &[0.0, 0.0, NONE, 0.0])],
    );
    store.check("countSeries()", &[("0", &[0.0, 0.0, 0.0])]);
    store.check("countSeries(missing)", &[]);
    store.check_error("percentileOfSeries(*,0)", "greater than 0");
    store.check_error("aggregate(*,'best')", "must be the name of an aggregation");
}

/// Each series is consolidated to the least common multiple of the steps before it is aggregated.
#[test]
fn steps_that_differ_are_normalized() {
    let store = Store::new().with("a", &[1.0, 3.0, NONE, 5.0]).with("b", &[1.0, 2.0, 3.0, 4.0]);
    store.check(
        "sumSeries(a,summarize(b,'2min','sum',true))",
        &[("sumSeries(a,summarize(b, \"2min\", \"sum\", true))", &[5.0, 12.0])],
    );
    store.check(
        "divideSeries(summarize(b,'2min','sum',true),a)",
        &[("divideSeries(summarize(b, \"2min\", \"sum\", true),a)", &[1.5, 1.4])],
    );
}

/// Two minutes of five are too few, also of a count.
#[test]
fn counts_are_consolidated_by_the_x_files_factor() {
    let store = Store::new().with("a", &[1.0, 1.0]).with("b", &[1.0, 1.0]);
    for (x_files_factor, is_there) in [("0.3", true), ("0.6", false)] {
        let target = format!("sumSeries(setXFilesFactor(a,{x_files_factor}),countSeries(b),sin('c',1,300))");
        assert_eq!(!store.render(&target)[0].values[0].is_nan(), is_there, "{x_files_factor}");
    }
}

#[test]
fn series_are_grouped_by_nodes_and_tags() {
    let store = servers();
    store.check("groupByNode(s.*.*,1,'sum')", &[("a", &[11.0, 22.0, NONE]), ("b", &[33.0, 40.0, 50.0])]);
    store.check(
        "groupByNodes(s.*.*,'maxSeries',2,0)",
        &[("cpu.s", &[3.0, 2.0, NONE]), ("load.s", &[30.0, 40.0, 50.0])],
    );
    store.check(
        "groupByNode(scale(s.*.*,2),-1)",
        &[("cpu", &[4.0, 4.0, NONE]), ("load", &[40.0, 60.0, 100.0])],
    );
    store.check(
        "groupByNode(group(s.b.*,s.a.*),1,'countSeries')",
        &[("b", &[2.0, 2.0, 2.0]), ("a", &[2.0, 2.0, 2.0])],
    );
    store.check(
        "sumSeriesWithWildcards(s.*.*,0,2)",
        &[("a", &[11.0, 22.0, NONE]), ("b", &[33.0, 40.0, 50.0])],
    );
    store.check("aggregateWithWildcards(s.*.load,'min',1)", &[("s.load", &[10.0, 20.0, 50.0])]);
    store.check_error("groupByNode(s.*.*,1,'sumSeriesLists')", "needs more arguments");
    store.check_error("groupByNode(s.*.*,1,'scale')", "name of an aggregation or of a function");

    let store = Store::new()
        .with("cpu;dc=x;host=1", &[1.0])
        .with("cpu;dc=x;host=2", &[2.0])
        .with("cpu;dc=y;host=3", &[4.0])
        .with("mem;dc=y;host=3", &[8.0]);
    let tagged = "seriesByTag('name=~.','dc!=')";
    store.check(&format!("groupByTags({tagged},'sum','dc')"), &[("sum;dc=x", &[3.0]), ("sum;dc=y", &[12.0])]);
    store.check(
        &format!("groupByTags({tagged},'sum','dc','name')"),
        &[("cpu;dc=x", &[3.0]), ("cpu;dc=y", &[4.0]), ("mem;dc=y", &[8.0])],
    );
    store.check(
        "seriesByTag('name=cpu') | groupByTags('averageSeries','dc')",
        &[("cpu;dc=x", &[1.5]), ("cpu;dc=y", &[4.0])],
    );
    let series = store.render("seriesByTag('name=cpu') | groupByTags('sum','dc') | scale(1)");
    assert_eq!(series[0].tags.get("dc"), Some("x"));
}

#[test]
fn lists_are_combined_pair_by_pair() {
    let store = servers();
    store.check(
        "sumSeriesLists(s.*.cpu,s.*.load)",
        &[
            ("sumSeries(s.a.cpu,s.a.load)", &[11.0, 22.0, NONE]),
            ("sumSeries(s.b.cpu,s.b.load)", &[33.0, 40.0, 50.0]),
        ],
    );
    store.check(
        "aggregateSeriesLists(s.*.load,s.*.cpu,'diff')",
        &[
            ("diffSeries(s.a.load,s.a.cpu)", &[9.0, 18.0, NONE]),
            ("diffSeries(s.b.load,s.b.cpu)", &[27.0, 40.0, 50.0]),
        ],
    );
    store.check(
        "divideSeriesLists(s.*.load,s.*.cpu)",
        &[
            ("divideSeries(s.a.load,s.a.cpu)", &[10.0, 10.0, NONE]),
            ("divideSeries(s.b.load,s.b.cpu)", &[10.0, NONE, NONE]),
        ],
    );
    store.check(
        "divideSeries(s.*.cpu,s.b.load)",
        &[
            ("divideSeries(s.a.cpu,s.b.load)", &[1.0 / 30.0, 0.05, NONE]),
            ("divideSeries(s.b.cpu,s.b.load)", &[0.1, NONE, NONE]),
        ],
    );
    store.check("divideSeries(s.a.cpu,missing)", &[("divideSeries(s.a.cpu,MISSING)", &[NONE, NONE, NONE])]);
    store.check(
        "weightedAverage(s.*.cpu,s.*.load,1)",
        &[("weightedAverage(s.*.cpu, s.*.load, 1)", &[100.0 / 40.0, 40.0 / 60.0, NONE])],
    );
    store.check_error("divideSeries(s.a.cpu,s.*.load)", "must be one series, but is 2");
    store.check_error("sumSeriesLists(s.*.*,s.*.load)", "equal lengths, but have 4 and 2");
}

#[test]
fn percentages_are_of_a_total() {
    let store = servers();
    store.check("asPercent(s.a.cpu,10)", &[("asPercent(s.a.cpu,10)", &[10.0, 20.0, NONE])]);
    store.check("asPercent(s.a.cpu,2.5)", &[("asPercent(s.a.cpu,2.5)", &[40.0, 80.0, NONE])]);
    store.check(
        "pct(s.*.load)",
        &[
            ("asPercent(s.a.load,sumSeries(s.*.load))", &[25.0, 100.0 / 3.0, NONE]),
            ("asPercent(s.b.load,sumSeries(s.*.load))", &[75.0, 200.0 / 3.0, 100.0]),
        ],
    );
    store.check(
        "asPercent(s.*.cpu,s.b.load)",
        &[
            ("asPercent(s.a.cpu,s.b.load)", &[10.0 / 3.0, 5.0, NONE]),
            ("asPercent(s.b.cpu,s.b.load)", &[10.0, NONE, NONE]),
        ],
    );
    store.check(
        "asPercent(s.*.cpu,s.*.load)",
        &[
            ("asPercent(s.a.cpu,s.a.load)", &[10.0, 10.0, NONE]),
            ("asPercent(s.b.cpu,s.b.load)", &[10.0, NONE, NONE]),
        ],
    );
    store.check(
        "asPercent(s.*.*,None,1)",
        &[
            ("asPercent(s.a.cpu,sumSeries(s.*.*))", &[100.0 / 11.0, 100.0 / 11.0, NONE]),
            ("asPercent(s.a.load,sumSeries(s.*.*))", &[1000.0 / 11.0, 1000.0 / 11.0, NONE]),
            ("asPercent(s.b.cpu,sumSeries(s.*.*))", &[100.0 / 11.0, NONE, NONE]),
            ("asPercent(s.b.load,sumSeries(s.*.*))", &[1000.0 / 11.0, 100.0, 100.0]),
        ],
    );
    store.check(
        "asPercent(s.{a,b}.cpu,s.b.load,1)",
        &[
            ("asPercent(s.a.cpu,MISSING)", &[NONE, NONE, NONE]),
            ("asPercent(s.b.cpu,s.b.load)", &[10.0, NONE, NONE]),
        ],
    );
    store.check(
        "asPercent(s.a.cpu,s.*.load,1)",
        &[
            ("asPercent(s.a.cpu,s.a.load)", &[10.0, 10.0, NONE]),
            ("asPercent(MISSING,s.b.load)", &[NONE, NONE, NONE]),
        ],
    );
    store.check_error("asPercent(s.a.cpu,s.*.load)", "the total must be");
    store.check_error("asPercent(s.a.cpu,10,1)", "must be series or None");
}

#[test]
fn targets_are_built_for_each_group() {
    let store = servers();
    store.check(
        "reduceSeries(mapSeries(s.*.*,1),'asPercent',2,'cpu','load')",
        &[("s.a.reduce.asPercent", &[10.0, 10.0, NONE]), ("s.b.reduce.asPercent", &[10.0, NONE, NONE])],
    );
    store.check(
        "reduce(map(group(s.a.*,s.b.cpu),1),'divideSeries',2,'load','cpu')",
        &[("s.a.reduce.divideSeries", &[10.0, 10.0, NONE])],
    );
    store.check(
        "applyByNode(s.*.cpu,1,'sumSeries(%.*)','%.all')",
        &[("s.a.all", &[11.0, 22.0, NONE]), ("s.b.all", &[33.0, 40.0, 50.0])],
    );
    store.check(
        "applyByNode(s.*.cpu,1,'%.load')",
        &[("s.a.load", &[10.0, 20.0, NONE]), ("s.b.load", &[30.0, 40.0, 50.0])],
    );
    store.check_error("mapSeries(s.*.*,1)", "lists of series");
    store.check_error("sumSeries(mapSeries(s.*.*,1))", "must be series");
    store.check_error("reduceSeries(s.*.*,'asPercent',2,'cpu')", "must be lists of series");
    store.check_error("reduceSeries(mapSeries(s.*.*,1),'scale',2,'cpu')", "cannot be called with 1 series");
    store.check_error("reduceSeries(mapSeries(s.*.*,1),'sum',7,'cpu')", "has no node 7");
    store.check_error("applyByNode(s.*.cpu,1,'sumSeries(%')", "invalid target");
    let nested = "applyByNode(s.a.cpu,0,'applyByNode(%.a.cpu,0,\"applyByNode(%.a.cpu,0,'applyByNode(%.a.cpu,0,\"s\")')\")')";
    assert!(store.try_render(nested).is_err());
}

/// An aggregation of many series holds one of them, and fails only if its result does not fit.
#[test]
fn memory_of_aggregations_does_not_grow_with_their_series() {
    let mut store = Store::new();
    for i in 0..2_000 {
        store = store.with(&format!("many.{i:04}.x"), &[f64::from(i), 1.0]);
    }
    store.samples_max = 400;
    store.check("sumSeries(many.*.x)", &[("sumSeries(many.*.x)", &[1_999_000.0, 2000.0])]);
    store.check("groupByNode(many.*.x,2,'max')", &[("x", &[1999.0, 1.0])]);
    store.check_error("many.*.x", "too many samples");
    store.check_error("groupByNode(many.*.x,1,'max')", "too many samples");
    store.check_error("asPercent(many.*.x)", "too many samples");
}

/// A group holds the tags of its first series, which may be longer than its name.
#[test]
fn tags_of_groups_are_charged() {
    let mut store = Store::new().between(999_940, 1_000_000);
    let (long, groups) = ("x".repeat(100_000), "'sum','timeShift'");
    let target =
        format!("countSeries(groupByNodes(alias(timeStack(randomWalk('{long}'),'1s',0,50),'a'),{groups}))");
    store.samples_max = 100_000;
    store.check_error(&target, "too many samples");
    store.samples_max = 1_000_000;
    assert_eq!(store.render(&target)[0].values, [50.0]);
}

/// A series may be as long as the memory allows, so a copy of it is charged while it exists.
#[test]
fn copies_of_series_are_charged() {
    // a series takes 50,000 values of 16 bytes, and a sum of it 75,000
    const SERIES: &str = "randomWalk('x',1)";
    let mut store = Store::new().between(900_000, 1_000_000);
    for (target, too_few, enough) in [
        ("multiplySeries({S})", 150_000, 200_000),
        ("sumSeriesLists({S},{S})", 200_000, 250_000),
        // those that sort a copy of the values
        ("summarize(nPercentile({S},50),'1y')", 90_000, 110_000),
        ("aggregateLine({S},'median')", 90_000, 110_000),
        ("summarize(filterSeries({S},'median','>',-1e9),'1y')", 90_000, 110_000),
        ("summarize(legendValue({S},'median'),'1y')", 90_000, 110_000),
        ("summarize({S},'1y','median')", 90_000, 110_000),
        ("smartSummarize({S},'1y','median')", 90_000, 110_000),
        ("summarize(highest(group({S},{SHORT},{SHORT},{SHORT}),9,'median'),'1y')", 120_000, 150_000),
        ("summarize(sortBy(group({S},{SHORT},{SHORT},{SHORT}),'median'),'1y')", 120_000, 150_000),
    ] {
        let target = target.replace("{S}", SERIES).replace("{SHORT}", "randomWalk('y',4)");
        store.samples_max = too_few;
        store.check_error(&target, "too many samples");
        store.samples_max = enough;
        assert!(!store.render(&target).is_empty(), "{target}");
    }
}
