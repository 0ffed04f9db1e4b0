// test/format.test.ts
import assert from "node:assert/strict";
import test from "node:test";

// src/format.ts
function bytes(count) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let unit = 0;
  let value = count;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${unit === 0 ? value : value.toFixed(1)} ${units[unit]}`;
}
var INVISIBLE = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;
function visible(text) {
  return text.replace(INVISIBLE, (character) => `\\u{${character.charCodeAt(0).toString(16)}}`);
}
function hexDump(digits) {
  const lines = [];
  for (let at = 0; at < digits.length; at += 32) {
    const pairs = digits.slice(at, at + 32).match(/../g) ?? [];
    const ascii = pairs.map((pair) => {
      const code = Number.parseInt(pair, 16);
      return code >= 32 && code < 127 ? String.fromCharCode(code) : ".";
    });
    const offset = (at / 2).toString(16).padStart(8, "0");
    lines.push(`${offset}  ${pairs.join(" ").padEnd(47)}  ${ascii.join("")}`);
  }
  return lines.join("\n");
}
function quoted(word) {
  return /^[\w./:@%+,-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}
function pythonText(text) {
  const escaped = text.replaceAll("\\", "\\\\").replaceAll("'", "\\'");
  return `'${escaped.replace(INVISIBLE, (character) => `\\x${character.charCodeAt(0).toString(16).padStart(2, "0")}`).replaceAll("\n", "\\n").replaceAll("	", "\\t")}'`;
}
function pythonDataset(location, more = {}) {
  const source = location.includes("://") ? "remote" : "local";
  return `shardmill.StreamingDataset(${source}=${pythonText(location)}${pythonArguments(more)})`;
}
function pythonArguments(values) {
  return Object.entries(values).map(([name, value]) => {
    const text = typeof value === "boolean" ? value ? "True" : "False" : typeof value === "number" ? String(value) : pythonText(value);
    return `, ${name}=${text}`;
  }).join("");
}
function parseRoute(hash) {
  const [path = "", query = ""] = hash.replace(/^#\/?/, "").split("?");
  return { page: path || "overview", values: new URLSearchParams(query) };
}
function routeText(page, values = {}) {
  const pairs = Object.entries(values).filter(([, value]) => value !== void 0 && value !== "" && value !== false);
  const query = new URLSearchParams(pairs.map(([name, value]) => [name, String(value)])).toString();
  return `#/${page}${query ? `?${query}` : ""}`;
}
var MOST_PIXELS = 8e6;
function visibleRows(rows, rowHeight, height, scrollTop) {
  const full = rows * rowHeight;
  const area = Math.min(full, MOST_PIXELS);
  const most = Math.max(area - height, 0);
  const scrolled = Math.min(Math.max(scrollTop, 0), most);
  const pixel = most > 0 ? scrolled / most * Math.max(full - height, 0) : 0;
  const first = Math.floor(pixel / rowHeight);
  const last = Math.min(rows, Math.ceil((pixel + height) / rowHeight) + 1);
  return { first, last, top: scrolled - (pixel - first * rowHeight) };
}
function scrollOf(row, rows, rowHeight, height) {
  const full = rows * rowHeight;
  const area = Math.min(full, MOST_PIXELS);
  const reach = Math.max(full - height, 0);
  return reach > 0 ? Math.min(row * rowHeight, reach) / reach * Math.max(area - height, 0) : 0;
}
function shardOf(sample, firsts) {
  let [low, high] = [0, firsts.length];
  while (high - low > 1) {
    const middle = low + high >> 1;
    if ((firsts[middle] ?? 0) <= sample) low = middle;
    else high = middle;
  }
  return low;
}

// test/format.test.ts
test("sizes have binary units", () => {
  assert.equal(bytes(0), "0 B");
  assert.equal(bytes(1023), "1023 B");
  assert.equal(bytes(1536), "1.5 KiB");
  assert.equal(bytes(3 * 1024 ** 4), "3.0 TiB");
});
test("characters that hide or reorder text are visible", () => {
  assert.equal(visible("a\u202Eb\0c\n	d"), "a\\u{202e}b\\u{0}c\n	d");
});
test("bytes are lines of sixteen", () => {
  const dump = hexDump("48692100".padEnd(34, "f"));
  assert.deepEqual(dump.split("\n").length, 2);
  assert.match(dump, /^00000000 {2}48 69 21 00 ff/);
  assert.match(dump, /Hi!\.\.\./);
  assert.match(dump, /\n00000010 {2}ff {45} {2}\.$/);
});
test("texts are quoted for Python and the shell", () => {
  assert.equal(pythonText("a'b\\\n\0"), "'a\\'b\\\\\\n\\x00'");
  assert.equal(quoted("s3://bucket/a"), "s3://bucket/a");
  assert.equal(quoted("it's; rm"), "'it'\\''s; rm'");
  assert.equal(
    pythonDataset("s3://a/b", { shuffle: true, batch_size: 2 }),
    "shardmill.StreamingDataset(remote='s3://a/b', shuffle=True, batch_size=2)"
  );
});
test("addresses name pages and values", () => {
  const route = parseRoute("#/samples?n=5");
  assert.equal(route.page, "samples");
  assert.equal(route.values.get("n"), "5");
  assert.equal(parseRoute("").page, "overview");
  assert.equal(routeText("samples", { n: 5, from: void 0 }), "#/samples?n=5");
});
test("a short list is scrolled exactly", () => {
  assert.deepEqual(visibleRows(100, 200, 600, 450), { first: 2, last: 7, top: 400 });
  assert.deepEqual(visibleRows(2, 200, 600, 0), { first: 0, last: 2, top: 0 });
  assert.deepEqual(visibleRows(0, 200, 600, 0), { first: 0, last: 0, top: 0 });
});
test("every row of a long list can be reached", () => {
  const [rows, rowHeight, height] = [1e6, 200, 600];
  for (const row of [0, 1, 12345, 5e5, rows - 3]) {
    const shown = visibleRows(rows, rowHeight, height, scrollOf(row, rows, rowHeight, height));
    assert.ok(shown.first <= row && row < shown.last, `${row}: ${shown.first}..${shown.last}`);
  }
  const end = visibleRows(rows, rowHeight, height, MOST_PIXELS);
  assert.equal(end.last, rows);
});
test("the shard of a sample is found by halving", () => {
  const firsts = [0, 10, 10, 25];
  assert.deepEqual(
    [0, 9, 10, 24, 25, 99].map((sample) => shardOf(sample, firsts)),
    [0, 0, 2, 2, 3, 3]
  );
});
