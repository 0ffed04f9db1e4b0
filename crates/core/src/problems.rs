//! Enums of problems, whose kinds, stable ids and hints stand in one table.

/// Defines an enum of problems from a table: each row has the name, the kind, the stable id and optionally a hint.
///
/// `tests/layering` reads the ids from the rows.
///
/// ```
/// shardmill_core::problems! {
///     /// What is wrong with a shelf.
///     pub enum ShelfProblem {
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
/// assert_eq!(ShelfProblem::Crooked.facts(), (ErrorKind::Corrupt, "shelf-crooked", None));
/// # }
/// ```
#[macro_export]
macro_rules! problems {
    (@hint) => { None };
    (@hint $hint:expr) => { Some($hint) };
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
