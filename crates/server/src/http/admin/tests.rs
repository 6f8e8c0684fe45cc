use super::*;

#[test]
fn paths_of_operations_are_known_as_such() {
    let source = include_str!("../admin.rs");
    let routes: Vec<_> =
        source.split(".route(\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    assert!(routes.len() > 5, "{routes:?}");
    assert_eq!(routes.iter().filter(|path| !is_path(path)).collect::<Vec<_>>(), [&""; 0]);
}
