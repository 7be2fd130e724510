//! A plot as pixels, with a font that this program brings along: it needs none of the system.

use core::convert::Infallible;
use std::io::BufWriter;
use std::path::Path;

use embedded_graphics::Drawable;
use embedded_graphics::Pixel;
use embedded_graphics::draw_target::DrawTarget;
use embedded_graphics::geometry::{Dimensions, Point, Size};
use embedded_graphics::mono_font::iso_8859_1::{FONT_7X13, FONT_8X13, FONT_10X20};
use embedded_graphics::mono_font::{MonoFont, MonoTextStyle};
use embedded_graphics::pixelcolor::BinaryColor;
use embedded_graphics::primitives::Rectangle;
use embedded_graphics::text::{Baseline, Text};
use plotters_backend::text_anchor::{HPos, VPos};
use plotters_backend::{
    BackendColor, BackendCoord, BackendStyle, BackendTextStyle, DrawingBackend, DrawingErrorKind, FontTransform,
};

/// The pixels of an image, three bytes each, as something to draw on.
pub(super) struct Bitmap<'a> {
    size: (u32, u32),
    pixels: &'a mut [u8],
}

/// A white image.
pub(super) fn blank(size: (u32, u32)) -> Vec<u8> {
    vec![255; size.0 as usize * size.1 as usize * 3]
}

/// Writes an image as a PNG file.
pub(super) fn write(path: &Path, size: (u32, u32), pixels: &[u8]) -> Result<(), png::EncodingError> {
    let file = BufWriter::new(std::fs::File::create(path)?);
    let mut encoder = png::Encoder::new(file, size.0, size.1);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.write_header()?.write_image_data(pixels)
}

impl<'a> Bitmap<'a> {
    pub(super) const fn new(size: (u32, u32), pixels: &'a mut [u8]) -> Self {
        Self { size, pixels }
    }

    fn blend(&mut self, (x, y): BackendCoord, colour: BackendColor) {
        let (Ok(x), Ok(y)) = (u32::try_from(x), u32::try_from(y)) else { return };
        if x >= self.size.0 || y >= self.size.1 {
            return;
        }
        let at = (y as usize * self.size.0 as usize + x as usize) * 3;
        let (red, green, blue) = colour.rgb;
        for (pixel, value) in self.pixels.iter_mut().skip(at).zip([red, green, blue]) {
            *pixel = (f64::from(*pixel) * (1.0 - colour.alpha) + f64::from(value) * colour.alpha).round() as u8;
        }
    }
}

/// The font of about this height.
fn font(height: f64) -> &'static MonoFont<'static> {
    match height {
        ..14.0 => &FONT_7X13,
        ..18.0 => &FONT_8X13,
        _ => &FONT_10X20,
    }
}

/// Text as the places of its pixels.
struct TextPixels(Vec<(i32, i32)>);

impl Dimensions for TextPixels {
    fn bounding_box(&self) -> Rectangle {
        Rectangle::new(Point::zero(), Size::new(u32::from(u16::MAX), u32::from(u16::MAX)))
    }
}

impl DrawTarget for TextPixels {
    type Color = BinaryColor;
    type Error = Infallible;

    fn draw_iter<I: IntoIterator<Item = Pixel<BinaryColor>>>(&mut self, pixels: I) -> Result<(), Infallible> {
        let set = pixels.into_iter().filter(|Pixel(_, colour)| colour.is_on());
        self.0.extend(set.map(|Pixel(at, _)| (at.x, at.y)));
        Ok(())
    }
}

impl DrawingBackend for Bitmap<'_> {
    type ErrorType = Infallible;

    fn get_size(&self) -> (u32, u32) {
        self.size
    }

    fn ensure_prepared(&mut self) -> Result<(), DrawingErrorKind<Infallible>> {
        Ok(())
    }

    fn present(&mut self) -> Result<(), DrawingErrorKind<Infallible>> {
        Ok(())
    }

    fn draw_pixel(&mut self, at: BackendCoord, colour: BackendColor) -> Result<(), DrawingErrorKind<Infallible>> {
        self.blend(at, colour);
        Ok(())
    }

    fn draw_text<S: BackendTextStyle>(
        &mut self,
        text: &str,
        style: &S,
        (x, y): BackendCoord,
    ) -> Result<(), DrawingErrorKind<Infallible>> {
        let (width, height) = self.estimate_text_size(text, style)?;
        let (width, height) = (width as i32, height as i32);
        let (left, top) = (
            match style.anchor().h_pos {
                HPos::Left => 0,
                HPos::Right => -width,
                HPos::Center => -width / 2,
            },
            match style.anchor().v_pos {
                VPos::Top => 0,
                VPos::Center => -height / 2,
                VPos::Bottom => -height,
            },
        );
        let mut pixels = TextPixels(Vec::new());
        let written = MonoTextStyle::new(font(style.size()), BinaryColor::On);
        let drawn = Text::with_baseline(text, Point::zero(), written, Baseline::Top).draw(&mut pixels);
        drawn.map_err(DrawingErrorKind::DrawingError)?;
        for (across, down) in pixels.0 {
            let (across, down) = (across + left, down + top);
            let (across, down) = match style.transform() {
                FontTransform::None => (across, down),
                FontTransform::Rotate90 => (-down, across),
                FontTransform::Rotate180 => (-across, -down),
                FontTransform::Rotate270 => (down, -across),
            };
            self.blend((x + across, y + down), style.color());
        }
        Ok(())
    }

    fn estimate_text_size<S: BackendTextStyle>(
        &self,
        text: &str,
        style: &S,
    ) -> Result<(u32, u32), DrawingErrorKind<Infallible>> {
        let size = font(style.size()).character_size;
        Ok((text.chars().count() as u32 * size.width, size.height))
    }

    fn draw_rect<S: BackendStyle>(
        &mut self,
        upper_left: BackendCoord,
        bottom_right: BackendCoord,
        style: &S,
        fill: bool,
    ) -> Result<(), DrawingErrorKind<Infallible>> {
        let ((left, top), (right, bottom)) = (upper_left, bottom_right);
        for y in top..=bottom {
            for x in left..=right {
                if fill || x == left || x == right || y == top || y == bottom {
                    self.blend((x, y), style.color());
                }
            }
        }
        Ok(())
    }
}
