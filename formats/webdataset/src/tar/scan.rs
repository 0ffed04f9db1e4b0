//! Scans tar files by requesting the bytes it needs: headers, never the content of members.

use std::borrow::Cow;
use std::ops::Range;

use shardmill_core::{Limits, NameError, check_relative_path, escape};

use super::header::{BLOCK, Dialect, Header, Type, decode_name, padded};
use super::pax::{self, Records};
use crate::error::{MemberKind, WebdatasetError, WebdatasetProblem};

/// The largest number in eleven octal digits.
const OCTAL_MAX: u64 = (1 << 33) - 1;

/// The offset of the member's type in a header.
const TYPE_AT: usize = 156;

/// How many bytes at the end of a file are read at once.
const TAIL_BYTES: u64 = 64 << 10;

/// One member of a tar file. Offsets count from the start of the file.
#[derive(Clone, Debug)]
pub struct Member<'a> {
    /// The name, with replacement characters where it is not UTF-8.
    pub name: Cow<'a, str>,
    /// Whether the name is UTF-8.
    pub is_utf8: bool,
    /// Its kind.
    pub kind: MemberKind,
    /// The offset of its first header, including extension headers.
    pub begin: u64,
    /// The offset of its first header, not counting a global header before it.
    pub own_begin: u64,
    /// The offset of its content.
    pub data: u64,
    /// The bytes of its content.
    pub bytes: u64,
    /// The offset of the next member.
    pub end: u64,
    /// The dialect of its header.
    pub dialect: Dialect,
    /// Whether its size is encoded in base 256 or in a PAX record.
    pub has_large_size: bool,
    /// Its header block; the last one before the content.
    pub block: &'a [u8; BLOCK],
}

impl Member<'_> {
    /// Returns whether it is a contiguous file (type `7`), which some readers do not treat as a file.
    #[must_use]
    pub const fn is_contiguous(&self) -> bool {
        self.block[TYPE_AT] == b'7'
    }

    /// Returns the name field of its header alone, as seen by a reader that ignores prefixes and extension headers.
    #[must_use]
    pub fn short_name(&self) -> Cow<'_, str> {
        let name = self.block.split(|byte| *byte == 0).next();
        let name = name.unwrap_or_default();
        decode_name(name.get(..100).unwrap_or(name)).0
    }
}

/// The result of a step of a [`Scanner`].
#[derive(Clone, Debug)]
pub enum Step<'a> {
    /// The scanner needs this range of the file for its next step.
    Need(Range<u64>),
    /// The next member.
    Member(Member<'a>),
    /// The archive is complete. Its first zero block begins here, and only zeros follow.
    End(u64),
}

#[derive(Clone, Copy, Debug)]
enum State {
    Header,
    Extension { kind: Type, header: u64, bytes: u64 },
    Tail { end: u64 },
    Done { end: u64 },
}

/// Finds the members of a tar file of known length.
///
/// The caller provides any part of the file, and the scanner returns which range it needs next. It needs only headers
/// (512 bytes each) and the end of the file, never the content of members. The file can be mapped, arrive in sequential
/// blocks, or be a remote object that is read by ranges.
///
/// After an error its position is unchanged: the same bytes give the same error. To continue after damage, call
/// [`resume_at`](Self::resume_at).
#[derive(Clone, Debug)]
pub struct Scanner {
    length: u64,
    extension_limit: u64,
    name_limit: u64,
    position: u64,
    state: State,
    begin: Option<u64>,
    own_begin: Option<u64>,
    long_name: Option<Vec<u8>>,
    records: Option<Records>,
}

impl Scanner {
    /// Creates a scanner at the start of a file of `length` bytes.
    #[must_use]
    pub const fn new(length: u64, limits: &Limits) -> Self {
        Self {
            length,
            extension_limit: limits.tar.extension_bytes,
            name_limit: limits.tar.name_bytes,
            position: 0,
            state: State::Header,
            begin: None,
            own_begin: None,
            long_name: None,
            records: None,
        }
    }

    /// Returns the offset of the next block to read.
    #[must_use]
    pub const fn position(&self) -> u64 {
        self.position
    }

    /// Returns whether it has read no header of the next member yet.
    pub(crate) const fn is_between(&self) -> bool {
        self.own_begin.is_none()
    }

    /// Continues at the header at `position`, and drops extension headers read so far.
    pub fn resume_at(&mut self, position: u64) {
        self.position = position;
        self.state = State::Header;
        self.forget();
    }

    fn forget(&mut self) {
        self.begin = None;
        self.own_begin = None;
        self.long_name = None;
        self.records = None;
    }

    /// Returns the next member, the end, or the range of the file that is needed to find out. `window` is the part of
    /// the file that begins at `at`.
    ///
    /// # Errors
    ///
    /// [`WebdatasetError`]: `Corrupt`, or `Unsupported` for sparse files and exceeded limits.
    pub fn step<'w>(&mut self, at: u64, window: &'w [u8]) -> Result<Step<'w>, WebdatasetError> {
        loop {
            match self.state {
                State::Header => {
                    if self.position >= self.length {
                        return Err(WebdatasetError::no_end(self.position, self.length));
                    }
                    let range = self.position..self.position.saturating_add(BLOCK as u64);
                    if range.end > self.length {
                        return Err(WebdatasetError::torn_header(self.position, self.length));
                    }
                    let block = part(at, window, &range).and_then(|bytes| bytes.first_chunk());
                    let Some(block) = block else {
                        return Ok(Step::Need(range));
                    };
                    if let Some(member) = self.header(block)? {
                        return Ok(Step::Member(member));
                    }
                }
                State::Extension {
                    kind,
                    header,
                    bytes,
                } => {
                    let range = self.position..self.position.saturating_add(bytes);
                    let Some(content) = part(at, window, &range) else {
                        return Ok(Step::Need(range));
                    };
                    self.extension(kind, header, content)?;
                    self.position = self
                        .position
                        .saturating_add(padded(bytes).unwrap_or(u64::MAX));
                    self.state = State::Header;
                }
                State::Tail { end } => {
                    let left = self.length.saturating_sub(self.position);
                    if left == 0 {
                        self.state = State::Done { end };
                        continue;
                    }
                    let range = self.position..self.position.saturating_add(left.min(TAIL_BYTES));
                    let Some(zeros) = part(at, window, &range) else {
                        return Ok(Step::Need(range));
                    };
                    if let Some(index) = zeros.iter().position(|byte| *byte != 0) {
                        return Err(WebdatasetError::Trailing {
                            end,
                            offset: self.position.saturating_add(index as u64),
                        });
                    }
                    self.position = range.end;
                }
                State::Done { end } => return Ok(Step::End(end)),
            }
        }
    }

    /// Parses one block: a member, an extension header, or the end.
    fn header<'w>(
        &mut self,
        block: &'w [u8; BLOCK],
    ) -> Result<Option<Member<'w>>, WebdatasetError> {
        let offset = self.position;
        if block.iter().all(|byte| *byte == 0) {
            if self.begin.is_some() {
                return Err(extension_error(offset, "has no member after it"));
            }
            let second = offset.saturating_add(BLOCK as u64);
            if self.length < second.saturating_add(BLOCK as u64) {
                return Err(WebdatasetError::no_end(second, self.length));
            }
            self.state = State::Tail { end: offset };
            self.position = second;
            return Ok(None);
        }
        let header = Header::parse(block, offset)?;
        let data = offset.saturating_add(BLOCK as u64);
        let kind = match header.kind {
            Type::Member(kind) => kind,
            kind => {
                let limit = self.extension_limit;
                WebdatasetError::check_limit("tar-extension-bytes", header.size, limit, offset)?;
                let left = self.length.saturating_sub(data);
                if header.size > left {
                    let name = header.name().0;
                    return Err(WebdatasetError::short(offset, &name, header.size, left));
                }
                self.begin.get_or_insert(offset);
                if !matches!(kind, Type::PaxGlobal) {
                    self.own_begin.get_or_insert(offset);
                }
                self.position = data;
                self.state = State::Extension {
                    kind,
                    header: offset,
                    bytes: header.size,
                };
                return Ok(None);
            }
        };
        let member = self.member(&header, kind, offset, data)?;
        self.position = member.end;
        self.forget();
        Ok(Some(member))
    }

    fn member<'w>(
        &self,
        header: &Header<'w>,
        kind: MemberKind,
        offset: u64,
        data: u64,
    ) -> Result<Member<'w>, WebdatasetError> {
        let records = self.records.as_ref();
        let path = records.and_then(|records| records.path.as_ref());
        let long_name = match (path, &self.long_name) {
            (Some(path), Some(name)) if path != name => {
                let reason = "names a member for which another extension header has another name";
                return Err(extension_error(offset, reason));
            }
            (Some(name), _) | (None, Some(name)) => Some(name),
            (None, None) => None,
        };
        let (name, is_utf8) = match long_name {
            None => header.name(),
            Some(name) => {
                let (name, is_utf8) = decode_name(name);
                (Cow::Owned(name.into_owned()), is_utf8)
            }
        };
        let limit = self.name_limit;
        WebdatasetError::check_limit("tar-name-bytes", name.len() as u64, limit, offset)?;
        if kind == MemberKind::Sparse || records.is_some_and(|records| records.sparse) {
            return Err(kind_error(offset, &name, MemberKind::Sparse));
        }
        if header.dialect == Dialect::V7 && !header.prefix().is_empty() {
            let reason = "has a prefix in a header without magic, so that readers disagree on it";
            return Err(name_error(offset, &name, reason));
        }
        let size = self.size(header, kind, offset, &name)?;
        let end = padded(size).and_then(|size| data.checked_add(size));
        let left = self.length.saturating_sub(data);
        let end = match end {
            Some(end) if size <= left => end,
            _ => {
                return Err(WebdatasetError::short(offset, &name, size, left));
            }
        };
        Ok(Member {
            has_large_size: header.is_base256() || records.is_some_and(|one| one.size.is_some()),
            name,
            is_utf8,
            kind,
            begin: self.begin.unwrap_or(offset),
            own_begin: self.own_begin.unwrap_or(offset),
            data,
            bytes: size,
            end,
            dialect: header.dialect,
            block: header.block,
        })
    }

    /// Returns the size, after checking that header, records and kind agree on it.
    fn size(
        &self,
        header: &Header<'_>,
        kind: MemberKind,
        offset: u64,
        name: &str,
    ) -> Result<u64, WebdatasetError> {
        let error = |reason: String| {
            let reason = format!("has the size {} in its header, {reason}", header.size);
            WebdatasetProblem::MemberSize.of_member(offset, name, &reason)
        };
        let recorded = self.records.as_ref().and_then(|records| records.size);
        let size = match recorded {
            None => header.size,
            Some(size) if size == header.size || size > OCTAL_MAX => size,
            Some(size) => return Err(error(format!("but {size} in its PAX record"))),
        };
        match kind {
            MemberKind::File | MemberKind::Sparse | MemberKind::Other => Ok(size),
            _ if size == 0 => Ok(0),
            kind => Err(error(format!("but a {kind} has no content"))),
        }
    }

    fn extension(
        &mut self,
        kind: Type,
        offset: u64,
        content: &[u8],
    ) -> Result<(), WebdatasetError> {
        let error = |reason| extension_error(offset, reason);
        match kind {
            Type::Pax => {
                if self.records.is_some() {
                    return Err(error("follows another one for the same member"));
                }
                self.records = Some(pax::parse(content).map_err(error)?);
            }
            Type::PaxGlobal => {
                // Readers disagree about global names and sizes, so global records may only contain comments or times.
                if pax::parse(content).map_err(error)? != Records::default() {
                    return Err(error("gives all members one name or size"));
                }
            }
            Type::LongName => {
                if self.long_name.is_some() {
                    return Err(error("follows another one for the same member"));
                }
                let name = content
                    .split(|byte| *byte == 0)
                    .next()
                    .filter(|name| !name.is_empty());
                self.long_name = Some(name.ok_or_else(|| error("has no name"))?.to_vec());
            }
            Type::LongLink | Type::Member(_) => {}
        }
        Ok(())
    }
}

fn extension_error(offset: u64, reason: &str) -> WebdatasetError {
    let reason = format!("the extension header at byte {offset} {reason}");
    WebdatasetProblem::Extension.at(offset, reason)
}

fn kind_error(offset: u64, name: &str, kind: MemberKind) -> WebdatasetError {
    WebdatasetProblem::MemberKind.of_member(offset, name, &format!("is a {kind}"))
}

fn name_error(offset: u64, name: &str, reason: &str) -> WebdatasetError {
    let shown = escape(name);
    let reason = format!("the member at byte {offset} has the name `{shown}`, which {reason}");
    WebdatasetProblem::MemberName.at(offset, reason).about(name)
}

/// Returns the bytes of a range of the file, if the window contains all of them.
fn part<'w>(at: u64, window: &'w [u8], range: &Range<u64>) -> Option<&'w [u8]> {
    let begin = usize::try_from(range.start.checked_sub(at)?).ok()?;
    let end = usize::try_from(range.end.checked_sub(at)?).ok()?;
    window.get(begin..end)
}

/// Checks that a member may be in a shard: a file or a directory with a name that stays within the shard.
///
/// # Errors
///
/// [`WebdatasetProblem::MemberKind`] for links, devices and the like; [`WebdatasetProblem::MemberName`] for names that are not UTF-8, are absolute,
/// or have `..` components or control characters.
pub fn check_member(member: &Member<'_>) -> Result<(), WebdatasetError> {
    let offset = member.begin;
    if !matches!(member.kind, MemberKind::File | MemberKind::Directory) {
        return Err(kind_error(offset, &member.name, member.kind));
    }
    match name_problem(&member.name, member.is_utf8) {
        None => Ok(()),
        Some(reason) => Err(name_error(offset, &member.name, reason)),
    }
}

/// Returns the error in the name of a member. Members are never unpacked, so these are fine: a leading `./`, which `tar
/// -c .` writes, empty components, and names that some systems reserve.
fn name_problem(name: &str, is_utf8: bool) -> Option<&'static str> {
    if !is_utf8 {
        return Some("is not UTF-8");
    }
    match check_relative_path(name) {
        Err(NameError::Empty) => Some("is empty"),
        Err(NameError::Absolute) => Some("is absolute"),
        Err(NameError::Character) => Some("has a control character or a backslash"),
        _ if name.split('/').any(|part| part == "..") => Some("has a `..` part"),
        _ => None,
    }
}
