import { useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { PlayError } from './host';
import { runChange, type Settings } from './play';
import { differing, inWords, recorded, type Answer } from './play/controls';
import { Fields } from './play/Fields';
import { History } from './play/History';
import type { State } from './state';

/** Change how it is compiled, or what it is compiled for, and see what comes of it. */
export function PlayPane({ state }: { state: State }) {
  const answer = useSignal<Answer | null>(null);
  const draft = useSignal<Settings>({});
  const kernel = state.host.kernel.value;
  useEffect(() => {
    let gone = false;
    answer.value = null;
    kernel?.request<Answer>('controls', { record: state.data.record.id }).then(
      (told) => !gone && (answer.value = told),
      (error: unknown) => !gone && (answer.value = { live: false, reason: error instanceof PlayError ? `${error.title}: ${error.message}` : String(error) }),
    );
    return () => {
      gone = true;
    };
  }, [kernel]);

  const live = answer.value?.live === true ? answer.value : null;
  const controls = live ?? recorded(state.data.record);
  const busy = state.play.step.value !== null;
  const changes = differing(draft.value, controls);
  const words = inWords(changes, controls);
  const run = async (settings: Settings): Promise<void> => {
    // What failed is not offered again: the controls show what the record has.
    if (!(await runChange(state, settings, inWords(settings, controls)))) draft.value = {};
  };
  const choose = (change: Settings): void => {
    draft.value = { ...draft.value, ...change, sizes: { ...draft.value.sizes, ...change.sizes } };
    const all = differing(draft.value, controls);
    if (state.play.auto.value && Object.keys(all).length) void run(all);
  };
  return (
    <div class="nbc-tryout">
      <Reason state={state} answer={answer.value} />
      <Fields controls={controls} draft={draft.value} disabled={!live || busy} choose={choose} />
      <div class="nbc-run">
        <button type="button" class="nbc-button nbc-primary" disabled={!live || busy || !words} onClick={() => void run(changes)}>Run</button>
        {words && !busy && <span class="nbc-quiet">{words}</span>}
        <Working state={state} />
        <label class="nbc-auto">
          <input type="checkbox" checked={state.play.auto.value} disabled={!live} onChange={(event) => (state.play.auto.value = event.currentTarget.checked)} /> run on every change
        </label>
      </div>
      <History state={state} />
    </div>
  );
}

/** Why nothing can be changed, if so. */
function Reason({ state, answer }: { state: State; answer: Answer | null }) {
  if (!state.host.kernel.value) return <p class="nbc-note nbc-tryout-note" role="note">{state.host.needs}</p>;
  if (answer === null) return <p class="nbc-note nbc-tryout-note" role="status">asking the kernel …</p>;
  if (!answer.live) return <p class="nbc-note nbc-tryout-note" role="note">{answer.reason}</p>;
  return null;
}

/** How far it is, here where it was asked for; the bar above the panes says the same to a screen reader. */
function Working({ state }: { state: State }) {
  const step = state.play.step.value;
  const kernel = state.host.kernel.value;
  if (!step) return null;
  const known = step.of ? { value: step.done ?? 0, max: step.of } : {};
  return (
    <>
      <progress class="nbc-progress" {...known} aria-hidden="true" />
      <span class="nbc-quiet">{step.text}{step.of ? ` (${step.done ?? 0} of ${step.of})` : ''}</span>
      {kernel?.cancellable ? (
        <button type="button" class="nbc-button" onClick={() => kernel.cancel()}>Cancel</button>
      ) : (
        <span class="nbc-quiet">the notebook's interrupt button stops it</span>
      )}
    </>
  );
}
