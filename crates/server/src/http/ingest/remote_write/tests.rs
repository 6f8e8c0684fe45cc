use super::*;
use crate::ingest::tests::small_settings;
use crate::node::{Node, Parts};
use crate::partition::Owner;
use crate::world::World;
use bytes::Bytes;
use hyper::body::Frame;
use model::Labels;
use protocol::encode::V1Encoder;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use stdx::clock::{Clock, SystemClock};
use tokio::task::JoinHandle;

/// A node whose owners work only when they are told to.
fn node_of(dir: &std::path::Path, inflight: usize, creating: usize) -> (App, Vec<Owner>) {
    let mut settings = small_settings(dir);
    settings.inflight_requests_max = inflight;
    settings.creating_requests_max = creating;
    let Parts { node, mut owners, .. } =
        Node::assemble(settings, World::real(Arc::new(SystemClock))).unwrap();
    owners.iter_mut().for_each(|owner| assert!(owner.begin().unwrap()));
    (App::new(node), owners)
}

/// Sends one sample of a series; the status of the answer.
fn send(app: &App, name: &str) -> JoinHandle<StatusCode> {
    let mut encoder = V1Encoder::new();
    let labels = Labels::from_pairs(&[("__name__", name)]);
    encoder.series(labels.as_ref(), &[SystemClock.now_ms()], &[1.0]);
    let body = Body::from(encoder.finish().to_vec());
    let app = app.clone();
    tokio::spawn(async move { remote_write(State(app), HeaderMap::new(), body).await.status() })
}

/// A body of which some comes, and then nothing.
struct Unfinished {
    is_sent: bool,
}

impl hyper::body::Body for Unfinished {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        match std::mem::replace(&mut self.is_sent, true) {
            false => Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(&[1; 1000]))))),
            true => Poll::Pending,
        }
    }
}

async fn until(holds: impl Fn() -> bool) {
    while !holds() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn who_creates_series_takes_no_place_of_known_ones() {
    let dir = tempfile::tempdir().unwrap();
    let (app, mut owners) = node_of(dir.path(), 1, 2);
    let known = send(&app, "known");
    until(|| app.creating.inside() == 1).await;
    while !known.is_finished() {
        owners.iter_mut().for_each(|owner| owner.turn(None));
        tokio::task::yield_now().await;
    }
    assert_eq!(known.await.unwrap(), StatusCode::NO_CONTENT);

    let creating = [send(&app, "new_1"), send(&app, "new_2")];
    until(|| app.creating.inside() == 2).await;
    assert_eq!(app.writing.inside(), 0, "they wait elsewhere");
    assert_eq!(send(&app, "new_3").await.unwrap(), StatusCode::SERVICE_UNAVAILABLE);
    let known = send(&app, "known");
    until(|| app.writing.inside() == 1).await;
    assert_eq!(send(&app, "known").await.unwrap(), StatusCode::SERVICE_UNAVAILABLE, "one place, taken");
    for sent in creating.into_iter().chain([known]) {
        while !sent.is_finished() {
            owners.iter_mut().for_each(|owner| owner.turn(None));
            tokio::task::yield_now().await;
        }
        assert_eq!(sent.await.unwrap(), StatusCode::NO_CONTENT);
    }
    assert_eq!((app.writing.inside(), app.creating.inside()), (0, 0));
}

#[tokio::test]
async fn a_body_buys_little_more_than_has_come() {
    let account = Account::new("inflight", 3 << 20);
    let mut memory = account.reserve(BODY_STEP_BYTES as u64).unwrap();
    let mut bytes = Vec::new();
    while bytes.len() < 800_000 {
        make_room(&mut bytes, 10_000, &account, &mut memory).unwrap();
        bytes.resize(bytes.len() + 10_000, 0);
        assert_eq!(account.used_bytes(), bytes.capacity() as u64, "what is there is paid for");
        let most = (bytes.len() + BODY_STEP_BYTES).max(bytes.len() / 4 * 5 + BODY_STEP_BYTES);
        assert!(bytes.capacity() <= most, "{} bytes for {}", bytes.capacity(), bytes.len());
    }
}

/// Large bodies that never end leave room for small ones.
#[tokio::test]
async fn a_third_of_the_account_is_left_to_small_bodies() {
    let account = Account::new("inflight", 3 << 20);
    let mut large = Vec::new();
    let refused = loop {
        let mut body = (Vec::new(), account.reserve(BODY_STEP_BYTES as u64).unwrap());
        let grown = (0..50).try_for_each(|_| {
            make_room(&mut body.0, 10_000, &account, &mut body.1)?;
            body.0.resize(body.0.len() + 10_000, 0);
            Ok::<_, Refusal>(())
        });
        large.push(body);
        if let Err(refusal) = grown {
            break refusal;
        }
    };
    assert_eq!(refused.kind, ErrorKind::Unavailable, "{refused}");
    let patience = Patience::new(Duration::from_secs(60), 1);
    let (small, _memory) = collect(Body::from(vec![7; 1000]), &account, patience).await.unwrap();
    assert_eq!(small, [7; 1000]);
}

/// Whatever came before: who stops is given up.
#[tokio::test]
async fn a_body_that_stops_is_given_up() {
    let account = Account::new("inflight", 3 << 20);
    let body = Body::new(Unfinished { is_sent: false });
    let patience = Patience::new(Duration::ZERO, 1 << 30);
    assert!(matches!(collect(body, &account, patience).await, Err(Broken::TooSlow)));
    assert_eq!(account.used_bytes(), 0);
}
