//! The command line: pipes, colours, addresses, settings, exit statuses, scenarios, completions and man pages.

use crate::harness::process::command;
use crate::harness::{Options, Request, Server, http, wait_for};
use crate::transfer::{run, succeed, text};
use expect_test::{Expect, expect};
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

fn many_lines(path: &Path) {
    let lines: String = (0..4_000)
        .map(|i| format!("{{\"metric\":{{\"__name__\":\"m\",\"i\":\"{i}\"}},\"values\":[{i}],\"timestamps\":[1795176000000]}}\n"))
        .collect();
    fs::write(path, lines).expect("write a file");
}

/// Runs the executable, and closes the pipe after the first bytes of output, as `head` does.
fn into_head(args: &[&str]) -> (Option<i32>, String) {
    let mut child = command(args).stdout(Stdio::piped()).spawn().expect("start the executable");
    let mut stdout = child.stdout.take().expect("stdout is piped");
    stdout.read_exact(&mut [0; 10]).expect("read the first bytes");
    drop(stdout);
    let mut said = String::new();
    child.stderr.take().expect("stderr is piped").read_to_string(&mut said).expect("read stderr");
    (child.wait().expect("wait").code(), said)
}

#[test]
fn a_closed_pipe_ends_output_without_an_error() {
    let dir = tempfile::tempdir().expect("make a directory");
    let (lines, data) = (dir.path().join("lines"), dir.path().join("data"));
    many_lines(&lines);
    succeed(&["import", "jsonl", text(&lines), "--data-dir", text(&data), "-q"]);
    for format in ["jsonl", "openmetrics", "prometheus"] {
        let ended = into_head(&["export", format, "--data-dir", text(&data)]);
        assert_eq!(ended, (Some(0), String::new()), "export {format}");
    }
    let table = ["inspect", "table", "--data-dir", text(&data)];
    assert_eq!(into_head(&table), (Some(0), String::new()));
    assert_eq!(into_head(&["man"]), (Some(0), String::new()));
    assert_eq!(into_head(&["completions", "zsh"]), (Some(0), String::new()));
}

#[test]
fn a_full_disk_is_an_error_of_output() {
    let full = fs::File::options().write(true).open("/dev/full").expect("open /dev/full");
    let output = command(&["lab", "scenarios"]).stdout(full).output().expect("run the executable");
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("write to stdout"));
}

struct Started {
    child: Child,
    stderr: BufReader<std::process::ChildStderr>,
    _dir: tempfile::TempDir,
}

impl Started {
    fn serve(change: impl FnOnce(&mut Command)) -> Self {
        let dir = tempfile::tempdir().expect("make a directory");
        let mut command = command(&["serve", "--data-dir", text(&dir.path().join("data"))]);
        change(&mut command);
        let mut child = command.spawn().expect("start the executable");
        let stderr = BufReader::new(child.stderr.take().expect("stderr is piped"));
        Self { child, stderr, _dir: dir }
    }

    fn log_until(&mut self, text: &str) -> String {
        let mut log = String::new();
        while !log.contains(text) {
            assert_ne!(self.stderr.read_line(&mut log).expect("read stderr"), 0, "the server ended: {log}");
        }
        log
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

#[test]
fn colours_are_for_terminals_and_environments_that_ask_for_them() {
    let is_coloured = |variables: &[(&str, &str)]| {
        let mut server = Started::serve(|command| {
            command.args(["--http", "127.0.0.1:0"]).envs(variables.iter().copied());
        });
        server.log_until("starting").contains('\x1b')
    };
    assert!(!is_coloured(&[]), "output to a pipe is coloured");
    assert!(is_coloured(&[("CLICOLOR_FORCE", "1")]));
    assert!(!is_coloured(&[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")]));
}

#[test]
fn addresses_may_be_names_or_a_port_alone() {
    let address = |log: &str| -> SocketAddr {
        let line =
            log.lines().find(|line| line.contains("listening address=")).expect("the log has the address");
        line.rsplit_once('=').expect("an address").1.trim().parse().expect("an address")
    };
    let mut named = Started::serve(|command| {
        command.args(["--http", "localhost:0"]);
    });
    let log = named.log_until("listening address=");
    assert_eq!(address(&log).ip(), Ipv4Addr::LOCALHOST);
    assert!(!log.contains("WARN"), "{log}");

    let mut open = Started::serve(|command| {
        let args = ["--allow-unauthenticated", "true", "--admin-listen", "127.0.0.1:0"];
        command.env("FLOODMARK_HTTP", ":0").args(args);
    });
    let log = open.log_until("listening address=");
    assert!(address(&log).ip().is_unspecified() && log.contains("anyone who reaches"), "{log}");
    let here = SocketAddr::from((Ipv4Addr::LOCALHOST, address(&log).port()));
    wait_for("readiness", || http::once(here, &Request::get("/-/ready")).ok().filter(|r| r.status == 200));

    let refused = run(&["serve", "--http", "9009"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains(":9009 for all addresses"));
}

fn config(toml: &str, args: &[&str], variables: &[(&str, &str)]) -> Output {
    let dir = tempfile::tempdir().expect("make a directory");
    fs::write(dir.path().join("floodmark.toml"), toml).expect("write a file");
    let mut command = command(&[&["config"], args].concat());
    command.current_dir(dir.path()).envs(variables.iter().copied()).stdout(Stdio::piped());
    command.output().expect("run the executable")
}

#[test]
fn settings_are_printed_with_their_origin() {
    let toml = r#"
query_timeout = "30s"
retention = "90d"
data_dir = "/data"

[tables_options]
aws_secret_access_key = "hunter2"

[tenant.audit]
retention = "never"
"#;
    let print = |more: &[&str]| {
        // the defaults of these settings depend on the machine, so the test uses fixed values instead
        let machine = [
            "--partitions",
            "2",
            "--query-concurrency",
            "4",
            "--connections",
            "100",
            "--disk-bytes",
            "90GiB",
        ];
        let args = ["print", "--config", "floodmark.toml", "--retention", "30d"];
        let variables = [("FLOODMARK_MEMORY", "1GiB"), ("AWS_REGION", "eu")];
        let output = config(toml, &[&args[..], &machine, more].concat(), &variables);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    };
    expect![[r#"
        http                                   127.0.0.1:9009                  default
        auth_file                              none                            default
        trusted_proxies                        127.0.0.0/8,::1/128             default
        tls_cert                               none                            default
        tls_key                                none                            default
        tls_client_ca                          none                            default
        tls_client_auth                        required                        default
        admin_listen                           http                            derived: `http` if only this machine can connect to it, otherwise `127.0.0.1:9010`
        allow_unauthenticated                  false                           default
        memory                                 1GiB                            environment: FLOODMARK_MEMORY
        heap_profile_percent                   none                            default
        data_dir                               /data                           file: floodmark.toml:4
        durability                             fsync                           default
        tables                                 file:///data/tables/            derived: the folder `tables` in the data directory
        partitions                             2                               flag: --partitions
        segment_size                           128MiB                          default
        seal_after                             15m                             default
        seal_size                              256MiB                          default
        flush_interval                         2s                              default
        compaction                             true                            default
        vacuum_grace                           1h                              default
        retention                              30d                             flag: --retention
        retention_wait                         10m                             default
        rollups                                none                            default
        rollup_retention                       samples                         default
        stream_retention                       never                           default
        future_limit                           10m                             default
        past_limit                             3650d                           default
        ingest_rules                           none                            default
        series_idle                            1h                              default
        inflight_requests                      609                             derived: one per 256 KiB of the account `inflight`, 64 to 4096
        creating_requests                      609                             derived: same as `inflight_requests`
        query_timeout                          30s                             file: floodmark.toml:2
        query_lookback                         5m                              default
        query_resolution                       raw                             default
        query_concurrency                      4                               flag: --query-concurrency
        sql                                    false                           default
        slow_query                             10s                             default
        query_log                              none                            default
        query_log_size                         256MiB                          default
        connections                            100                             flag: --connections
        allow_host                             none                            derived: none if only this machine can connect, otherwise any
        body_timeout                           30s                             default
        transfer_rate                          64KiB                           default
        otlp_grpc                              none                            default
        otlp_translation                       UnderscoreEscapingWithSuffixes  default
        otlp_promote                           none                            default
        otlp_target_info                       true                            default
        otlp_keep_identifying                  false                           default
        otlp_scope_labels                      false                           default
        otlp_delta                             accumulate                      default
        otlp_buckets                           2                               default
        graphite                               none                            default
        graphite_udp                           true                            default
        graphite_pickle                        none                            default
        graphite_protobuf                      none                            default
        graphite_tls                           none                            default
        graphite_tenant                        anonymous                       default
        graphite_tenants                       none                            default
        graphite_tenant_from_path              false                           default
        graphite_commit_interval               100ms                           default
        graphite_connections                   2438                            derived: one per 64 KiB of the account `inflight`, 128 to 10000
        graphite_allow_unauthenticated         false                           default
        graphite_schemas                       none                            default
        graphite_aggregation                   none                            default
        graphite_rewrite                       none                            default
        graphite_allow                         none                            default
        graphite_deny                          none                            default
        graphite_aggregator_rules              none                            default
        graphite_aggregator_intervals          5                               default
        graphite_retention                     false                           default
        graphite_jsonp                         false                           default
        influx_names                           measurement_field               default
        influx_db_label                        db                              default
        statsd                                 none                            default
        statsd_tenant                          anonymous                       default
        statsd_flush_interval                  10s                             default
        statsd_allow_unauthenticated           false                           default
        stream_freshness                       30s                             default
        streams                                1000                            default
        overrides                              none                            default
        requests_per_second                    none                            default
        samples_per_second                     none                            default
        bytes_per_second                       none                            default
        new_series_per_second                  8323071                         derived: the head (507 MiB) has room for 8323071 series of 64 bytes; a tenant may fill it once a second
        rate_burst                             10s                             default
        active_series                          8323071                         derived: the head (507 MiB) has room for 8323071 series of 64 bytes
        series_per_metric                      8323071                         derived: the head (507 MiB) has room for 8323071 series of 64 bytes, and all may have the same name
        disk_bytes                             90GiB                           flag: --disk-bytes
        tenant_tables                          3                               default
        events_bytes                           4MiB                            default
        concurrent_writes                      609                             derived: the larger one of inflight_requests and creating_requests
        inflight_bytes                         159802980                       derived: the account `inflight`
        concurrent_queries                     4                               derived: query_concurrency
        query_memory                           15980298                        derived: half of the account `query`, divided by query_concurrency + 1
        query_samples                          998768                          derived: 16 bytes each, in 15605 KiB
        share_weight                           1                               default
        limit_status                           429                             default
        ha_dedup                               false                           default
        ha_cluster_label                       cluster                         default
        ha_replica_label                       __replica__                     default
        ha_failover                            30s                             default
        ha_clusters                            100                             default
        tenants                                10000                           default
        tenant_burst                           1000                            default
        tenants_per_minute                     300                             default
        self_monitoring_interval               15s                             default
        carbon_metrics_interval                1m                              default
        self_monitoring_tenant                 floodmark-system                default
        self_monitoring_retention              30d                             default
        tables_options.aws_region              eu                              environment: AWS_REGION
        tables_options.aws_secret_access_key   (redacted)                      file: floodmark.toml:7
        tenant.audit.retention                 never                           file: floodmark.toml:10
        tenant.floodmark-system.retention      30d                             derived: self_monitoring_retention
        tenant.floodmark-system.active_series  5000                            derived: the limit on series of the server's own metrics

        Memory budget: 1024 MiB (as set) = head 507 (exemplars 25, metadata 25, replicas 5, paths 50, aggregator 50, sums 126, records 95, record names 15, loading 31, events 5) + inflight 152 (unwritten 38, of which datagrams 19, new series 38, grpc 19) + query 152 (evaluation 76, cache 19, exports 19, answers 38) + flush 101 + decoders 20 + auth 10 + other 79 (process 8, connections 50, tables 10, spare 10)
    "#]].assert_eq(&print(&[]));
    let rows: Value = serde_json::from_str(&print(&["--json"])).expect("JSON");
    let row = |key: &str| rows.as_array().expect("rows").iter().find(|row| row["key"] == key);
    assert_eq!(
        row("retention"),
        Some(&json!({ "key": "retention", "value": "30d", "origin": "flag", "from": "--retention" }))
    );
    assert_eq!(
        row("seal_after"),
        Some(&json!({ "key": "seal_after", "value": "15m", "origin": "default", "from": null }))
    );
}

#[test]
fn wrong_settings_are_named_and_end_with_status_2() {
    let check = |toml: &str, expected: Expect| {
        let output = config(toml, &["check", "floodmark.toml"], &[("FLOODMARK_MEMORY", "1")]);
        assert_eq!(output.status.code(), Some(2));
        expected.assert_eq(&String::from_utf8_lossy(&output.stderr));
    };
    check(
        "\nmemroy = \"2GiB\"",
        expect![[r#"
        floodmark: floodmark.toml:2: unknown setting memroy; did you mean memory?
    "#]],
    );
    check(
        "tables = \"ftp://host/x\"",
        expect![[r#"
        floodmark: floodmark.toml:1: tables = ftp://host/x: unknown kind of object store; file://, s3://, gs:// and az:// are supported
    "#]],
    );
    check(
        "tables = \"file://data/x\"",
        expect![[r#"
        floodmark: floodmark.toml:1: tables = file://data/x: the URL of a local folder has three slashes and the whole path: file:///var/lib/tables
    "#]],
    );
    check(
        "[tenant_retention]\na = \"1d\"",
        expect![[r#"
        floodmark: floodmark.toml:1: [tenant_retention] is no longer supported; use [tenant.NAME] instead:

        [tenant.a]
        retention = "1d"

    "#]],
    );
    let missing = config("", &["check", "missing.toml"], &[]);
    assert_eq!(missing.status.code(), Some(2));
    expect![[r#"
        floodmark: cannot read missing.toml: No such file or directory (os error 2)
    "#]]
    .assert_eq(&String::from_utf8_lossy(&missing.stderr));
    let variable = config("", &["print"], &[("FLOODMARK_MEMORY", "1")]);
    assert_eq!(variable.status.code(), Some(2));
    expect![[r#"
        floodmark: FLOODMARK_MEMORY=1: must be at least 64MiB
    "#]]
    .assert_eq(&String::from_utf8_lossy(&variable.stderr));
    check(
        "http = \":9009\"",
        expect![[r#"
        floodmark: floodmark.toml:1: http = [::]:9009: other machines can reach this address, but requests are not authenticated: set auth_file, or allow_unauthenticated to let everyone read, write and administer everything
    "#]],
    );
    check(
        "otlp_grpc = \":4317\"",
        expect![[r#"
        floodmark: floodmark.toml:1: otlp_grpc = [::]:4317: other machines can reach this address, but requests are not authenticated: set auth_file, or allow_unauthenticated to let everyone write
    "#]],
    );
    let open = "http = \":9009\"\nallow_unauthenticated = true";
    let open = config(open, &["check", "floodmark.toml"], &[("FLOODMARK_MEMORY", "1")]);
    assert!(open.status.success(), "the check considers more than the file");
    expect![[r#"
        warning: allow_unauthenticated: anyone who reaches [::]:9009 can read and write everything
    "#]]
    .assert_eq(&String::from_utf8_lossy(&open.stderr));
    expect![[r#"
        floodmark.toml: valid
    "#]]
    .assert_eq(&String::from_utf8_lossy(&open.stdout));
}

#[test]
fn an_address_that_is_taken_leaves_no_data_directory() {
    let dir = tempfile::tempdir().expect("make a directory");
    let data = dir.path().join("data");
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("listen");
    let address = taken.local_addr().expect("an address").to_string();
    let failed = run(&["serve", "--http", &address, "--data-dir", text(&data)]);
    let said = String::from_utf8_lossy(&failed.stderr);
    assert!(!failed.status.success() && said.contains("cannot listen"), "{said}");
    assert!(!data.exists());
}

/// At such a low rate, the whole load is one request, and is over before the server is killed.
#[test]
fn a_demo_without_a_kill_in_the_middle_fails_and_says_so() {
    let ended = run(&["demo", "--duration", "8s", "--rate", "100"]);
    let said = String::from_utf8_lossy(&ended.stdout);
    assert!(!ended.status.success() && said.contains("before the server was killed"), "{said}");
}

#[test]
fn presets_are_listed_copied_and_valid() {
    let names: Vec<_> = succeed(&["lab", "scenarios"])
        .lines()
        .map(|line| line.split_once("  ").expect("a name and a text").0.to_owned())
        .collect();
    assert!(names.len() >= 11 && names.contains(&"cortex-110k".to_owned()), "{names:?}");
    let dir = tempfile::tempdir().expect("make a directory");
    for name in &names {
        let path = dir.path().join(format!("{name}.toml"));
        succeed(&["lab", "init", name, "-o", text(&path)]);
        succeed(&["lab", "run", text(&path), "--check"]);
    }
    let first = dir.path().join("first.toml");
    let before = fs::read(&first).expect("read a file");
    let refused = run(&["lab", "init", "first", "-o", text(&first)]);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(refused.status.code() == Some(2) && said.contains("--output"), "{said}");
    assert_eq!(fs::read(&first).expect("read a file"), before);
    let elsewhere = tempfile::tempdir().expect("make a directory");
    let plain = command(&["lab", "init"]).current_dir(elsewhere.path()).status().expect("run the executable");
    assert!(plain.success() && elsewhere.path().join("first.toml").exists());
}

#[test]
fn a_result_of_write_is_kept_and_shown_like_any_other() {
    let server = Server::start(Options::default());
    let dir = tempfile::tempdir().expect("make a directory");
    let file = |name: &str| dir.path().join(name);
    let (out, html, again) = (file("r.json"), file("r.html"), file("again.html"));
    let target = format!("http://{}/api/v1/write", server.address);
    let pid = server.pid().to_string();
    let args = [
        "lab",
        "write",
        "--target",
        &target,
        "--metrics",
        "5",
        "--series",
        "5",
        "--rounds",
        "20",
        "--verify",
        "-q",
    ];
    let printed =
        succeed(&[&args[..], &["--pid", &pid, "--out", text(&out), "--html", text(&html)]].concat());
    assert!(printed.contains("lost"), "{printed}");
    let result: Value = serde_json::from_slice(&fs::read(&out).expect("the result")).expect("JSON");
    assert_eq!(
        (&result["name"], &result["totals"]["samples_acknowledged"]),
        (&"write".into(), &2_000.into())
    );
    assert_eq!((&result["verify"]["lost"], &result["partial"]), (&0.into(), &false.into()));
    assert!(
        result["observed"]["rss_peak_bytes"].as_f64() > Some(1e6) && result["begun_ms"].as_i64() > Some(0)
    );
    assert!(fs::read_to_string(&html).expect("the page").contains("</html>"));
    let (junit, markdown) = (file("r.xml"), file("r.md"));
    let views = ["--html", text(&again), "--junit", text(&junit), "--markdown", text(&markdown)];
    let shown = succeed(&[&["lab", "report", text(&out)][..], &views].concat());
    let junit = fs::read_to_string(&junit).expect("the test suite");
    assert!(junit.contains("<testcase classname=\"write\" name=\"lost\"/>"), "{junit}");
    assert!(fs::read_to_string(&markdown).expect("the summary").starts_with("## write: PASS\n"));
    assert!(shown.contains("write") && again.exists(), "{shown}");
    assert!(succeed(&["lab", "compare", text(&out), text(&out)]).contains("1"));
}

#[test]
fn exit_statuses_are_those_that_help_names() {
    let status = |args: &[&str]| run(args).status.code();
    assert_eq!(status(&["--help"]), Some(0));
    assert_eq!(status(&["lab", "scenarios"]), Some(0));
    assert_eq!(status(&["nonsense"]), Some(2));
    assert_eq!(status(&["serve", "--memory", "1MiB"]), Some(2));
    assert_eq!(status(&["lab", "verify", "/nowhere"]), Some(2));
    let export = run(&["export", "jsonl", "--data-dir", "/nowhere"]);
    assert_eq!(export.status.code(), Some(2));
    assert!(
        String::from_utf8_lossy(&export.stderr).contains("nothing of tenant anonymous has been sealed yet")
    );
    // this server acknowledges nothing
    let server = Server::new();
    let target = format!("http://{}/nowhere", server.address);
    let args =
        ["lab", "write", "--target", &target, "--metrics", "1", "--series", "1", "--rounds", "1", "-q"];
    assert_eq!(status(&args), Some(1));
    expect![[r#"
        A metrics pipeline that does not drown, and a lab that proves it

        Usage: floodmark <COMMAND>

        Commands:
          serve        Run the server: accept metrics, keep them durably, answer queries
          lab          Load-test this server or any other, and verify every sample
          import       Import history: blocks of a Prometheus, Whisper files, JSON lines, text, Parquet
          export       Export samples from the tables: JSON lines, text, Parquet, Whisper files
          inspect      Inspect a data directory and its tables, even while a server is running
          config       Check a configuration file, or show the settings in effect
          rules        Test the rules on what is stored
          limits       Show every limit of a running server: value, use, origin and reason
          demo         Run server and lab on this machine: load, kill -9, recovery, every sample verified
          completions  Print a completion script for a shell
          man          Print the man page
          help         Print this message or the help of the given subcommand(s)

        Options:
          -h, --help     Print help
          -V, --version  Print version

        Exit status:
          0  success; all checks passed
          1  a rule was broken, a sample was lost, or the run ended early (lab, demo)
          2  failed: wrong usage, an unusable file or setting, or no answer from the server
    "#]]
    .assert_eq(&succeed(&["--help"]));
}

#[test]
fn completions_and_man_pages_know_all_commands() {
    let bash = succeed(&["completions", "bash"]);
    let dir = tempfile::tempdir().expect("make a directory");
    let script = dir.path().join("floodmark.bash");
    fs::write(&script, &bash).expect("write a file");
    assert!(Command::new("bash").arg("-n").arg(&script).status().expect("run bash").success());
    let pages = dir.path().join("man");
    succeed(&["man", "--output", text(&pages)]);
    for name in ["serve", "lab-find-limit", "config-print", "inspect-journal", "import"] {
        let page = fs::read_to_string(pages.join(format!("floodmark-{name}.1"))).expect(name);
        assert!(page.contains(".TH"), "{name}");
    }
    for (shell, word) in [("bash", "find-limit"), ("zsh", "--seal-after"), ("fish", "durability")] {
        assert!(succeed(&["completions", shell]).contains(word), "{shell}: {word}");
    }
    assert!(succeed(&["man"]).contains("Exit status"));
}
