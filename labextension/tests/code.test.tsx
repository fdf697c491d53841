// @vitest-environment happy-dom
import { EditorView } from '@codemirror/view';
import { afterEach, expect, test } from 'vitest';
import { listingOf, textsOf } from '../src/explorer/code/listing';
import { PlayError } from '../src/explorer/host';
import { generated } from '../src/record/links';
import { fixture, opened, until, type Answer, type Opened } from './hosts';
import { record as recordOf } from './records';

// Browsers tell of a new selection later; happy-dom at once, in the middle of CodeMirror's own update.
document.addEventListener('selectionchange', (event) => event.stopImmediatePropagation());

let open: Opened | null = null;
afterEach(() => {
  open?.explorer.dispose();
  open = null;
  document.body.replaceChildren();
});

async function code(name: 'small' | 'triton', answer: Answer | null = null): Promise<Opened & { view(): EditorView }> {
  const found = (open = await opened(fixture(name), answer));
  const { element } = found;
  const view = (): EditorView => {
    const found = EditorView.findFromDOM(element.querySelector<HTMLElement>('.cm-editor') as HTMLElement);
    if (!found) throw new Error('no editor');
    return found;
  };
  await until(() => element.querySelector('.cm-editor') && view().state.doc.lines > 1);
  return { ...found, view };
}

const button = (element: HTMLElement, text: string): HTMLButtonElement =>
  [...element.querySelectorAll('button')].find((each) => each.textContent?.trim() === text) as HTMLButtonElement;

test('a listing has the lines worth reading, each with the line of the source it was made for', () => {
  const { record, scene } = recordOf('triton');
  const kernel = record.kernels[0];
  if (!kernel) throw new Error('no kernel');
  const held = kernel.sources;
  const texts = textsOf(held, scene?.kernels[0]);
  expect(texts.slice(0, 2).map((text) => text.language)).toEqual(['triton', 'ttir']);
  const ptx = texts.find((text) => text.language === 'ptx');
  const source = listingOf(held['triton'] ?? '', texts[0]).text.split('\n');
  const { text, made } = listingOf(held['ptx'] ?? '', ptx);
  const lines = text.split('\n');
  expect(made.length).toBe(lines.length);
  expect(text).not.toMatch(/\.loc|debug_/);
  const stores = lines.flatMap((line, place) => (line.includes('st.global') ? [source[(made[place] ?? 0) - 1]] : []));
  expect(stores.length).toBeGreaterThan(0);
  expect(stores.every((line) => line?.includes('tl.store'))).toBe(true);
});

test('rows that a text does not have are empty lines', () => {
  const about = { language: 'ptx', title: 'PTX', about: '', left_out: '', skipped: [1, 7], made: [2], cuts: [[0, 1, 9]] };
  expect(listingOf('a\nbcd', about)).toEqual({ text: 'cd\n', made: [2] });
});

test('a cell line lights the generated lines made for it, and a generated line its cell line', async () => {
  const { element, now, view } = await code('small');
  const kernel = now().links.kernels.get(now().kernel.value);
  const link = kernel?.line_map[0];
  if (!kernel || !link) throw new Error('no line map');
  const id = generated(kernel.id, link.line);
  const [line] = now().links.lines([id]);
  now().hover({ ids: [], line: line as number });
  await until(() => element.querySelector('.nbc-code-lit'));
  const lit = [...element.querySelectorAll('.nbc-code-lit')].map((each) => each.textContent);
  expect(lit).toContain(view().state.doc.line(link.line).text);
  now().hover({ ids: [id] });
  expect(now().lit.value?.lines).toContain(line);
  expect(now().lit.value?.ids).toContain(kernel.id);
});

const RESULT = { agrees: true, outputs: [], original: [2e-3, 2e-3], edited: [1e-3, 1e-3], message: '' };

test('an edit runs, says how it compares, and is kept or undone', async () => {
  const asked: Record<string, unknown>[] = [];
  const payload = fixture('small');
  const { element, now, view } = await code('small', (method, params) => {
    asked.push({ method, ...params });
    return Promise.resolve({ ...RESULT, payload: { ...payload, id: 'edited' } });
  });
  const kernel = now().kernel.value;
  button(element, 'edit').click();
  await until(() => !view().state.readOnly);
  expect(button(element, 'Run').disabled).toBe(true);
  // Faster than the explorer draws: nothing of it may be taken back.
  for (const char of '// ab') view().dispatch({ changes: { from: view().state.doc.line(1).to, insert: char } });
  const text = view().state.doc.toString();
  await until(() => !button(element, 'Run').disabled);
  await new Promise((resolve) => setTimeout(resolve, 100));
  expect(view().state.doc.toString()).toBe(text);
  button(element, 'Run').click();
  await until(() => element.querySelector('.nbc-edit-result'));
  expect(asked).toEqual([{ method: 'edit', record: payload.id, kernel, language: 'c', source: text }]);
  expect(element.querySelector('.nbc-edit-result')?.textContent).toContain('2.0× faster');
  button(element, 'Keep').click();
  await until(() => now().data.record.id === 'edited');
  await until(() => element.querySelector('.nbc-edited'));
  button(element, 'Undo').click();
  expect(now().data.record.id).toBe(payload.id);
});

test('a wrong edit cannot be kept, a failed one is marked at its line, and Reset takes it back', async () => {
  let answer: () => Promise<unknown> = () => Promise.resolve({
    ...RESULT, agrees: false,
    outputs: [{ name: 'z', error: 0.5, eager_error: 1e-8, max_difference: 0.25, agrees: false, reason: 'far from float64' }],
  });
  const { element, view } = await code('small', () => answer());
  const first = view().state.doc.toString();
  button(element, 'edit').click();
  await until(() => !view().state.readOnly);
  view().dispatch({ changes: { from: 0, insert: '// ' } });
  await until(() => !button(element, 'Run').disabled);
  button(element, 'Run').click();
  await until(() => element.querySelector('.nbc-edit-result'));
  expect(element.querySelector('.nbc-edit-result')?.textContent).toContain('z differs by up to 0.250');
  expect(button(element, 'Keep').disabled).toBe(true);
  answer = () => Promise.reject(new PlayError('The edited kernel cannot be used', 'expected ;', '', 2));
  button(element, 'Run').click();
  await until(() => element.querySelector('.nbc-code-problem'));
  expect(element.querySelector('.nbc-code-bad')?.textContent).toBe(view().state.doc.line(2).text);
  button(element, 'Reset').click();
  await until(() => view().state.doc.toString() === first);
  button(element, 'Discard').click();
  await until(() => view().state.readOnly);
});

test('without a kernel editing and the script say what they need', async () => {
  const { element } = await code('small');
  for (const what of ['Edit this kernel', 'A script of this kernel']) {
    const found = [...element.querySelectorAll('button')].find((each) => each.title.startsWith(what));
    expect(found?.disabled).toBe(true);
    expect(found?.title).toContain('Open the notebook.');
  }
});

const tab = (element: HTMLElement, text: string): HTMLElement =>
  [...element.querySelectorAll<HTMLElement>('[role=tab]')].find((each) => each.textContent === text) as HTMLElement;

test('the assembly of a C kernel is asked for once, and linked with the C line by line', async () => {
  const asked: Record<string, unknown>[] = [];
  let answer: () => Promise<unknown> = () => Promise.reject(new PlayError('No compiler', 'no C compiler was found.'));
  const { element, now, view } = await code('small', (method, params, progress) => {
    asked.push({ method, ...params });
    progress?.({ text: 'compiling k0', done: 2, of: 3 });
    return answer();
  });
  const kernel = now().kernel.value;
  const link = now().links.kernels.get(kernel)?.line_map[0];
  if (!link) throw new Error('no line map');
  tab(element, 'Assembly').click();
  await until(() => element.querySelector('.nbc-no-assembly [role=alert]'));
  expect(element.querySelector('.nbc-no-assembly')?.textContent).toContain('no C compiler was found.');
  expect(element.querySelector<HTMLButtonElement>('.nbc-icon[title="Copy the Assembly text"]')?.disabled).toBe(true);

  let done: (value: unknown) => void = () => undefined;
  answer = () => new Promise((resolve) => (done = resolve));
  button(element, 'Compile to assembly').click();
  await until(() => element.querySelector('.nbc-no-assembly progress'));
  expect(element.querySelector('.nbc-no-assembly')?.textContent).toContain('compiling k0');
  expect(button(element, 'Cancel').disabled).toBe(false);
  done({ text: 'k0:\n  vaddps  %ymm0, %ymm1, %ymm0\n  ret', lines: [[2, link.line]], compiler: 'gcc 12' });
  await until(() => element.querySelector('.cm-content')?.textContent?.includes('vaddps'));
  const expected = { method: 'assembly', record: now().data.record.id, kernel };
  expect(asked).toEqual([expected, expected]);
  expect(tab(element, 'Assembly').title).toContain('made by gcc 12');

  const id = generated(kernel, link.line);
  now().hover({ ids: [id] });
  await until(() => element.querySelector('.nbc-code-lit'));
  expect([...element.querySelectorAll('.nbc-code-lit')].map((each) => each.textContent)).toEqual([view().state.doc.line(2).text]);
  now().hover(null);

  tab(element, 'C').click();
  await until(() => !element.querySelector('.cm-content')?.textContent?.includes('vaddps'));
  now().wide.value = true;
  await until(() => element.querySelectorAll('.cm-editor').length === 2);
  now().hover({ ids: [id] });
  await until(() => element.querySelectorAll('.nbc-code-lit').length === 2);
  expect(asked.length).toBe(2);
});

test('without a kernel the assembly says what it needs, and the source can still be wide', async () => {
  const { element, now } = await code('small');
  tab(element, 'Assembly').click();
  await until(() => element.querySelector('.nbc-no-assembly'));
  expect(element.querySelector('.nbc-no-assembly')?.textContent).toContain('Open the notebook.');
  tab(element, 'C').click();
  await until(() => element.querySelector('.cm-editor'));
  now().wide.value = true;
  await until(() => element.querySelector('.nbc-wide'));
  expect(element.querySelector('.nbc-no-assembly')).toBeNull();
});

test('a kernel of another language has no such tab', async () => {
  const { element } = await code('triton');
  expect(tab(element, 'PTX')).toBeTruthy();
  expect(tab(element, 'Assembly')).toBeUndefined();
});
