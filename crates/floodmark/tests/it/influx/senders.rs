//! InfluxDB's clients for Python. Tests are skipped without them.

use crate::harness::programs::cache;
use crate::harness::{Server, now_ms};
use std::process::Command;

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
            stdx::skipped::for_want_of(&format!("the Python package {packages} (scripts/test-servers.sh)"));
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
