//! A fake HTTP service to which the server can send requests. The test decides how it answers.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// A function from the head of a request to the answer, which consists of the status line with the headers,
/// and the body.
type Answer = Box<dyn Fn(&str) -> (String, String) + Send>;

/// A service on a port of its own, which stops when this is dropped.
pub(crate) struct Service {
    address: SocketAddr,
    shared: Arc<Shared>,
    accepting: Option<JoinHandle<()>>,
}

struct Shared {
    answer: Mutex<Answer>,
    asked: AtomicUsize,
    is_over: AtomicBool,
}

impl Service {
    pub(crate) fn new(answer: impl Fn(&str) -> (String, String) + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            answer: Mutex::new(Box::new(answer)),
            asked: AtomicUsize::new(0),
            is_over: AtomicBool::new(false),
        });
        let of_thread = Arc::clone(&shared);
        let accepting = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if of_thread.is_over.load(Ordering::SeqCst) {
                    return;
                }
                let shared = Arc::clone(&of_thread);
                std::thread::spawn(move || shared.serve(stream.unwrap()));
            }
        });
        Self { address, shared, accepting: Some(accepting) }
    }

    pub(crate) fn of(body: &str) -> Self {
        let service = Self::new(|_| Default::default());
        service.publish(body);
        service
    }

    pub(crate) fn publish(&self, body: &str) {
        let body = body.to_owned();
        self.answer(move |_| ("200 OK".into(), body.clone()));
    }

    pub(crate) fn answer(&self, answer: impl Fn(&str) -> (String, String) + Send + 'static) {
        *self.shared.answer.lock().unwrap() = Box::new(answer);
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    pub(crate) fn asked(&self) -> usize {
        self.shared.asked.load(Ordering::SeqCst)
    }
}

impl Shared {
    fn serve(&self, stream: TcpStream) -> Option<()> {
        let mut reader = BufReader::new(stream);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head).ok()? == 0 {
                return None;
            }
        }
        self.asked.fetch_add(1, Ordering::SeqCst);
        let (status, body) = self.answer.lock().unwrap()(&head);
        let length = body.len();
        let answer =
            format!("HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}");
        reader.get_mut().write_all(answer.as_bytes()).ok()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address); // wakes the thread
        let _ = self.accepting.take().map(JoinHandle::join);
    }
}
