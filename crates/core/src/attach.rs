//! What comes to an agent beside words: files and bytes that somebody hands over with a message, made into something that
//! models can look at.

use std::sync::Arc;

use async_trait::async_trait;
use thiserror::Error;

use crate::agent::Agent;
use crate::authority::Requester;
use crate::gate::{Gate, Refusal};
use crate::listing::ModelQuery;
use crate::message::{ATTACHED_BYTES_MAX, Attachment, AttachmentKind, Content, Part, Source};
use crate::model::ModelInfo;
use crate::provider::{ModelError, Models};
use crate::tool::Access;
use crate::visible;

/// Attachments of one message: as many images as services take in one request before they ask for smaller ones.
pub const ATTACHMENTS_MAX: usize = 20;

/// Longest name of an attachment that is kept, in characters.
const NAME_CHARS_MAX: usize = 200;

/// Models that are looked through for others that can look, and those of them that are named.
const LISTED_MAX: u32 = 1_000;
const OTHERS_MAX: usize = 10;

/// Longest address that is handed on.
const ADDRESS_BYTES_MAX: usize = 8 << 10;

/// Makes attachments of what strangers say is an image or a document. What it says of one it does not take is for people.
#[async_trait]
pub trait Intake: Send + Sync {
    /// Reads the file at `path`, as far as `access` lets it.
    async fn file(&self, access: Access, path: &str, wanted: Wanted) -> Result<Taken, String>;

    /// `name` is what the bytes are called.
    async fn bytes(&self, bytes: Vec<u8>, name: &str, wanted: Wanted) -> Result<Taken, String>;
}

/// Takes nothing.
#[async_trait]
impl Intake for () {
    async fn file(&self, _: Access, path: &str, _: Wanted) -> Result<Taken, String> {
        Err(format!("{path} is not taken: nothing here can look at it"))
    }

    async fn bytes(&self, _: Vec<u8>, name: &str, _: Wanted) -> Result<Taken, String> {
        Err(format!("{name} is not taken: nothing here can look at it"))
    }
}

/// What something is said to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// An image and nothing else.
    Image,
    Any,
}

/// What something turned out to be.
#[derive(Clone, Debug, PartialEq)]
pub enum Taken {
    Image { media_type: &'static str, bytes: Vec<u8> },
    Document { media_type: &'static str, pages: u32, bytes: Vec<u8> },
    Text(String),
}

/// A piece of what is said, as it is handed over.
#[derive(Clone, Debug, PartialEq)]
pub enum Piece {
    Text(String),
    Attached { wanted: Wanted, name: Option<String>, given: Given },
}

/// Where the bytes of a piece are.
#[derive(Clone, Debug, PartialEq)]
pub enum Given {
    /// In a file, which is read with the agent's permissions, whoever names it.
    Path(String),
    Bytes(Vec<u8>),
    /// Elsewhere. We never fetch it.
    Address(String),
}

/// The same where there are no files.
#[derive(Clone, Debug, PartialEq)]
pub enum Shown {
    Bytes(Vec<u8>),
    Address(String),
}

/// Why a message is not taken. `at` is the piece that is to blame.
#[derive(Debug, Clone, Error)]
pub enum AttachError {
    #[error("it says nothing")]
    Nothing,
    #[error("a message has at most {ATTACHMENTS_MAX} attachments, and this one {count}")]
    TooMany { count: usize },
    #[error(
        "the attachments of a message have at most {ATTACHED_BYTES_MAX} bytes together, and these {bytes}"
    )]
    TooLarge { bytes: u64 },
    #[error("{refusal}")]
    Refused { at: usize, refusal: Refusal },
    #[error("{reason}")]
    NotTaken { at: usize, reason: String },
    #[error("{reason}")]
    Address { at: usize, reason: &'static str },
    #[error("model {model} takes no {what}{}", instead(.others))]
    Input { at: usize, model: String, what: &'static str, others: Vec<String> },
    #[error(transparent)]
    Model(#[from] ModelError),
}

fn instead(aliases: &[String]) -> String {
    match aliases {
        [] => ", and no other that is configured does".into(),
        aliases => format!("; these do: {}", aliases.join(", ")),
    }
}

pub struct Attacher {
    pub(crate) gate: Arc<Gate>,
    pub(crate) models: Arc<dyn Models>,
    pub(crate) intake: Arc<dyn Intake>,
    /// Whether addresses are handed to providers.
    pub(crate) allow_urls: bool,
}

impl Attacher {
    /// Makes of the pieces what the agent is told.
    pub async fn take(
        &self,
        requester: &Requester,
        agent: &Agent,
        pieces: Vec<Piece>,
    ) -> Result<Content, AttachError> {
        let count = pieces.iter().filter(|it| matches!(it, Piece::Attached { .. })).count();
        if count > ATTACHMENTS_MAX {
            return Err(AttachError::TooMany { count });
        }
        let mut parts = Vec::new();
        let mut bytes = 0;
        for (at, piece) in pieces.into_iter().enumerate() {
            let part = match piece {
                Piece::Text(text) => Part::Text(text),
                Piece::Attached { wanted, name, given } => {
                    self.part(requester, agent, at, wanted, name, given).await?
                }
            };
            if let Part::Attachment(attachment) = &part {
                self.check_model(agent, at, attachment.kind)?;
                bytes += attachment.size();
            }
            if bytes > ATTACHED_BYTES_MAX {
                return Err(AttachError::TooLarge { bytes });
            }
            let says = !matches!(&part, Part::Text(text) if text.trim().is_empty());
            parts.extend(says.then_some(part));
        }
        match parts.is_empty() {
            true => Err(AttachError::Nothing),
            false => Ok(Content::new(parts)),
        }
    }

    /// Makes of bytes, or of an address, what a model is shown before which no agent stands.
    pub async fn show(
        &self,
        model: &ModelInfo,
        wanted: Wanted,
        name: Option<String>,
        given: Shown,
    ) -> Result<Part, AttachError> {
        let at = 0;
        let name = name.as_deref().map(plain_name).filter(|name| !name.is_empty());
        let part = match given {
            Shown::Address(url) => Part::Attachment(self.address(at, name, url)?),
            Shown::Bytes(bytes) => {
                let called = name.as_deref().unwrap_or("the data");
                let taken = self.intake.bytes(bytes, called, wanted).await;
                taken.map_err(|reason| AttachError::NotTaken { at, reason })?.named(name)
            }
        };
        if let Part::Attachment(attachment) = &part {
            self.check_input(model, at, attachment.kind)?;
        }
        Ok(part)
    }

    async fn part(
        &self,
        requester: &Requester,
        agent: &Agent,
        at: usize,
        wanted: Wanted,
        name: Option<String>,
        given: Given,
    ) -> Result<Part, AttachError> {
        let not_taken = |reason| AttachError::NotTaken { at, reason };
        let name = name.as_deref().or(match &given {
            Given::Path(path) => path.rsplit('/').next(),
            Given::Bytes(_) | Given::Address(_) => None,
        });
        let name = name.map(plain_name).filter(|name| !name.is_empty());
        let taken = match given {
            Given::Address(url) => return self.address(at, name, url).map(Part::Attachment),
            Given::Path(path) => {
                let access = self.gate.reading(&agent.snapshot(), requester, &path).await;
                let access = access.map_err(|refusal| AttachError::Refused { at, refusal })?;
                self.intake.file(access, &path, wanted).await
            }
            Given::Bytes(bytes) => {
                let called = name.as_deref().unwrap_or("the data");
                self.intake.bytes(bytes, called, wanted).await
            }
        };
        Ok(taken.map_err(not_taken)?.named(name))
    }

    fn address(
        &self,
        at: usize,
        name: Option<String>,
        url: String,
    ) -> Result<Attachment, AttachError> {
        let refuse = |reason| Err(AttachError::Address { at, reason });
        if !self.allow_urls {
            return refuse(
                "an address is not taken (images.allow_urls): give the path of a file, or its bytes as data",
            );
        }
        if !["http://", "https://"].iter().any(|scheme| url.starts_with(scheme)) {
            return refuse("an address begins with http:// or https://");
        }
        if url.len() > ADDRESS_BYTES_MAX || url.chars().any(|c| c.is_control() || c == ' ') {
            return refuse("this is not an address that could be handed on");
        }
        let (kind, media_type) = (AttachmentKind::Image, "image/*".to_owned());
        Ok(Attachment { kind, media_type, name, source: Source::Address(url) })
    }

    /// Refuses what the agent's model could not look at.
    fn check_model(
        &self,
        agent: &Agent,
        at: usize,
        kind: AttachmentKind,
    ) -> Result<(), AttachError> {
        let model = self.models.resolve(agent.look().settings.model.as_deref())?;
        self.check_input(&model, at, kind)
    }

    fn check_input(
        &self,
        model: &ModelInfo,
        at: usize,
        kind: AttachmentKind,
    ) -> Result<(), AttachError> {
        if model.inputs.take(kind) {
            return Ok(());
        }
        let what = match kind {
            AttachmentKind::Image => "images",
            AttachmentKind::File { .. } => "PDF documents",
        };
        let (model, others) = (model.alias.clone(), self.taking(kind));
        Err(AttachError::Input { at, model, what, others })
    }

    /// Aliases of configured models that can look at such attachments, as far as they fit in a sentence.
    fn taking(&self, kind: AttachmentKind) -> Vec<String> {
        let query = ModelQuery { limit: LISTED_MAX, ..ModelQuery::default() };
        let listed = self.models.list(&query).unwrap_or_default().models.into_iter();
        let taking = listed.filter(|model| model.info.inputs.take(kind) && model.key_set);
        taking.map(|model| model.info.alias.clone()).take(OTHERS_MAX).collect()
    }
}

impl Taken {
    /// The part of a message that it is. A text says in its first line what it is the text of.
    pub fn named(self, name: Option<String>) -> Part {
        let (kind, media_type, bytes) = match self {
            Self::Image { media_type, bytes } => (AttachmentKind::Image, media_type, bytes),
            Self::Document { media_type, pages, bytes } => {
                (AttachmentKind::File { pages }, media_type, bytes)
            }
            Self::Text(text) => {
                let name = name.as_deref().unwrap_or("without a name");
                return Part::Text(format!("File {name}:\n\n{text}"));
            }
        };
        let source = Source::Blob(crate::message::Blob::new(bytes));
        Part::Attachment(Attachment { kind, media_type: media_type.into(), name, source })
    }
}

/// A name as models and people are shown it: of one line, and not endless.
pub fn plain_name(name: &str) -> String {
    visible::line(name).chars().take(NAME_CHARS_MAX).collect()
}
