//! The errors of tokenizers.

shardmill_core::problems! {
    /// What is wrong with a tokenizer or a text.
    pub(crate) enum Problem -> Error {
        File => (Corrupt, "tokenizer-file", "pass a file `tokenizer.json` of Hugging Face; `save_pretrained()` of a fast tokenizer writes one"),
        Random => (Unsupported, "tokenizer-random", "set `dropout` of its model to null"),
        Template => (Unsupported, "tokenizer-template", "remove its `post_processor`"),
        Token => (InvalidInput, "tokenizer-token", "it has no special tokens"),
        NotUtf8 => (Corrupt, "text-utf8", "correct or remove the row, or decode the column with --select"),
        Failed => (Corrupt, "tokenizer-failed"),
        NoTokens => (Corrupt, "tokens-none", "pass --append for a token after each text, or --nulls drop to skip such rows"),
        Threads => (Resource, "tokenizer-threads", "choose fewer --jobs"),
        Bug => (Bug, "bug"),
    }
}
