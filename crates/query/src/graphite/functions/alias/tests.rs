use crate::graphite::test_store::{NONE, Store};

fn check(target: &str, names: &[&str]) {
    let store = Store::new()
        .with("web.host1.cpu", &[1.0, NONE])
        .with("web.host2.cpu", &[7.0, 2.5])
        .with("disk;host=x;rack=r1", &[3.0, 4.0]);
    let all = store.render(target);
    assert_eq!(all.iter().map(|series| series.name.as_str()).collect::<Vec<_>>(), names, "{target}");
}

#[test]
fn names_are_made_of_nodes_and_tags() {
    check("alias(web.*.cpu,'x')", &["x", "x"]);
    check("aliasByNode(web.*.cpu,1)", &["host1", "host2"]);
    check("aliasByNode(web.*.cpu,-1,0)", &["cpu.web", "cpu.web"]);
    check("aliasByNode(scale(web.host1.cpu,2),1,9)", &["host1."]);
    check("aliasByNode(sumSeries(scale(web.{host1,none}.cpu,2)),1)", &["host1"]);
    check("aliasByNode(seriesByTag('host=x'),0,'rack','none')", &["disk.r1."]);
    check("aliasByTags(disk;host=x;rack=r1,'host','name')", &["x.disk"]);
    check("aliasByMetric(scale(web.*.cpu,2))", &["cpu", "cpu"]);
    check("aliasByMetric(web.host1.cpu)", &["cpu"]);
    check("aliasByNode(alias(web.host1.cpu,'a b.c)'),0)", &["a"]);
}

#[test]
fn names_are_rewritten() {
    check(r"aliasSub(web.*.cpu,'^web\.(\w+)\..*$','\1!')", &["host1!", "host2!"]);
    check(r"aliasSub(web.host1.cpu,'[aeiou]','')", &["wb.hst1.cp"]);
    check("upper(web.host1.cpu)", &["WEB.HOST1.CPU"]);
    check("upper(web.host1.cpu,0,-1,99)", &["Web.host1.cpU"]);
    check("lower(alias(web.host1.cpu,'ÄB'),0)", &["äB"]);
}

#[test]
fn names_show_values_of_other_targets() {
    check(r"aliasQuery(web.host1.cpu,'host\d','host2','%.1f MHz')", &["2.5 MHz"]);
    check(r"aliasQuery(web.*.cpu,'^.*$','scale(\g<0>,2)','Channel %03d')", &["Channel 002", "Channel 005"]);
    let store = Store::new().with("a", &[1.0]).with("b", &[NONE, 1.0]).between(0, 60);
    store.check_error("aliasQuery(a,'a','none','%d')", "no series found for \"none\"");
    store.check_error("aliasQuery(a,'a','b','%d')", "\"b\" has no value");
    store.check_error("aliasQuery(a,'a','a','text')", "no place for the value");
}
