//! The bytes of a connection that were read and not yet passed on.

use super::framing::{Found, Framing, FramingFault};
use super::senders::Senders;
use std::sync::Arc;
use std::time::Duration;
use stdx::budget::{Account, Exhausted, Reservation};
use stdx::excerpt::EXCERPT_BYTES_MAX;
use tokio::time::Instant;

/// A body is passed on when it has this many bytes, even if the time for gathering is not over. It is less for a tenant
/// with little memory.
pub(super) const BODY_BYTES: usize = 256 << 10;

/// A buffer with less room than this grows before the next read.
const ROOM_BYTES_MIN: usize = 4 << 10;

/// Buffers that grow leave 1/`GROWTH_LEAVES` of the memory to buffers that begin.
const GROWTH_LEAVES: u64 = 8;

/// Connections that have never sent a complete message leave 1/`STRANGERS_LEAVE` of the memory to those that have, and to
/// the tasks of new connections. Otherwise messages that never end would delay known senders.
const STRANGERS_LEAVE: u64 = 16;

/// Memory to reserve for a buffer of this capacity. It includes a copy of an unfinished message at its end.
fn reserved_bytes(capacity: usize) -> u64 {
    (capacity + capacity.min(Framing::UNFINISHED_BYTES_MAX)) as u64
}

/// Complete messages of one sender. The reservation is for `bytes`.
#[derive(Debug)]
pub(super) struct Body {
    pub(super) bytes: Arc<Vec<u8>>,
    /// When the first of the bytes was read, except those of a message that was unfinished before.
    pub(super) since: Instant,
    pub(super) senders: Senders,
    /// When the body was complete, in milliseconds since the Unix epoch. It is the time of points without a time.
    pub(super) arrived_ms: i64,
    pub(super) _memory: Reservation,
    /// For bytes from datagrams, their reservation in the account that all datagrams share.
    pub(super) _of_datagrams: Option<Reservation>,
}

#[derive(Debug)]
pub(super) struct Buffer {
    account: Account,
    framing: Framing,
    bytes: Vec<u8>,
    memory: Option<Reservation>,
    /// True if a complete message was read.
    is_proven: bool,
    /// Arrival of the first byte that was read since the last [`Self::take`].
    since: Option<Instant>,
    /// When the time of the unfinished message began: when its first byte arrived, or before. Each write that
    /// kept the server from reading moves it on.
    unfinished_since: Option<Instant>,
    /// How long since then the server lacked the memory to read the rest.
    lacked_memory: Duration,
    /// Capacity of the next buffer.
    next_bytes: usize,
    body_bytes: usize,
    /// Limit on the capacity. It is more than `body_bytes` if the unfinished message is longer.
    bytes_max: usize,
}

/// What was in a buffer.
#[derive(Debug, Default)]
pub(super) struct Taken {
    pub(super) body: Option<Body>,
    pub(super) fault: Option<FaultyMessage>,
}

/// A message at the end of a buffer that cannot be read.
#[derive(Debug)]
pub(super) struct FaultyMessage {
    pub(super) fault: FramingFault,
    /// How it begins, for an [`Excerpt`](stdx::excerpt::Excerpt).
    pub(super) beginning: Box<[u8]>,
}

impl Buffer {
    pub(super) const fn new(account: Account, framing: Framing) -> Self {
        Self {
            account,
            framing,
            bytes: Vec::new(),
            memory: None,
            is_proven: false,
            since: None,
            unfinished_since: None,
            lacked_memory: Duration::ZERO,
            next_bytes: ROOM_BYTES_MIN,
            body_bytes: BODY_BYTES,
            bytes_max: BODY_BYTES,
        }
    }

    /// Changes the account from which the next memory is reserved. Does nothing while the buffer has memory.
    pub(super) fn set_account(&mut self, account: impl FnOnce() -> Account) {
        if self.memory.is_none() {
            self.account = account();
        }
    }

    /// Changes the length at which a body is passed on, to at most [`BODY_BYTES`].
    pub(super) fn set_body_bytes(&mut self, body_bytes: usize) {
        self.body_bytes = body_bytes.min(BODY_BYTES);
        if self.bytes.is_empty() {
            self.bytes_max = self.body_bytes;
        }
    }

    /// Returns the vector to which bytes are to be appended. It has room for at least one byte, unless the buffer is
    /// full ([`Self::is_full`]).
    pub(super) fn room(&mut self) -> Result<&mut Vec<u8>, Exhausted> {
        let room = self.bytes.capacity() - self.bytes.len();
        if room < ROOM_BYTES_MIN && self.bytes.capacity() < self.bytes_max {
            let wanted =
                (2 * self.bytes.capacity()).max(self.next_bytes).clamp(ROOM_BYTES_MIN, self.bytes_max);
            // while the bytes are moved, both the old and the new allocation exist
            let both_bytes = reserved_bytes(wanted) + self.bytes.capacity() as u64;
            let held_bytes = self.memory.as_ref().map_or(0, Reservation::bytes);
            let asked_bytes = both_bytes.saturating_sub(held_bytes);
            match (wanted > ROOM_BYTES_MIN, self.is_proven) {
                (true, _) => self.account.leave_room(asked_bytes, held_bytes, GROWTH_LEAVES)?,
                (false, false) => self.account.leave_room(asked_bytes, held_bytes, STRANGERS_LEAVE)?,
                (false, true) => {}
            }
            match &mut self.memory {
                Some(memory) => memory.resize(both_bytes)?,
                None => self.memory = Some(self.account.reserve(both_bytes)?),
            }
            self.bytes.reserve_exact(wanted - self.bytes.len());
            if let Some(memory) = &mut self.memory {
                memory.resize(reserved_bytes(wanted))?;
            }
        }
        Ok(&mut self.bytes)
    }

    /// Must be called after bytes were appended to [`Self::room`].
    pub(super) fn was_read(&mut self, now: Instant) {
        self.since.get_or_insert(now);
        self.unfinished_since.get_or_insert(now);
    }

    pub(super) const fn is_full(&self) -> bool {
        self.bytes.len() >= self.bytes_max
    }

    /// What was read. After [`Self::take`], it is an unfinished message.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Arrival of the first byte that was read since the last [`Self::take`].
    pub(super) const fn since(&self) -> Option<Instant> {
        self.since
    }

    pub(super) const fn unfinished_since(&self) -> Option<Instant> {
        self.unfinished_since
    }

    /// When the unfinished message has been waiting for its rest for `timeout`, although the server would have read it.
    pub(super) fn unfinished_until(&self, timeout: Duration) -> Option<Instant> {
        self.unfinished_since.map(|since| since + self.lacked_memory + timeout)
    }

    /// Must be called after time in which the server read nothing because it wrote.
    pub(super) fn was_not_read(&mut self, time: Duration) {
        self.unfinished_since = self.unfinished_since.map(|since| since + time);
    }

    /// Must be called after time in which the server read nothing because there was no memory.
    pub(super) fn lacked_memory(&mut self, time: Duration) {
        if self.unfinished_since.is_some() {
            self.lacked_memory += time;
        }
    }

    /// Removes all complete messages. `now_ms` is the time of arrival.
    pub(super) fn take(&mut self, now_ms: i64) -> Taken {
        let Some(since) = self.since.take() else { return Taken::default() };
        let Found { skip, end, needs, fault } = self.framing.find(&self.bytes);
        self.bytes_max = needs.max(self.body_bytes);
        if end == 0 && fault.is_none() {
            return Taken::default();
        }
        let unfinished = &self.bytes[end..];
        let (rest, fault) = match fault {
            None => (unfinished.to_vec(), None),
            Some(fault) => {
                let beginning = unfinished[..unfinished.len().min(EXCERPT_BYTES_MAX + 1)].into();
                (Vec::new(), Some(FaultyMessage { fault, beginning }))
            }
        };
        let rest_memory = match &mut self.memory {
            Some(memory) if !rest.is_empty() => Some(memory.split(rest.capacity() as u64)),
            _ => None,
        };
        self.unfinished_since = self.unfinished_since.filter(|_| !rest.is_empty()).map(|_| since);
        self.lacked_memory = Duration::ZERO;
        self.is_proven |= end > skip;
        let mut bytes = std::mem::replace(&mut self.bytes, rest);
        let memory = std::mem::replace(&mut self.memory, rest_memory);
        bytes.truncate(end);
        bytes.drain(..skip);
        self.next_bytes = bytes.len();
        let body = memory.filter(|_| !bytes.is_empty()).map(|memory| Body {
            bytes: Arc::new(bytes),
            senders: Senders::unknown(),
            since,
            arrived_ms: now_ms,
            _memory: memory,
            _of_datagrams: None,
        });
        Taken { body, fault }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Only the time counts in which the sender could have sent the rest.
    #[test]
    fn an_unfinished_message_waits_for_its_sender_and_not_for_the_server() {
        const TIMEOUT: Duration = Duration::from_secs(30);
        let mut buffer = Buffer::new(Account::new("unwritten", 1 << 20), Framing::lines());
        let (began, second) = (Instant::now(), Duration::from_secs(1));
        let arrives = |buffer: &mut Buffer, bytes: &[u8], after: Duration| {
            buffer.room().unwrap().extend_from_slice(bytes);
            buffer.was_read(began + after);
        };
        assert_eq!(buffer.unfinished_until(TIMEOUT), None);
        buffer.lacked_memory(second);
        arrives(&mut buffer, b"a 1 1\na 2", Duration::ZERO);
        assert!(buffer.take(0).body.is_some());
        assert_eq!(buffer.unfinished_until(TIMEOUT), Some(began + TIMEOUT));
        // the body is written
        buffer.was_not_read(second * 100);
        assert_eq!(buffer.unfinished_until(TIMEOUT), Some(began + second * 100 + TIMEOUT));
        assert_eq!(buffer.unfinished_since(), Some(began + second * 100));
        // a connection that lacks memory may be closed to make room, but not for its sender's delay
        buffer.lacked_memory(second * 50);
        assert_eq!(buffer.unfinished_until(TIMEOUT), Some(began + second * 150 + TIMEOUT));
        assert_eq!(buffer.unfinished_since(), Some(began + second * 100));
        // more of the same message gives it no more time
        arrives(&mut buffer, b".5", second * 160);
        assert!(buffer.take(0).body.is_none());
        assert_eq!(buffer.unfinished_until(TIMEOUT), Some(began + second * 150 + TIMEOUT));
        arrives(&mut buffer, b" 2\na 3", second * 170);
        assert!(buffer.take(0).body.is_some());
        assert_eq!(buffer.unfinished_until(TIMEOUT), Some(began + second * 170 + TIMEOUT));
        arrives(&mut buffer, b" 3\n", second * 171);
        assert!(buffer.take(0).body.is_some());
        assert_eq!(buffer.unfinished_until(TIMEOUT), None);
    }
}
