import { useSignal, type Signal } from '@preact/signals';
import { useMemo } from 'preact/hooks';
import type { DynamoWalk, WalkCode, WalkInstruction } from '../../record/generated/record';
import { highlighted } from '../highlight';
import { sameFocus, type State } from '../state';
import { clip, count } from '../units';
import { Made, ShowGraph } from './Made';
import { Playback, type Moment } from './playback';
import { Rows } from './Rows';
import { Steps } from './Steps';

const ENDED: Record<DynamoWalk['ended'], string> = {
  returned: 'returned', break: 'graph break', restart: 'began again', stopped: 'gave up', raised: 'failed',
};

/** Dynamo's walks, one at a time. */
export function WalkView({ state }: { state: State }) {
  const { walks } = state.data.record;
  const chosen = useSignal(firstKept(walks));
  const walk = walks[chosen.value];
  if (!walk) return <p class="nbc-empty">Nobody watched this capture: run the cell again with %%compile --watch.</p>;
  return (
    <>
      <p class="nbc-walk-chosen">
        <select aria-label="walk" value={String(chosen.value)} onChange={(event) => (chosen.value = Number(event.currentTarget.value))}>
          {walks.map((each, at) => <option key={at} value={String(at)}>{title(each)}</option>)}
        </select>
        <span class="nbc-quiet">{walk.reason || 'the whole function is in one graph'}</span>
      </p>
      {walk.cut && <p class="nbc-moment nbc-bad">Not all of it is here: {walk.cut}.</p>}
      <Walked key={`${state.data.record.id} ${chosen.value}`} state={state} walk={walk} />
      <Rewritten walk={walk} />
    </>
  );
}

/** The first walk that made a graph: attempts before it were thrown away. */
function firstKept(walks: readonly DynamoWalk[]): number {
  return Math.max(0, walks.findIndex((walk) => walk.graph));
}

function title(walk: DynamoWalk): string {
  const name = walk.codes[0]?.name ?? '?';
  const graph = walk.graph ? `, made ${walk.graph}` : '';
  return `${clip(name, 40)}, attempt ${walk.attempt}: ${count(walk.steps.length, 'instruction')}, ${ENDED[walk.ended]}${graph}`;
}

function Walked({ state, walk }: { state: State; walk: DynamoWalk }) {
  const playback = useMemo(() => new Playback(walk), [walk]);
  const step = useSignal(0);
  const now = playback.at(step.value);
  if (!now) return <p class="nbc-empty">No instruction of it was followed.</p>;
  const go = (to: number): void => {
    step.value = to;
    const made = walk.steps[to]?.made ?? [];
    const pinned = state.pinned.value;
    if (!made.length) state.pin(null);
    else if (!pinned || !sameFocus(pinned, { ids: made })) state.pin({ ids: made });
  };
  const marks = [
    { name: 'node', key: 'n', at: playback.nodes },
    { name: 'break', key: 'b', at: playback.breaks },
  ];
  return (
    <Steps label="Dynamo's walk, instruction by instruction" noun="instruction" count={playback.count} step={step} go={go} said={said(now)} marks={marks}>
      <div class="nbc-walk">
        <div class="nbc-walk-side">
          <h3 class="nbc-pane-title">{path(playback, now)}</h3>
          <Source state={state} code={now.code} instruction={now.instruction} />
        </div>
        <div class="nbc-walk-side">
          <h3 class="nbc-pane-title">Instructions that were followed</h3>
          <Instructions playback={playback} now={now} step={step} go={go} />
        </div>
        <div class="nbc-walk-facts">
          {now.step.said && <p class={now.step.broke ? 'nbc-bad' : ''}>{now.step.said}</p>}
          <h3 class="nbc-pane-title">Nodes that it made</h3>
          <Nodes state={state} walk={walk} now={now} />
          <h3 class="nbc-pane-title">Stack after it, top first</h3>
          <Values empty="empty" rows={[...now.stack].reverse().map((value, at) => [String(at), value] as const)} />
          <h3 class="nbc-pane-title">Locals</h3>
          <Values empty="none yet" rows={[...now.locals]} />
        </div>
      </div>
    </Steps>
  );
}

function said({ instruction, step }: Moment): string {
  const words = [instruction?.name, instruction?.argument, instruction?.line && `line ${instruction.line}`].filter(Boolean).join(' ');
  const made = step.made.length ? `, makes ${count(step.made.length, 'node')}` : '';
  return `${words}${made}${step.said ? `, ${step.said}` : ''}`;
}

/** The functions that lead here, outermost first. */
function path(playback: Playback, now: Moment): string {
  const names = now.callers.map((at) => playback.at(at)?.code?.name ?? '?');
  const shown = names.length > 3 ? [names[0], '…', ...names.slice(-2)] : names;
  return [...shown, now.code?.name ?? '?'].join(' › ');
}

function Nodes({ state, walk, now }: { state: State; walk: DynamoWalk; now: Moment }) {
  const { made, dropped } = now.step;
  if (!made.length && !dropped.length) return <p class="nbc-quiet">none</p>;
  return (
    <>
      {made.length > 0 && <Made state={state} ids={made} />}
      {made.length > 0 && <p><ShowGraph state={state} id={`${walk.graph}.fx`} /></p>}
      {dropped.length > 0 && <p class="nbc-quiet">{dropped.join(', ')}: {walk.graph ? 'taken out of the graph again' : 'thrown away with this attempt'}</p>}
    </>
  );
}

function Values({ rows, empty }: { rows: readonly (readonly [string, string])[]; empty: string }) {
  if (!rows.length) return <p class="nbc-quiet">{empty}</p>;
  return (
    <dl class="nbc-walk-values">
      {rows.map(([name, value]) => (
        <>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </>
      ))}
    </dl>
  );
}

function Instructions({ playback, now, step, go }: { playback: Playback; now: Moment; step: Signal<number>; go: (to: number) => void }) {
  const code = now.instruction?.code ?? -1;
  const listing = useMemo(() => playback.listing(code), [playback, code]);
  const here = listing.indexOf(now.step.at);
  return (
    <Rows
      label="bytecode"
      count={listing.length}
      first={here}
      last={here}
      row={(at, lit) => {
        const place = listing[at] ?? -1;
        const each = playback.walk.instructions[place];
        const often = playback.visited(place);
        return (
          <div key={place} role="listitem" class={`nbc-walk-row ${lit ? 'nbc-here' : ''}`} aria-current={lit ? 'step' : undefined} onClick={() => go(playback.visit(place, step.value))}>
            <span class="nbc-number">{each?.offset}</span>
            <code>{each?.name} <span class="tok-literal">{each?.argument}</span></code>
            {often > 1 && <span class="nbc-quiet">×{often}</span>}
          </div>
        );
      }}
    />
  );
}

function Source({ state, code, instruction }: { state: State; code: WalkCode | undefined; instruction: WalkInstruction | undefined }) {
  const cell = state.data.record.cell?.source ?? '';
  const own = code?.file === '';
  const text = own ? cell : (code?.text ?? '');
  const start = own ? 1 : (code?.first_line ?? 1);
  const lines = useMemo(() => text.replace(/\n$/, '').split('\n'), [text]);
  const coloured = useMemo(() => highlighted(text, 'python'), [text]);
  if (!text || !instruction) return <p class="nbc-empty">The text of {code?.file || 'this function'} is not in the record.</p>;
  const [first, last] = [instruction.line - start, Math.max(instruction.line, instruction.end_line) - start];
  return (
    <Rows
      label="source"
      count={lines.length}
      first={Math.max(0, first)}
      last={Math.min(lines.length - 1, Math.max(0, last))}
      row={(at, here) => (
        <div key={at} role="listitem" class={`nbc-walk-row ${here ? 'nbc-here' : ''}`}>
          <span class="nbc-number">{start + at}</span>
          <code>{here ? spanned(lines[at] ?? '', at, first, last, instruction) : (coloured[at]?.length ? coloured[at] : '\u00a0')}</code>
        </div>
      )}
    />
  );
}

/** A line with the part marked that the instruction is of. */
function spanned(line: string, at: number, first: number, last: number, { column, end_column: end }: WalkInstruction) {
  if (column === null || end === null || (first === last && end <= column)) return line || '\u00a0';
  const from = at === first ? column : line.length - line.trimStart().length;
  const to = at === last ? end : line.length;
  return (
    <>
      {line.slice(0, from)}
      <mark class="nbc-walk-span">{line.slice(from, to)}</mark>
      {line.slice(to)}
    </>
  );
}

/** What runs in the function's place from now on. */
function Rewritten({ walk }: { walk: DynamoWalk }) {
  const written = walk.rewritten;
  if (!written) return null;
  return (
    <section class="nbc-walk-written" aria-label="what Dynamo wrote in its place">
      {written.python ? (
        <details open>
          <summary>What Dynamo wrote in its place, as Python</summary>
          <pre class="nbc-text nbc-code" tabIndex={0}>{highlighted(written.python, 'python').map((line) => <>{line}{'\n'}</>)}</pre>
        </details>
      ) : (
        <p class="nbc-quiet nbc-moment">{written.why_not}</p>
      )}
      <details open={!written.python}>
        <summary>{written.python ? 'The same as bytecode' : 'What Dynamo wrote in its place, as bytecode'}</summary>
        <pre class="nbc-text nbc-code" tabIndex={0}>{written.listing}</pre>
      </details>
    </section>
  );
}
