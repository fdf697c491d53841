import { useComputed, useSignal } from '@preact/signals';
import type { Kernel, Node } from '../../record/generated/record';
import { litClass, pointing, type State } from '../state';
import { bytes, clip, count, linesLabel, shape } from '../units';

/** Kernels at first, and at each "show more": a page of thousands takes a browser seconds to lay out. */
const PAGE = 40;

/** What each kernel does, loop by loop, in the order in which they run. */
export function Inside({ state }: { state: State }) {
  const { kernels } = state.data.record;
  const most = useSignal(PAGE);
  const chosen = state.kernel.value;
  const shown = kernels.filter((kernel, place) => place < most.value || kernel.id === chosen);
  return (
    <section class="nbc-inside" aria-label="inside the kernels">
      {shown.map((kernel) => <Body key={kernel.id} state={state} kernel={kernel} open={kernel.id === chosen} />)}
      {most.value < kernels.length && (
        <button type="button" class="nbc-button nbc-show-more" onClick={() => (most.value += 2 * PAGE)}>
          Show more: {shown.length} of {kernels.length.toLocaleString('en')} are shown
        </button>
      )}
    </section>
  );
}

function Body({ state, kernel, open }: { state: State; kernel: Kernel; open: boolean }) {
  const again = new Set(kernel.recomputed);
  const label = state.calls.get(kernel.id)?.label ?? kernel.id;
  const opened = useSignal(open);
  const look = useComputed(() => `nbc-body ${litClass(state.lit.value, [kernel.id, ...kernel.loops])}`);
  return (
    <details class={look} open={opened.value} onToggle={(event) => (opened.value = event.currentTarget.open)}>
      <summary>
        <span class="nbc-chip nbc-on-fused">{clip(label, 14)}</span> {clip(kernel.name, 48)}
        <span class="nbc-quiet">
          {' '}{count(kernel.loops.length, 'loop')}, {kernel.schedule} · {bytes(kernel.bytes_read + kernel.bytes_written)}
        </span>
      </summary>
      {opened.value && (
        <ol class="nbc-code" role="group" aria-label={`loops of ${label}`}>
          {kernel.loops.map((id) => <Loop key={id} state={state} id={id} again={again.has(id)} />)}
        </ol>
      )}
    </details>
  );
}

function Loop({ state, id, again }: { state: State; id: string; again: boolean }) {
  const loop = state.links.nodes.get(id);
  const look = useComputed(() => litClass(state.lit.value, [id]));
  return (
    <li role="button" {...pointing(state, { ids: [id] })} class={look}>
      <code>{loop ? said(loop) : id}</code>
      {again && <span class="nbc-again" title="computed where it is read, more than once, and not stored">↻ recomputed</span>}
      <span class="nbc-quiet">{loop && shape(loop.shape, loop.dtype)}</span>
      <span class="nbc-quiet nbc-loop-line">{linesLabel([...state.links.lines([id])])}</span>
    </li>
  );
}

/** A loop's line of the program, without the columns after it: its type and its cell line stand beside it. */
function said(loop: Node): string {
  return (loop.text || loop.name).replace(/\s{2,}\w+\[[^\]]*\](?:\s+cell[s]? [\d, –-]+)?\s*$/, '').replace(/\s{2,}/g, ' ');
}
