"""A graphite-web whose only data is that of a cluster server.

The first argument is the server's address, the others are paths. Prints the answers as a list of JSON: status and body.
"""

import json
import logging
import os
import sys
import tempfile
import types

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
local.CLUSTER_SERVERS = [sys.argv[1]]
local.STORAGE_FINDERS = ("graphite.finders.remote.RemoteFinder",)
local.FIND_TIMEOUT = local.FETCH_TIMEOUT = 60
local.CARBONLINK_HOSTS = []
local.USE_WORKER_POOL = False
local.LOG_FILE_INFO = local.LOG_FILE_EXCEPTION = local.LOG_FILE_CACHE = local.LOG_FILE_RENDERING = "-"
local.DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": os.path.join(ROOT.name, "database")}}
sys.modules["graphite.local_settings"] = local
os.environ["DJANGO_SETTINGS_MODULE"] = "graphite.settings"
logging.disable(logging.CRITICAL)

import django  # noqa: E402
import urllib3  # noqa: E402

if not hasattr(urllib3.HTTPResponse, "getheader"):
    # graphite-web calls a method that newer releases lack
    urllib3.HTTPResponse.getheader = lambda self, name, default=None: self.headers.get(name, default)

out = sys.stdout
sys.stdout = sys.stderr  # whatever graphite-web prints must not mix with the answers
django.setup()

from django.core.management import call_command  # noqa: E402
from django.test import Client  # noqa: E402

call_command("migrate", run_syncdb=True, verbosity=0)
answers = []
for path in sys.argv[2:]:
    answer = Client(raise_request_exception=False).get(path)
    body = b"".join(answer) if answer.streaming else answer.content
    answers.append({"status": answer.status_code, "body": body.decode("utf-8", "replace")})
json.dump(answers, out)
