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
import subprocess
import tempfile

from carbons import CARBON, CARBONAPI, SCHEMAS, Server, carbon_command, go_carbon, write_configuration
from floodmark_bench import FLOODMARK, free_port

parser = argparse.ArgumentParser()
parser.add_argument("--preset", default="stresser")
parser.add_argument("--duration", default="10m")
parser.add_argument("--json", help="folder for the lab's reports")
parser.add_argument("system", choices=["floodmark", "go-carbon", "carbon"])
parser.add_argument("program")
parser.add_argument("readers", nargs="*", help="carbonapi, and for carbon also go-carbon")
args = parser.parse_args()


def start(data):
    """Starts the servers. The first takes the points. Returns them with their ports and the directory of the first one's data."""
    ports = {name: free_port() for name in ["lines", "pickle", "query", "http", "carbonserver"]}
    lines = ports["lines"] if args.system == "go-carbon" else None
    write_configuration(data, storage_schemas=SCHEMAS, carbon=CARBON.format(data=data, **ports), carbonapi=CARBONAPI.format(**ports),
                        go_carbon=go_carbon(data, lines=lines, carbonserver=ports["carbonserver"]))
    address = "127.0.0.1:%d"
    if args.system == "floodmark":
        command = [args.program, "serve", "--data-dir", data + "/floodmark", "--http", address % ports["http"], "--graphite",
                   address % ports["lines"], "--graphite-schemas", data + "/conf/storage-schemas.conf", "--self-monitoring-interval", "never"]
        return [Server(command, data, ports["lines"])], ports, data + "/floodmark"
    servers = [Server(carbon_command(args.program, data), data, ports["lines"])] if args.system == "carbon" else []
    reader = args.program if args.system == "go-carbon" else args.readers[1]
    servers.append(Server([reader, "-config", data + "/conf/go-carbon.conf"], data, ports["carbonserver"]))
    servers.append(Server([args.readers[0], "-config", data + "/conf/carbonapi.conf"], data, ports["http"]))
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
    if verify is None:
        print("not read back: " + "; ".join(report["warnings"]))
        return
    print("sent %d, owed %d, lost %d, wrong %d, superseded %d" % (
        report["totals"]["samples_acknowledged"], verify["acknowledged"], verify["lost"], verify["wrong"], verify["superseded"]))
    broken = ["%s %s (measured: %s)" % (rule["rule"], rule["limit"], rule["measured"]) for rule in report["verdict"] if not rule["pass"]]
    print("rules broken: " + (", ".join(broken) or "none"), flush=True)


with tempfile.TemporaryDirectory(prefix="floodmark-bench-") as data:
    servers, ports, folder = start(data)
    try:
        report = run(servers[0], ports, folder)
    finally:
        [server.stop() for server in servers]
if args.json:
    os.makedirs(args.json, exist_ok=True)
    with open(os.path.join(args.json, "%s-%s.json" % (args.system, args.preset)), "w") as file:
        json.dump(report, file)
show(report)
