//! The last lines that a started program printed. They usually tell why the program ended.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, PipeReader, Read};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const LINES_MAX: usize = 8;

/// Longer lines are split into lines of this size.
const LINE_BYTES_MAX: u64 = 400;

/// How long to wait for the rest of the output. A child of the program that has ended may still hold the pipe open.
const DRAIN_WITHIN: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub(crate) struct Output {
    lines: Arc<Mutex<VecDeque<String>>>,
    reader: JoinHandle<()>,
}

impl Output {
    /// Reads `pipe` to its end on a thread, so that the program never blocks on a full pipe.
    pub(crate) fn read(pipe: PipeReader) -> io::Result<Self> {
        let lines = Arc::new(Mutex::new(VecDeque::with_capacity(LINES_MAX)));
        let kept = Arc::clone(&lines);
        let reader = std::thread::Builder::new().name("target-output".into()).spawn(move || {
            let mut pipe = BufReader::new(pipe);
            let mut line = Vec::new();
            while (&mut pipe).take(LINE_BYTES_MAX).read_until(b'\n', &mut line).is_ok_and(|bytes| bytes > 0) {
                keep(&kept, &line);
                line.clear();
            }
        })?;
        Ok(Self { lines, reader })
    }

    /// Waits until the output has been read to its end, and returns the last lines. Empty if the program printed
    /// nothing.
    pub(crate) async fn last_lines(&self) -> Vec<String> {
        let begin = Instant::now();
        while !self.reader.is_finished() && begin.elapsed() < DRAIN_WITHIN {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        self.lines.lock().expect("BUG: a reader panicked while keeping a line").iter().cloned().collect()
    }
}

/// Keeps a line of output. Control characters are removed, because they could change the user's terminal.
fn keep(lines: &Mutex<VecDeque<String>>, line: &[u8]) {
    let text: String = String::from_utf8_lossy(line).chars().filter(|c| !c.is_control()).collect();
    if text.trim().is_empty() {
        return;
    }
    let mut lines = lines.lock().expect("BUG: the run panicked while it read lines");
    if lines.len() == LINES_MAX {
        lines.pop_front();
    }
    lines.push_back(text.trim_end().to_owned());
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[tokio::test]
    async fn the_end_of_a_long_output_is_kept() {
        let (reader, mut writer) = io::pipe().unwrap();
        let output = Output::read(reader).unwrap();
        for line in 0..1_000 {
            writeln!(writer, "line {line}\u{1b}[0m\r\n").unwrap();
        }
        write!(writer, "{}", "x".repeat(500)).unwrap();
        drop(writer);
        let lines = output.last_lines().await;
        assert_eq!(lines.len(), LINES_MAX);
        assert_eq!(lines[5], "line 999[0m", "control characters or empty lines are kept");
        assert_eq!((lines[6].len(), lines[7].len()), (400, 100));
    }
}
