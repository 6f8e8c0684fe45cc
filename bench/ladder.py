"""The stresser's ladder on Floodmark, go-carbon and carbon, with the account's disk figures beside ours.

    FLOODMARK=path/to/floodmark python3 bench/ladder.py [--preset stresser] [--duration 10m] [--json FOLDER] floodmark PROGRAM
    FLOODMARK=path/to/floodmark python3 bench/ladder.py [...] go-carbon PROGRAM CARBONAPI
    FLOODMARK=path/to/floodmark python3 bench/ladder.py [...] carbon ENVIRONMENT CARBONAPI GO_CARBON

FLOODMARK is the binary of the lab. ENVIRONMENT is a directory with a Python environment that has carbon and whisper. All systems keep a point a
minute for a day, and nothing is throttled. The lab reads everything back through /render: from go-carbon through carbonapi, and from carbon
through carbonapi and a go-carbon that only reads carbon's files, which is why carbon gets time to write them.

A row has the figures of a step: metrics a minute, the disk's busy time and its time for a request, the CPU and memory of the server, and the
time until a socket has taken a report. After the rows follow the points that were owed, lost and wrong, and the rules that were broken.
"""

import argparse
import json
import os
import socket
import subprocess
import tempfile
import time

from floodmark_bench import FLOODMARK, Process, free_port

parser = argparse.ArgumentParser()
parser.add_argument("--preset", default="stresser")
parser.add_argument("--duration", default="10m")
parser.add_argument("--json", help="folder for the lab's reports")
parser.add_argument("system", choices=["floodmark", "go-carbon", "carbon"])
parser.add_argument("program")
parser.add_argument("readers", nargs="*", help="carbonapi, and for carbon also go-carbon")
args = parser.parse_args()

SCHEMAS = "[default]\npattern = .*\nretentions = 60s:1d\n"
CARBON = """[cache]
STORAGE_DIR = {data}/storage/
CONF_DIR = {data}/conf/
LOG_DIR = {data}/storage/log/
PID_DIR = {data}/storage/
LOCAL_DATA_DIR = {data}/whisper/
USER =
MAX_CACHE_SIZE = inf
MAX_UPDATES_PER_SECOND = inf
MAX_CREATES_PER_MINUTE = inf
LINE_RECEIVER_INTERFACE = 127.0.0.1
LINE_RECEIVER_PORT = {lines}
PICKLE_RECEIVER_INTERFACE = 127.0.0.1
PICKLE_RECEIVER_PORT = {pickle}
CACHE_QUERY_INTERFACE = 127.0.0.1
CACHE_QUERY_PORT = {query}
LOG_UPDATES = False
LOG_CREATES = False
CACHE_WRITE_STRATEGY = sorted
WHISPER_FALLOCATE_CREATE = True
ENABLE_TAGS = False
"""
# all caches of answers and of names are off, because the lab asks for names that are new
GO_CARBON = """[common]
user = ""
max-cpu = 2
metric-interval = "1m0s"
[whisper]
data-dir = "{data}/whisper/"
schemas-file = "{data}/conf/storage-schemas.conf"
workers = 2
enabled = {writes}
[cache]
max-size = 10000000
[udp]
enabled = false
[tcp]
listen = "127.0.0.1:{tcp}"
enabled = {writes}
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
glob-cache-enabled = false
trie-index = false
trigram-index = false
scan-frequency = "0s"
read-timeout = "120s"
write-timeout = "120s"
request-timeout = "120s"
max-globs = 1000000
[[logging]]
logger = ""
file = "stderr"
level = "error"
"""
# with a limit on the metrics of a request, carbonapi leaves out those of all but one request
CARBONAPI = """listeners: [{{address: "127.0.0.1:{http}"}}]
cache: {{type: "null"}}
backendCache: {{type: "null"}}
cpus: 2
upstreams:
  maxBatchSize: 0
  timeouts: {{find: "60s", render: "60s", connect: "1s"}}
  backends: ["http://127.0.0.1:{carbonserver}"]
logger: [{{logger: "", file: "stderr", level: "error", encoding: "console"}}]
"""


class Server(Process):
    """A process that is ready once it listens on `port`."""

    def __init__(self, command, data, port):
        environment = {**os.environ, "GRAPHITE_ROOT": data, "GRAPHITE_CONF_DIR": data + "/conf", "GRAPHITE_STORAGE_DIR": data + "/storage"}
        path = os.path.join(data, os.path.basename(command[0]) + ".log")
        with open(path, "w") as log:
            self.process = subprocess.Popen(command, cwd=data, env=environment, stdout=log, stderr=log)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                return
            except OSError:
                time.sleep(0.1)
        raise SystemExit("not started: %s\n%s" % (command, open(path).read()[-2000:]))


def start(data):
    """Starts the servers. The first takes the points. Returns them with their ports and the directory of the first one's data."""
    ports = {name: free_port() for name in ["lines", "pickle", "query", "http", "carbonserver"]}
    names = {**ports, "data": data, "writes": str(args.system == "go-carbon").lower()}
    names["tcp"] = ports["lines"] if args.system == "go-carbon" else free_port()
    for folder in ["conf", "storage/log", "whisper"]:
        os.makedirs(os.path.join(data, folder))
    for name, text in [("carbon.conf", CARBON), ("go-carbon.conf", GO_CARBON), ("carbonapi.yaml", CARBONAPI), ("storage-schemas.conf", SCHEMAS)]:
        with open(os.path.join(data, "conf", name), "w") as file:
            file.write(text if text is SCHEMAS else text.format(**names))
    address = "127.0.0.1:%d"
    if args.system == "floodmark":
        command = [args.program, "serve", "--data-dir", data + "/floodmark", "--http", address % ports["http"], "--graphite",
                   address % ports["lines"], "--graphite-schemas", data + "/conf/storage-schemas.conf", "--self-monitoring-interval", "never"]
        return [Server(command, data, ports["lines"])], ports, data + "/floodmark"
    servers = []
    if args.system == "carbon":
        carbon = [args.program + "/bin/python", args.program + "/bin/carbon-cache.py", "--config=" + data + "/conf/carbon.conf", "--nodaemon", "start"]
        servers.append(Server(carbon, data, ports["lines"]))
    go_carbon = args.program if args.system == "go-carbon" else args.readers[1]
    servers.append(Server([go_carbon, "-config", data + "/conf/go-carbon.conf"], data, ports["carbonserver"]))
    servers.append(Server([args.readers[0], "-config", data + "/conf/carbonapi.yaml"], data, ports["http"]))
    return servers, ports, data + "/whisper"


def run(server, ports, folder):
    """The lab's report."""
    settings = {"target.read": "http://127.0.0.1:%d" % ports["http"], "target.data_dir": folder, "verify.patience": "300s"}
    command = [FLOODMARK, "lab", "run", args.preset, "--pid", str(server.process.pid), "--duration", args.duration, "--json", "--quiet"]
    command += ["--target", "tcp://127.0.0.1:%d" % ports["lines"]]
    command += [flag for name, value in settings.items() for flag in ("--set", "%s=%s" % (name, value))]
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE).stdout)


def show(report):
    columns = {"metrics/min": ("samples_per_s", 60), "busy %": ("disk_util", 100), "await ms": ("disk_await_s", 1000), "CPU cores": ("cpu_cores", 1),
               "RSS MiB": ("memory_bytes", 2**-20), "p99 ms": ("p99_s", 1000)}
    print("%s, %s, %s" % (args.system, args.preset, args.duration))
    print("".join("%13s" % column for column in columns))
    for step in report["steps"]:
        figures = {**step, **(step.get("latency") or {})}
        # a figure is missing if nothing was measured, such as the time of a request while the disk had none
        shown = ["-" if figures.get(name) is None else "%.2f" % (figures[name] * factor) for name, factor in columns.values()]
        print("".join("%13s" % figure for figure in shown))
    verify = report["verify"]
    print("sent %d, owed %d, lost %d, wrong %d, superseded %d" % (
        report["totals"]["samples_acknowledged"], verify["acknowledged"], verify["lost"], verify["wrong"], verify["superseded"]))
    broken = ["%s %s (measured: %s)" % (rule["rule"], rule["limit"], rule["measured"]) for rule in report["verdict"] if not rule["pass"]]
    print("rules broken: " + (", ".join(broken) or "none"), flush=True)


with tempfile.TemporaryDirectory(prefix="floodmark-bench-") as data:
    servers, ports, folder = start(data)
    try:
        report = run(servers[0], ports, folder)
    finally:
        for server in servers:
            server.process.terminate()
            server.process.wait()
if args.json:
    os.makedirs(args.json, exist_ok=True)
    with open(os.path.join(args.json, "%s-%s.json" % (args.system, args.preset)), "w") as file:
        json.dump(report, file)
show(report)
