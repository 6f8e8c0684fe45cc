#!/bin/sh
# Installs the real servers that the end-to-end tests use. Installed programs are not installed again, so a second run
# takes no time. Prints a line for each program that cannot be installed. Tests that need the program are then skipped,
# and report this. Always exits with 0.
#
#   FLOODMARK_CACHE   directory for the binaries [default: ~/.cache/floodmark]
set -u

cache=${FLOODMARK_CACHE:-$HOME/.cache/floodmark}
bin=$cache/bin

# Module version of Prometheus 3.5 LTS. Newer versions need modules that some proxies do not have.
prometheus_version=v0.305.0

versitygw_version=v1.8.0

have() { command -v "$1" >/dev/null 2>&1; }
missing() { echo "test-servers: cannot install $1: $2" >&2; }

# Debian's packages: a node exporter to scrape, and Prometheus 2 in case Prometheus 3 cannot be built. For Graphite: a
# relay, and programs that send.
wanted=
have prometheus || wanted="$wanted prometheus"
have carbon-c-relay || wanted="$wanted carbon-c-relay"
have collectd || [ -x /usr/sbin/collectd ] || wanted="$wanted collectd-core"
[ -n "$(find /usr/lib* -name omelasticsearch.so 2>/dev/null)" ] || wanted="$wanted rsyslog rsyslog-elasticsearch"
have nc || wanted="$wanted netcat-openbsd"
have prometheus-node-exporter || have node_exporter || wanted="$wanted prometheus-node-exporter"
if [ -n "$wanted" ]; then
    if ! have apt-get; then
        missing "$wanted" "apt-get is missing; install the packages by hand"
    elif [ "$(id -u)" -ne 0 ]; then
        missing "$wanted" "run as root, or: sudo apt-get install -y --no-install-recommends$wanted"
    else
        echo "test-servers: installing$wanted"
        # a new machine has no package lists yet, so a failure is retried after an update
        # shellcheck disable=SC2086 # a list of words
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $wanted >/dev/null 2>&1 ||
            { apt-get update -qq >/dev/null 2>&1 &&
                DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $wanted >/dev/null 2>&1; } ||
            missing "$wanted" "apt-get failed"
    fi
fi

# Prometheus 3, for remote write 2.0, and promtool, which creates blocks. The build takes some minutes, but only once.
build_prometheus() {
    work=$(mktemp -d) || return 1
    log=$cache/prometheus-build.log
    echo "test-servers: building Prometheus $prometheus_version into $bin (minutes; log in $log)"
    (
        cd "$work" &&
            go mod init floodmark/prometheus &&
            go get "github.com/prometheus/prometheus/cmd/prometheus@$prometheus_version" &&
            go get "github.com/prometheus/prometheus/cmd/promtool@$prometheus_version" &&
            nice -n 10 go build -o "$bin/prometheus.new" github.com/prometheus/prometheus/cmd/prometheus &&
            nice -n 10 go build -o "$bin/promtool.new" github.com/prometheus/prometheus/cmd/promtool &&
            mv "$bin/prometheus.new" "$bin/prometheus" && mv "$bin/promtool.new" "$bin/promtool"
    ) >"$log" 2>&1
    built=$?
    rm -rf "$work"
    return $built
}

mkdir -p "$bin"
if [ ! -x "$bin/prometheus" ] || [ ! -x "$bin/promtool" ]; then
    if ! have go; then
        missing "Prometheus 3" "the Go toolchain is missing"
    else
        build_prometheus || missing "Prometheus 3" "the build failed, see $cache/prometheus-build.log"
    fi
fi

# Prometheus' own PromQL test scripts, from the source of its module.
scripts=$cache/promqltest-$prometheus_version
if [ ! -d "$scripts" ]; then
    if ! have go; then
        missing "Prometheus' PromQL scripts" "the Go toolchain is missing"
    else
        source=$(cd "$bin" && go mod download -json "github.com/prometheus/prometheus@$prometheus_version" 2>/dev/null |
            sed -n 's/^[[:space:]]*"Dir": "\(.*\)",\{0,1\}$/\1/p')
        if [ -n "$source" ] && cp -r "$source/promql/promqltest/testdata" "$scripts.new" && chmod -R u+w "$scripts.new"; then
            mv "$scripts.new" "$scripts"
        else
            missing "Prometheus' PromQL scripts" "their source cannot be downloaded"
        fi
    fi
fi

# An S3 service that stores objects as files.
if [ ! -x "$bin/versitygw" ]; then
    if ! have go; then
        missing "versitygw" "the Go toolchain is missing"
    else
        echo "test-servers: building versitygw $versitygw_version into $bin"
        GOBIN=$bin nice -n 10 go install "github.com/versity/versitygw/cmd/versitygw@$versitygw_version" \
            >"$cache/versitygw-build.log" 2>&1 || missing "versitygw" "the build failed, see $cache/versitygw-build.log"
    fi
fi

# Builds a command of a module. In a module of its own with `-mod=mod`, the build needs only what the command imports. The
# version list of the module is not asked for, because some proxies do not have it.
build_command() {
    name=$1 module=$2 version=$3 package=$4 tags=$5
    # other tags are another program
    [ -x "$bin/$name" ] && [ "$tags" = "$(cat "$bin/$name.tags" 2>/dev/null)" ] && return 0
    have go || { missing "$name" "the Go toolchain is missing"; return 1; }
    echo "test-servers: building $name $version into $bin"
    work=$(mktemp -d) || return 1
    (
        cd "$work" &&
            go mod init floodmark/build &&
            go mod edit "-require=$module@$version" &&
            nice -n 10 go build -mod=mod -tags "$tags" -o "$bin/$name.new" "$package" &&
            mv "$bin/$name.new" "$bin/$name" && printf %s "$tags" >"$bin/$name.tags"
    ) >"$cache/$name-build.log" 2>&1 || missing "$name" "the build failed, see $cache/$name-build.log"
    rm -rf "$work"
}

# A second reference for the Graphite functions.
carbonapi_module=github.com/go-graphite/carbonapi
build_command carbonapi "$carbonapi_module" v0.18.2 "$carbonapi_module/cmd/carbonapi" ""

# A collector that sends Graphite, Influx' lines, remote write, OpenTelemetry and Loki's requests, with the only plug-ins that the tests use.
telegraf_module=github.com/influxdata/telegraf
telegraf_tags=custom,inputs.mem,inputs.exec,outputs.graphite,outputs.http,outputs.influxdb,outputs.influxdb_v2,outputs.loki,outputs.opentelemetry
telegraf_tags=$telegraf_tags,serializers.graphite,serializers.influx,serializers.prometheusremotewrite,parsers.influx
build_command telegraf "$telegraf_module" v1.37.2 "$telegraf_module/cmd/telegraf" "$telegraf_tags"

# A collector that sends remote write with zstd.
vm_module=github.com/VictoriaMetrics/VictoriaMetrics
build_command vmagent "$vm_module" v1.151.0 "$vm_module/app/vmagent" ""

# A load generator that sends its results as OpenTelemetry and as remote write.
build_command k6 go.k6.io/k6 v1.8.1 go.k6.io/k6 ""

# Builds a program whose source is in a folder of the tests. `go.mod` and `go.sum` there say which versions it needs. The program
# is built again when its source changes.
build_own() {
    name=$1 folder=$tests/$2
    sources=$(cat "$folder"/* | cksum)
    [ -x "$bin/$name" ] && [ "$sources" = "$(cat "$bin/$name.sources" 2>/dev/null)" ] && return 0
    have go || { missing "$name" "the Go toolchain is missing"; return 1; }
    echo "test-servers: building $name into $bin"
    (
        cd "$folder" &&
            nice -n 10 go build -mod=readonly -buildvcs=false -o "$bin/$name.new" . &&
            mv "$bin/$name.new" "$bin/$name" && printf %s "$sources" >"$bin/$name.sources"
    ) >"$cache/$name-build.log" 2>&1 || missing "$name" "the build failed, see $cache/$name-build.log"
}

# A program with OpenTelemetry's SDK for Go, and a collector with the components that can send here.
tests=$(cd "$(dirname "$0")/../crates/floodmark/tests/it" && pwd)
build_own otel-sdk-go senders/sdk
build_own otelcol senders/collector

# An emulator of Azure's blob storage; it runs on Node.
azurite_version=3.37.0
if [ ! -x "$bin/azurite-blob" ]; then
    if ! have npm; then
        missing "azurite" "npm is missing"
    else
        echo "test-servers: installing azurite $azurite_version into $cache/azurite"
        mkdir -p "$cache/azurite" &&
            npm install --prefix "$cache/azurite" --no-audit --no-fund "azurite@$azurite_version" \
                >"$cache/azurite-install.log" 2>&1 &&
            ln -sf "$cache/azurite/node_modules/.bin/azurite-blob" "$bin/azurite-blob" ||
            missing "azurite" "npm failed, see $cache/azurite-install.log"
    fi
fi

# A daemon that sends counters to Graphite; it runs on Node.
statsd_version=0.9.0
if [ ! -f "$cache/statsd/node_modules/statsd/stats.js" ]; then
    if ! have npm; then
        missing "statsd" "npm is missing"
    else
        echo "test-servers: installing statsd $statsd_version into $cache/statsd"
        mkdir -p "$cache/statsd" &&
            npm install --prefix "$cache/statsd" --no-audit --no-fund --omit=optional "statsd@$statsd_version" \
                >"$cache/statsd-install.log" 2>&1 || missing "statsd" "npm failed, see $cache/statsd-install.log"
    fi
fi

# A client of statsd for Node.
hot_shots_version=17.1.1
if [ ! -d "$cache/hot-shots/node_modules/hot-shots" ]; then
    if ! have npm; then
        missing "hot-shots" "npm is missing"
    else
        echo "test-servers: installing hot-shots $hot_shots_version into $cache/hot-shots"
        mkdir -p "$cache/hot-shots" &&
            npm install --prefix "$cache/hot-shots" --no-audit --no-fund --omit=optional "hot-shots@$hot_shots_version" \
                >"$cache/hot-shots-install.log" 2>&1 || missing "hot-shots" "npm failed, see $cache/hot-shots-install.log"
    fi
fi

# A client of Loki for Node, and the library for logs that it belongs to. Its protobuf needs the package snappy.
winston_version=3.19.0
winston_loki_version=6.1.7
if [ ! -d "$cache/winston-loki/node_modules/winston-loki" ]; then
    if ! have npm; then
        missing "winston-loki" "npm is missing"
    else
        echo "test-servers: installing winston-loki $winston_loki_version into $cache/winston-loki"
        mkdir -p "$cache/winston-loki" &&
            npm install --prefix "$cache/winston-loki" --no-audit --no-fund \
                "winston@$winston_version" "winston-loki@$winston_loki_version" \
                >"$cache/winston-loki-install.log" 2>&1 ||
            missing "winston-loki" "npm failed, see $cache/winston-loki-install.log"
    fi
fi

# Other engines that read the tables: Python's deltalake (delta-rs, with DataFusion), DuckDB and Polars.
py=$cache/py
readers="deltalake duckdb numpy polars pyarrow"
if ! "$py/bin/python" -c 'import deltalake, duckdb, numpy, polars, pyarrow' 2>/dev/null; then
    if ! have python3; then
        missing "$readers" "python3 is missing"
    else
        echo "test-servers: installing $readers into $py"
        # shellcheck disable=SC2086 # a list of words
        python3 -m venv "$py" >/dev/null 2>&1 &&
            "$py/bin/python" -m pip install -q --disable-pip-version-check $readers >"$cache/py-install.log" 2>&1 ||
            missing "$readers" "pip failed (Debian: apt-get install -y python3-venv), see $cache/py-install.log"
    fi
fi

# Clients of InfluxDB 1 and 2, of statsd, of Elasticsearch and of Loki.
clients="influxdb influxdb-client statsd datadog elasticsearch python-logging-loki"
if [ -x "$py/bin/python" ] && ! "$py/bin/python" -c 'import influxdb, influxdb_client, statsd, datadog, elasticsearch, logging_loki' 2>/dev/null; then
    echo "test-servers: installing $clients into $py"
    # shellcheck disable=SC2086 # a list of words
    "$py/bin/python" -m pip install -q --disable-pip-version-check $clients >"$cache/clients-install.log" 2>&1 ||
        missing "$clients" "pip failed, see $cache/clients-install.log"
fi

# OpenTelemetry's SDK, which sends metrics over HTTP and gRPC.
otel="opentelemetry-sdk opentelemetry-exporter-otlp-proto-http opentelemetry-exporter-otlp-proto-grpc"
if ! "$py/bin/python" -c 'import opentelemetry.exporter.otlp.proto.grpc, opentelemetry.exporter.otlp.proto.http' 2>/dev/null; then
    if [ ! -x "$py/bin/python" ]; then
        missing "$otel" "there is no Python in $py"
    else
        echo "test-servers: installing $otel into $py"
        # shellcheck disable=SC2086 # a list of words
        "$py/bin/python" -m pip install -q --disable-pip-version-check $otel >"$cache/otel-install.log" 2>&1 ||
            missing "$otel" "pip failed, see $cache/otel-install.log"
    fi
fi

# Graphite's own web application, as a reference for the Graphite functions, and carbon, for aggregation rules. They need a
# Python that has `imp`.
graphite_version=1.1.10
graphite=$cache/graphite
if ! "$graphite/bin/python" -c 'import imp, django, graphite.version, whisper, carbon.conf' 2>/dev/null; then
    if ! python3 -c 'import sys; sys.exit(sys.version_info >= (3, 12))' 2>/dev/null; then
        missing "graphite-web" "it needs Python 3.11 or older"
    else
        echo "test-servers: installing graphite-web and carbon $graphite_version into $graphite"
        python3 -m venv "$graphite" >/dev/null 2>&1 &&
            "$graphite/bin/python" -m pip install -q --disable-pip-version-check \
                "graphite-web==$graphite_version" "whisper==$graphite_version" "carbon==$graphite_version" setuptools \
                >"$cache/graphite-install.log" 2>&1 ||
            missing "graphite-web" "pip failed (Debian: apt-get install -y python3-venv), see $cache/graphite-install.log"
    fi
fi

for program in "$bin/prometheus" "$bin/promtool" "$bin/versitygw" "$bin/carbonapi" "$bin/telegraf" "$bin/vmagent" \
    "$bin/k6" "$bin/otel-sdk-go" "$bin/otelcol" \
    "$bin/azurite-blob" "$py/bin/python" "$graphite/bin/python" "$(command -v prometheus)" \
    "$(command -v prometheus-node-exporter || command -v node_exporter)" "$(command -v carbon-c-relay)" \
    "$(command -v collectd || echo /usr/sbin/collectd)" "$(command -v nc)"; do
    [ -x "$program" ] && echo "test-servers: $program"
done
exit 0
