//! The Floodmark binary: a table of contents of what it can do.

mod cli;
mod serve;

use clap::Parser;
use cli::{Cli, Command};
use std::process::ExitCode;

/// jemalloc: gives memory back under churn, and tells what it holds.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let done = match cli.command {
        Command::Serve(args) => serve::run(args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("floodmark: {error:#}");
            ExitCode::FAILURE
        }
    }
}
