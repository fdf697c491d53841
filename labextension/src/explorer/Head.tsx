import type { Scene } from '../record/generated/scene';
import type { State } from './state';
import { Waiting } from './Waiting';

/** Figures in a sentence of facts. */
const FIGURE = /((?<!\w)\d(?:[\d,.]*\d)?(?:×| [kMGT]?B\b| (?:s|ms|µs|ns)\b)?)/;

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
      {scene && <p class="nbc-facts">{scene.facts.map((fact) => <><Fact text={fact} /> </>)}</p>}
      {lacking && (
        <p class="nbc-note" role="note">Less is shown of this record: {lacking}. Run the cell again for the rest.</p>
      )}
      {record.notes.map((note) => (
        <p class="nbc-note" role="note">{note}</p>
      ))}
    </header>
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
