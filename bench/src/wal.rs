//! SQLite's write-ahead log, read from outside while a server writes it. Its layout is part of SQLite's file format.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, ensure};

const HEADER_BYTES: usize = 32;
const FRAME_HEADER_BYTES: usize = 24;

/// The pages that were written since the log began anew.
pub struct Wal {
    page_bytes: usize,
    /// Told apart from the salts of a log that was begun anew.
    salts: [u8; 8],
    /// The number of the page in each frame.
    pages: Vec<u32>,
}

/// What was written between two looks at a log.
pub struct Written {
    pub frames: usize,
    /// Of the log and, once it is moved there, of the database: each frame, and each page that changed once more.
    pub bytes: usize,
}

impl Wal {
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let bytes = fs::read(path)?;
        let number = |at: usize| -> anyhow::Result<u32> {
            let four = bytes.get(at..at + 4).context("the log ends too early")?;
            Ok(u32::from_be_bytes(four.try_into()?))
        };
        // The lowest bit tells the byte order of the checksums, which are not looked at.
        ensure!(number(0)? & !1 == 0x377f_0682, "{} is no write-ahead log", path.display());
        let page_bytes = number(8)? as usize;
        let salts = bytes.get(16..24).context("the log ends too early")?.try_into()?;
        // Frames with other salts are left from before the log began anew.
        let frames = bytes[HEADER_BYTES..].chunks_exact(FRAME_HEADER_BYTES + page_bytes);
        let pages = frames
            .take_while(|frame| frame[8..16] == salts)
            .map(|frame| Ok(u32::from_be_bytes(frame[..4].try_into()?)))
            .collect::<anyhow::Result<_>>()?;
        Ok(Self { page_bytes, salts, pages })
    }

    /// What was written since `earlier`.
    pub fn since(&self, earlier: &Self) -> anyhow::Result<Written> {
        ensure!(self.salts == earlier.salts, "the log began anew meanwhile");
        let pages = &self.pages[earlier.pages.len()..];
        let changed: BTreeSet<_> = pages.iter().collect();
        let logged = pages.len() * (FRAME_HEADER_BYTES + self.page_bytes);
        Ok(Written { frames: pages.len(), bytes: logged + changed.len() * self.page_bytes })
    }
}
