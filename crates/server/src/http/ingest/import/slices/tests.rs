use super::*;
use crate::limits::budget::Budget;
use crate::limits::headroom::tests::FixedResident;
use crate::node::Node;
use crate::settings::Settings;
use crate::world::World;
use crate::write_path::tests::small_settings;
use model::ErrorKind;
use protocol::SharedLabels;
use protocol::exposition::{self, Dialect, TextLabels};
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::task::{Context, Waker};
use stdx::clock::{Clock, ManualClock, SystemClock};

fn zstd() -> HeaderMap {
    HeaderMap::from_iter([(header::CONTENT_ENCODING, "zstd".parse().unwrap())])
}

/// Starts a node with enough memory to decompress zstd.
fn app(dir: &std::path::Path) -> App {
    let mut settings = Settings { budget: Budget::of(128 << 20).unwrap(), ..small_settings(dir) };
    settings.tenants.general.limits.inflight_bytes = None; // it was derived from the smaller budget
    App::new(Node::start(settings, Arc::new(SystemClock)).unwrap())
}

/// Imports text. What is refused is not tried again.
async fn import(app: &App, tenant: &str, skip_bytes: u64, headers: &HeaderMap, body: Vec<u8>) -> Imported {
    let principal = RequestPrincipal(Principal::of(TenantId::parse(tenant).unwrap()));
    let labels = Arc::new(TextLabels(SharedLabels::new(std::iter::empty())));
    let (dialect, arrival_ms) = (Dialect::Prometheus, app.node.writes().clock.now_ms());
    let format =
        |first_line| exposition::Format { dialect, labels: Arc::clone(&labels), arrival_ms, first_line };
    let import = Import { app, principal, skip_bytes, has_header: false };
    import.run_with(Duration::ZERO, &app.decoders.text, format, headers, Body::from(body)).await
}

fn reason(imported: &Imported) -> Option<&'static str> {
    imported.refusal.as_ref().map(|refusal| refusal.reason)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_import_never_passes_over_series_without_room() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(SystemClock.now_ms()));
    let resident = Arc::new(FixedResident::default());
    let world = World::real(Arc::clone(&clock) as Arc<dyn Clock>);
    let world = World { resident: Some(Arc::clone(&resident) as _), ..world };
    let app = App::new(Node::start_in(small_settings(dir.path()), world).unwrap());
    let (known, both) = ("known 1\n", "known 1\nnew 2\n");
    let plain = |skip_bytes, text: &str| {
        let (app, body) = (&app, text.as_bytes().to_vec());
        async move { import(app, "a", skip_bytes, &HeaderMap::new(), body).await }
    };
    let imported = plain(0, known).await;
    assert_eq!((reason(&imported), imported.durable_bytes), (None, known.len() as u64));
    resident.bytes.store(u64::MAX, Ordering::Relaxed);
    clock.advance(1000);
    // after five minutes, other senders' series without room are refused for good
    for _ in 0..12 {
        let imported = plain(0, both).await;
        assert_eq!((reason(&imported), imported.durable_bytes), (Some("process_memory"), 0));
        assert_eq!(imported.refusal.unwrap().kind, ErrorKind::Unavailable);
        clock.advance(30_000);
    }
    // the first slice is durable, and the import goes on behind it
    let text = known.repeat(SLICE_BYTES / known.len() + 5000) + both;
    let imported = plain(0, &text).await;
    assert_eq!(reason(&imported), Some("process_memory"));
    let durable_bytes = imported.durable_bytes;
    assert!(
        (SLICE_BYTES / 2..text.len() - both.len()).contains(&(durable_bytes as usize)),
        "{durable_bytes}"
    );
    resident.bytes.store(0, Ordering::Relaxed);
    clock.advance(1000);
    let imported = plain(durable_bytes, &text).await;
    assert_eq!((reason(&imported), imported.durable_bytes), (None, text.len() as u64));
    assert_eq!(imported.outcome.refused_samples, 0);

    // a tenant that cannot begin now is refused before its body is read, and is not told that the body is damaged
    resident.bytes.store(u64::MAX, Ordering::Relaxed);
    clock.advance(1000);
    let damaged = import(&app, "b", 0, &zstd(), b"damaged".to_vec()).await;
    assert_eq!(reason(&damaged), Some("process_memory"));
    tokio::task::spawn_blocking(move || app.node.stop()).await.unwrap();
}

/// Senders that send nothing take no memory.
#[tokio::test(flavor = "multi_thread")]
async fn memory_to_decompress_is_reserved_once_bytes_arrive() {
    let dir = tempfile::tempdir().unwrap();
    let app = app(dir.path());
    let account = &app.node.writes().inflight;
    let body = zstd::bulk::compress(b"up 1\n", 1).unwrap();
    let mut source = Source::open(&app, &zstd(), Body::from(body)).unwrap();
    let mut buffer = Buffer::new(account).unwrap();
    assert_eq!(account.used_bytes(), 0);
    source.step(account, &mut buffer, None).await.unwrap();
    assert_eq!(account.used_bytes(), 0, "the bytes have arrived, and are not decompressed yet");
    source.fill(account, &mut buffer, None).await.unwrap();
    assert_eq!(buffer.bytes, b"up 1\n");
    assert!(account.used_bytes() > Inflater::memory_bytes(Encoding::Zstd) as u64);
    drop((source, buffer));
    assert_eq!(account.used_bytes(), 0);
    tokio::task::spawn_blocking(move || app.node.stop()).await.unwrap();
}

/// A small body can become endless bytes. Those that are skipped do not pass the limits on writes.
#[tokio::test(flavor = "multi_thread")]
async fn tenants_take_turns_to_decompress_what_is_skipped() {
    const LENGTH: usize = 2 << 20;
    let dir = tempfile::tempdir().unwrap();
    let app = app(dir.path());
    app.node.readiness().wait_for_replay().await;
    let (gates, other) = (&app.node.writes().gates, TenantId::parse("other").unwrap());
    let body = zstd::bulk::compress(&vec![b'\n'; LENGTH], 1).unwrap();
    assert!(body.len() < 1000, "{}", body.len());
    let mut turns = Vec::new();
    let mut context = Context::from_waker(Waker::noop());
    while let std::task::Poll::Ready(turn) = pin!(gates.decoding_turn(&other)).poll(&mut context) {
        turns.push(turn);
    }
    let headers = zstd();
    let mut importing = pin!(import(&app, "a", u64::MAX, &headers, body));
    for _ in 0..1000 {
        assert!(importing.as_mut().poll(&mut context).is_pending(), "all turns are taken");
    }
    drop(turns);
    let imported = importing.await;
    assert_eq!((reason(&imported), imported.durable_bytes), (None, LENGTH as u64));
    let node = app.node.clone();
    tokio::task::spawn_blocking(move || node.stop()).await.unwrap();
}
