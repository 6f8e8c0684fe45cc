use super::*;
use bytes::Bytes;
use hyper::body::Frame;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

const STEP_BYTES: usize = 64 << 10;

fn reader(account: &Account, patience: Patience) -> BodyReader<'_> {
    BodyReader { account, bytes_max: 16 << 20, step_bytes: STEP_BYTES, patience }
}

/// A body that stalls after its first part.
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

#[tokio::test]
async fn a_body_reserves_little_more_than_was_received() {
    let account = Account::new("inflight", 3 << 20);
    let reader = reader(&account, Patience::new(Duration::from_secs(60), 1));
    let mut memory = account.reserve(STEP_BYTES as u64).unwrap();
    let mut bytes = Vec::new();
    while bytes.len() < 800_000 {
        reader.make_room(&mut bytes, 10_000, &mut memory).unwrap();
        bytes.resize(bytes.len() + 10_000, 0);
        assert_eq!(account.used_bytes(), bytes.capacity() as u64, "the whole buffer is reserved");
        let most = (bytes.len() + STEP_BYTES).max(bytes.len() / 4 * 5 + STEP_BYTES);
        assert!(bytes.capacity() <= most, "{} bytes for {}", bytes.capacity(), bytes.len());
    }
}

/// Reads bodies of half a megabyte, which stay, until one is refused.
fn fill(reader: &BodyReader<'_>) -> Vec<(Vec<u8>, Reservation)> {
    let mut large = Vec::new();
    let refused = loop {
        let mut body = (Vec::new(), reader.account.reserve(STEP_BYTES as u64).unwrap());
        let grown = (0..50).try_for_each(|_| {
            reader.make_room(&mut body.0, 10_000, &mut body.1)?;
            body.0.resize(body.0.len() + 10_000, 0);
            Ok::<_, BodyError>(())
        });
        large.push(body);
        if let Err(refused) = grown {
            break refused;
        }
    };
    assert!(matches!(refused, BodyError::Memory(full) if !full.is_for_good()), "{refused:?}");
    large
}

/// A tenant can make its bodies arrive slowly for hours.
#[tokio::test]
async fn a_tenant_with_large_bodies_does_not_keep_those_of_others_from_growing() {
    let account = Account::new("inflight", 3 << 20);
    let [first, other] = [(); 2].map(|()| {
        let part = account.part();
        part.share(8, account.limit_bytes());
        part
    });
    let patience = || Patience::new(Duration::from_secs(60), 1);
    let _large = fill(&reader(&first, patience()));
    assert!(account.used_bytes() > account.limit_bytes() / 2);
    let (mut bytes, mut memory) = (Vec::new(), other.reserve(STEP_BYTES as u64).unwrap());
    while bytes.len() < 300_000 {
        reader(&other, patience()).make_room(&mut bytes, 10_000, &mut memory).unwrap();
        bytes.resize(bytes.len() + 10_000, 0);
    }
}

#[tokio::test]
async fn a_third_of_the_account_is_left_to_small_bodies() {
    let account = Account::new("inflight", 3 << 20);
    let reader = reader(&account, Patience::new(Duration::from_secs(60), 1));
    let _large = fill(&reader);
    let (small, _memory) = reader.read(Body::from(vec![7; 1000])).await.unwrap();
    assert_eq!(small, [7; 1000]);
}

#[tokio::test]
async fn a_stalled_body_times_out() {
    let account = Account::new("inflight", 3 << 20);
    let body = Body::new(Unfinished { is_sent: false });
    let patience = Patience::new(Duration::ZERO, 1 << 30);
    assert!(matches!(reader(&account, patience).read(body).await, Err(BodyError::TooSlow)));
    assert_eq!(account.used_bytes(), 0);
}
