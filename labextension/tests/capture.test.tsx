// @vitest-environment happy-dom
import { afterEach, describe, expect, test } from 'vitest';
import { Playback } from '../src/explorer/capture/playback';
import { codegen, lowering, passes } from '../src/explorer/capture/stories';
import type { DynamoWalk } from '../src/record/generated/record';
import { fixture, opened, until, type Opened } from './hosts';
import { record as recordOf } from './records';

let open: Opened | null = null;
afterEach(() => {
  open?.explorer.dispose();
  open = null;
  document.body.replaceChildren();
});

const { record } = recordOf('walk');

describe('a walk, played', () => {
  test('has every node of the graphs at one step', () => {
    const made = record.walks.flatMap((walk) => walk.steps.flatMap((step) => step.made)).sort();
    const nodes = record.graphs.filter((graph) => graph.stage === 'fx').flatMap((graph) => graph.nodes.map((node) => node.id)).sort();
    expect(nodes.length).toBeGreaterThan(8);
    expect(made).toEqual(nodes);
  });

  test('has what a store names among the locals, and what a load pushes on the stack', () => {
    let seen = 0;
    for (const walk of record.walks) {
      const playback = new Playback(walk);
      for (let place = 0; place < playback.count; place++) {
        const now = playback.at(place);
        if (!now || now.step.broke) continue;
        if (now.instruction?.name === 'LOAD_FAST') expect(now.stack.length).toBeGreaterThan(0);
        if (now.instruction?.name !== 'STORE_FAST') continue;
        expect([...now.locals.keys()]).toContain(now.instruction.argument);
        seen++;
      }
      expect(playback.at(playback.count)).toBeNull();
    }
    expect(seen).toBeGreaterThan(3);
  });

  test('names the calls that lead to a step, and forgets a frame when its call is over', () => {
    const walk: DynamoWalk = {
      frame: '0/0', attempt: 1, ended: 'returned', graph: '', reason: '', rewritten: null, cut: '',
      codes: [], instructions: [], words: ['a', 'b', 'int 1', 'int 2'],
      steps: [
        { kept: 0, pushed: [2], stored: [0, 2], depth: 0 },
        { kept: 0, pushed: [3], stored: [1, 3], depth: 1 },
        { kept: 1, pushed: [3], stored: [], depth: 0 },
        { kept: 0, pushed: [], stored: [], depth: 1 },
        { kept: 0, pushed: [], stored: [0, -1], depth: 0 },
      ].map((step) => ({ at: 0, made: [], dropped: [], said: '', broke: false, ...step })),
    };
    const playback = new Playback(walk);
    const played = [0, 1, 2, 3, 4].map((place) => playback.at(place));
    expect(played.map((now) => now?.stack)).toEqual([['int 1'], ['int 2'], ['int 1', 'int 2'], [], []]);
    expect(played.map((now) => [...(now?.locals ?? [])])).toEqual([[['a', 'int 1']], [['b', 'int 2']], [['a', 'int 1']], [], []]);
    expect(played.map((now) => now?.callers)).toEqual([[], [0], [], [2], []]);
  });

  test('survives numbers that no Python wrote', () => {
    const first = record.walks[0] as DynamoWalk;
    const steps = [{ at: 1e9, depth: 1e9, kept: -3, pushed: [1e9, -1], stored: [5e8, 7, 3], made: [], dropped: [], said: '', broke: false }];
    const now = new Playback({ ...first, steps }).at(0);
    expect(now?.stack).toEqual(['?', '?']);
    expect(now?.instruction).toBeUndefined();
  });
});

describe('the passes, as stories', () => {
  test('every node that is lowered is a step, and the loops that came of it exist', () => {
    const story = lowering(record);
    const loops = record.graphs.filter((graph) => graph.stage === 'loops');
    const parents = new Set(loops.map((graph) => graph.parent));
    const nodes = record.graphs.filter((graph) => parents.has(graph.id)).flatMap((graph) => graph.nodes);
    expect(story.steps.flatMap((step) => step.from)).toEqual(nodes.filter((node) => !['input', 'output'].includes(node.kind)).map((node) => node.id));
    const made = new Set(story.steps.flatMap((step) => step.made));
    const all = loops.flatMap((graph) => graph.nodes).filter((node) => node.origins.length && !['input', 'output'].includes(node.kind));
    expect([...made].sort()).toEqual([...new Set(all.map((node) => node.id))].sort());
  });

  test('every line of a kernel that was made for loops is in one block', () => {
    const story = codegen(record);
    const lines = record.kernels.reduce((sum, kernel) => sum + kernel.line_map.length, 0);
    expect(lines).toBeGreaterThan(0);
    expect(story.steps.reduce((sum, step) => sum + step.last - step.first + 1, 0)).toBe(lines);
    expect(story.rows.length).toBeGreaterThan(lines);
  });

  test('every pass is a step', () => {
    const story = passes(record);
    expect(story.rows.map((row) => row.text)).toEqual(record.passes.map((pass) => pass.name));
    expect(story.steps.filter((step) => step.graph).length).toBeGreaterThan(0);
  });
});

function button(element: HTMLElement, name: string): HTMLButtonElement {
  const found = [...element.querySelectorAll<HTMLButtonElement>('.nbc-capture .nbc-step-button')].find((each) => each.ariaLabel?.startsWith(name) || each.getAttribute('aria-label')?.startsWith(name));
  if (!found) throw new Error(`no button ${name}`);
  return found;
}

test('a step to a node pins it; keys step; a step without one lets it go', async () => {
  open = await opened(fixture('walk'), null);
  const { element, now } = open;
  now().enter('capture');
  await until(() => element.querySelector('.nbc-capture .nbc-walk'));
  button(element, 'next node').click();
  await until(() => now().pinned.value);
  const walk = now().data.record.walks.find((each) => each.graph) as DynamoWalk;
  const at = walk.steps.findIndex((step) => step.made.length);
  expect(now().pinned.value?.ids).toEqual(walk.steps[at]?.made);
  const here = element.querySelector('[aria-label=bytecode] [aria-current]');
  expect(here?.textContent).toContain(walk.instructions[walk.steps[at]?.at ?? -1]?.name);
  const section = element.querySelector('.nbc-capture .nbc-stepper') as HTMLElement;
  const press = (key: string, shiftKey = false): boolean => section.dispatchEvent(new KeyboardEvent('keydown', { key, shiftKey, bubbles: true }));
  press('Home');
  await until(() => section.textContent?.includes(`1 of ${walk.steps.length}`));
  expect(now().pinned.value).toBeNull();
  press('n');
  await until(() => section.textContent?.includes(`${at + 1} of ${walk.steps.length}`));
  press('End');
  await until(() => section.textContent?.includes(`${walk.steps.length} of ${walk.steps.length}`));
  press('N', true);
  const nodes = walk.steps.flatMap((step, place) => (step.made.length && place < walk.steps.length - 1 ? [place] : []));
  await until(() => section.textContent?.includes(`${(nodes[nodes.length - 1] ?? 0) + 1} of ${walk.steps.length}`));
});

test('a record that nobody watched says how to, and its passes are stepped', async () => {
  open = await opened(fixture('small'), null);
  const { element, now } = open;
  now().enter('capture');
  await until(() => element.querySelector('.nbc-capture .nbc-walk-two'));
  const tab = [...element.querySelectorAll<HTMLButtonElement>('.nbc-capture [role=tab]')].find((each) => each.textContent === "Dynamo's walk");
  tab?.click();
  await until(() => element.querySelector('.nbc-capture')?.textContent?.includes('--watch'));
});
