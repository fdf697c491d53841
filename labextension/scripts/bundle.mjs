// The explorer for hosts without a bundler of their own: one module, which is the widget's and the stand-alone
// file's, and beside it the chart library, which is loaded only when a chart is shown. Everything is in the files,
// with the notices of whoever wrote a part of them.
import { readFile, mkdir, rm, stat, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';
import * as esbuild from 'esbuild';
import { comment, document, packages } from './notices.mjs';

const root = path.join(path.dirname(fileURLToPath(import.meta.url)), '..');
const out = path.join(root, '..', 'nbcompile', 'view', 'static');
const CHARTS = 'node_modules/plotly.js-basic-dist-min/plotly-basic.min.js';
const NAMES = ['explorer.js', 'plotly.js', 'explorer.css', 'THIRD-PARTY.txt'];
/** Bytes, gzip, of all files together. */
const LIMIT = 1_500_000;

/** What is inside plotly.js, which is published as one file: found by scripts/plotly_parts.mjs. */
async function partsOfCharts() {
  const { version, parts } = JSON.parse(await readFile(path.join(root, 'scripts/plotly-parts.json'), 'utf8'));
  const about = JSON.parse(await readFile(path.join(root, path.dirname(CHARTS), 'package.json'), 'utf8'));
  if (version !== about.version)
    throw new Error(`plotly-parts.json is of plotly.js ${version}, not ${about.version}: run scripts/plotly_parts.mjs`);
  return parts.map((part) => ({ ...part, note: ', inside plotly.js' }));
}

await rm(out, { recursive: true, force: true });
await mkdir(out, { recursive: true });
const shared = {
  bundle: true, minify: true, target: 'es2022', legalComments: 'none', charset: 'utf8', logLevel: 'warning',
  jsx: 'automatic', jsxImportSource: 'preact', metafile: true, write: false, absWorkingDir: root,
};
const script = await esbuild.build({ ...shared, entryPoints: ['src/hosts/bundle.ts'], format: 'esm', outfile: path.join(out, 'explorer.js') });
const style = await esbuild.build({ ...shared, entryPoints: ['style/explorer.css'], outfile: path.join(out, 'explorer.css') });

const files = [script, style].flatMap((built) => Object.values(built.metafile.outputs).flatMap((o) => Object.keys(o.inputs)));
const bundled = await packages(root, files);
const charts = [...(await packages(root, [CHARTS])), ...(await partsOfCharts())];
const text = {
  'explorer.js': `/*! ${comment([...bundled, charts[0]])}\n*/\n${script.outputFiles[0].text}`,
  'explorer.css': style.outputFiles[0].text,
  'plotly.js': `/*! ${comment(charts)}\n*/\n${await readFile(path.join(root, CHARTS), 'utf8')}`,
  'THIRD-PARTY.txt': document([...bundled, ...charts]),
};

let total = 0;
for (const name of NAMES) {
  const file = path.join(out, name);
  await writeFile(file, text[name]);
  const packed = gzipSync(await readFile(file), { level: 9 }).length;
  console.log(`${name}: ${(await stat(file)).size.toLocaleString('en')} bytes, ${packed.toLocaleString('en')} compressed`);
  total += packed;
}
if (total > LIMIT) throw new Error(`the explorer is ${total} bytes compressed; the limit is ${LIMIT}`);
