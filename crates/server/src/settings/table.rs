//! All settings.
//!
//! To add one: an entry here, a field in [`super::Settings`], and the line that reads it. `UPDATE_EXPECT=1 cargo test -p server
//! settings` then writes it into `docs/reference/configuration.md`.

use super::secret::TablesUrl;
use super::setting::Setting;
use super::typed::{Typed, derived, setting};
use super::value::{Bytes, Count, Millis};
use crate::limits::budget::TOTAL_BYTES_MIN;
use crate::query_source::detail::Detail;
use journal::Durability;
use model::caps;
use std::net::SocketAddr;
use std::path::PathBuf;
use tables::rollup::Resolution;

/// Upper bound of counts that need one only against typing errors.
const MANY: u64 = 1 << 20;

/// The same of rates.
const MANY_A_SECOND: u64 = 1 << 40;

macro_rules! settings {
    ($($group:literal { $($name:ident: $type:ty = $declared:expr;)* })*) => {
        $($(pub(super) static $name: Typed<$type> = $declared.in_group($group);)*)*

        /// All settings, in the order of the help and the reference.
        pub static SETTINGS: &[&Setting] = &[$($(&$name.setting,)*)*];
    };
}

settings! {
    "Server" {
        HTTP: SocketAddr = setting("http", "127.0.0.1:9009",
            "Address to serve HTTP on: 127.0.0.1:9009, localhost:9009, or :9009 for all addresses")
            .why("A name is looked up at start, IPv4 first. The default can be reached from this machine only, because there \
                is no authentication; a warning is logged where other machines can reach the address")
            .common();
        MEMORY: Bytes = derived("memory", "half of the control group's limit or of the machine's memory",
            "Memory that the process may use, such as 2GiB")
            .why("8 MiB are for the process itself. Of the rest, 50 % are for the head, 15 % for requests in flight, 15 % for \
                queries (an eighth of it a cache of table data), 10 % for files being made, 3 % for warm decoders, 7 % for \
                everything else. Half, because the page cache and other processes need memory too")
            .within(TOTAL_BYTES_MIN, u64::MAX)
            .common();
    }

    "Storage" {
        DATA_DIR: PathBuf = setting("data_dir", "floodmark-data",
            "Directory of the journal, and of the tables unless --tables is given")
            .why("Only one process at a time may use it")
            .common();
        DURABILITY: Durability = setting("durability", "fsync", "When a write counts as durable")
            .common();
        TABLES: TablesUrl = derived("tables", "the folder tables in the data directory",
            "URL of the tables: file:///…, s3://…, gs://… or az://…")
            .why("How an object store is reached: [`[tables_options]`](#the-object-store)")
            .secret()
            .common();
        PARTITIONS: Count = derived("partitions", "one a core, at most 8; an existing data directory keeps its own number",
            "Independent journals and heads, each with its own thread")
            .why("**Fixed when a data directory is made**")
            .within(1, caps::PARTITIONS_MAX as u64);
        SEGMENT_SIZE: Bytes = setting("segment_size", "128MiB", "Size at which a journal segment is closed")
            .within(1 << 20, 1 << 30);
        SEAL_AFTER: Millis = setting("seal_after", "15m", "Age at which data in memory is sealed into tables, such as 15m")
            .why("It is that of the oldest sample. Less: fresher data for other engines, a shorter replay, more and smaller \
                files. With 15 minutes, a day of one table is some hundred commits")
            .common();
        SEAL_SIZE: Bytes = setting("seal_size", "256MiB", "Journal of a partition that makes it seal earlier")
            .why("It bounds the disk and the replay, which takes some seconds at this size");
        FLUSH_INTERVAL: Millis = setting("flush_interval", "2s",
            "Least time between rounds of sealing that flush requests start")
            .why("It holds after a burst of ten `POST /api/v1/admin/flush`; requests in between share the next round. Each \
                round adds small files to every table that has new data, so this bounds the files that a loop of flushes makes");
        COMPACTION: bool = setting("compaction", "true", "Whether small files are merged into larger ones")
            .why("`false` where another engine does it");
        VACUUM_GRACE: Millis = setting("vacuum_grace", "1h", "Time that a file which left its table stays for readers")
            .why("It must be longer than any query, here or in another engine");
    }

    "Retention and rollups" {
        RETENTION: Option<Millis> = setting("retention", "never", "Age at which samples are dropped, such as 90d")
            .why("Whole files are dropped at a time. Never by default, so that no data is lost without a decision")
            .or("never").per_tenant().common();
        RETENTION_WAIT: Millis = setting("retention_wait", "10m", "Time after a start during which nothing is dropped for its age")
            .why("A clock that is wrong when a machine starts is put right by then ([operating.md](../operating.md#the-clock))");
        ROLLUPS: Vec<Resolution> = setting("rollups", "none", "Rollups that are made of days that are over: 5m, 1h")
            .why("A rollup is a table of count, sum, min, max, first, last and increase for each bucket of this width \
                ([formats/metrics-table.md](../formats/metrics-table.md)). They cost space: see \
                [operating.md](../operating.md)")
            .per_tenant();
        ROLLUP_RETENTION: Option<Millis> = setting("rollup_retention", "samples", "Age at which rollups are dropped, such as 5y")
            .why("`samples`: when their samples are. They are never dropped earlier than those")
            .or("samples").per_tenant();
    }

    "Writes" {
        FUTURE_LIMIT: Millis = setting("future_limit", "10m", "How far ahead of the clock a sample may be");
        // 3,651 files per tenant, which a listing of labels reads in seconds
        PAST_LIMIT: Millis = setting("past_limit", "10y", "How far behind the clock a sample may be")
            .why("Each day has files of its own, so this bounds how many files a few samples can make; `import` is not bound \
                by it. `100y`: everything since 1970");
        SERIES_IDLE: Millis = setting("series_idle", "1h", "Time without a sample after which a series is no longer active")
            .why("It then leaves memory once its samples are sealed; sooner when memory fills");
        INFLIGHT_REQUESTS: Count = derived("inflight_requests", "one for each 256 KiB of the requests' account, 64 to 4096",
            "Write requests between the end of their body and their answer")
            .why("Those that create series are not counted. More are refused with 503")
            .within(1, MANY);
        CREATING_REQUESTS: Count = derived("creating_requests", "as inflight_requests",
            "Write requests that wait for their new series")
            .why("All together hold at most half of the requests' account. More are refused with 503. Requests of known series \
                never wait for them")
            .within(1, MANY);
    }

    "Queries" {
        QUERY_TIMEOUT: Millis = setting("query_timeout", "2m", "Longest time that a query may take, waiting included");
        QUERY_LOOKBACK: Millis = setting("query_lookback", "5m", "How far back an instant selector looks, as in Prometheus");
        QUERY_RESOLUTION: Detail = setting("query_resolution", "raw", "What queries are answered from")
            .why("It holds for queries without the parameter `resolution` ([http.md](http.md#answers-from-rollups))")
            .per_tenant();
        QUERY_CONCURRENCY: Count = derived("query_concurrency", "two a core", "Queries that run at once")
            .why("One more, of 20 ms at the most, runs beside them. Each gets an equal part of the query account, so more of \
                them means smaller ones")
            .within(1, 1024);
    }

    "Connections" {
        CONNECTIONS: Count = derived("connections", "as many as 5 % of memory hold at 72 KiB each, 128 to 4096", "Open connections")
            .why("The limit of open files may lower it. For one more, the least needed one is closed: that has sent no \
                request, or a body more slowly than `transfer_rate`, for a second, or is between requests. If there is none, \
                the new one is answered with 503")
            .within(1, MANY);
        ALLOW_HOST: Vec<String> = derived("allow_host", "none where only this machine can connect, else any",
            "Host names that requests may use besides localhost and addresses, or * for any")
            .why("What a request's `Host` may be; other names are refused with 421. Web pages of these names may also write. \
                Set it behind a proxy that passes the `Host` on");
        BODY_TIMEOUT: Millis = setting("body_timeout", "30s",
            "Longest time that a body may take to arrive, beyond what its size allows at transfer_rate")
            .why("It holds for the form of a query too");
        TRANSFER_RATE: Bytes = setting("transfer_rate", "64KiB", "Least bytes a second of senders of bodies and readers of answers")
            .why("It is an average. A slower peer is cut off once it is `body_timeout` (senders) or 30 s (readers) behind this \
                rate; a faster one gains no credit beyond that")
            .within(1, 1 << 30);
    }

    "Tenants" {
        REQUESTS_PER_SECOND: Option<Count> = setting("requests_per_second", "none",
            "Write requests a second that a tenant may send")
            .why("More are refused ([refusals.md](refusals.md#writes)) until the rate is kept again")
            .or("none").within(1, MANY_A_SECOND).per_tenant();
        SAMPLES_PER_SECOND: Option<Count> = setting("samples_per_second", "none", "Samples a second that a tenant may send")
            .why("Every sample of a request counts, those included that are refused or come again. The request that goes \
                over the limit is stored; the next ones are refused until the rate is kept again, for a minute at most")
            .or("none").within(1, MANY_A_SECOND).per_tenant();
        RATE_BURST: Millis = setting("rate_burst", "10s",
            "Time whose worth of requests and samples a tenant may send at once")
            .per_tenant();
        TENANTS: Count = setting("tenants", "10000", "Tenants in memory")
            .why("A new one beyond is refused with 503, unless it has tables")
            .within(1, MANY);
        TENANT_BURST: Count = setting("tenant_burst", "1000", "New tenants at once")
            .why("More are refused")
            .within(1, MANY);
        TENANTS_PER_MINUTE: Count = setting("tenants_per_minute", "300", "New tenants a minute after a burst")
            .why("A tenant that has tables is not new. Within the quarter of an hour in which a silent tenant leaves memory, \
                300 a minute are less than half of the default of `tenants`")
            .within(1, MANY);
    }
}

pub(super) fn find(key: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.key == key).copied()
}
