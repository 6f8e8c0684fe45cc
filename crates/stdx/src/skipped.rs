//! Reports tests that were skipped because something is missing on this machine, and scores of tests that ran.
//!
//! A test that passes prints nothing under `cargo test`, so a message alone would be lost. `make test` names files in
//! `FLOODMARK_SKIPPED` and `FLOODMARK_SCORES`, and prints what was noted there at its end.

use std::ffi::OsStr;
use std::io::Write;

/// Environment variable with the path of the file that notes of skipped tests are appended to.
pub const VARIABLE: &str = "FLOODMARK_SKIPPED";

/// Environment variable with the path of the file that scores are appended to.
pub const SCORES: &str = "FLOODMARK_SCORES";

/// Notes that the running test, or a part of it, is skipped for want of something: "versitygw (scripts/test-servers.sh)".
pub fn for_want_of(missing: &str) {
    let thread = std::thread::current();
    note(thread.name().unwrap_or("a test"), missing, std::env::var_os(VARIABLE).as_deref());
}

/// Notes how much of a public suite a test passed.
pub fn score(text: &str) {
    println!("{text}");
    append(&format!("{text}\n"), std::env::var_os(SCORES).as_deref());
}

fn note(test: &str, missing: &str, path: Option<&OsStr>) {
    eprintln!("SKIPPED {test}: no {missing}");
    append(&format!("{missing}\t{test}\n"), path);
}

/// One write call a line: tests of several processes append to the same file.
fn append(line: &str, path: Option<&OsStr>) {
    let Some(path) = path else { return };
    let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
    if let Err(error) = file.and_then(|mut file| file.write_all(line.as_bytes())) {
        eprintln!("cannot note it in {}: {error}", path.display());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_appended_a_line_each() {
        let path = std::env::temp_dir().join(format!("floodmark-skipped-{}", std::process::id()));
        note("a::b", "openssl", Some(path.as_os_str()));
        note("c", "a browser (apt-get install chromium)", Some(path.as_os_str()));
        let noted = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(noted, "openssl\ta::b\na browser (apt-get install chromium)\tc\n");
        note("d", "nothing", None);
    }
}
