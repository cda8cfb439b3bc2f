//! Markup that pages and plots share.

/// Escapes a text, so that no part of it is taken for markup.
pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
