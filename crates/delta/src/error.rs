//! The error of this crate.

shardmill_core::problems! {
    /// What is wrong with a table. The page of errors of the manual describes each problem under its id.
    pub(crate) enum Problem -> Error {
        NoTable => (NotFound, "delta-no-table"),
        Log => (Corrupt, "delta-log"),
        Feature => (Unsupported, "delta-feature"),
        Path => (Corrupt, "delta-path"),
        Version => (InvalidInput, "delta-version", VERSIONS),
        Timestamp => (InvalidInput, "delta-timestamp", VERSIONS),
        FileMissing => (NotFound, "delta-file-missing", "read a later version, or bring the file back from a backup"),
        FileTwice => (InvalidInput, "source-duplicate"),
        RowCount => (Corrupt, "delta-row-count"),
        PartitionValue => (Corrupt, "delta-partition-value"),
        DeletionVector => (Corrupt, "delta-deletion-vector"),
        FieldIds => (Corrupt, "delta-field-ids", "the file was not written for this table: write its rows again with a writer that knows column mapping"),
        Column => (Corrupt, "delta-column"),
        Type => (Unsupported, "type-unsupported"),
        Footer => (Corrupt, "parquet-footer"),
        DuplicateColumn => (InvalidInput, "source-duplicate-column"),
    }
}

const VERSIONS: &str = "`shardmill inspect` shows which versions there are";
