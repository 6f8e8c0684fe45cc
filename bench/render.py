"""Time of Graphite's /render over 30 days, of Floodmark and of go-carbon with carbonapi.

    FLOODMARK=path/to/floodmark python3 bench/render.py WHISPER_PYTHON GO_CARBON CARBONAPI [--series 100] [--days 30] [--step 60] [--runs 15]
        [--fine-days N]

WHISPER_PYTHON is a Python with the library whisper. It makes one file for each series, which go-carbon serves and Floodmark imports.
GO_CARBON and CARBONAPI are binaries. Both systems run at the same time and are asked in turn. Their caches of answers are off or cannot
help, because each request ends a step later than the one before.

With --fine-days, the rules keep each point for N days, and then one an hour. Then go-carbon's files have these hourly values, and Floodmark
computes them from all points.

Each row has the median and the slowest time in milliseconds, and the CPU seconds of all processes of a system for one request.
"""

import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time
import urllib.parse
import urllib.request

from floodmark_bench import FLOODMARK, Process, free_port

parser = argparse.ArgumentParser()
parser.add_argument("python")
parser.add_argument("go_carbon")
parser.add_argument("carbonapi")
parser.add_argument("--series", type=int, default=100)
parser.add_argument("--days", type=int, default=30)
parser.add_argument("--step", type=int, default=60, help="seconds between points")
parser.add_argument("--runs", type=int, default=15)
parser.add_argument("--fine-days", type=int)
args = parser.parse_args()

MAKE = """
import math, os, sys, whisper
folder, series, step, count, end, fine, hours = sys.argv[1], *map(int, sys.argv[2:])
os.makedirs(folder)
for number in range(series):
    path = os.path.join(folder, "n%d.wsp" % number)
    whisper.create(path, [(step, fine)] + ([(3600, hours)] if hours else []))
    times = range(end - count * step, end, step)
    points = [(at, round(100 * math.sin(at / 7000 + number) + at * 7919 % 1000 / 100, 4)) for at in times]
    for first in range(0, count, 5000):  # whisper's time grows with the square of the number
        whisper.update_many(path, points[first : first + 5000])
"""
GO_CARBON = """[common]
user = ""
max-cpu = 2
[whisper]
data-dir = "{data}/whisper/"
schemas-file = "{data}/schemas.conf"
enabled = true
[udp]
enabled = false
[tcp]
listen = "127.0.0.1:{tcp}"
[pickle]
enabled = false
[carbonlink]
enabled = false
[grpc]
enabled = false
[carbonserver]
listen = "127.0.0.1:{carbonserver}"
enabled = true
query-cache-enabled = false
find-cache-enabled = false
trie-index = true
trigram-index = false
scan-frequency = "5m0s"
"""
CARBONAPI = """listeners: [{{address: "127.0.0.1:{carbonapi}"}}]
cache: {{type: "null"}}
backendCache: {{type: "null"}}
cpus: 2
upstreams:
  timeouts: {{find: "60s", render: "60s", connect: "1s"}}
  backends: ["http://127.0.0.1:{carbonserver}"]
"""


class Server(Process):
    """A process that is ready once `url` answers."""

    def __init__(self, command, data, url):
        with open(os.path.join(data, os.path.basename(command[0]) + ".log"), "w") as log:
            self.process = subprocess.Popen(command, cwd=data, stdout=log, stderr=log)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                urllib.request.urlopen(url, timeout=5).read()
                return
            except OSError:
                time.sleep(0.2)
        raise SystemExit("not started: %s\n%s" % (command, open(log.name).read()[-2000:]))


class System:
    def __init__(self, name, base, servers):
        self.name, self.base, self.servers, self.times_s, self.cpu_s = name, base, servers, [], 0.0

    def ask(self, query):
        before, began = self.cpu(), time.monotonic()
        answer = urllib.request.urlopen(self.base + "/render?" + query, timeout=60).read()
        self.times_s.append(time.monotonic() - began)
        self.cpu_s += self.cpu() - before
        return answer

    def cpu(self):
        return sum(server.cpu_seconds() for server in self.servers)


def make(folder, count, end_s, fine, hours):
    numbers = [args.series, args.step, count, end_s, fine, hours]
    subprocess.run([args.python, "-c", MAKE, folder + "/m", *map(str, numbers)], check=True)


def start(data, end_s):
    ports = {name: free_port() for name in ["floodmark", "tcp", "carbonserver", "carbonapi"]}
    count = args.days * 86_400 // args.step
    history, fine, hours = "/whisper", count + 1440, 0
    if args.fine_days is not None:
        history = "/all"
        make(data + history, count, end_s, fine, hours)
        fine, hours = args.fine_days * 86_400 // args.step, (args.days + 1) * 24
    make(data + "/whisper", count, end_s, fine, hours)
    retentions = "%d:%d" % (args.step, fine) + (",3600:%d" % hours if hours else "")
    texts = {"schemas.conf": "[all]\npattern = .*\nretentions = %s\n" % retentions, "go-carbon.conf": GO_CARBON,
             "carbonapi.yaml": CARBONAPI}
    for name, text in texts.items():
        with open(os.path.join(data, name), "w") as file:
            file.write(text if name == "schemas.conf" else text.format(data=data, **ports))
    schemas = "--graphite-schemas=" + data + "/schemas.conf"
    subprocess.run([FLOODMARK, "import", "whisper", data + history, "--data-dir", data + "/floodmark"], check=True, stdout=subprocess.DEVNULL)
    address = "http://127.0.0.1:%d"
    ours = Server([FLOODMARK, "serve", "--data-dir", data + "/floodmark", "--http", "127.0.0.1:%d" % ports["floodmark"], schemas,
                   "--self-monitoring-interval", "never"], data, address % ports["floodmark"] + "/-/ready")
    go_carbon = Server([args.go_carbon, "-config", data + "/go-carbon.conf"], data, address % ports["carbonserver"] + "/metrics/find/?query=*&format=json")
    carbonapi = Server([args.carbonapi, "-config", data + "/carbonapi.yaml"], data, address % ports["carbonapi"] + "/lb_check")
    return [System("floodmark", address % ports["floodmark"], [ours]),
            System("go-carbon with carbonapi", address % ports["carbonapi"], [go_carbon, carbonapi])]


def points(answer):
    return sum(value is not None for series in json.loads(answer) for value, _ in series["datapoints"])


end_s = int(time.time()) // args.step * args.step
QUERIES = {
    "all points": {"target": "m.*"},
    "at most 1,000 points a series": {"target": "m.*", "maxDataPoints": 1000},
    "sum of all": {"target": "sumSeries(m.*)", "maxDataPoints": 1000},
    "moving average of a day": {"target": 'movingAverage(m.*, "1d")', "maxDataPoints": 1000},
}
with tempfile.TemporaryDirectory(prefix="floodmark-bench-") as data:
    systems = start(data, end_s)
    print("%-32s %-26s %10s %10s %10s %10s" % ("query", "system", "median ms", "max ms", "CPU s", "points"))
    for name, query in QUERIES.items():
        counts = {}
        for run in range(args.runs + 2):
            until = end_s - run * args.step
            asked = urllib.parse.urlencode({**query, "from": until - (args.days - 1) * 86_400, "until": until, "format": "json"})
            for system in systems:
                answer = system.ask(asked)
                if run == args.runs + 1:  # reading takes this script longer than the servers need to write
                    counts[system.name] = points(answer)
                if run == 1:  # the first two requests are not counted
                    system.times_s, system.cpu_s = [], 0.0
        for system in systems:
            times_ms = [time_s * 1e3 for time_s in system.times_s]
            print("%-32s %-26s %10.1f %10.1f %10.2f %10d" % (
                name, system.name, statistics.median(times_ms), max(times_ms), system.cpu_s / args.runs, counts[system.name]), flush=True)
    for system in systems:
        for server in system.servers:
            server.process.terminate()
            server.process.wait()
