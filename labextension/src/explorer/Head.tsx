import { useSignal } from '@preact/signals';
import type { Scene } from '../record/generated/scene';
import { isBare } from './Answer';
import { ask, replaceBy } from './play';
import type { State } from './state';
import { count } from './units';
import { Waiting } from './Waiting';

/** Figures in a sentence of facts. */
const FIGURE = /((?<!\w)\d(?:[\d,.]*\d)?(?:×|%| [kMGT]?B\b| (?:s|ms|µs|ns)\b)?)/;

/** Notes that are told before one asks for all. */
const NOTES = 2;

/** The answer at a glance: what it is, what happened, was it worth it. */
export function Head({ state }: { state: State }) {
  const { record, scene, lacking } = state.data;
  return (
    <header class="nbc-head">
      <div class="nbc-headline">
        <div class="nbc-title">
          <b>{scene?.title || record.id}</b> <span class="nbc-quiet">{scene?.subtitle ?? `${record.backend} · ${record.mode}`}</span>
        </div>
        {scene && <Verdict verdict={scene.verdict} />}
      </div>
      {scene?.pending && <Waiting state={state} pending={scene.pending} />}
      {scene?.why && <p class="nbc-because"><Fact text={`${scene.why}.`} /></p>}
      {scene?.since && <Since state={state} text={scene.since} />}
      {scene && !isBare(state) && <p class="nbc-facts">{scene.facts.map((fact) => <><Fact text={fact} /> </>)}</p>}
      {lacking && (
        <p class="nbc-note" role="note">Less is shown of this record: {lacking}. Run the cell again for the rest.</p>
      )}
      {/* What the headline says already is not said again. */}
      <Notes notes={record.notes.filter((note) => !scene?.verdict.text.endsWith(note))} />
    </header>
  );
}

/** What has changed since the last run of this cell, and the step back to it. */
function Since({ state, text }: { state: State; text: string }) {
  const { record } = state.data;
  const before = record.since?.record;
  const back = async (): Promise<void> => {
    const answer = await ask<{ payload: unknown }>(state, 'earlier', { record: before });
    if (answer) await replaceBy(state, answer.payload, `${record.since?.title ?? ''}, the run before`);
  };
  return (
    <p class="nbc-because">
      <Fact text={`${text}.`} />{' '}
      {state.host.kernel.value && before && before !== record.id && (
        <button type="button" class="nbc-more-of" onClick={(event) => { event.stopPropagation(); void back(); }}>show it</button>
      )}
    </p>
  );
}

/** What did not go as asked: a few lines, and the rest on demand. */
function Notes({ notes }: { notes: readonly string[] }) {
  const all = useSignal(false);
  const shown = all.value ? notes : notes.slice(0, NOTES);
  return (
    <>
      {shown.map((note) => <p class="nbc-note" role="note">{note}</p>)}
      {notes.length > NOTES && (
        <button type="button" class="nbc-more-of" aria-expanded={all.value} onClick={() => (all.value = !all.value)}>
          {all.value ? 'fewer notes' : `${count(notes.length - NOTES, 'note')} more`}
        </button>
      )}
    </>
  );
}

function Verdict({ verdict }: { verdict: Scene['verdict'] }) {
  return (
    <div class={`nbc-verdict nbc-tone-${verdict.tone}`} title={verdict.detail}>
      {verdict.text}
    </div>
  );
}

function Fact({ text }: { text: string }) {
  return <span class="nbc-fact">{text.split(FIGURE).map((part, place) => (place % 2 ? <b>{part}</b> : part))}</span>;
}
