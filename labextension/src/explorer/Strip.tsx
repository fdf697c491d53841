import type { Stage } from './stages';
import { graphsOf } from './stages';
import type { State } from './state';

/** Which graphs a step of the pipeline made. */
const MADE: Record<string, Stage[]> = {
  capture: ['fx'],
  aot: ['joint', 'forward', 'backward'],
  lower: ['loops'],
  fuse: ['fused'],
};

/** The pipeline, a step a button: shows what that step made. */
export function Strip({ state }: { state: State }) {
  const steps = state.data.scene?.strip ?? [];
  if (!steps.length) return null;
  const shown = state.data.record.graphs.find((graph) => graph.id === state.graph.value)?.stage;
  return (
    <nav class="nbc-strip" aria-label="pipeline">
      {steps.map((step) => {
        const graph = graphsOf(state.data.record, MADE[step.step] ?? [])[0];
        const current = shown !== undefined && (MADE[step.step] ?? []).includes(shown);
        return (
          <button
            type="button"
            class="nbc-step"
            aria-current={current ? 'step' : undefined}
            onClick={() => {
              if (graph) state.graph.value = graph.id;
              if (step.step === 'fuse') state.panel.value = 'fusion';
              if (step.step === 'run') state.panel.value = 'timing';
            }}
          >
            <span class="nbc-step-name">{step.name}</span>
            <span class="nbc-quiet">{step.note || step.figure}</span>
          </button>
        );
      })}
    </nav>
  );
}
