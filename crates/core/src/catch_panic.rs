//! Turns panics inside decoders into errors, and the messages of decoders into one line.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Installs a panic hook that prints nothing while this thread is inside [`catch`]: the panic becomes an error, which
/// is reported once. Other panics go to the previous hook.
fn install_hook() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let previous = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !QUIET.get() {
                previous(info);
            }
        }));
    });
}

/// Restores the previous value of [`QUIET`].
struct Silence(bool);

impl Drop for Silence {
    fn drop(&mut self) {
        QUIET.set(self.0);
    }
}

/// Runs a decoder that may panic on corrupt input. After an `Err`, the caller must drop everything that `run` borrowed
/// without using it.
pub fn catch<T>(run: impl FnOnce() -> T) -> Result<T, String> {
    install_hook();
    let _silence = Silence(QUIET.replace(true));
    catch_unwind(AssertUnwindSafe(run)).map_err(|payload| message(payload.as_ref()))
}

/// Runs a decoder that may fail or panic, as [`catch`] does.
pub fn attempt<T, E: ToString>(run: impl FnOnce() -> Result<T, E>) -> Result<T, String> {
    catch(run)?.map_err(|error| one_line(&error.to_string()))
}

fn message(payload: &(dyn Any + Send)) -> String {
    let text = payload
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".to_owned());
    format!("the decoder stopped: {}", one_line(&text))
}

/// Returns a library's message on one line of bounded length.
pub fn one_line(text: &str) -> String {
    const LONGEST: usize = 400;
    let mut line = String::new();
    for word in text.split_whitespace() {
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
        if line.len() > LONGEST {
            let end = line
                .char_indices()
                .map(|(at, _)| at)
                .take_while(|at| *at <= LONGEST)
                .last()
                .unwrap_or(0);
            line.truncate(end);
            line.push('…');
            break;
        }
    }
    crate::escape(line.trim_end_matches('.')).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panic_is_converted_to_its_message() {
        assert_eq!(catch(|| 7), Ok(7));
        let error = catch(|| panic!("index {} out\nof bounds", 3)).unwrap_err();
        assert_eq!(error, "the decoder stopped: index 3 out of bounds");
    }

    #[test]
    fn panic_messages_are_one_short_line() {
        assert_eq!(one_line(" a\n b\tc. "), "a b c");
        let long = one_line(&"é".repeat(1000));
        assert!(long.len() <= 404 && long.ends_with('…'), "{}", long.len());
    }
}
