//! Images of strangers, written anew: upright, of one frame, without anything beside the pixels, and small enough for
//! every service.

use std::io::Cursor;

use image::codecs::jpeg::JpegEncoder;
use image::codecs::png::{CompressionType, FilterType as PngFilter, PngEncoder};
use image::imageops::FilterType;
use image::{DynamicImage, ImageDecoder as _, ImageFormat, ImageReader, Limits, Rgb, RgbImage};
use serde::{Deserialize, Serialize};

use super::{Kind, Prepared};

/// Most pixels that are decoded: those of the best cameras.
pub(super) const PIXELS_MAX: u64 = 64_000_000;

/// Most memory for them: four bytes each. Of images with 16 bits a channel it is enough for half as many.
const DECODED_BYTES_MAX: u64 = PIXELS_MAX * 4;

/// Most bytes of what a model sees: 5 MB in the text of a request, the limit of the strictest service.
pub(super) const BYTES_MAX: usize = 3_750_000;

/// Tried from the first on until the image is small enough. With the last, noise of 2,000 × 2,000 pixels is.
const JPEG_QUALITIES: [u8; 5] = [90, 80, 65, 50, 30];

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Format {
    Png,
    Jpeg,
}

impl Format {
    pub fn media_type(self) -> &'static str {
        match self {
            Self::Png => "image/png",
            Self::Jpeg => "image/jpeg",
        }
    }
}

pub(super) fn prepare(bytes: &[u8], kind: Kind, side_max: u32) -> Result<Prepared, String> {
    let image = decode(bytes, kind)?;
    let was = (image.width(), image.height());
    let image = plain(fit(image, side_max));
    let size = (image.width(), image.height());
    let (format, bytes) = encode(&image, kind == Kind::Jpeg, BYTES_MAX)?;
    Ok(Prepared::Image { format, size, was, bytes })
}

/// The pixels, of an animation those of its first frame, turned as whoever made it held the camera.
fn decode(bytes: &[u8], kind: Kind) -> Result<DynamicImage, String> {
    let format = match kind {
        Kind::Png => ImageFormat::Png,
        Kind::Jpeg => ImageFormat::Jpeg,
        Kind::WebP => ImageFormat::WebP,
        Kind::Gif => ImageFormat::Gif,
        Kind::Pdf | Kind::Other => return Err("it is no image".into()),
    };
    let broken = |error: image::ImageError| format!("it cannot be decoded ({error})");
    let mut limits = Limits::default();
    limits.max_alloc = Some(DECODED_BYTES_MAX);
    let mut reader = ImageReader::with_format(Cursor::new(bytes), format);
    reader.limits(limits);
    // Reads no more than the head.
    let mut decoder = reader.into_decoder().map_err(broken)?;
    let (width, height) = decoder.dimensions();
    if u64::from(width) * u64::from(height) > PIXELS_MAX {
        let most = PIXELS_MAX / 1_000_000;
        return Err(format!("it has {width} × {height} pixels, more than {most} million"));
    }
    if decoder.total_bytes() > DECODED_BYTES_MAX {
        let most = DECODED_BYTES_MAX / 1_000_000;
        return Err(format!("its pixels take more than {most} MB, with 16 bits for each channel"));
    }
    if width == 0 || height == 0 {
        return Err("it has no pixels".into());
    }
    // What says nothing of it that makes sense is upright.
    let orientation = decoder.orientation().unwrap_or(image::metadata::Orientation::NoTransforms);
    let mut image = DynamicImage::from_decoder(decoder).map_err(broken)?;
    image.apply_orientation(orientation);
    Ok(image)
}

/// Brings the longer side to `side_max`, if it is longer.
fn fit(image: DynamicImage, side_max: u32) -> DynamicImage {
    let side = image.width().max(image.height());
    if side <= side_max {
        return image;
    }
    // In two steps: the good filter looks at many pixels for each, and takes seconds for the largest images.
    let twice = side_max.saturating_mul(2);
    let image = if side > twice.saturating_mul(2) { image.thumbnail(twice, twice) } else { image };
    image.resize(side_max, side_max, FilterType::Lanczos3)
}

/// With 8 bits a channel, as every service reads it.
fn plain(image: DynamicImage) -> DynamicImage {
    let color = image.color();
    match (color.has_color(), color.has_alpha()) {
        (false, false) => DynamicImage::ImageLuma8(image.into_luma8()),
        (false, true) => DynamicImage::ImageLumaA8(image.into_luma_alpha8()),
        (true, false) => DynamicImage::ImageRgb8(image.into_rgb8()),
        (true, true) => DynamicImage::ImageRgba8(image.into_rgba8()),
    }
}

/// As PNG, which loses nothing, if that is small enough. What has lost something already is written as it came.
pub(super) fn encode(
    image: &DynamicImage,
    lossy: bool,
    bytes_max: usize,
) -> Result<(Format, Vec<u8>), String> {
    let failed = |error: image::ImageError| format!("it cannot be written anew ({error})");
    if !lossy {
        let mut bytes = Vec::new();
        let (compression, filter) = (CompressionType::Default, PngFilter::Adaptive);
        let encoder = PngEncoder::new_with_quality(&mut bytes, compression, filter);
        image.write_with_encoder(encoder).map_err(failed)?;
        if bytes.len() <= bytes_max {
            return Ok((Format::Png, bytes));
        }
    }
    let opaque = opaque(image);
    for quality in JPEG_QUALITIES {
        let mut bytes = Vec::new();
        let encoder = JpegEncoder::new_with_quality(&mut bytes, quality);
        opaque.write_with_encoder(encoder).map_err(failed)?;
        if bytes.len() <= bytes_max {
            return Ok((Format::Jpeg, bytes));
        }
    }
    Err(format!("it cannot be brought to {bytes_max} bytes"))
}

/// On white, where it lets something shine through.
fn opaque(image: &DynamicImage) -> DynamicImage {
    if !image.color().has_alpha() {
        return image.clone();
    }
    let seen = image.to_rgba8();
    let mut on_white = RgbImage::new(seen.width(), seen.height());
    for (pixel, seen) in on_white.pixels_mut().zip(seen.pixels()) {
        let [red, green, blue, alpha] = seen.0.map(u16::from);
        let over = |color: u16| ((color * alpha + 255 * (255 - alpha) + 127) / 255) as u8;
        *pixel = Rgb([over(red), over(green), over(blue)]);
    }
    DynamicImage::ImageRgb8(on_white)
}
