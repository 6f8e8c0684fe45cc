//! The real carbon, asked by scripts beside this file.

use serde_json::Value;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The Python that has carbon.
#[derive(Debug)]
pub(crate) struct Oracle {
    python: PathBuf,
}

impl Oracle {
    /// None, and a report that the test is skipped, if carbon is not installed.
    pub(crate) fn find() -> Option<Self> {
        let home = || PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(".cache/floodmark");
        let cache = std::env::var_os("FLOODMARK_CACHE").map_or_else(home, PathBuf::from);
        let python = cache.join("graphite/bin/python");
        let modules = "import twisted, whisper, carbon.conf, carbon.pipeline";
        let check =
            Command::new(&python).args(["-W", "ignore", "-c", modules]).stderr(Stdio::null()).status();
        if check.is_ok_and(|status| status.success()) {
            return Some(Self { python });
        }
        stdx::skipped::for_want_of("carbon (scripts/test-servers.sh)");
        None
    }

    /// Answers one request of a script.
    pub(crate) fn ask(&self, script: &str, request: &Value) -> Value {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it").join(script);
        let mut process = Command::new(&self.python)
            .args(["-W", "ignore", "-X", "utf8"])
            .arg(script)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("cannot start carbon");
        writeln!(process.stdin.take().expect("BUG: stdin is a pipe"), "{request}")
            .expect("carbon reads no request");
        let output = process.wait_with_output().expect("carbon has no answer");
        serde_json::from_slice(&output.stdout).expect("not JSON")
    }
}
