//! Programs that send Influx' line protocol: Telegraf, InfluxDB's clients for Python, and curl. Tests are skipped without
//! the program they need.

use crate::harness::programs::{Running, cache, find};
use crate::harness::{Server, now_ms, wait_for};
use std::path::Path;
use std::process::Command;

const INSTALL: &str = "run scripts/test-servers.sh";

/// Writes a configuration of Telegraf with an output, and starts it. It sends memory, and lines of a script with values
/// that the test knows.
fn telegraf(dir: &Path, output: &str) -> Option<Running> {
    let Some(telegraf) = find(&["telegraf"]) else {
        eprintln!("SKIPPED: telegraf is not installed; {INSTALL}");
        return None;
    };
    let conf = dir.join("telegraf.conf");
    let text = format!(
        "[agent]\n  interval = \"200ms\"\n  flush_interval = \"200ms\"\n  hostname = \"web1\"\n  debug = true\n\
         [[inputs.mem]]\n\
         [[inputs.exec]]\n  commands = [\"printf 'own,k=v\\\\ w f=1.5,i=2i,u=3u,t=true,s=\\\"text\\\"'\"]\n  data_format = \"influx\"\n\
         {output}"
    );
    std::fs::write(&conf, text).unwrap();
    let plugins = Command::new(&telegraf).arg("--config").arg(&conf).args(["--test"]).output().unwrap();
    if String::from_utf8_lossy(&plugins.stderr).contains("undefined but requested output") {
        eprintln!("SKIPPED: telegraf has no output for InfluxDB; {INSTALL}");
        return None;
    }
    let mut command = Command::new(telegraf);
    command.arg("--config").arg(&conf);
    Some(Running::start(&mut command, 0, dir.join("telegraf.log")))
}

/// Checks the values of the script, and that a string does not keep the other fields from being stored.
fn check_telegraf(server: &Server, dir: &Path, labels: &str) {
    for (field, value) in [("f", 1.5), ("i", 2.0), ("u", 3.0), ("t", 1.0)] {
        let series = format!(r#"own_{field}{{host="web1",k="v w"{labels}}}"#);
        assert_eq!(wait_for(&series, || server.value(&series, now_ms())), value, "{series}");
    }
    let bytes = wait_for("memory", || server.value("mem_total", now_ms()));
    assert!(bytes > 1e6, "{bytes}");
    assert_eq!(server.value("own_s", now_ms()), None);
    // Telegraf drops what was refused for good, and goes on
    let refused = r#"floodmark_refusals_total{reason="partial_write"}"#;
    let before = server.metric(refused);
    wait_for("further requests", || (server.metric(refused) > before + 1.0).then_some(()));
    let log = std::fs::read_to_string(dir.join("telegraf.log")).unwrap();
    assert!(log.contains("is a string, which cannot be stored"), "{log}");
}

#[test]
fn telegraf_writes_to_influxdb_1() {
    let (dir, server) = (tempfile::tempdir().unwrap(), Server::new());
    let output =
        format!("[[outputs.influxdb]]\n  urls = [\"http://{}\"]\n  database = \"metrics\"\n", server.address);
    let Some(_telegraf) = telegraf(dir.path(), &output) else { return };
    check_telegraf(&server, dir.path(), r#",db="metrics""#);
}

#[test]
fn telegraf_writes_to_influxdb_2() {
    let (dir, server) = (tempfile::tempdir().unwrap(), Server::new());
    let output = format!(
        "[[outputs.influxdb_v2]]\n  urls = [\"http://{}\"]\n  token = \"secret-write\"\n  organization = \"o\"\n  bucket = \"b\"\n",
        server.address
    );
    let Some(_telegraf) = telegraf(dir.path(), &output) else { return };
    check_telegraf(&server, dir.path(), "");
}

/// Runs a Python program in the environment of the tests. Returns false if a package is missing.
fn python(program: &str, server: &Server) -> bool {
    let mut command = Command::new(cache().join("py/bin/python"));
    let Ok(ended) = command.args(["-B", "-c", program, &server.address.to_string()]).output() else {
        return false;
    };
    let said = String::from_utf8_lossy(&ended.stderr);
    if said.contains("ModuleNotFoundError") {
        return false;
    }
    assert!(ended.status.success(), "{said}");
    true
}

/// The client of InfluxDB 1.
const CLIENT_1: &str = r#"
import sys
from influxdb import InfluxDBClient
from influxdb.exceptions import InfluxDBClientError
host, port = sys.argv[1].split(':')
client = InfluxDBClient(host, int(port), 'user', 'password', 'metrics')
assert client.ping() == '1.8.10', client.ping()
client.create_database('metrics')
assert client.get_list_database() == []
points = [
    {'measurement': 'cpu', 'tags': {'host': 'web 1', 'a,b': 'c=d'}, 'fields': {'user': 1.5, 'n': 2, 'up': True}},
]
assert client.write_points(points, time_precision='ms')
try:
    client.write_points([{'measurement': 'cpu', 'fields': {'user': 2.5, 'state': 'on'}}])
    raise SystemExit('no error')
except InfluxDBClientError as error:
    assert error.code == 400 and 'is a string' in str(error), error
"#;

/// The client of InfluxDB 2.
const CLIENT_2: &str = r#"
import sys
from influxdb_client import InfluxDBClient, Point, WritePrecision
from influxdb_client.client.write_api import SYNCHRONOUS
from influxdb_client.rest import ApiException
with InfluxDBClient(url='http://' + sys.argv[1], token='secret', org='o', enable_gzip=True) as client:
    assert client.ping()
    assert client.health().status == 'pass', client.health()
    write = client.write_api(write_options=SYNCHRONOUS)
    point = Point('mem').tag('host', 'web 1').field('used', 3).field('free', 0.5).field('up', False)
    write.write(bucket='b', record=point)
    write.write(bucket='b', record=['mem,host=web\\ 1 cached=7i'], write_precision=WritePrecision.S)
    try:
        write.write(bucket='b', record=Point('mem').field('state', 'on'))
        raise SystemExit('no error')
    except ApiException as error:
        assert error.status == 400 and 'is a string' in error.body, error
"#;

#[test]
fn clients_for_python_write_points() {
    for (program, packages) in [(CLIENT_1, "influxdb"), (CLIENT_2, "influxdb-client")] {
        let server = Server::new();
        if !python(program, &server) {
            eprintln!("SKIPPED: the Python package {packages} is not installed; {INSTALL}");
            continue;
        }
        let value = |series: &str| server.value(series, now_ms());
        if program == CLIENT_1 {
            assert_eq!(
                value(r#"cpu_user{host="web 1",db="metrics",`a,b`="c=d"}"#.replace('`', "\"").as_str()),
                Some(1.5)
            );
            assert_eq!((value(r#"cpu_n{host="web 1"}"#), value("cpu_up")), (Some(2.0), Some(1.0)));
            assert_eq!(value(r#"cpu_user{host=""}"#), Some(2.5), "the other fields of a refused point");
        } else {
            assert_eq!((value(r#"mem_used{host="web 1"}"#), value("mem_free")), (Some(3.0), Some(0.5)));
            assert_eq!((value("mem_up"), value("mem_cached")), (Some(0.0), Some(7.0)));
        }
    }
}

/// The examples in docs/influx.md.
#[test]
fn curl_sends_the_examples_of_the_page() {
    if find(&["curl"]).is_none() {
        return eprintln!("SKIPPED: curl is not installed");
    }
    let server = Server::new();
    let page = include_str!("../../../../../docs/influx.md");
    let blocks = page.split("```sh\n").skip(1).filter_map(|block| block.split("```").next());
    let examples: Vec<_> = blocks.filter(|block| block.starts_with("curl ")).collect();
    assert!(examples.len() >= 2, "{examples:?}");
    for example in examples {
        let script = example.replace("127.0.0.1:9009", &server.address.to_string());
        let script = format!("set -eu\n{}", script.replace("curl ", "curl -sS --fail-with-body "));
        let ended = Command::new("sh").args(["-c", &script]).output().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr);
        assert!(ended.status.success(), "{script}: {said} {}", String::from_utf8_lossy(&ended.stdout));
    }
    assert_eq!(server.value(r#"cpu_usage_user{host="web1"}"#, now_ms()), Some(1.5));
}
