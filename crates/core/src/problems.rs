//! Enums of problems, whose kinds, stable ids and hints stand in one table.

/// Defines an enum of problems from a table: each row has the name, the kind, the stable id and optionally a hint.
///
/// `tests/layering` reads the ids from the rows. With `-> Error` after the name of the enum, each problem has
/// constructors: `error(reason)`, and `at(object, reason)` for the error about an object.
///
/// ```
/// shardmill_core::problems! {
///     /// What is wrong with a shelf.
///     pub enum ShelfProblem -> Error {
///         /// It has no boards.
///         Empty => (NotFound, "shelf-empty", "add a board"),
///         /// It leans.
///         Crooked => (Corrupt, "shelf-crooked"),
///     }
/// }
/// # fn main() {
/// use shardmill_core::ErrorKind;
///
/// assert_eq!(ShelfProblem::Empty.facts(), (ErrorKind::NotFound, "shelf-empty", Some("add a board")));
/// let error = ShelfProblem::Crooked.at("shelf 3", "it leans by 4 degrees");
/// assert_eq!((error.kind(), error.id(), error.object()), (ErrorKind::Corrupt, "shelf-crooked", Some("shelf 3")));
/// # }
/// ```
#[macro_export]
macro_rules! problems {
    (@hint) => { None };
    (@hint $hint:expr) => { Some($hint) };
    ($(#[$attribute:meta])* $visibility:vis enum $type:ident -> Error {
        $($rows:tt)+
    }) => {
        $crate::problems! { $(#[$attribute])* $visibility enum $type { $($rows)+ } }

        impl $type {
            /// Builds the error with this problem.
            $visibility fn error(self, reason: impl Into<String>) -> $crate::Error {
                let (kind, id, hint) = self.facts();
                $crate::Error::new(kind, id, reason).with_any_hint(hint)
            }

            /// Builds the error with this problem about an object.
            $visibility fn at(
                self,
                object: impl AsRef<str>,
                reason: impl Into<String>,
            ) -> $crate::Error {
                self.error(reason).about(object)
            }
        }
    };
    ($(#[$attribute:meta])* $visibility:vis enum $type:ident {
        $($(#[$row_attribute:meta])* $problem:ident => ($kind:ident, $id:literal $(, $hint:expr)?),)+
    }) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        $visibility enum $type {
            $($(#[$row_attribute])* $problem,)+
        }

        impl $type {
            /// Returns the kind, the stable id and the hint of the problem.
            pub(crate) const fn facts(
                self,
            ) -> ($crate::ErrorKind, &'static str, Option<&'static str>) {
                match self {
                    $(Self::$problem => (
                        $crate::ErrorKind::$kind,
                        $id,
                        $crate::problems!(@hint $($hint)?),
                    ),)+
                }
            }
        }
    };
}
