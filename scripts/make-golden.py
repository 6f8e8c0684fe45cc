#!/usr/bin/env python3
"""Creates a golden directory: files that one version of Floodmark writes, and that the tests of all later versions read.

    scripts/make-golden.py PROGRAM crates/floodmark/tests/golden/0.1.0

PROGRAM is the floodmark binary of that version. The folder then contains
  data.tar.gz     a data directory after kill -9: tables, a rollup, a log with several commits, samples that are only in the journal
  *.ledger.json   ledgers of acknowledged samples, to be read back
  result.json     a result of the lab
  golden.rec      recorded remote write, Influx' lines and OpenTelemetry's points
  deltas.json     points with delta temporality, some of which were sent, and the sums to be read back
  exemplars.json  the exemplars that deletes have left
The clock of the programs is set to 15 January 2026 (scripts/test-clock.c), so that no test depends on the time of this script.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
NOON = 1768478400  # 2026-01-15T12:00:00Z
CONFIG = ('partitions = 2\nsegment_size = "1MiB"\nrollups = ["5m", "1h"]\nmemory = "256MiB"\n'
          'self_monitoring_interval = "never"\n')
# a few series with one sample per minute for an hour; the flags exist in every version
WRITE = ["lab", "write", "--metrics", "4", "--series", "3", "--writers", "1", "--batch", "12", "--interval", "60s",
         "--rounds", "60", "--histograms", "0", "--quiet"]

program, out = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
os.makedirs(out, exist_ok=True)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for(url):
    for _ in range(600):
        try:
            return urllib.request.urlopen(url).read()
        except OSError:
            time.sleep(0.1)
    sys.exit(f"no answer from {url}")


def deltas(start, end, amount):
    """A request with points of the time from start to end, in seconds after noon, that add this amount to their sums."""
    def times(point):
        return point | {"startTimeUnixNano": str((NOON + start) * 10**9), "timeUnixNano": str((NOON + end) * 10**9)}
    metrics = [
        {"name": "golden_requests",
         "sum": {"aggregationTemporality": 1, "isMonotonic": True, "dataPoints": [times({"asDouble": amount})]}},
        {"name": "golden_size",
         "histogram": {"aggregationTemporality": 1, "dataPoints": [times({
             "count": str(2 * amount), "sum": 0.5 * amount, "explicitBounds": [1], "bucketCounts": [str(amount), str(amount)]})]}},
        {"name": "golden_wide",
         "exponentialHistogram": {"aggregationTemporality": 1, "dataPoints": [times({
             "count": str(amount), "sum": 1.5 * amount, "positive": {"bucketCounts": [str(amount)]}})]}},
    ]
    return {"resourceMetrics": [{
        "resource": {"attributes": [{"key": "service.name", "value": {"stringValue": "golden"}}]},
        "scopeMetrics": [{"metrics": metrics}]}]}


def with_exemplars(host, times):
    """A request with a sample at noon, and an exemplar at each of these times, in seconds after noon."""
    exemplars = [{"timeUnixNano": str((NOON + at) * 10**9), "asDouble": 1, "traceId": "5b8efff798038103d269b633813fc60c",
                  "spanId": "eee19b7ec3c1b174"} for at in times]
    point = {"attributes": [{"key": "host", "value": {"stringValue": host}}], "exemplars": exemplars, "asDouble": 5,
             "startTimeUnixNano": str((NOON - 600) * 10**9), "timeUnixNano": str(NOON * 10**9)}
    metric = {"name": "golden_exemplars",
              "sum": {"aggregationTemporality": 2, "isMonotonic": True, "dataPoints": [point]}}
    return {"resourceMetrics": [{"scopeMetrics": [{"metrics": [metric]}]}]}


def sums(at, amount):
    """What the series of these points are at a time, in seconds after noon."""
    values = {"golden_requests_total": amount, "golden_size_sum": 0.5 * amount, "golden_size_count": 2 * amount,
              'golden_size_bucket{le="1"}': amount, 'golden_size_bucket{le="+Inf"}': 2 * amount,
              "golden_wide_sum": 1.5 * amount, "golden_wide_count": amount, 'golden_wide_bucket{le="2"}': amount,
              'golden_wide_bucket{le="+Inf"}': amount}
    return [{"series": series, "time": NOON + at, "value": value} for series, value in values.items()]


with tempfile.TemporaryDirectory() as folder:
    clock = os.path.join(folder, "test-clock.so")
    subprocess.run(["cc", "-shared", "-fPIC", "-O2", "-o", clock, os.path.join(HERE, "test-clock.c")], check=True)
    environment = os.environ | {"LD_PRELOAD": clock, "FLOODMARK_TEST_AHEAD_S": str(NOON - int(time.time()))}
    data, port = os.path.join(folder, "data"), free_port()
    config = os.path.join(folder, "floodmark.toml")
    with open(config, "w") as file:
        file.write(CONFIG)
    url = f"http://127.0.0.1:{port}"
    target = ["--url", url + "/api/v1/write"]

    def post(path):
        urllib.request.urlopen(urllib.request.Request(url + path, method="POST")).read()

    def run(*arguments):
        subprocess.run([program, *arguments], env=environment, check=True, cwd=folder)

    def write(name, seed, *arguments):
        run(*WRITE, *target, "--seed", seed, "--ledger", os.path.join(out, f"{name}.ledger.json"), *arguments)

    server = subprocess.Popen([program, "serve", "--data-dir", data, "--http", url[7:], "--config", config], env=environment)
    try:
        wait_for(url + "/-/ready")
        # a past day: two commits, merged, with rollups
        write("yesterday", "1", "--start", str(NOON - 86_400))
        post("/api/v1/admin/flush")
        write("compacted", "2", "--start", str(NOON - 86_400), "--values", "random")
        post("/api/v1/admin/flush")
        post("/api/v1/admin/compact")
        # sealed samples of another tenant
        write("sealed", "3", "--protocol", "2.0", "-H", "X-Scope-OrgID: team-a")
        post("/api/v1/admin/flush")
        # exemplars, some of which are deleted
        def send_as(tenant, path, body, kind):
            headers = {"Content-Type": kind, "X-Scope-OrgID": tenant}
            urllib.request.urlopen(urllib.request.Request(url + path, body.encode(), headers)).read()

        for host in ["a", "b", "c"]:
            send_as("team-b", "/v1/metrics", json.dumps(with_exemplars(host, [-100, -10])), "application/json")
        for selector, end in [('{host="a"}', NOON), ('{host=~"b|x.+"}', NOON - 50)]:
            delete = urllib.parse.urlencode({"match[]": selector, "end": end})
            send_as("team-b", "/api/v1/admin/tsdb/delete_series", delete, "application/x-www-form-urlencoded")
        with open(os.path.join(out, "exemplars.json"), "w") as file:
            json.dump({"tenant": "team-b", "times": {"b": [NOON - 10], "c": [NOON - 100, NOON - 10]}}, file, indent=1)
            file.write("\n")
        # samples that are only in the journal, recorded by a proxy
        proxy, recording = free_port(), os.path.join(out, "golden.rec")
        recorder = subprocess.Popen([program, "lab", "record", recording, "--backend", url, "--listen", f"127.0.0.1:{proxy}"],
                                    env=environment, stdout=subprocess.DEVNULL)
        wait_for(f"http://127.0.0.1:{proxy}/-/ready")
        target = ["--url", f"http://127.0.0.1:{proxy}/api/v1/write"]
        write("journal", "4")

        def send(path, body, kind):
            request = urllib.request.Request(f"http://127.0.0.1:{proxy}{path}", body.encode(), {"Content-Type": kind})
            urllib.request.urlopen(request).read()

        # the points of the minute in between are missing, and may still come
        sent = [deltas(-180, -120, 1), deltas(-60, 0, 4)]
        for body in sent:
            send("/v1/metrics", json.dumps(body), "application/json")
        send("/api/v2/write?precision=s", f"golden,host=a value=5 {NOON}\n", "text/plain")
        expected = {
            "stored": sums(-120, 1) + sums(0, 5), "repeated": sent[-1],
            "late": deltas(-120, -60, 2), "after_late": sums(-120, 1) + sums(-60, 3) + sums(0, 7),
            "next": deltas(0, 60, 8), "after_next": sums(0, 7) + sums(60, 15),
            "recorded_samples": 21,
        }
        with open(os.path.join(out, "deltas.json"), "w") as file:
            json.dump(expected, file, indent=1)
            file.write("\n")
        recorder.send_signal(signal.SIGINT)
        recorder.wait()
        run("lab", "run", "cortex-110k-steady", "--scale", "0.0001", "--duration", "2s", "--target", url + "/api/v1/write",
            "--set", "verdict.freshness_p99=1m", "--set", "verdict.p99=1m", "--quiet", "--out", os.path.join(out, "result.json"))
    finally:
        server.kill()
        server.wait()
    names = ["--exclude=LOCK", "--exclude=reserve", "--exclude=*.spare"]
    subprocess.run(["tar", "--sort=name", "--owner=0", "--group=0", "--numeric-owner", *names, "-C", folder, "-czf",
                    os.path.join(out, "data.tar.gz"), "data"], check=True)

size = sum(os.path.getsize(os.path.join(out, name)) for name in os.listdir(out))
print(f"{out}: {size} bytes")
