// Builds the bundle that the Rust crate embeds. `--check` compares it with the built one instead, and `--tests` builds the
// unit tests for `node --test`.
import { readdirSync, readFileSync } from "node:fs";
import * as esbuild from "esbuild";

const options = {
	bundle: true,
	legalComments: "none",
	minify: true,
	target: "es2022",
	jsx: "automatic",
	jsxImportSource: "preact",
};

if (process.argv.includes("--tests")) {
	const tests = readdirSync("test").map((name) => `test/${name}`);
	await esbuild.build({
		...options,
		minify: false,
		entryPoints: tests,
		format: "esm",
		outdir: "target",
		outExtension: { ".js": ".mjs" },
		platform: "node",
	});
} else {
	const check = process.argv.includes("--check");
	const built = [];
	for (const [entry, file] of [
		["src/main.tsx", "dist/app.js"],
		["src/style.css", "dist/app.css"],
	]) {
		const made = await esbuild.build({
			...options,
			entryPoints: [entry],
			format: "iife",
			outfile: file,
			write: !check,
		});
		built.push(...(made.outputFiles ?? []));
	}
	for (const file of built) {
		if (readFileSync(file.path, "utf8") !== file.text) {
			console.error(`${file.path} is not the bundle of the sources; run: npm run build`);
			process.exit(1);
		}
	}
}
