//! Mount points in the agent's directory. Only a person can mount, and volumes are how containers are given their data:
//! what is mounted there is part of the directory. The kernel's own trees are not, wherever they are mounted.
//!
//! A test may not mount on the machine it runs on. This one runs itself again in a user and a mount namespace of its own.

use std::process::Command;

use serde_json::json;

use super::World;

const NAME: &str = "tests::mounts::what_is_mounted_in_the_agents_directory_is_part_of_it";
const INSIDE: &str = "NEXUS3_TEST_IN_MOUNT_NAMESPACE";

#[tokio::test]
async fn what_is_mounted_in_the_agents_directory_is_part_of_it() {
    if std::env::var_os(INSIDE).is_some() {
        return in_namespace().await;
    }
    let unshare = || {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--mount"]);
        command
    };
    if !unshare().arg("true").status().is_ok_and(|status| status.success()) {
        eprintln!("SKIPPED {NAME}: this machine makes no user and mount namespaces");
        return;
    }
    let again = unshare()
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", NAME, "--nocapture"])
        .env(INSIDE, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&again.stdout);
    assert!(again.status.success() && said.contains("1 passed"), "{said}\n{again:?}");
}

async fn in_namespace() {
    let world = World::new().await;
    let mount = |how: &str, from: &str, to: &str| {
        let status = Command::new("mount").arg(how).arg(from).arg(world.work(to)).status();
        assert!(status.unwrap().success(), "mount {how} {from} {to}");
    };
    for dir in ["volume", "proc", "sys"] {
        std::fs::create_dir(world.work(dir)).unwrap();
    }
    world.put("inside.txt", "inside\n");
    world.put("one.txt", "");
    std::fs::write(world.outside("data.txt"), "mounted data\n").unwrap();
    std::fs::write(world.outside("one.txt"), "one file\n").unwrap();
    mount("--bind", world.outside("").to_str().unwrap(), "volume");
    mount("--bind", world.outside("one.txt").to_str().unwrap(), "one.txt");
    mount("--rbind", "/proc", "proc");
    mount("--rbind", "/sys", "sys");

    // A volume is read, walked and written.
    let read = async |path: &str| world.run_gated("read_file", json!({"path": path})).await;
    assert_eq!(read("volume/data.txt").await.unwrap(), "mounted data\n");
    let found = world.run_gated("search_text", json!({"pattern": "mounted"})).await.unwrap();
    assert!(found.contains("volume/data.txt"), "{found}");
    let write = async |path: &str| {
        world.run_gated("write_file", json!({"path": path, "content": "written\n"})).await
    };
    write("volume/new.txt").await.unwrap();
    write("volume/data.txt").await.unwrap();
    for file in ["new.txt", "data.txt"] {
        assert_eq!(std::fs::read_to_string(world.outside(file)).unwrap(), "written\n");
    }
    let away = json!({"from": "inside.txt", "to": "volume/inside.txt"});
    let refused = world.run_gated("rename", away).await.unwrap_err();
    assert!(refused.contains("it lies on another file system"), "{refused}");

    // A mounted file can be read, and not be put another in its place.
    assert_eq!(read("one.txt").await.unwrap(), "one file\n");
    let refused = write("one.txt").await.unwrap_err();
    assert!(refused.contains("it is a mount point"), "{refused}");
    assert_eq!(std::fs::read_to_string(world.outside("one.txt")).unwrap(), "one file\n");

    // The kernel's trees are what they are, through the gate and past it.
    for path in ["proc", "proc/version", "proc/sys/kernel/ostype", "sys/kernel", "proc/new"] {
        for tool in ["read_file", "list_directory", "file_info", "mkdir"] {
            let arguments = json!({"path": path});
            for answer in [
                world.run(tool, arguments.clone()).await,
                world.run_gated(tool, arguments.clone()).await,
            ] {
                let refused = answer.unwrap_err();
                assert!(refused.contains("belongs to the kernel"), "{tool} {path}: {refused}");
            }
        }
    }
    assert!(read("proc/self/environ").await.is_err());
    let walked = world.run_gated("glob", json!({"pattern": "**/*"})).await.unwrap();
    assert_eq!(walked, "inside.txt\none.txt\nvolume/data.txt\nvolume/new.txt\nvolume/one.txt\n");
}
