use super::*;
use std::fs;

const V2: &str = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate";
const V1: &str = "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory";
const V1_CPU: &str = "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct";
const HYBRID: &str = "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw";

/// Returns the limit found in a tree with these mounts, groups and files.
fn limit_of(mounts: &[&str], groups: &str, files: &[(&str, &str)]) -> Option<(u64, String)> {
    let root = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &str| {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    let root_mount = "23 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw";
    write("proc/self/mountinfo", &[&[root_mount], mounts].concat().join("\n"));
    write("proc/self/cgroup", groups);
    files.iter().for_each(|(path, text)| write(&format!("sys/fs/cgroup/{path}"), text));
    let (bytes, file) = memory_limit(root.path())?;
    let file = file.strip_prefix(root.path().join("sys/fs/cgroup")).unwrap();
    Some((bytes, file.to_str().unwrap().to_owned()))
}

#[track_caller]
fn check(mounts: &[&str], groups: &str, files: &[(&str, &str)], expected: Option<(u64, &str)>) {
    let found = limit_of(mounts, groups, files);
    assert_eq!(found.as_ref().map(|(bytes, file)| (*bytes, file.as_str())), expected);
}

#[test]
fn version_2() {
    let files = [("a/memory.max", "max\n"), ("a/b/memory.max", "512\n"), ("a/b/memory.high", "max\n")];
    check(&[V2], "0::/a/b\n", &files, Some((512, "a/b/memory.max")));
    check(&[V2], "0::/a\n", &files, None);
    check(&[V2], "0::/\n", &files, None);
    check(&[V2], "", &files, None);
    // if mountinfo is missing, the usual mount point is used
    check(&[], "0::/a/b\n", &files, Some((512, "a/b/memory.max")));
}

#[test]
fn the_kernel_throttles_before_it_kills() {
    let files = [("a/memory.max", "512\n"), ("a/memory.high", "400\n")];
    check(&[V2], "0::/a\n", &files, Some((400, "a/memory.high")));
}

#[test]
fn the_tightest_group_on_the_way_to_the_root_counts() {
    let files = [("a/memory.high", "300"), ("a/b/memory.max", "512"), ("a/b/c/memory.max", "600")];
    check(&[V2], "0::/a/b/c\n", &files, Some((300, "a/memory.high")));
    let files = [("memory/a/memory.limit_in_bytes", "300"), ("memory/a/b/memory.limit_in_bytes", "512")];
    check(&[V1], "4:memory:/a/b\n", &files, Some((300, "memory/a/memory.limit_in_bytes")));
}

#[test]
fn version_1() {
    let groups = "12:cpu,cpuacct:/other\n5:pids:/\n4:memory:/docker/7\n1:name=systemd:/x\n";
    let unlimited = "9223372036854771712\n";
    let files = [
        ("memory/memory.limit_in_bytes", unlimited),
        ("memory/docker/memory.limit_in_bytes", unlimited),
        ("memory/docker/7/memory.limit_in_bytes", "536870912\n"),
        ("cpu,cpuacct/other/memory.limit_in_bytes", "1\n"),
    ];
    let expected = "memory/docker/7/memory.limit_in_bytes";
    check(&[V1_CPU, V1], groups, &files, Some((512 << 20, expected)));
    check(&[V1_CPU, V1], "4:memory:/docker\n", &files, None);
    // the controller shares its hierarchy with others
    let shared = V1.replace("rw,memory", "rw,cpu,memory");
    check(&[&shared], "4:cpu,memory:/docker/7\n", &files, Some((512 << 20, expected)));
}

#[test]
fn hybrid_machines_have_memory_in_version_1() {
    let groups = "4:memory:/s/x.service\n1:name=systemd:/s/x.service\n0::/s/x.service\n";
    let files =
        [("memory/s/x.service/memory.limit_in_bytes", "512\n"), ("unified/s/x.service/cgroup.procs", "1\n")];
    let expected = Some((512, "memory/s/x.service/memory.limit_in_bytes"));
    check(&[V1, HYBRID], groups, &files, expected);
    check(&[HYBRID, V1], groups, &files, expected);
}

#[test]
fn a_container_may_see_only_its_own_group() {
    // version 1 without a namespace: the path is the host's, and only this group is mounted
    let own = V1.replace("0:32 / /sys", "0:32 /docker/7 /sys");
    let groups = "4:memory:/docker/7\n";
    let files = [("memory/memory.limit_in_bytes", "512\n")];
    check(&[&own], groups, &files, Some((512, "memory/memory.limit_in_bytes")));
    check(&[&own], "4:memory:/docker/7/inner\n", &files, Some((512, "memory/memory.limit_in_bytes")));
    // the group's path does not exist below the mount point
    check(&[V1], groups, &files, Some((512, "memory/memory.limit_in_bytes")));
    check(&[V2], "0::/kubepods/pod1\n", &[("memory.max", "512")], Some((512, "memory.max")));
    // the group is outside of the process' namespace
    check(&[V2], "0::/../other\n", &[("memory.max", "512")], Some((512, "memory.max")));
    // the limit of an ancestor, which only the statistics show
    let stat = "cache 0\nhierarchical_memory_limit 300\nhierarchical_memsw_limit 700\n";
    let files = [("memory/memory.limit_in_bytes", "512\n"), ("memory/memory.stat", stat)];
    check(&[&own], groups, &files, Some((300, "memory/memory.stat")));
}

#[test]
fn mounts_lie_anywhere() {
    let mount = V2.replace("/sys/fs/cgroup ", "/sys/fs/cgroup/my\\040groups ");
    check(&[&mount], "0::/a\n", &[("my groups/a/memory.max", "7")], Some((7, "my groups/a/memory.max")));
    assert_eq!(unescaped("a\\134b\\x\\12"), "a\\b\\x\\12");
}
