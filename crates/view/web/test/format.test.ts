import assert from "node:assert/strict";
import test from "node:test";
import * as format from "../src/format";

test("sizes have binary units", () => {
	assert.equal(format.bytes(0), "0 B");
	assert.equal(format.bytes(1023), "1023 B");
	assert.equal(format.bytes(1536), "1.5 KiB");
	assert.equal(format.bytes(3 * 1024 ** 4), "3.0 TiB");
});

test("characters that hide or reorder text are visible", () => {
	assert.equal(format.visible("a\u202eb\u0000c\n\td"), "a\\u{202e}b\\u{0}c\n\td");
});

test("bytes are lines of sixteen", () => {
	const dump = format.hexDump("48692100".padEnd(34, "f"));
	assert.deepEqual(dump.split("\n").length, 2);
	assert.match(dump, /^00000000 {2}48 69 21 00 ff/);
	assert.match(dump, /Hi!\.\.\./);
	assert.match(dump, /\n00000010 {2}ff {45} {2}\.$/);
});

test("texts are quoted for Python and the shell", () => {
	assert.equal(format.pythonText("a'b\\\n\u0000"), "'a\\'b\\\\\\n\\x00'");
	assert.equal(format.quoted("s3://bucket/a"), "s3://bucket/a");
	assert.equal(format.quoted("it's; rm"), "'it'\\''s; rm'");
	assert.equal(
		format.pythonDataset({ location: "s3://a/b", view: null, format: null }, { shuffle: true, batch_size: 2n ** 60n }),
		"shardmill.StreamingDataset(remote='s3://a/b', shuffle=True, batch_size=1152921504606846976)",
	);
	assert.equal(
		format.pythonDataset({ location: "a", view: "b.view", format: null }),
		"shardmill.StreamingDataset(local='a', view='b.view')",
	);
});

test("addresses name pages and values", () => {
	const route = format.parseRoute("#/samples?n=5");
	assert.equal(route.page, "samples");
	assert.equal(route.values.get("n"), "5");
	assert.equal(format.parseRoute("").page, "overview");
	assert.equal(format.routeText("samples", { n: 5, from: undefined }), "#/samples?n=5");
});

test("a short list is scrolled exactly", () => {
	assert.deepEqual(format.visibleRows(100, 200, 600, 450), { first: 2, last: 7, top: 400 });
	assert.deepEqual(format.visibleRows(2, 200, 600, 0), { first: 0, last: 2, top: 0 });
	assert.deepEqual(format.visibleRows(0, 200, 600, 0), { first: 0, last: 0, top: 0 });
});

test("every row of a long list can be reached", () => {
	const [rows, rowHeight, height] = [1_000_000, 200, 600];
	for (const row of [0, 1, 12_345, 500_000, rows - 3]) {
		const shown = format.visibleRows(rows, rowHeight, height, format.scrollOf(row, rows, rowHeight, height));
		assert.ok(shown.first <= row && row < shown.last, `${row}: ${shown.first}..${shown.last}`);
	}
	const end = format.visibleRows(rows, rowHeight, height, format.MOST_PIXELS);
	assert.equal(end.last, rows);
});

test("the shard of a sample is found by halving", () => {
	const firsts = [0, 10, 10, 25];
	assert.deepEqual(
		[0, 9, 10, 24, 25, 99].map((sample) => format.shardOf(sample, firsts)),
		[0, 0, 2, 2, 3, 3],
	);
});

test("tables are opened by their format", () => {
	const table = { location: "t", view: null, format: "parquet" };
	assert.equal(
		format.pythonDataset(table, { view: "a.view" }),
		"shardmill.StreamingDataset(local='t', format='parquet', view='a.view')",
	);
});

test("bins and values become SQL conditions", () => {
	assert.equal(format.binCondition('a"b', "int64", "value", 0, 8), '"a""b" >= 0 AND "a""b" < 8');
	assert.equal(
		format.binCondition("t", "str", "characters", 2, 4),
		'character_length("t") >= 2 AND character_length("t") < 4',
	);
	const text = 'CAST("n" AS VARCHAR)';
	const number = `CAST(${text} AS DOUBLE)`;
	assert.equal(format.binCondition("n", "Binary", "value", 0, 8), `${number} >= 0 AND ${number} < 8`);
	assert.equal(format.valueCondition("n", "Binary", "3"), `${text} = '3'`);
	const bytes = "octet_length(encode(\"b\", 'hex')) / 2";
	assert.equal(format.binCondition("b", "png", "bytes", 1, 2), `${bytes} >= 1 AND ${bytes} < 2`);
	assert.equal(format.binCondition("t", "ndarray", "items", 2, 4), undefined);
	assert.equal(format.valueCondition("n", "Int64", "-3"), '"n" = -3');
	assert.equal(format.valueCondition("n", "Utf8", "3"), "\"n\" = '3'");
	assert.equal(format.valueCondition("n", "Int64", "3 OR true"), "CAST(\"n\" AS VARCHAR) = '3 OR true'");
	assert.equal(format.valueCondition("t", "Utf8", "it's"), "\"t\" = 'it''s'");
	assert.equal(format.valueCondition("t", "Utf8", null), '"t" IS NULL');
	assert.equal(format.valueCondition("b", "Boolean", "true"), '"b" = true');
	assert.equal(format.valueCondition("f", "Float32", "0.1"), '"f" = CAST(0.1 AS REAL)');
	assert.equal(format.valueCondition("d", "Decimal128(5, 2)", "1.50"), "CAST(\"d\" AS VARCHAR) = '1.50'");
	assert.equal(format.valueCondition("c", "Dictionary(Int32, Utf8)", "3"), "\"c\" = '3'");
	assert.equal(format.valueCondition("l", "List(Int64)", "[1]"), undefined);
	assert.equal(
		format.valueCondition("t", "Timestamp(µs)", "2026-01-31T12:00:00"),
		"CAST(\"t\" AS VARCHAR) = '2026-01-31T12:00:00'",
	);
	const [from, to] = ["2026-01-31", "2026-02-01"];
	assert.equal(format.binCondition("t", "Date32", "value", from, to), `"t" >= '${from}' AND "t" < '${to}'`);
	const flag = 'CAST("b" AS INT)';
	assert.equal(format.binCondition("b", "Boolean", "value", 0, 1), `${flag} >= 0 AND ${flag} < 1`);
	const wide = (text: string) => `CAST('${text}' AS DECIMAL(38, 0))`;
	const [most, end] = ["18446744073709551615", "18446744073709551616"];
	assert.equal(format.binCondition("i", "UInt64", "value", 0, end), `"i" >= 0 AND "i" < ${wide(end)}`);
	assert.equal(format.valueCondition("i", "UInt64", most), `"i" = ${wide(most)}`);
	assert.equal(format.binCondition("f", "Float64", "value", "-1.0", "1e+300"), '"f" >= -1.0 AND "f" < 1e+300');
	assert.equal(format.valueCondition("f", "Float64", "1e300"), '"f" = 1e300');
	assert.equal(format.valueCondition("f", "float32", "NaN"), "\"f\" = CAST('NaN' AS REAL)");
	assert.equal(format.valueCondition("f", "Float64", "-Infinity"), "\"f\" = CAST('-Infinity' AS DOUBLE)");
	assert.equal(
		format.binCondition("d", "Decimal128(5, 2)", "value", "1.50", "2.00"),
		"\"d\" >= '1.50' AND \"d\" < '2.00'",
	);
});

test("metrics have their types", () => {
	const text = '# TYPE a counter\n# HELP a Words.\na_total{rank="0"} 3\nb 1.5\nnothing\n# EOF\n';
	const found = format.parseMetrics(text);
	assert.deepEqual(found.get('a_total{rank="0"}'), { value: 3, text: "3", type: "counter", help: "Words." });
	assert.deepEqual(found.get("b"), { value: 1.5, text: "1.5", type: "untyped", help: "" });
	assert.equal(found.size, 2);
});
