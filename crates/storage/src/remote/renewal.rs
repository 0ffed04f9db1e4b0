//! Credentials that expire: each is renewed before its end, and a failure to renew one that is still valid is harmless.

use std::borrow::Cow;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant, SystemTime};

use shardmill_core::lock;

/// The timeout for getting credentials.
pub(super) const CREDENTIALS: Duration = Duration::from_secs(20);

/// How long a failure to get credentials is cached, so that queued requests do not retry one by one.
pub(super) const STANDS: Duration = Duration::from_secs(5);

/// How long before its end a credential is renewed; or at three quarters of its life, if that is later.
const MARGIN: Duration = Duration::from_secs(120);

/// Why there is no token: what the provider did, without secrets.
#[derive(Debug)]
pub(super) struct NoToken {
    pub(super) what: String,
    pub(super) hint: Option<Cow<'static, str>>,
}

impl NoToken {
    /// Returns the failure for an unknown error, or one that may contain secrets.
    pub(super) fn unknown() -> Self {
        Self {
            what: "gave none".to_owned(),
            hint: None,
        }
    }

    /// Returns a failure with what to do about it.
    pub(super) fn of(what: impl Into<String>, hint: impl Into<Cow<'static, str>>) -> Self {
        Self {
            what: what.into(),
            hint: Some(hint.into()),
        }
    }
}

/// A credential and its life. Has no `Debug`, because it is secret.
#[derive(Clone)]
pub(super) struct Issued<T> {
    pub(super) value: T,
    /// When it is renewed; `None` if it never expires.
    pub(super) renew: Option<Instant>,
    /// When it expires.
    pub(super) end: Option<Instant>,
}

impl<T> Issued<T> {
    /// `requested_at` is when the request was sent, which is before the credential was created.
    pub(super) fn new(value: T, requested_at: Instant, life: Option<Duration>) -> Self {
        // If the time overflows, the credential never expires.
        let after = |time: Duration| requested_at.checked_add(time);
        Self {
            value,
            renew: life.and_then(|life| after(life.saturating_sub(MARGIN.min(life / 4)))),
            end: life.and_then(after),
        }
    }

    /// Returns a credential that expires at a time of day.
    pub(super) fn until(value: T, end: Option<SystemTime>) -> Self {
        let left = |end: SystemTime| end.duration_since(SystemTime::now()).unwrap_or_default();
        Self::new(value, Instant::now(), end.map(left))
    }
}

/// A credential that is renewed before it expires. Has no `Debug`, because it is secret.
pub(super) struct Renewal<T>(Mutex<Option<Issued<T>>>);

impl<T> Default for Renewal<T> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

impl<T: Clone> Renewal<T> {
    pub(super) fn kept(&self) -> MutexGuard<'_, Option<Issued<T>>> {
        lock(&self.0)
    }

    /// Returns the credential, or the one that `fetch` returns if it is about to expire. The caller ensures that calls
    /// are not concurrent.
    pub(super) async fn get<F>(&self, fetch: F) -> Result<T, NoToken>
    where
        F: Future<Output = Result<Issued<T>, NoToken>>,
    {
        let now = Instant::now();
        let old = {
            let kept = self.kept();
            let issued = kept.as_ref();
            if let Some(issued) = issued.filter(|it| it.renew.is_none_or(|at| now < at)) {
                return Ok(issued.value.clone());
            }
            let good = issued.filter(|issued| issued.end.is_some_and(|end| now < end));
            good.map(|issued| issued.value.clone())
        };
        let Some(old) = old else {
            let issued = fetch.await?;
            let value = issued.value.clone();
            *self.kept() = Some(issued);
            return Ok(value);
        };
        // The old credential is still valid, so the wait for the new one is short.
        match tokio::time::timeout(CREDENTIALS / 4, fetch).await {
            Ok(Ok(issued)) => {
                let value = issued.value.clone();
                *self.kept() = Some(issued);
                Ok(value)
            }
            _ => {
                if let Some(issued) = self.kept().as_mut() {
                    issued.renew = Some(Instant::now() + STANDS);
                }
                Ok(old)
            }
        }
    }

    /// Returns when the credential expires, if it does.
    pub(super) fn expires(&self) -> Option<SystemTime> {
        let end = self.kept().as_ref()?.end?;
        let left = end.saturating_duration_since(Instant::now());
        SystemTime::now().checked_add(left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_renewed_before_expiry() {
        let requested_at = Instant::now();
        for (life, renew) in [(3600, 3480), (480, 360), (100, 75), (4, 3)] {
            let issued = Issued::new((), requested_at, Some(Duration::from_secs(life)));
            assert_eq!(
                issued.renew,
                Some(requested_at + Duration::from_secs(renew))
            );
            assert_eq!(issued.end, Some(requested_at + Duration::from_secs(life)));
        }
        let for_ever = Issued::new((), requested_at, None);
        assert_eq!((for_ever.renew, for_ever.end), (None, None));
        let long = Issued::new((), requested_at, Some(Duration::MAX));
        assert_eq!((long.renew, long.end), (None, None));
        let past = Issued::until((), Some(SystemTime::UNIX_EPOCH));
        assert!(past.end.unwrap() <= Instant::now());
    }
}
