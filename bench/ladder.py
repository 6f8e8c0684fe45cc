"""The stresser's ladder on Floodmark, go-carbon and carbon, with the disk figures of the published account beside ours.

    FLOODMARK=path/to/floodmark python3 bench/ladder.py [--preset stresser] [--duration 10m] [--set KEY=VALUE] [--json FOLDER] floodmark PROGRAM
    FLOODMARK=path/to/floodmark python3 bench/ladder.py [...] go-carbon PROGRAM CARBONAPI
    FLOODMARK=path/to/floodmark python3 bench/ladder.py [...] carbon ENVIRONMENT

FLOODMARK is the binary of the lab. ENVIRONMENT is a directory with a Python environment that has carbon, whisper and graphite-web. All systems keep a
point a minute for a day, and nothing is throttled. The lab reads everything back through /render: from go-carbon through carbonapi, and from carbon
through graphite-web (bench/graphite_web.py), which also asks carbon's cache. Their CPU and memory are not in the figures.

A row has the figures of a step: metrics a minute, the disk's busy time and its time for a request, each beside the account's figure for the
preset's step, the CPU and memory of the server, and the time until a socket has taken a report. In the preset × 100,
new series come in the first half of a step, which its figures leave out. In the presets × 20 and × 100, the account's figures
are still those of its single host. After the rows follow the points that were owed, lost and wrong, the time that the read-back took, and the rules
that were broken. For Floodmark, also the series that it created and the points that it dropped: if it drops one, nothing that came on the same
connection is owed, so prefer a longer `--duration`. `--set load.reconnect=1m` limits this to a minute, at the cost of the latency.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import urllib.request

from carbons import CARBON, CARBONAPI, SCHEMAS, Server, carbon_command, go_carbon, graphite_web, write_configuration
from floodmark_bench import FLOODMARK, free_port

parser = argparse.ArgumentParser()
parser.add_argument("--preset", default="stresser")
parser.add_argument("--duration", help="of all steps together, by default that of the preset")
parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="changes a key of the preset")
parser.add_argument("--json", help="folder for the lab's reports")
parser.add_argument("system", choices=["floodmark", "go-carbon", "carbon"])
parser.add_argument("program")
parser.add_argument("readers", nargs="*", help="for go-carbon, carbonapi")
args = parser.parse_args()
if len(args.readers) != (args.system == "go-carbon"):
    parser.error("go-carbon needs carbonapi, and others need no reader")

# graphite-web reads a series in about a millisecond, so its answers must be small or may take long
SETTINGS = {"carbon": {"verify.page": "50000", "target.timeout": "120s"}}


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
    if args.system == "carbon":
        servers = [Server(carbon_command(args.program, data), data, ports["lines"])]
        servers.append(graphite_web(args.program, data, ports["http"], ports["query"]))
    else:
        servers = [Server([args.program, "-config", data + "/conf/go-carbon.conf"], data, ports["carbonserver"])]
        servers.append(Server([args.readers[0], "-config", data + "/conf/carbonapi.conf"], data, ports["http"]))
    return servers, ports, data + "/whisper"


def run(server, ports, folder):
    """The lab's report."""
    settings = {"target.read": "http://127.0.0.1:%d" % ports["http"], "target.data_dir": folder, "verify.patience": "300s", **SETTINGS.get(args.system, {})}
    command = [FLOODMARK, "lab", "run", args.preset, "--pid", str(server.process.pid), "--json", *([] if sys.stderr.isatty() else ["--quiet"])]
    command += ["--duration", args.duration] if args.duration else []
    command += ["--target", "tcp://127.0.0.1:%d" % ports["lines"]]
    changes = ["%s=%s" % item for item in settings.items()] + args.set
    command += [flag for change in changes for flag in ("--set", change)]
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE).stdout)


def created_and_dropped(ports):
    """What Floodmark counts of new series: those that it created, and the points that it dropped, by reason."""
    text = urllib.request.urlopen("http://127.0.0.1:%d/metrics" % ports["http"], timeout=60).read().decode()
    counts = {line.rsplit(" ", 1)[0]: int(float(line.rsplit(" ", 1)[1])) for line in text.splitlines() if not line.startswith("#")}
    prefix = "floodmark_graphite_dropped_points_total{"
    dropped = {name[len(prefix) : -1]: count for name, count in counts.items() if name.startswith(prefix) and count}
    return counts["floodmark_head_series_created_total"], dropped


def published(report, step, what):
    """The account's figure for a step, with its range if it has one. "-" if it has none."""
    for figure in report["account"]:
        if figure.get("step") == step and figure["what"] == what:
            low, value = figure.get("low"), figure["value"]
            return "%g" % value if low is None else "%g-%g" % (low, value)
    return "-"


def show(report):
    columns = {"metrics/min": ("samples_per_s", 60, None), "busy %": ("disk_util", 100, "busy"), "await ms": ("disk_await_s", 1000, "await"),
               "CPU cores": ("cpu_cores", 1, None), "RSS MiB": ("memory_bytes", 2**-20, None), "p99 ms": ("p99_s", 1000, None)}
    print("%s, %s, %.0f s" % (args.system, args.preset, report["wall_s"]))
    heads = []
    for column, (_, _, what) in columns.items():
        heads += [column] if what is None else [column, "account's"]
    print("".join("%13s" % head for head in heads))
    for number, step in enumerate(report["steps"], 1):
        figures, row = {**step, **(step.get("latency") or {})}, []
        for name, factor, what in columns.values():
            # a figure is missing if nothing was measured, such as the time of a request while the disk had none
            row.append("-" if figures.get(name) is None else "%.2f" % (figures[name] * factor))
            if what is not None:
                row.append(published(report, number, what))
        print("".join("%13s" % figure for figure in row))
    verify = report["verify"]
    if verify is None:
        print("not read back: " + "; ".join(report["warnings"]))
        return
    print("sent %d, owed %d, lost %d, wrong %d, superseded %d" % (
        report["totals"]["samples_acknowledged"], verify["acknowledged"], verify["lost"], verify["wrong"], verify["superseded"]))
    print("read back in %.0f s by %d queries" % (verify["wall_s"], verify["queries"]))
    broken = ["%s %s (measured: %s)" % (rule["rule"], rule["limit"], rule["measured"]) for rule in report["verdict"] if not rule["pass"]]
    print("rules broken: " + (", ".join(broken) or "none"), flush=True)


with tempfile.TemporaryDirectory(prefix="floodmark-bench-") as data:
    servers, ports, folder = start(data)
    try:
        report = run(servers[0], ports, folder)
        # first, because a server that has failed may not even answer the last question
        if args.json:
            os.makedirs(args.json, exist_ok=True)
            with open(os.path.join(args.json, "%s-%s.json" % (args.system, args.preset)), "w") as file:
                json.dump(report, file)
        show(report)
        if args.system == "floodmark":
            created, dropped = created_and_dropped(ports)
            print("created %d series, dropped %s" % (created, dropped or "no points"))
    finally:
        [server.stop() for server in servers]
