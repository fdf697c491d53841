// The explorer for hosts without a bundler of their own: the widget's module and the stand-alone file's script,
// and beside them the chart library, which is loaded only when a chart is shown. Everything is in the files.
import { copyFile, mkdir, readFile, stat } from 'node:fs/promises';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';
import * as esbuild from 'esbuild';

const root = path.join(path.dirname(fileURLToPath(import.meta.url)), '..');
const out = path.join(root, '..', 'nbcompile', 'view', 'static');
/** Bytes, gzip, of all scripts together. */
const LIMIT = 1_500_000;

await mkdir(out, { recursive: true });
const shared = {
  bundle: true, minify: true, target: 'es2022', legalComments: 'none', charset: 'utf8', logLevel: 'warning',
  jsx: 'automatic', jsxImportSource: 'preact',
};
await esbuild.build({ ...shared, entryPoints: [path.join(root, 'src/hosts/widget.ts')], format: 'esm', outfile: path.join(out, 'widget.js') });
await esbuild.build({ ...shared, entryPoints: [path.join(root, 'src/hosts/page.ts')], format: 'iife', outfile: path.join(out, 'page.js') });
await esbuild.build({ ...shared, entryPoints: [path.join(root, 'style/explorer.css')], bundle: true, outfile: path.join(out, 'explorer.css') });
await copyFile(path.join(root, 'node_modules/plotly.js-basic-dist-min/plotly-basic.min.js'), path.join(out, 'plotly.js'));

let total = 0;
for (const name of ['widget.js', 'plotly.js', 'page.js', 'explorer.css']) {
  const file = path.join(out, name);
  const packed = gzipSync(await readFile(file), { level: 9 }).length;
  console.log(`${name}: ${(await stat(file)).size.toLocaleString('en')} bytes, ${packed.toLocaleString('en')} compressed`);
  if (name !== 'page.js') total += packed; // the widget's and the page's are the same code
}
if (total > LIMIT) throw new Error(`the explorer is ${total} bytes compressed; the limit is ${LIMIT}`);
