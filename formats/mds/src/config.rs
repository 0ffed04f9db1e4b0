//! The schema and storage settings of a shard: the part of an index entry that is also written into the shard itself.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use shardmill_core::{Format, escape, write_json_string};

use crate::encoding::Encoding;
use crate::error::{MdsError, MdsProblem};
use shardmill_codec::Compression;
use shardmill_codec::HashAlgo;

/// A column of an MDS shard, or of one of another format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column<E = Encoding> {
    /// The name, unique within its shard.
    pub name: String,
    /// How its values are encoded.
    pub encoding: E,
}

/// A column of a JSON or XSV shard.
pub type TextColumn = Column<TextEncoding>;

shardmill_core::named_enum! {
    /// How a value is encoded as text in the JSON and XSV formats.
    pub enum TextEncoding {
        /// `str`: unchanged text.
        Str = "str",
        /// `int`: an integer in decimal, of any size.
        Int = "int",
        /// `float`: the shortest decimal text that parses to the same `f64`.
        Float = "float",
    }
}

impl FromStr for TextEncoding {
    type Err = MdsError;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::from_name(name).ok_or_else(|| {
            let reason = format!("unknown text encoding `{}`", escape(name));
            MdsProblem::TextEncoding.because(reason)
        })
    }
}

/// The columns of a shard and its format.
///
/// Writers sort the columns by the code points of their names, which for UTF-8 is the order of `str`. Readers keep the
/// order of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Layout {
    /// MDS.
    Mds {
        /// The columns.
        columns: Vec<Column>,
    },
    /// One JSON object per line.
    Json {
        /// The columns.
        columns: Vec<TextColumn>,
        /// The text that ends a line.
        newline: String,
    },
    /// Unquoted values, separated, below a header line.
    Xsv {
        /// CSV, TSV or XSV. CSV and TSV have a fixed separator.
        format: Format,
        /// The columns.
        columns: Vec<TextColumn>,
        /// The text that ends a line.
        newline: String,
        /// The text between two values.
        separator: String,
    },
}

/// The format, compression, hashes and size limit of a shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardConfig {
    /// The columns and format.
    pub layout: Layout,
    /// The compression of the stored file.
    pub compression: Option<Compression>,
    /// The hashes of every file. Writers sort them; a file may list one more than once.
    pub hashes: Vec<HashAlgo>,
    /// The most raw bytes of a shard, as [`Self::cutter`] counts them; `None` for no limit.
    pub size_limit: Option<u64>,
    /// The configs of the two files of the shard, if it has late columns.
    pub late: Option<Arc<LateConfigs>>,
}

/// The configs of the two files of a shard with late columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LateConfigs {
    /// The config of the file of the dataset.
    pub base: Arc<ShardConfig>,
    /// The config of the file with the late columns.
    pub late: Arc<ShardConfig>,
}

/// Returns the fixed separator of a format, if it has one.
pub(crate) const fn fixed_separator(format: Format) -> Option<&'static str> {
    match format {
        Format::Csv => Some(","),
        Format::Tsv => Some("\t"),
        Format::Mds | Format::Json | Format::Xsv => None,
    }
}

/// Returns whether a JSON parser skips all of `newline`, so that it may follow the object on its line.
pub(crate) fn is_json_blank(newline: &str) -> bool {
    newline
        .bytes()
        .all(|b| matches!(b, b' ' | b'\t' | b'\r' | b'\n'))
}

pub(crate) fn duplicate<'a>(sorted: impl Iterator<Item = &'a str>) -> Result<(), MdsError> {
    let mut previous = None;
    for name in sorted {
        if previous == Some(name) {
            let reason = format!("there are two columns `{}`", escape(name));
            return Err(MdsProblem::DuplicateColumn.because(reason));
        }
        previous = Some(name);
    }
    match previous {
        Some(_) => Ok(()),
        None => Err(MdsProblem::NoColumns.because("there are no columns")),
    }
}

fn not_newline(format: Format, newline: &str) -> String {
    format!("`{}` cannot be the newline of {format}", escape(newline))
}

fn sort<E>(columns: &mut [Column<E>]) -> Result<(), MdsError> {
    columns.sort_by(|a, b| a.name.cmp(&b.name));
    duplicate(columns.iter().map(|column| column.name.as_str()))
}

impl ShardConfig {
    fn new(
        layout: Layout,
        compression: Option<Compression>,
        mut hashes: Vec<HashAlgo>,
        size_limit: Option<u64>,
    ) -> Result<Self, MdsError> {
        hashes.sort_unstable();
        hashes.dedup();
        let size_limit = size_limit.filter(|limit| *limit > 0);
        match size_limit {
            Some(size_limit) if u32::try_from(size_limit).is_err() => Err(MdsProblem::SizeLimit
                .because(format!(
                    "the size limit of a shard is {size_limit} bytes; it has to be below 4294967296"
                ))),
            _ => Ok(Self {
                layout,
                compression,
                hashes,
                size_limit,
                late: None,
            }),
        }
    }

    /// Creates the configuration of MDS shards. Sorts columns and hashes, drops repeated hashes, and treats a size
    /// limit of 0 as none.
    ///
    /// # Errors
    ///
    /// [`MdsError`] (`InvalidInput`): two columns with the same name, no columns, or a size limit of 2³² bytes or
    /// more.
    pub fn new_mds(
        mut columns: Vec<Column>,
        compression: Option<Compression>,
        hashes: Vec<HashAlgo>,
        size_limit: Option<u64>,
    ) -> Result<Self, MdsError> {
        sort(&mut columns)?;
        Self::new(Layout::Mds { columns }, compression, hashes, size_limit)
    }

    /// Creates the configuration of JSON shards, normalised as by [`new_mds`](Self::new_mds).
    ///
    /// # Errors
    ///
    /// As for [`new_mds`](Self::new_mds), and for a newline that is empty or would break the JSON before it.
    pub fn new_json(
        mut columns: Vec<TextColumn>,
        newline: &str,
        compression: Option<Compression>,
        hashes: Vec<HashAlgo>,
        size_limit: Option<u64>,
    ) -> Result<Self, MdsError> {
        sort(&mut columns)?;
        if newline.is_empty() || !is_json_blank(newline) {
            return Err(MdsProblem::JsonNewline.because(not_newline(Format::Json, newline)));
        }
        let layout = Layout::Json {
            columns,
            newline: newline.to_owned(),
        };
        Self::new(layout, compression, hashes, size_limit)
    }

    /// Creates the configuration of CSV, TSV or XSV shards, normalised as by [`new_mds`](Self::new_mds). For CSV and
    /// TSV, the separator is optional and must be the fixed one.
    ///
    /// # Errors
    ///
    /// As for [`new_mds`](Self::new_mds), and for a separator or newline that is empty, contains the other, or occurs
    /// in a column name.
    pub fn new_xsv(
        format: Format,
        mut columns: Vec<TextColumn>,
        newline: &str,
        separator: Option<&str>,
        compression: Option<Compression>,
        hashes: Vec<HashAlgo>,
        size_limit: Option<u64>,
    ) -> Result<Self, MdsError> {
        if !matches!(format, Format::Csv | Format::Tsv | Format::Xsv) {
            return Err(
                MdsProblem::Separator.because(format!("{format} has no separator between values"))
            );
        }
        sort(&mut columns)?;
        let fixed = fixed_separator(format);
        let given = separator.or(fixed).unwrap_or("");
        if given.is_empty() || fixed.is_some_and(|fixed| fixed != given) {
            let reason = format!("`{}` cannot be the separator of {format}", escape(given));
            return Err(MdsProblem::Separator.because(reason));
        }
        if newline.is_empty() || newline.contains(given) || given.contains(newline) {
            return Err(MdsProblem::Newline.because(not_newline(format, newline)));
        }
        for column in &columns {
            for (what, text) in [("separator", given), ("newline", newline)] {
                if column.name.contains(text) {
                    let name = escape(&column.name);
                    let reason = format!("the name of column `{name}` contains the {what}");
                    return Err(MdsProblem::ColumnName.because(reason));
                }
            }
        }
        let layout = Layout::Xsv {
            format,
            columns,
            newline: newline.to_owned(),
            separator: given.to_owned(),
        };
        Self::new(layout, compression, hashes, size_limit)
    }

    /// Returns the format of the shard.
    #[must_use]
    pub const fn format(&self) -> Format {
        match &self.layout {
            Layout::Mds { .. } => Format::Mds,
            Layout::Json { .. } => Format::Json,
            Layout::Xsv { format, .. } => *format,
        }
    }

    /// Iterates over the names of the columns, in the order of the layout.
    pub fn column_names(&self) -> impl Iterator<Item = &str> {
        let (mds, text): (&[Column], &[TextColumn]) = match &self.layout {
            Layout::Mds { columns } => (columns, &[]),
            Layout::Json { columns, .. } | Layout::Xsv { columns, .. } => (&[], columns),
        };
        let mds = mds.iter().map(|column| column.name.as_str());
        mds.chain(text.iter().map(|column| column.name.as_str()))
    }

    /// Returns the columns of an MDS shard; `None` for other formats.
    #[must_use]
    pub const fn mds_columns(&self) -> Option<&Vec<Column>> {
        match &self.layout {
            Layout::Mds { columns } => Some(columns),
            Layout::Json { .. } | Layout::Xsv { .. } => None,
        }
    }

    /// Returns the number of bytes before the first value of an MDS sample: four for each column of variable length.
    #[must_use]
    pub fn head_bytes(&self) -> usize {
        let columns = self.mds_columns().map_or(&[][..], Vec::as_slice).iter();
        4 * columns
            .filter(|column| column.encoding.fixed_size().is_none())
            .count()
    }

    /// Returns the columns of a shard of any format but MDS; `None` for MDS.
    #[must_use]
    pub const fn text_columns(&self) -> Option<&Vec<TextColumn>> {
        match &self.layout {
            Layout::Mds { .. } => None,
            Layout::Json { columns, .. } | Layout::Xsv { columns, .. } => Some(columns),
        }
    }

    /// Returns the text that ends a sample; empty for MDS.
    #[must_use]
    pub fn newline(&self) -> &str {
        match &self.layout {
            Layout::Mds { .. } => "",
            Layout::Json { newline, .. } | Layout::Xsv { newline, .. } => newline,
        }
    }

    /// Returns the header line of an XSV, CSV or TSV shard, including its newline; empty for other formats.
    #[must_use]
    pub fn xsv_header(&self) -> Vec<u8> {
        let Layout::Xsv {
            columns,
            newline,
            separator,
            ..
        } = &self.layout
        else {
            return Vec::new();
        };
        let names: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
        let mut line = names.join(separator).into_bytes();
        line.extend_from_slice(newline.as_bytes());
        line
    }

    /// Returns the JSON text that is stored in a shard: keys sorted, ASCII only.
    #[must_use]
    pub fn to_json(&self) -> String {
        let mut out = Vec::new();
        let mut object = ObjectWriter::new(&mut out);
        self.write_columns(&mut object);
        self.write_storage(&mut object);
        self.write_separator(&mut object);
        self.write_limits(&mut object);
        object.finish();
        into_ascii(out)
    }

    // The writing is split into the four groups below, because an index entry has keys of its own between them.

    /// Writes `column_encodings` … `columns`.
    pub(crate) fn write_columns(&self, object: &mut ObjectWriter<'_>) {
        match &self.layout {
            Layout::Mds { columns } => {
                object.list("column_encodings", columns, |out, column| {
                    write_display(&column.encoding, out)
                });
                object.list("column_names", columns, |out, column| {
                    write_json_string(&column.name, out)
                });
                object.list("column_sizes", columns, |out, column| {
                    match column.encoding.fixed_size() {
                        Some(size) => write_number(size, out),
                        None => out.extend_from_slice(b"null"),
                    }
                });
            }
            Layout::Json { columns, .. } => {
                object.key("columns");
                let mut inner = ObjectWriter::new(object.out);
                for column in columns {
                    inner.key(&column.name);
                    write_json_string(column.encoding.name(), inner.out);
                }
                inner.finish();
            }
            Layout::Xsv { columns, .. } => {
                object.list("column_encodings", columns, |out, column| {
                    write_json_string(column.encoding.name(), out);
                });
                object.list("column_names", columns, |out, column| {
                    write_json_string(&column.name, out)
                });
            }
        }
    }

    /// Writes `compression` … `newline`.
    pub(crate) fn write_storage(&self, object: &mut ObjectWriter<'_>) {
        object.key("compression");
        match &self.compression {
            Some(compression) => write_display(compression, object.out),
            None => object.out.extend_from_slice(b"null"),
        }
        object.key("format");
        write_json_string(self.format().name(), object.out);
        object.list("hashes", &self.hashes, |out, algo| {
            write_json_string(algo.name(), out)
        });
        if let Layout::Json { newline, .. } | Layout::Xsv { newline, .. } = &self.layout {
            object.key("newline");
            write_json_string(newline, object.out);
        }
    }

    /// Writes `separator`, unless the format has a fixed one.
    pub(crate) fn write_separator(&self, object: &mut ObjectWriter<'_>) {
        if let Layout::Xsv {
            format: Format::Xsv,
            separator,
            ..
        } = &self.layout
        {
            object.key("separator");
            write_json_string(separator, object.out);
        }
    }

    /// Writes `size_limit` and `version`.
    pub(crate) fn write_limits(&self, object: &mut ObjectWriter<'_>) {
        object.key("size_limit");
        match self.size_limit {
            Some(limit) => write_number(limit, object.out),
            None => object.out.extend_from_slice(b"null"),
        }
        object.key("version");
        object.out.push(b'2');
    }
}

/// Appends `value` in decimal.
pub(crate) fn write_number(value: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(value.to_string().as_bytes());
}

fn write_display(value: &impl fmt::Display, out: &mut Vec<u8>) {
    write_json_string(&value.to_string(), out);
}

/// Converts the output of [`ObjectWriter`] and [`write_json_string`] to a string.
pub(crate) fn into_ascii(out: Vec<u8>) -> String {
    // INVARIANT: both write only ASCII, so nothing is ever replaced.
    String::from_utf8(out)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

/// Writes one JSON object as Python's `json.dumps` does. The caller sorts the keys.
pub(crate) struct ObjectWriter<'a> {
    pub(crate) out: &'a mut Vec<u8>,
    empty: bool,
}

impl<'a> ObjectWriter<'a> {
    pub(crate) fn new(out: &'a mut Vec<u8>) -> Self {
        out.push(b'{');
        Self { out, empty: true }
    }

    /// Starts a member. The caller then writes its value to `out`.
    pub(crate) fn key(&mut self, key: &str) {
        if !self.empty {
            self.out.extend_from_slice(b", ");
        }
        self.empty = false;
        write_json_string(key, self.out);
        self.out.extend_from_slice(b": ");
    }

    fn list<T>(&mut self, key: &str, items: &[T], mut write: impl FnMut(&mut Vec<u8>, &T)) {
        self.key(key);
        self.out.push(b'[');
        for (index, item) in items.iter().enumerate() {
            if index > 0 {
                self.out.extend_from_slice(b", ");
            }
            write(self.out, item);
        }
        self.out.push(b']');
    }

    pub(crate) fn finish(self) {
        self.out.push(b'}');
    }
}

#[cfg(test)]
mod tests {
    use shardmill_core::Diagnostic as _;

    use super::*;

    fn column(name: &str, encoding: &str) -> Column {
        Column {
            name: name.to_owned(),
            encoding: encoding.parse().unwrap(),
        }
    }

    fn text(names: &[&str]) -> Vec<TextColumn> {
        let column = |name: &&str| TextColumn {
            name: (*name).to_owned(),
            encoding: TextEncoding::Str,
        };
        names.iter().map(column).collect()
    }

    #[test]
    fn config_of_the_specification_example_is_reproduced() {
        let hashes = vec![HashAlgo::Xxh64, HashAlgo::Sha1, HashAlgo::Xxh64];
        let columns = vec![column("b", "str"), column("a", "int32")];
        let config = ShardConfig::new_mds(columns, None, hashes, Some(1 << 26)).unwrap();
        let json = concat!(
            r#"{"column_encodings": ["int32", "str"], "column_names": ["a", "b"], "column_sizes": [4, null], "#,
            r#""compression": null, "format": "mds", "hashes": ["sha1", "xxh64"], "size_limit": 67108864, "version": 2}"#
        );
        assert_eq!((config.to_json().as_str(), json.len()), (json, 198));
        assert_eq!(config.column_names().collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(config.xsv_header(), b"");
    }

    #[test]
    fn columns_are_sorted_by_code_point() {
        let names = ["\u{10000}", "\u{e000}", "é", "a", "Z", "_", "aa"];
        let columns = names.iter().map(|name| column(name, "str")).collect();
        let config = ShardConfig::new_mds(columns, None, Vec::new(), None).unwrap();
        // In UTF-16 order, the last two would be swapped.
        assert_eq!(
            config.column_names().collect::<Vec<_>>(),
            ["Z", "_", "a", "aa", "é", "\u{e000}", "\u{10000}"]
        );
    }

    #[test]
    fn text_format_config_has_format_specific_fields() {
        let compression = Some("gz:1".parse().unwrap());
        let xsv = |format, separator| {
            ShardConfig::new_xsv(
                format,
                text(&["é", "a"]),
                "\r\n",
                separator,
                compression,
                Vec::new(),
                Some(0),
            )
        };
        let config = xsv(Format::Xsv, Some("<\t>")).unwrap();
        assert_eq!(
            config.to_json(),
            concat!(
                r#"{"column_encodings": ["str", "str"], "column_names": ["a", "\u00e9"], "compression": "gz:1", "#,
                r#""format": "xsv", "hashes": [], "newline": "\r\n", "separator": "<\t>", "size_limit": null, "version": 2}"#
            )
        );
        assert_eq!(config.xsv_header(), "a<\t>é\r\n".as_bytes());
        let csv = xsv(Format::Csv, None).unwrap();
        assert_eq!(
            (csv.to_json().contains("separator"), csv.xsv_header()),
            (false, "a,é\r\n".into())
        );
        assert_eq!(
            xsv(Format::Tsv, Some("\t")).unwrap().xsv_header(),
            "a\té\r\n".as_bytes()
        );

        let config =
            ShardConfig::new_json(text(&["b", "a"]), "\n", None, Vec::new(), None).unwrap();
        assert_eq!(
            config.to_json(),
            concat!(
                r#"{"columns": {"a": "str", "b": "str"}, "compression": null, "format": "json", "hashes": [], "#,
                r#""newline": "\n", "size_limit": null, "version": 2}"#
            )
        );
    }

    #[test]
    fn invalid_shard_configs_are_rejected() {
        let mds = |names: &[&str], limit| {
            let columns = names.iter().map(|name| column(name, "int")).collect();
            ShardConfig::new_mds(columns, None, Vec::new(), limit).map_err(|error| error.id())
        };
        assert_eq!(mds(&["a", "b", "a"], None), Err("config-duplicate-column"));
        assert_eq!(mds(&[], None), Err("config-no-columns"));
        assert_eq!(mds(&["a"], Some(1 << 32)), Err("config-size-limit"));
        assert!(mds(&["a"], Some((1 << 32) - 1)).is_ok());

        let json = |newline| {
            ShardConfig::new_json(text(&["a"]), newline, None, Vec::new(), None)
                .map_err(|error| error.id())
        };
        assert_eq!(json(""), Err("config-newline"));
        assert_eq!(json("x"), Err("config-newline"));

        let xsv = |format, names: &[&str], newline, separator| {
            ShardConfig::new_xsv(
                format,
                text(names),
                newline,
                separator,
                None,
                Vec::new(),
                None,
            )
            .map_err(|error| error.id())
        };
        assert_eq!(
            xsv(Format::Xsv, &["a"], "\n", None),
            Err("config-separator")
        );
        assert_eq!(
            xsv(Format::Xsv, &["a"], "\n", Some("")),
            Err("config-separator")
        );
        assert_eq!(
            xsv(Format::Csv, &["a"], "\n", Some(";")),
            Err("config-separator")
        );
        assert_eq!(
            xsv(Format::Mds, &["a"], "\n", Some(";")),
            Err("config-separator")
        );
        assert_eq!(xsv(Format::Csv, &["a"], "", None), Err("config-newline"));
        assert_eq!(
            xsv(Format::Xsv, &["a"], "\n", Some("\r\n")),
            Err("config-newline")
        );
        assert_eq!(
            xsv(Format::Csv, &["a,b"], "\n", None),
            Err("config-column-name")
        );
        assert_eq!(
            xsv(Format::Tsv, &["a\nb"], "\n", None),
            Err("config-column-name")
        );
    }
}
