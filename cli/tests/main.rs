//! The command line from outside: status, standard output, standard error.

mod cat;
mod common;
mod convert;
mod errors;
mod help;
mod index;
mod inspect;
mod ls;
mod reference;
mod usage;
mod verify;
