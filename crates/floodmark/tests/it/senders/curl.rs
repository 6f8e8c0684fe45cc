//! curl with the examples of the pages, exactly as they are there.

use crate::harness::pages::{Page, run};
use crate::harness::programs::find;
use crate::harness::{Server, now_ms};

use super::HTTP;

/// Runs all examples of a page that have curl.
#[track_caller]
fn examples(server: &Server, name: &str, least: usize) {
    let (page, dir) = (Page::read(name), tempfile::tempdir().unwrap());
    let examples: Vec<_> = page.all("sh").filter(|block| block.contains("curl ")).collect();
    assert!(examples.len() >= least, "{name} has only {} examples", examples.len());
    for example in examples {
        let script = example.replace(HTTP, &server.address.to_string());
        run(&script.replace("curl ", "curl -sS --fail-with-body "), dir.path());
    }
}

#[test]
fn curl_sends_the_examples_of_the_pages() {
    if find(&["curl"]).is_none() {
        return stdx::skipped::for_want_of("curl");
    }
    let server = Server::new();
    for (name, least) in [
        ("docs/imports.md", 4),
        ("docs/influx.md", 2),
        ("docs/otlp.md", 2),
        ("docs/senders/curl.md", 6),
        ("docs/senders/elasticsearch.md", 1),
        ("docs/senders/loki.md", 1),
    ] {
        examples(&server, name, least);
    }
    // a log record, two documents, and two entries
    assert_eq!(server.metric("floodmark_records_total"), 5.0);
    for (series, expected) in [
        (r#"last_over_time(temperature{room="attic"}[1h])"#, 22.0),
        (r#"temperature{room="kitchen"}"#, 20.5),
        (r#"backup_seconds{job="backup",instance="web1"}"#, 12.5),
        ("count(imported)", 100_000.0),
        (r#"cpu_usage_user{host="web1"}"#, 1.5),
        (r#"mem_used{host="web1"}"#, 123_456.0),
        (r#"orders_total{job="shop"}"#, 3.0),
        (r#"backup_size_bytes{host="web1"}"#, 123_456.0),
        (r#"backup_duration_seconds{job="backup",instance="web1"}"#, 12.5),
        (r#"disk_used{host="web1"}"#, 42.5),
        ("queue_length", 3.0),
        (r#"{"servers.web1.load"}"#, 0.7),
    ] {
        assert_eq!(server.value(series, now_ms()), Some(expected), "{series}");
    }
}

/// The README's queries, which have no data here, must be understood.
#[test]
fn curl_asks_the_questions_of_the_readme() {
    if find(&["curl"]).is_none() {
        return stdx::skipped::for_want_of("curl");
    }
    examples(&Server::new(), "README.md", 1);
}
