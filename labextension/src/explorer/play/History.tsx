import type { PlayError } from '../host';
import { replace, type Tried } from '../play';
import { compared, ownTime, spreadText } from '../spread';
import { pointing, type State } from '../state';
import { bytes } from '../units';

/** What was tried here: each row brings its record back. */
export function History({ state }: { state: State }) {
  const tried = state.play.tried.value;
  if (!tried.length) return null;
  // Against the first that has a time: a cell may have been compiled with none taken.
  const first = tried.find((each) => each.data && ownTime(each.data))?.data ?? state.data;
  const slowest = Math.max(...tried.map((each) => (each.data && ownTime(each.data)?.median) ?? 0));
  return (
    <section aria-label="what was tried">
      <h4 class="nbc-history-title">Tried here <span class="nbc-quiet">a click brings it back</span></h4>
      <div class="nbc-scroll">
        <table class="nbc-table nbc-history">
          <thead>
            <tr>
              <th scope="col">change</th>
              <th scope="col">compiled by</th>
              <th scope="col" class="nbc-figure">kernels</th>
              <th scope="col" class="nbc-figure">moves</th>
              <th scope="col" class="nbc-figure">one call</th>
              <th scope="col">against the first</th>
            </tr>
          </thead>
          <tbody>
            {tried.map((each) => (each.failed ? <Failed state={state} change={each.change} error={each.failed} /> : <Row state={state} one={each} first={first} slowest={slowest} />))}
          </tbody>
        </table>
      </div>
    </section>
  );
}

type Shown = Extract<Tried, { failed: null }>;

function Row({ state, one, first, slowest }: { state: State; one: Shown; first: Shown['data']; slowest: number }) {
  const { record } = one.data;
  const current = record.id === state.data.record.id;
  const [before, now] = [ownTime(first), ownTime(one.data)];
  const difference = before && now && one.data !== first ? compared(before, now) : null;
  const back = (): void => {
    if (!current && !state.play.step.value) replace(state, one.data, `back to ${one.change}`);
  };
  const moved = bytesMoved(one.data);
  return (
    <tr
      class={current ? 'nbc-current' : ''} tabIndex={0} aria-current={current} onClick={back}
      onKeyDown={(event) => (event.key === 'Enter' || event.key === ' ') && (event.preventDefault(), back())}
    >
      <td class="nbc-nowrap">{current && <span aria-hidden="true">▸ </span>}{one.change}</td>
      <td class="nbc-quiet">{record.mode === 'default' ? record.backend : `${record.backend} ${record.mode}`}</td>
      <td class="nbc-figure">{record.kernels.length || '–'}</td>
      <td class="nbc-figure">{moved ? bytes(moved) : '–'}</td>
      <td class="nbc-figure">{now ? <><span class="nbc-share nbc-history-bar"><i style={{ width: `${(100 * now.median) / slowest}%` }} /></span> {spreadText(now)}</> : '–'}</td>
      <td>{difference ? <b class={`nbc-tone-${difference.tone}`}>{difference.text}</b> : '–'}</td>
    </tr>
  );
}

function bytesMoved(data: Shown['data']): number {
  return (data.scene?.calls ?? []).reduce((sum, call) => sum + call.bytes, 0);
}

function Failed({ state, change, error }: { state: State; change: string; error: PlayError }) {
  return (
    <tr class="nbc-tried-failed">
      <td>{change}</td>
      <td colSpan={5}>
        <b class="nbc-tone-bad">{error.title}</b> {error.message}{' '}
        {error.line !== null && <span class="nbc-place" role="button" {...pointing(state, { ids: [], line: error.line })}>line {error.line}</span>}
        {error.advice && <span class="nbc-quiet"> {error.advice}</span>}
      </td>
    </tr>
  );
}

