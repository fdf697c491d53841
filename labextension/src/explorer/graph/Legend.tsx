import { pointing } from '../state';
import type { Overlay } from './overlays';
import type { Fate, Sheet } from './sheet';

/** By the letters of Drawing.fates. */
const FATES: [string, Fate, string][] = [
  ['f', 'fused', 'fused kernel'], ['l', 'library', 'library call'], ['b', 'fallback', 'fallback'], ['c', 'captured', 'captured'],
];

/** What colours mean, and what the drawing leaves out. */
export function Legend({ sheet, overlay }: { sheet: Sheet; overlay: Overlay | string }) {
  const { fates, left_out } = sheet.drawing;
  const scale = typeof overlay !== 'string' && overlay.about ? overlay : null;
  return (
    <div class="nbc-graph-legend">
      {typeof overlay === 'string' && <span class="nbc-quiet">{overlay}</span>}
      {scale && <First sheet={sheet} overlay={scale} />}
      {scale ? <Scale overlay={scale} /> : (
        FATES.filter(([letter]) => fates.includes(letter)).map(([, fate, words]) => (
          <span><i class={`nbc-graph-key nbc-graph-key-${fate}`} />{words}</span>
        ))
      )}
      {!scale && left_out.map((words) => <span class="nbc-quiet">{words}</span>)}
    </div>
  );
}

/** Where the numbers go wrong: a press goes there. */
function First({ sheet, overlay }: { sheet: Sheet; overlay: Overlay }) {
  const { first } = overlay;
  if (first === undefined) return null;
  if (first < 0) return <span>every value agrees with eager</span>;
  return (
    <span class="nbc-graph-first" role="button" {...pointing(sheet.state, sheet.focus(first))}>
      <i class="nbc-graph-key nbc-graph-key-first" />first that differs: <b>{sheet.nodes[first]?.name}</b>
    </span>
  );
}

function Scale({ overlay }: { overlay: Overlay }) {
  const { about, steps } = overlay;
  if (!steps.length) return <span><i class="nbc-graph-key nbc-graph-heat-3" />{about}</span>;
  return (
    <>
      <span>{about}</span>
      <span class="nbc-graph-scale" title={`up to ${steps.join(', ')}`}>
        {steps[0]}
        <b>{steps.map((_, at) => <i class={`nbc-graph-key nbc-graph-heat-${at + 1}`} />)}</b>
        {steps[steps.length - 1]}
      </span>
    </>
  );
}
