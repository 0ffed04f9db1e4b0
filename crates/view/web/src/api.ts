// Requests to the server, or the data of an exported report.

import { parseExact } from "./json";

export interface Failure {
	id?: string;
	object?: string | null;
	message: string;
	hint?: string | null;
	docs?: string;
}

export interface Field {
	name: string;
	encoding: string;
	bytes: number;
	kind: "text" | "json" | "number" | "array" | "image" | "audio" | "video" | "bytes";
	text?: string;
	truncated?: boolean;
	note?: string;
	error?: string;
	hex?: string;
	mime?: string;
	width?: number;
	height?: number;
	mode?: string;
	images?: number;
	images_stored?: number;
	dtype?: string;
	shape?: number[];
	min?: number | null;
	max?: number | null;
	/** The extremes, the mean and the first numbers of an array, as exact text. */
	range?: [string, string] | null;
	mean?: string | null;
	items?: string;
	items_truncated?: boolean;
	not_finite?: number;
	sampled?: boolean;
	rows?: number;
	columns?: number;
	values?: (number | null)[];
	/** The text of token ids. */
	decoded?: string;
}

export interface Sample {
	number: number;
	shard?: number;
	file?: string;
	at?: number;
	fields?: Field[];
	error?: Failure;
}

export interface Facts {
	location: string;
	samples: number;
	shards: number;
	options: string[];
	version: string;
	kind: "dataset" | "tars" | "source";
	/** The `format` of a table that Python reads in place. */
	format: string | null;
	view: string | null;
	cache: string | null;
	metrics: string | null;
}

/** What a command printed. */
export interface Ran<T> {
	command: string;
	exit_code: number;
	output: T[];
	errors: { error?: Failure; warning?: Failure }[];
}

interface Report {
	dataset: Facts;
	/** The answers of commands by their names, as the server sends them. */
	ran: Record<string, string>;
	samples: Sample[];
	media: Record<string, string>;
}

/** An answer that is an error, in the words of the command line. */
export class Refused extends Error {
	constructor(readonly failure: Failure) {
		super(failure.message);
	}
}

export type Query = Record<string, string | number | boolean | undefined>;

let token: string | null = null;
let report: Report | null = null;

/** Reads the token from the address and removes it there, so that it is not copied or bookmarked by accident. */
export function begin(): void {
	report = JSON.parse(document.getElementById("report")?.textContent ?? "null");
	const given = new URLSearchParams(location.search).get("token");
	if (given) {
		token = given;
		history.replaceState(null, "", location.pathname + location.hash);
	}
}

export function isReport(): boolean {
	return report !== null;
}

function headers(): HeadersInit {
	return token ? { Authorization: `Bearer ${token}` } : {};
}

export function queryText(query: Query): string {
	const pairs = Object.entries(query).filter(([, value]) => value !== undefined && value !== "" && value !== false);
	return new URLSearchParams(pairs.map(([name, value]) => [name, String(value)])).toString();
}

async function request(path: string, query: Query, signal?: AbortSignal): Promise<Response> {
	let response: Response;
	try {
		response = await fetch(`/api/${path}?${queryText(query)}`, { headers: headers(), signal });
	} catch (error) {
		if (signal?.aborted) throw error;
		throw new Refused({ message: "the server does not answer; is `shardmill view` still running?" });
	}
	if (!response.ok) {
		const body = await response.json().catch(() => null);
		throw new Refused(body?.error ?? { message: `the server answered ${response.status}` });
	}
	return response;
}

async function get<T>(path: string, query: Query, signal?: AbortSignal): Promise<T> {
	return (await request(path, query, signal)).json();
}

export async function facts(signal?: AbortSignal): Promise<Facts> {
	return report ? report.dataset : get("dataset", {}, signal);
}

/** Returns consecutive samples: of all, or of those that meet the condition `where`. */
export async function samples(
	from: number,
	count: number,
	full: boolean,
	where: string,
	signal?: AbortSignal,
): Promise<Sample[]> {
	if (report) return report.samples.slice(from, from + count);
	const found = await get<{ samples: Sample[] }>("samples", { from, count, full, where }, signal);
	return found.samples;
}

/** The samples that meet a condition. */
export interface Selected {
	command: string;
	samples: number;
	bytes: number;
}

export async function select(where: string, signal?: AbortSignal): Promise<Selected> {
	return get("select", { where }, signal);
}

/** Lets the browser save the view of the samples that meet a condition. */
export async function saveView(where: string): Promise<void> {
	const url = URL.createObjectURL(await (await request("view", { where })).blob());
	const link = document.createElement("a");
	link.href = url;
	link.download = "selection.view";
	link.click();
	URL.revokeObjectURL(url);
}

/** Runs a command. Its own failure is an error; problems that it found are part of its output. */
export async function run<T>(verb: string, query: Query, signal?: AbortSignal): Promise<Ran<T>> {
	const text = report ? report.ran[verb] : await (await request(`run/${verb}`, query, signal)).text();
	if (!text) throw new Refused({ message: "a report has no such data; run `shardmill view` on the dataset" });
	// Statistics are values of the dataset; all other numbers are counts and measurements.
	const ran = (verb === "stats" ? parseExact(text) : JSON.parse(text)) as Ran<T>;
	const failure = ran.errors.find((line) => line.error)?.error;
	if (ran.output.length === 0 && (failure || ran.exit_code !== 0)) {
		throw new Refused(failure ?? { message: `the command ended with ${ran.exit_code}` });
	}
	return ran;
}

export async function find(
	key: string,
	from: number,
	signal?: AbortSignal,
): Promise<{ number: number | null; next?: number }> {
	return get("find", { key, from }, signal);
}

export interface Frequent {
	rows: number;
	/** The missing value has no text. */
	values: { text: string | null; count: number }[];
	other: number;
}

export async function frequent(column: string, limit: number, signal?: AbortSignal): Promise<Frequent> {
	return get("frequent", { column, limit }, signal);
}

/** The shards in the folder of a cache. */
export interface Cached {
	folder: string;
	raw: number[];
	stored: number[];
}

export async function cached(signal?: AbortSignal): Promise<Cached> {
	return get("cache", {}, signal);
}

/** Returns the metrics of the running job, as text of Prometheus. */
export async function metrics(signal?: AbortSignal): Promise<string> {
	return (await get<{ text: string }>("metrics", {}, signal)).text;
}

/** Returns the address of a sound or a video, of which the browser requests the parts that it plays. */
export function played(sample: number, column: string): string | undefined {
	// An element cannot send the header. A frame without the cookie names the token, in an address of this machine.
	return report ? undefined : `/api/media?${queryText({ sample, column, token: token ?? undefined })}`;
}

/** Returns the address of a value for an element, and how to release it. */
export async function media(
	sample: number,
	column: string,
	item: number,
	signal?: AbortSignal,
): Promise<[string, () => void]> {
	if (report) {
		const kept = item === 0 ? report.media[`${sample}/${column}`] : undefined;
		if (!kept) throw new Refused({ message: "too large for a report" });
		return [kept, () => {}];
	}
	const response = await request("raw", { sample, column, item }, signal);
	const url = URL.createObjectURL(await response.blob());
	return [url, () => URL.revokeObjectURL(url)];
}
