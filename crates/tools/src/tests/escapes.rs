//! Every way out of the agent's directory, tried with every tool that takes a path, past the gate and through it. No byte
//! of `outside` may come out, and none of it may change.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use nexus_core::permission::Level;
use nexus_core::tool::Access;
use rustix::fs::{CWD, FileType, Mode, RenameFlags};
use serde_json::{Value, json};

use super::World;

/// Stands in what is outside: in a file, and in the name of a directory that no tool is told of.
const SECRET: &str = "SECRET_MARKER";

/// A tool, and arguments for it in which the path stands.
type Use = (&'static str, fn(&str) -> Value);

/// Every way to give a tool a path.
const USES: &[Use] = &[
    ("read_file", |path| json!({"path": path})),
    ("tail", |path| json!({"path": path})),
    ("file_info", |path| json!({"path": path})),
    ("list_directory", |path| json!({"path": path})),
    ("glob", |path| json!({"pattern": "**/*", "path": path})),
    ("search_text", |path| json!({"pattern": ".", "path": path})),
    ("outline", |path| json!({"path": path})),
    ("write_file", |path| json!({"path": path, "content": "changed"})),
    ("append_file", |path| json!({"path": path, "content": "changed"})),
    (
        "edit_file",
        |path| json!({"path": path, "old_string": "E", "new_string": "F", "replace_all": true}),
    ),
    ("edit_lines", |path| json!({"path": path, "start": 1, "end": 1, "text": "changed"})),
    ("regex_replace", |path| json!({"path": path, "pattern": "[A-Z]", "replacement": "X"})),
    (
        "patch",
        |path| json!({"diff": format!("--- {path}\n+++ {path}\n@@ -1 +1 @@\n-{SECRET}\n+changed\n")}),
    ),
    (
        "patch",
        |path| json!({"diff": format!("--- /dev/null\n+++ {path}\n@@ -0,0 +1 @@\n+changed\n")}),
    ),
    (
        "patch",
        |path| json!({"diff": format!("--- {path}\n+++ /dev/null\n@@ -1 +0,0 @@\n-{SECRET}\n")}),
    ),
    ("patch", |path| json!({"diff": git_move("rename", path, "fresh")})),
    ("patch", |path| json!({"diff": git_move("rename", "inside.txt", path)})),
    ("patch", |path| json!({"diff": git_move("copy", path, "fresh")})),
    ("copy_file", |path| json!({"from": path, "to": "fresh"})),
    ("copy_file", |path| json!({"from": "inside.txt", "to": path})),
    ("rename", |path| json!({"from": path, "to": "fresh"})),
    ("rename", |path| json!({"from": "inside.txt", "to": path})),
    ("rename", |path| json!({"from": "sub", "to": path})),
    ("mkdir", |path| json!({"path": path})),
];

fn git_move(how: &str, from: &str, to: &str) -> String {
    format!("diff --git a/{from} b/{to}\nsimilarity index 100%\n{how} from {from}\n{how} to {to}\n")
}

/// Paths that lead out, or try to.
fn paths(world: &World) -> Vec<String> {
    let outside = world.outside("").display().to_string();
    let outside = outside.trim_end_matches('/');
    let mut paths: Vec<String> = [
        "link_file",
        "link_file_absolute",
        "link_link",
        "link_dir",
        "link_dir_absolute",
        "dangling",
        "loop",
        "..",
        "../outside",
        "~",
        "~/new",
        "~root/new",
        "",
        ".",
        "/",
        "fifo",
        "socket",
        "link_device",
        "/dev/zero",
        "/dev/stdin",
        "/dev/fd/0",
        "hard.py",
        "inside.txt\0",
        "/proc/self/environ",
        "/proc/self/cwd/inside.txt",
        "/proc/self/maps",
        "link_proc",
        "link_proc/self/environ",
        "link_proc/sys/kernel/ostype",
        "link_sys/kernel",
    ]
    .map(String::from)
    .into();
    for name in ["secret.py", "new"] {
        paths.extend([
            format!("../outside/{name}"),
            format!("sub/../../outside/{name}"),
            format!("././/../outside/./{name}"),
            format!("missing/../../outside/{name}"),
            format!("inside.txt/../../outside/{name}"),
            format!("{outside}/{name}"),
            format!("/../..{outside}/{name}"),
            format!("link_dir/{name}"),
            format!("link_dir/../outside/{name}"),
            format!("link_dir_absolute/{name}"),
            format!("sub/up/outside/{name}"),
            format!("inside.txt\0/../../outside/{name}"),
            format!("/proc/self/root{outside}/{name}"),
            format!("/proc/{}/root{outside}/{name}", std::process::id()),
            format!("/proc/thread-self/root{outside}/{name}"),
            format!("/proc/self/cwd/../../../../../../../..{outside}/{name}"),
            format!("link_proc/self/root{outside}/{name}"),
        ]);
    }
    paths.push("n".repeat(5_000));
    paths.push("d/".repeat(2_000) + "new");
    paths.push("../".repeat(200) + outside.trim_start_matches('/') + "/new");
    paths
}

/// `work` and `outside` as every attempt finds them.
fn lay_out(world: &World) {
    for dir in [world.work(""), world.outside("")] {
        std::fs::remove_dir_all(&dir).unwrap();
        std::fs::create_dir(&dir).unwrap();
    }
    let secret = format!("{SECRET}\ndef {SECRET}(): pass\n");
    std::fs::write(world.outside("secret.py"), secret).unwrap();
    std::fs::create_dir(world.outside(format!("dir-{SECRET}"))).unwrap();
    std::fs::write(world.outside("hard.py"), "def hard(): pass\n").unwrap();
    std::fs::hard_link(world.outside("hard.py"), world.work("hard.py")).unwrap();

    world.put("inside.txt", "inside\n");
    world.put("sub/deep/file.txt", "deep\n");
    let relative = Path::new("../outside");
    symlink(relative.join("secret.py"), world.work("link_file")).unwrap();
    symlink(world.outside("secret.py"), world.work("link_file_absolute")).unwrap();
    symlink("link_file", world.work("link_link")).unwrap();
    symlink(relative, world.work("link_dir")).unwrap();
    symlink(world.outside(""), world.work("link_dir_absolute")).unwrap();
    symlink(relative.join("new"), world.work("dangling")).unwrap();
    symlink("loop", world.work("loop")).unwrap();
    symlink("../..", world.work("sub/up")).unwrap();
    symlink("/dev/zero", world.work("link_device")).unwrap();
    symlink("/proc", world.work("link_proc")).unwrap();
    symlink("/sys", world.work("link_sys")).unwrap();
    // Names that are not text, and ignore files that are traps.
    std::fs::write(world.work(OsStr::from_bytes(b"\xff.txt")), "odd\n").unwrap();
    symlink(world.outside("secret.py"), world.work(OsStr::from_bytes(b"\xfe.txt"))).unwrap();
    symlink(world.outside("secret.py"), world.work(".gitignore")).unwrap();
    for (name, kind) in
        [("fifo", FileType::Fifo), ("sub/.gitignore", FileType::Fifo), ("socket", FileType::Socket)]
    {
        rustix::fs::mknodat(CWD, world.work(name), kind, Mode::RWXU, 0).unwrap();
    }
}

type Snapshot = BTreeMap<PathBuf, (u64, u32, i64, Vec<u8>)>;

/// Everything about a directory that a tool could change.
fn snapshot(dir: &Path) -> Snapshot {
    let mut found = BTreeMap::new();
    let mut dirs = vec![dir.to_path_buf()];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            let meta = path.symlink_metadata().unwrap();
            let contents = if meta.is_file() { std::fs::read(&path).unwrap() } else { Vec::new() };
            if meta.is_dir() {
                dirs.push(path.clone());
            }
            found.insert(path, (meta.ino(), meta.mode(), meta.mtime_nsec(), contents));
        }
    }
    found
}

fn tells_nothing(answer: &Result<String, String>) -> bool {
    let (Ok(text) | Err(text)) = answer;
    !text.contains(SECRET)
}

#[tokio::test(flavor = "multi_thread")]
async fn no_path_leads_out_of_what_an_agent_was_given() {
    let world = World::new().await;
    let mut tried = 0;
    lay_out(&world);
    let mut work = snapshot(&world.work(""));
    let mut outside = snapshot(&world.outside(""));
    for path in paths(&world) {
        for (index, (tool, arguments)) in USES.iter().enumerate() {
            for way in [Way::Direct, Way::Gate, Way::Blocked] {
                // Where all but one directory is allowed these are no escapes, and walking all of it takes long.
                let allowed = path == "/" || path.starts_with("/dev");
                if way == Way::Blocked && allowed {
                    continue;
                }
                let leads_out = leads_out(&world, &path);
                let of = format!("{tool} (use {index}) with {path:.80?} {way:?}");
                let run = attempt(&world, way, tool, arguments(&path));
                let answer = tokio::time::timeout(Duration::from_secs(20), run)
                    .await
                    .unwrap_or_else(|_| panic!("{of} hangs"));
                assert!(tells_nothing(&answer), "{of} answers {answer:?}");
                assert_eq!(snapshot(&world.outside("")), outside, "{of} changes something outside");
                let after = snapshot(&world.work(""));
                for (file, (.., contents)) in &after {
                    let text = String::from_utf8_lossy(contents);
                    assert!(!text.contains(SECRET), "{of} brings a secret to {}", file.display());
                }
                let mounted = ["/proc", "link_proc", "link_sys"];
                let of_kernel = mounted.iter().any(|tree| Path::new(&path).starts_with(tree));
                if (leads_out || of_kernel) && !renames_link(tool, index) {
                    assert!(answer.is_err(), "{of} answers {answer:?}");
                }
                // Most attempts change nothing, and the next finds all in place.
                if after != work {
                    lay_out(&world);
                    work = snapshot(&world.work(""));
                    outside = snapshot(&world.outside(""));
                }
                tried += 1;
            }
        }
    }
    assert!(tried > 3_000, "{tried}");
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Direct,
    Gate,
    Blocked,
}

async fn attempt(world: &World, way: Way, tool: &str, arguments: Value) -> Result<String, String> {
    match way {
        Way::Direct => world.run(tool, arguments).await,
        Way::Gate => world.run_gated(tool, arguments).await,
        Way::Blocked => world.run_within(world.access_blocked(), tool, arguments).await,
    }
}

/// Whether the kernel finds the path, or where it would be made, outside.
fn leads_out(world: &World, path: &str) -> bool {
    let full = world.work("").join(path);
    let real = full.canonicalize().or_else(|_| {
        let parent = full.parent().map(Path::canonicalize);
        parent.unwrap_or_else(|| Ok(PathBuf::new()))
    });
    !path.contains('\0') && real.is_ok_and(|real| real.starts_with(world.outside("")))
}

/// A link may be moved; what it leads to is not touched.
fn renames_link(tool: &str, use_index: usize) -> bool {
    tool == "rename" && USES[use_index].1("probe")["from"] == "probe"
}

/// A name that is a file or directory of the agent at one moment and a link to the outside at the next.
struct Flipper<'a> {
    stop: &'a AtomicBool,
    flips: &'a AtomicUsize,
}

impl Flipper<'_> {
    fn run(&self, world: &World) {
        let (file, link) = (world.work("file.tmp"), world.work("link.tmp"));
        let flip = world.work("flip.py");
        let secret = world.outside("secret.py");
        while !self.stop.load(Ordering::Relaxed) {
            // Every step may meet what a tool has just done; the next round sets it right.
            let _ = symlink(&secret, &link);
            let _ = std::fs::rename(&link, &flip);
            let _ = std::fs::write(&file, "def inside(): pass\n");
            let _ = std::fs::rename(&file, &flip);
            let exchange = RenameFlags::EXCHANGE;
            let (a, b) = (world.work("flip"), world.work("other"));
            let _ = rustix::fs::renameat_with(CWD, &a, CWD, &b, exchange);
            self.flips.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Sets right what one call moved, so that the next finds its prey again.
fn put_back(world: &World) {
    let _ = rustix::fs::renameat_with(
        CWD,
        world.work("fresh"),
        CWD,
        world.work("flip"),
        RenameFlags::NOREPLACE,
    );
    let _ = std::fs::remove_file(world.work("fresh"));
    let _ = std::fs::remove_dir_all(world.work("flip/new"));
    let _ = std::fs::create_dir(world.work("sub"));
    world.put("inside.txt", "inside\n");
}

/// A test that fails must not wait for the flipper for ever.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_swapped_in_during_the_call_changes_nothing() {
    /// Enough that, without the second opening that forbids links, this test fails nearly always.
    const ROUNDS: usize = 60;
    let world = World::new().await;
    lay_out(&world);
    world.put("flip/secret.py", "def inside(): pass\n");
    symlink(world.outside(""), world.work("other")).unwrap();
    let before = snapshot(&world.outside(""));
    let (stop, flips) = (AtomicBool::new(false), AtomicUsize::new(0));
    let flipper = Flipper { stop: &stop, flips: &flips };
    let runtime = tokio::runtime::Handle::current();
    std::thread::scope(|scope| {
        scope.spawn(|| flipper.run(&world));
        let _stop = StopOnDrop(&stop);
        for path in ["flip.py", "flip/secret.py", "flip/new", "flip", "."] {
            for (tool, arguments) in USES {
                for _ in 0..ROUNDS {
                    let run = world.run(tool, arguments(path));
                    let answer = tokio::task::block_in_place(|| runtime.block_on(run));
                    assert!(tells_nothing(&answer), "{tool} {path} answers {answer:?}");
                    let after = snapshot(&world.outside(""));
                    assert_eq!(after, before, "{tool} {path} changes something outside");
                    put_back(&world);
                }
            }
        }
    });
    assert!(flips.load(Ordering::Relaxed) > ROUNDS, "{flips:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_walk_stays_within_and_passes_over_blocked_places() {
    let world = World::new().await;
    lay_out(&world);
    std::fs::remove_file(world.work(".gitignore")).unwrap();
    world.put("sub/private/key.txt", SECRET);
    let access = world.access_with(|permissions| {
        permissions.blocked.insert(world.work("sub/private"));
    });
    let found = world.run_within(access.clone(), "glob", json!({"pattern": "*"})).await.unwrap();
    assert_eq!(found, "hard.py\ninside.txt\nsub/deep/file.txt\n\u{fffd}.txt\n");
    let search = json!({"pattern": SECRET});
    let found = world.run_within(access.clone(), "search_text", search).await.unwrap();
    assert_eq!(found, "Nothing matches.\n");
    let list = json!({"path": "sub"});
    let found = world.run_within(access.clone(), "list_directory", list).await.unwrap();
    assert!(!found.contains("private"), "{found}");
    // Under another name the blocked directory would be open.
    let away = json!({"from": "sub", "to": "elsewhere"});
    let refused = world.run_within(access, "rename", away).await.unwrap_err();
    assert_eq!(refused, "sub holds a blocked path and stays where it is");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_blocked_place_is_refused_also_through_a_link_and_a_root_that_became_one() {
    let world = World::new().await;
    lay_out(&world);
    let read = |access, path: &str| world.run_within(access, "read_file", json!({"path": path}));
    let error = read(world.access_blocked(), "link_file").await.unwrap_err();
    assert_eq!(error, "link_file is a blocked path");
    let error = read(world.access(), "link_file").await.unwrap_err();
    assert_eq!(error, "link_file lies outside what this agent may read");

    // The directory that the permission names is replaced by a link to another.
    let access = Access {
        cwd: world.work("sub"),
        ..world.access_with(|permissions| {
            permissions.read = nexus_core::permission::Reach::beneath([world.work("sub")]);
            permissions.write = nexus_core::permission::Reach::nowhere();
        })
    };
    std::fs::rename(world.work("sub"), world.work("sub.old")).unwrap();
    symlink(world.outside(""), world.work("sub")).unwrap();
    let error = read(access, "secret.py").await.unwrap_err();
    assert!(error.ends_with("lies outside what this agent may read"), "{error}");
}

#[tokio::test]
async fn a_blocked_place_written_with_a_link_is_blocked_where_it_lies() {
    let world = World::new().await;
    world.put("real/secret/key", SECRET);
    symlink("real", world.work("alias")).unwrap();
    let access = world.access_with(|permissions| {
        permissions.blocked.insert(world.work("alias/secret"));
    });
    for path in ["real/secret/key", "alias/secret/key"] {
        let read = world.run_within(access.clone(), "read_file", json!({"path": path})).await;
        assert_eq!(read, Err(format!("{path} is a blocked path")));
    }
    let search = json!({"pattern": SECRET});
    let found = world.run_within(access, "search_text", search).await;
    assert_eq!(found, Ok("Nothing matches.\n".into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn links_that_stay_inside_are_followed() {
    let world = World::new().await;
    world.put("real/file.txt", "found\n");
    symlink("real/file.txt", world.work("relative")).unwrap();
    symlink(world.work("real/file.txt"), world.work("absolute")).unwrap();
    symlink(world.work("real"), world.work("dir")).unwrap();
    for path in ["relative", "absolute", "dir/file.txt", "dir/../real/file.txt"] {
        let read = world.run("read_file", json!({"path": path})).await;
        assert_eq!(read, Ok("found\n".into()), "{path}");
    }
    // An edit changes the file and leaves the link a link.
    world.run("write_file", json!({"path": "absolute", "content": "new\n"})).await.unwrap();
    assert_eq!(world.get("real/file.txt"), "new\n");
    assert!(world.work("absolute").is_symlink());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hard_link_elsewhere_keeps_what_it_had() {
    let world = World::new().await;
    for (tool, arguments) in USES {
        lay_out(&world);
        let _ = world.run(tool, arguments("hard.py")).await;
        let kept = std::fs::read_to_string(world.outside("hard.py")).unwrap();
        assert_eq!(kept, "def hard(): pass\n", "{tool}");
    }
}

#[tokio::test]
async fn what_configures_the_server_is_written_by_a_person_only() {
    let world = World::new().await;
    lay_out(&world);
    world.put(".nexus3/config.json", "{}");
    let cases = [
        ("write_file", json!({"path": ".nexus3/config.json", "content": "x"})),
        ("write_file", json!({"path": "sub/.nexus3/mcp.json", "content": "x"})),
        ("append_file", json!({"path": "sub/../.nexus3/config.json", "content": "x"})),
        ("rename", json!({"from": "sub", "to": "sub/../.nexus3/sub"})),
        ("rename", json!({"from": ".nexus3", "to": "elsewhere"})),
        ("rename", json!({"from": "sub/deep", "to": "sub/.nexus3"})),
        ("copy_file", json!({"from": "inside.txt", "to": ".nexus3/mcp.json"})),
        ("mkdir", json!({"path": "sub/.nexus3"})),
        ("patch", json!({"diff": git_move("rename", "inside.txt", ".nexus3/mcp.json")})),
    ];
    let before = snapshot(&world.work(""));
    for (tool, arguments) in &cases {
        for way in [Way::Direct, Way::Gate] {
            let refused = attempt(&world, way, tool, arguments.clone()).await.unwrap_err();
            assert!(refused.contains("lies in a .nexus3 directory"), "{tool} {way:?}: {refused}");
        }
    }
    assert_eq!(snapshot(&world.work("")), before);
    let unbound = world.access_with(|permissions| permissions.level = Level::Yolo);
    let (tool, arguments) = &cases[0];
    world.run_within(unbound, tool, arguments.clone()).await.unwrap();
    assert_eq!(world.get(".nexus3/config.json"), "x");
}
