// What the dataset is: sizes, columns, provenance, whether it is intact, and its first samples.

import { useState } from "preact/hooks";
import { type Facts, isReport, run, samples } from "../api";
import { bytes, count, pythonArguments, pythonDataset, pythonText, pythonView, visible } from "../format";
import { Copy, Failed, Names, Status, useLoaded, Wide } from "../parts";
import { Tile } from "../tile";

interface Inspected {
	samples: number;
	deleted_samples?: number;
	shards: number;
	raw_bytes: number;
	stored_bytes: number;
	format: string;
	columns: { name: string; encoding?: string | null; bytes?: number | null; type?: string }[];
	/** The facts of a source. */
	kind?: string;
	files?: number;
	bytes?: number;
	rows?: number | null;
	compression: string | null;
	hashes: string[];
	index_hash?: string;
	provenance?: { source?: { kind?: string; files?: { path: string }[]; rows?: number }; writer?: string } | null;
}

interface Verified {
	ok: boolean;
	files: number;
	sound_samples: number;
	problem_count: number;
	warning_count: number;
	problems: unknown[];
}

/** The samples of the strip. */
const STRIP = 12;

export function Overview({ facts }: { facts: Facts }) {
	const inspected = useLoaded((signal) => run<Inspected>("inspect", {}, signal), []);
	const strip = useLoaded((signal) => samples(0, STRIP, false, "", signal), []);
	const found = inspected.value?.output[0];
	const source = found?.provenance?.source;
	return (
		<>
			<h1>{visible(facts.location)}</h1>
			{facts.view === null ? null : (
				<p class="note">
					only the samples of the view <code>{visible(facts.view)}</code>
				</p>
			)}
			<Status of={inspected} />
			{found?.kind ? (
				<Names
					of={[
						["source", found.kind],
						["rows", count(facts.samples)],
						["files", count(found.files ?? 0)],
						["stored", bytes(found.bytes ?? 0)],
					]}
				/>
			) : null}
			{found && !found.kind ? (
				<Names
					of={[
						["samples", count(found.samples)],
						...(found.deleted_samples ? [["deleted", count(found.deleted_samples)] as [string, string]] : []),
						["shards", count(found.shards)],
						["format", found.format],
						["stored", bytes(found.stored_bytes)],
						["raw", bytes(found.raw_bytes)],
						["compression", found.compression ?? "none"],
						["hashes", found.hashes?.join(", ") || "none"],
						...(source
							? [
									["source", `${source.kind ?? "unknown"}, ${count(source.files?.length ?? 0)} files`] as [
										string,
										string,
									],
								]
							: []),
						...(found.provenance?.writer ? [["writer", visible(found.provenance.writer)] as [string, string]] : []),
					]}
				/>
			) : null}
			{isReport() || facts.kind === "source" ? null : <Verify facts={facts} />}
			<h2>First samples</h2>
			<Status of={strip} />
			<ul class="strip">
				{strip.value?.map((sample) => (
					<li key={sample.number}>
						<Tile sample={sample} />
					</li>
				))}
			</ul>
			{found ? (
				<>
					<h2>Columns</h2>
					<Wide label="Columns">
						<table>
							<thead>
								<tr>
									<th scope="col">name</th>
									{found.kind ? <th scope="col">type</th> : null}
									<th scope="col">{found.kind ? "encoding of convert" : "encoding"}</th>
									{found.kind ? null : <th scope="col">bytes of a value</th>}
								</tr>
							</thead>
							<tbody>
								{found.columns.map((column) => (
									<tr key={column.name}>
										<th scope="row">
											<a href={`#/columns?column=${encodeURIComponent(column.name)}`}>{visible(column.name)}</a>
										</th>
										{found.kind ? <td>{visible(column.type ?? "")}</td> : null}
										<td>{column.encoding ?? ""}</td>
										{found.kind ? null : <td>{column.bytes ?? "varies"}</td>}
									</tr>
								))}
							</tbody>
						</table>
					</Wide>
				</>
			) : null}
			<h2>The same elsewhere</h2>
			{inspected.value ? <Copy label="CLI" text={inspected.value.command} /> : null}
			{found?.kind ? null : <Copy label="Python" text={pythonDataset(facts)} />}
		</>
	);
}

function Verify({ facts }: { facts: Facts }) {
	const [wanted, setWanted] = useState<"" | "quick" | "deep">("");
	const verified = useLoaded(
		async (signal) => (wanted ? run<Verified>("verify", { deep: wanted === "deep" }, signal) : undefined),
		[wanted],
	);
	const report = verified.value?.output[0];
	return (
		<section aria-label="Verification">
			<h2>Verification</h2>
			<p>
				<button type="button" onClick={() => setWanted("quick")}>
					Check hashes
				</button>{" "}
				<button type="button" onClick={() => setWanted("deep")}>
					Decode every sample
				</button>
			</p>
			{wanted ? <Status of={verified} /> : <p class="note">Not verified since this page was opened.</p>}
			{report ? (
				<p class={report.ok ? "ok" : "failed"} role="status">
					{report.ok
						? `Intact: ${count(report.files)} files, ${count(report.sound_samples)} samples.`
						: `${count(report.problem_count)} problems.`}
					{report.warning_count ? ` ${count(report.warning_count)} warnings.` : ""}
				</p>
			) : null}
			{verified.value?.errors.map((line, at) => {
				const failure = line.error ?? line.warning;
				return failure && at < 100 ? <Failed key={at} failure={failure} /> : null;
			})}
			{verified.value ? (
				<>
					<Copy label="CLI" text={verified.value.command} />
					<Copy
						label="Python"
						text={`shardmill.verify(${pythonText(facts.location)}${pythonArguments({ ...pythonView(facts), ...(wanted === "deep" ? { deep: true } : {}) })})`}
					/>
				</>
			) : null}
		</section>
	);
}
