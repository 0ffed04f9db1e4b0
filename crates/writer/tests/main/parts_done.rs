//! Tests which repeated commits are reported as already done, and which are refused.

use shardmill_core::ErrorKind;
use shardmill_writer::parts::{CommitOptions, SaveMode, Verify, commit};

use super::parts::*;

#[test]
fn second_of_two_conflicting_jobs_is_rejected_and_keeps_files() {
    // Equal rows of two jobs that append are rows twice.
    for second in [2, 1] {
        refused(SaveMode::Create, false, second, "dest-exists");
        for has_base in [true, false] {
            refused(SaveMode::Append, has_base, second, "dest-changed");
            refused(SaveMode::Overwrite, has_base, second, "dest-changed");
        }
    }
}

fn refused(mode: SaveMode, has_base: bool, second: u64, id: &str) {
    both(|spot| {
        if has_base {
            let first = spot.begin("first", SaveMode::Create).unwrap();
            let manifests = parts(&spot, &first, 1);
            spot.commit(&first, manifests).unwrap();
        }
        let one = spot.begin("one", mode).unwrap();
        let two = spot.begin("two", mode).unwrap();
        let ours = vec![write(&spot, &one, 0, "a", &share(1))];
        let theirs = vec![write(&spot, &two, 0, "a", &share(second))];
        assert!(!spot.commit(&one, ours.clone()).unwrap().was_done);
        let (before, wanted) = (spot.names(), spot.numbers());
        for verify in [Verify::Sizes, Verify::Hashes] {
            let options = CommitOptions {
                verify,
                ..CommitOptions::default()
            };
            let theirs = theirs.clone();
            let error =
                commit(&spot.destination, &two, theirs, &options, &mut || true).unwrap_err();
            assert_eq!((error.id(), error.kind()), (id, ErrorKind::Conflict));
        }
        assert_eq!(spot.names(), before, "nothing of the loser was removed");
        assert_eq!(spot.numbers(), wanted);
        assert!(spot.commit(&one, ours).unwrap().was_done);
    });
}

#[test]
fn repeated_commit_is_done_even_after_later_appends() {
    both(|spot| {
        let first = spot.begin("one", SaveMode::Create).unwrap();
        let ours = parts(&spot, &first, 2);
        spot.commit(&first, ours.clone()).unwrap();
        let second = spot.begin("two", SaveMode::Append).unwrap();
        let more = parts(&spot, &second, 2);
        spot.commit(&second, more.clone()).unwrap();
        let third = spot.begin("three", SaveMode::Append).unwrap();
        let last = parts(&spot, &third, 1);
        spot.commit(&third, last).unwrap();
        for (staging, manifests) in [(&first, &ours), (&second, &more)] {
            let done = spot.commit(staging, manifests.clone()).unwrap();
            assert_eq!((done.was_done, done.total_samples), (true, 150));
        }
        let wanted = [shares(0..2), shares(0..2), share(0)].concat();
        assert_eq!(spot.numbers(), wanted);

        // A job whose rows are missing is not done.
        let overwrite = spot.begin("four", SaveMode::Overwrite).unwrap();
        let new = parts(&spot, &overwrite, 1);
        spot.commit(&overwrite, new).unwrap();
        let error = spot.commit(&second, more).unwrap_err();
        assert_eq!(error.id(), "dest-changed");
        assert_eq!(spot.numbers(), share(0));
    });
}

#[test]
fn rewritten_parts_of_a_committed_job_are_rejected() {
    both(|spot| {
        let staging = spot.begin("job", SaveMode::Create).unwrap();
        let first = vec![write(&spot, &staging, 0, "a", &share(1))];
        spot.commit(&staging, first).unwrap();
        let second = vec![write(&spot, &staging, 0, "b", &share(2))];
        let error = spot.commit(&staging, second).unwrap_err();
        assert_eq!(error.id(), "dest-exists");
        assert_eq!(spot.numbers(), share(1));
    });
}
