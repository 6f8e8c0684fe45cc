//! Reports which tests were skipped, and the scores of public test suites. `cargo test` hides the output of
//! tests that pass, so `make test` names files for these reports and prints them at its end.

use std::ffi::OsStr;
use std::io::Write;

/// Environment variable with the path of the file that lists skipped tests.
pub const VARIABLE: &str = "FLOODMARK_SKIPPED";

/// Environment variable with the path of the file that lists the scores of public test suites.
pub const SCORES: &str = "FLOODMARK_SCORES";

/// Reports that a test, or a section of it, is skipped because `missing` is not installed.
pub fn for_want_of(missing: &str) {
    let thread = std::thread::current();
    note(thread.name().unwrap_or("a test"), missing, std::env::var_os(VARIABLE).as_deref());
}

pub fn score(text: &str) {
    println!("{text}");
    append(&format!("{text}\n"), std::env::var_os(SCORES).as_deref());
}

fn note(test: &str, missing: &str, path: Option<&OsStr>) {
    eprintln!("SKIPPED {test}: no {missing}");
    append(&format!("{missing}\t{test}\n"), path);
}

/// Appends the line with a single write, because several test processes append to the same file.
fn append(line: &str, path: Option<&OsStr>) {
    let Some(path) = path else { return };
    let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
    if let Err(error) = file.and_then(|mut file| file.write_all(line.as_bytes())) {
        eprintln!("cannot write to {}: {error}", path.display());
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
