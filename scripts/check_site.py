#!/usr/bin/env python3
"""Checks the built manual in headless Chromium: links, pictures, search and the console.

    make docs && scripts/check_site.py $CARGO_TARGET_DIR/site [FOLDER FOR SCREENSHOTS]

Needs `chromium` and `chromium-driver` (Debian packages) and the Python package `selenium`.
"""

import functools
import http.server
import shutil
import sys
import threading
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

SEARCHED = "StreamingDataset"
LOOKED_AT = ("", "reference/errors/", "reference/python/datasets/", "guide/convert/", "reference/comparison/")


class Page(HTMLParser):
    """The ids of a page, and the addresses that it links to or shows."""

    def __init__(self, text):
        super().__init__()
        self.ids, self.links = set(), set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.ids.update(value for name, value in attributes if name in ("id", "name") and value)
        for name in ("href", "src"):
            if values.get(name) and tag in ("a", "img", "link", "script"):
                self.links.add(values[name])


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


def broken_links(site):
    """Returns the links of the manual to files and anchors that do not exist. The Rust documentation is not read."""
    found = []
    pages = {}
    files = [path for path in site.rglob("*.html") if "rust" not in path.relative_to(site).parts]
    for path in files:
        pages[path] = Page(path.read_text(encoding="utf-8"))
    for path, page in pages.items():
        # The page of missing files has absolute addresses, because it stands for any address.
        for link in sorted(page.links) if path.name != "404.html" else ():
            if urlsplit(link).scheme or link.startswith("//"):
                continue
            address, anchor = urldefrag(urljoin(f"http://site/{path.relative_to(site).as_posix()}", link))
            target = site / unquote(urlsplit(address).path).lstrip("/")
            if target.is_dir():
                target = target / "index.html"
            if "rust" in target.relative_to(site).parts and not (site / "rust").exists():
                continue
            if not target.is_file():
                found.append(f"{path.relative_to(site)}: {link}: no such file")
            elif anchor and target in pages and unquote(anchor) not in pages[target].ids:
                found.append(f"{path.relative_to(site)}: {link}: no such anchor")
    return found


def open_browser():
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1280,900"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    return webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))


def looked_at(browser, address, folder):
    """Opens pages; returns the messages of the console and the pictures that are missing."""
    found = []
    for number, path in enumerate(LOOKED_AT):
        browser.get(address + path)
        if folder:
            browser.save_screenshot(str(folder / f"page-{number}.png"))
        for picture in browser.find_elements(By.TAG_NAME, "img"):
            if not browser.execute_script("return arguments[0].complete && arguments[0].naturalWidth > 0", picture):
                found.append(f"{path}: the picture {picture.get_attribute('src')} is missing")
        found += [f"{path}: {entry['message']}" for entry in browser.get_log("browser") if entry["level"] != "INFO"]
    return found


def search(browser, address, folder):
    """Returns the titles that the search shows."""
    browser.get(address)
    browser.execute_script("document.querySelector('[data-md-toggle=search]').click()")
    browser.find_element(By.CSS_SELECTOR, ".md-search__input").send_keys(SEARCHED)
    results = ".md-search-result__list article h1, .md-search-result__list article h2"
    WebDriverWait(browser, 20).until(lambda at: at.find_elements(By.CSS_SELECTOR, results))
    if folder:
        browser.save_screenshot(str(folder / "search.png"))
    return [each.text for each in browser.find_elements(By.CSS_SELECTOR, results)]


def main():
    site = Path(sys.argv[1])
    folder = Path(sys.argv[2]) if len(sys.argv) > 2 else None
    if folder:
        folder.mkdir(parents=True, exist_ok=True)
    problems = broken_links(site)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=site))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}/"
    browser = open_browser()
    try:
        problems += looked_at(browser, address, folder)
        titles = search(browser, address, folder)
    finally:
        browser.quit()
        server.shutdown()
    if not any(SEARCHED in title for title in titles):
        problems.append(f"the search for {SEARCHED} shows {titles}")
    if problems:
        sys.exit("\n".join(problems))
    print(f"{len(list(site.rglob('*.html')))} pages, {len(LOOKED_AT)} of them opened; search shows {len(titles)} titles; no problem")


if __name__ == "__main__":
    main()
