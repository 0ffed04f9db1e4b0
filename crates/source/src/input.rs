//! Reads text files: opens the listed version, decompresses it if needed, and checks at the end that it has not
//! changed.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use shardmill_core::{Error, Limits};

use crate::SourceProblem;
use crate::files::InputFile;
use shardmill_core::catch_panic::one_line;

/// How a text file is compressed, detected from its first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Packing {
    None,
    Gzip,
    Zstd,
}

/// In files up to this size, all rows take part in type inference.
pub(crate) const WHOLE_BYTES: u64 = 64 << 20;

const BUFFER: usize = 256 << 10;

/// A text file being read.
pub(crate) struct Text {
    pub input: InputFile,
    reader: BufReader<Box<dyn Read + Send>>,
    file: Arc<File>,
    packing: Packing,
}

/// Reads a range of a file by position.
pub(crate) struct Range {
    file: Arc<File>,
    next: u64,
    end: u64,
}

impl Range {
    pub(crate) const fn new(file: Arc<File>, start: u64, end: u64) -> Self {
        Self {
            file,
            next: start,
            end,
        }
    }
}

impl Read for Range {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.end.saturating_sub(self.next)).unwrap_or(usize::MAX);
        let max = into.len().min(left);
        let Some(into) = into.get_mut(..max) else {
            return Ok(0);
        };
        let count = self.file.read_at(into, self.next)?;
        self.next += count as u64;
        Ok(count)
    }
}

impl Text {
    /// Opens a whole file.
    pub(crate) fn open(input: &InputFile) -> Result<Self, Error> {
        Self::open_range(input, 0, input.file_version.bytes)
    }

    /// Opens a range of a file. If the file is compressed, the range must be the whole file.
    pub(crate) fn open_range(input: &InputFile, start: u64, end: u64) -> Result<Self, Error> {
        let file = Arc::new(input.open()?);
        let packing = match start {
            0 => packing(&file).map_err(|source| input.read_error(source))?,
            _ => Packing::None,
        };
        Self::unpack(input, file, packing, start..end)
    }

    /// Reads a range of an open file with this compression.
    pub(crate) fn unpack(
        input: &InputFile,
        file: Arc<File>,
        packing: Packing,
        range: std::ops::Range<u64>,
    ) -> Result<Self, Error> {
        let range = Range::new(Arc::clone(&file), range.start, range.end);
        let plain: Box<dyn Read + Send> = match packing {
            Packing::None => Box::new(range),
            Packing::Gzip => {
                let packed = BufReader::with_capacity(BUFFER, range);
                Box::new(flate2::bufread::MultiGzDecoder::new(packed))
            }
            Packing::Zstd => {
                let plain = zstd::stream::read::Decoder::new(range);
                Box::new(plain.map_err(|source| input.read_error(source))?)
            }
        };
        Ok(Self {
            input: input.clone(),
            reader: BufReader::with_capacity(BUFFER, plain),
            file,
            packing,
        })
    }

    /// Returns the buffered bytes; empty at the end.
    pub(crate) fn fill(&mut self) -> Result<&[u8], Error> {
        let (input, file) = (&self.input, &self.file);
        match self.reader.fill_buf() {
            Ok(bytes) => {
                if bytes.is_empty() {
                    input.check(file)?;
                }
                Ok(bytes)
            }
            Err(_) if input.check(file).is_err() => input.check(file).map(|()| &[][..]),
            Err(error) if self.packing != Packing::None => Err(SourceProblem::Compression.at(
                &input.shown,
                format!("does not decompress: {}", one_line(&error.to_string())),
            )),
            Err(error) => Err(input.read_error(error)),
        }
    }

    pub(crate) fn consume(&mut self, bytes: usize) {
        self.reader.consume(bytes);
    }
}

/// Detects how a file is compressed.
pub(crate) fn packing(file: &File) -> io::Result<Packing> {
    let mut magic = [0; 4];
    let mut have = 0;
    while let Some(rest) = magic.get_mut(have..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, have as u64) {
            Ok(0) => break,
            Ok(count) => have += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(match magic {
        [0x1f, 0x8b, ..] => Packing::Gzip,
        [0x28, 0xb5, 0x2f, 0xfd] => Packing::Zstd,
        _ => Packing::None,
    })
}

/// Reads complete lines of a text file.
pub(crate) struct Lines {
    pub text: Text,
    max: u64,
}

impl Lines {
    pub(crate) const fn new(text: Text, limits: &Limits) -> Self {
        Self {
            text,
            max: limits.sample_bytes,
        }
    }

    /// Replaces `into` with complete lines of at least `wanted` bytes in total, or with the remaining lines. `into` is
    /// empty at the end.
    pub(crate) fn read(&mut self, wanted: usize, into: &mut Vec<u8>) -> Result<(), Error> {
        into.clear();
        let mut line_start = 0;
        loop {
            let bytes = self.text.fill()?;
            if bytes.is_empty() {
                return Ok(());
            }
            // Stop after the line that crosses `wanted`; otherwise take all buffered bytes.
            let missing = wanted
                .saturating_sub(into.len())
                .saturating_sub(1)
                .min(bytes.len());
            let end = bytes
                .get(missing..)
                .and_then(|rest| rest.iter().position(|byte| *byte == b'\n'))
                .map(|at| missing + at + 1);
            let taken = bytes.get(..end.unwrap_or(bytes.len())).unwrap_or_default();
            if let Some(at) = taken.iter().rposition(|byte| *byte == b'\n') {
                line_start = into.len() + at + 1;
            }
            into.extend_from_slice(taken);
            let count = taken.len();
            self.text.consume(count);
            if end.is_some() {
                return Ok(());
            }
            let length = (into.len() - line_start) as u64;
            let input = &self.text.input;
            input.check_limit("sample-bytes", length, self.max)?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::Origin;
    use crate::walk::FileVersion;
    use std::io::Write as _;

    fn input(directory: &tempfile::TempDir, bytes: &[u8]) -> InputFile {
        let path = directory.path().join("x");
        std::fs::write(&path, bytes).unwrap();
        InputFile {
            file_version: FileVersion::of(&std::fs::metadata(&path).unwrap()),
            origin: Origin::Local(path),
            shown: "x".to_owned(),
            relative: "x".to_owned(),
        }
    }

    fn blocks(input: &InputFile, wanted: usize, limits: &Limits) -> Result<Vec<String>, Error> {
        let mut lines = Lines::new(Text::open(input)?, limits);
        let mut blocks = Vec::new();
        let mut block = Vec::new();
        loop {
            lines.read(wanted, &mut block)?;
            if block.is_empty() {
                return Ok(blocks);
            }
            blocks.push(String::from_utf8(block.clone()).unwrap());
        }
    }

    #[test]
    fn blocks_end_at_line_boundaries() {
        let directory = tempfile::tempdir().unwrap();
        let input = input(&directory, b"a\nbb\nccc\n\nd");
        let limits = Limits::default();
        assert_eq!(
            blocks(&input, 1, &limits).unwrap(),
            ["a\n", "bb\n", "ccc\n", "\n", "d"]
        );
        assert_eq!(
            blocks(&input, 4, &limits).unwrap(),
            ["a\nbb\n", "ccc\n", "\nd"]
        );
        assert_eq!(blocks(&input, 100, &limits).unwrap(), ["a\nbb\nccc\n\nd"]);
    }

    #[test]
    fn compressed_text_is_detected_by_magic_bytes() {
        let directory = tempfile::tempdir().unwrap();
        let text = "line\n".repeat(100_000);
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(text.as_bytes()).unwrap();
        let gzip = gzip.finish().unwrap();
        let zstd = zstd::stream::encode_all(text.as_bytes(), 1).unwrap();
        for packed in [gzip, zstd] {
            let whole = input(&directory, &packed);
            assert_eq!(
                blocks(&whole, usize::MAX, &Limits::default())
                    .unwrap()
                    .concat(),
                text
            );
            let cut = input(&directory, &packed[..packed.len() / 2]);
            assert_eq!(
                blocks(&cut, 1000, &Limits::default()).unwrap_err().id(),
                "source-compression"
            );
        }
    }

    #[test]
    fn too_long_line_or_changed_file_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let long = input(&directory, &[b'x'; 1 << 20]);
        let mut limits = Limits::default();
        limits.sample_bytes = 1000;
        assert_eq!(
            blocks(&long, 10, &limits).unwrap_err().id(),
            "limit-sample-bytes"
        );
        let input = input(&directory, b"a\nb\n");
        let mut lines = Lines::new(Text::open(&input).unwrap(), &limits);
        let mut block = Vec::new();
        lines.read(1, &mut block).unwrap();
        std::fs::write(directory.path().join("x"), "a\nb\nc\n").unwrap();
        lines.read(1, &mut block).unwrap();
        assert_eq!(
            lines.read(1, &mut block).unwrap_err().id(),
            "source-changed"
        );
    }
}
