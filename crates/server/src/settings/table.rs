//! Declarations of all settings.
//!
//! To add a setting, add an entry here, a field in [`super::Settings`], and the line that reads it. Then run
//! `UPDATE_EXPECT=1 cargo test -p server settings`, which updates `docs/reference/configuration.md`.

use super::admin_listen::AdminListen;
use super::capacity::QUERY_BYTES_MIN;
use super::graphite::TenantAddress;
use super::label_name::LabelName;
use super::limit_status::LimitStatus;
use super::otlp::Scale;
use super::secret::TablesUrl;
use super::setting::Setting;
use super::setting_builder::{TypedSetting, derived, setting};
use super::value::{Bytes, Count, Millis};
use crate::auth::Networks;
use crate::events::FILE_BYTES_MIN;
use crate::limits::budget::TOTAL_BYTES_MIN;
use crate::query_source::detail::Detail;
use crate::tls::ClientAuth;
use journal::Durability;
use model::{TenantId, caps};
use protocol::influx::NameRule;
use protocol::otlp::{Delta, Naming, Promoted};
use std::net::SocketAddr;
use std::path::PathBuf;
use tables::rollup::Resolution;

/// Counts have an upper bound, so that a typing error does not go unnoticed.
const MANY: u64 = 1 << 20;

/// Rates have an upper bound, so that a typing error does not go unnoticed.
const MANY_A_SECOND: u64 = 1 << 40;

macro_rules! settings {
    ($($group:literal { $($name:ident: $type:ty = $declared:expr;)* })*) => {
        $($(pub(super) static $name: TypedSetting<$type> = $declared.in_group($group);)*)*

        pub static SETTINGS: &[&Setting] = &[$($(&$name.setting,)*)*];
    };
}

settings! {
    "Server" {
        HTTP: SocketAddr = setting("http", "127.0.0.1:9009",
            "Address to serve HTTP on, such as `127.0.0.1:9009`, `localhost:9009`, or `:9009` for all addresses")
            .why("An address that other machines can reach needs `auth_file` or `allow_unauthenticated`")
            .common();
        AUTH_FILE: Option<PathBuf> = setting("auth_file", "none",
            "File with credentials, and with the services that identify callers")
            .why("[authentication.md](../authentication.md) describes the file. Changes of the file take effect within a \
                second, or at once on SIGHUP")
            .or("none").common();
        TRUSTED_PROXIES: Networks = setting("trusted_proxies", "127.0.0.0/8,::1/128",
            "Addresses and networks, such as `10.0.0.0/8`, from which a request needs no credentials if it names a tenant")
            .why("Applies only with `auth_file`. A proxy at such an address must authenticate its callers and set \
                `X-Scope-OrgID` itself. `[]`: no such address \
                ([authentication.md](../authentication.md#trusted-proxies))");
        TLS_CERT: Option<PathBuf> = setting("tls_cert", "none",
            "Certificate of the server, as PEM; connections to `http` are then encrypted")
            .why("The file also contains the intermediate certificates. Changes of this file, `tls_key` and \
                `tls_client_ca` take effect within a second, or at once on SIGHUP \
                ([authentication.md](../authentication.md#tls))")
            .or("none").common();
        TLS_KEY: Option<PathBuf> = setting("tls_key", "none", "Private key of `tls_cert`, as PEM")
            .why("The key must not be encrypted")
            .or("none").common();
        TLS_CLIENT_CA: Option<PathBuf> = setting("tls_client_ca", "none",
            "Certificates of the authorities that sign certificates of clients, as PEM")
            .why("A verified certificate is a credential ([authentication.md](../authentication.md#client-certificates))")
            .or("none");
        TLS_CLIENT_AUTH: ClientAuth = setting("tls_client_auth", "required", "Whether clients need a certificate")
            .why("Applies only with `tls_client_ca`");
        ADMIN_LISTEN: AdminListen = derived("admin_listen", "`http` if only this machine can connect to it, otherwise `127.0.0.1:9010`",
            "Address to serve administration on. `http`: the address of the setting `http`")
            .why("`none`: administration is not served. Any other address also serves `/metrics` and the health checks \
                ([authentication.md](../authentication.md#administration))")
            .or("none");
        ALLOW_UNAUTHENTICATED: bool = setting("allow_unauthenticated", "false",
            "Whether other machines may connect to a server without `auth_file`")
            .why("If `true`, everyone who can connect can read, write and administer everything");
        MEMORY: Bytes = derived("memory", "half of the control group's limit or of the machine's memory",
            "Memory budget of the process, such as `2GiB`")
            .why("8 MiB are for the process itself. Of the rest, 50 % is for the head, 15 % for requests in flight, \
                15 % for queries, 10 % for files being written, 2 % for idle decoders, 1 % (at most 32 MiB) for \
                authentication, 7 % for everything else")
            .within(TOTAL_BYTES_MIN, u64::MAX)
            .common();
        HEAP_PROFILE_PERCENT: Option<Count> = setting("heap_profile_percent", "none",
            "Memory use, as a percentage of `memory`, at which a heap profile is written")
            .why("The profile shows which code holds memory ([operating.md](../operating.md#heap-profiles))")
            .within(1, 100)
            .or("none");
    }

    "Storage" {
        DATA_DIR: PathBuf = setting("data_dir", "floodmark-data",
            "Directory of the journal, and of the tables unless `tables` is set")
            .why("Only one process at a time may use the directory")
            .common();
        DURABILITY: Durability = setting("durability", "fsync", "When a write counts as durable")
            .common();
        TABLES: TablesUrl = derived("tables", "the folder `tables` in the data directory",
            "URL of the tables: `file:///…`, `s3://…`, `gs://…` or `az://…`")
            .why("[`[tables_options]`](#the-object-store) configures access to an object store")
            .secret()
            .common();
        PARTITIONS: Count = derived("partitions", "one for two cores, at most 8; an existing data directory keeps its number",
            "Number of partitions, each with its own journal, head and thread")
            .why("**Fixed when a data directory is created**")
            .within(1, caps::PARTITIONS_MAX as u64);
        SEGMENT_SIZE: Bytes = setting("segment_size", "128MiB", "Size at which a journal segment is closed")
            .within(1 << 20, 1 << 30);
        SEAL_AFTER: Millis = setting("seal_after", "15m", "Age at which data in memory is sealed into tables")
            .why("A lower value means fresher data for other query engines, a shorter replay, and more and smaller files")
            .common();
        SEAL_SIZE: Bytes = setting("seal_size", "256MiB",
            "Unsealed bytes in a partition's journal at which data is sealed early")
            .why("Bounds the disk space of the journal, and the duration of a replay");
        FLUSH_INTERVAL: Millis = setting("flush_interval", "2s",
            "Minimum interval between rounds of sealing that are started by flush requests")
            .why("Applies after a burst of ten such rounds. A pause of ten intervals allows another burst. \
                Bounds the number of small files that flushes create");
        COMPACTION: bool = setting("compaction", "true", "Whether small files are merged into larger ones")
            .why("Set it to `false` if another engine compacts the tables");
        VACUUM_GRACE: Millis = setting("vacuum_grace", "1h",
            "Time for which a file is kept for readers after it was removed from its table")
            .why("Must be longer than any query, here or in another engine");
    }

    "Retention and rollups" {
        RETENTION: Option<Millis> = setting("retention", "never", "Age at which samples are dropped, such as `90d`")
            .why("Samples are dropped in whole files")
            .or("never").per_tenant().common();
        RETENTION_WAIT: Millis = setting("retention_wait", "10m", "Time after a start before samples can expire")
            .why("A clock that is wrong when the machine starts can be corrected in this time \
                ([operating.md](../operating.md#the-clock)). A shorter retention also applies only after this time, \
                because a file of overrides or schemas may be read before it is completely written");
        ROLLUPS: Vec<Resolution> = setting("rollups", "none",
            "Bucket widths of the rollups to create for past days: `5m`, `1h`, or both")
            .why("A rollup is a table with count, sum, min, max, first, last and increase of each bucket \
                ([operating.md](../operating.md#rollups))")
            .per_tenant();
        ROLLUP_RETENTION: Option<Millis> = setting("rollup_retention", "samples",
            "Age at which rollups are dropped, such as `5y`")
            .why("`samples`: together with their samples. Rollups are never dropped before their samples")
            .or("samples").per_tenant();
        STREAM_RETENTION: Option<Millis> = setting("stream_retention", "never",
            "Age at which records of streams are dropped, such as `30d`")
            .why("By their `time`, in whole files, which have records of one day. Tables are checked once an hour")
            .or("never").per_tenant();
    }

    "Writes" {
        FUTURE_LIMIT: Millis = setting("future_limit", "10m", "Limit on how far a sample may be ahead of the clock");
        // a tenant has a file for each day; with the 3,651 days of ten years, listing all labels already
        // takes seconds
        PAST_LIMIT: Millis = setting("past_limit", "10y", "Limit on how far a sample or a record may be behind the clock")
            .why("Each day has its own files, so this bounds the number of files. Does not apply to `import`. `100y` \
                allows all samples since 1970");
        INGEST_RULES: Option<PathBuf> = setting("ingest_rules", "none",
            "File with rules on what is stored: which series are dropped, and which labels the others get")
            .why("[ingest-rules.md](../ingest-rules.md) describes the file. Changes of the file take effect within a second, or at \
                once on SIGHUP")
            .or("none");
        SERIES_IDLE: Millis = setting("series_idle", "1h",
            "Time without a sample after which a series is no longer active")
            .why("The series then leaves memory once its samples are sealed. While the head fills up, series of \
                tenants above [their share](../operating.md#what-tenants-share) leave memory after a shorter time without \
                a sample");
        INFLIGHT_REQUESTS: Count = derived("inflight_requests", "one per 256 KiB of the account `inflight`, 64 to 4096",
            "Limit on write requests in flight, that is, between the end of the body and the answer")
            .why("Requests that create series are not counted. Requests beyond the limit are refused with 503")
            .within(1, MANY);
        CREATING_REQUESTS: Count = derived("creating_requests", "same as `inflight_requests`",
            "Limit on write requests that wait for their new series to be created")
            .why("Requests beyond the limit are refused with 503. Requests with only known series never wait for such \
                requests")
            .within(1, MANY);
    }

    "Queries" {
        QUERY_TIMEOUT: Millis = setting("query_timeout", "2m", "Time limit of a query, including waiting");
        QUERY_LOOKBACK: Millis = setting("query_lookback", "5m",
            "How far back an instant selector looks for a sample, as in Prometheus");
        QUERY_RESOLUTION: Detail = setting("query_resolution", "raw", "Data from which queries are answered")
            .why("Samples are used where these rollups cannot give the same answer. Applies to queries without the \
                parameter `resolution` ([http.md](http.md#answers-from-rollups))")
            .per_tenant();
        QUERY_CONCURRENCY: Count = derived("query_concurrency", "two per core", "Limit on queries that run at once")
            .why("A higher number means less memory for each query (`query_memory`)")
            .within(1, 1024);
        SQL: bool = setting("sql", "false", "Whether streams can be queried with SQL")
            .why("Experimental: not every use of memory by a query is proven to be bounded yet \
                ([sql.md](../sql.md#floodmark))");
        SLOW_QUERY: Option<Millis> = setting("slow_query", "10s",
            "Duration from which a query is logged as slow, including waiting")
            .why("`never`: no query is logged as slow. Exports are never logged as slow")
            .or("never");
        QUERY_LOG: Option<PathBuf> = setting("query_log", "none", "File to which every query is logged as a line of JSON")
            .why("[http.md](http.md#query-log) describes the lines. If the disk is slow or full, lines are left out")
            .or("none");
        QUERY_LOG_SIZE: Bytes = setting("query_log_size", "256MiB", "Limit on the disk space of the query log")
            .why("At half of this size, the log `FILE` is renamed to `FILE.1`, and replaces the previous `FILE.1`")
            .within(4 << 20, u64::MAX);
    }

    "Connections" {
        CONNECTIONS: Count = derived("connections", "5 % of `memory`, divided by 72 KiB (with TLS by 144 KiB), 128 to 4096",
            "Limit on open connections")
            .why("The limit on open files may lower this number. A connection beyond the limit replaces an idle or \
                slow connection, or gets a 503")
            .within(1, MANY);
        ALLOW_HOST: Vec<String> = derived("allow_host", "none if only this machine can connect, otherwise any",
            "Names accepted in the header `Host`, besides `localhost` and IP addresses. `*`: any name")
            .why("A request whose `Host` is another name is refused with 421. Web pages from the names in this list \
                may also send cross-origin writes and administration requests. Needed behind a proxy that forwards \
                the header `Host`");
        BODY_TIMEOUT: Millis = setting("body_timeout", "30s",
            "Time allowed for a body to arrive, in addition to its size divided by `transfer_rate`")
            .why("Also applies to the form of a query");
        TRANSFER_RATE: Bytes = setting("transfer_rate", "64KiB",
            "Minimum average rate, in bytes per second, at which clients must send bodies and read answers")
            .why("A client is disconnected once it is `body_timeout` (sending) or 30 s (reading) behind this rate")
            .within(1, 1 << 30);
    }

    "OpenTelemetry" {
        OTLP_GRPC: Option<SocketAddr> = setting("otlp_grpc", "none",
            "Address that receives OpenTelemetry's metrics over gRPC, such as `127.0.0.1:4317`")
            .why("Needs the same credentials and certificates as `http`. `none`: not served. Over HTTP, `http` receives them \
                ([otlp.md](../otlp.md#grpc))")
            .or("none").common();
        OTLP_TRANSLATION: Naming = setting("otlp_translation", "UnderscoreEscapingWithSuffixes",
            "How metrics and attributes of OpenTelemetry are named. These are the strategies of Prometheus")
            .why("A change gives new series; those stored before keep their names ([otlp.md](../otlp.md#names))")
            .per_tenant();
        OTLP_PROMOTE: Promoted = setting("otlp_promote", "[]",
            "Attributes of resources that become labels of each series, such as `k8s.pod.name,deployment.environment`")
            .why("`*`: all of them. The other attributes are labels of `target_info`. `service.name` and \
                `service.instance.id` become `job` and `instance` in any case")
            .per_tenant();
        OTLP_TARGET_INFO: bool = setting("otlp_target_info", "true",
            "Whether each resource gets a series `target_info` with its attributes as labels")
            .per_tenant();
        OTLP_KEEP_IDENTIFYING: bool = setting("otlp_keep_identifying", "false",
            "Whether `target_info` also has `service.name`, `service.namespace` and `service.instance.id` as labels")
            .per_tenant();
        OTLP_SCOPE_LABELS: bool = setting("otlp_scope_labels", "false",
            "Whether each series gets labels with name, version, schema and attributes of its instrumentation scope")
            .why("The labels begin with `otel_scope_`, as in Prometheus 3.6 with `promote_scope_metadata`")
            .per_tenant();
        OTLP_DELTA: Delta = setting("otlp_delta", "accumulate",
            "What becomes of sums and histograms with delta temporality")
            .why("What a sender repeats is added once, also after a crash ([otlp.md](../otlp.md#delta-temporality))")
            .per_tenant();
        OTLP_BUCKETS: Scale = setting("otlp_buckets", "2",
            "Number of buckets per power of two to which exponential histograms are converted")
            .why("Each bucket is a series. More buckets make quantiles more exact ([otlp.md](../otlp.md#histograms))")
            .per_tenant();
    }

    "Graphite" {
        GRAPHITE: Option<SocketAddr> = setting("graphite", "none",
            "Address that receives Graphite's plaintext protocol over TCP and UDP, such as `127.0.0.1:2003`")
            .why("Senders are not authenticated ([graphite.md](../graphite.md#access-and-limits)). `none`: not served")
            .or("none").common();
        GRAPHITE_UDP: bool = setting("graphite_udp", "true", "Whether `graphite` also receives datagrams")
            .why("UDP cannot slow a sender down, so points are dropped when they arrive too fast");
        GRAPHITE_PICKLE: Option<SocketAddr> = setting("graphite_pickle", "none",
            "Address that receives Graphite's pickle protocol, such as `127.0.0.1:2004`")
            .why("Only lists of points are read; anything else is refused, and nothing is ever executed")
            .or("none");
        GRAPHITE_PROTOBUF: Option<SocketAddr> = setting("graphite_protobuf", "none",
            "Address that receives go-carbon's length-prefixed protobuf messages")
            .or("none");
        GRAPHITE_TLS: Option<SocketAddr> = setting("graphite_tls", "none",
            "Address that receives Graphite's plaintext protocol over TLS, such as `0.0.0.0:2013`")
            .why("Needs `tls_cert`. With `auth_file`, senders need a client certificate (`tls_client_ca`), whose name decides \
                about the tenant ([graphite.md](../graphite.md#access-and-limits))")
            .or("none");
        GRAPHITE_TENANT: Option<TenantId> = setting("graphite_tenant", "anonymous",
            "Tenant of the points that the Graphite addresses receive, except those in `graphite_tenants`")
            .why("`anonymous`: the tenant of requests that name no tenant")
            .or("anonymous");
        GRAPHITE_TENANTS: Vec<TenantAddress> = setting("graphite_tenants", "[]",
            "Further addresses, each with the tenant of the points that it receives, such as `127.0.0.1:2103=team-a` for lines or \
             `pickle:127.0.0.1:2104=team-a` for pickles")
            .why("Lines are received over TCP and, with `graphite_udp`, over UDP. Senders are not authenticated");
        GRAPHITE_TENANT_FROM_PATH: bool = setting("graphite_tenant_from_path", "false",
            "Whether the first part of each path is the tenant, and not part of the metric name")
            .why("Only for lines: excludes `graphite_pickle` and `graphite_protobuf`, and does not apply to `graphite_tls` \
                with `auth_file`. If `true`, senders can write to any tenant. Points of a tenant above one of its \
                limits are then dropped, so that they do not stop other tenants \
                ([graphite.md](../graphite.md#access-and-limits))");
        GRAPHITE_COMMIT_INTERVAL: Millis = setting("graphite_commit_interval", "100ms",
            "Time in which points of known series become durable after they were read")
            .why("Points are gathered for half of this time. The rest is for the commit \
                ([graphite.md](../graphite.md#what-is-durable-when))");
        GRAPHITE_CONNECTIONS: Count = derived("graphite_connections", "one per 64 KiB of the account `inflight`, 128 to 10000",
            "Limit on open connections to the Graphite addresses")
            .why("The limit on open files may lower this number. A connection beyond the limit replaces an idle \
                connection, or is closed")
            .within(1, MANY);
        GRAPHITE_ALLOW_UNAUTHENTICATED: bool = setting("graphite_allow_unauthenticated", "false",
            "Whether other machines may send to the Graphite addresses")
            .why("The Graphite protocols have no credentials. If `true`, everyone who can connect can write to the tenant \
                `graphite_tenant` and those of `graphite_tenants`, or to any tenant with `graphite_tenant_from_path`, \
                even with an `auth_file`. \
                Not needed for `graphite_tls` with `auth_file`. Without `auth_file`, `allow_unauthenticated` has the \
                same effect");
    }

    "Graphite's rules" {
        GRAPHITE_SCHEMAS: Option<PathBuf> = setting("graphite_schemas", "none",
            "Carbon's `storage-schemas.conf`: steps and retention of series in Graphite queries")
            .why("Without this file, the step is one minute and the retention is unlimited ([graphite.md](../graphite.md#rules)). \
                Changes of this file and the following ones take effect within a second, or at once on SIGHUP. If one \
                of them is invalid, all earlier rules stay in effect")
            .or("none");
        GRAPHITE_AGGREGATION: Option<PathBuf> = setting("graphite_aggregation", "none",
            "Carbon's `storage-aggregation.conf`: how values at a coarser step are computed")
            .or("none");
        GRAPHITE_REWRITE: Option<PathBuf> = setting("graphite_rewrite", "none",
            "Carbon's `rewrite-rules.conf`: names under which points are stored")
            .why("Applies to points that Graphite's protocols bring")
            .or("none");
        GRAPHITE_ALLOW: Option<PathBuf> = setting("graphite_allow", "none",
            "Carbon's `whitelist.conf`: only points in whose names one of these expressions is found are stored")
            .why("Other points are left out and counted. A file without expressions allows all names")
            .or("none");
        GRAPHITE_DENY: Option<PathBuf> = setting("graphite_deny", "none",
            "Carbon's `blacklist.conf`: points in whose names one of these expressions is found are not stored")
            .why("They are counted")
            .or("none");
        GRAPHITE_AGGREGATOR_RULES: Option<PathBuf> = setting("graphite_aggregator_rules", "none",
            "Carbon's `aggregation-rules.conf`: series that are computed from the points of others")
            .why("Applies to points that Graphite's protocols bring ([graphite.md](../graphite.md#computed-series))")
            .or("none");
        GRAPHITE_AGGREGATOR_INTERVALS: Count = setting("graphite_aggregator_intervals", "5",
            "Number of intervals before the present one in which late points still count in computed series")
            .why("Carbon's `MAX_AGGREGATION_INTERVALS`. The values of these intervals are in memory")
            .within(1, 100);
        GRAPHITE_RETENTION: bool = setting("graphite_retention", "false",
            "Whether samples older than the longest retention of `graphite_schemas` are dropped")
            .why("Applies to all samples of the tenant, in addition to `retention`. Without it, older samples are kept, \
                but Graphite queries do not show them")
            .per_tenant();
        GRAPHITE_JSONP: bool = setting("graphite_jsonp", "false",
            "Whether Graphite's answers may be scripts that call the function in the parameter `jsonp`")
            .why("If `true`, web pages of any site can read these answers in the browsers of users that can query without a token \
                (`SECURITY.md`)");
    }

    "Influx" {
        INFLUX_NAMES: NameRule = setting("influx_names", "measurement_field",
            "How a measurement and the name of a field become the name of a metric")
            .per_tenant();
        INFLUX_DB_LABEL: Option<LabelName> = setting("influx_db_label", "db",
            "Label that has the parameter `db` of a request with Influx' lines")
            .why("A line with a tag of this name keeps its tag. `none`: the parameter is ignored")
            .or("none").per_tenant();
    }

    "StatsD" {
        STATSD: Option<SocketAddr> = setting("statsd", "none",
            "Address that receives statsd's datagrams over UDP, such as `127.0.0.1:8125`")
            .why("Senders are not authenticated ([statsd.md](../statsd.md)). `none`: not served")
            .or("none");
        STATSD_TENANT: Option<TenantId> = setting("statsd_tenant", "anonymous",
            "Tenant of the values that the address `statsd` receives")
            .why("`anonymous`: the tenant of requests that name no tenant")
            .or("anonymous");
        STATSD_FLUSH_INTERVAL: Millis = setting("statsd_flush_interval", "10s",
            "Interval at which statsd's values are stored")
            .why("Values of the present interval are in memory only");
        STATSD_ALLOW_UNAUTHENTICATED: bool = setting("statsd_allow_unauthenticated", "false",
            "Whether other machines may send to the address `statsd`")
            .why("If `true`, everyone who can reach it can write to the tenant. Without `auth_file`, \
                `allow_unauthenticated` has the same effect");
    }

    "Streams" {
        STREAM_FRESHNESS: Millis = setting("stream_freshness", "30s",
            "Time after which records of a stream are due to be loaded into its table")
            .why("A shorter time makes more and smaller files. Until then, records are in the journal and in memory. Streams \
                with much data are loaded earlier, and streams wait longer if many are due");
        STREAMS: Count = setting("streams", "1000", "Limit on a tenant's streams")
            .why("Records of further streams are refused: with 429 if the limit was set, with 503 if it is the default")
            .within(1, 100_000).per_tenant();
    }

    "Tenants" {
        OVERRIDES: Option<PathBuf> = setting("overrides", "none",
            "File with settings of tenants")
            .why("Changes of the file take effect within a second, or at once on SIGHUP ([Changes at run \
                time](#changes-at-run-time))")
            .or("none");
        REQUESTS_PER_SECOND: Option<Count> = setting("requests_per_second", "none",
            "Limit on a tenant's write requests per second")
            .why("Requests above the limit are refused ([refusals.md](refusals.md#writes)) until the rate is below \
                the limit again")
            .or("none").within(1, MANY_A_SECOND).per_tenant();
        SAMPLES_PER_SECOND: Option<Count> = setting("samples_per_second", "none",
            "Limit on a tenant's samples per second")
            .why("Refused and repeated samples count too, except those of some requests that lack memory. The request that \
                exceeds the limit is stored; the following requests are refused until the average is below the limit again, for a minute at most")
            .or("none").within(1, MANY_A_SECOND).per_tenant();
        BYTES_PER_SECOND: Option<Bytes> = setting("bytes_per_second", "none",
            "Limit on the bytes per second of a tenant's write requests, before decompression")
            .or("none").within(1, MANY_A_SECOND).per_tenant();
        NEW_SERIES_PER_SECOND: Option<Count> = derived("new_series_per_second", "the head's memory, divided by 64 bytes",
            "Limit on a tenant's new series per second")
            .why("New series above the limit are refused with 503; samples of known series in the same request are \
                stored. New series of one request may exceed the limit: \
                then further ones are refused until the excess is made up, for at most a minute. Over Graphite's own protocols, they wait ([graphite.md](../graphite.md#new-series))")
            .or("none").within(1, MANY_A_SECOND).per_tenant();
        RATE_BURST: Millis = setting("rate_burst", "10s",
            "Burst of a tenant's rate limits: the amount that a limit allows in this time may arrive at once")
            .per_tenant();
        ACTIVE_SERIES: Option<Count> = derived("active_series", "the head's memory, divided by 64 bytes", "Limit on a tenant's active series")
            .why("Further series are refused: with 429 if the limit was set, with 503 if it was derived. Samples of known \
                series in the same request are stored. A series is active until `series_idle` after its last sample. A restart forgets which series \
                were active ([operating.md](../operating.md#limits-of-single-tenants)). Regardless of this limit, a tenant above its share \
                gets no new series once the head is 75 % full ([operating.md](../operating.md#tenants))")
            .or("none").within(1, MANY_A_SECOND).per_tenant();
        SERIES_PER_METRIC: Option<Count> = derived("series_per_metric", "the head's memory, divided by 64 bytes",
            "Limit on a tenant's active series of one metric name")
            .why("Keeps one label with too many values from using up `active_series`. The limit may be exceeded by a \
                few hundred series. Nothing is counted unless the limit is less than `active_series`")
            .or("none").within(1, MANY_A_SECOND).per_tenant();
        DISK_BYTES: Option<Bytes> = derived("disk_bytes", "90 % of the disk of the tables; `none` for an object store",
            "Limit on the bytes of a tenant's tables")
            .why("Counts the live data files of samples and rollups. At the limit, all writes of the tenant are \
                refused ([operating.md](../operating.md#disk-space-of-a-tenant))")
            .or("none").within(64 << 10, u64::MAX).per_tenant();
        TENANT_TABLES: Count = setting("tenant_tables", "3", "Limit on the number of a tenant's tables")
            .why("A tenant has a table of samples, and one for each of its `rollups`. A rollup whose table would \
                exceed the limit is not made")
            .within(1, 3).per_tenant();
        EVENTS_BYTES: Bytes = setting("events_bytes", "4MiB", "Limit on the bytes of a tenant's events")
            .why("At the limit, the events that arrived first are removed, so that a quarter becomes free. A query of events \
                reads all of them ([graphite.md](../graphite.md#events))")
            .within(FILE_BYTES_MIN, 1 << 30).per_tenant();
        CONCURRENT_WRITES: Option<Count> = derived("concurrent_writes", "the larger one of `inflight_requests` and `creating_requests`",
            "Limit on a tenant's write requests in progress")
            .why("Requests that wait for new series are counted separately. Regardless of this limit, a tenant leaves a \
                part of `inflight_requests` to other tenants ([operating.md](../operating.md#tenants))")
            .or("none").within(1, MANY).per_tenant();
        INFLIGHT_BYTES: Option<Bytes> = derived("inflight_bytes", "the account `inflight`",
            "Limit on the memory of a tenant's write requests in progress")
            .why("A single request that needs more is refused with 413. Regardless of this limit, a tenant leaves a \
                part of the account `inflight` to other tenants")
            .or("none").within(1 << 20, u64::MAX).per_tenant();
        CONCURRENT_QUERIES: Option<Count> = derived("concurrent_queries", "`query_concurrency`",
            "Limit on a tenant's queries that run at once")
            .why("Further queries wait. Regardless of this limit, tenants take turns")
            .or("none").within(1, 1024).per_tenant();
        QUERY_MEMORY: Option<Bytes> = derived("query_memory", "half of the account `query`, divided by `query_concurrency` + 1", "Limit on the memory of one query of a tenant")
            .why("Regardless of this limit, a query gets at most half of the account `query`, divided by \
                `query_concurrency` + 1")
            .or("none").within(QUERY_BYTES_MIN, u64::MAX).per_tenant();
        QUERY_SAMPLES: Option<Count> = derived("query_samples", "the default of `query_memory`, divided by 16 bytes",
            "Limit on the samples that one query of a tenant holds in memory at once")
            .why("The query's memory also limits its samples, at 16 bytes each")
            .or("none").within(1, 1 << 40).per_tenant();
        SHARE_WEIGHT: Count = setting("share_weight", "1",
            "Weight of a tenant when tenants compete for memory, write requests, queries or upkeep: a larger weight \
                gives a larger share")
            .within(1, 1000).per_tenant();
        LIMIT_STATUS: LimitStatus = setting("limit_status", "429",
            "HTTP status of writes that exceed a limit of the tenant")
            .per_tenant();
        HA_DEDUP: bool = setting("ha_dedup", "false",
            "Whether samples of only one of several replicas of a Prometheus are stored")
            .why("Series with both labels, `ha_cluster_label` and `ha_replica_label`, are de-duplicated \
                ([operating.md](../operating.md#pairs-of-prometheus-servers)); other series are stored as they are")
            .per_tenant();
        HA_CLUSTER_LABEL: LabelName = setting("ha_cluster_label", "cluster",
            "Label that names the cluster: replicas of a Prometheus have the same value")
            .per_tenant();
        HA_REPLICA_LABEL: LabelName = setting("ha_replica_label", "__replica__",
            "Label that names the replica within a cluster")
            .why("The label is not stored")
            .per_tenant();
        HA_FAILOVER: Millis = setting("ha_failover", "30s",
            "Time after which another replica is elected, if the elected one sends nothing that can be stored")
            .why("Should be longer than the longest interval between two requests of a Prometheus: the scrape \
                interval plus its `batch_send_deadline`")
            .per_tenant();
        HA_CLUSTERS: Count = setting("ha_clusters", "100", "Limit on a tenant's clusters of replicas")
            .why("Series of further clusters are refused: with 429 if the limit was set, with 503 if it is the default. A \
                cluster that has sent nothing for an hour (or for `ha_failover`, if longer) makes room for others")
            .within(1, 10_000).per_tenant();
        TENANTS: Count = setting("tenants", "10000", "Limit on tenants in memory")
            .why("At the limit, new tenants are refused with 503. A tenant with tables is not new")
            .within(1, MANY);
        TENANT_BURST: Count = setting("tenant_burst", "1000", "Limit on new tenants at once")
            .why("Further new tenants are refused with 503")
            .within(1, MANY);
        TENANTS_PER_MINUTE: Count = setting("tenants_per_minute", "300",
            "Limit on new tenants per minute after a burst of `tenant_burst`")
            .why("A tenant with tables is not new")
            .within(1, MANY);
    }

    "Self-monitoring" {
        SELF_MONITORING_INTERVAL: Option<Millis> = setting("self_monitoring_interval", "15s",
            "Interval at which the server stores its own metrics")
            .why("These are the metrics of `/metrics`, with the labels `job=\"floodmark\"` and `instance` \
                ([operating.md](../operating.md#self-monitoring)). `never`: they are not stored")
            .or("never");
        CARBON_METRICS_INTERVAL: Option<Millis> = setting("carbon_metrics_interval", "60s",
            "Interval at which carbon's own metrics (`carbon.agents.*`, `carbon.aggregator.*`) are stored, if a Graphite address is served")
            .why("They belong to the tenant `graphite_tenant` ([graphite.md](../graphite.md#carbons-own-metrics)). It should be the \
                step that `graphite_schemas` gives these names. `never`: they are not stored")
            .or("never");
        SELF_MONITORING_TENANT: TenantId = setting("self_monitoring_tenant", "floodmark-system",
            "Tenant that owns the server's own metrics")
            .why("Only the server may write to this tenant. Callers with the right to read the tenant can query it");
        SELF_MONITORING_RETENTION: Option<Millis> = setting("self_monitoring_retention", "30d",
            "Age at which the server's own metrics are dropped")
            .why("A `retention` in this tenant's `[tenant.NAME]` takes precedence")
            .or("never");
    }
}

pub(super) fn find(key: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.key == key).copied()
}
