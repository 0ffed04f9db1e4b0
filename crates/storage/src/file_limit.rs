//! The limit of the files that this process may have open.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the limit of open files to the highest that the system allows this process. Many systems set a lower one for
/// programs that wait with `select`, which this program does not.
pub fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    if limit.current == limit.maximum {
        return;
    }
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    // Where the system refuses, the limit stays as it is.
    let _ = setrlimit(Resource::Nofile, raised);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limit_of_open_files_is_raised_to_the_hard_limit() {
        let before = getrlimit(Resource::Nofile);
        let lower = Rlimit {
            current: Some(200),
            maximum: before.maximum,
        };
        setrlimit(Resource::Nofile, lower).unwrap();
        raise_file_limit();
        assert_eq!(getrlimit(Resource::Nofile).current, before.maximum);
    }
}
