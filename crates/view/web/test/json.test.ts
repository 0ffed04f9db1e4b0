import assert from "node:assert/strict";
import test from "node:test";
import { parseExact, parseTree } from "../src/json";

test("numbers, keys and strings stay as they are written", () => {
	const text = '{"b":9007199254740993,"1":[1.0,-0.0,1e400,"a  \\u00e9\\"]}"],"b":{},"":[true,null]}';
	const tree = parseTree(text);
	assert.deepEqual(tree, {
		isArray: false,
		members: [
			["b", "9007199254740993"],
			[
				"1",
				{
					isArray: true,
					members: [
						["0", "1.0"],
						["1", "-0.0"],
						["2", "1e400"],
						["3", '"a  \\u00e9\\"]}"'],
					],
				},
			],
			["b", { isArray: false, members: [] }],
			[
				"",
				{
					isArray: true,
					members: [
						["0", "true"],
						["1", "null"],
					],
				},
			],
		],
	});
	assert.equal(parseTree(" 1.0 "), "1.0");
});

test("text that is not JSON is an error", () => {
	for (const text of ["", "{", "NaN", "[1,]", "{'a':1}"]) assert.throws(() => parseTree(text), text);
	assert.throws(() => parseExact("1 2"));
});

test("deep JSON is parsed", () => {
	const deep = 10_000;
	assert.notEqual(typeof parseTree("[".repeat(deep) + "]".repeat(deep)), "string");
});

test("only numbers that are written otherwise become text", () => {
	assert.deepEqual(parseExact('{"a":[1,1.0,0.5,18446744073709551615,1e300],"b":"1.0","c":null}'), {
		a: [1, "1.0", 0.5, "18446744073709551615", "1e300"],
		b: "1.0",
		c: null,
	});
});
