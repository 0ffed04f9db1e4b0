// Texts of numbers, bytes, addresses and command lines. Pure functions.

/** Formats a size as `shardmill` does: binary units with one decimal. */
export function bytes(count: number): string {
	const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
	let unit = 0;
	let value = count;
	while (value >= 1024 && unit < units.length - 1) {
		value /= 1024;
		unit += 1;
	}
	return `${unit === 0 ? value : value.toFixed(1)} ${units[unit]}`;
}

/** Groups the digits of a whole number. */
export function count(value: number): string {
	return value.toLocaleString("en-US");
}

/** Formats a measured number with at most `digits` significant digits. Values of a dataset are never rounded. */
export function short(value: number, digits = 5): string {
	if (Number.isInteger(value) && Math.abs(value) < 1e9) return count(value);
	const text = value.toPrecision(digits);
	return text.includes("e") ? text : String(Number(text));
}

export function seconds(value: number): string {
	if (value < 60) return `${short(value, 3)} s`;
	if (value < 7200) return `${short(value / 60, 3)} min`;
	return `${short(value / 3600, 3)} h`;
}

export function percent(part: number, whole: number): string {
	return whole > 0 ? `${((100 * part) / whole).toFixed(1)} %` : "0 %";
}

// Control characters other than tab and line feed, and characters that reorder or hide text.
const INVISIBLE = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;

/** Makes characters visible that could hide or reorder a text. */
export function visible(text: string): string {
	return text.replace(INVISIBLE, (character) => `\\u{${character.charCodeAt(0).toString(16)}}`);
}

/** Formats hexadecimal digits as lines of 16 bytes with their offsets and their ASCII characters. */
export function hexDump(digits: string): string {
	const lines: string[] = [];
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

/** Quotes a word for a shell. */
export function quoted(word: string): string {
	return /^[\w./:@%+,-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}

/** Formats a text as a Python string. */
export function pythonText(text: string): string {
	const escaped = text.replaceAll("\\", "\\\\").replaceAll("'", "\\'");
	return `'${escaped
		.replace(INVISIBLE, (character) => `\\x${character.charCodeAt(0).toString(16).padStart(2, "0")}`)
		.replaceAll("\n", "\\n")
		.replaceAll("\t", "\\t")}'`;
}

/** The dataset that the page shows, and the file of a view of it. */
export interface Shown {
	location: string;
	view: string | null;
	/** The `format` of a table that Python reads in place. */
	format: string | null;
}

/** Returns the expression that opens the dataset in Python. */
export function pythonDataset(shown: Shown, more: PythonArguments = {}): string {
	const source = shown.location.includes("://") ? "remote" : "local";
	const format: Record<string, string> = shown.format === null ? {} : { format: shown.format };
	const values = { ...format, ...pythonView(shown), ...more };
	return `shardmill.StreamingDataset(${source}=${pythonText(shown.location)}${pythonArguments(values)})`;
}

/** Returns the argument with the view, if there is one. */
export function pythonView(shown: Shown): Record<string, string> {
	return shown.view === null ? {} : { view: shown.view };
}

export type PythonArguments = Record<string, string | number | bigint | boolean>;

/** Formats keyword arguments, each after a comma. */
export function pythonArguments(values: PythonArguments): string {
	return Object.entries(values)
		.map(([name, value]) => {
			const text =
				typeof value === "boolean"
					? value
						? "True"
						: "False"
					: typeof value === "string"
						? pythonText(value)
						: String(value);
			return `, ${name}=${text}`;
		})
		.join("");
}

/** Quotes the name of a column for SQL. */
export function sqlName(column: string): string {
	return `"${column.replaceAll('"', '""')}"`;
}

/** The SQL functions that measure a value, by what a histogram shows. */
const MEASURES: Record<string, (name: string) => string> = {
	value: (name) => name,
	characters: (name) => `character_length(${name})`,
	// The engine measures texts only.
	bytes: (name) => `octet_length(encode(${name}, 'hex')) / 2`,
};

/** The type of a column as an SQL condition treats it. */
function sqlType(type: string): "number" | "boolean" | "text" | "bytes" | "time" | "other" | "list" {
	if (/^(u?int|float|double|decimal)/i.test(type)) return "number";
	if (/^(large)?(list|map|struct)|^fixedsizelist/i.test(type)) return "list";
	if (/^(timestamp|date|time|duration)/i.test(type)) return "time";
	if (/^bool/i.test(type)) return "boolean";
	if (/^(large)?(utf8|str)/i.test(type)) return "text";
	return /binary/i.test(type) ? "bytes" : "other";
}

/** Fields of tar shards are bytes: numbers and texts in them are converted. */
function sqlText(column: string, type: string): string {
	const name = /^fixed/i.test(type) ? `CAST(${sqlName(column)} AS BYTEA)` : sqlName(column);
	return sqlType(type) === "bytes" ? `CAST(${name} AS VARCHAR)` : sqlName(column);
}

function sqlString(text: string): string {
	return `'${text.replaceAll("'", "''")}'`;
}

/** Returns a number as SQL reads it exactly: one beyond 2^53 may be no literal of its type. */
function sqlNumber(text: string): string {
	const isExact = !/^-?\d+$/.test(text) || Number.isSafeInteger(Number(text));
	return isExact ? text : `CAST('${text}' AS DECIMAL(38, 0))`;
}

/** Returns the SQL condition of a bin, which begins at `from` and ends before `to`. Lists have none. */
export function binCondition(
	column: string,
	type: string,
	measure: string,
	from: number | string,
	to: number | string,
): string | undefined {
	// What is not a number in the column becomes the number that the histogram shows.
	const cast = measure === "value" && { bytes: "DOUBLE", boolean: "INT" }[sqlType(type) as string];
	const name = measure === "bytes" ? sqlName(column) : sqlText(column, type);
	const value = MEASURES[measure]?.(cast ? `CAST(${name} AS ${cast})` : name);
	const isText = measure === "value" && (sqlType(type) === "time" || /^decimal/i.test(type));
	const [first, end] = [from, to].map((bound) => (isText ? sqlString(String(bound)) : sqlNumber(String(bound))));
	return value ? `${value} >= ${first} AND ${value} < ${end}` : undefined;
}

/** Returns the SQL condition of a value, or of the missing value. Lists have none. */
export function valueCondition(column: string, type: string, text: string | null): string | undefined {
	const kind = sqlType(type);
	if (text === null) return `${sqlName(column)} IS NULL`;
	if (kind === "list") return undefined;
	const isSpecial = /^float/i.test(type) && /^(NaN|-?Infinity)$/.test(text);
	const isNumber = kind === "number" && /^-?\d+(\.\d+)?(e[+-]?\d+)?$/i.test(text);
	// As a number, 0.1 has more digits than the stored one.
	if (isNumber && /^float(16|32)/i.test(type)) return `${sqlName(column)} = CAST(${text} AS REAL)`;
	if (isSpecial) return `${sqlName(column)} = CAST('${text}' AS ${/^float(16|32)/i.test(type) ? "REAL" : "DOUBLE"})`;
	if (isNumber && !/^decimal/i.test(type)) return `${sqlName(column)} = ${sqlNumber(text)}`;
	if (kind === "boolean" && /^(true|false)$/.test(text)) return `${sqlName(column)} = ${text}`;
	const name = kind === "time" || kind === "number" ? `CAST(${sqlName(column)} AS VARCHAR)` : sqlText(column, type);
	return `${name} = ${sqlString(text)}`;
}

/** A value of a metric of Prometheus. */
export interface Metric {
	value: number;
	/** The value as it is written. */
	text: string;
	type: string;
	help: string;
}

/** Parses the text format of Prometheus: the values by their names and labels. Lines of other forms are ignored. */
export function parseMetrics(text: string): Map<string, Metric> {
	const found = new Map<string, Metric>();
	const types = new Map<string, string>();
	const helps = new Map<string, string>();
	for (const line of text.split("\n")) {
		const about = /^# (TYPE|HELP) (\S+) (.*)$/.exec(line);
		if (about) (about[1] === "TYPE" ? types : helps).set(about[2] ?? "", about[3] ?? "");
		const sample = /^([A-Za-z_:][\w:]*)(\{.*\})? (\S+)/.exec(line);
		const text = sample?.[3] ?? "NaN";
		const value = Number(text);
		if (!sample || Number.isNaN(value)) continue;
		const name = sample[1] ?? "";
		const family = types.has(name) ? name : name.replace(/_total$/, "");
		const known = { type: types.get(family) ?? "untyped", help: helps.get(family) ?? "" };
		found.set(`${name}${sample[2] ?? ""}`, { value, text, ...known });
	}
	return found;
}

/** The page and the values of an address such as `#/samples?n=5`. */
export interface Route {
	page: string;
	values: URLSearchParams;
}

export function parseRoute(hash: string): Route {
	const [path = "", query = ""] = hash.replace(/^#\/?/, "").split("?");
	return { page: path || "overview", values: new URLSearchParams(query) };
}

export function routeText(page: string, values: Record<string, string | number | boolean | undefined> = {}): string {
	const pairs = Object.entries(values).filter(([, value]) => value !== undefined && value !== "" && value !== false);
	const query = new URLSearchParams(pairs.map(([name, value]) => [name, String(value)])).toString();
	return `#/${page}${query ? `?${query}` : ""}`;
}

/** Which rows of a long list are visible. */
export interface Window {
	first: number;
	last: number;
	/** Where the first of them is, in pixels from the start of the scrolled area. */
	top: number;
}

/** The tallest element that browsers lay out exactly. */
export const MOST_PIXELS = 8_000_000;

/**
 * Returns the visible rows of a list. A list that is taller than a browser can lay out is scrolled in proportion: the
 * scrolled area has `MOST_PIXELS`, and the position in it selects the row.
 */
export function visibleRows(rows: number, rowHeight: number, height: number, scrollTop: number): Window {
	const full = rows * rowHeight;
	const area = Math.min(full, MOST_PIXELS);
	const most = Math.max(area - height, 0);
	const scrolled = Math.min(Math.max(scrollTop, 0), most);
	const pixel = most > 0 ? (scrolled / most) * Math.max(full - height, 0) : 0;
	const first = Math.floor(pixel / rowHeight);
	const last = Math.min(rows, Math.ceil((pixel + height) / rowHeight) + 1);
	return { first, last, top: scrolled - (pixel - first * rowHeight) };
}

/** Returns the scroll position that shows a row at the top. */
export function scrollOf(row: number, rows: number, rowHeight: number, height: number): number {
	const full = rows * rowHeight;
	const area = Math.min(full, MOST_PIXELS);
	const reach = Math.max(full - height, 0);
	return reach > 0 ? (Math.min(row * rowHeight, reach) / reach) * Math.max(area - height, 0) : 0;
}

/** Returns the shard of a sample, from the first samples of the shards. */
export function shardOf(sample: number, firsts: number[]): number {
	let [low, high] = [0, firsts.length];
	while (high - low > 1) {
		const middle = (low + high) >> 1;
		if ((firsts[middle] ?? 0) <= sample) low = middle;
		else high = middle;
	}
	return low;
}
