//! What strangers hand over to be looked at: images, documents, texts. What something is its bytes say, not its name.
//!
//! Images and documents are read [apart](super::apart), as decoders of foreign bytes are what breaks first. An image is
//! written anew, so that what a model's service gets is a plain PNG or JPEG of our own, within every service's limits.

mod image;
mod pdf;

use std::io::Read as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use nexus_core::attach::{Intake, Taken, Wanted};
use nexus_core::tool::Access;
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;

use super::apart::Work;
use super::file_tool::on_thread;
use super::files::{Files, Opened};
use super::sandbox::Launcher;
use super::text::{BOM, is_binary};

/// Largest image file that is read. One of the greatest size that is decoded has less, unless it is noise.
pub const IMAGE_BYTES_MAX: u64 = 50_000_000;

/// Largest document: what the strictest service takes.
pub const PDF_BYTES_MAX: u64 = 20_000_000;

/// Largest text: about a million tokens, as many as the largest windows have.
pub const TEXT_BYTES_MAX: u64 = 4_000_000;

const PDF_MEDIA_TYPE: &str = "application/pdf";

/// Files and messages that are looked at in one go. Each may take the memory of a large image.
const AT_ONCE_MAX: usize = 2;

/// Reads attachments in processes of `launcher`. Images are brought to at most `side_max` pixels a side.
pub fn intake(launcher: &Launcher, side_max: u32) -> Arc<dyn Intake> {
    let places = Semaphore::new(AT_ONCE_MAX);
    Arc::new(Reader { launcher: launcher.clone(), side_max, places })
}

struct Reader {
    launcher: Launcher,
    side_max: u32,
    /// Waited for without a thread: a thread that waits is one that nobody else has.
    places: Semaphore,
}

#[async_trait]
impl Intake for Reader {
    async fn file(&self, access: Access, path: &str, wanted: Wanted) -> Result<Taken, String> {
        let (launcher, side_max, path) = (self.launcher.clone(), self.side_max, path.to_owned());
        self.look(move |stop| {
            let files = Files::new(access, stop, launcher, side_max);
            let opened = files.open(&path)?;
            let bytes = whole(opened, &path)?;
            let prepare = |source: Source| files.apart(&Work::Attach(source));
            taken(bytes, &path, wanted, side_max, prepare)
        })
        .await
    }

    async fn bytes(&self, bytes: Vec<u8>, name: &str, wanted: Wanted) -> Result<Taken, String> {
        let (launcher, side_max, name) = (self.launcher.clone(), self.side_max, name.to_owned());
        self.look(move |stop: Arc<AtomicBool>| {
            check_size(bytes.len() as u64, Kind::of(&bytes), &name)?;
            let prepare = |source: Source| {
                launcher.apart(&Work::Attach(source), &|| stop.load(Ordering::Relaxed))
            };
            taken(bytes, &name, wanted, side_max, prepare)
        })
        .await
    }
}

impl Reader {
    async fn look(
        &self,
        work: impl FnOnce(Arc<AtomicBool>) -> Result<Taken, String> + Send + 'static,
    ) -> Result<Taken, String> {
        let _place = self.places.acquire().await.map_err(|error| error.to_string())?;
        on_thread(work, std::future::pending()).await
    }
}

/// What bytes are, as far as we know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Kind {
    Png,
    Jpeg,
    WebP,
    Gif,
    Pdf,
    Other,
}

/// How many bytes tell what something is.
const HEAD_BYTES: usize = 16;

impl Kind {
    fn of(bytes: &[u8]) -> Self {
        match bytes {
            [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Self::Png,
            [0xff, 0xd8, 0xff, ..] => Self::Jpeg,
            [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Self::Gif,
            [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Self::WebP,
            [b'%', b'P', b'D', b'F', b'-', ..] => Self::Pdf,
            _ => Self::Other,
        }
    }

    fn is_image(self) -> bool {
        matches!(self, Self::Png | Self::Jpeg | Self::WebP | Self::Gif)
    }

    fn name(self) -> &'static str {
        match self {
            Self::Png => "PNG",
            Self::Jpeg => "JPEG",
            Self::WebP => "WebP",
            Self::Gif => "GIF",
            Self::Pdf => "PDF",
            Self::Other => "text",
        }
    }

    fn bytes_max(self) -> u64 {
        match self {
            Self::Png | Self::Jpeg | Self::WebP | Self::Gif => IMAGE_BYTES_MAX,
            Self::Pdf => PDF_BYTES_MAX,
            Self::Other => TEXT_BYTES_MAX,
        }
    }
}

/// An image on disk, as `read_file` shows it.
pub(super) struct Picture {
    pub media_type: &'static str,
    pub bytes: Vec<u8>,
    /// What it is, in words.
    pub words: String,
}

/// The image in an opened file; `None` when the file is none, and then it stands at its start again.
pub(super) fn picture(
    files: &Files,
    opened: &mut Opened,
    path: &str,
) -> Result<Option<Picture>, String> {
    if !opened.kind(path)?.is_image() {
        return Ok(None);
    }
    let bytes = opened.limited(path, IMAGE_BYTES_MAX)?;
    let kind = Kind::of(&bytes);
    check_size(bytes.len() as u64, kind, path)?;
    let source = Source { kind, side_max: files.image_side_max(), bytes: bytes.into() };
    match files.apart(&Work::Attach(source)) {
        Ok(Prepared::Image { format, size, was, bytes }) => {
            let words = image_words(kind, was, size);
            Ok(Some(Picture { media_type: format.media_type(), bytes, words }))
        }
        Ok(Prepared::Document { .. }) => Ok(None),
        Err(why) => Err(format!("{path} cannot be shown: {why}")),
    }
}

/// A message about an image, for the model.
fn image_words(kind: Kind, was: (u32, u32), size: (u32, u32)) -> String {
    let (kind, (width, height)) = (kind.name(), was);
    match was == size {
        true => format!("{kind}, {width} × {height} pixels"),
        false => format!("{kind}, {width} × {height} pixels, shown with {} × {}", size.0, size.1),
    }
}

impl Opened {
    /// Looks at the first bytes, and goes back to the start.
    fn kind(&mut self, path: &str) -> Result<Kind, String> {
        use std::io::Seek as _;
        let failed = |error: std::io::Error| format!("{path}: {error}");
        let mut head = Vec::with_capacity(HEAD_BYTES);
        (&mut self.file).take(HEAD_BYTES as u64).read_to_end(&mut head).map_err(failed)?;
        self.file.rewind().map_err(failed)?;
        Ok(Kind::of(&head))
    }

    fn limited(&mut self, path: &str, bytes_max: u64) -> Result<Vec<u8>, String> {
        let mut bytes = Vec::new();
        let mut limited = (&mut self.file).take(bytes_max + 1);
        limited.read_to_end(&mut bytes).map_err(|error| format!("{path}: {error}"))?;
        Ok(bytes)
    }
}

/// A whole file, unless it is larger than one of its kind may be.
fn whole(mut opened: Opened, path: &str) -> Result<Vec<u8>, String> {
    let kind = opened.kind(path)?;
    let bytes = opened.limited(path, kind.bytes_max())?;
    // Asked of what was read: the file may have changed in between.
    check_size(bytes.len() as u64, Kind::of(&bytes), path)?;
    Ok(bytes)
}

fn check_size(bytes: u64, kind: Kind, name: &str) -> Result<(), String> {
    let most = kind.bytes_max();
    match bytes > most {
        true => {
            let kind = kind.name();
            Err(format!("{name} is larger than {most} bytes, the most that is taken of a {kind}"))
        }
        false => Ok(()),
    }
}

fn taken(
    bytes: Vec<u8>,
    name: &str,
    wanted: Wanted,
    side_max: u32,
    prepare: impl FnOnce(Source) -> Result<Prepared, String>,
) -> Result<Taken, String> {
    let kind = Kind::of(&bytes);
    if wanted == Wanted::Image && !kind.is_image() {
        return Err(format!("{name} is no image: PNG, JPEG, WebP and GIF are taken"));
    }
    if kind == Kind::Other {
        return text(bytes, name).map(Taken::Text);
    }
    let bytes = Arc::new(bytes);
    match prepare(Source { kind, side_max, bytes: bytes.clone() }) {
        Ok(Prepared::Image { format, bytes, .. }) => {
            Ok(Taken::Image { media_type: format.media_type(), bytes })
        }
        Ok(Prepared::Document { pages }) => {
            let bytes = Arc::unwrap_or_clone(bytes);
            Ok(Taken::Document { media_type: PDF_MEDIA_TYPE, pages, bytes })
        }
        Err(why) => Err(format!("{name} is not taken: {why}")),
    }
}

fn text(bytes: Vec<u8>, name: &str) -> Result<String, String> {
    let other = || {
        format!(
            "{name} is neither an image (PNG, JPEG, WebP, GIF) nor a PDF document nor UTF-8 text, which are taken"
        )
    };
    if is_binary(&bytes) {
        return Err(other());
    }
    let text = String::from_utf8(bytes).map_err(|_| other())?;
    Ok(text.strip_prefix(BOM).map(str::to_owned).unwrap_or(text))
}

/// What is prepared apart.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Source {
    kind: Kind,
    side_max: u32,
    #[serde(with = "encoded")]
    bytes: Arc<Vec<u8>>,
}

/// What came of it.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Prepared {
    Image {
        format: image::Format,
        /// In pixels, as it is and as it was.
        size: (u32, u32),
        was: (u32, u32),
        #[serde(with = "encoded")]
        bytes: Vec<u8>,
    },
    /// As it came.
    Document { pages: u32 },
}

pub(crate) fn prepare(source: &Source) -> Result<Prepared, String> {
    let Source { kind, side_max, bytes } = source;
    match kind {
        Kind::Png | Kind::Jpeg | Kind::WebP | Kind::Gif => image::prepare(bytes, *kind, *side_max),
        Kind::Pdf => pdf::check(bytes).map(|pages| Prepared::Document { pages }),
        Kind::Other => Err("it is neither an image nor a document".into()),
    }
}

/// Prepares bytes in this very process, which production never does: for who damages them on purpose. Returns the kind
/// and the bytes that a model would see.
pub fn prepare_here(bytes: &[u8], side_max: u32) -> Result<(&'static str, Vec<u8>), String> {
    let source = Source { kind: Kind::of(bytes), side_max, bytes: bytes.to_vec().into() };
    Ok(match prepare(&source)? {
        Prepared::Image { format, bytes, .. } => (format.media_type(), bytes),
        Prepared::Document { .. } => (PDF_MEDIA_TYPE, bytes.to_vec()),
    })
}

/// Bytes in JSON.
mod encoded {
    use base64::Engine as _;
    use base64::display::Base64Display;
    use base64::engine::general_purpose::STANDARD;
    use serde::{Deserialize as _, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&Base64Display::new(bytes, &STANDARD))
    }

    pub fn deserialize<'de, D: Deserializer<'de>, B: From<Vec<u8>>>(
        deserializer: D,
    ) -> Result<B, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        STANDARD.decode(&*text).map(B::from).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests;
