// Shows one value of a sample. Texts from samples only ever become text nodes.

import { useState } from "preact/hooks";
import { type Field, media, played } from "./api";
import { HeatMap, Lines } from "./charts";
import { bytes, count, hexDump, visible } from "./format";
import { type Node, parseTree } from "./json";
import { Status, useLoaded } from "./parts";

/** Media of more bytes are loaded on request. */
const EAGER_BYTES = 16 << 20;

/** The most members of an object that are shown before the reader asks for more. */
const MEMBERS = 100;

export function FieldView({ field, sample }: { field: Field; sample: number }) {
	return (
		<section class="field" aria-label={visible(field.name)}>
			<h3>
				{visible(field.name)} <small>{facts(field)}</small>
			</h3>
			{field.error ? (
				<p class="failed" role="alert">
					{visible(field.error)}
				</p>
			) : null}
			{field.note ? <p class="note">{field.note}</p> : null}
			<Value field={field} sample={sample} />
			{field.decoded === undefined ? null : (
				<>
					<h4>Decoded tokens</h4>
					<pre class="text" tabIndex={0}>
						{visible(field.decoded)}
					</pre>
				</>
			)}
		</section>
	);
}

/** Returns the type and the size of a value. */
export function facts(field: Field): string {
	const parts = [field.encoding, field.mime, bytes(field.bytes)];
	if (field.width) parts.push(`${field.width} × ${field.height}`);
	if (field.mode) parts.push(field.mode);
	if (field.shape) parts.push(`${field.dtype} [${field.shape.join(", ")}]`);
	if (field.images_stored) parts.push(`${count(field.images_stored)} images`);
	if (field.truncated) parts.push("only the beginning is shown");
	return parts.filter(Boolean).join(" · ");
}

function Value({ field, sample }: { field: Field; sample: number }) {
	switch (field.kind) {
		case "image":
			return (
				<>
					{Array.from({ length: field.images ?? 1 }, (_, item) => (
						<Media key={item} field={field} sample={sample} item={item} />
					))}
				</>
			);
		case "audio":
		case "video":
			return <Player field={field} sample={sample} />;
		case "json":
			return field.truncated ? <Text field={field} /> : <Json text={field.text ?? ""} />;
		case "number":
			return <p class="number">{field.text}</p>;
		case "array":
			return <ArrayView field={field} />;
		case "bytes":
			return field.hex ? (
				<pre class="hex" tabIndex={0}>
					{hexDump(field.hex)}
				</pre>
			) : null;
		default:
			return <Text field={field} />;
	}
}

function Text({ field }: { field: Field }) {
	return (
		<pre class="text" tabIndex={0}>
			{visible(field.text ?? "")}
		</pre>
	);
}

/** A sound or a video. The browser requests the parts that it plays; a report contains all of it. */
function Player({ field, sample }: { field: Field; sample: number }) {
	const [broken, setBroken] = useState(false);
	const source = played(sample, field.name);
	if (!source) return <Media field={field} sample={sample} item={0} />;
	if (broken) return <p class="failed">the {field.kind} cannot be decoded</p>;
	return <Playing field={field} sample={sample} source={source} onError={() => setBroken(true)} />;
}

function Playing(props: { field: Field; sample: number; source: string; onError: () => void }) {
	const label = `${visible(props.field.name)} of sample ${props.sample}`;
	const all = { controls: true, src: props.source, "aria-label": label, onError: props.onError };
	return props.field.kind === "audio" ? <audio {...all} /> : <video preload="metadata" {...all} />;
}

interface MediaProps {
	field: Field;
	sample: number;
	item: number;
	tile?: boolean;
}

export function Media(props: MediaProps) {
	const { field } = props;
	const [wanted, setWanted] = useState(field.bytes <= EAGER_BYTES);
	return wanted ? (
		<LoadedMedia {...props} />
	) : (
		<button type="button" onClick={() => setWanted(true)}>
			Load {bytes(field.bytes)}
		</button>
	);
}

function LoadedMedia({ field, sample, item, tile }: MediaProps) {
	const [broken, setBroken] = useState(false);
	const loaded = useLoaded(
		async (signal) => {
			const [url, release] = await media(sample, field.name, item, signal);
			signal.addEventListener("abort", release);
			return url;
		},
		[sample, field.name, item],
	);
	if (!loaded.value) return <Status of={loaded} />;
	if (broken) return <p class="failed">the {field.kind} cannot be decoded</p>;
	const label = `${visible(field.name)} of sample ${sample}`;
	if (field.kind !== "image")
		return <Playing field={field} sample={sample} source={loaded.value} onError={() => setBroken(true)} />;
	return (
		<img
			class={tile ? "thumb" : "image"}
			src={loaded.value}
			alt={label}
			decoding="async"
			onError={() => setBroken(true)}
		/>
	);
}

function ArrayView({ field }: { field: Field }) {
	const { values = [], rows = 1, columns = 1 } = field;
	const range = field.range ? `${field.range[0]} to ${field.range[1]}, mean ${field.mean}` : "no finite numbers";
	const not = field.not_finite ? `, ${count(field.not_finite)} not finite` : "";
	const label = `${field.sampled ? "some of the numbers: " : ""}${range}${not}`;
	const points = values
		.map((value, at): [number, number] => [at, value ?? Number.NaN])
		.filter(([, value]) => Number.isFinite(value));
	return (
		<>
			<p class="note">{label}</p>
			<pre class="text number" tabIndex={0}>
				{field.items}
				{field.items_truncated ? ", …" : ""}
			</pre>
			{values.length <= 16 ? null : rows === 1 ? (
				<Lines
					series={[{ name: field.name, points }]}
					label={`values of ${visible(field.name)}`}
					unit={() => field.range?.[1] ?? ""}
				/>
			) : (
				<HeatMap
					values={values}
					rows={rows}
					columns={columns}
					min={field.min ?? 0}
					max={field.max ?? 1}
					label={`heat map of ${visible(field.name)}, ${label}`}
				/>
			)}
		</>
	);
}

export function Json({ text }: { text: string }) {
	let value: Node;
	try {
		value = parseTree(text);
	} catch {
		return (
			<pre class="text" tabIndex={0}>
				{visible(text)}
			</pre>
		);
	}
	return (
		<div class="json">
			<Tree value={value} open />
		</div>
	);
}

/** A value of JSON. The members of an object are made when it is opened, so that deep values cost nothing. */
function Tree({ name, value, open }: { name?: string; value: Node; open?: boolean }) {
	const [shown, setShown] = useState(open ?? false);
	const [most, setMost] = useState(MEMBERS);
	const label = name === undefined ? "" : `${visible(name)}: `;
	if (typeof value === "string") {
		const kind = { '"': "string", n: "null", t: "boolean", f: "boolean" }[value[0] ?? ""] ?? "number";
		return (
			<div class="leaf">
				{label}
				<span class={`json-${kind}`}>{visible(value)}</span>
			</div>
		);
	}
	const { members } = value;
	const size = value.isArray ? `[${members.length}]` : `{${members.length}}`;
	return (
		<details open={shown} onToggle={(event) => setShown(event.currentTarget.open)}>
			<summary>
				{label}
				{size}
			</summary>
			{shown ? (
				<>
					{members.slice(0, most).map(([key, member], at) => (
						<Tree key={at} name={key} value={member} />
					))}
					{members.length > most ? (
						<button type="button" onClick={() => setMost(most + 10 * MEMBERS)}>
							{count(members.length - most)} more
						</button>
					) : null}
				</>
			) : null}
		</details>
	);
}
