//! Gives a started target an empty directory and a free port, which a scenario writes as `{data}` and `{port}`.

use crate::scenario::{TargetSpec, Texts};
use anyhow::{Context, Result};
use std::net::{Ipv4Addr, TcpListener};
use tempfile::TempDir;

/// Stands for an empty directory, which is removed when the run ends.
const DATA: &str = "{data}";

const PORT: &str = "{port}";

#[derive(Debug)]
pub(crate) struct Sandbox {
    _data: Option<TempDir>,
}

impl Sandbox {
    /// If the command `start` contains `{data}` or `{port}`, replaces them everywhere in `target`.
    pub(crate) fn fill(target: &mut TargetSpec) -> Result<Self> {
        let start = target.start.clone().unwrap_or_default();
        if start.contains(PORT) {
            let port = free_port().context("cannot find a free port for the target")?.to_string();
            each_text(target, |text| *text = text.replace(PORT, &port));
        }
        let mut data = None;
        if start.contains(DATA) {
            let folder = tempfile::Builder::new().prefix("floodmark-lab-").tempdir();
            let folder = folder.context("cannot create a directory for the target's data")?;
            let path = folder
                .path()
                .to_str()
                .context("the path of the directory for temporary files is not UTF-8")?;
            each_text(target, |text| *text = text.replace(DATA, path));
            target.data_dir = target.data_dir.take().map(|dir| match dir.to_str() {
                Some(text) => text.replace(DATA, path).into(),
                None => dir,
            });
            data = Some(folder);
        }
        Ok(Self { _data: data })
    }
}

/// Returns a port that is free now, although another process can still take it before the target does.
fn free_port() -> std::io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

fn each_text(target: &mut TargetSpec, change: impl Fn(&mut String)) {
    match &mut target.write {
        Texts::One(url) => change(url),
        Texts::Many(urls) => urls.iter_mut().for_each(&change),
    }
    let others = [&mut target.start, &mut target.read, &mut target.ready, &mut target.metrics];
    others.into_iter().flatten().for_each(change);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Scenario;

    #[test]
    fn each_run_has_a_directory_and_a_port_of_its_own() {
        let text = "[target]\nstart = 'serve --http 127.0.0.1:{port} --data-dir {data}/x --memory {memory}'\n\
                    write = ['http://127.0.0.1:{port}/{tenant}']\nready = 'http://127.0.0.1:{port}/-/ready'\n\
                    data_dir = '{data}/x'";
        let target = Scenario::parse(text).unwrap().target;
        let (mut one, mut two) = (target.clone(), target);
        let (first, second) = (Sandbox::fill(&mut one).unwrap(), Sandbox::fill(&mut two).unwrap());
        assert_ne!(one.start, two.start);
        let folder = one.data_dir.as_ref().unwrap().parent().unwrap().to_owned();
        assert!(folder.is_dir() && one.start.as_ref().unwrap().contains(folder.to_str().unwrap()));
        let port =
            one.write.all()[0].strip_prefix("http://127.0.0.1:").unwrap().strip_suffix("/{tenant}").unwrap();
        assert!(port.parse::<u16>().unwrap() > 0);
        assert_eq!(one.ready.unwrap(), format!("http://127.0.0.1:{port}/-/ready"));
        assert!(
            one.start.unwrap().ends_with("--memory {memory}"),
            "the placeholder of a search was replaced"
        );
        drop((first, second));
        assert!(!folder.exists());
    }
}
