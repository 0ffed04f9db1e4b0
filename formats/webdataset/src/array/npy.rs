//! Parses the headers of NumPy files. They are Python literals, which are never evaluated.

/// The deepest nesting of records.
const MAX_DEPTH: u32 = 16;

/// The contents of a header.
pub(super) struct Head<'a> {
    pub(super) descr: Descr<'a>,
    pub(super) is_fortran: bool,
    pub(super) shape: Vec<u64>,
}

/// The type of an element.
pub(super) enum Descr<'a> {
    /// A type name, such as `<f4`.
    Name(&'a str),
    /// A record with several fields.
    Record(Item),
}

/// How an element is stored in the file.
#[derive(Clone, Copy)]
pub(super) enum Item {
    /// In this many bytes.
    Bytes(u64),
    /// As a pickle.
    Object,
}

impl Item {
    /// Returns the storage of the type with that name; `None` if NumPy does not know it.
    pub(super) fn of(name: &str) -> Option<Self> {
        let name = name.strip_prefix(['<', '>', '=', '|']).unwrap_or(name);
        let mut rest = name.chars();
        let kind = rest.next()?;
        let rest = rest.as_str();
        if kind == 'O' {
            return Some(Self::Object);
        }
        let end = rest
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(rest.len());
        let (digits, unit) = rest.split_at_checked(end)?;
        let size: u64 = digits.parse().ok()?;
        // Only times have a unit.
        let is_unit = unit.len() > 2 && unit.starts_with('[') && unit.ends_with(']');
        if !unit.is_empty() && (!is_unit || !matches!(kind, 'M' | 'm')) {
            return None;
        }
        let bytes = match (kind, size) {
            ('b', 1)
            | ('i' | 'u', 1 | 2 | 4 | 8)
            | ('f', 2 | 4 | 8 | 12 | 16)
            | ('c', 8 | 16 | 24 | 32)
            | ('M' | 'm', 8)
            | ('S' | 'a' | 'V', _) => size,
            // UCS-4 characters.
            ('U', _) => size.checked_mul(4)?,
            _ => return None,
        };
        Some(Self::Bytes(bytes))
    }

    /// Returns the storage of this element followed by another one.
    fn and(self, other: Self) -> Option<Self> {
        match (self, other) {
            (Self::Bytes(one), Self::Bytes(other)) => one.checked_add(other).map(Self::Bytes),
            _ => Some(Self::Object),
        }
    }

    /// Returns the storage of an array of this element.
    fn times(self, shape: &[u64]) -> Option<Self> {
        match self {
            Self::Bytes(bytes) => shape
                .iter()
                .try_fold(bytes, |product, dim| product.checked_mul(*dim))
                .map(Self::Bytes),
            Self::Object => Some(self),
        }
    }
}

/// Parses a header; `None` if it does not describe an array.
pub(super) fn head(text: &str) -> Option<Head<'_>> {
    Header(text).dict()
}

/// The remaining text of a header.
struct Header<'a>(&'a str);

impl<'a> Header<'a> {
    fn dict(mut self) -> Option<Head<'a>> {
        let (mut descr, mut is_fortran, mut shape) = (None, None, None);
        self.token("{")?;
        while self.token("}").is_none() {
            let key = self.string()?;
            self.token(":")?;
            match key {
                "descr" if descr.is_none() => descr = Some(self.descr(0)?),
                "fortran_order" if is_fortran.is_none() => is_fortran = Some(self.boolean()?),
                "shape" if shape.is_none() => shape = Some(self.tuple()?),
                _ => return None,
            }
            if self.token(",").is_none() {
                self.token("}")?;
                break;
            }
        }
        if !self.0.trim().is_empty() {
            return None;
        }
        Some(Head {
            descr: descr?,
            is_fortran: is_fortran?,
            shape: shape?,
        })
    }

    fn token(&mut self, token: &str) -> Option<()> {
        self.0 = self.0.trim_start().strip_prefix(token)?;
        Some(())
    }

    /// Parses a quoted string. Escapes are not decoded.
    fn string(&mut self) -> Option<&'a str> {
        let text = self.0.trim_start();
        let quote = text.chars().next().filter(|c| matches!(c, '\'' | '"'))?;
        let text = text.get(1..)?;
        let mut is_escaped = false;
        let end = text.find(|c| {
            let ends = c == quote && !is_escaped;
            is_escaped = c == '\\' && !is_escaped;
            ends
        })?;
        self.0 = text.get(end + 1..)?;
        text.get(..end)
    }

    /// Parses a type name or a list of fields.
    fn descr(&mut self, depth: u32) -> Option<Descr<'a>> {
        if self.token("[").is_none() {
            return self.string().map(Descr::Name);
        }
        let mut sum = Item::Bytes(0);
        while self.token("]").is_none() {
            sum = sum.and(self.field(depth)?)?;
            if self.token(",").is_none() {
                self.token("]")?;
                break;
            }
        }
        Some(Descr::Record(sum))
    }

    /// Parses `(name, type)` or `(name, type, shape)`. A name may also be a pair of title and name.
    fn field(&mut self, depth: u32) -> Option<Item> {
        if depth >= MAX_DEPTH {
            return None;
        }
        self.token("(")?;
        if self.token("(").is_some() {
            self.string()?;
            self.token(",")?;
            self.string()?;
            self.token(")")?;
        } else {
            self.string()?;
        }
        self.token(",")?;
        let mut item = match self.descr(depth + 1)? {
            Descr::Name(name) => Item::of(name)?,
            Descr::Record(item) => item,
        };
        if self.token(",").is_some() && !self.0.trim_start().starts_with(')') {
            let shape = match self.0.trim_start().starts_with('(') {
                true => self.tuple()?,
                false => vec![self.number()?],
            };
            item = item.times(&shape)?;
            // Any tuple may end with a comma.
            let _ = self.token(",");
        }
        self.token(")")?;
        Some(item)
    }

    fn boolean(&mut self) -> Option<bool> {
        match self.token("True") {
            Some(()) => Some(true),
            None => self.token("False").map(|()| false),
        }
    }

    fn number(&mut self) -> Option<u64> {
        let text = self.0.trim_start();
        let end = text
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(text.len());
        let (digits, rest) = text.split_at_checked(end)?;
        // Python 2 marks long integers with `L`.
        self.0 = rest.strip_prefix('L').unwrap_or(rest);
        digits.parse().ok()
    }

    fn tuple(&mut self) -> Option<Vec<u64>> {
        let mut shape = Vec::new();
        self.token("(")?;
        while self.token(")").is_none() {
            shape.push(self.number()?);
            if self.token(",").is_none() {
                self.token(")")?;
                break;
            }
        }
        Some(shape)
    }
}
