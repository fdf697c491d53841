import { useSignal } from '@preact/signals';
import { useRef } from 'preact/hooks';
import type { Mend, Span } from '../record/generated/record';
import { APPLY_EVENT, type ApplyDetail } from './host';
import type { State } from './state';

/**
 * What a graph break or a recompile costs, and the rewrite that mends it: tried, to be looked at, and applied with one click.
 * `brief`: what the rewrite is and does is told with the change only.
 */
export function Mended({ state, place, of = 'breaks', brief = false }: { state: State; place: number; of?: 'breaks' | 'recompiles'; brief?: boolean }) {
  const found: readonly Mendable[] = state.data.record[of];
  const mend = found[place]?.mend ?? null;
  const words = state.data.scene?.[of]?.[place];
  if (!words?.price && !words?.mend) return null;
  const first = firstOf(found, place);
  if (first < place) return <p class="nbc-quiet">The change for {lineOf(found[first], of)} mends it too.</p>;
  return (
    <div class="nbc-mended" onClick={(event) => event.stopPropagation()}>
      {words.price && <p class="nbc-quiet">{words.price}</p>}
      {mend?.after ? <Holding state={state} mend={mend} words={words.mend} brief={brief} /> : <p class="nbc-quiet">{words.mend}</p>}
    </div>
  );
}

interface Mendable {
  spans: readonly Span[];
  mend: Mend | null;
}

/** The first that comes to the same text: it is told once. */
function firstOf(found: readonly Mendable[], place: number): number {
  const after = found[place]?.mend?.after;
  return after ? found.findIndex((each) => each.mend?.after === after) : place;
}

function Holding({ state, mend, words, brief }: { state: State; mend: Mend; words: string; brief: boolean }) {
  return (
    <>
      {!brief && <p>{words}</p>}
      <Rewrite state={state} mend={mend} words={brief ? words : ''} />
    </>
  );
}

function lineOf(each: Mendable | undefined, of: string): string {
  const line = each?.spans.find((span) => !span.file)?.line;
  return line === undefined ? `the ${of === 'breaks' ? 'break' : 'recompile'} above` : `line ${line}`;
}

function Rewrite({ state, mend, words }: { state: State; mend: Mend; words: string }) {
  const open = useSignal(false);
  const said = useSignal('');
  const root = useRef<HTMLDivElement>(null);
  // A file is not the notebook's to write.
  const inFile = mend.cell !== '' && !mend.cell.startsWith('In [');
  const apply = async (): Promise<void> => {
    const detail: ApplyDetail = { before: mend.cell ? mend.before : state.data.source, after: mend.after, cell: mend.cell, said: '' };
    const event = new CustomEvent<ApplyDetail>(APPLY_EVENT, { detail, bubbles: true, composed: true, cancelable: true });
    if (!inFile) root.current?.dispatchEvent(event);
    if (event.defaultPrevented) {
      said.value = detail.said;
      return;
    }
    try {
      await navigator.clipboard.writeText(mend.after);
      said.value = `Copied: paste it over ${mend.cell || 'the cell'}.`;
    } catch {
      said.value = 'It cannot be copied here: take it from the change.';
      open.value = true;
    }
  };
  return (
    <div ref={root}>
      <button type="button" class="nbc-button" onClick={() => void apply()}>{inFile ? 'Copy for' : 'Apply to'} {mend.cell || 'cell'}</button>{' '}
      <button type="button" class="nbc-more-of" aria-expanded={open.value} onClick={() => (open.value = !open.value)}>
        {open.value ? 'hide the change' : 'show the change'}
      </button>
      {said.value && <span class="nbc-quiet" role="status"> {said.value}</span>}
      {open.value && words && <p>{words}</p>}
      {open.value && (
        <pre class="nbc-code nbc-diff-text" tabIndex={0} aria-label={`change of ${mend.cell || 'the cell'}`}>
          {mend.diff.split('\n').filter((line) => !/^(---|\+\+\+|@@)/.test(line)).map((line) => <span class={`nbc-diff-line ${kind(line)}`}>{line}{'\n'}</span>)}
        </pre>
      )}
    </div>
  );
}

function kind(line: string): string {
  if (line.startsWith('+')) return 'nbc-diff-in';
  return line.startsWith('-') ? 'nbc-diff-out' : '';
}
