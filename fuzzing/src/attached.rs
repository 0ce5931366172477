//! An image or a document that somebody attaches: it is refused with a sentence, or written anew as an image that is not
//! larger than allowed and would be taken again.

use nexus_tools::attach::prepare_here;

pub const SEEDS: &[&[u8]] = &[
    include_bytes!("../seeds/small.png"),
    include_bytes!("../seeds/small.jpg"),
    include_bytes!("../seeds/small.webp"),
    include_bytes!("../seeds/moving.gif"),
    b"%PDF-1.7\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj 2 0 obj<</Type/Pages/Kids[3 0 R]/Count 1>>endobj 3 0 obj<</Type/Page/Parent 2 0 R>>endobj\n%%EOF",
];

/// Smaller than the seeds' images and large enough to look at.
const SIDE_MAX: u32 = 5;

pub fn run(bytes: &[u8]) {
    match prepare_here(bytes, SIDE_MAX) {
        Ok((kind, prepared)) if kind.starts_with("image/") => {
            let again = prepare_here(&prepared, SIDE_MAX);
            assert!(again.is_ok(), "what was written anew is not taken: {again:?}");
        }
        Ok(_) => {}
        Err(why) => assert!(!why.trim().is_empty(), "refused without a word"),
    }
}
