// Elements that several pages use.

import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { type Failure, Refused } from "./api";

export interface Loaded<T> {
	value?: T;
	failure?: Failure;
	loading: boolean;
}

/** Loads a value again whenever `inputs` change. An earlier request is cancelled. */
export function useLoaded<T>(load: (signal: AbortSignal) => Promise<T>, inputs: unknown[], delay = 0): Loaded<T> {
	const [state, setState] = useState<Loaded<T>>({ loading: true });
	useEffect(() => {
		const controller = new AbortController();
		setState((old) => ({ ...old, loading: true }));
		const timer = setTimeout(() => {
			load(controller.signal).then(
				(value) => !controller.signal.aborted && setState({ value, loading: false }),
				(error) => {
					if (controller.signal.aborted) return;
					const failure = error instanceof Refused ? error.failure : { message: String(error) };
					setState({ failure, loading: false });
				},
			);
		}, delay);
		return () => {
			clearTimeout(timer);
			controller.abort();
		};
	}, inputs);
	return state;
}

/** Shows the state of a request: its error, or that it runs. */
export function Status({ of }: { of: Loaded<unknown> }) {
	if (of.failure) return <Failed failure={of.failure} />;
	return (
		<p class="status" role="status">
			{of.loading ? "Loading…" : ""}
		</p>
	);
}

/** Shows an error as the command line words it. */
export function Failed({ failure }: { failure: Failure }) {
	return (
		<p class="failed" role="alert">
			<strong>error{failure.id ? `[${failure.id}]` : ""}</strong>: {failure.object ? `${failure.object}: ` : ""}
			{failure.message}
			{failure.hint ? `; ${failure.hint}` : ""}
		</p>
	);
}

/** A line to copy: a command or an expression. */
export function Copy({ label, text }: { label: string; text: string }) {
	const [done, setDone] = useState(false);
	const copy = async () => {
		try {
			await navigator.clipboard.writeText(text);
		} catch {
			// Without the permission, for example in a frame: select the text for the reader to copy.
			const range = document.createRange();
			if (code.current) range.selectNodeContents(code.current);
			getSelection()?.removeAllRanges();
			getSelection()?.addRange(range);
			return;
		}
		setDone(true);
		setTimeout(() => setDone(false), 1500);
	};
	const code = useRef<HTMLElement>(null);
	return (
		<div class="copy">
			<span class="label">{label}</span>
			<code ref={code} tabIndex={0}>
				{text}
			</code>
			<button type="button" onClick={copy} aria-label={`Copy the ${label} line`}>
				{done ? "Copied" : "Copy"}
			</button>
		</div>
	);
}

/** A table of names and values. */
export function Names({ of }: { of: [string, ComponentChildren][] }) {
	return (
		<dl>
			{of.map(([name, value]) => (
				<div key={name}>
					<dt>{name}</dt>
					<dd>{value}</dd>
				</div>
			))}
		</dl>
	);
}

/** A labelled number or text input of a form. */
export function Input(props: {
	label: string;
	value: string;
	onChange: (value: string) => void;
	type?: "number" | "text";
	min?: number;
	placeholder?: string;
}) {
	return (
		<label class="input">
			<span>{props.label}</span>
			<input
				type={props.type ?? "number"}
				min={props.min ?? 0}
				value={props.value}
				placeholder={props.placeholder}
				onChange={(event) => props.onChange(event.currentTarget.value)}
			/>
		</label>
	);
}

/** A labelled slider with powers of two or whole numbers. */
export function Slider(props: {
	label: string;
	value: number;
	values: number[];
	onChange: (value: number) => void;
	text?: (value: number) => string;
}) {
	const at = Math.max(props.values.indexOf(props.value), 0);
	const shown = (props.text ?? String)(props.value);
	return (
		<label class="input slider">
			<span>
				{props.label}: <output>{shown}</output>
			</span>
			<input
				type="range"
				min={0}
				max={props.values.length - 1}
				value={at}
				aria-valuetext={shown}
				onInput={(event) => props.onChange(props.values[Number(event.currentTarget.value)] ?? props.value)}
			/>
		</label>
	);
}

export function Check(props: { label: string; checked: boolean; onChange: (value: boolean) => void }) {
	return (
		<label class="check">
			<input
				type="checkbox"
				checked={props.checked}
				onChange={(event) => props.onChange(event.currentTarget.checked)}
			/>
			<span>{props.label}</span>
		</label>
	);
}

export function Select(props: { label: string; value: string; options: string[]; onChange: (value: string) => void }) {
	return (
		<label class="input">
			<span>{props.label}</span>
			<select value={props.value} onChange={(event) => props.onChange(event.currentTarget.value)}>
				{props.options.map((option) => (
					<option key={option}>{option}</option>
				))}
			</select>
		</label>
	);
}

/** A region that scrolls sideways, which the keyboard reaches. */
export function Wide({ label, children }: { label: string; children: ComponentChildren }) {
	return (
		<section class="wide" aria-label={label} tabIndex={0}>
			{children}
		</section>
	);
}
