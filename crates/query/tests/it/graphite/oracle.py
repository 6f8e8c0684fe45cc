"""Answers Graphite targets with the real graphite-web, for differential tests.

Reads requests as JSON from standard input, one per line, and writes one line of JSON for each. One process answers
thousands of targets: graphite-web's evaluator, finders and Whisper run inside it, without HTTP. Times are Unix
seconds. The clock that graphite-web sees is the request's `now`.

    {"load": {"now": 1, "series": [{"name": "a.b;k=v", "step": 60, "points": 20160, "start": 60, "values": [1, null]}]}}
        writes Whisper files with one archive of `points` slots, and adds series with tags to the tag database. With
        "archives": [[60, 120], [300, 288]], "method": "sum" and "xFilesFactor": 0.5 instead of `points`, files with these
        archives, to which the values are written hour by hour, as they would have arrived
    {"tag": ["a.b;k=v"]}
        adds series without files to the tag database
    {"event": {"when": 1, "what": "deploy", "tags": "a b"}}
    {"render": {"now": 1, "from": 0, "until": 1, "target": "a.*", "xFilesFactor": 0.5, "timeZone": "UTC", "template": {}}}
        answers {"series": [...]} or {"error": "...", "kind": "InputParameterError"}
    {"http": {"now": 1, "path": "/render?target=a.*&format=json"}}
        sends a request through the whole application; answers {"status": 200, "type": "application/json", "body": "..."}
    {"serve": true}
        begins to serve the whole application over HTTP, for carbonapi; answers {"port": 1}. The clock is that of the request before
    {"times": {"now": 1, "timeZone": "UTC", "texts": ["-1h", "soon"]}}
        parses times in the style of `at`; answers {"times": [1, null]}, with null for what is refused
    {"functions": true}
        answers {"functions": {"absolute": {"group": "Transform", "params": [...]}}}
"""

import json
import logging
import math
import os
import sys
import tempfile
import threading
import types
from datetime import datetime
from wsgiref.simple_server import WSGIRequestHandler, make_server

ROOT = tempfile.TemporaryDirectory(prefix="floodmark-graphite-")
WHISPER = os.path.join(ROOT.name, "whisper")
os.makedirs(WHISPER)
os.makedirs(os.path.join(ROOT.name, "log", "webapp"))

local = types.ModuleType("graphite.local_settings")
local.STORAGE_DIR = ROOT.name
local.WHISPER_DIR = WHISPER
local.STANDARD_DIRS = [WHISPER]
local.SECRET_KEY = "of a test"
local.TIME_ZONE = "UTC"
local.STORAGE_FINDERS = ("graphite.finders.standard.StandardFinder",)
local.CARBONLINK_HOSTS = []
local.USE_WORKER_POOL = False
local.LOG_FILE_INFO = local.LOG_FILE_EXCEPTION = local.LOG_FILE_CACHE = local.LOG_FILE_RENDERING = "-"
local.DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": os.path.join(ROOT.name, "database")}}
sys.modules["graphite.local_settings"] = local
os.environ["DJANGO_SETTINGS_MODULE"] = "graphite.settings"
logging.disable(logging.CRITICAL)
sys.setrecursionlimit(10_000)

import django  # noqa: E402
import pytz  # noqa: E402
import whisper  # noqa: E402

whisper.AUTOFLUSH = False
django.setup()

from django.core.management import call_command  # noqa: E402
from django.core.wsgi import get_wsgi_application  # noqa: E402
from django.test import Client  # noqa: E402
from graphite.errors import InputParameterError  # noqa: E402
from graphite.events.models import Event  # noqa: E402
from graphite.functions import SeriesFunctions  # noqa: E402
from graphite.render import attime  # noqa: E402
from graphite.render.evaluator import evaluateTarget  # noqa: E402
from graphite.storage import STORE  # noqa: E402
from graphite.tags.utils import TaggedSeries  # noqa: E402

NOW = 0


class FrozenClock(datetime):
    """The `datetime` that at-style times use, with the clock of the request."""

    @classmethod
    def now(cls, tz=None):
        return datetime.fromtimestamp(NOW, tz)


attime.datetime = FrozenClock


def load(request):
    for series in request["series"]:
        if ";" in series["name"]:
            STORE.tagdb.tag_series(series["name"])
        path = os.path.join(WHISPER, TaggedSeries.encode(series["name"], sep=os.sep) + ".wsp")
        os.makedirs(os.path.dirname(path), exist_ok=True)
        archives = series.get("archives") or [[series["step"], series["points"]]]
        archives = [tuple(archive) for archive in archives]
        x_files_factor, method = series.get("xFilesFactor", 0.5), series.get("method", "average")
        whisper.create(path, archives, xFilesFactor=x_files_factor, aggregationMethod=method)
        times = range(series["start"], series["start"] + len(series["values"]) * series["step"], series["step"])
        points = [(t, v) for t, v in zip(times, series["values"]) if v is not None]
        with open(path, "r+b") as file:
            for now, arrived in arrivals(points, request["now"], len(archives) > 1):
                whisper.file_update_many(file, arrived[::-1], now=now)
    return {}


def arrivals(points, now, is_by_hour):
    """Times, and the points that arrive at each."""
    if not is_by_hour:
        return [(now, points)]
    hours = {}
    for point in points:
        hours.setdefault(point[0] // 3600, []).append(point)
    return [(min(hour * 3600 + 3599, now), hours[hour]) for hour in sorted(hours)]


def tag(names):
    for name in names:
        STORE.tagdb.tag_series(name)
    return {}


def event(request):
    when = datetime.fromtimestamp(request["when"], pytz.utc)
    Event.objects.create(when=when, what=request["what"], tags=request["tags"])
    return {}


def render(request):
    global NOW
    NOW = request["now"]
    zone = pytz.timezone(request.get("timeZone", "UTC"))
    context = {
        "startTime": datetime.fromtimestamp(request["from"], zone),
        "endTime": datetime.fromtimestamp(request["until"], zone),
        "now": datetime.fromtimestamp(request["now"], zone),
        "localOnly": False,
        "template": request.get("template") or {},
        "tzinfo": zone,
        "forwardHeaders": {},
        "sourceIdHeaders": {},
        "data": [],
        "prefetched": {},
        "xFilesFactor": request.get("xFilesFactor"),
        "maxDataPoints": None,
        "targets": [request["target"]],
        "maxStep": None,
    }
    try:
        found = evaluateTarget(context, [request["target"]])
        return {"series": [describe(series) for series in found]}
    except InputParameterError as error:
        return {"error": str(error), "kind": "InputParameterError"}
    except Exception as error:  # graphite-web answers these with status 500
        return {"error": repr(error), "kind": type(error).__name__}


def describe(series):
    # values are what JSON of /render has without `maxDataPoints`, and names are what it shows
    return {
        "name": str(series.name),
        "start": series.start,
        "end": series.end,
        "step": series.step * series.valuesPerPoint,
        "values": [number(value) for value in series],
        "tags": dict(series.tags),
    }


def number(value):
    if value is None or math.isnan(value):
        return None
    if math.isinf(value):
        return str(value)  # JSON has no infinite numbers
    return float(value)


def http(request):
    global NOW
    NOW = request["now"]
    answer = Client(raise_request_exception=False).get(request["path"])
    body = b"".join(answer) if answer.streaming else answer.content
    return {"status": answer.status_code, "type": answer.get("Content-Type"), "body": body.decode("utf-8", "replace")}


class Quiet(WSGIRequestHandler):
    def log_message(self, *_):
        pass


def serve(_):
    application = get_wsgi_application()

    def at_now(environ, start_response):
        environ["QUERY_STRING"] += "&now=%d" % NOW
        return application(environ, start_response)

    server = make_server("127.0.0.1", 0, at_now, handler_class=Quiet)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return {"port": server.server_port}


def times(request):
    zone = pytz.timezone(request["timeZone"])
    now = datetime.fromtimestamp(request["now"], zone)

    def seconds(text):
        try:
            return int(attime.parseATTime(text, zone, now).timestamp())
        except Exception:  # graphite-web answers these with status 400 or 500
            return None

    return {"times": [seconds(text) for text in request["texts"]]}


def functions(_):
    return {
        "functions": {
            name: {"group": function.group, "params": [parameter(param) for param in function.params]}
            for name, function in SeriesFunctions().items()
        }
    }


def parameter(param):
    # defaults may be infinite, which JSON cannot say
    return {key: value for key, value in param.toJSON().items() if key != "default"}


def main():
    handlers = {"load": load, "tag": tag, "event": event, "render": render, "functions": functions, "http": http, "serve": serve, "times": times}
    out = sys.stdout
    sys.stdout = sys.stderr  # whatever graphite-web prints must not mix with the answers
    call_command("migrate", run_syncdb=True, verbosity=0)
    for line in sys.stdin:
        ((verb, request),) = json.loads(line).items()
        answer = handlers[verb](request)
        out.write(json.dumps(answer, allow_nan=False) + "\n")
        out.flush()


main()
