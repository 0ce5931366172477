//! What is taken of strangers' bytes, just under and just over each limit.

use std::io::{Cursor, Write as _};

use ::image::codecs::gif::GifEncoder;
use ::image::codecs::jpeg::JpegEncoder;
use ::image::{
    DynamicImage, Frame, GrayImage, ImageFormat, Rgb, RgbImage, Rgba, RgbaImage, load_from_memory,
};
use flate2::Compression;
use flate2::write::ZlibEncoder;

use super::image::{BYTES_MAX, Format, PIXELS_MAX, encode};
use super::*;

const SIDE: u32 = 1568;

fn written(image: impl Into<DynamicImage>, format: ImageFormat) -> Vec<u8> {
    let mut bytes = Cursor::new(Vec::new());
    image.into().write_to(&mut bytes, format).unwrap();
    bytes.into_inner()
}

/// Of different colours, so that a turned or cut one is told from it.
fn colourful(width: u32, height: u32) -> RgbImage {
    RgbImage::from_fn(width, height, |x, y| Rgb([(x * 7) as u8, (y * 5) as u8, (x ^ y) as u8]))
}

/// What no encoder makes small.
fn noise(width: u32, height: u32) -> RgbImage {
    let mut state = 1u32;
    RgbImage::from_fn(width, height, |_, _| {
        Rgb([(); 3].map(|()| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        }))
    })
}

struct Made {
    format: Format,
    size: (u32, u32),
    was: (u32, u32),
    bytes: Vec<u8>,
}

impl Made {
    fn pixels(&self) -> RgbaImage {
        load_from_memory(&self.bytes).unwrap().into_rgba8()
    }
}

fn made(bytes: &[u8], side_max: u32) -> Result<Made, String> {
    let source = Source { kind: Kind::of(bytes), side_max, bytes: bytes.to_vec().into() };
    match prepare(&source)? {
        Prepared::Image { format, size, was, bytes } => {
            assert!(bytes.len() <= BYTES_MAX && size.0.max(size.1) <= side_max);
            let read = load_from_memory(&bytes).unwrap();
            assert_eq!((read.width(), read.height()), size);
            Ok(Made { format, size, was, bytes })
        }
        Prepared::Document { .. } => panic!("an image became a document"),
    }
}

#[test]
fn images_are_told_by_their_bytes_and_written_anew() {
    let image = colourful(30, 20);
    for format in [ImageFormat::Png, ImageFormat::WebP] {
        let made = made(&written(image.clone(), format), SIDE).unwrap();
        assert_eq!((made.format, made.size, made.was), (Format::Png, (30, 20), (30, 20)));
        assert_eq!(made.pixels(), DynamicImage::from(image.clone()).into_rgba8(), "{format:?}");
    }
    let jpeg = made(&written(image, ImageFormat::Jpeg), SIDE).unwrap();
    assert_eq!((jpeg.format, jpeg.size), (Format::Jpeg, (30, 20)));
}

#[test]
fn of_an_animation_the_first_frame_is_shown() {
    let mut bytes = Vec::new();
    let mut encoder = GifEncoder::new(&mut bytes);
    for colour in [[255, 0, 0, 255], [0, 0, 255, 255]] {
        let frame = RgbaImage::from_pixel(4, 4, Rgba(colour));
        encoder.encode_frame(Frame::new(frame)).unwrap();
    }
    drop(encoder);
    let made = made(&bytes, SIDE).unwrap();
    assert_eq!(made.format, Format::Png);
    assert!(made.pixels().pixels().all(|pixel| pixel.0 == [255, 0, 0, 255]));
}

#[test]
fn a_side_has_its_bound() {
    let check = |width, height, expected| {
        let bytes = written(GrayImage::new(width, height), ImageFormat::Png);
        let made = made(&bytes, SIDE).unwrap();
        assert_eq!((made.size, made.was), (expected, (width, height)));
    };
    check(SIDE, 10, (SIDE, 10));
    check(SIDE + 1, 10, (SIDE, 10));
    check(10, SIDE + 1, (10, SIDE));
    check(2 * SIDE, SIDE, (SIDE, SIDE / 2));
    // In two steps.
    check(8 * SIDE, 2 * SIDE, (SIDE, SIDE / 4));
    check(20_000, 1, (SIDE, 1));
}

/// A PNG that says it has so many pixels, and has these.
fn claims(width: u32, height: u32, bits: u8, colour: u8, pixels: &[u8]) -> Vec<u8> {
    let mut bytes = b"\x89PNG\r\n\x1a\n".to_vec();
    let mut chunk = |kind: &[u8], data: &[u8]| {
        bytes.extend((data.len() as u32).to_be_bytes());
        let body = [kind, data].concat();
        let mut crc = flate2::Crc::new();
        crc.update(&body);
        bytes.extend(body);
        bytes.extend(crc.sum().to_be_bytes());
    };
    let mut head = [width.to_be_bytes(), height.to_be_bytes()].concat();
    head.extend([bits, colour, 0, 0, 0]);
    chunk(b"IHDR", &head);
    chunk(b"IDAT", &packed(pixels));
    chunk(b"IEND", &[]);
    bytes
}

fn packed(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn pixels_have_their_bound_before_any_is_decoded() {
    let (width, height) = (8000, 8000);
    assert_eq!(u64::from(width) * u64::from(height), PIXELS_MAX);
    // A byte for each, and one before each line.
    let most = claims(width, height, 8, 0, &vec![0; 8001 * 8000]);
    assert_eq!(made(&most, SIDE).unwrap().size, (SIDE, SIDE));
    let refused = |bytes: &[u8]| made(bytes, SIDE).err().unwrap();
    assert_eq!(
        refused(&claims(8001, 8000, 8, 0, &[])),
        "it has 8001 × 8000 pixels, more than 64 million"
    );
    let bomb = refused(&claims(2_000_000_000, 2_000_000_000, 8, 6, &[]));
    assert!(bomb.contains("pixels, more than 64 million") || bomb.contains("decoded"), "{bomb}");
    // Red, green, blue and alpha of 16 bits each: half as many.
    let deep = "its pixels take more than 256 MB, with 16 bits for each channel";
    assert_eq!(refused(&claims(8000, 4001, 16, 6, &[])), deep);
    assert!(refused(&claims(8000, 4000, 16, 6, &[])).starts_with("it cannot be decoded"));
}

#[test]
fn bytes_have_their_bound() {
    let noisy = DynamicImage::from(noise(64, 64));
    let (format, png) = encode(&noisy, false, BYTES_MAX).unwrap();
    assert_eq!(format, Format::Png);
    let (format, same) = encode(&noisy, false, png.len()).unwrap();
    assert_eq!((format, &same), (Format::Png, &png));
    let (format, best) = encode(&noisy, false, png.len() - 1).unwrap();
    assert_eq!(format, Format::Jpeg);
    // With less and less, it gets worse and worse.
    let (_, again) = encode(&noisy, true, best.len()).unwrap();
    assert_eq!(again, best);
    let (_, worse) = encode(&noisy, true, best.len() - 1).unwrap();
    assert!(worse.len() < best.len());
    assert_eq!(encode(&noisy, true, 9).unwrap_err(), "it cannot be brought to 9 bytes");
}

/// The worst there is: nothing that no encoder makes small is refused for its size.
#[test]
fn noise_is_brought_to_what_is_taken() {
    let (format, bytes) = encode(&noise(2000, 2000).into(), true, BYTES_MAX).unwrap();
    assert_eq!(format, Format::Jpeg);
    assert!(bytes.len() <= BYTES_MAX);
}

#[test]
fn what_shines_through_is_white() {
    let clear = RgbaImage::from_pixel(64, 64, Rgba([9, 9, 9, 0]));
    let (format, bytes) = encode(&clear.into(), true, BYTES_MAX).unwrap();
    assert_eq!(format, Format::Jpeg);
    let seen = load_from_memory(&bytes).unwrap().into_rgba8();
    assert_eq!(seen.get_pixel(30, 30).0, [255; 4]);
}

#[test]
fn sixteen_bits_become_eight() {
    let deep = DynamicImage::from(colourful(5, 4)).into_rgba16();
    let made = made(&written(deep, ImageFormat::Png), SIDE).unwrap();
    assert_eq!(load_from_memory(&made.bytes).unwrap().color(), ::image::ColorType::Rgba8);
}

/// A JPEG whose camera was held so, with the place where it was.
fn turned(orientation: u8) -> Vec<u8> {
    let mut bytes = Vec::new();
    JpegEncoder::new_with_quality(&mut bytes, 95).encode_image(&colourful(40, 20)).unwrap();
    let mut exif = b"Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0".to_vec();
    exif.extend([orientation, 0, 0, 0, 0, 0, 0, 0]);
    exif.extend(b"52.52N 13.40E");
    let length = u16::try_from(exif.len() + 2).unwrap().to_be_bytes();
    let segment = [&[0xff, 0xe1][..], &length, &exif].concat();
    bytes.splice(2..2, segment);
    bytes
}

#[test]
fn an_image_stands_upright_and_tells_nothing_of_its_maker() {
    assert_eq!(made(&turned(1), SIDE).unwrap().size, (40, 20));
    let upright = made(&turned(6), SIDE).unwrap();
    assert_eq!(upright.size, (20, 40));
    let holds = |bytes: &[u8], word: &[u8]| bytes.windows(word.len()).any(|it| it == word);
    assert!(holds(&turned(6), b"13.40E"));
    assert!(!holds(&upright.bytes, b"13.40E") && !holds(&upright.bytes, b"Exif"));
}

#[test]
fn what_is_cut_off_or_broken_is_refused_or_written_whole() {
    let image = colourful(64, 64);
    for format in [ImageFormat::Png, ImageFormat::WebP, ImageFormat::Gif, ImageFormat::Jpeg] {
        let whole = written(image.clone(), format);
        for end in [12, whole.len() / 4, whole.len() / 2] {
            match made(&whole[..end], SIDE) {
                Err(why) => assert!(why.starts_with("it "), "{format:?} {end}: {why}"),
                // What is missing of a JPEG is grey.
                Ok(made) => assert_eq!((format, made.size), (ImageFormat::Jpeg, (64, 64))),
            }
        }
    }
}

/// A document with so many pages.
fn pdf(pages: usize) -> Vec<u8> {
    let mut bytes =
        b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n1 0 obj\n<</Type/Catalog/Pages 2 0 R>>\nendobj\n".to_vec();
    let kids: String = (0..pages).map(|page| format!("{} 0 R ", page + 3)).collect();
    let tree = format!(
        "2 0 obj\n<< /Kids [{kids}] /Resources <</Font <<>> >> /Type /Pages /Count {pages} >>\nendobj\n"
    );
    bytes.extend(tree.bytes());
    for page in 0..pages {
        bytes.extend(page_object(page).bytes());
    }
    bytes.extend(b"trailer\n<</Root 1 0 R/ID[<ab><cd>]>>\nstartxref\n0\n%%EOF\n");
    bytes
}

fn page_object(page: usize) -> String {
    let number = page + 3;
    format!("{number} 0 obj\n<</Type/Page/Parent 2 0 R/Note (a \\) >> ( b))>>\nendobj\n")
}

/// The same, with its objects packed, as most programs write them.
fn packed_pdf(objects: &[u8]) -> Vec<u8> {
    let data = packed(objects);
    let mut bytes =
        b"%PDF-1.7\n1 0 obj\n<</Type/ObjStm/N 9/First 9/Filter/FlateDecode>>\nstream\r\n".to_vec();
    bytes.extend(data);
    bytes.extend(b"\nendstream\nendobj\nstartxref\n0\n%%EOF");
    bytes
}

#[test]
fn the_pages_of_a_document_are_counted() {
    let check = |bytes: &[u8], expected: Result<u32, &str>| {
        assert_eq!(pdf::check(bytes), expected.map_err(str::to_owned));
    };
    check(&pdf(1), Ok(1));
    check(&pdf(100), Ok(100));
    check(&pdf(101), Err("it has 101 pages, more than 100"));
    let uncounted = Err("its pages cannot be counted");
    check(&pdf(0), uncounted);
    check(b"%PDF-1.7\n%%EOF", uncounted);
    check(&packed_pdf(b"2 0 <</Type /Pages /Kids [3 0 R] /Count 7>>"), Ok(7));
    check(&packed_pdf(b"2 0 <</Count 101 /Type/Pages>>"), Err("it has 101 pages, more than 100"));
    // Without a tree, or where that says it elsewhere, the pages themselves are counted.
    let pages: String = (0..3).map(page_object).collect();
    check(&packed_pdf(pages.as_bytes()), Ok(3));
    check(&packed_pdf(format!("<</Type/Pages/Count 9 0 R>> {pages}").as_bytes()), Ok(3));
}

#[test]
fn documents_that_no_service_reads_are_refused_by_name() {
    let refused = |bytes: &[u8]| pdf::check(bytes).unwrap_err();
    let whole = pdf(2);
    assert_eq!(refused(&whole[..whole.len() - 8]), "it is cut off: its end is missing");
    let locked = String::from_utf8_lossy(&whole).replace("/Root 1 0 R", "/Encrypt 9 0 R");
    assert_eq!(refused(locked.as_bytes()), "it is encrypted");
    let named = String::from_utf8_lossy(&whole).replace("/Root 1 0 R", "/EncryptMetadata true");
    assert_eq!(pdf::check(named.as_bytes()), Ok(2));
    let nested = |depth: usize| {
        let open = "<<".repeat(depth);
        format!("%PDF-1.7\n{open}{}\n{}%%EOF", ">>".repeat(depth), page_object(0))
    };
    assert_eq!(pdf::check(nested(64).as_bytes()), Ok(1));
    assert_eq!(refused(nested(65).as_bytes()), "its dictionaries are nested too deep");
    let bomb = packed_pdf(&vec![b' '; 64_000_001]);
    assert_eq!(refused(&bomb), "its objects unpack to more than 64000000 bytes");
    let mut most = vec![b' '; 64_000_000 - 40];
    most.extend(b"<</Type/Pages/Count 1>>");
    assert_eq!(pdf::check(&packed_pdf(&most)), Ok(1));
}

/// What something is taken for, whatever it is called.
#[test]
fn a_name_and_what_is_wanted_decide_nothing_that_bytes_do_not() {
    let here = |source: Source| prepare(&source);
    let kind =
        |bytes: &[u8], name: &str, wanted| match taken(bytes.to_vec(), name, wanted, SIDE, here) {
            Ok(Taken::Image { media_type, .. }) => media_type.to_owned(),
            Ok(Taken::Document { media_type, bytes: kept, .. }) => {
                assert_eq!(kept, bytes);
                media_type.to_owned()
            }
            Ok(Taken::Text(text)) => text,
            Err(why) => format!("no: {why}"),
        };
    let png = written(colourful(3, 3), ImageFormat::Png);
    let jpeg = written(colourful(3, 3), ImageFormat::Jpeg);
    assert_eq!(kind(&png, "a.txt", Wanted::Any), "image/png");
    assert_eq!(kind(&jpeg, "a.png", Wanted::Image), "image/jpeg");
    assert_eq!(kind(&pdf(1), "a.png", Wanted::Any), "application/pdf");
    let no_image = "no: a.png is no image: PNG, JPEG, WebP and GIF are taken";
    assert_eq!(kind(&pdf(1), "a.png", Wanted::Image), no_image);
    assert_eq!(kind(b"words", "a.png", Wanted::Image), no_image);
    assert_eq!(kind("\u{feff}é".as_bytes(), "a.pdf", Wanted::Any), "é");
    assert_eq!(kind(b"<svg/>", "a.svg", Wanted::Any), "<svg/>");
    assert_eq!(kind(b"", "a", Wanted::Any), "");
    let other = "no: a is neither an image (PNG, JPEG, WebP, GIF) nor a PDF document nor UTF-8 \
                 text, which are taken";
    for bytes in [&b"PK\x03\x04\0"[..], b"\xff\xfe", b"BM\0", b"II*\0", b"ID3\x04\0"] {
        assert_eq!(kind(bytes, "a", Wanted::Any), other, "{bytes:?}");
    }
    let cut = kind(&png[..20], "a.png", Wanted::Image);
    assert!(cut.starts_with("no: a.png is not taken: it cannot be decoded"), "{cut}");
}

#[test]
fn what_is_read_has_its_bound_by_kind() {
    let check = |head: &[u8], most: u64, kind: &str| {
        let kind_of = Kind::of(head);
        assert_eq!(check_size(most, kind_of, "a"), Ok(()));
        let over = check_size(most + 1, kind_of, "a").unwrap_err();
        assert_eq!(
            over,
            format!("a is larger than {most} bytes, the most that is taken of a {kind}")
        );
    };
    check(b"\x89PNG\r\n\x1a\n", IMAGE_BYTES_MAX, "PNG");
    check(b"\xff\xd8\xff\xe0", IMAGE_BYTES_MAX, "JPEG");
    check(b"GIF89a", IMAGE_BYTES_MAX, "GIF");
    check(b"RIFF\0\0\0\0WEBPVP8 ", IMAGE_BYTES_MAX, "WebP");
    check(b"%PDF-1.4", PDF_BYTES_MAX, "PDF");
    check(b"hello", TEXT_BYTES_MAX, "text");
}
