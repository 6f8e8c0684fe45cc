//! A log file of limited size, written by a separate thread.

use parking_lot::{Condvar, Mutex};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use stdx::telemetry::Counter;

/// Limit on each of two buffers: one for the lines that wait, one for the lines that are being written to disk.
const BUFFER_BYTES_MAX: usize = 1 << 20;

/// A log file. When it is dropped, the lines that still wait are written.
#[derive(Debug)]
pub(super) struct LogFile {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    buffer: Mutex<Buffer>,
    filled: Condvar,
    lost: Counter,
}

#[derive(Debug, Default)]
struct Buffer {
    lines: Vec<u8>,
    is_ending: bool,
}

impl LogFile {
    /// Starts a thread that appends to the file at `path`. The file and the rotated file before it together
    /// have at most `bytes_max`.
    pub(super) fn start(path: PathBuf, bytes_max: u64, lost: Counter) -> Self {
        let shared = Arc::new(Shared { buffer: Mutex::default(), filled: Condvar::new(), lost });
        let (file, writer) = (RotatedFile { path, bytes_max }, Arc::clone(&shared));
        let thread = std::thread::Builder::new().name("query-log".into()).spawn(move || writer.run(&file));
        let thread = thread.inspect_err(|error| tracing::error!(%error, "cannot start the query log"));
        Self { shared, thread: thread.ok() }
    }

    /// Appends a line, which must end with a newline. If the buffer is full, the line is lost, and counted.
    pub(super) fn append(&self, line: &[u8]) {
        let mut buffer = self.shared.buffer.lock();
        if buffer.lines.len() + line.len() > BUFFER_BYTES_MAX {
            self.shared.lost.inc();
            return;
        }
        buffer.lines.extend_from_slice(line);
        drop(buffer);
        self.shared.filled.notify_one();
    }
}

impl Drop for LogFile {
    fn drop(&mut self) {
        self.shared.buffer.lock().is_ending = true;
        self.shared.filled.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // a panic was reported by its own message
        }
    }
}

impl Shared {
    fn run(&self, file: &RotatedFile) {
        let (mut lines, mut is_failing) = (Vec::new(), false);
        loop {
            let mut buffer = self.buffer.lock();
            while buffer.lines.is_empty() && !buffer.is_ending {
                self.filled.wait(&mut buffer);
            }
            if buffer.lines.is_empty() {
                return;
            }
            std::mem::swap(&mut lines, &mut buffer.lines);
            drop(buffer);
            let written = file.append(&lines);
            if let Err(error) = &written {
                self.lost.add(lines.iter().filter(|byte| **byte == b'\n').count() as u64);
                if !is_failing {
                    let path = file.path.display();
                    tracing::warn!(%path, %error, "cannot write the query log; its lines are lost until it can be written again");
                }
            } else if is_failing {
                tracing::info!("the query log can be written again");
            }
            is_failing = written.is_err();
            lines.clear();
        }
    }
}

/// A log file that is renamed to `NAME.1` before it would exceed half of `bytes_max`. An earlier `NAME.1` is
/// replaced.
#[derive(Debug)]
struct RotatedFile {
    path: PathBuf,
    bytes_max: u64,
}

impl RotatedFile {
    /// Appends all of `lines`, or nothing. The file is opened each time, because another program may have
    /// moved or deleted it.
    fn append(&self, lines: &[u8]) -> io::Result<()> {
        let mut file = open(&self.path)?;
        let mut len = file.metadata()?.len();
        if len > 0 && len + lines.len() as u64 > self.bytes_max / 2 {
            std::fs::rename(&self.path, self.rotated())?;
            file = open(&self.path)?;
            len = file.metadata()?.len();
        }
        // if the write fails, cut off the incomplete line, to which the next line would be appended
        file.write_all(lines).inspect_err(|_| _ = file.set_len(len))
    }

    fn rotated(&self) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(".1");
        name.into()
    }
}

/// Opens a log file for appending. Only its owner may read it, because queries may contain secrets.
fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o600).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    use std::io::Read;
    use stdx::telemetry::Registry;

    fn counter() -> Counter {
        Registry::new().counter("lost_total", "Lost.")
    }

    #[test]
    fn the_file_and_its_rotated_part_keep_to_the_limit() {
        let dir = tempfile::tempdir().unwrap();
        let file = RotatedFile { path: dir.path().join("queries.log"), bytes_max: 1000 };
        let read = |path: &Path| std::fs::read_to_string(path).unwrap_or_default();
        for i in 0..100 {
            file.append(format!("line {i} {}\n", "x".repeat(i % 60)).as_bytes()).unwrap();
            let (old, new) = (read(&file.rotated()), read(&file.path));
            assert!(old.len() <= 500 && new.len() <= 500, "{} and {} bytes", old.len(), new.len());
            let both = old + &new;
            let last: Vec<_> =
                both.lines().rev().take(5).map(|line| line.split(' ').nth(1).unwrap()).collect();
            let expected: Vec<_> = (0..=i).rev().take(5).map(|i| i.to_string()).collect();
            assert_eq!(last, expected, "the newest lines are kept");
        }
    }

    #[test]
    fn lines_are_written_before_the_log_ends_and_after_its_file_is_moved() {
        let dir = tempfile::tempdir().unwrap();
        let (path, moved) = (dir.path().join("queries.log"), dir.path().join("moved.log"));
        for round in 0..3 {
            let log = LogFile::start(path.clone(), 1 << 20, counter());
            (0..100).for_each(|i| log.append(format!("{round} {i}\n").as_bytes()));
            drop(log);
            let text = std::fs::read_to_string(&path).unwrap();
            assert_eq!(text, (0..100).map(|i| format!("{round} {i}\n")).collect::<String>());
            std::fs::rename(&path, &moved).unwrap();
        }
    }

    #[test]
    fn a_folder_that_is_missing_loses_lines_until_it_is_made() {
        let dir = tempfile::tempdir().unwrap();
        let (path, lost) = (dir.path().join("logs/queries.log"), counter());
        let log = LogFile::start(path.clone(), 1 << 20, lost.clone());
        log.append(b"a\n");
        while lost.get() == 0 {
            std::thread::yield_now();
        }
        std::fs::create_dir(path.parent().unwrap()).unwrap();
        log.append(b"b\n");
        drop(log);
        assert_eq!((std::fs::read_to_string(&path).unwrap().as_str(), lost.get()), ("b\n", 1));
    }

    /// A pipe that nobody reads blocks its writer, as a disk that hangs would.
    #[test]
    fn a_disk_that_hangs_delays_nobody_and_the_buffer_is_bounded() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pipe");
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let lost = counter();
        let log = LogFile::start(path.clone(), 1 << 20, lost.clone());
        let line = [vec![b'x'; 1023], vec![b'\n']].concat();
        for _ in 0..4 * BUFFER_BYTES_MAX / line.len() {
            log.append(&line);
        }
        assert!(lost.get() >= 2 * (BUFFER_BYTES_MAX / line.len()) as u64, "{} lines", lost.get());
        assert!(log.shared.buffer.lock().lines.capacity() <= 2 * BUFFER_BYTES_MAX);
        let kept = 4 * BUFFER_BYTES_MAX - lost.get() as usize * line.len();
        // the pipe is also opened for writing: otherwise, reading would end when the writer closes the pipe between two
        // batches
        let reader =
            move || OpenOptions::new().read(true).write(true).open(path)?.read_exact(&mut vec![0; kept]);
        let reader = std::thread::spawn(reader);
        drop(log);
        reader.join().unwrap().expect("waiting lines are written on drop");
    }
}
