//! A client that speaks HTTP/2 frame by frame.

use crate::harness::PATIENCE;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub(super) const DATA: u8 = 0;
pub(super) const HEADERS: u8 = 1;
pub(super) const RST_STREAM: u8 = 3;
pub(super) const SETTINGS: u8 = 4;
pub(super) const PING: u8 = 6;
pub(super) const GOAWAY: u8 = 7;
pub(super) const CONTINUATION: u8 = 9;

pub(super) const ACK: u8 = 1;
pub(super) const END_STREAM: u8 = 1;
pub(super) const END_HEADERS: u8 = 4;

pub(super) struct Frames<S = TcpStream>(pub(super) S);

impl Frames {
    /// Opens a connection, and sends the preface and settings.
    pub(super) fn open(address: SocketAddr, settings: &[(u16, u32)]) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        let mut frames = Self(stream);
        frames.begin(settings);
        frames
    }

    /// Sends `bytes` at most `times`, until that fails or the server does not read for half a second. Returns how many times
    /// they were sent.
    pub(super) fn flood(&mut self, bytes: &[u8], times: usize) -> usize {
        self.0.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
        (0..times).take_while(|_| self.0.write_all(bytes).is_ok()).count()
    }
}

impl<S: Read + Write> Frames<S> {
    /// Sends the preface and settings.
    pub(super) fn begin(&mut self, settings: &[(u16, u32)]) {
        let setting = |(id, value): &(u16, u32)| [&id.to_be_bytes()[..], &value.to_be_bytes()].concat();
        let settings: Vec<u8> = settings.iter().flat_map(setting).collect();
        let _ = self.0.write_all(&[PREFACE, &frame(SETTINGS, 0, 0, &settings)].concat()); // may have been closed
    }

    pub(super) fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> io::Result<()> {
        self.0.write_all(&frame(kind, flags, stream, payload))
    }

    /// Sends a message in two pieces, and reads the answer, which has to be a success.
    pub(super) fn exports(&mut self, stream: u32, content: &[u8]) {
        self.send(HEADERS, END_HEADERS, stream, &export()).unwrap();
        let message = message(content);
        let (start, rest) = message.split_at(2); // the prefix arrives in pieces
        self.send(DATA, 0, stream, start).unwrap();
        self.send(DATA, END_STREAM, stream, rest).unwrap();
        let (_, answered, data) = self.read(DATA).expect("an answer");
        assert_eq!((answered, data), (stream, vec![0; 5]));
        let (flags, ..) = self.read(HEADERS).expect("trailers");
        assert_ne!(flags & END_STREAM, 0);
    }

    /// Reads frames until one of the wanted kind, and returns its flags, stream and payload. `None` at the end of the
    /// connection.
    pub(super) fn read(&mut self, wanted: u8) -> Option<(u8, u32, Vec<u8>)> {
        loop {
            let mut head = [0; 9];
            match self.0.read_exact(&mut head) {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => panic!("the server sends nothing"),
                Err(_) => return None,
            }
            let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
            self.0.read_exact(&mut payload).ok()?;
            if head[3] == wanted {
                let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
                return Some((head[4], stream, payload));
            }
        }
    }

    /// Waits for the end of the connection.
    pub(super) fn closed(&mut self) {
        let mut ignored = [0; 1 << 10];
        loop {
            match self.0.read(&mut ignored) {
                Ok(0) => return,
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    panic!("the server keeps the connection")
                }
                Err(_) => return,
            }
        }
    }
}

pub(super) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Encodes header fields as HPACK literals that are not indexed.
pub(super) fn fields(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name, value] {
            assert!(text.len() < 127);
            block.push(text.len() as u8);
            block.extend_from_slice(text.as_bytes());
        }
    }
    block
}

/// Header fields of a request that exports metrics.
pub(super) fn export() -> Vec<u8> {
    fields(&[
        (":method", "POST"),
        (":scheme", "http"),
        (":path", "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export"),
        (":authority", "localhost"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ])
}

/// A message as it is in a body of gRPC.
pub(super) fn message(bytes: &[u8]) -> Vec<u8> {
    [&[0][..], &(bytes.len() as u32).to_be_bytes(), bytes].concat()
}
