import { batch, untracked, useSignal, useSignalEffect, type Signal } from '@preact/signals';
import { useEffect, useLayoutEffect, useMemo, useRef } from 'preact/hooks';
import type { Graph } from '../record/generated/record';
import type { Drawing } from '../record/generated/scene';
import { nextFrame } from './frame';
import { place } from './graph/geometry';
import { Legend } from './graph/Legend';
import { NodePanel } from './graph/NodePanel';
import { isChecked, overlay, OVERLAYS, type Overlay, type OverlayId } from './graph/overlays';
import { Sheet } from './graph/sheet';
import type { Tip } from './graph/tip';
import { Viewer, type Spot } from './graph/viewer';
import { PaneTools } from './Pane';
import { graphTitle, latestFirst, tabbed, textOf } from './stages';
import type { State } from './state';
import { Tabs } from './Tabs';

const PLAIN: Overlay = { id: 'fate', about: '', steps: [], of: () => null };

/** The graph of one stage as nested boxes; the stages are tabs, the last of them first. */
export function GraphPane({ state }: { state: State }) {
  const { record, scene } = state.data;
  const graphs = useMemo(() => latestFirst(record), [record]);
  const preferred = graphs[0]?.id ?? '';
  useEffect(() => {
    if (!state.graph.value) state.graph.value = preferred;
  }, [state, preferred]);
  const graph = graphs.find((each) => each.id === state.graph.value) ?? graphs[0];
  const colour = useSignal<OverlayId>(record.graphs.some((each) => isChecked(each.nodes)) ? 'error' : 'fate');
  if (!graph) return <p class="nbc-empty">This record has no graph: nothing was captured.</p>;
  const drawing = scene?.drawings.find((each) => each.graph === graph.id);
  return (
    <>
      <Tabs
        label="graphs"
        tabs={tabbed(graphs, graph).map((each) => ({ id: each.id, label: graphTitle(record, each), title: each.title }))}
        chosen={graph.id}
        choose={(id) => (state.graph.value = id)}
      >
        <PaneTools state={state} pane="graph" />
      </Tabs>
      {drawing?.groups.length ? (
        <Drawn key={graph.id} state={state} graph={graph} drawing={drawing} colour={colour} />
      ) : (
        <Undrawn graph={graph} drawing={drawing} />
      )}
    </>
  );
}

/** A graph that has no drawing, as text. */
function Undrawn({ graph, drawing }: { graph: Graph; drawing: Drawing | undefined }) {
  const why = drawing?.left_out.join('; ') || 'this record was made without drawings';
  return (
    <div class="nbc-graph-undrawn">
      <p class="nbc-empty">There is no drawing of this graph: {why}.{graph.text ? ' This is its text.' : ''}</p>
      {graph.text && <pre class="nbc-text nbc-code" tabIndex={0}>{textOf(graph)}</pre>}
    </div>
  );
}

function Drawn(props: { state: State; graph: Graph; drawing: Drawing; colour: Signal<OverlayId> }) {
  const { state, graph, drawing, colour } = props;
  const root = useRef<HTMLDivElement>(null);
  const bar = useRef<HTMLElement>(null);
  const viewer = useRef<Viewer | null>(null);
  const held = useRef<Spot | null>(null);
  const uncovered = useRef(false);
  const tip = useSignal<Tip | null>(null);
  const said = useSignal('');
  const query = useSignal('');
  const current = useSignal(-1);
  const open = useSignal(new Set(drawing.groups.flatMap((group, at) => (group.open ? [at] : []))));
  const unfolded = useSignal<ReadonlySet<number>>(new Set());
  const sheet = useMemo(() => new Sheet(state, graph, drawing), [state, graph, drawing]);
  const chosen = useMemo(() => overlay(sheet, colour.value), [sheet, colour.value]);
  const found = useMemo(() => sheet.find(query.value), [sheet, query.value]);

  useLayoutEffect(() => {
    if (!root.current) return undefined;
    viewer.current = new Viewer(root.current, state, {
      toggle: (spot) => {
        const next = new Set(open.value);
        if (!next.delete(-spot.ref)) next.add(-spot.ref);
        held.current = spot;
        batch(() => {
          open.value = next;
          unfolded.value = new Set([...unfolded.value].filter((at) => at !== -spot.ref));
        });
      },
      unfold: (spot) => {
        const next = new Set(unfolded.value);
        if (!next.delete(-spot.ref)) next.add(-spot.ref);
        held.current = spot;
        unfolded.value = next;
      },
      // Without a render: it moves with every frame of a drag.
      moved: ({ from, part }) => {
        if (!bar.current) return;
        bar.current.hidden = part >= 1;
        bar.current.style.top = `${100 * Math.min(0.98, Math.max(0, from))}%`;
        bar.current.style.height = `${100 * Math.min(1, part)}%`;
      },
      tip: (next) => (tip.value = next),
      say: (words) => (said.value = words),
    });
    return () => {
      viewer.current?.dispose();
      viewer.current = null;
    };
  }, [state]);
  useLayoutEffect(() => {
    viewer.current?.show(sheet, place(drawing, open.value, unfolded.value), typeof chosen === 'string' ? PLAIN : chosen, held.current);
    held.current = null;
    if (uncovered.current) viewer.current?.catchUp();
    uncovered.current = false;
  }, [sheet, chosen, open.value, unfolded.value]);
  useLayoutEffect(() => viewer.current?.find(found), [found]);
  useLayoutEffect(() => {
    // What a check found is what one looks for.
    if (typeof chosen !== 'string' && chosen.first !== undefined) viewer.current?.seek(chosen.first);
  }, [chosen]);

  /** The next that was found, in groups opened for it. */
  const next = (by: number): void => {
    if (!found.length) return;
    current.value = (current.value + by + found.length) % found.length;
    const spot = found[current.value] as Spot;
    const around = sheet.around(spot.group);
    if (around.some((at) => at > 0 && !open.value.has(at))) open.value = new Set([...open.value, ...around]);
    const hidden = sheet.beyondFirst(spot);
    if (hidden.some((at) => !unfolded.value.has(at))) unfolded.value = new Set([...unfolded.value, ...hidden]);
    // Once the groups are drawn open.
    nextFrame(root.current, () => viewer.current?.reveal(spot, true));
    said.value = sheet.words(spot.ref).join(', ');
  };
  useSignalEffect(() => {
    const ids = state.pinned.value?.ids ?? [];
    const ref = ids.length === 1 ? sheet.refs.get(ids[0] ?? '') : undefined;
    if (ref !== undefined && untracked(() => uncover(sheet, ref, open))) uncovered.current = true;
  });
  const all = drawing.groups.map((_, at) => at);
  return (
    <div class="nbc-graph" onClick={(event) => (event.target as Element).closest('.nbc-graph-tools') && event.stopPropagation()}>
      <div class="nbc-graph-tools">
        <input
          type="search"
          class="nbc-graph-search"
          placeholder="find"
          aria-label="find in the graph"
          title="a name, an op, a module or a shape; Enter goes to the next"
          value={query.value}
          onInput={(event) => {
            query.value = event.currentTarget.value;
            current.value = -1;
          }}
          onKeyDown={(event) => event.key === 'Enter' && next(event.shiftKey ? -1 : 1)}
        />
        <span class="nbc-quiet nbc-graph-count" role="status">
          {query.value.trim() && (current.value >= 0 ? `${current.value + 1} of ${found.length}` : `${found.length} found`)}
        </span>
        <select
          class="nbc-graph-select"
          aria-label="colour by"
          title="colour by"
          value={colour.value}
          onChange={(event) => (colour.value = event.currentTarget.value as OverlayId)}
        >
          {OVERLAYS.map(({ id, label }) => <option value={id}>colour: {label}</option>)}
        </select>
        {all.length > 1 && (
          <>
            <Tool label="expand all" sign="⊞" act={() => batch(() => { open.value = new Set(all); unfolded.value = open.value; })} />
            <Tool label="collapse all" sign="⊟" act={() => batch(() => { open.value = new Set(); unfolded.value = open.value; })} />
          </>
        )}
      </div>
      <div class="nbc-graph-middle">
        <div class="nbc-graph-frame">
          <div
            ref={root}
            class="nbc-graph-picture"
            role="application"
            tabIndex={0}
            aria-roledescription="graph"
            aria-label={`${drawing.description}. Enter walks through its boxes, arrow keys move, plus and minus zoom.`}
          />
          <i ref={bar} class="nbc-graph-bar" hidden />
          <Hint tip={tip} />
        </div>
        <NodePanel state={state} />
      </div>
      <div class="nbc-graph-foot">
        <span class="nbc-graph-zoom">
          <Tool label="zoom in" sign="+" act={() => viewer.current?.zoom(1.3)} />
          <Tool label="zoom out" sign="−" act={() => viewer.current?.zoom(1 / 1.3)} />
          <Tool label="fit" sign="fit" act={() => viewer.current?.fit()} />
        </span>
        <Legend sheet={sheet} overlay={chosen} />
      </div>
      <div class="nbc-unseen" aria-live="polite">{said.value}</div>
    </div>
  );
}

/** Opens the groups around a node, if any is closed; equal modules stay folded. */
function uncover(sheet: Sheet, ref: number, open: Signal<Set<number>>): boolean {
  const group = sheet.groupOf(ref);
  const around = sheet.around(group).filter((at) => at > 0);
  if (sheet.beyondFirst({ ref, group }).length || around.every((at) => open.peek().has(at))) return false;
  open.value = new Set([...open.peek(), ...around]);
  return true;
}

function Tool({ label, sign, act }: { label: string; sign: string; act: () => void }) {
  return (
    <button
      type="button"
      class="nbc-graph-tool"
      aria-label={label}
      title={label}
      onClick={(event) => {
        event.stopPropagation();
        act();
      }}
    >
      {sign}
    </button>
  );
}

/** What is known of the box under the pointer, beside it. Nothing is measured: that would lay out the page. */
function Hint({ tip }: { tip: Signal<Tip | null> }) {
  if (!tip.value) return null;
  const { lines, ...corner } = tip.value;
  return (
    <div class="nbc-graph-tip" style={corner} aria-hidden="true">
      {lines.map((line, at) => <div class={at ? 'nbc-quiet' : 'nbc-graph-tip-name'}>{line}</div>)}
    </div>
  );
}
