/** The notices of what is bundled: each package once, with its owner and its terms, and nothing left out in silence. */
import { mkdir, mkdtemp, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { expect, test } from 'vitest';
import { comment, document, folders, packages, split } from '../scripts/notices.mjs';

const MIT = 'MIT License\n\nCopyright (c) 2020 A. Nobody\n\nPermission is hereby granted,\nas above copyright notice says.\n';

async function installed(name: string, about: object, licence?: string): Promise<string> {
  const root = await mkdtemp(path.join(tmpdir(), 'notices-'));
  const folder = path.join(root, 'node_modules', name);
  await mkdir(folder, { recursive: true });
  await writeFile(path.join(folder, 'package.json'), JSON.stringify({ name, version: '1.2.3', ...about }));
  if (licence) await writeFile(path.join(folder, 'LICENCE.md'), licence);
  return root;
}

test('packages are named by the files that are in a bundle, scopes and nested copies too', () => {
  expect(folders(['src/a.ts', 'node_modules/b/c/d.js', 'node_modules/b/e.js', 'node_modules/@f/g/h.js',
    'node_modules/b/node_modules/i/j.js'])).toEqual(['node_modules/@f/g', 'node_modules/b', 'node_modules/b/node_modules/i']);
});

test('a licence is told apart into its owners and its terms', () => {
  const { owners, terms } = split(MIT);
  expect(owners).toEqual(['Copyright (c) 2020 A. Nobody']);
  expect(terms).toBe('Permission is hereby granted, as above copyright notice says.');
});

test('the comment has each owner, the terms once, and does not end early', async () => {
  const one = await packages(await installed('one', { license: 'MIT' }, MIT), ['node_modules/one/x.js']);
  const other = await packages(await installed('two', { license: 'MIT' }, MIT.replace('A. Nobody', 'B */ C')), ['node_modules/two/x.js']);
  const text = comment([...one, ...other]);
  expect(text).toContain('one 1.2.3: Copyright (c) 2020 A. Nobody');
  expect(text).toContain('two 1.2.3: Copyright (c) 2020 B * / C');
  expect(text.split('Permission is hereby granted')).toHaveLength(2);
  expect(document(one)).toContain(MIT.trim());
});

test('a package without a file of its licence is named with what it declares; one that declares none is refused', async () => {
  const root = await installed('bare', { license: 'MIT', author: 'D' });
  expect((await packages(root, ['node_modules/bare/x.js']))[0]?.text).toContain('(c) D');
  await expect(packages(await installed('none', {}, MIT), ['node_modules/none/x.js'])).rejects.toThrow('without a licence');
});
