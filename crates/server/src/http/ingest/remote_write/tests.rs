use super::*;
use crate::http::HttpMetrics;
use crate::http::ingest::count;
use crate::node::{Node, Parts};
use crate::partition::Owner;
use crate::settings::{LimitStatus, Settings, TenantSettings};
use crate::world::World;
use crate::write_path::tests::{small_node, small_settings};
use axum::http::StatusCode;
use model::{Labels, Principal, TenantId};
use protocol::encode::V1Encoder;
use std::sync::Arc;
use stdx::clock::{Clock, SystemClock};
use tokio::task::JoinHandle;

/// Creates a node without threads. The test itself runs the owners of the partitions, step by step.
fn node_of(dir: &std::path::Path, inflight: usize, creating: usize) -> (App, Vec<Owner>) {
    let mut settings = small_settings(dir);
    settings.inflight_requests_max = inflight;
    settings.creating_requests_max = creating;
    let Parts { node, mut owners, .. } =
        Node::assemble(settings, World::real(Arc::new(SystemClock))).unwrap();
    owners.iter_mut().for_each(|owner| assert!(owner.begin().unwrap()));
    (App::new(node), owners)
}

fn anonymous() -> RequestPrincipal {
    RequestPrincipal(Principal::of(TenantId::anonymous()))
}

fn send(app: &App, name: &str) -> JoinHandle<StatusCode> {
    let mut encoder = V1Encoder::new();
    let labels = Labels::from_pairs(&[("__name__", name)]);
    encoder.series(labels.as_ref(), &[SystemClock.now_ms()], &[1.0]);
    let body = Body::from(encoder.finish().to_vec());
    let app = app.clone();
    tokio::spawn(async move { remote_write(State(app), anonymous(), HeaderMap::new(), body).await.status() })
}

/// Returns how many requests are inside the gate for known series, and inside the gate for creating series.
fn inside(app: &App) -> (usize, usize) {
    app.node.writes().gates.inside()
}

async fn until(holds: impl Fn() -> bool) {
    while !holds() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn requests_that_create_series_take_no_place_of_known_ones() {
    let dir = tempfile::tempdir().unwrap();
    let (app, mut owners) = node_of(dir.path(), 1, 2);
    let known = send(&app, "known");
    until(|| inside(&app).1 == 1).await;
    while !known.is_finished() {
        owners.iter_mut().for_each(|owner| owner.turn(None));
        tokio::task::yield_now().await;
    }
    assert_eq!(known.await.unwrap(), StatusCode::NO_CONTENT);

    let creating = [send(&app, "new_1"), send(&app, "new_2")];
    until(|| inside(&app).1 == 2).await;
    assert_eq!(inside(&app).0, 0, "they are in the other gate");
    assert_eq!(send(&app, "new_3").await.unwrap(), StatusCode::SERVICE_UNAVAILABLE);
    let known = send(&app, "known");
    until(|| inside(&app).0 == 1).await;
    assert_eq!(
        send(&app, "known").await.unwrap(),
        StatusCode::SERVICE_UNAVAILABLE,
        "the only place is taken"
    );
    for sent in creating.into_iter().chain([known]) {
        while !sent.is_finished() {
            owners.iter_mut().for_each(|owner| owner.turn(None));
            tokio::task::yield_now().await;
        }
        assert_eq!(sent.await.unwrap(), StatusCode::NO_CONTENT);
    }
    assert_eq!(inside(&app), (0, 0));
}

/// A shortage of the node gets 503. A tenant's own limit gets the configured status.
#[tokio::test(flavor = "multi_thread")]
async fn limits_are_answered_by_who_set_them() {
    let dir = tempfile::tempdir().unwrap();
    let mut settings = Settings { tenant_burst: 3, tenants_per_minute: 1, ..small_settings(dir.path()) };
    settings.tenants.general.limits.samples_per_second = Some(1);
    settings.tenants.general.limits.rate_burst_ms = 1;
    let patient =
        TenantSettings { limit_status: LimitStatus::Unavailable, ..settings.tenants.general.clone() };
    settings.tenants.own.insert(TenantId::parse("patient").unwrap(), patient);
    let node = Node::start(settings, Arc::new(SystemClock)).unwrap();
    let app = App::new(node.clone());
    let mut encoder = V1Encoder::new();
    let now_ms = SystemClock.now_ms();
    encoder.series(Labels::from_pairs(&[("__name__", "up")]).as_ref(), &[now_ms; 60], &[1.0; 60]);
    let body = encoder.finish().to_vec();
    let send = async |tenant, expected| {
        let principal = RequestPrincipal(Principal::of(TenantId::parse(tenant).unwrap()));
        let answer =
            remote_write(State(app.clone()), principal, HeaderMap::new(), Body::from(body.clone())).await;
        assert_eq!(count(&app.metrics, answer).status(), expected);
    };
    send("first", StatusCode::NO_CONTENT).await;
    send("first", StatusCode::TOO_MANY_REQUESTS).await;
    send("patient", StatusCode::NO_CONTENT).await;
    send("patient", StatusCode::SERVICE_UNAVAILABLE).await;
    send("third", StatusCode::NO_CONTENT).await;
    send("fourth", StatusCode::SERVICE_UNAVAILABLE).await;
    let HttpMetrics { writes_ok, writes_busy, writes_limited, .. } = &*app.metrics;
    assert_eq!((writes_ok.get(), writes_busy.get(), writes_limited.get()), (3, 2, 1));
    tokio::task::spawn_blocking(move || node.stop()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn zstd_is_accepted_and_gzip_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let node = small_node(dir.path());
    let app = App::new(node.clone());
    let mut encoder = V1Encoder::new();
    let labels = Labels::from_pairs(&[("__name__", "up")]);
    encoder.series(labels.as_ref(), &[SystemClock.now_ms()], &[1.0]);
    let message = snap::raw::Decoder::new().decompress_vec(encoder.finish()).unwrap();
    let small = zstd::bulk::compress(&message, 1).unwrap();
    // too large to be decoded in place
    let mut long = V1Encoder::new();
    let labels = Labels::from_pairs(&[("__name__", "long"), ("text", &"x".repeat(10_000))]);
    long.series(labels.as_ref(), &[SystemClock.now_ms()], &[1.0]);
    let long = snap::raw::Decoder::new().decompress_vec(long.finish()).unwrap();
    let large = zstd::bulk::compress(&long.repeat(150), 1).unwrap();
    let bomb = zstd::bulk::compress(&vec![0; 65 << 20], 1).unwrap();
    for (encoding, body, expected) in [
        ("zstd", small.clone(), StatusCode::NO_CONTENT),
        ("zstd", large, StatusCode::NO_CONTENT),
        ("zstd", bomb, StatusCode::PAYLOAD_TOO_LARGE),
        ("zstd", encoder.finish().to_vec(), StatusCode::BAD_REQUEST),
        ("snappy", small.clone(), StatusCode::BAD_REQUEST),
        ("gzip", small, StatusCode::UNSUPPORTED_MEDIA_TYPE),
    ] {
        let headers = [(header::CONTENT_ENCODING, HeaderValue::from_static(encoding))].into_iter().collect();
        let answer = remote_write(State(app.clone()), anonymous(), headers, Body::from(body)).await;
        assert_eq!(answer.status(), expected, "{encoding}");
    }
    assert_eq!(node.writes().inflight.used_bytes(), 0);
    tokio::task::spawn_blocking(move || node.stop()).await.unwrap();
}
