import { useSignal } from '@preact/signals';
import type { GraphBreak, Guard, Recompile, Span } from '../record/generated/record';
import { Mended } from './Mended';
import { litLine, pointing, type State } from './state';
import { clip, count } from './units';

/** Guards of one kind shown before one asks for all. */
const FEW = 4;

const KINDS: ReadonlyMap<string, string> = new Map(Object.entries({
  TENSOR_MATCH: 'dtype, device, shape, strides and requires_grad of a tensor',
  TYPE_MATCH: 'an object is of this very type',
  ID_MATCH: 'it is this very object',
  EQUALS_MATCH: 'a value is still the same',
  CONSTANT_MATCH: 'a value is still the same',
  BOOL_MATCH: 'a flag is still set the same way',
  DICT_KEYS: 'a dictionary has the same keys',
  DICT_CONTAINS: 'a dictionary has this key',
  SEQUENCE_LENGTH: 'a list has the same length',
  NONE_MATCH: 'it is still None',
  HASATTR: 'an attribute is there',
  NOT_PRESENT_IN_GENERIC_DICT: 'an attribute is not overridden',
  FUNCTION_MATCH: 'it is this very function',
  CLOSURE_MATCH: 'it is this very function',
  DUPLICATE_INPUT: 'two names are the same object',
  SHAPE_ENV: 'what was assumed of symbolic sizes',
  GRAD_MODE: 'gradients are on or off as they were',
  DEFAULT_DEVICE: 'the default device',
  GLOBAL_STATE: "torch's global settings",
}));

/** Why the graph ends where it does, what made it compile again, and what has to stay true for it to be used. */
export function GuardsPane({ state }: { state: State }) {
  const { record } = state.data;
  const { breaks, recompiles, guards } = record;
  const wanted = useSignal('');
  const words = wanted.value.trim().toLowerCase();
  const found = words ? guards.filter((guard) => `${guard.kind} ${guard.name} ${guard.code.join(' ')}`.toLowerCase().includes(words)) : guards;
  return (
    <div class="nbc-guards">
      <Breaks state={state} breaks={breaks} />
      <Eagerly state={state} />
      <Recompiles state={state} recompiles={recompiles} />
      <section aria-label="guards">
        <div class="nbc-guards-head">
          <h4>{count(guards.length, 'guard')} <span class="nbc-quiet">checked before each call; if one fails, the code compiles again</span></h4>
          {guards.length > FEW && (
            <input type="search" class="nbc-search" placeholder="search guards" aria-label="search guards" value={wanted.value} onInput={(event) => (wanted.value = event.currentTarget.value)} />
          )}
        </div>
        {words && <p class="nbc-quiet nbc-guards-found" role="status">{found.length ? `${count(found.length, 'guard')} with “${clip(wanted.value.trim(), 40)}”` : `No guard has “${clip(wanted.value.trim(), 40)}”.`}</p>}
        {kinds(found).map(([kind, own]) => <Kind key={kind} state={state} kind={kind} guards={own} open={words !== ''} />)}
        {!guards.length && <p class="nbc-empty">This record has no guards: {record.backend === 'eager' ? 'nothing was compiled' : 'nothing was captured'}.</p>}
      </section>
    </div>
  );
}

function Breaks({ state, breaks }: { state: State; breaks: readonly GraphBreak[] }) {
  if (!breaks.length && eagerLines(state).length) return <p class="nbc-guards-none">No graph breaks, <span class="nbc-quiet">but not all of the cell was compiled:</span></p>;
  if (!breaks.length) return <p class="nbc-guards-none"><span class="nbc-tone-good">✓</span> No graph breaks: <span class="nbc-quiet">the tensor statements are captured whole.</span></p>;
  return (
    <section aria-label="graph breaks">
      <div class="nbc-guards-head"><h4>{count(breaks.length, 'graph break')}</h4></div>
      {breaks.map((each, place) => (
        <div class={`nbc-broken ${lit(state, each.spans)}`}>
          <Place state={state} spans={each.spans} />
          <div>
            <b>{each.reason}</b>
            {each.hint && <p>{each.hint}</p>}
            <Mended state={state} place={place} />
            {each.kind && <span class="nbc-quiet">{each.kind === 'cell' ? 'a statement of the cell that runs in Python' : each.kind}{each.after_graph && ` · after graph ${each.after_graph}`}</span>}
          </div>
        </div>
      ))}
    </section>
  );
}

/** Those that are told as graph breaks are not told twice. */
function eagerLines(state: State) {
  const { lines, breaks } = state.data.record;
  const told = new Set(breaks.map((each) => cellLine(each.spans)));
  return lines.filter((line) => line.fate === 'eager' && !told.has(line.line));
}

/** Lines that Python ran although they may hold tensor work. */
function Eagerly({ state }: { state: State }) {
  const lines = eagerLines(state);
  if (!lines.length) return null;
  return (
    <section aria-label="lines that ran eagerly">
      <div class="nbc-guards-head"><h4>{count(lines.length, 'line')} ran eagerly</h4></div>
      {lines.map((each) => (
        <div class={`nbc-broken ${litLine(state.lit.value, each.line)}`}>
          <Place state={state} spans={[{ line: each.line, column: null, end_line: null, end_column: null, file: '' }]} />
          <div><b>{each.reason}</b></div>
        </div>
      ))}
    </section>
  );
}

function Recompiles({ state, recompiles }: { state: State; recompiles: readonly Recompile[] }) {
  if (!recompiles.length) return null;
  return (
    <section aria-label="recompiles">
      <div class="nbc-guards-head"><h4>{count(recompiles.length, 'recompile')} <span class="nbc-quiet">a guard failed, and the same code was compiled again</span></h4></div>
      {recompiles.map((each, place) => (
        <div class={`nbc-broken nbc-recompiled ${lit(state, each.spans)}`}>
          <Place state={state} spans={each.spans} />
          <div>
            <b class="nbc-code">{each.reason}</b>
            <p class="nbc-quiet">{[each.function && `in ${each.function}`, each.graph && `made graph ${each.graph}`].filter(Boolean).join(', ')}</p>
            <Mended state={state} place={place} of="recompiles" />
          </div>
        </div>
      ))}
    </section>
  );
}

/** Guards of one kind: the first few, for those of a model's parts are many and alike. */
function Kind({ state, kind, guards, open }: { state: State; kind: string; guards: readonly Guard[]; open: boolean }) {
  const all = useSignal(false);
  const shown = open || all.value ? guards : guards.slice(0, FEW);
  const several = new Set(state.data.record.guards.map((guard) => guard.graph)).size > 1;
  return (
    <table class="nbc-table nbc-guard-kind">
      <colgroup><col class="nbc-guard-place" /><col class="nbc-guard-name" /><col /></colgroup>
      <thead>
        <tr>
          <th scope="colgroup" colSpan={3}><b>{guards.length}</b> <span class="nbc-code">{kind}</span> <span class="nbc-quiet">{KINDS.get(kind) ?? ''}</span></th>
        </tr>
      </thead>
      <tbody>
        {shown.map((guard) => (
          <tr class={lit(state, guard.spans)}>
            <td><Place state={state} spans={guard.spans} />{several && <span class="nbc-quiet"> {guard.graph}</span>}</td>
            <td class="nbc-code">{guard.name}</td>
            <td class="nbc-code">{guard.code.map((line) => <div>{condition(line, guard.name)}</div>)}</td>
          </tr>
        ))}
        {shown.length < guards.length && (
          <tr>
            <td colSpan={3}><button type="button" class="nbc-all" onClick={() => (all.value = true)}>{count(guards.length - shown.length, 'more', 'more')}</button></td>
          </tr>
        )}
      </tbody>
    </table>
  );
}

/** `== 0.1`, where the guard's name stands beside it already. */
function condition(code: string, name: string): string {
  return name && code.startsWith(name) && /^\W*\s/.test(code.slice(name.length)) ? code.slice(name.length).trim() : code;
}

/** Guards by kind, in the order of the record. */
export function kinds(guards: readonly Guard[]): [string, Guard[]][] {
  const out = new Map<string, Guard[]>();
  for (const guard of guards) {
    const own = out.get(guard.kind);
    if (own) own.push(guard);
    else out.set(guard.kind, [guard]);
  }
  return [...out];
}

/** The innermost line of the cell. */
function cellLine(spans: readonly Span[]): number | null {
  return spans.filter((span) => !span.file).pop()?.line ?? null;
}

function lit(state: State, spans: readonly Span[]): string {
  const line = cellLine(spans);
  return line === null ? '' : litLine(state.lit.value, line);
}

/** Where it is: a line of the cell, which can be pointed at, or one of a file. */
function Place({ state, spans }: { state: State; spans: readonly Span[] }) {
  const line = cellLine(spans);
  const inner = spans[spans.length - 1];
  const file = inner?.file ? `${inner.file.replaceAll('\\', '/').split('/').pop()}:${inner.line}` : '';
  if (line === null) return file ? <span class="nbc-quiet" title={inner?.file}>{clip(file, 30)}</span> : null;
  return (
    <span class="nbc-place" role="button" title={file ? `called there; in ${inner?.file}:${inner?.line}` : ''} aria-label={`line ${line} of the cell`} {...pointing(state, { ids: [], line })}>
      line {line}
    </span>
  );
}
