//! Generates the list of presets at build time, so that each scenario file in `scenarios/` can be run by its name.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() {
    let package = env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR");
    let folder = Path::new(&package).join("../../scenarios");
    println!("cargo::rerun-if-changed={}", folder.display());
    let entries = fs::read_dir(&folder).expect("cannot list the folder of scenarios");
    let mut files: Vec<PathBuf> =
        entries.map(|entry| entry.expect("cannot list the folder of scenarios").path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "toml"));
    files.sort_by_key(|file| file.file_stem().map(ToOwned::to_owned));
    let mut list = "[".to_owned();
    for file in files {
        let name = file
            .file_stem()
            .and_then(|name| name.to_str())
            .expect("the name of a scenario file is not UTF-8");
        writeln!(list, "({name:?}, include_str!({:?})),", file.display().to_string())
            .expect("write to a string");
    }
    list.push(']');
    let out = env::var_os("OUT_DIR").expect("cargo sets OUT_DIR");
    fs::write(Path::new(&out).join("presets.rs"), list).expect("cannot write the list of presets");
}
