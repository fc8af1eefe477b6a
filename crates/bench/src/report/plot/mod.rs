//! Plots as inline SVG: text in the page's own fonts, colours from its style, so that light and dark both work.
//!
//! Every mark for a figure has the figure in `data-tip`. Numbers that are not finite are left out here, whatever a
//! caller passes. A plot with a gap is still read correctly, but a browser does not draw a path with NaN at all.

mod axis;
mod bars;
mod heat;
mod lines;

pub(crate) use axis::Axis;
pub(crate) use bars::{Bar, Bars, Stack, stacks};
pub(crate) use heat::Heat;
pub(crate) use lines::{Line, Lines, Point};

/// The number of colours and markers in the style before they repeat.
pub(crate) const COLORS: usize = 8;

/// Text as it may stand in HTML and SVG, in attributes too. Characters that XML forbids are replaced.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            '\n' | '\t' => escaped.push(character),
            _ if character.is_control() || matches!(character, '\u{fffe}' | '\u{ffff}') => {
                escaped.push('\u{fffd}')
            }
            _ => escaped.push(character),
        }
    }
    escaped
}

/// At most `max` characters, with an ellipsis when there were more.
pub(crate) fn shortened(text: &str, max: usize) -> String {
    if text.chars().count() <= max {
        return text.to_owned();
    }
    let kept: String = text.chars().take(max.saturating_sub(1)).collect();
    format!("{}…", kept.trim_end())
}

/// The width in pixels of text in the plots' size, estimated generously.
pub(crate) fn text_width(text: &str) -> f64 {
    text.chars().count() as f64 * 6.8
}

/// An image of this size around `body`, with `description` for screen readers.
fn svg(width: f64, height: f64, description: &str, body: &str) -> String {
    let description = escape(description);
    format!(
        "<svg class=\"plot\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" height=\"{height:.0}\" \
         role=\"img\" aria-label=\"{description}\">{body}</svg>"
    )
}

/// A figure with its caption and a legend of `sign`s.
fn figure(caption: &str, svg: &str, legend: &[(usize, String)], sign: fn(usize) -> String) -> String {
    let mut html = format!("<figure><figcaption>{}</figcaption>{svg}", escape(caption));
    if !legend.is_empty() {
        html.push_str("<ul class=\"legend\">");
        for (style, name) in legend {
            html.push_str(&format!(
                "<li class=\"s{}\"><svg width=\"18\" height=\"12\" aria-hidden=\"true\">{}</svg>{}</li>",
                style % COLORS,
                sign(*style),
                escape(name)
            ));
        }
        html.push_str("</ul>");
    }
    html.push_str("</figure>");
    html
}

/// The sign of a line in a legend.
fn line_sign(style: usize) -> String {
    format!(
        "<line class=\"line d{}\" x1=\"0\" y1=\"6\" x2=\"18\" y2=\"6\"/>{}",
        style / COLORS % 4,
        marker(style, 9.0, 6.0, "")
    )
}

/// The sign of a bar in a legend.
fn bar_sign(_style: usize) -> String {
    "<rect class=\"swatch\" x=\"2\" y=\"0\" width=\"14\" height=\"12\" rx=\"2\"/>".to_owned()
}

/// A mark whose shape identifies its series even without its colour.
fn marker(style: usize, x: f64, y: f64, tip: &str) -> String {
    let tip = if tip.is_empty() { String::new() } else { format!(" data-tip=\"{}\"", escape(tip)) };
    match style % 4 {
        0 => format!("<circle class=\"mark\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.4\"{tip}/>"),
        1 => format!(
            "<rect class=\"mark\" x=\"{:.1}\" y=\"{:.1}\" width=\"6.2\" height=\"6.2\"{tip}/>",
            x - 3.1,
            y - 3.1
        ),
        2 => format!("<path class=\"mark\" d=\"M{x:.1} {:.1}l4 7h-8z\"{tip}/>", y - 4.2),
        _ => format!("<path class=\"mark\" d=\"M{x:.1} {:.1}l4.2 4.2l-4.2 4.2l-4.2 -4.2z\"{tip}/>", y - 4.2),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escaped_text_has_no_markup_and_no_forbidden_character() {
        assert_eq!(
            escape("<script>\"a\"&'b'\u{0}\u{7f}"),
            "&lt;script&gt;&quot;a&quot;&amp;&#39;b&#39;\u{fffd}\u{fffd}"
        );
    }

    #[test]
    fn long_text_is_cut_between_characters() {
        assert_eq!(shortened("µµµµ", 4), "µµµµ");
        assert_eq!(shortened("µµµµµ", 4), "µµµ…");
    }
}
