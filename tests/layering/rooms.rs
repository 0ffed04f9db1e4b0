//! Lists the layers of the workspace: the layer of each crate, its allowed dependencies, and the homes of heavy
//! dependencies.
//!
//! A new crate gets a line in [`ROOMS`]. A new dependency is an edit that a reviewer sees here. Planned crates already
//! have their line.

/// A layer. Dependencies point only to lower layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Floor {
    /// Types and traits: no I/O, no async, no clock.
    Ground,
    /// Code that several parts share.
    Shared,
    /// One job each, independent of each other.
    Part,
    /// Fetching, keeping and evicting blobs.
    Cache,
    /// Opens, verifies and rebuilds datasets of every format.
    Dataset,
    /// Concurrency, publishing, epochs.
    Engine,
    /// Plan, journal, resume.
    Job,
    /// Parse, render, map errors.
    Edge,
    /// Test suites and benchmarks: they may use everything, and nothing may depend on them.
    Suite,
}

/// One crate of the workspace.
pub struct Room {
    /// Package name.
    pub name: &'static str,
    /// Its layer.
    pub floor: Floor,
    /// The workspace crates it may use in normal and build dependencies.
    pub uses: &'static [&'static str],
}

const fn room(name: &'static str, floor: Floor, uses: &'static [&'static str]) -> Room {
    Room { name, floor, uses }
}

const CORE: &str = "shardmill-core";
const CACHE: &str = "shardmill-cache";
const CODEC: &str = "shardmill-codec";
const MMAP: &str = "shardmill-mmap";
const PEERS: &str = "shardmill-peers";
const ORDER: &str = "shardmill-order";
const MDS: &str = "shardmill-mds";
const WEBDATASET: &str = "shardmill-webdataset";
const PARQUET: &str = "shardmill-parquet";
const RECORDS: &str = "shardmill-records";
const ZARR: &str = "shardmill-zarr";
const STORAGE: &str = "shardmill-storage";
const DATASET: &str = "shardmill-dataset";
const SOURCE: &str = "shardmill-source";
const TOKENIZE: &str = "shardmill-tokenize";
const DELTA: &str = "shardmill-delta";
const TABLE: &str = "shardmill-table";
const WRITER: &str = "shardmill-writer";
const READER: &str = "shardmill-reader";
const CONVERT: &str = "shardmill-convert";
const VIEW: &str = "shardmill-view";
const CLI: &str = "shardmill";
const PYTHON: &str = "shardmill-python";

/// Test helpers: any crate may use them as a development dependency, but only suites as a normal one.
pub const TESTING: &str = "shardmill-testing";

/// Every existing or planned crate.
pub const ROOMS: &[Room] = &[
    room(CORE, Floor::Ground, &[]),
    room(ORDER, Floor::Part, &[CORE]),
    room(MMAP, Floor::Ground, &[]),
    room(CODEC, Floor::Shared, &[CORE]),
    room(MDS, Floor::Part, &[CORE, CODEC]),
    room(WEBDATASET, Floor::Part, &[CORE, CODEC]),
    room(PARQUET, Floor::Part, &[CORE, CODEC]),
    room(RECORDS, Floor::Part, &[CORE]),
    room(ZARR, Floor::Part, &[CORE, CODEC]),
    room(TOKENIZE, Floor::Part, &[CORE, CODEC]),
    room(STORAGE, Floor::Part, &[CORE, MMAP]),
    // It knows addresses and names of files, and no datasets.
    room(PEERS, Floor::Cache, &[CORE, CODEC]),
    room(CACHE, Floor::Cache, &[CORE, CODEC, MMAP, ORDER, STORAGE]),
    room(DELTA, Floor::Dataset, &[CORE, PARQUET, STORAGE]),
    // It lists and reads stores itself, because only it knows which parts of a file it needs and when.
    room(
        SOURCE,
        Floor::Engine,
        &[CORE, STORAGE, PARQUET, RECORDS, ZARR, DELTA],
    ),
    room(WRITER, Floor::Engine, &[CORE, STORAGE, MDS, WEBDATASET]),
    room(
        DATASET,
        Floor::Dataset,
        &[CORE, MMAP, STORAGE, ORDER, CACHE, MDS, WEBDATASET],
    ),
    room(
        READER,
        Floor::Engine,
        &[
            CORE, MMAP, STORAGE, ORDER, CACHE, PEERS, MDS, WEBDATASET, DATASET,
        ],
    ),
    // A finished dataset can be a source.
    room(
        CONVERT,
        Floor::Job,
        &[
            CORE, SOURCE, STORAGE, MDS, WEBDATASET, PARQUET, RECORDS, WRITER, DATASET, TOKENIZE,
        ],
    ),
    // It encodes rows as a conversion does, and opens streams of the reader.
    room(
        TABLE,
        Floor::Job,
        &[CORE, DELTA, MDS, PARQUET, STORAGE, WRITER, DATASET],
    ),
    // It runs the commands of the command line instead of depending on their crates.
    room(
        VIEW,
        Floor::Job,
        &[CORE, MDS, WEBDATASET, STORAGE, DATASET, TOKENIZE],
    ),
    room(
        CLI,
        Floor::Edge,
        &[
            CORE, ORDER, MDS, WEBDATASET, STORAGE, DATASET, SOURCE, WRITER, READER, CONVERT, TABLE,
            TOKENIZE, VIEW,
        ],
    ),
    // Every rank imports the module, so it must not include the query engine: it uses neither `source` nor `convert`.
    room(
        PYTHON,
        Floor::Edge,
        &[
            CORE, MMAP, ORDER, MDS, WEBDATASET, PARQUET, STORAGE, DATASET, WRITER, READER, TABLE,
        ],
    ),
    room(TESTING, Floor::Engine, &[CORE, STORAGE, MDS, WEBDATASET]),
    room("shardmill-tests", Floor::Suite, EVERYTHING),
    room("shardmill-benches", Floor::Suite, EVERYTHING),
    room("shardmill-fuzz", Floor::Suite, EVERYTHING),
    room(
        "shardmill-example",
        Floor::Suite,
        &[MDS, ORDER, DATASET, READER],
    ),
];

const EVERYTHING: &[&str] = &[
    CORE, CODEC, CACHE, MMAP, ORDER, MDS, WEBDATASET, PARQUET, RECORDS, ZARR, STORAGE, DATASET,
    SOURCE, WRITER, READER, CONVERT, VIEW, CLI, PYTHON, DELTA, TABLE, TESTING, TOKENIZE, PEERS,
];

/// A dependency, or a family by its prefix (`arrow` and `arrow-*`), and the crates that may declare it.
pub struct Heavy {
    /// The name of the package. Followed by a dash, it is the prefix of its family.
    pub family: &'static str,
    /// Crates that may use it as a normal or build dependency; suites always may.
    pub homes: &'static [&'static str],
}

/// The heavy dependencies and their crates.
pub const HEAVY: &[Heavy] = &[
    Heavy {
        family: "datafusion",
        homes: &[SOURCE],
    },
    Heavy {
        family: "delta_kernel",
        homes: &[DELTA],
    },
    Heavy {
        family: "delta_kernel_default_engine",
        homes: &[DELTA],
    },
    Heavy {
        family: "parquet",
        // For tests that need tables, with the feature `delta`.
        homes: &[SOURCE, PARQUET, DELTA, TABLE, TESTING],
    },
    Heavy {
        family: "arrow",
        homes: &[
            SOURCE, PARQUET, DELTA, WRITER, CONVERT, TABLE, PYTHON, TESTING, TOKENIZE,
        ],
    },
    Heavy {
        family: "tokenizers",
        homes: &[TOKENIZE],
    },
    Heavy {
        family: "object_store",
        homes: &[STORAGE, SOURCE],
    },
    Heavy {
        family: "reqwest",
        homes: &[STORAGE],
    },
    Heavy {
        family: "hyper",
        homes: &[PEERS, VIEW],
    },
    Heavy {
        family: "tokio",
        homes: &[
            STORAGE, DELTA, SOURCE, WRITER, READER, CONVERT, PEERS, VIEW, CLI, PYTHON,
        ],
    },
    Heavy {
        family: "anyhow",
        homes: &[CLI],
    },
    Heavy {
        family: "clap",
        // The options of a conversion are those of the command line.
        homes: &[CLI, CONVERT],
    },
    Heavy {
        family: "clap_complete",
        homes: &[CLI],
    },
    Heavy {
        family: "clap_mangen",
        homes: &[CLI],
    },
    Heavy {
        family: "indicatif",
        homes: &[CLI],
    },
    Heavy {
        family: "pyo3",
        homes: &[PYTHON],
    },
];

/// What a crate must not depend on, even indirectly: (crate, families).
pub const NEVER_INSIDE: &[(&str, &[&str])] = &[
    (CORE, SYNCHRONOUS),
    (CODEC, SYNCHRONOUS),
    (MMAP, SYNCHRONOUS),
    (ORDER, SYNCHRONOUS),
    (MDS, SYNCHRONOUS),
    (WEBDATASET, SYNCHRONOUS),
    (DATASET, &["arrow", "datafusion", "parquet"]),
    (READER, &["arrow", "datafusion", "parquet"]),
    (WRITER, &["datafusion", "parquet"]),
    (PYTHON, &["datafusion"]),
];

/// Families that crates must avoid to stay synchronous and to handle only bytes.
const SYNCHRONOUS: &[&str] = &[
    "tokio",
    "futures",
    "arrow",
    "object_store",
    "parquet",
    "datafusion",
];

/// Families with exactly one linked version, because types of two versions of arrow are incompatible.
pub const ONE_VERSION: &[&str] = &[
    "arrow",
    "parquet",
    "datafusion",
    "object_store",
    "delta_kernel",
];

/// The most lines of code of each crate, as the module `size` counts them. The numbers only go down: a change that removes
/// code lowers them.
pub const BUDGETS: &[(&str, usize)] = &[
    ("shardmill-cache", 5948),
    ("shardmill-codec", 1571),
    ("shardmill-convert", 8915),
    ("shardmill-core", 1579),
    ("shardmill-dataset", 9007),
    ("shardmill-delta", 1767),
    ("shardmill-mmap", 490),
    ("shardmill-order", 6258),
    ("shardmill-peers", 624),
    ("shardmill-reader", 4539),
    ("shardmill-source", 11_451),
    ("shardmill-storage", 12_889),
    ("shardmill-table", 1332),
    ("shardmill-tokenize", 499),
    ("shardmill-view", 2453),
    ("shardmill-writer", 8441),
    ("shardmill-mds", 4168),
    ("shardmill-parquet", 2187),
    ("shardmill-records", 335),
    ("shardmill-webdataset", 4123),
    ("shardmill-zarr", 1734),
    ("shardmill", 8667),
    ("shardmill-python", 4821),
];
