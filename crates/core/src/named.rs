//! Enums whose values have names.

/// Defines an enum whose values have names in files, options or messages, with the methods that convert between both.
///
/// ```
/// shardmill_core::named_enum! {
///     /// A color.
///     pub enum Color {
///         /// Red.
///         Red = "red",
///         /// Blue.
///         Blue = "blue",
///     }
/// }
///
/// assert_eq!(Color::ALL.map(Color::name), ["red", "blue"]);
/// assert_eq!(Color::from_name("blue"), Some(Color::Blue));
/// assert_eq!(Color::Red.to_string(), "red");
/// ```
#[macro_export]
macro_rules! named_enum {
    ($(#[$attribute:meta])* pub enum $type:ident {
        $($(#[$value_attribute:meta])* $value:ident = $name:literal,)+
    }) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $type {
            $($(#[$value_attribute])* $value,)+
        }

        impl $type {
            /// All values, in declaration order.
            pub const ALL: [Self; [$($name),+].len()] = [$(Self::$value),+];

            /// Returns the name in files, options or messages.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$value => $name,)+
                }
            }

            /// Returns the value with this name.
            #[must_use]
            pub fn from_name(name: &str) -> Option<Self> {
                Self::ALL.into_iter().find(|value| value.name() == name)
            }
        }

        impl ::std::fmt::Display for $type {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}

pub(crate) use named_enum;
