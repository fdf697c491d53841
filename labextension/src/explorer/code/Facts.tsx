import type { Kernel } from '../../record/generated/record';
import type { KernelCode } from '../../record/generated/scene';
import { litClass, pointing, type State } from '../state';
import { bytes, count, quantity } from '../units';

/** What a kernel does and takes: a line that opens to the rest. */
export function Facts({ state, kernel, code }: { state: State; kernel: Kernel; code: KernelCode | undefined }) {
  const spills = code?.launches.flat().find((fact) => fact.bad);
  const short = [
    code?.time ?? '',
    `${bytes(kernel.bytes_read + kernel.bytes_written)} moved`,
    kernel.flops ? quantity(kernel.flops, 'flop') : '',
    kernel.schedule,
    kernel.recomputed.length ? `${kernel.recomputed.length} recomputed` : '',
  ].filter(Boolean);
  return (
    <details class="nbc-kernel-facts" onClick={(event) => event.stopPropagation()}>
      <summary>
        {spills && <b class="nbc-bad">{spills.text} · </b>}
        {short.join(' · ')}
      </summary>
      <dl>
        {(state.data.scene?.schedules[kernel.schedule] ?? []).map(({ part, meaning }) => <Fact name={part}>{meaning}</Fact>)}
        {kernel.reads.length > 0 && <Fact name={`reads ${bytes(kernel.bytes_read)}`}>{kernel.reads.join(', ')}</Fact>}
        {kernel.writes.length > 0 && <Fact name={`writes ${bytes(kernel.bytes_written)}`}>{kernel.writes.join(', ')}</Fact>}
        {kernel.launches.map((launched, place) => (
          <Fact name={kernel.launches.length > 1 ? `launch ${place + 1}` : 'launch'}>
            {(code?.launches[place] ?? [{ text: launched.function, bad: false }]).map((fact, at) => (
              <>
                {at ? ' · ' : ''}
                {fact.bad ? <b class="nbc-bad">{fact.text}</b> : fact.text}
              </>
            ))}
          </Fact>
        ))}
        {kernel.recomputed.length > 0 && (
          <Fact name={`recomputes ${count(kernel.recomputed.length, 'loop')}`}>
            {kernel.recomputed.map((id, place) => (
              <>
                {place ? ', ' : ''}
                <span class={litClass(state.lit.value, [id])} role="button" {...pointing(state, { ids: [id] })}>
                  {state.links.nodes.get(id)?.name ?? id}
                </span>
              </>
            ))}
          </Fact>
        )}
        <Fact name="made for">{kernel.target}</Fact>
      </dl>
    </details>
  );
}

function Fact({ name, children }: { name: string; children: preact.ComponentChildren }) {
  return (
    <>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </>
  );
}
