//! Credentials of Amazon: profiles, roles, single sign-on, programs, containers and machines.

// From the bottom up.
mod grammar; // The grammar of the configuration files.
mod issue; // Credentials with their life, and the documents that contain them.

mod files; // The profiles of the configuration files.

mod login; // What the login of a profile consists of.

mod environment; // Web identities, containers and machines.
mod program; // Programs that print credentials.
mod service; // Requests to services that give credentials.

mod sso; // Single sign-on.
mod sts; // Roles.

mod provider; // The credentials of a profile, renewed before they expire.

pub(super) use environment::{HINT, environment, source};
pub(super) use files::{Files, Profiles};
pub(super) use login::ProfileLogin;
pub(super) use provider::ProfileProvider;
pub(super) use service::domain;
