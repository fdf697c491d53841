import { Asked } from '../PlayBar';
import { compared, spreadOf, spreadText } from '../spread';
import type { State } from '../state';
import { clip } from '../units';
import type { Draft } from './drafts';

/** What came of an edit: the kernel's answer. Times in seconds. */
export interface EditResult {
  agrees: boolean;
  outputs: { name: string; error: number | null; eager_error: number | null; max_difference: number | null; agrees: boolean; reason: string }[];
  original: number[];
  edited: number[];
  message: string;
  payload?: unknown;
}

interface Props {
  state: State;
  draft: Draft;
  run(): void;
  reset(): void;
  discard(): void;
  keep(): void;
}

/** What can be done with an edited kernel, and what came of the last run of it. */
export function EditBar({ state, draft, run, reset, discard, keep }: Props) {
  const { result } = draft;
  const [changed, unlike] = [draft.text !== draft.base, draft.text !== draft.first];
  const busy = state.play.step.value !== null;
  const kernel = state.host.kernel.value;
  const keepable = result?.agrees && result.payload !== undefined;
  return (
    <div class="nbc-edit">
      <div class="nbc-edit-buttons">
        <button type="button" class="nbc-button nbc-primary" disabled={busy || !changed || !kernel} title={kernel ? 'Ctrl+Enter' : state.host.needs} onClick={run}>
          Run
        </button>
        <button type="button" class="nbc-button" disabled={busy || !unlike} onClick={reset}>Reset</button>
        <button type="button" class="nbc-button" disabled={busy} onClick={discard}>Discard</button>
        <button type="button" class="nbc-button" disabled={busy || !keepable} title={keepable ? '' : 'An edit can be kept once it has run and agrees with eager.'} onClick={keep}>
          Keep
        </button>
        {!result && !busy && !state.play.failed.value && <span class="nbc-quiet">Run checks it against eager and times it beside the original.</span>}
      </div>
      {state.play.place.value === 'edit' && <Asked state={state} />}
      {result && !busy && <Result result={result} />}
    </div>
  );
}

function Result({ result }: { result: EditResult }) {
  const [original, edited] = [spreadOf(result.original), spreadOf(result.edited)];
  const difference = original && edited && compared(original, edited);
  const wrong = result.outputs.filter((output) => !output.agrees);
  return (
    <div class="nbc-edit-result" role="status">
      <p>
        {result.agrees ? <b class="nbc-tone-good">✓ agrees with eager</b> : <b class="nbc-tone-bad">✗ does not agree with eager</b>}
        {result.agrees && difference && (
          <>
            {' '}· <b class={`nbc-tone-${difference.tone}`}>{difference.text}</b>
          </>
        )}
      </p>
      {wrong.map((output) => (
        <p>
          <b>{clip(output.name, 40)}</b>
          {output.max_difference !== null && ` differs by up to ${output.max_difference.toPrecision(3)}`}
          <span class="nbc-quiet"> {output.reason}</span>
        </p>
      ))}
      {!wrong.length && !result.agrees && <p>{result.message}</p>}
      {original && edited && (
        <dl class="nbc-edit-times" title="the kernel alone: median, p10–p90">
          <dt>original</dt>
          <dd><Bar seconds={original.median} most={Math.max(original.median, edited.median)} /> {spreadText(original)}</dd>
          <dt>edited</dt>
          <dd><Bar seconds={edited.median} most={Math.max(original.median, edited.median)} own /> {spreadText(edited)}</dd>
        </dl>
      )}
    </div>
  );
}

function Bar({ seconds, most, own = false }: { seconds: number; most: number; own?: boolean }) {
  return (
    <span class="nbc-edit-bar" aria-hidden="true">
      <i class={own ? 'nbc-own' : ''} style={{ width: `${(100 * seconds) / most}%` }} />
    </span>
  );
}
