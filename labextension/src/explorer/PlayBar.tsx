import type { Unpacked } from '../record/read';
import type { PlayError, Progress } from './host';
import { undo, type Past } from './play';
import { compared, ownTime, spreadText } from './spread';
import type { State } from './state';
import { count } from './units';

/** What playing is doing, what it changed, and the way back. */
export function PlayBar({ state }: { state: State }) {
  const { past, step } = state.play;
  const last = past.value[past.value.length - 1];
  const here = state.play.place.value === 'bar';
  if (!last && !(here && (step.value || state.play.failed.value))) return null;
  return (
    <div class="nbc-play" onClick={(event) => event.stopPropagation()}>
      {here && <Asked state={state} />}
      {last && !(here && step.value) && <Changed state={state} last={last} />}
    </div>
  );
}

/** What became of the last request so far: its progress, or why it failed. */
export function Asked({ state }: { state: State }) {
  const { step, failed } = state.play;
  if (step.value) return <Running state={state} step={step.value} />;
  return failed.value && <Failed error={failed.value} close={() => (failed.value = null)} />;
}

/** How far a long step is, and the button that stops it. */
function Running({ state, step }: { state: State; step: Progress }) {
  const kernel = state.host.kernel.value;
  const known = step.of ? { value: step.done ?? 0, max: step.of } : {};
  return (
    <div class="nbc-running" role="status">
      <progress {...known} aria-label={step.text} />
      <span class="nbc-running-text">{step.text}</span>
      {kernel?.cancellable ? (
        <button type="button" class="nbc-button" onClick={() => kernel.cancel()}>Cancel</button>
      ) : (
        <span class="nbc-quiet">the notebook's interrupt button stops it</span>
      )}
    </div>
  );
}

/** Why a request came to nothing. */
function Failed({ error, close }: { error: PlayError; close: () => void }) {
  return (
    <div class="nbc-failed" role="alert">
      <b>{error.cancelled ? 'Cancelled' : error.title}</b>
      <span>
        {error.cancelled ? 'Nothing was changed.' : error.message} <span class="nbc-quiet">{error.advice}</span>
      </span>
      <button type="button" class="nbc-button" onClick={close}>Close</button>
    </div>
  );
}

function Changed({ state, last }: { state: State; last: Past }) {
  const [before, after] = [ownTime(last.data), ownTime(state.data)];
  const difference = before && after && compared(before, after);
  return (
    <div class="nbc-changed" role="status">
      <b>{last.change}</b>
      <span>{kernels(last.data)} → {kernels(state.data)}</span>
      {before && after && difference && (
        <span title="median of one call, and its spread p10–p90">
          {spreadText(before)} → {spreadText(after)} <b class={`nbc-tone-${difference.tone}`}>{difference.text}</b>
        </span>
      )}
      <button type="button" class="nbc-button" onClick={() => undo(state)}>Undo</button>
    </div>
  );
}

function kernels(data: Unpacked): string {
  return count(data.record.kernels.length, 'kernel');
}
