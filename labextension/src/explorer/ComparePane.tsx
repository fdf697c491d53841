import { useSignal } from '@preact/signals';
import { RecordError, type Unpacked } from '../record/read';
import { Comparison } from './compare/Comparison';
import { FACTS } from './compare/differences';
import { candidates, chosenOf, readFile, titleOf, type Candidate } from './compare/sources';
import { compared, ownTime, type Spread } from './spread';
import type { State } from './state';
import { Tabs } from './Tabs';
import { clip } from './units';

/** Compilations compared at once: more columns cannot be read. */
const MOST = 4;

/** This compilation beside others: what differs, matched through where everything came from. */
export function ComparePane({ state }: { state: State }) {
  const all = candidates(state);
  const chosen = chosenOf(state);
  const looked = useSignal('');
  const wanted = chosen.value ?? lastTried(state, all);
  const others = wanted.map((id) => all.find((each) => each.data.record.id === id)).filter((each): each is Candidate => each !== undefined).slice(0, MOST);
  const other = others.find((each) => each.data.record.id === looked.value) ?? others[0];
  return (
    <div class="nbc-comparing">
      <Choose state={state} all={all} others={others} />
      {!other && <p class="nbc-empty">{all.length ? 'Choose what to compare this compilation with.' : 'There is nothing to compare with yet: change something under Play, compile another cell, or open a saved record.'}</p>}
      {other && <Facts others={others} data={state.data} />}
      {others.length > 1 && other && (
        <Tabs label="compared with" tabs={others.map((each) => ({ id: each.data.record.id, label: `against ${clip(each.label, 32)}` }))} chosen={other.data.record.id} choose={(id) => (looked.value = id)} />
      )}
      {other && <Comparison key={other.data.record.id} state={state} other={other} />}
    </div>
  );
}

/** What was shown before the last change, else another compiler's: what one wants to know of most. */
function lastTried(state: State, all: readonly Candidate[]): string[] {
  const past = state.play.past.value;
  const last = past[past.length - 1]?.data.record.id;
  if (last !== undefined && all.some((each) => each.data.record.id === last)) return [last];
  return state.data.peers.slice(0, 1).map((peer) => peer.record.id);
}

function Choose({ state, all, others }: { state: State; all: readonly Candidate[]; others: readonly Candidate[] }) {
  const failed = useSignal('');
  const chosen = chosenOf(state);
  const ids = others.map((each) => each.data.record.id);
  const open = async (files: FileList | null): Promise<void> => {
    failed.value = '';
    for (const file of files ?? []) {
      try {
        const { data } = await readFile(file);
        chosen.value = [...new Set([...ids, data.record.id])].filter((id) => id !== state.data.record.id);
      } catch (error) {
        const why = error instanceof RecordError ? `${error.message} ${error.advice}` : 'It is not JSON.';
        failed.value = `${file.name} cannot be opened. ${why}`;
      }
    }
  };
  return (
    <div class="nbc-choose" role="group" aria-label="compare with">
      <span class="nbc-quiet">compare with</span>
      {all.map((each) => {
        const { id } = each.data.record;
        const on = ids.includes(id);
        return (
          <label class={`nbc-candidate ${on ? 'nbc-candidate-on' : ''}`} title={titleOf(each.data)}>
            <input type="checkbox" checked={on} disabled={!on && ids.length >= MOST} onChange={() => (chosen.value = on ? ids.filter((other) => other !== id) : [...ids, id])} />
            {clip(each.label, 36)} <span class="nbc-quiet">{each.from}</span>
          </label>
        );
      })}
      <label class="nbc-candidate nbc-open-file">
        <input type="file" accept=".json,application/json" multiple class="nbc-unseen" onChange={(event) => void open(event.currentTarget.files)} />
        open a saved record …
      </label>
      {failed.value && <p class="nbc-tone-bad" role="alert">{failed.value}</p>}
    </div>
  );
}

/** The heads side by side, this one last. */
function Facts({ others, data }: { others: readonly Candidate[]; data: Unpacked }) {
  const columns = [...others.map((each) => each.data), data];
  const now = ownTime(data);
  return (
    <div class="nbc-scroll">
      <table class="nbc-table nbc-facts-table">
        <thead>
          <tr>
            <th scope="col" />
            {others.map((each) => <th scope="col">{clip(each.label, 40)}</th>)}
            <th scope="col" class="nbc-own">this</th>
          </tr>
        </thead>
        <tbody>
          {FACTS.map((fact) => {
            const told = columns.map((each) => fact.of(each));
            return (
              <tr class={told.every((each) => each === told[0]) ? 'nbc-same' : ''}>
                <th scope="row">{fact.name}</th>
                {told.map((each) => <td>{each}</td>)}
              </tr>
            );
          })}
          {now && (
            <tr>
              <th scope="row">this is</th>
              {others.map((each) => <td><Against before={ownTime(each.data)} now={now} /></td>)}
              <td />
            </tr>
          )}
        </tbody>
      </table>
    </div>
  );
}

function Against({ before, now }: { before: Spread | null; now: Spread }) {
  if (!before) return <>–</>;
  const { text, tone } = compared(before, now);
  return <b class={`nbc-tone-${tone}`}>{text}</b>;
}
