//! Colours of systems: those of Okabe and Ito, which most people can tell apart, and some more.

use plotters::style::RGBColor;

const COLOURS: [RGBColor; 12] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(90, 90, 90),
    RGBColor(148, 87, 36),
    RGBColor(106, 61, 154),
    RGBColor(178, 178, 40),
    RGBColor(190, 30, 60),
    RGBColor(60, 190, 180),
];

/// The colour of a section's system, by its place; beyond the twelfth they come again.
pub fn of(place: usize) -> RGBColor {
    COLOURS[place % COLOURS.len()]
}

/// The same as CSS writes it.
pub fn css(place: usize) -> String {
    let RGBColor(red, green, blue) = of(place);
    format!("#{red:02x}{green:02x}{blue:02x}")
}
