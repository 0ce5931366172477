//! Where what services said of their models is kept: a file under the home, which is written by `nexus3 models refresh`
//! and read when the models are put together.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use nexus_models::catalogue::said::{BYTES_MAX, Said};

use super::files;

/// The file, beside the weights of models that run here.
pub fn file(home: &Path) -> PathBuf {
    home.join("models").join("refreshed.jsonl")
}

/// What was kept. Nobody is kept from starting by a file that is not there, too large or damaged: it is what was known
/// already, and can be asked for again.
pub fn read(home: &Path) -> Said {
    let file = file(home);
    match files::read_regular(&file, BYTES_MAX as u64) {
        Ok(Some(contents)) if !contents.cut => Said::from_bytes(contents.bytes),
        Ok(None) => Said::default(),
        Ok(Some(_)) => ignored(&file, "it is too large"),
        Err(error) => ignored(&file, &error.to_string()),
    }
}

fn ignored(file: &Path, why: &str) -> Said {
    tracing::warn!(file = %file.display(), why, "what services said of their models is not used");
    Said::default()
}

/// Keeps it, whole or not at all.
pub fn write(home: &Path, said: &Said) -> io::Result<()> {
    let file = file(home);
    let directory = file.parent().unwrap_or(home);
    fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    let draft = directory.join(".refreshed.new");
    let mut new =
        File::options().write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
    new.write_all(said.as_bytes())?;
    new.sync_all()?;
    fs::rename(&draft, &file)?;
    File::open(directory)?.sync_all()
}

#[cfg(test)]
mod tests {
    use nexus_models::catalogue::Entry;
    use nexus_models::catalogue::said::Asked;

    use super::*;

    #[test]
    fn what_was_kept_is_read_again_and_what_cannot_be_read_is_nothing() {
        let home = tempfile::tempdir().unwrap();
        let home = home.path().join("not/yet");
        assert_eq!(read(&home), Said::default());
        let asked = Asked { base_url: "u".into(), at: "t".into() };
        let entry = Entry { key: "m".into(), window: Some(1), ..Entry::default() };
        let said = Said::default().with("p", asked, vec![entry]);
        write(&home, &said).unwrap();
        assert_eq!(read(&home), said);
        write(&home, &Said::default()).unwrap();
        assert_eq!(read(&home), Said::default());

        for (bytes, kept) in [(BYTES_MAX, true), (BYTES_MAX + 1, false)] {
            fs::write(file(&home), vec![b'x'; bytes]).unwrap();
            assert_eq!(read(&home).as_bytes().len(), if kept { bytes } else { 0 });
        }
        fs::remove_file(file(&home)).unwrap();
        fs::create_dir(file(&home)).unwrap();
        assert_eq!(read(&home), Said::default());
    }
}
