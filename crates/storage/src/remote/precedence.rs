//! The precedence of explicit settings over those of the environment, whichever of their names are used.

use std::collections::{BTreeMap, BTreeSet};

use super::access::{azure, google, s3};

/// Alternative names of one value. If one is given explicitly, the others are ignored in the environment.
const ALIASES: [&[&str]; 12] = [
    &s3::ENDPOINTS,
    &s3::REGIONS,
    &["AWS_DEFAULT_PROFILE", "AWS_PROFILE"],
    &[
        "AWS_CONTAINER_CREDENTIALS_FULL_URI",
        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    ],
    &azure::ACCOUNTS,
    &azure::ENDPOINTS,
    &azure::ACCOUNT_KEYS,
    &azure::SIGNATURES,
    &azure::CLIENTS,
    &azure::SECRETS,
    &azure::TENANTS,
    &["GOOGLE_ENDPOINT_URL", "STORAGE_EMULATOR_HOST"],
];

const AWS_LOGINS: &[&str] = &[
    "AWS_ACCESS_KEY_ID",
    "AWS_ROLE_ARN",
    "AWS_ROLE_SESSION_NAME",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_SKIP_SIGNATURE",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
];

/// The ways to log in to the stores of one provider.
struct Logins {
    /// Each way, as the names of its settings.
    ways: &'static [&'static [&'static str]],
    /// The setting that turns off all of them.
    off: &'static str,
}

const LOGINS: [Logins; 5] = [
    Logins {
        ways: &[
            &[
                "AWS_ACCESS_KEY_ID",
                "AWS_SECRET_ACCESS_KEY",
                "AWS_SESSION_TOKEN",
            ],
            &[
                "AWS_ROLE_ARN",
                "AWS_ROLE_SESSION_NAME",
                "AWS_WEB_IDENTITY_TOKEN_FILE",
            ],
            &[
                "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
                "AWS_CONTAINER_CREDENTIALS_FULL_URI",
                "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
            ],
            &["AWS_METADATA_ENDPOINT"],
        ],
        off: "AWS_SKIP_SIGNATURE",
    },
    Logins {
        ways: &[
            &azure::ACCOUNT_KEYS,
            &azure::SIGNATURES,
            &["AZURE_STORAGE_TOKEN"],
            &["AZURE_USE_AZURE_CLI"],
            &[
                "AZURE_AUTHORITY_HOST",
                "AZURE_CLIENT_ID",
                "AZURE_CLIENT_SECRET",
                "AZURE_FEDERATED_TOKEN_FILE",
                "AZURE_STORAGE_CLIENT_ID",
                "AZURE_STORAGE_CLIENT_SECRET",
                "AZURE_STORAGE_TENANT_ID",
                "AZURE_TENANT_ID",
            ],
            &[
                "AZURE_CLIENT_ID",
                "AZURE_MSI_ENDPOINT",
                "AZURE_MSI_RESOURCE_ID",
                "AZURE_OBJECT_ID",
                "AZURE_STORAGE_CLIENT_ID",
                "IDENTITY_ENDPOINT",
                "IDENTITY_HEADER",
            ],
        ],
        off: "AZURE_SKIP_SIGNATURE",
    },
    Logins {
        ways: &[
            &["GOOGLE_OAUTH_ACCESS_TOKEN"],
            &["CLOUDSDK_AUTH_ACCESS_TOKEN"],
            &["GCS_KEY", "GCS_SECRET"],
            &google::SERVICE_ACCOUNTS,
            &["GOOGLE_SERVICE_ACCOUNT_KEY"],
            &["GOOGLE_APPLICATION_CREDENTIALS"],
        ],
        off: "GOOGLE_SKIP_SIGNATURE",
    },
    Logins {
        ways: &[
            &["DATABRICKS_TOKEN"],
            &["DATABRICKS_CLIENT_ID", "DATABRICKS_CLIENT_SECRET"],
        ],
        off: "DATABRICKS_AUTH_TYPE",
    },
    Logins {
        ways: &[&["HF_TOKEN"], &["HF_TOKEN_PATH"], &["HF_HOME"]],
        off: "HF_HUB_DISABLE_IMPLICIT_TOKEN",
    },
];

/// Settings that replace others, which the environment may have set.
const REPLACES: [(&str, &[&str]); 10] = [
    // A session token belongs to one pair of keys.
    ("AWS_ACCESS_KEY_ID", &["AWS_SESSION_TOKEN"]),
    ("AWS_SECRET_ACCESS_KEY", &["AWS_SESSION_TOKEN"]),
    // The keys of the environment would win over the profile. Its region and its container stay.
    ("AWS_PROFILE", AWS_LOGINS),
    ("AWS_DEFAULT_PROFILE", AWS_LOGINS),
    (
        "AWS_CONTAINER_CREDENTIALS_FULL_URI",
        &["AWS_DEFAULT_PROFILE", "AWS_PROFILE"],
    ),
    (
        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
        &["AWS_DEFAULT_PROFILE", "AWS_PROFILE"],
    ),
    ("AZURE_STORAGE_USE_EMULATOR", &azure::ENDPOINTS),
    (
        "DATABRICKS_CONFIG_PROFILE",
        &[
            "DATABRICKS_AUTH_TYPE",
            "DATABRICKS_CLIENT_ID",
            "DATABRICKS_CLIENT_SECRET",
            "DATABRICKS_HOST",
            "DATABRICKS_TOKEN",
        ],
    ),
    (
        "ALLOW_HTTP",
        &["AWS_ALLOW_HTTP", "AZURE_ALLOW_HTTP", "GOOGLE_ALLOW_HTTP"],
    ),
    ("GOOGLE_SERVICE_ACCOUNT", &["SERVICE_ACCOUNT"]),
];

/// Adds the `explicit` settings to those of the environment. Removes those of the environment that would override or
/// contradict them.
pub(super) fn add(
    environment: &mut BTreeMap<String, String>,
    mut explicit: BTreeMap<String, String>,
) {
    // A connection string contains several settings.
    if explicit.keys().any(|name| name.starts_with("AZURE_")) {
        azure::expand_connection(&mut explicit);
        azure::expand_connection(environment);
    }
    let mut dropped: BTreeSet<&str> = BTreeSet::new();
    for name in explicit.keys() {
        for names in ALIASES.iter().filter(|names| is_in(names, name)) {
            dropped.extend(*names);
        }
        for logins in &LOGINS {
            if !logins.ways.iter().any(|way| is_in(way, name)) {
                continue;
            }
            dropped.insert(logins.off);
            let others = logins.ways.iter().filter(|way| !is_in(way, name));
            dropped.extend(others.copied().flatten());
        }
        for (_, names) in REPLACES.iter().filter(|(replacing, _)| replacing == name) {
            dropped.extend(*names);
        }
        // An Azure endpoint contains the account name.
        if azure::ACCOUNTS.contains(&name.as_str()) {
            let account = explicit.get(name).map_or("", String::as_str);
            let of_other = |endpoint: &&&str| {
                let endpoint = environment.get(**endpoint);
                endpoint.is_some_and(|endpoint| !endpoint.contains(account))
            };
            dropped.extend(azure::ENDPOINTS.iter().filter(of_other));
        }
    }
    environment.retain(|name, _| !dropped.contains(name.as_str()));
    environment.extend(explicit);
}

fn is_in(names: &[&str], name: &str) -> bool {
    names.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::super::settings::SETTINGS;
    use super::*;

    fn map(settings: &[(&str, &str)]) -> BTreeMap<String, String> {
        let settings = settings.iter();
        settings
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect()
    }

    #[test]
    fn every_precedence_name_is_a_known_setting() {
        let ways = LOGINS.iter().flat_map(|logins| logins.ways).copied();
        let replaced = REPLACES.iter().map(|(_, names)| *names);
        let single = LOGINS.iter().map(|logins| logins.off);
        let single = single.chain(REPLACES.iter().map(|(name, _)| *name));
        let names = ALIASES.iter().copied().chain(ways).chain(replaced);
        for name in names.flatten().copied().chain(single) {
            assert!(SETTINGS.contains(&name), "{name}");
        }
    }

    #[test]
    fn explicit_setting_overrides_all_aliases() {
        for names in ALIASES {
            for name in names {
                let mut all: BTreeMap<String, String> = names
                    .iter()
                    .map(|name| ((*name).to_owned(), "environment".to_owned()))
                    .collect();
                let explicit = map(&[(*name, "explicit")]);
                add(&mut all, explicit.clone());
                assert_eq!(all, explicit);
            }
        }
    }

    #[test]
    fn explicit_login_overrides_other_login_methods() {
        for logins in &LOGINS {
            for way in logins.ways {
                let others = logins.ways.iter().copied().flatten();
                let others = others.filter(|name| !way.contains(name));
                let mut all: BTreeMap<String, String> = others
                    .chain([&logins.off])
                    .map(|name| ((*name).to_owned(), "environment".to_owned()))
                    .collect();
                let first = way.first().copied().unwrap();
                let explicit = map(&[(first, "explicit")]);
                add(&mut all, explicit.clone());
                // A name that is part of several ways does not select one of them.
                all.retain(|name, value| {
                    value == "explicit"
                        || !logins
                            .ways
                            .iter()
                            .any(|way| way.contains(&first) && way.contains(&name.as_str()))
                });
                assert_eq!(all, explicit, "{first}");
            }
        }
    }

    #[test]
    fn unrelated_environment_settings_are_kept() {
        let mut all = map(&[
            ("AWS_ACCESS_KEY_ID", "a"),
            ("AWS_SECRET_ACCESS_KEY", "b"),
            ("AWS_SESSION_TOKEN", "c"),
            ("AWS_REGION", "r"),
            ("GCS_KEY", "g"),
        ]);
        let before = all.clone();
        add(&mut all, map(&[("AWS_ENDPOINT", "e")]));
        let mut expected = before.clone();
        expected.insert("AWS_ENDPOINT".to_owned(), "e".to_owned());
        assert_eq!(all, expected);
        // A partial login takes the rest from the environment, but not the session token of another pair of keys.
        let mut all = before;
        add(&mut all, map(&[("AWS_SECRET_ACCESS_KEY", "x")]));
        assert_eq!(all["AWS_ACCESS_KEY_ID"], "a");
        assert_eq!(all["AWS_SECRET_ACCESS_KEY"], "x");
        assert!(!all.contains_key("AWS_SESSION_TOKEN"));
    }

    #[test]
    fn connection_string_is_expanded_into_its_settings() {
        let of = |account: &str| {
            format!("AccountName={account};AccountKey=k-{account};EndpointSuffix=core.windows.net")
        };
        let (mine, theirs) = (of("mine"), of("theirs"));
        let string = "AZURE_STORAGE_CONNECTION_STRING";
        // An explicit connection string overrides single settings of the environment.
        let mut all = map(&[
            ("AZURE_ACCOUNT_NAME", "theirs"),
            ("AZURE_ENDPOINT", "https://theirs.lan"),
            ("AZURE_STORAGE_SAS_TOKEN", "s"),
        ]);
        add(&mut all, map(&[(string, &mine)]));
        let expected = map(&[
            ("AZURE_STORAGE_ACCOUNT_KEY", "k-mine"),
            ("AZURE_STORAGE_ACCOUNT_NAME", "mine"),
            (
                "AZURE_STORAGE_ENDPOINT",
                "https://mine.blob.core.windows.net",
            ),
        ]);
        assert_eq!(all, expected);
        // A connection string of the environment does not override single settings, and fills in what they omit.
        let mut all = map(&[(string, &theirs)]);
        add(&mut all, map(&[("AZURE_STORAGE_SAS_TOKEN", "s")]));
        assert_eq!(all["AZURE_STORAGE_ACCOUNT_NAME"], "theirs");
        assert!(!all.contains_key("AZURE_STORAGE_ACCOUNT_KEY"));
        let mut all = map(&[(string, &theirs)]);
        add(&mut all, map(&[("AZURE_ACCOUNT_NAME", "mine")]));
        assert_eq!(all["AZURE_ACCOUNT_NAME"], "mine");
        assert!(!all.contains_key("AZURE_STORAGE_ACCOUNT_NAME"));
        assert!(!all.contains_key("AZURE_STORAGE_ENDPOINT"));
        // One that cannot be parsed is an error where it is used.
        let mut all = map(&[(string, "no pairs")]);
        add(&mut all, map(&[("AZURE_ACCOUNT_NAME", "mine")]));
        assert_eq!(all[string], "no pairs");
    }

    #[test]
    fn profile_and_emulator_override_single_settings() {
        let mut all = map(&[("DATABRICKS_HOST", "a"), ("DATABRICKS_TOKEN", "b")]);
        let explicit = map(&[("DATABRICKS_CONFIG_PROFILE", "p")]);
        add(&mut all, explicit.clone());
        assert_eq!(all, explicit);
        let mut all = map(&[
            ("AWS_ACCESS_KEY_ID", "a"),
            ("AWS_REGION", "r"),
            ("AWS_SECRET_ACCESS_KEY", "b"),
            ("AWS_SESSION_TOKEN", "c"),
        ]);
        add(&mut all, map(&[("AWS_PROFILE", "p")]));
        assert_eq!(all, map(&[("AWS_PROFILE", "p"), ("AWS_REGION", "r")]));
        // Explicit keys leave the region of the profile.
        let mut all = map(&[("AWS_PROFILE", "p")]);
        add(&mut all, map(&[("AWS_ACCESS_KEY_ID", "a")]));
        assert_eq!(all["AWS_PROFILE"], "p");
        let mut all = map(&[("AZURE_STORAGE_ENDPOINT", "https://a")]);
        let explicit = map(&[("AZURE_STORAGE_USE_EMULATOR", "true")]);
        add(&mut all, explicit.clone());
        assert_eq!(all, explicit);
    }
}
