//! `cargo xtask`: makes the files of the repository that are made from elsewhere.

mod models;

use anyhow::bail;

fn main() -> anyhow::Result<()> {
    match std::env::args().nth(1).as_deref() {
        Some("models") => models::make(),
        _ => {
            bail!("say what to make: models, the table of models that is shipped with the program")
        }
    }
}
