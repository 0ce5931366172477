//! The short form of `make torture`: every scenario, for seconds. The program is `nexus-torture`, whose first file says
//! more; a failure prints its seed and where the evidence lies.

use std::process::{Command, Output};

fn torture(args: &[&str]) -> Output {
    let output = Command::new(env!("CARGO_BIN_EXE_nexus-torture")).args(args).output();
    output.unwrap_or_else(|error| panic!("nexus-torture cannot be started: {error}"))
}

fn check(scenario: &str) {
    let output = torture(&[scenario, "--kills", "20"]);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
}

#[test]
fn twenty_kills_lose_nothing_and_repeat_nothing() {
    check("kills");
}

#[test]
fn death_at_any_commit_loses_nothing_and_repeats_nothing() {
    check("commits");
}

#[test]
fn what_nobody_waited_for_happens_whole_or_not_at_all() {
    check("dropping");
}

#[test]
fn a_store_that_fails_once_changes_nothing_by_it() {
    check("statements");
}

#[test]
fn a_disk_that_refuses_leaves_nothing_half_written() {
    check("refusing");
}

#[test]
fn a_disk_that_forgets_leaves_what_once_was() {
    check("lying");
}

#[test]
fn a_full_disk_is_an_error_that_passes() {
    check("disk");
}

#[test]
fn several_servers_share_a_home_and_outlive_each_other() {
    check("shared");
}

#[test]
fn a_server_that_was_paused_can_write_nothing() {
    check("paused");
}

#[test]
fn a_plan_survives_its_server_at_any_moment() {
    check("plans");
}

#[test]
fn an_honest_client_is_served_beside_hostile_ones() {
    check("abuse");
}

/// The oracle is worth something only if it can fail.
#[test]
fn what_a_disk_forgot_is_missed() {
    let output = torture(&["kills", "--kills", "3", "--fault", "lie-from:30", "--seed", "1"]);
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let (_, evidence) = said.split_once("evidence in ").expect("it says where the evidence is");
    let kept = evidence.split(':').next().unwrap();
    assert!(std::path::Path::new(kept).join("server.log").exists(), "{said}");
    std::fs::remove_dir_all(kept).unwrap();
}
