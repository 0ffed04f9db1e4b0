//! Turns token ids back into text.

use std::path::Path;

use tokenizers::Tokenizer;

/// Decodes token ids with a tokenizer file.
#[derive(Debug)]
pub struct TokenDecoder {
    tokenizer: Tokenizer,
}

impl TokenDecoder {
    /// Reads a tokenizer file (`tokenizer.json`).
    ///
    /// # Errors
    ///
    /// The message of a file that cannot be read, or that is no tokenizer.
    pub fn open(file: &Path) -> Result<Self, String> {
        let tokenizer = Tokenizer::from_file(file).map_err(|error| error.to_string())?;
        Ok(Self { tokenizer })
    }

    /// Returns the text of ids, special tokens included.
    ///
    /// # Errors
    ///
    /// The message of the decoder.
    pub fn decode(&self, ids: &[u32]) -> Result<String, String> {
        let decoded = self.tokenizer.decode(ids, false);
        decoded.map_err(|error| error.to_string())
    }
}
