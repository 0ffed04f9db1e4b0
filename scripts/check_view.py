#!/usr/bin/env python3
"""Checks the pages of `shardmill view` in headless Chromium: every page, the keys, hostile samples, accessibility, the report.

    scripts/check_view.py PROGRAM [FOLDER FOR SCREENSHOTS]

Needs `chromium` and `chromium-driver` (Debian packages) and the Python package `selenium`; without them it says so and ends
with 0. Checks accessibility with axe-core if `npm ci` was run in crates/view/web.
"""

import base64
import http.server
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
import time
import wave
import zlib
from pathlib import Path

AXE = Path(__file__).parent.parent / "crates/view/web/node_modules/axe-core/axe.min.js"
PAGES = (
    "overview", "samples", "samples?n=0", "samples?where=__sample__+%25+3+%3D+1", "samples?where=__sample__+%25+3+%3D+1&at=2", "columns",
    "columns?column=COLUMN", "shards?shard=0", "order?shuffle=true&step=1", "plan?nodes=2", "live",
)
STORE_PAGES = ("overview", "samples", "samples?n=0", "columns", "shards?shard=0", "order?shuffle=true&step=1", "plan?nodes=2")
SOURCE_PAGES = ("overview", "samples", "samples?n=4", "samples?where=__sample__+%25+3+%3D+1", "samples?where=__sample__+%25+3+%3D+1&at=2", "columns")
SIZES = {"wide": (1280, 900), "phone": (390, 844)}
# Two seconds of VP8, 16 x 16 pixels, written by PyAV.
CLIP = base64.b64decode(
    b"GkXfo59ChoEBQveBAULygQRC84EIQoKEd2VibUKHgQJChYECGFOAZwEAAAAAAAIJEU2bdLpNu4tTq4QVSalmU6yBoU27i1OrhBZUrmtTrIHYTbuMU6uEElTD"
    b"Z1OsggEbTbuMU6uEHFO7a1OsggHz7AEAAAAAAABZAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
    b"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAVSalmsirXsYMPQkBNgI1MYXZmNjIuMTIuMTAyV0GNTGF2ZjYyLjEyLjEwMkSJiECfQAAAAAAAFlSua76u"
    b"AQAAAAAAADXXgQFzxYiDIg0J6H1wrZyBACK1nIN1bmSIgQCGhVZfVlA4g4EBI+ODhB3NZQDghrCBELqBEBJUw2fYc3OgY8CAZ8iaRaOHRU5DT0RFUkSHjUxh"
    b"dmY2Mi4xMi4xMDJzc7JjwItjxYiDIg0J6H1wrWfIoUWjiERVUkFUSU9ORIeTMDA6MDA6MDIuMDAwMDAwMDAwAB9DtnX254EAo6OBAACAEAIAnQEqEAAQAABH"
    b"CIWFiIWEiAICAAwNYAD+/6tQgKOYgQH0ALEBAAUQrAAYADAoL/QAIAD+7lgAo5iBA+gAsQEABRCsABgAMCgv9AAgAP7uIACjmIEF3ACxAQAFEKwAGAAwKC/0"
    b"ACAA/u5YABxTu2uRu4+zgQC3iveBAfGCAXjwgQM="
)
# A script of a sample would set this title.
ALARM = "a script of a sample ran"


def png(width, height, seed):
    """Returns a PNG file with a gradient."""
    rows = b"".join(b"\0" + bytes(((x * 7 + y * seed) % 256 for x in range(width) for _ in range(3))) for y in range(height))
    chunk = lambda name, data: struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def npy(shape, number):
    head = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape!r}, }}".encode()
    head += b" " * (63 - (len(head) + 10) % 64) + b"\n"
    count = 1
    for dim in shape:
        count *= dim
    return b"\x93NUMPY\x01\0" + struct.pack("<H", len(head)) + head + struct.pack(f"<{count}f", *(number * i % 97 for i in range(count)))


def write_tree(tree):
    """Writes samples of all kinds; every fourth is hostile."""
    tree.mkdir()
    script = f"<script>document.title='{ALARM}'</script>"
    markup = f"<svg xmlns='http://www.w3.org/2000/svg' onload=\"document.title='{ALARM}'\">{script}</svg>"
    for number in range(60):
        stem = tree / f"{number:04}"
        hostile = number % 4 == 3
        stem.with_suffix(".png").write_bytes(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\1\0\0\0\1\0\0" if hostile else png(48, 32, number + 1))
        with wave.open(str(stem.with_suffix(".wav")), "wb") as sound:
            sound.setparams((1, 2, 8000, 0, "NONE", ""))
            sound.writeframes(bytes(1600))
        stem.with_suffix(".txt").write_text((markup + "\u202egnp.\u0000\u001b[2J" + "x" * 3_000_000) if hostile else f"caption {number}")
        stem.with_suffix(".html").write_text(markup)
        stem.with_suffix(".json").write_text("[" * 30 + "]" * 30 if hostile else json.dumps({"a": [1, {"b": None}], "<img onerror=alert(1)>": "x"}))
        stem.with_suffix(".npy").write_bytes(npy((40,) if number % 2 else (16, 24), number + 1))
        stem.with_suffix(".cls").write_text(str(number % 5))
        stem.with_suffix(".webm").write_bytes(CLIP[:40] if hostile else CLIP)


class Metrics(http.server.BaseHTTPRequestHandler):
    """Answers as the endpoint of a running job does, and hostile names."""

    asked = 0

    def do_GET(self):
        Metrics.asked += 1
        text = f"# TYPE shardmill_waits counter\nshardmill_waits_total {3 * Metrics.asked}\nx{{a=\"<script>document.title='{ALARM}'</script>\"}} 1\n# EOF\n"
        self.send_response(200)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_):
        pass


class View:
    """A running server."""

    def __init__(self, program, location, *options, env=None):
        words = [program, "view", location, "--json", *options]
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=env and {**os.environ, **env})
        self.url = json.loads(self.process.stdout.readline())["url"]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()


class Store:
    """A server that answers as S3 does, over the folders of a folder. It ends with its input."""

    def __init__(self, program, folder):
        server = Path(program).with_name("remote_speed")
        words = [str(server), "serve", str(folder), "30", "100000000"]
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.env = {
            "AWS_ENDPOINT_URL": self.process.stdout.readline().strip(), "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test", "AWS_REGION": "us-east-1",
        }

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait()


def open_browser():
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1280,900"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    return webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))


class Checks:
    def __init__(self, browser, folder):
        self.browser, self.folder, self.problems, self.done = browser, folder, [], 0
        self.axe = AXE.read_text(encoding="utf-8") if AXE.exists() else None

    def expect(self, fact, what):
        self.done += 1
        if not fact:
            self.problems.append(what)

    def script(self, text, *arguments):
        return self.browser.execute_script(text, *arguments)

    def until(self, text, what, timeout=20):
        """Waits until a JavaScript expression is true."""
        end = time.monotonic() + timeout
        while not self.script(f"return !!({text})"):
            if time.monotonic() > end:
                self.expect(False, f"{what}: waited {timeout} s; the page shows: {self.script('return document.body.innerText')[:300]!r}")
                return
            time.sleep(0.05)
        self.done += 1

    def quiet(self, what):
        """Expects no message on the console, and no script of a sample."""
        entries = [entry["message"] for entry in self.browser.get_log("browser") if entry["level"] == "SEVERE"]
        # The pages say that a broken image is broken.
        entries = [entry for entry in entries if "blob:" not in entry]
        self.expect(not entries, f"{what}: {entries}")
        self.expect(ALARM not in self.browser.title, f"{what}: {ALARM}")

    def picture(self, name):
        """Expects a screenshot with content."""
        data = self.browser.get_screenshot_as_png()
        if self.folder:
            (self.folder / f"{name}.png").write_bytes(data)
        at, pixels = 8, b""
        while at < len(data):
            (length,) = struct.unpack(">I", data[at : at + 4])
            pixels += data[at + 8 : at + 8 + length] if data[at + 4 : at + 8] == b"IDAT" else b""
            at += length + 12
        self.expect(len(zlib.decompress(pixels)) > 0 and len(data) > 8000, f"{name}: the screenshot is blank ({len(data)} bytes)")

    def accessible(self, name):
        if not self.axe:
            return
        self.script(self.axe)
        found = self.browser.execute_async_script("axe.run(document).then(arguments[arguments.length - 1])")
        serious = [one for one in found["violations"] if one["impact"] in ("serious", "critical")]
        facts = [(one["id"], [node["html"][:120] for node in one["nodes"][:2]]) for one in serious]
        self.expect(not serious, f"{name}: {facts}")

    def settled(self, what):
        self.until("document.querySelector('main h1, main .grid') && ![...document.querySelectorAll('.status')].some(one => one.textContent)", what)


def check_pages(checks, view, name, pages=PAGES):
    browser = checks.browser
    browser.get(view.url)
    checks.settled(f"{name}: start")
    checks.expect("token" not in browser.current_url, f"{name}: the token stays in the address")
    column = checks.script("return document.querySelector('main table tbody th').textContent.trim()")
    for size, (width, height) in SIZES.items():
        browser.set_window_size(width, height)
        for scheme in ("light", "dark"):
            browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})
            for page in pages:
                if scheme == "dark" and page not in ("overview", "samples", "order?shuffle=true&step=1"):
                    continue
                checks.script("location.hash = arguments[0]", "#/" + page.replace("COLUMN", column))
                what = f"{name}-{size}-{scheme}-{page.split('=')[0].replace('?', '-')}{'-single' if '&at=' in page else ''}"
                time.sleep(0.15)
                checks.settled(what)
                checks.expect(not checks.script("return document.querySelector('main > .failed, main > article > .failed')"), f"{what}: an error")
                checks.expect(checks.script("return document.documentElement.scrollWidth <= innerWidth"), f"{what}: wider than the window")
                checks.picture(what)
                checks.accessible(what)
                checks.quiet(what)
    browser.set_window_size(*SIZES["wide"])


def check_samples(checks, view, name):
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    browser = checks.browser
    # A deep link, in a browser that has the cookie.
    browser.get(view.url.split("?")[0] + "#/samples?n=3")
    checks.settled(f"{name}: deep link")
    checks.until("document.querySelector('h1').textContent === 'Sample 3'", f"{name}: deep link")
    text = checks.script("return document.querySelector('main').innerText")
    checks.expect("<script>" in text, f"{name}: markup is shown as text")
    checks.expect("\\u{202e}" in text, f"{name}: control characters are visible")
    checks.expect("too large to show" in text, f"{name}: a huge image is not opened")
    checks.expect(len(text) < 600_000, f"{name}: a long text is cut, {len(text)}")
    body = browser.find_element(By.TAG_NAME, "body")
    body.send_keys(Keys.ARROW_RIGHT)
    checks.until("document.querySelector('h1').textContent === 'Sample 4'", f"{name}: right arrow")
    checks.until("document.querySelector('img.image')?.naturalWidth === 48", f"{name}: an image")
    checks.until("document.querySelector('audio')?.duration > 0", f"{name}: a sound")
    checks.until("document.querySelector('video')?.videoWidth === 16", f"{name}: a video")
    check_copy(checks, name)
    checks.until("document.querySelector('canvas.heat, .chart .line')", f"{name}: an array")
    checks.until("document.querySelector('.json summary')", f"{name}: JSON")
    body.send_keys(Keys.ESCAPE)
    checks.until("location.hash === '#/samples?from=4'", f"{name}: escape")
    checks.until("document.querySelector('.grid img.thumb')?.naturalWidth === 48", f"{name}: a thumbnail")
    body.send_keys("2")
    body.send_keys("/")
    checks.until("document.activeElement.matches('.jump input')", f"{name}: search key")
    browser.find_element(By.CSS_SELECTOR, ".jump input").send_keys("0042" + Keys.ENTER)
    checks.until("document.querySelector('h1')?.textContent.startsWith('Sample 42')", f"{name}: number")
    body.send_keys("4")
    checks.until("document.querySelector('main[data-page=shards] .map a')", f"{name}: page key")
    checks.quiet(f"{name}: samples")


def check_copy(checks, name):
    """The button copies the line, or selects it where the page may not write to the clipboard."""
    line = checks.script("return document.querySelector('.copy code').textContent")
    checks.script("document.querySelector('.copy button').click()")
    checks.until("document.querySelector('.copy button').textContent === 'Copied' || getSelection().toString()", f"{name}: copy")
    chosen = checks.script("return getSelection().toString()")
    checks.expect(line.startswith("shardmill ") and chosen in ("", line), f"{name}: copied {chosen!r}, not {line!r}")


def check_many(checks, view, name):
    """A million samples: few elements, the last sample, and a deep link to one in the middle."""
    checks.browser.get(view.url)
    checks.settled(f"{name}: start")
    checks.script("location.hash = '#/samples'")
    checks.until("document.querySelectorAll('.grid .tile:not(.loading)').length > 4", f"{name}: the first samples")
    checks.expect(checks.script("return document.querySelectorAll('.grid .tile').length") < 200, f"{name}: too many elements")
    checks.script("const grid = document.querySelector('.grid'); grid.scrollTop = grid.scrollHeight")
    last = "[...document.querySelectorAll('.grid .tile:not(.loading)')].at(-1)?.innerText"
    checks.until(f"{last}?.includes('999,999')", f"{name}: the last sample")
    checks.picture(f"{name}-end")
    checks.script("location.hash = '#/samples?n=654321'")
    checks.until("document.querySelector('main')?.innerText.includes('row 654321')", f"{name}: a deep link")
    checks.quiet(name)


def check_source(checks, view, name, pages):
    check_pages(checks, view, name, pages)
    check_bars(checks, name)
    # The view of a table is read in place in Python; that of a tree is for the command line.
    code = checks.script("return [...document.querySelectorAll('main .copy code')].map(one => one.textContent)")
    checks.expect(any("format='parquet', view='selection.view'" in line for line in code) == ("parquet" in name), f"{name}: {code}")
    checks.quiet(f"{name}: selection")
    # Requests of the last page may end with the server.
    checks.browser.get("about:blank")
    checks.browser.get_log("browser")


def check_bars(checks, name, column="cls", frequent="11 of 12"):
    """From a frequent value and from a bar to the samples that have it."""
    for element, found in ((".frequent a", frequent), (".chart a", "")):
        checks.script("location.hash = arguments[0]", f"#/columns?column={column}")
        checks.until(f"document.querySelector('{element}')", f"{name}: {element}")
        checks.script(f"document.querySelector('{element}').dispatchEvent(new MouseEvent('click', {{bubbles: true, cancelable: true}}))")
        checks.until(f"/^Matching samples 0 to {found}/m.test(document.querySelector('main').innerText)", f"{name}: samples of {element}")
    checks.until("document.querySelector('main .copy code')?.textContent.startsWith('shardmill select')", f"{name}: the command of a selection")


def check_selection(checks, view, name):
    """From a bar and from a frequent value to the samples that have it; a wrong condition."""
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    browser = checks.browser
    go = lambda page: checks.script("location.hash = arguments[0]", f"#/{page}")
    go("samples?where=__sample__+%25+3+%3D+1")
    checks.until("document.querySelector('.grid li:nth-child(2) .tile-number')?.textContent === '4'", f"{name}: numbers are kept")
    checks.until("document.querySelector('main .copy code')?.textContent.startsWith('shardmill select')", f"{name}: the command of a selection")
    browser.find_element(By.CSS_SELECTOR, ".grid li:nth-child(2) a").click()
    checks.until("document.querySelector('h1')?.textContent === 'Sample 4'", f"{name}: a sample of a selection")
    browser.find_element(By.TAG_NAME, "body").send_keys(Keys.ARROW_RIGHT)
    checks.until("document.querySelector('h1')?.textContent === 'Sample 7'", f"{name}: the next one of a selection")
    # The browser logs the answer of a refused condition; it is no error of the page.
    go("samples?where=nothing+%3D+1")
    checks.until("document.querySelector('main .failed')?.textContent.includes('no column `nothing`')", f"{name}: a wrong condition")
    browser.get_log("browser")
    check_bars(checks, name)
    go("live")
    checks.until("document.querySelector('main table td')", f"{name}: metrics")
    go("shards")
    checks.until("document.querySelector('main .map a')", f"{name}: map")
    checks.expect("shards are in" in checks.script("return document.querySelector('main').innerText"), f"{name}: shards of the cache")
    for button in browser.find_elements(By.XPATH, "//main//button[text()='Verify' or text()='Lint for all readers']"):
        button.click()
    checks.until("document.querySelector('main p.ok')?.textContent.startsWith('Every shard')", f"{name}: verdicts")
    checks.settled(f"{name}: verdicts")
    checks.picture(f"{name}-shards-verdicts")
    checks.accessible(f"{name}-shards-verdicts")
    checks.quiet(f"{name}: selection")


def check_refusals(checks, view, name):
    """The page of another browser, without the cookie."""
    checks.browser.delete_all_cookies()
    checks.browser.get(view.url.split("?")[0])
    text = checks.script("return document.body.innerText")
    checks.expect("token" in text and "caption" not in text, f"{name}: without the token: {text[:200]}")
    checks.browser.get_log("browser")


def check_exact(checks, program, place):
    """Values that a browser rounds: pages and reports show what `cat` prints."""
    (place / "exact").mkdir()
    rows = [
        '{"id": 9007199254740993, "big": 18446744073709551615, "one": 1.0, "list": [9007199254740993, -1], "json": NESTED}'.replace(
            "NESTED", '{"b": 1.0, "1": [18446744073709551616, "a   b"]}'
        ),
        '{"id": -9223372036854775808, "big": 1, "one": 1e300, "list": [1], "json": {"b": 2.50}}',
    ]
    (place / "exact/rows.jsonl").write_text("".join(f"{row}\n" for row in rows))
    location = str(place / "exact-mds")
    subprocess.run([program, "convert", str(place / "exact"), location, "--quiet"], check=True)
    printed = subprocess.run([program, "cat", location], capture_output=True, text=True, check=True).stdout.splitlines()
    report = place / "exact.html"
    subprocess.run([program, "view", location, "--export", str(report), "--quiet"], check=True)
    with View(program, location) as view:
        for name, url in (("exact", view.url), ("exact-report", report.as_uri())):
            checks.browser.get(url)
            checks.settled(f"{name}: start")
            check_exact_pages(checks, name, printed)
        for column, frequent in (("id", "-9223372036854775808"), ("big", "18446744073709551615")):
            checks.browser.get(view.url)
            checks.settled("exact: frequent")
            checks.script("location.hash = arguments[0]", f"#/columns?column={column}")
            link = f"[...document.querySelectorAll('.frequent a')].find(one => one.textContent === '{frequent}')"
            checks.until(link, f"exact: {frequent}")
            checks.script(f"{link}.click()")
            checks.until("/^Matching samples 0 to 0 of 1/m.test(document.querySelector('main').innerText)", f"exact: samples with {frequent}")
        checks.quiet("exact")
        checks.browser.get("about:blank")
        checks.browser.get_log("browser")


def check_exact_pages(checks, name, printed):
    go = lambda page: (checks.script("location.hash = arguments[0]", f"#/{page}"), time.sleep(0.15), checks.settled(f"{name}: {page}"))
    texts = {
        "id": ("9007199254740993", "-9223372036854775808"), "big": ("18446744073709551615", "1"), "one": ("1.0", "1e+300"),
        "list": ("9007199254740993, -1", "1"),
    }
    for number, line in enumerate(printed):
        go(f"samples?n={number}")
        checks.script("for (let n = 0; n < 9; n++) document.querySelectorAll('details:not([open]) > summary').forEach(one => one.click())")
        checks.until("!document.querySelector('details:not([open])')", f"{name}: opened JSON")
        shown = lambda field: checks.script("return document.querySelector(`main [aria-label='${arguments[0]}']`).innerText", field)
        for field, values in texts.items():
            checks.expect(values[number] in shown(field).splitlines(), f"{name}: {field} {values[number]}: {shown(field)!r}")
            checks.expect(values[number].replace(", ", ",") in line, f"{name}: cat prints another {field}: {line}")
        leaves = (["b: 1.0", "1: [2]", "0: 18446744073709551616", '1: "a   b"'], ["b: 2.50"])[number]
        checks.expect([text for text in shown("json").splitlines() if ": " in text] == leaves, f"{name}: json: {shown('json')!r}")
    go("samples")
    checks.until("document.querySelector('.grid .tile:not(.loading)')", f"{name}: grid")
    grid = checks.script("return document.querySelector('.grid').innerText")
    for text in ("9007199254740993", "1.0", "18446744073709551615", "9007199254740993, -1", '{"b":1.0,"1":[18446744073709551616,"a   b"]}'):
        checks.expect(text in grid, f"{name}: grid: {text}: {grid!r}")
    go("columns")
    columns = checks.script("return document.querySelector('main').innerText")
    for text in ("-9223372036854775808 to 9007199254740993", "1 to 18446744073709551615", "1.0 to 1e+300", "18446744073709551616"):
        checks.expect(text in columns, f"{name}: columns: {text}: {columns!r}")


def check_report(checks, program, location, place):
    file = place / "report.html"
    subprocess.run([program, "view", location, "--export", str(file), "--quiet"], check=True)
    checks.browser.get(file.as_uri())
    for page in ("overview", "samples", "samples?n=4", "columns", "shards"):
        checks.script("location.hash = arguments[0]", f"#/{page}")
        time.sleep(0.15)
        checks.settled(f"report: {page}")
        checks.picture(f"report-{page.split('=')[0].replace('?', '-')}")
    checks.script("location.hash = '#/samples?n=4'")
    checks.until("document.querySelector('img.image')?.naturalWidth === 48", "report: an image")
    checks.quiet("report")


def main():
    program = sys.argv[1]
    folder = Path(sys.argv[2]) if len(sys.argv) > 2 else None
    if folder:
        folder.mkdir(parents=True, exist_ok=True)
    missing = [name for name in ("chromium", "chromedriver") if not shutil.which(name)]
    try:
        browser = None if missing else open_browser()
    except ModuleNotFoundError as error:
        missing = [error.name]
    if missing:
        print(f"skipped: {', '.join(missing)} not installed")
        return
    checks = Checks(browser, folder)
    try:
        with tempfile.TemporaryDirectory() as place:
            place = Path(place)
            write_tree(place / "tree")
            endpoint = http.server.HTTPServer(("127.0.0.1", 0), Metrics)
            threading.Thread(target=endpoint.serve_forever, daemon=True).start()
            options = ["--metrics", f"http://127.0.0.1:{endpoint.server_port}/metrics"]
            for form in ("webdataset", "mds"):
                location = str(place / form)
                subprocess.run([program, "convert", str(place / "tree"), location, "--to", form, "--samples-per-shard", "16", "--quiet"], check=True)
                with View(program, location, "--cache", location, *options) as view:
                    check_pages(checks, view, form)
                    check_selection(checks, view, form)
                    check_samples(checks, view, form)
                    check_refusals(checks, view, form)
            with View(program, str(place / "tree")) as view:
                check_source(checks, view, "tree", SOURCE_PAGES)
            (place / "many").mkdir()
            rows = "".join(f"{number},row {number}\n" for number in range(1_000_000))
            (place / "many/rows.csv").write_text("id,text\n" + rows)
            subprocess.run([program, "convert", str(place / "many"), str(place / "million"), "--quiet"], check=True)
            parquet = str(place / "parquet")
            subprocess.run([program, "convert", str(place / "tree"), parquet, "--to", "parquet", "--quiet"], check=True)
            with View(program, parquet) as view:
                check_source(checks, view, "parquet", SOURCE_PAGES)
            # Dates and booleans, whose bars have other conditions than those of numbers.
            (place / "days").mkdir()
            (place / "days/rows.csv").write_text("day\n" + "".join(f"2026-01-0{1 + number % 7}\n" for number in range(70)))
            select = "CAST(day AS DATE) AS day, day = '2026-01-01' AS first"
            words = [program, "convert", str(place / "days"), str(place / "table"), "--to", "parquet", "--select", select, "--quiet"]
            subprocess.run(words, check=True)
            with View(program, str(place / "table")) as view:
                browser.get(view.url)
                checks.settled("days: start")
                check_bars(checks, "days: day", "day", "9 of 10")
                check_bars(checks, "days: first", "first", "23 of 60")
                checks.quiet("days")
                browser.get("about:blank")
                browser.get_log("browser")
            with Store(program, place) as store:
                for form in ("webdataset", "mds", "million", "parquet", "tree"):
                    with View(program, f"s3://bucket/{form}", env=store.env) as view:
                        if form == "million":
                            check_many(checks, view, form)
                        else:
                            pages = SOURCE_PAGES if form in ("parquet", "tree") else STORE_PAGES
                            check_pages(checks, view, f"store-{form}", pages)
                        browser.get("about:blank")
                        browser.get_log("browser")
            check_exact(checks, program, place)
            check_report(checks, program, location, place)
    finally:
        browser.quit()
    if checks.problems:
        sys.exit("\n".join(checks.problems))
    print(f"{checks.done} checks, no problem{'' if checks.axe else '; accessibility not checked: axe-core is not installed'}")


if __name__ == "__main__":
    main()
