"""Serves graphite-web over the files and the cache of a carbon. For a Python that has graphite-web (`carbons.graphite_web`).

    PYTHON bench/graphite_web.py DATA PORT CACHE_QUERY_PORT

The files are in DATA/whisper. Points that carbon has not written yet come from its cache (CARBONLINK_HOSTS). Two processes answer requests. Nothing is
cached, and no request has a time limit.
"""

import ctypes
import logging
import os
import signal
import sys
import types
from wsgiref.simple_server import WSGIRequestHandler, make_server

WORKERS = 2
NO_LIMIT_S = 3600
PR_SET_PDEATHSIG = 1

# graphite-web's package has the name of a script beside this one
sys.path.pop(0)
data, port, cache = sys.argv[1:]
folder = os.path.join(data, "graphite-web")
os.makedirs(os.path.join(folder, "log", "webapp"), exist_ok=True)
local = types.ModuleType("graphite.local_settings")
local.STORAGE_DIR = folder
local.WHISPER_DIR = os.path.join(data, "whisper")
local.STANDARD_DIRS = [local.WHISPER_DIR]
local.SECRET_KEY = "of a benchmark"
local.TIME_ZONE = "UTC"
local.STORAGE_FINDERS = ("graphite.finders.standard.StandardFinder",)
local.CARBONLINK_HOSTS = ["127.0.0.1:" + cache]
local.CARBONLINK_TIMEOUT = 60.0
local.FIND_TIMEOUT = local.FETCH_TIMEOUT = NO_LIMIT_S
# there is only one place to search
local.USE_WORKER_POOL = False
local.LOG_FILE_INFO = local.LOG_FILE_EXCEPTION = local.LOG_FILE_CACHE = local.LOG_FILE_RENDERING = "-"
local.DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": os.path.join(folder, "database")}}
sys.modules["graphite.local_settings"] = local
os.environ["DJANGO_SETTINGS_MODULE"] = "graphite.settings"
logging.disable(logging.CRITICAL)

import django  # noqa: E402

django.setup()

from django.core.management import call_command  # noqa: E402
from django.core.wsgi import get_wsgi_application  # noqa: E402
from django.db import connections  # noqa: E402
from django.test import Client  # noqa: E402


class Quiet(WSGIRequestHandler):
    def log_message(self, *_):
        pass


call_command("migrate", run_syncdb=True, verbosity=0)
# graphite-web loads most of itself for its first requests, which takes more than a second
for path in ["/metrics/expand?query=none", "/render?target=none&format=json"]:
    Client(raise_request_exception=False).get(path)
connections.close_all()
server = make_server("127.0.0.1", int(port), get_wsgi_application(), handler_class=Quiet)
for _ in range(WORKERS - 1):
    if os.fork() == 0:
        # a benchmark ends only the first process
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        break
server.serve_forever()
