// Which packages are inside plotly.js-basic-dist-min, which is published as one file without their names: bundles
// plotly.js's own sources of the same version as they do, and writes what esbuild took into plotly-parts.json.
//
//   mkdir /tmp/plotly && cd /tmp/plotly && npm init -y && npm install --ignore-scripts plotly.js@VERSION
//   node scripts/plotly_parts.mjs /tmp/plotly
import { readFile, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import * as esbuild from 'esbuild';
import { packages } from './notices.mjs';

const folder = path.resolve(process.argv[2]);
const own = path.join(folder, 'node_modules/plotly.js');
const { version } = JSON.parse(await readFile(path.join(own, 'package.json'), 'utf8'));
const built = await esbuild.build({
  entryPoints: [path.join(own, 'lib/index-basic.js')], bundle: true, write: false, metafile: true, minify: true,
  absWorkingDir: folder, outfile: 'basic.js', define: { global: 'window' }, logLevel: 'error',
  loader: { '.css': 'empty' },
});
const files = Object.values(built.metafile.outputs).flatMap((output) => Object.entries(output.inputs))
  .filter(([name, { bytesInOutput }]) => bytesInOutput > 0 && !name.endsWith('.css')).map(([name]) => name);
const parts = (await packages(folder, files)).filter(({ name }) => name !== 'plotly.js');
const out = path.join(path.dirname(fileURLToPath(import.meta.url)), 'plotly-parts.json');
await writeFile(out, `${JSON.stringify({ version, parts }, null, 1)}\n`);
console.log(`plotly.js ${version}: ${parts.map((part) => `${part.name} (${part.licence})`).join(', ')}`);
