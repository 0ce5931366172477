//! What a model is told before the conversation: system text and tools, as one value with a name.

use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::provider::ToolSpec;

/// What every call of an epoch begins with, to the byte. Stores keep it by its digest, so that a conversation goes on
/// after a restart as it began, whatever the files say by then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Brief {
    /// Of all the rest.
    pub digest: u64,
    pub system: Arc<str>,
    pub tools: Arc<[ToolSpec]>,
    pub source: BriefSource,
    /// How often the same was begun anew, because a provider would not take its thoughts back.
    pub anew: u32,
}

/// Where the system text comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BriefSource {
    /// Somebody set it for the agent.
    Own,
    /// The instructions that hold in this directory.
    Directory(PathBuf),
}

impl Brief {
    pub fn new(system: Arc<str>, tools: Arc<[ToolSpec]>, source: BriefSource) -> Self {
        Self { digest: 0, system, tools, source, anew: 0 }.named()
    }

    /// The same, told from it.
    pub(crate) fn again(&self) -> Self {
        Self { anew: self.anew + 1, ..self.clone() }.named()
    }

    /// Bytes of text: never fewer than its tokens.
    pub fn bytes(&self) -> usize {
        self.system.len() + self.tools.iter().map(ToolSpec::text_bytes).sum::<usize>()
    }

    fn named(mut self) -> Self {
        let mut hash = Sha256::new();
        let mut field = |bytes: &[u8]| {
            hash.update((bytes.len() as u64).to_be_bytes());
            hash.update(bytes);
        };
        field(self.system.as_bytes());
        match &self.source {
            BriefSource::Own => field(b"own"),
            BriefSource::Directory(path) => field(path.as_os_str().as_encoded_bytes()),
        }
        field(&self.anew.to_be_bytes());
        for tool in self.tools.iter() {
            [&*tool.name, &*tool.description, &*tool.parameters]
                .into_iter()
                .for_each(|text| field(text.as_bytes()));
        }
        let mut digest = [0; 8];
        digest.copy_from_slice(&hash.finalize()[..8]);
        self.digest = u64::from_be_bytes(digest);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_tells_briefs_apart() {
        let tool = |name: &str| ToolSpec {
            name: name.into(),
            description: "d".into(),
            parameters: "{}".into(),
        };
        let of = |system: &str, tools: &[&str], source| {
            let tools: Vec<_> = tools.iter().map(|name| tool(name)).collect();
            Brief::new(system.into(), tools.into(), source)
        };
        let base = of("s", &["a"], BriefSource::Own);
        assert_eq!(base.digest, of("s", &["a"], BriefSource::Own).digest);
        let others = [
            of("s2", &["a"], BriefSource::Own),
            of("s", &["b"], BriefSource::Own),
            of("s", &[], BriefSource::Own),
            of("s", &["a", "a"], BriefSource::Own),
            of("s", &["a"], BriefSource::Directory("/".into())),
            base.again(),
            base.again().again(),
        ];
        let digests: std::collections::BTreeSet<_> =
            others.iter().chain([&base]).map(|it| it.digest).collect();
        assert_eq!(digests.len(), others.len() + 1);
    }
}
