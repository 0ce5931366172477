//! How a model is shown what stands beside the text: as an image or a document where it can look at one, in words where it
//! cannot. The same in every request, as long as the model is the same.

use std::borrow::Cow;

use nexus_core::message::{Attachment, AttachmentKind, Message, Part, Source};
use nexus_core::provider::ModelCall;

/// An attachment, for one model.
pub enum Shown<'a> {
    Image {
        media_type: &'a str,
        bytes: &'a [u8],
    },
    Document {
        media_type: &'a str,
        name: Option<&'a str>,
        bytes: &'a [u8],
    },
    /// An image that the service fetches itself.
    Address(&'a str),
    Words(Cow<'a, str>),
}

/// What a document is called that has no name, where it has to have one.
pub const UNNAMED: &str = "document.pdf";

/// What stands for a result without a word.
const NOTHING: &str = "(nothing)";

pub fn shown<'a>(call: &ModelCall, attachment: &'a Attachment) -> Shown<'a> {
    let media_type = &attachment.media_type;
    if !call.model.inputs.take(attachment.kind) {
        return Shown::Words(in_words(attachment).into());
    }
    match (&attachment.source, attachment.kind) {
        (Source::Address(url), _) => Shown::Address(url),
        (Source::Blob(blob), AttachmentKind::Image) => {
            Shown::Image { media_type, bytes: &blob.bytes }
        }
        (Source::Blob(blob), AttachmentKind::File { .. }) => {
            let name = attachment.name.as_deref();
            Shown::Document { media_type, name, bytes: &blob.bytes }
        }
    }
}

/// What is said of an attachment that is not shown.
pub fn in_words(attachment: &Attachment) -> String {
    format!("[{}: you cannot look at it.]", attachment.words())
}

/// What a tool's result says, with a word for each attachment that `is_shown` says is not shown beside it. Some services
/// refuse one that says nothing.
pub fn result_text<'a>(
    message: &'a Message,
    is_shown: impl Fn(&Attachment) -> bool,
) -> Cow<'a, str> {
    let text = in_text(message, "\n", is_shown);
    let says_nothing = text.trim().is_empty() && message.attachments().next().is_none();
    if says_nothing { Cow::Borrowed(NOTHING) } else { text }
}

/// All that a message says, and what stands around it, as one text.
pub fn in_text<'a>(
    message: &'a Message,
    between: &str,
    is_shown: impl Fn(&Attachment) -> bool,
) -> Cow<'a, str> {
    let mut words = message.parts.iter().filter_map(|part| match part {
        Part::Text(text) | Part::Context(text) => Some(Cow::Borrowed(text.as_str())),
        Part::Attachment(it) if !is_shown(it) => Some(Cow::Owned(in_words(it))),
        Part::Attachment(_) | Part::Thought(_) | Part::Call(_) => None,
    });
    let first = words.next().unwrap_or_default();
    words.fold(first, |joined, next| Cow::Owned(format!("{joined}{between}{next}")))
}
