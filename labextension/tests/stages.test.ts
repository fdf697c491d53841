import { expect, test } from 'vitest';
import { graphTitle } from '../src/explorer/stages';
import type { Compilation, Graph } from '../src/record/generated/record';

function titles(graphs: readonly (readonly [string, Graph['stage']])[]): string[] {
  const made = graphs.map(([id, stage]) => ({ id, stage }) as Graph);
  const record = { graphs: made } as unknown as Compilation;
  return made.map((graph) => graphTitle(record, graph));
}

test('a graph is called by its stage, a jaxpr by what it is, and both by the capture where there are several', () => {
  expect(titles([['f.jaxpr', 'fx'], ['f.stablehlo', 'loops'], ['f.loops', 'loops'], ['f.fused', 'fused']])).toEqual(['jaxpr', 'stablehlo', 'loops', 'fused']);
  expect(titles([['f.jaxpr', 'fx'], ['g0.fx', 'fx'], ['g0.fw', 'forward'], ['g0.fw.fused', 'fused']])).toEqual(['f jaxpr', 'g0 FX', 'g0 forward', 'g0 fused']);
});
