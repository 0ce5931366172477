//! A program in namespaces of its own, with nothing of the host but one identity's socket.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;

use super::identity::with_doors;
use crate::harness::Server;
use crate::harness::process::{self, Output};

/// The client that is copied into the sandbox. Built beside the server, whenever all tests are.
fn ash() -> PathBuf {
    let program = Path::new(env!("CARGO_BIN_EXE_nexus3")).with_file_name("ash");
    assert!(program.exists(), "build it first: cargo build -p ash");
    program
}

/// A root with the client and what it is linked to, and a place for the socket.
fn make_root(root: &Path) {
    let copy = |from: &Path| {
        let to = root.join(from.strip_prefix("/").unwrap());
        std::fs::create_dir_all(to.parent().unwrap()).unwrap();
        std::fs::copy(from, to).unwrap();
    };
    let linked = Command::new("ldd").arg(ash()).output().unwrap();
    let linked = String::from_utf8(linked.stdout).unwrap();
    let words = linked.split_whitespace().filter(|word| word.starts_with('/'));
    words.for_each(|path| copy(Path::new(path)));
    for dir in ["bin", "run"] {
        std::fs::create_dir_all(root.join(dir)).unwrap();
    }
    std::fs::copy(ash(), root.join("bin/ash")).unwrap();
    std::fs::write(root.join("run/rpc.sock"), "").unwrap();
}

/// Runs `ash` with `words` in its own user, mount, network and process namespace, in `root`, with this socket.
async fn inside(server: &Server, root: &Path, socket: &Path, words: &str) -> Output {
    let script = format!(
        "exec unshare --user --map-root-user --mount --net --pid --fork sh -c '
             mount --bind {socket} {root}/run/rpc.sock &&
             exec env -i ASH_RPC_SOCKET=/run/rpc.sock \"$(command -v chroot)\" {root} /bin/ash {words}'",
        socket = socket.display(),
        root = root.display(),
    );
    process::run(
        server.world.shell(&format!("export PATH=/usr/sbin:/usr/bin:/sbin:/bin; {script}")),
    )
    .await
}

#[tokio::test]
async fn a_sandbox_with_one_socket_has_one_identitys_memory() {
    let mut may = Command::new("unshare");
    may.args(["--user", "--map-root-user", "--mount", "--net", "--pid", "--fork", "true"]);
    if !may.output().is_ok_and(|output| output.status.success()) {
        eprintln!("this kernel lets nobody make namespaces: the sandbox is not tried");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (setup, [own, other]) = with_doors(&dir);
    let server = setup.start().await;
    let root = dir.path().join("root");
    make_root(&root);
    let ask = async |socket: &Path, words: &str| inside(&server, &root, socket, words).await;
    let kept = ask(&own, "memory add \"She is allergic to nuts\"").await;
    assert_eq!(kept.code, Some(0), "{kept:?}");
    let found = ask(&own, "memory search nuts").await;
    assert!(found.stdout.contains("She is allergic to nuts"), "{found:?}");
    // Nobody else's, whatever it says of itself.
    let hidden = ask(&other, "memory search nuts").await;
    assert!(!hidden.stdout.contains("allergic"), "{hidden:?}");
    let claimed = ask(
        &other,
        "call memory.search \"{\\\"query\\\":\\\"nuts\\\",\\\"user_id\\\":\\\"u\\\"}\"",
    )
    .await;
    assert!(!claimed.stdout.contains("allergic"), "{claimed:?}");
    let refused = ask(&own, "call list_agents").await;
    assert!(refused.code == Some(1) && refused.stderr.contains("-32003"), "{refused:?}");
    // The host sees both.
    let seen = server.wire().ok("memory.list", json!({"user_id": "u"})).await;
    assert_eq!(seen[0]["content"], "She is allergic to nuts");
}
