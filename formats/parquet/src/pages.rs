//! Checks pages: the claims of a page header are compared with the available bytes before the page is decompressed or
//! decoded.

use std::collections::VecDeque;
use std::io::{self, Read as _};
use std::sync::{Arc, Mutex};

use parquet::arrow::arrow_reader::RowGroups;
use parquet::basic::{Compression, Encoding, Type as PhysicalType};
use parquet::column::page::{Page, PageIterator, PageMetadata, PageReader};
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::{ParquetMetaData, RowGroupMetaData};
use parquet::file::page_index::offset_index::PageLocation;
use parquet::file::reader::ChunkReader;
use parquet::file::serialized_reader::SerializedPageReader;

use shardmill_core::catch_panic::one_line;
use shardmill_core::{LimitExceeded, Limits, lock};

use crate::footer::chunk_range;
use crate::levels::count_rows;
use crate::parts::{GroupPages, page_range};
use crate::thrift::{END, PageHeader, PageKind, delta_extent, page_header};

/// Holds the first error that a page reader found in a row group. The Arrow reader reduces errors to text, so the error
/// is passed around it.
pub type ErrorSlot = Arc<Mutex<Option<PageError>>>;

/// A page that is damaged or too large.
#[derive(Debug)]
pub struct PageError {
    /// The path of its column.
    pub column: String,
    /// What is wrong with it.
    pub problem: PageProblem,
}

/// What is wrong with a page.
#[derive(Debug)]
pub enum PageProblem {
    /// It is damaged.
    Damaged(String),
    /// It is larger than a limit.
    Large(LimitExceeded),
}

/// One row group of an open file, as the Arrow reader expects it.
#[derive(Debug)]
pub struct OneGroup<R> {
    /// The file.
    pub file: Arc<R>,
    /// Its footer.
    pub metadata: Arc<ParquetMetaData>,
    /// The number of the row group.
    pub group: usize,
    /// Where its pages are, if some of its rows are to be skipped without their pages.
    pub pages: Option<Arc<GroupPages>>,
    /// The most bytes of a page, before and after decompression.
    pub page_bytes: u64,
    /// Where the first error is kept.
    pub errors: ErrorSlot,
}

impl<R: ChunkReader + 'static> OneGroup<R> {
    fn row_group(&self) -> Option<&RowGroupMetaData> {
        self.metadata.row_groups().get(self.group)
    }

    /// Returns the pages of one leaf column.
    pub fn pages(&self, leaf: usize) -> Result<CheckedPages<R>> {
        let group = self.row_group().ok_or_else(|| missing("row group"))?;
        let chunk = group.columns().get(leaf).ok_or_else(|| missing("column"))?;
        let (offset, remaining) = chunk_range(chunk).ok_or_else(|| missing("column chunk"))?;
        let rows = usize::try_from(group.num_rows()).map_err(|_| missing("row count"))?;
        let own = self.pages.as_ref();
        let own = own.and_then(|pages| Some((pages.of_leaf(leaf)?, pages.rows())));
        let locations = own.map(|(pages, _)| pages.to_vec());
        Ok(CheckedPages {
            inner: SerializedPageReader::new(Arc::clone(&self.file), chunk, rows, locations)?,
            listed: own.map(|(pages, rows)| listed_pages(pages, offset, rows)),
            file: Arc::clone(&self.file),
            column: chunk.column_path().string(),
            codec: chunk.compression(),
            is_int96: chunk.column_type() == PhysicalType::INT96,
            levels: (
                chunk.column_descr().max_rep_level(),
                chunk.column_descr().max_def_level(),
            ),
            offset,
            remaining,
            page_bytes: self.page_bytes,
            values_left: u64::try_from(chunk.num_values()).unwrap_or(0),
            header: None,
            errors: Arc::clone(&self.errors),
        })
    }
}

fn missing(what: &str) -> ParquetError {
    ParquetError::General(format!("no such {what}"))
}

impl<R: ChunkReader + 'static> RowGroups for OneGroup<R> {
    fn num_rows(&self) -> usize {
        self.row_group()
            .and_then(|group| usize::try_from(group.num_rows()).ok())
            .unwrap_or(0)
    }

    fn column_chunks(&self, leaf: usize) -> Result<Box<dyn PageIterator>> {
        Ok(Box::new(OneChunk(Some(self.pages(leaf)?))))
    }

    fn row_groups(&self) -> Box<dyn Iterator<Item = &RowGroupMetaData> + '_> {
        Box::new(self.row_group().into_iter())
    }

    fn metadata(&self) -> &ParquetMetaData {
        &self.metadata
    }
}

struct OneChunk<R: ChunkReader>(Option<CheckedPages<R>>);

impl<R: ChunkReader + 'static> Iterator for OneChunk<R> {
    type Item = Result<Box<dyn PageReader>>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0
            .take()
            .map(|pages| Ok(Box::new(pages) as Box<dyn PageReader>))
    }
}

impl<R: ChunkReader + 'static> PageIterator for OneChunk<R> {}

/// A page as an offset index lists it.
struct ListedPage {
    offset: u64,
    bytes: u64,
    /// The number of its rows; `None` for a dictionary.
    rows: Option<u64>,
}

/// Returns the pages of a column chunk that begins at `start`, with its dictionary.
fn listed_pages(pages: &[PageLocation], start: u64, rows: u64) -> VecDeque<ListedPage> {
    let row = |page: &PageLocation| u64::try_from(page.first_row_index).unwrap_or(0);
    let ends = pages.iter().skip(1).map(row).chain([rows]);
    let data = pages.iter().zip(ends).map(|(page, end)| {
        let range = page_range(page);
        ListedPage {
            offset: range.start,
            bytes: range.end - range.start,
            rows: Some(end.saturating_sub(row(page))),
        }
    });
    let before = pages.first().map_or(start, |page| page_range(page).start);
    // The `parquet` crate takes what lies before the first page for the dictionary, too.
    let dictionary = (before > start).then(|| ListedPage {
        offset: start,
        bytes: before - start,
        rows: None,
    });
    dictionary.into_iter().chain(data).collect()
}

/// Iterates over the pages of a column chunk and checks each twice: its header before the `parquet` crate acts on it,
/// and its content before it is decoded.
pub struct CheckedPages<R: ChunkReader> {
    inner: SerializedPageReader<R>,
    /// The pages that are left, if an offset index lists them. Otherwise each page follows the one before.
    listed: Option<VecDeque<ListedPage>>,
    file: Arc<R>,
    column: String,
    codec: Compression,
    /// Whether its values are timestamps of 96 bits.
    is_int96: bool,
    /// The maximum repetition and definition levels.
    levels: (i16, i16),
    /// The offset of the next page header, in step with `inner`.
    offset: u64,
    remaining: u64,
    page_bytes: u64,
    values_left: u64,
    /// The header at `offset`, after it was checked.
    header: Option<PageHeader>,
    errors: ErrorSlot,
}

/// How many bytes are read for a page header at first. Nearly all headers fit.
const HEADER_GUESS: u64 = 256;
/// The most bytes of a header. Its statistics include a smallest and a largest value.
const HEADER_BYTES: u64 = 16 << 20;

impl<R: ChunkReader> CheckedPages<R> {
    /// Keeps an error for the reader of the row group, and returns its text.
    fn keep(&self, problem: PageProblem, text: String) -> ParquetError {
        let column = self.column.clone();
        lock(&self.errors).get_or_insert(PageError { column, problem });
        ParquetError::General(text)
    }

    fn corrupt(&self, reason: impl Into<String>) -> ParquetError {
        let reason = reason.into();
        self.keep(PageProblem::Damaged(reason.clone()), reason)
    }

    /// Records the column in which the `parquet` crate found an error.
    fn note(&self, error: ParquetError) -> ParquetError {
        let reason = one_line(&error.to_string());
        self.corrupt(reason);
        error
    }

    /// Reads and checks the header of the next page; `None` at the end of the chunk.
    fn check_next(&mut self) -> Result<Option<PageHeader>> {
        if let Some(listed) = &self.listed {
            let next = listed.front();
            (self.offset, self.remaining) = next.map_or((0, 0), |page| (page.offset, page.bytes));
        }
        if self.header.is_some() || self.remaining == 0 {
            return Ok(self.header);
        }
        let header = self.read_header()?;
        let room = self.remaining.saturating_sub(header.length as u64);
        if header.length as u64 > self.remaining || header.compressed > room {
            return Err(self.corrupt(format!(
                "a page claims {} bytes where {room} are left",
                header.compressed
            )));
        }
        if let Err(limit) =
            Limits::check("parquet-page-bytes", header.uncompressed, self.page_bytes)
        {
            return Err(self.keep(PageProblem::Large(limit), "a page is too large".to_owned()));
        }
        let max = max_expanded(self.codec, header.compressed);
        if header.uncompressed > max {
            return Err(self.corrupt(format!(
                "a page claims to expand from {} to {} bytes, more than {} can",
                header.compressed,
                header.uncompressed,
                codec_name(self.codec)
            )));
        }
        match header.kind {
            PageKind::Data | PageKind::DataV2 => {
                self.values_left = self
                    .values_left
                    .checked_sub(header.values)
                    .ok_or_else(|| self.corrupt("pages claim more values than the column chunk"))?;
            }
            PageKind::Dictionary if header.values > header.uncompressed.saturating_mul(8) => {
                return Err(self.corrupt("a dictionary claims more values than it has bits"));
            }
            PageKind::Dictionary | PageKind::Index => {}
        }
        self.check_listed(&header)?;
        self.check_expansion(&header)?;
        self.header = Some(header);
        Ok(self.header)
    }

    /// Checks the header of the next page, if no offset index tells what is in it. The bytes of listed pages that are skipped
    /// may not be there.
    fn check_unlisted(&mut self) -> Result<()> {
        match self.listed {
            None => self.check_next().map(|_| ()),
            Some(_) => Ok(()),
        }
    }

    /// Compares a page with the offset index. The header of a page of lists in version 1 does not tell its rows, which
    /// [`Self::check_rows`] counts.
    fn check_listed(&self, header: &PageHeader) -> Result<()> {
        let Some(page) = self.listed.as_ref().and_then(VecDeque::front) else {
            return Ok(());
        };
        let is_data = matches!(header.kind, PageKind::Data | PageKind::DataV2);
        let is_flat = self.levels.0 == 0;
        let found = is_flat.then_some(header.values).or(header.rows);
        match (page.rows, found) {
            (None, _) if header.kind == PageKind::Dictionary => Ok(()),
            (Some(rows), Some(found)) if is_data && found != rows => {
                Err(self.other_rows(rows, found))
            }
            (Some(_), _) if is_data => Ok(()),
            _ => Err(self.corrupt("the offset index names another kind of page")),
        }
    }

    /// Compares the rows of a page of lists in version 1 with those of the offset index. Levels in the deprecated encoding
    /// are not counted: writers of offset indexes do not use it.
    fn check_rows(&self, page: &Page, rows: u64) -> Result<()> {
        let Page::DataPage {
            buf,
            num_values,
            rep_level_encoding: Encoding::RLE,
            ..
        } = page
        else {
            return Ok(());
        };
        if self.levels.0 == 0 {
            return Ok(());
        }
        match count_rows(buf, self.levels.0, u64::from(*num_values)) {
            Ok(found) if found == rows => Ok(()),
            Ok(found) => Err(self.other_rows(rows, found)),
            Err(reason) => Err(self.corrupt(reason)),
        }
    }

    fn other_rows(&self, rows: u64, found: u64) -> ParquetError {
        self.corrupt(format!(
            "the offset index claims {rows} rows in a page of {found}"
        ))
    }

    fn read_header(&self) -> Result<PageHeader> {
        let mut size = HEADER_GUESS;
        loop {
            let left = self
                .remaining
                .min(self.file.len().saturating_sub(self.offset));
            let wanted = usize::try_from(size.min(left)).unwrap_or(0);
            let bytes = self.file.get_bytes(self.offset, wanted)?;
            match page_header(&bytes) {
                Ok(header) => return Ok(header),
                Err(END) if size < left && size < HEADER_BYTES => size *= 16,
                Err(END) => {
                    return Err(self.corrupt("a page header extends beyond the column chunk"));
                }
                Err(reason) => return Err(self.corrupt(reason)),
            }
        }
    }

    /// Checks that a page does not expand beyond its claimed size. The `parquet` crate lets gzip and Brotli write
    /// without a limit before it compares sizes. A page that could exceed the page limit is therefore decompressed once
    /// in advance, and the output discarded.
    fn check_expansion(&self, header: &PageHeader) -> Result<()> {
        let doubtful = match self.codec {
            Compression::GZIP(_) => header.compressed.saturating_mul(GZIP_RATIO) > self.page_bytes,
            Compression::BROTLI(_) => true,
            _ => false,
        };
        if !doubtful || header.kind == PageKind::Index {
            return Ok(());
        }
        let length = header.compressed.saturating_sub(header.levels);
        let length = usize::try_from(length).map_err(|_| missing("memory"))?;
        let start = self.offset + header.length as u64 + header.levels;
        let body = self.file.get_bytes(start, length)?;
        let max = header.uncompressed.saturating_add(1);
        let expanded = match self.codec {
            Compression::GZIP(_) => io::copy(
                &mut flate2::read::MultiGzDecoder::new(&*body).take(max),
                &mut io::sink(),
            ),
            _ => io::copy(
                &mut brotli::Decompressor::new(&*body, 4096).take(max),
                &mut io::sink(),
            ),
        };
        // The reader reports a stream that does not decompress.
        if expanded.is_ok_and(|expanded| expanded > header.uncompressed) {
            return Err(self.corrupt(format!(
                "a page expands beyond the {} bytes it claims",
                header.uncompressed
            )));
        }
        Ok(())
    }

    /// Skips the next page.
    fn advance(&mut self) -> Option<PageKind> {
        if let Some(listed) = &mut self.listed {
            listed.pop_front();
        }
        let header = self.header.take()?;
        let size = header.length as u64 + header.compressed;
        self.offset = self.offset.saturating_add(size);
        self.remaining = self.remaining.saturating_sub(size);
        Some(header.kind)
    }

    /// Checks the content of a page. DELTA encodings begin with a count of lengths, for which the decoder allocates
    /// memory. Of timestamps of 96 bits, the decoder would turn those outside the range of microseconds into others.
    fn check_content(&self, page: &Page) -> Result<()> {
        let (encoding, values) = (page.encoding(), u64::from(page.num_values()));
        let is_dictionary = matches!(page, Page::DictionaryPage { .. });
        let are_times = self.is_int96 && (is_dictionary || encoding == Encoding::PLAIN);
        let are_lengths = !is_dictionary
            && matches!(
                encoding,
                Encoding::DELTA_LENGTH_BYTE_ARRAY | Encoding::DELTA_BYTE_ARRAY
            );
        if !are_times && !are_lengths {
            return Ok(());
        }
        let data = self
            .levels_length(page)
            .and_then(|start| page.buffer().get(start..))
            .ok_or_else(|| self.corrupt("levels go beyond their page"))?;
        if are_times {
            return match unreachable_day(data) {
                None => Ok(()),
                Some(day) => Err(self.corrupt(format!(
                    "a 96-bit timestamp is on the Julian day {day}, outside the calendar"
                ))),
            };
        }
        let wrong = |reason| match reason {
            END => self.corrupt("delta lengths go beyond their page"),
            reason => self.corrupt(reason),
        };
        let (end, _) = delta_extent(data, values).map_err(wrong)?;
        if encoding == Encoding::DELTA_BYTE_ARRAY {
            delta_extent(data.get(end..).unwrap_or_default(), values).map_err(wrong)?;
        }
        Ok(())
    }

    /// Returns the bytes of the levels before the values of a page. In version 1, a length precedes each kind of level,
    /// unless it is in the deprecated encoding.
    fn levels_length(&self, page: &Page) -> Option<usize> {
        let (bytes, values, encodings) = match page {
            Page::DictionaryPage { .. } => return Some(0),
            Page::DataPageV2 {
                def_levels_byte_len,
                rep_levels_byte_len,
                ..
            } => {
                let length = u64::from(*def_levels_byte_len) + u64::from(*rep_levels_byte_len);
                return usize::try_from(length).ok();
            }
            Page::DataPage {
                buf,
                num_values,
                rep_level_encoding,
                def_level_encoding,
                ..
            } => (buf, *num_values, [rep_level_encoding, def_level_encoding]),
        };
        let mut at = 0_usize;
        for (max, encoding) in [self.levels.0, self.levels.1].into_iter().zip(encodings) {
            if max > 0 && *encoding == Encoding::RLE {
                let length = bytes.get(at..at.checked_add(4)?)?.first_chunk::<4>()?;
                at = at
                    .checked_add(4)?
                    .checked_add(usize::try_from(u32::from_le_bytes(*length)).ok()?)?;
            } else if max > 0 {
                let bits = u64::from(16 - max.leading_zeros()) * u64::from(values);
                at = at.checked_add(usize::try_from(bits.div_ceil(8)).ok()?)?;
            }
        }
        Some(at)
    }
}

/// Returns the day of the first 96-bit timestamp that 64-bit microseconds do not reach.
fn unreachable_day(values: &[u8]) -> Option<i32> {
    const DAY_OF_EPOCH: i128 = 2_440_588;
    const DAY_MICROSECONDS: i128 = 86_400_000_000;
    let (values, _) = values.as_chunks::<12>();
    values.iter().find_map(|value| {
        let (nanoseconds, day) = value.split_first_chunk::<8>()?;
        let day = i32::from_le_bytes(*day.first_chunk()?);
        let microseconds = (i128::from(day) - DAY_OF_EPOCH) * DAY_MICROSECONDS
            + i128::from(i64::from_le_bytes(*nanoseconds) / 1000);
        i64::try_from(microseconds).is_err().then_some(day)
    })
}

/// The ratio of a page that consists of repetition only: deflate expands two bits to 258 bytes.
const GZIP_RATIO: u64 = 1032;

/// Returns the most bytes that a codec can expand this many bytes to.
const fn max_expanded(codec: Compression, compressed: u64) -> u64 {
    let ratio = match codec {
        // A copy of 3 bytes expands to 64.
        Compression::SNAPPY => 22,
        Compression::LZ4 | Compression::LZ4_RAW => 255,
        Compression::GZIP(_) => GZIP_RATIO,
        _ => return u64::MAX,
    };
    compressed.saturating_mul(ratio).saturating_add(64)
}

/// Returns the codec's name without its level.
fn codec_name(codec: Compression) -> String {
    let name = codec.to_string();
    name.split('(').next().unwrap_or_default().to_owned()
}

impl<R: ChunkReader> Iterator for CheckedPages<R> {
    type Item = Result<Page>;

    fn next(&mut self) -> Option<Self::Item> {
        self.get_next_page().transpose()
    }
}

impl<R: ChunkReader> PageReader for CheckedPages<R> {
    fn get_next_page(&mut self) -> Result<Option<Page>> {
        let mut rows = None;
        // The inner reader skips index pages as well.
        while self.check_next()?.is_some() {
            let listed = self.listed.as_ref().and_then(VecDeque::front);
            rows = listed.and_then(|page| page.rows);
            if self.advance() != Some(PageKind::Index) {
                break;
            }
        }
        let page = self
            .inner
            .get_next_page()
            .map_err(|error| self.note(error))?;
        if let Some(page) = &page {
            self.check_content(page)?;
            if let Some(rows) = rows {
                self.check_rows(page, rows)?;
            }
        }
        Ok(page)
    }

    fn peek_next_page(&mut self) -> Result<Option<PageMetadata>> {
        self.check_unlisted()?;
        self.inner
            .peek_next_page()
            .map_err(|error| self.note(error))
    }

    fn skip_next_page(&mut self) -> Result<()> {
        self.check_unlisted()?;
        self.advance();
        self.inner
            .skip_next_page()
            .map_err(|error| self.note(error))
    }

    fn at_record_boundary(&mut self) -> Result<bool> {
        self.check_unlisted()?;
        self.inner
            .at_record_boundary()
            .map_err(|error| self.note(error))
    }
}
