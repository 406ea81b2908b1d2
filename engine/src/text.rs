//! Shares equal texts.

use model::Text;

/// Replaces a text by an equal one that is held already, so that both are held once.
pub(crate) fn share(text: &mut Text, known: &Text) {
    if text == known {
        *text = known.clone();
    }
}
