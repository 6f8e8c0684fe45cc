//! The program `floodmark`.

mod allocator;
mod cli;
mod config;
mod demo;
mod export;
mod import;
mod inspect;
mod lab;
mod limits;
mod manual;
mod output;
mod rule_test;
mod scenario;
mod serve;
mod signals;
mod traffic;
mod whisper_paths;

use clap::Parser;
use cli::{Cli, Command};
use std::process::ExitCode;

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Serve(args) => serve::run(&args).map(|()| true),
        Command::Import(args) => import::run(args),
        Command::Export(args) => export::run(&args).map(|()| true),
        Command::Inspect(command) => inspect::run(command).map(|()| true),
        Command::Config(command) => config::run(command).map(|()| true),
        Command::Rules(command) => rule_test::run(command).map(|()| true),
        Command::Limits(args) => limits::run(&args).map(|()| true),
        Command::Lab(command) => lab::run(command),
        Command::Demo(args) => demo::run(args),
        Command::Completions(args) => manual::completions(&args).map(|()| true),
        Command::Man(args) => manual::man(&args).map(|()| true),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            output::note(format_args!("floodmark: {}", output::causes(&error)));
            ExitCode::from(2)
        }
    }
}
