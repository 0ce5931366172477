//! Files that are attached or looked at: read with an agent's permissions, and in a process of their own.

use std::io::Cursor;
use std::os::unix::fs::symlink;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use image::{DynamicImage, ImageFormat, RgbImage};
use nexus_core::attach::{Taken, Wanted};
use nexus_core::message::{AttachmentKind, Source};
use nexus_core::tool::Access;
use serde_json::json;

use super::super::attach::{PDF_BYTES_MAX, TEXT_BYTES_MAX, intake};
use super::super::sandbox::Launcher;
use super::{SIDE_MAX, World};

fn png(width: u32, height: u32) -> Vec<u8> {
    let mut bytes = Cursor::new(Vec::new());
    let image = DynamicImage::from(RgbImage::new(width, height));
    image.write_to(&mut bytes, ImageFormat::Png).unwrap();
    bytes.into_inner()
}

/// `image/png` for an image, the text of a text, or why it is not taken.
async fn file(access: Access, path: &str) -> String {
    let intake = intake(&Launcher::own(), SIDE_MAX);
    words(intake.file(access, path, Wanted::Any).await)
}

fn words(taken: Result<Taken, String>) -> String {
    match taken {
        Ok(Taken::Image { media_type, .. } | Taken::Document { media_type, .. }) => {
            media_type.into()
        }
        Ok(Taken::Text(text)) => text,
        Err(why) => format!("no: {why}"),
    }
}

#[tokio::test]
async fn a_file_is_what_its_bytes_say() {
    let world = World::new().await;
    world.put("photo.txt", png(4, 4));
    world.put("notes.png", "words");
    world.put("sub/empty", "");
    assert_eq!(file(world.access(), "photo.txt").await, "image/png");
    assert_eq!(file(world.access(), "notes.png").await, "words");
    assert_eq!(file(world.access(), "sub/empty").await, "");
    assert_eq!(file(world.access(), "sub").await, "no: sub is a directory");
    let missing = "no: none: no such file or directory";
    assert_eq!(file(world.access(), "none").await, missing);
}

#[tokio::test]
async fn bytes_are_taken_like_files() {
    let intake = intake(&Launcher::own(), SIDE_MAX);
    let taken = intake.bytes(png(2000, 10), "a.png", Wanted::Image).await.unwrap();
    let Taken::Image { bytes, .. } = taken else { panic!("{taken:?}") };
    assert_eq!(image::load_from_memory(&bytes).unwrap().width(), SIDE_MAX);
    let refused = words(intake.bytes(b"words".to_vec(), "a.png", Wanted::Image).await);
    assert_eq!(refused, "no: a.png is no image: PNG, JPEG, WebP and GIF are taken");
}

#[tokio::test]
async fn files_have_the_bounds_of_their_kind() {
    let world = World::new().await;
    let size = |most: u64| usize::try_from(most).unwrap();
    let text = vec![b'a'; size(TEXT_BYTES_MAX) + 1];
    world.put("most", &text[1..]);
    world.put("more", &text);
    assert_eq!(file(world.access(), "most").await.len(), size(TEXT_BYTES_MAX));
    let over = "no: more is larger than 4000000 bytes, the most that is taken of a text";
    assert_eq!(file(world.access(), "more").await, over);

    let document = |length: usize| {
        let mut bytes = b"%PDF-1.7\n<</Type/Page>>\n".to_vec();
        bytes.resize(length - 5, b' ');
        bytes.extend(b"%%EOF");
        bytes
    };
    world.put("most", document(size(PDF_BYTES_MAX)));
    world.put("more", document(size(PDF_BYTES_MAX) + 1));
    assert_eq!(file(world.access(), "most").await, "application/pdf");
    let over = "no: more is larger than 20000000 bytes, the most that is taken of a PDF";
    assert_eq!(file(world.access(), "more").await, over);
}

#[tokio::test]
async fn a_file_is_read_only_where_the_agent_may() {
    let world = World::new().await;
    std::fs::write(world.outside("secret.png"), png(4, 4)).unwrap();
    symlink(world.outside("secret.png"), world.work("link.png")).unwrap();
    symlink(world.outside(""), world.work("dir")).unwrap();
    let outside = world.outside("secret.png").display().to_string();
    for path in ["link.png", "dir/secret.png", "../outside/secret.png", &outside] {
        let refused = file(world.access(), path).await;
        assert_eq!(refused, format!("no: {path} lies outside what this agent may read"));
        let blocked = file(world.access_blocked(), path).await;
        assert_eq!(blocked, format!("no: {path} is a blocked path"));
    }
}

/// Somebody puts a link in the place of the file and takes it away again, for as long as it is read.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_link_that_is_swapped_in_shows_nothing() {
    const TRIES: usize = 200;
    let world = World::new().await;
    std::fs::write(world.outside("secret"), "secret").unwrap();
    world.put("a", "open");
    let done = Arc::new(AtomicBool::new(false));
    let (stop, place, draft, secret) =
        (done.clone(), world.work("a"), world.work("draft"), world.outside("secret"));
    let swapping = std::thread::spawn(move || {
        while !stop.load(Ordering::Relaxed) {
            symlink(&secret, &draft).unwrap();
            std::fs::rename(&draft, &place).unwrap();
            std::fs::write(&draft, "open").unwrap();
            std::fs::rename(&draft, &place).unwrap();
        }
    });
    for _ in 0..TRIES {
        let read = file(world.access(), "a").await;
        assert!(read == "open" || read.starts_with("no: "), "{read}");
    }
    done.store(true, Ordering::Relaxed);
    swapping.join().unwrap();
}

/// What looks at strangers' bytes may break, and takes only itself along.
#[tokio::test]
async fn an_image_that_breaks_its_reader_costs_one_call() {
    let intake = intake(&Launcher::new("/bin/false".into()), SIDE_MAX);
    let broken = words(intake.bytes(png(4, 4), "a.png", Wanted::Any).await);
    assert_eq!(broken, "no: a.png is not taken: what was to read it broke");
    // Text needs no such reader.
    assert_eq!(words(intake.bytes(b"words".to_vec(), "a", Wanted::Any).await), "words");
}

#[tokio::test]
async fn read_file_shows_an_image() {
    let world = World::new().await;
    world.put("sub/photo.dat", png(3136, 100));
    let output = world.shown("read_file", json!({"path": "sub/photo.dat"})).await.unwrap();
    assert_eq!(
        output.text,
        "sub/photo.dat is an image: PNG, 3136 × 100 pixels, shown with 1568 × 50."
    );
    let [attachment] = output.attachments.as_slice() else { panic!("{output:?}") };
    assert_eq!(attachment.kind, AttachmentKind::Image);
    assert_eq!(
        (attachment.media_type.as_str(), attachment.name.as_deref()),
        ("image/png", Some("photo.dat"))
    );
    let Source::Blob(blob) = &attachment.source else { panic!("{attachment:?}") };
    assert_eq!(image::load_from_memory(&blob.bytes).unwrap().height(), 50);

    world.put("cut.png", &png(50, 50)[..60]);
    let broken = world.shown("read_file", json!({"path": "cut.png"})).await.unwrap_err();
    assert!(broken.starts_with("cut.png cannot be shown: it cannot be decoded"), "{broken}");
    // Other than images are read as ever.
    world.put("a.png", "one\ntwo\n");
    let text = world.shown("read_file", json!({"path": "a.png", "offset": 2})).await.unwrap();
    assert_eq!((text.text.as_str(), text.attachments.len()), ("two\n", 0));
}
