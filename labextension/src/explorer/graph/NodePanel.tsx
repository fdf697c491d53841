import type { ComponentChildren } from 'preact';
import { useMemo } from 'preact/hooks';
import type { Node } from '../../record/generated/record';
import { pointing, type State } from '../state';
import { bytes, clip, count, percent } from '../units';
import { propertiesOf, withoutWork, type Properties } from './properties';
import { timeOf } from './sheet';

/** Of a list: the rest is counted. */
const FEW = 8;

const KINDS: Record<Node['kind'], string> = {
  input: 'an input', constant: 'a constant', view: 'a view', compute: 'computes', library: 'a library call',
  fallback: 'runs by torch: no lowering', output: 'an output', pointwise: 'a pointwise loop', reduction: 'a reduction',
  scan: 'a scan', scatter: 'a scatter', kernel: 'a generated kernel',
};

/** All that is known of the node that is chosen, beside the graph. */
export function NodePanel({ state }: { state: State }) {
  const { pinned } = state;
  const id = pinned.value?.ids.length === 1 ? (pinned.value.ids[0] ?? '') : '';
  const known = useMemo(() => propertiesOf(state, id), [state, id]);
  if (!known) return null;
  const { node, graph } = known;
  return (
    <aside class="nbc-node" aria-label={`properties of ${node.name}`} onClick={(event) => event.stopPropagation()}>
      <header class="nbc-node-head">
        <b>{node.name}</b>
        <button type="button" class="nbc-node-close" aria-label="close the properties" title="close (Escape)" onClick={() => state.pin(null)}>✕</button>
      </header>
      <dl class="nbc-node-facts" tabIndex={0} aria-label={`facts about ${node.name}`}>
        <Fact name="op">{node.op && <code>{node.op}</code>} <span class="nbc-quiet">{KINDS[node.kind]}, {graph.title || graph.stage}</span></Fact>
        <Tensor node={node} />
        <Origin state={state} known={known} />
        <Work state={state} known={known} />
        {node.error !== null && <Fact name="error">{node.error.toExponential(2)} <span class="nbc-quiet">against float64</span></Fact>}
        <Refused state={state} known={known} />
        <Nodes state={state} name="reads" nodes={known.inputs} />
        <Nodes state={state} name={known.users.length ? count(known.users.length, 'user') : 'users'} nodes={known.users} none="none: a result" />
        {node.note && <Fact name="note">{node.note}</Fact>}
      </dl>
    </aside>
  );
}

function Fact({ name, children }: { name: string; children: ComponentChildren }) {
  return (
    <>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </>
  );
}

function Tensor({ node }: { node: Node }) {
  return (
    <>
      {node.shape && <Fact name="shape"><code>[{node.shape.join(', ')}]</code></Fact>}
      {node.dtype && <Fact name="dtype"><code>{node.dtype.replace('torch.', '')}</code></Fact>}
      {node.stride && <Fact name="strides"><code>[{node.stride.join(', ')}]</code></Fact>}
      {node.bytes > 0 && <Fact name="size">{bytes(node.bytes)}</Fact>}
    </>
  );
}

function Origin({ state, known }: { state: State; known: Properties }) {
  const source = state.data.record.cell?.source.split('\n') ?? [];
  const { lines, place, node } = known;
  return (
    <>
      {lines.length > 0 && (
        <Fact name={lines.length > 1 ? 'lines' : 'line'}>
          {lines.slice(0, FEW).map((line) => (
            <div class="nbc-node-line" role="button" {...pointing(state, { ids: [], line })}>
              <span class="nbc-quiet">{line}</span> <code>{source[line - 1]?.trim() ?? ''}</code>
            </div>
          ))}
          {lines.length > FEW && <span class="nbc-quiet">{lines.length - FEW} more</span>}
        </Fact>
      )}
      {place && <Fact name="source">{place}</Fact>}
      {node.module && <Fact name="module"><code>{node.module}</code></Fact>}
    </>
  );
}

/** Which kernels and calls do its work, or that none does. */
function Work({ state, known }: { state: State; known: Properties }) {
  const { kernel, call, kernels, calls } = known;
  const nothing = withoutWork(state, known);
  const price = call ? (state.data.scene?.prices?.[call.id] ?? '') : '';
  return (
    <>
      {(kernels.length > 0 || calls.length > 0) && (
        <Fact name="lowered to">
          {kernels.slice(0, FEW).map((each) => (
            <Chip state={state} id={each.id} fate="fused" text={state.calls.get(each.id)?.label ?? each.id} title={each.name} />
          ))}
          {calls.slice(0, FEW).map((each) => <Chip state={state} id={each.id} fate={each.fate} text={each.label} title={each.name} />)}
          {kernels.length + calls.length > FEW && <span class="nbc-quiet"> of {count(kernels.length + calls.length, 'call')}</span>}
        </Fact>
      )}
      {nothing && <Fact name="lowered to"><span class="nbc-quiet">{nothing}</span></Fact>}
      {kernel && <Fact name="holds">{count(kernel.loops.length, 'loop')}{kernel.schedule && `, schedule ${kernel.schedule}`}</Fact>}
      {call && <Fact name="moves">{bytes(call.bytes)}, {percent(call.share)} of all{timeOf(call) && ` · ${timeOf(call)}`}</Fact>}
      {price && <Fact name="price">{price}</Fact>}
    </>
  );
}

function Chip({ state, id, fate, text, title }: { state: State; id: string; fate: string; text: string; title: string }) {
  return <span class={`nbc-chip nbc-on-${fate}`} role="button" title={title} {...pointing(state, { ids: [id] })}>{clip(text, 18)}</span>;
}

/** Why it is not one kernel with its neighbours. */
function Refused({ state, known }: { state: State; known: Properties }) {
  const { refused, fused } = known;
  return (
    <>
      {fused > 0 && <Fact name="fused">in {count(fused, 'pair')}</Fact>}
      {refused.length > 0 && (
        <Fact name="not fused">
          <ul role="group" aria-label="pairs that were not fused">
            {refused.slice(0, FEW).map(({ decision, other }) => (
              <li role="button" {...pointing(state, { ids: [decision.id, decision.producer, decision.consumer] })}>
                with <b>{clip(other, 26)}</b>: {decision.reason}
              </li>
            ))}
          </ul>
          {refused.length > FEW && <span class="nbc-quiet">{refused.length - FEW} more</span>}
        </Fact>
      )}
    </>
  );
}

function Nodes({ state, name, nodes, none = '' }: { state: State; name: string; nodes: readonly Node[]; none?: string }) {
  if (!nodes.length) return none ? <Fact name={name}><span class="nbc-quiet">{none}</span></Fact> : null;
  return (
    <Fact name={name}>
      {nodes.slice(0, FEW).map((each, at) => (
        <>
          {at > 0 && ', '}
          <span class="nbc-node-link" role="button" {...pointing(state, { ids: [each.id] })}>{clip(each.name, 28)}</span>
        </>
      ))}
      {nodes.length > FEW && <span class="nbc-quiet"> and {nodes.length - FEW} more</span>}
    </Fact>
  );
}
