"""Carbon, graphite-web, go-carbon and carbonapi for the benchmarks: their configuration, and how to start them.

All keep a point a minute for a day, unless the benchmark says otherwise, and nothing is throttled.
"""

import os
import socket
import subprocess
import time

from floodmark_bench import Process

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
listen = "127.0.0.1:{lines}"
enabled = {lines_enabled}
[pickle]
listen = "127.0.0.1:{pickle}"
enabled = {pickle_enabled}
[carbonlink]
enabled = false
[grpc]
enabled = false
[carbonserver]
listen = "127.0.0.1:{carbonserver}"
enabled = {carbonserver_enabled}
query-cache-enabled = false
find-cache-enabled = false
glob-cache-enabled = false
trie-index = {trie}
trigram-index = false
scan-frequency = "{scan}"
no-service-when-index-is-not-ready = {trie}
max-metrics-globbed = 100000000
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


def go_carbon(data, lines=None, pickle=None, carbonserver=None, trie=False):
    """The configuration of a go-carbon that listens on those ports that are given. Without `lines` and `pickle`, it only reads files. All caches
    of answers and of names are off. With `trie`, it reads all names into an index when it starts, and answers no search before."""
    names = {"lines": lines, "pickle": pickle, "carbonserver": carbonserver}
    enabled = {name + "_enabled": str(port is not None).lower() for name, port in names.items()}
    ports = {name: port or 0 for name, port in names.items()}
    writes = str(lines is not None or pickle is not None).lower()
    scan = "24h" if trie else "0s"
    return GO_CARBON.format(data=data, writes=writes, trie=str(trie).lower(), scan=scan, **ports, **enabled)


def write_configuration(data, **texts):
    """Writes files into the directory `conf`, with the name of each as a key, but with `_` for `-` and without `.conf`; and makes the other
    directories that carbon needs."""
    for folder in ["conf", "storage/log", "whisper"]:
        os.makedirs(os.path.join(data, folder), exist_ok=True)
    for name, text in texts.items():
        with open(os.path.join(data, "conf", name.replace("_", "-") + ".conf"), "w") as file:
            file.write(text)


def carbon_command(environment, data):
    """Starts carbon-cache of a Python environment."""
    return [environment + "/bin/python", environment + "/bin/carbon-cache.py", "--config=" + data + "/conf/carbon.conf", "--nodaemon", "start"]


def graphite_web(environment, data, http, query):
    """Starts graphite-web of a Python environment over carbon's files and its cache, whose port for queries is `query`."""
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "graphite_web.py")
    return Server([environment + "/bin/python", script, data, str(http), str(query)], data, http)


class Server(Process):
    """A process that is ready once it listens on `port`. Its output is in a file of `data` with its name and port."""

    def __init__(self, command, data, port):
        environment = {**os.environ, "GRAPHITE_ROOT": data, "GRAPHITE_CONF_DIR": data + "/conf", "GRAPHITE_STORAGE_DIR": data + "/storage"}
        path = os.path.join(data, "%s-%d.log" % (os.path.basename(command[0]), port))
        with open(path, "w") as log:
            self.process = subprocess.Popen(command, cwd=data, env=environment, stdout=log, stderr=log)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                return
            except OSError:
                time.sleep(0.05)
        raise SystemExit("not started: %s\n%s" % (command, open(path).read()[-2000:]))

    def stop(self):
        self.process.terminate()
        self.process.wait()
