import { useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import type { Pending } from '../record/generated/scene';
import type { State } from './state';

/** Seconds after which a record that still says so is taken for one of a run that ended. */
const FORGOTTEN = 900;

/** What is still being measured, for how long, and the way to stop it. */
export function Waiting({ state, pending }: { state: State; pending: Pending }) {
  const now = useSignal(Date.now() / 1e3);
  const seconds = Math.max(0, now.value - pending.since);
  useEffect(() => {
    const timer = setInterval(() => (now.value = Date.now() / 1e3), 1000);
    return () => clearInterval(timer);
  }, []);
  if (seconds > FORGOTTEN) return <p class="nbc-note" role="note">Timing was not finished. Run the cell again for the rest.</p>;
  const kernel = state.host.kernel.value;
  return (
    <p class="nbc-waiting" role="status">
      <span class="nbc-spinner" aria-hidden="true" />
      <span>{pending.text}{pending.sketch ? '; its other graphs follow' : ''} …</span> <span class="nbc-quiet">{Math.round(seconds)} s</span>
      {kernel?.stopAll && (
        <button type="button" class="nbc-button" onClick={() => kernel.stopAll?.()}>Stop timing</button>
      )}
    </p>
  );
}
