//! The page: one HTML file with its style, its script and, in an exported report, its data.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value as Json;
use sha2::{Digest as _, Sha256};

// `npm run build` in `web` makes both; a test of the front end compares them with the sources.
const SCRIPT: &str = include_str!("../web/dist/app.js");
const STYLE: &str = include_str!("../web/dist/app.css");

/// Returns the content security policy of the page. Only its own script and style are allowed, by their hashes, and
/// samples can neither run code nor load anything.
pub fn policy(is_report: bool) -> String {
    let hash = |text: &str| STANDARD.encode(Sha256::digest(text));
    let mut policy = format!(
        "default-src 'none'; script-src 'sha256-{}'; style-src 'sha256-{}'; img-src blob: data:; \
         media-src 'self' blob: data:; base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'",
        hash(SCRIPT),
        hash(STYLE)
    );
    if !is_report {
        // Notebooks on this machine embed the page.
        policy.push_str(
            "; connect-src 'self'; frame-ancestors 'self' http://localhost:* http://127.0.0.1:*",
        );
    }
    policy
}

/// Returns the page. With `data` it is a report that needs no server.
pub fn page(data: Option<&Json>) -> String {
    let (policy, data) = match data {
        // A `<` in the data could end the element.
        Some(data) => (policy(true), data.to_string().replace('<', "\\u003c")),
        None => (policy(false), "null".to_owned()),
    };
    // `frame-ancestors` is not allowed in a meta element; the header of the server has it.
    let policy = policy.split("; frame-ancestors").next().unwrap_or_default();
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{policy}\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<meta name=\"referrer\" content=\"no-referrer\">\n\
         <link rel=\"icon\" href=\"data:,\">\n<title>shardmill view</title>\n<style>{STYLE}</style>\n</head>\n<body>\n\
         <div id=\"app\"></div>\n<noscript>This page needs JavaScript.</noscript>\n\
         <script type=\"application/json\" id=\"report\">{data}</script>\n<script>{SCRIPT}</script>\n</body>\n</html>\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn embedded_data_cannot_close_its_script_element() {
        let data = serde_json::json!({ "text": "</script><script>alert(1)</script>" });
        let page = page(Some(&data));
        assert_eq!(page.matches("</script>").count(), 2);
        assert_eq!(page.matches("<script").count(), 2);
    }

    #[test]
    fn bundle_contains_no_closing_script_or_style_tag() {
        assert!(!SCRIPT.contains("</script") && !SCRIPT.contains("<!--"));
        assert!(!STYLE.contains("</style"));
    }
}
